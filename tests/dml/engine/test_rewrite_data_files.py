"""`rewrite_data_files` by SQL, from Python and by Spark's tasks. `test_rewrite_rows` tests what needs no session."""

from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import types as spark_types

import dml
from dml import limits
from dml.result import RewrittenDataFiles
from tests.dml.engine.conftest import Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark

COUNTERS = [
    "rewritten_data_files_count",
    "added_data_files_count",
    "rewritten_bytes_count",
    "failed_data_files_count",
    "removed_delete_files_count",
]


def small_files(lake: Lake) -> str:
    """A table of version 3 with six files and two deleted rows."""
    modes = {"format-version": "3", "write.delete.mode": "merge-on-read"}
    name = lake.create("id BIGINT, k INT, s STRING", **modes)
    for start in range(0, 30, 5):
        lake.session.sql(
            f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, id % 2, 's' FROM range({start}, {start + 5})"
        )
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (3, 17)")
    return name


@pytest.fixture
def small(lake: Lake) -> str:
    return lake.copy_of(small_files, lambda: small_files(lake))


def test_rows_ids_and_partitions_stay(kind: Kind) -> None:
    """By SQL with all defaults but one, on each kind of table, after a delete and a change of the schema."""
    lake, name = kind.lake, kind.filled()
    session = lake.session
    session.sql(f"DELETE FROM {name} WHERE id IN (1, 5)")
    session.sql(f"ALTER TABLE {name} ADD COLUMN later STRING")
    session.sql(f"INSERT INTO {name} VALUES (100, 0, 'new', 'later')")
    lineage = ", _row_id, _last_updated_sequence_number" if kind.version > 2 else ""
    query = f"SELECT *{lineage} FROM {name}"
    before, count = lake.rows(query), len(lake.data_files(name))
    cached = session.spark.table(f"lake.{name}").cache()
    assert cached.count() == 11
    frame = session.sql(f"CALL lake.system.rewrite_data_files('{name}', options => map('rewrite-all', 'true'))")
    assert frame.columns == COUNTERS
    assert [type(field.dataType) for field in frame.schema] == [
        spark_types.LongType if name == "rewritten_bytes_count" else spark_types.IntegerType for name in COUNTERS
    ]
    assert not any(field.nullable for field in frame.schema)
    (row,) = frame.collect()
    assert (row[0], row[1], row[3]) == (count, 3 if kind.partitioned else 1, 0)
    assert lake.rows(query) == before
    assert session.verify(name, every_file=True).ok
    assert session.spark.table(f"lake.{name}").count() == 11
    session.spark.catalog.clearCache()


def test_a_dry_run_says_why_and_changes_nothing(lake: Lake, small: str) -> None:
    before = lake.state(small)
    found = lake.session.rewrite_data_files(small, dry_run=True)
    assert lake.state(small) == before
    assert (found.rewritten_data_files_count, found.added_data_files_count) == (6, 1)
    assert found.removed_delete_files_count == 2
    assert [one.decision for one in found.decisions] == ["rewrite"] * 7
    assert {one.object for one in found.decisions[1:]} == {file.path for file in lake.data_files(small)}
    frame = lake.session.sql(f"CALL system.rewrite_data_files(table => '{small}', dry_run => true)")
    assert frame.columns == [*COUNTERS, "decision", "object", "reason"]
    done = lake.session.rewrite_data_files(small)
    assert done == RewrittenDataFiles(
        **{name: getattr(found, name) for name in COUNTERS},
    )
    left = lake.session.rewrite_data_files(small, dry_run=True)
    assert ([one.decision for one in left.decisions], left.added_data_files_count) == (["keep"], 0)


