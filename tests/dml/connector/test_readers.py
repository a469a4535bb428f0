"""The reader of a query's rows: each row of the table in `choose_reader`, and the lines of EXPLAIN."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, NestedField, StringType, StructType

from dml import limits
from dml.errors import CorruptFileError
from dml.files.schemes import ALLOWED_SCHEMES
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.plan.names import SqlRules
from dml.rows.program import Aggregate, AggregateFunction, Groups
from dml.scan.planner import ScanPlan
from dml.spark_scan.read import AggregateCall, Aggregation, SparkRead
from dml.spark_scan.readers import (
    GroupedRead,
    KnownValues,
    PythonRead,
    Reader,
    ReaderCapabilities,
    choose_reader,
    reader_text,
)
from dml.spark_scan.vectorized import VectorizedRead

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "s", StringType(), required=False),
    NestedField(3, "day", DateType(), required=False),
    NestedField(4, "m", DecimalType(9, 2), required=False),
    NestedField(5, "st", StructType(NestedField(6, "a", IntegerType(), required=False)), required=False),
)
OLDER = Schema(NestedField(1, "id", IntegerType(), required=False), schema_id=1)
DELETES = DeleteFileRef(
    path="file:///t/d.parquet", file_format="parquet", record_count=1, file_size_in_bytes=9, data_sequence_number=2
)
FILE = ScanTask(
    file_ordinal=0,
    path="file:///t/a.parquet",
    file_format="parquet",
    record_count=10,
    file_size_in_bytes=limits.MIN_SPARK_READER_BYTES,
    start=0,
    length=limits.MIN_SPARK_READER_BYTES,
    spec_id=0,
    partition=("x", 1),
    data_sequence_number=1,
)


def damaged(*_: object) -> bool:
    raise CorruptFileError("no Parquet file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A query, its files and its session, which Spark's reader can read unless a test changes an attribute."""

    columns: tuple[int, ...] = (1, 2)
    metadata_columns: tuple[str, ...] = ()
    schema: Schema = SCHEMA
    older: tuple[Schema, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[int, ...] = ()
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    files: tuple[ScanTask, ...] = (FILE,)
    whole_files: bool = False
    schemes: str = "file"
    aggregation: Aggregation | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    known: tuple[Any, ...] | None = None
    counts_rows: bool = True
    runs_tasks: bool = True
    reads_parquet: bool = True
    keeps_most_rows: Callable[..., bool] = lambda _: True
    have_field_ids: bool = True
    unplanned_reason: str | None = None

    def read(self) -> Reader:
        spec = PartitionSpec(
            *(PartitionField(column, 999 + column, IdentityTransform(), f"p{column}") for column in self.partitions)
        )
        made = new_table_metadata(SCHEMA, spec, UNSORTED_SORT_ORDER, "file:///t", dict(self.properties))
        metadata = made.model_copy(update={"schemas": [*self.older, self.schema]})
        io = PyArrowFileIO({ALLOWED_SCHEMES: self.schemes})
        read = SparkRead(
            name="lake.db.t",
            version=(),
            table=Table(("db", "t"), metadata, "file:///t/v1.json", io, None),
            snapshot_id=1,
            schema=self.schema,
            columns=self.columns,
            metadata_columns=self.metadata_columns,
            row_filter=self.row_filter,
            rules=SqlRules(),
            parallelism=2,
            aggregation=self.aggregation,
        )
        capabilities = ReaderCapabilities(
            setting=self.settings.get,
            counts_rows=lambda: self.counts_rows,
            runs_tasks=lambda: self.runs_tasks,
            reads_parquet=lambda: self.reads_parquet,
            known_values=lambda *_: self.known,
            keeps_most_rows=self.keeps_most_rows,
            have_field_ids=lambda *_: self.have_field_ids,
            unplanned_reason=self.unplanned_reason,
        )
        plan = ScanPlan(snapshot_id=1, tasks=self.files, covers_whole_files=self.whole_files)
        return choose_reader(read, plan, capabilities)


def aggregation(by: Sequence[int], *calls: tuple[AggregateFunction, int | None]) -> Aggregation:
    column = SCHEMA.find_field
    return Aggregation(
        by=tuple(map(column, by)),
        calls=tuple(AggregateCall(function=each, column=None if on is None else column(on)) for each, on in calls),
    )


COUNT, MAX, SUM = AggregateFunction.COUNT_ROWS, AggregateFunction.MAX, AggregateFunction.SUM
STRING_GROUPS = aggregation([3], (MAX, 2), (COUNT, None))
NUMBER_GROUPS = aggregation([1], (MAX, 4))
SMALL = replace(FILE, length=1)

ROWS: Mapping[str, Sequence[tuple[dict[str, Any], str]]] = {
    "Spark cannot plan the scan: Connect, PySpark 3.5, a table without columns": [
        ({"unplanned_reason": "the session uses Spark Connect"}, "the session uses Spark Connect"),
    ],
    "an aggregation that the manifests answer": [
        ({"aggregation": aggregation([], (COUNT, None)), "known": (7,)}, "every requested value"),
    ],
    "an aggregation that tasks can compute: of strings, grouped by strings, dates or booleans": [
        ({"aggregation": STRING_GROUPS}, "passing a row per group to Spark is faster"),
    ],
    "an aggregation that tasks can compute, on columns or files that Spark's reader cannot read": [
        ({"aggregation": NUMBER_GROUPS, "files": (SMALL,)}, "less than 6 MiB"),
        ({"aggregation": STRING_GROUPS, "files": (SMALL,)}, "less than 6 MiB"),
    ],
    "metadata columns": [({"metadata_columns": ("_file",)}, "metadata columns")],
    "no data file, or too many for Spark's reader": [
        ({"files": ()}, "no data file"),
        ({"files": (FILE,) * (limits.MAX_SPARK_READER_FILES + 1)}, "513 data files, too many"),
    ],
    "little data": [({"files": (SMALL,)}, "less than 6 MiB")],
    "a file that is not local Parquet, or to which deletes apply": [
        ({"files": (FILE, replace(FILE, path="s3://t/a.parquet"))}, "not on a local path"),
        ({"files": (FILE, replace(FILE, file_format="orc"))}, "not on a local path"),
        ({"files": (FILE, replace(FILE, position_deletes=(DELETES,)))}, "delete files or deletion vectors apply"),
    ],
    "a nested column, or one with an initial default": [({"columns": (1, 5)}, "initial default of the column st")],
    "a name mapping, or a table property that turns Spark's reader off": [
        ({"properties": {"schema.name-mapping.default": "[]"}}, "name mapping"),
        (
            {"properties": {"read.parquet.vectorization.enabled": "FALSE"}},
            "the table property read.parquet.vectorization.enabled is not true",
        ),
    ],
    "a column whose type has changed": [
        ({"older": (OLDER,)}, "type of a column has changed"),
    ],
    "partition values that Spark's reader cannot add, or no other columns": [
        ({"columns": (1, 4), "partitions": (4,)}, "cannot add the partition values"),
        ({"columns": (2,), "partitions": (2,)}, "no columns except partition columns"),
    ],
    "a session setting that turns Spark's reader off": [
        ({"settings": {"spark.sql.iceberg.vectorization.enabled": "false"}}, "vectorization.enabled is not true"),
        ({"settings": {"spark.sql.parquet.enableVectorizedReader": "false"}}, "enableVectorizedReader is not true"),
        ({"settings": {"spark.sql.parquet.binaryAsString": "true"}}, "binaryAsString is not false"),
    ],
    "a damaged file, or one in a storage that is not allowed": [
        ({"schemes": "s3"}, "cannot be opened"),
        ({"row_filter": EqualTo("id", 1), "keeps_most_rows": damaged}, "cannot be opened"),
    ],
    "a filter that keeps few rows": [
        ({"row_filter": EqualTo("id", 1), "keeps_most_rows": lambda _: False}, "the filter keeps few rows"),
    ],
    "files without field ids": [({"have_field_ids": False}, "no field ids")],
    "a Spark version whose reader RowDelta cannot use": [({"reads_parquet": False}, "cannot use the Parquet reader")],
    "otherwise": [
        ({}, "local Parquet files without deletes"),
        ({"row_filter": EqualTo("id", 1)}, "and the filter keeps most rows"),
        ({"row_filter": EqualTo("id", 1), "whole_files": True, "keeps_most_rows": damaged}, "without deletes"),
        ({"aggregation": NUMBER_GROUPS}, "local Parquet"),
        ({"aggregation": STRING_GROUPS, "runs_tasks": False}, "local Parquet"),
        ({"aggregation": STRING_GROUPS, "counts_rows": False}, "local Parquet"),
        (
            {"aggregation": STRING_GROUPS, "settings": {"spark.sql.iceberg.aggregate-push-down.enabled": "false"}},
            "local Parquet",
        ),
        ({"aggregation": aggregation([], (SUM, 1)), "files": (FILE,)}, "local Parquet"),
    ],
}
DOCUMENTED = re.findall(r"^ *\| (.+?) \| `(\w+)` \|$", choose_reader.__doc__ or "", re.MULTILINE)


def test_every_row_of_the_table_is_tested():
    assert [row for row, _ in DOCUMENTED] == list(ROWS)


@pytest.mark.parametrize(
    ("reader", "changed", "reason"),
    [
        pytest.param(reader, changed, reason, id=f"{row}-{number}")
        for row, reader in DOCUMENTED
        for number, (changed, reason) in enumerate(ROWS[row])
    ],
)
def test_the_reader_is_the_one_in_the_table(reader, changed, reason):
    found = Given(**changed).read()
    assert type(found).__name__ == reader
    assert reason in reader_text(found)


def test_the_first_row_that_applies_decides():
    """Start with every reason at once, and remove them from the top: the next row decides each time."""
    worst = {
        "unplanned_reason": "the session uses Spark Connect",
        "metadata_columns": ("_file",),
        "files": (replace(SMALL, path="s3://t/a.parquet", position_deletes=(DELETES,)),),
        "columns": (1, 5),
        "properties": {"schema.name-mapping.default": "[]"},
        "older": (OLDER,),
        "settings": {"spark.sql.parquet.binaryAsString": "true"},
        "schemes": "s3",
        "row_filter": EqualTo("id", 1),
        "keeps_most_rows": lambda _: False,
        "have_field_ids": False,
        "reads_parquet": False,
    }
    better: list[tuple[str, str, Any]] = [
        ("uses Spark Connect", "unplanned_reason", None),
        ("metadata columns", "metadata_columns", ()),
        ("less than 6 MiB", "files", (replace(FILE, path="s3://t/a.parquet", position_deletes=(DELETES,)),)),
        ("not on a local path", "files", (replace(FILE, position_deletes=(DELETES,)),)),
        ("delete files or deletion vectors apply", "files", (FILE,)),
        ("initial default of the column st", "columns", (1,)),
        ("name mapping", "properties", {}),
        ("has changed", "older", ()),
        ("binaryAsString", "settings", {}),
        ("cannot be opened", "schemes", "file"),
        ("keeps few rows", "keeps_most_rows", lambda _: True),
        ("no field ids", "have_field_ids", True),
        ("cannot use the Parquet reader", "reads_parquet", True),
    ]
    for reason, name, value in better:
        found = Given(**worst).read()
        assert isinstance(found, PythonRead)
        assert reason in found.reason
        worst[name] = value
    assert isinstance(Given(**worst).read(), VectorizedRead)


def test_manifests_answer_an_aggregation_before_tasks_do():
    found = Given(aggregation=STRING_GROUPS, known=(1, 2), files=(SMALL,)).read()
    assert found == KnownValues(calls=STRING_GROUPS.calls, values=(1, 2))
    for changed in (
        {"metadata_columns": ("_file",)},
        {"counts_rows": False},
        {"settings": {"spark.sql.iceberg.aggregate-push-down.enabled": "false"}},
    ):
        assert isinstance(Given(aggregation=STRING_GROUPS, known=(1, 2), files=(SMALL,), **changed).read(), PythonRead)


def test_tasks_read_only_the_columns_of_an_aggregation():
    found = Given(aggregation=STRING_GROUPS, columns=(1, 2, 3, 4, 5)).read()
    assert isinstance(found, GroupedRead)
    assert found.columns == (3, 2)
    assert found.program == Groups(by=(0,), aggregates=(Aggregate(function=MAX, place=1), Aggregate(function=COUNT)))
    for by, call in (((5,), (MAX, 2)), ((3,), (SUM, 4)), ((3,), (MAX, 5)), ((), (COUNT, None))):
        assert not isinstance(Given(aggregation=aggregation(by, call), files=(SMALL,)).read(), GroupedRead)


def test_partition_values_are_read_from_the_manifests():
    found = Given(columns=(1, 2, 3), partitions=(2, 3)).read()
    assert isinstance(found, VectorizedRead)
    assert (found.columns, found.constants, found.places) == ((1,), (2, 3), (0, 1))


@pytest.fixture
def tables(lake, monkeypatch):
    """A table of three partitions that Spark's reader reads, and one with deletion vectors."""
    monkeypatch.setattr(limits, "MIN_SPARK_READER_BYTES", 0)
    rows = "SELECT id, concat('s', id % 3) AS s, CAST(id % 3 AS INT) AS k FROM range(30)"
    plain = lake.create("id bigint, s string, k int", "PARTITIONED BY (k)")
    deleted = lake.create("id bigint, s string, k int", **{"format-version": "3", "write.delete.mode": "merge-on-read"})
    for name in (plain, deleted):
        lake.session.sql(f"INSERT INTO {name} {rows}")
    lake.session.sql(f"DELETE FROM {deleted} WHERE id = 7")
    return f"lake.{plain}", f"lake.{deleted}"


BY_SPARK = "read by Spark's Parquet reader, because the data files are local Parquet files without deletes"
KNOWN = "answered from the manifests, which determine every requested value; no data file is opened"
IN_TASKS = "aggregated by the Python workers that read them, because "
IN_PYTHON = "read by Python workers, because "
QUERIES: Sequence[tuple[str, list[str]]] = [
    ("SELECT * FROM {plain}", [BY_SPARK]),
    ("SELECT id FROM {plain} WHERE k = 1", [BY_SPARK]),
    ("SELECT s FROM {plain} WHERE id > 4", [f"{BY_SPARK}, and the filter keeps most rows"]),
    ("SELECT s FROM {plain} WHERE id = 5", [IN_PYTHON + "the filter keeps few rows"]),
    ("SELECT s FROM {plain} WHERE id > 90", [IN_PYTHON + "no data file can contain matching rows"]),
    ("SELECT id, _pos FROM {plain}", [IN_PYTHON + "the query uses metadata columns"]),
    ("SELECT * FROM {deleted}", [IN_PYTHON + "delete files or deletion vectors apply"]),
    ("SELECT count(*), min(id) FROM {plain}", [KNOWN]),
    ("SELECT s, count(*) FROM {plain} GROUP BY s", [IN_TASKS + "passing a row per group to Spark is faster"]),
    ("SELECT max(id) FROM {deleted}", [IN_TASKS + "delete files or deletion vectors apply"]),
    ("SELECT count(DISTINCT s) FROM {plain}", [BY_SPARK]),
    (
        "SELECT p.id FROM {plain} p JOIN {deleted} d ON p.id = d.id",
        [BY_SPARK, IN_PYTHON + "delete files or deletion vectors apply"],
    ),
    ("SELECT count(*) FROM {plain}.files", ["read from the table's metadata; no data file is opened"]),
]


def shown_rows(text: str) -> list[str]:
    """Return the lines of EXPLAIN on readers, which precede Spark's plan."""
    return re.findall(r"^  rows: (.*)$", text.partition("== Physical Plan ==")[0], re.MULTILINE)


@pytest.mark.spark
def test_explain_names_the_reader_of_each_table(lake, spark, tables):
    plain, deleted = tables
    for query, expected in QUERIES:
        text = query.format(plain=plain, deleted=deleted)
        shown = lake.session.sql(f"EXPLAIN {text}").first().plan
        found = shown_rows(shown)
        assert len(found) == len(expected), shown
        assert all(one.startswith(other) for one, other in zip(sorted(found), sorted(expected), strict=True)), shown
        assert "== Physical Plan ==" in shown
        assert sorted(shown_rows(spark.sql(f"EXPLAIN FORMATTED {text}").first()[0])) == sorted(found)


PLANNED = re.compile(r"RowDelta \S+ \(snapshot \w+, (\d of \d data files).*?\), (rows: .*?) RuntimeFilters")
EXPLAINED = re.compile(r"^\S+ \(snapshot \w+, (\d of \d data files).*?\)\n  (rows: .*)$", re.MULTILINE)


@pytest.mark.spark
def test_sql_and_spark_table_get_the_same_reader(lake, spark, tables, capsys):
    """The same files, reader and reason. `DataFrame.explain` prints them too."""
    for name in tables:
        for condition in (
            "true",
            "k = 1",
            "id >= 0",
            "id > 4",
            "id = 5",
            "id > 90",
            "length(s) = 2",
            "s = 's1' AND id < 9",
        ):
            lone = f"SELECT id, s FROM {name} WHERE {condition}"
            frames = (
                lake.session.sql(f"SELECT id, s FROM (SELECT * FROM {name}) WHERE {condition}"),
                spark.table(name).where(condition).select("id", "s"),
                lake.session.table(name).where(condition).select("id", "s"),
            )
            shown = [PLANNED.findall(frame._jdf.queryExecution().executedPlan().toString()) for frame in frames]
            shown.append(EXPLAINED.findall(lake.session.sql(f"EXPLAIN {lone}").first().plan))
            assert len(shown[0]) == 1, condition
            assert all(one == shown[0] for one in shown), (condition, shown)
            rows = [sorted(frame.collect()) for frame in (*frames, lake.session.sql(lone))]
            assert all(one == rows[0] for one in rows), condition
    spark.table(tables[0]).where("id = 5").explain()
    assert f"rows: {IN_PYTHON}the filter keeps few rows" in capsys.readouterr().out