def test_a_condition_selects_files(lake: Lake, small: str) -> None:
    """Files that may hold such rows, as a whole."""
    few = {"min-input-files": "2"}
    done = lake.session.rewrite_data_files(small, options=few, where="id >= 21 AND k IS NOT NULL")
    assert done.rewritten_data_files_count == 2
    assert lake.session.rewrite_data_files(small, options=few, where="ID = 7").rewritten_data_files_count == 0
    assert lake.session.rewrite_data_files(small, options=few, where="true").rewritten_data_files_count == 5


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"strategy": "temp"}, dml.AnalysisError, "unsupported strategy: temp. Only binpack or sort is supported"),
        ({"strategy": "BINPACK", "sort_order": "id"}, dml.AnalysisError, "Cannot set rewrite mode"),
        ({"sort_order": "zorder(id, none)"}, dml.AnalysisError, "Cannot find column 'none' in table schema"),
        ({"strategy": "sort"}, dml.AnalysisError, "Cannot sort data without a valid sort order"),
        ({"options": {"compression-factor": "2"}}, dml.AnalysisError, "not supported by the strategy binpack"),
        ({"where": "col1 = 3"}, dml.AnalysisError, "There is no column 'col1'"),
        ({"where": "length(s) = 3"}, dml.NotSupportedError, "Cannot translate the condition"),
        ({"where": "id = 1) OR (id = 2"}, dml.NotSupportedError, "Cannot translate the condition"),
        ({"where": "id IN (SELECT 1)"}, dml.NotSupportedError, "Cannot translate the condition"),
        ({"branch": "none"}, dml.NotFoundError, "Cannot rewrite data files for branch none: branch does not exist"),
        ({"options": {"min-input-files": 0, "rewrite-all": True}}, dml.AnalysisError, "must be > 0"),
        ({"options": "rewrite-all=true"}, dml.AnalysisError, "The argument 'options' has the type string"),
    ],
)
def test_arguments_are_checked(
    lake: Lake, small: str, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = lake.state(small)
    with pytest.raises(error, match=message):
        lake.session.rewrite_data_files(small, **arguments)
    assert lake.state(small) == before


def test_errors_point_at_the_argument(lake: Lake, small: str) -> None:
    for argument, value in {"where": "col1 = 3", "strategy": "temp", "sort_order": "zorder(none)"}.items():
        call = f"CALL system.rewrite_data_files(table => '{small}', {argument} => '{value}')"
        with pytest.raises(dml.DmlError) as caught:
            lake.session.sql(call)
        assert caught.value.position is not None
        assert caught.value.position >= call.index(f"{argument} =>"), argument


def test_rows_are_sorted(lake: Lake, small: str) -> None:
    done = lake.session.rewrite_data_files(small, sort_order="k DESC, id", options={"compression-factor": "0.9"})
    assert done.added_data_files_count == 1
    read = lake.session.sql(f"SELECT k, id FROM {small}").collect()
    assert [tuple(row) for row in read] == sorted(map(tuple, read), key=lambda row: (-row[0], row[1]))
    assert len(read) == 28


def test_tables_and_branches_are_found_by_name(lake: Lake, small: str) -> None:
    session = lake.session
    assert session.rewrite_data_files(lake.create("id BIGINT")) == RewrittenDataFiles()
    with pytest.raises(dml.NotFoundError, match="There is no table"):
        session.rewrite_data_files("db.none")
    session.sql(f"ALTER TABLE {small} CREATE BRANCH side")
    session.sql(f"ALTER TABLE {small} CREATE TAG fixed")
    with pytest.raises(dml.AnalysisError, match="it is a tag"):
        session.rewrite_data_files(small, branch="fixed")
    with pytest.raises(dml.NotSupportedError, match="cannot be written to"):
        session.rewrite_data_files(f"{small}.tag_fixed")
    main = lake.table(small).metadata.current_snapshot_id
    assert session.rewrite_data_files(f"{small}.branch_side").rewritten_data_files_count == 6
    assert session.rewrite_data_files(small, branch="side").rewritten_data_files_count == 0
    assert lake.table(small).metadata.current_snapshot_id == main
    assert lake.rows(f"SELECT * FROM {small}.branch_side") == lake.rows(small)


def test_groups_run_in_threads(lake: Lake) -> None:
    """With partial progress each partition is a job of its own, and the jobs of both are committed."""
    name = lake.create("id BIGINT, k INT", "PARTITIONED BY (k)")
    for start in range(0, 50, 10):
        lake.session.sql(f"INSERT INTO {name} SELECT id, id % 2 FROM range({start}, {start + 10})")
    before = lake.rows(name)
    options = {"partial-progress.enabled": "true", "min-input-files": "2"}
    done = lake.session.rewrite_data_files(name, options=options)
    assert (done.added_data_files_count, done.failed_data_files_count) == (2, 0)
    assert [snapshot.summary.operation.value for snapshot in lake.table(name).metadata.snapshots[-2:]] == [
        "replace",
        "replace",
    ]
    assert lake.rows(name) == before


def test_large_groups_are_sorted_in_ranges_by_tasks(lake: Lake, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Spark's shuffle: a range of the curve for each new file, with row ids as before."""
    monkeypatch.setattr(limits, "MIN_RANGED_BYTES", 0)
    query = f"SELECT *, _row_id, _last_updated_sequence_number FROM {small}"
    before = lake.rows(query)
    options = {"rewrite-all": "true", "target-file-size-bytes": "1500", "min-file-size-bytes": "1"}
    done = lake.session.rewrite_data_files(small, sort_order="hilbert(id)", options=options)
    bounds = sorted((file.lower_bounds[1], file.upper_bounds[1]) for file in lake.data_files(small))
    assert done.added_data_files_count == len(bounds) > 2
    ranges = [tuple(int.from_bytes(bound, "little") for bound in pair) for pair in bounds]
    assert all(left[1] < right[0] for left, right in pairwise(ranges))
    assert lake.rows(query) == before
    assert lake.session.verify(small, every_file=True).ok


@pytest.mark.nightly
@pytest.mark.parametrize("sort_order", [None, "zorder(a, b, c, d, e, f, g, h, i, j, k, l.x)", "hilbert(g, f, j)"])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_values_of_all_types_are_copied(
    lake: Lake, file_format: str, sort_order: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also nested ones, decimals, times and NULLs; sorted in ranges, too."""
    monkeypatch.setattr(limits, "MIN_RANGED_BYTES", 0)
    columns = (
        "a BOOLEAN, b INT, c BIGINT, d FLOAT, e DOUBLE, f DECIMAL(38, 5), g STRING, h BINARY, i DATE, j TIMESTAMP, "
        "k TIMESTAMP_NTZ, l STRUCT<x: INT, y: ARRAY<STRING>>, m MAP<STRING, STRUCT<z: DECIMAL(9, 2)>>"
    )
    name = lake.create(columns, **{"format-version": "3", "write.format.default": file_format})
    values = (
        "true, 1, 2L, 1.5F, double('NaN'), 12345.67890, 'é', X'00ff', DATE '0001-01-01', TIMESTAMP '9999-12-31 "
        "23:59:59.999999', TIMESTAMP_NTZ '1969-12-31 23:59:59.999999', struct(1, array('a', NULL)), "
        "map('k', struct(1.25))"
    )
    nulls = ", ".join(["NULL"] * 13)
    for row in (values, nulls, values):
        lake.session.sql(f"INSERT INTO {name} VALUES ({row})")
    before = lake.rows(f"SELECT *, _row_id, _last_updated_sequence_number FROM {name}")
    small = {"target-file-size-bytes": "4000", "min-file-size-bytes": "1"} if sort_order else {}
    done = lake.session.rewrite_data_files(name, sort_order=sort_order, options={"rewrite-all": "true", **small})
    assert done.rewritten_data_files_count == 3
    assert (done.added_data_files_count == 1) == (sort_order is None)
    assert lake.rows(f"SELECT *, _row_id, _last_updated_sequence_number FROM {name}") == before
