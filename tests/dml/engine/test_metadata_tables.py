"""Metadata tables: what the reference gives for the same statements, on all format versions.

The constants were read off Iceberg 1.10.2 (Java, Spark 3.5), which ran the statements of `evolved`.
"""

import datetime
import itertools
import pathlib

import pytest
from pyspark.errors import PythonException

import dml
from dml import limits
from dml.manifests.read import manifests_of
from dml.metadata_tables.tables import MetadataTable
from dml.spark.versions import arrow_table
from tests.lake import Lake

pytestmark = pytest.mark.spark

DAY = datetime.date(2024, 5, 1)

COLUMNS = (
    "id BIGINT NOT NULL, name STRING, d DATE, s STRUCT<a: INT, b: DOUBLE>, l ARRAY<INT>, f FLOAT, dec DECIMAL(10, 2), "
    "ts TIMESTAMP, bin BINARY, flag BOOLEAN"
)

FILE_COLUMNS = [
    ("content", "int", True),
    ("file_path", "string", False),
    ("file_format", "string", False),
    ("spec_id", "int", True),
    ("partition", "struct<name:string,id_bucket_4:int,dd:date>", False),
    ("record_count", "bigint", False),
    ("file_size_in_bytes", "bigint", False),
    ("column_sizes", "map<int,bigint>", True),
    ("value_counts", "map<int,bigint>", True),
    ("null_value_counts", "map<int,bigint>", True),
    ("nan_value_counts", "map<int,bigint>", True),
    ("lower_bounds", "map<int,binary>", True),
    ("upper_bounds", "map<int,binary>", True),
    ("key_metadata", "binary", True),
    ("split_offsets", "array<bigint>", True),
    ("equality_ids", "array<int>", True),
    ("sort_order_id", "int", True),
    ("first_row_id", "bigint", True),
    ("referenced_data_file", "string", True),
    ("content_offset", "bigint", True),
    ("content_size_in_bytes", "bigint", True),
]

MANIFEST_COLUMNS = [
    ("content", "int", False),
    ("path", "string", False),
    ("length", "bigint", False),
    ("partition_spec_id", "int", False),
    ("added_snapshot_id", "bigint", False),
    ("added_data_files_count", "int", False),
    ("existing_data_files_count", "int", False),
    ("deleted_data_files_count", "int", False),
    ("added_delete_files_count", "int", False),
    ("existing_delete_files_count", "int", False),
    ("deleted_delete_files_count", "int", False),
    (
        "partition_summaries",
        "array<struct<contains_null:boolean,contains_nan:boolean,lower_bound:string,upper_bound:string>>",
        False,
    ),
]

PARTITION_COLUMNS = [
    ("partition", "struct<name:string,id_bucket_4:int,dd:date>", False),
    ("spec_id", "int", False),
    ("record_count", "bigint", False),
    ("file_count", "int", False),
    ("total_data_file_size_in_bytes", "bigint", False),
    ("position_delete_record_count", "bigint", False),
    ("position_delete_file_count", "int", False),
    ("equality_delete_record_count", "bigint", False),
    ("equality_delete_file_count", "int", False),
    ("last_updated_at", "timestamp", True),
    ("last_updated_snapshot_id", "bigint", True),
]

OTHER_COLUMNS = {
    "manifests": MANIFEST_COLUMNS,
    "partitions": PARTITION_COLUMNS,
    "snapshots": [
        ("committed_at", "timestamp", False),
        ("snapshot_id", "bigint", False),
        ("parent_id", "bigint", True),
        ("operation", "string", True),
        ("manifest_list", "string", True),
        ("summary", "map<string,string>", True),
    ],
    "history": [
        ("made_current_at", "timestamp", False),
        ("snapshot_id", "bigint", False),
        ("parent_id", "bigint", True),
        ("is_current_ancestor", "boolean", False),
    ],
    "refs": [
        ("name", "string", False),
        ("type", "string", False),
        ("snapshot_id", "bigint", False),
        ("max_reference_age_in_ms", "bigint", True),
        ("min_snapshots_to_keep", "int", True),
        ("max_snapshot_age_in_ms", "bigint", True),
    ],
    "metadata_log_entries": [
        ("timestamp", "timestamp", False),
        ("file", "string", False),
        ("latest_snapshot_id", "bigint", True),
        ("latest_schema_id", "int", True),
        ("latest_sequence_number", "bigint", True),
    ],
}

DATA_FILES = [
    (0, "PARQUET", 0, ("a", None, None), 2, 0),
    (0, "PARQUET", 0, ("b", None, None), 1, 0),
    (0, "PARQUET", 1, ("a", 2, None), 1, 0),
    (0, "PARQUET", 1, (None, 3, None), 1, 0),
    (0, "PARQUET", 3, (None, 3, DAY), 1, 0),
    (0, "PARQUET", 3, (None, 3, DAY), 1, 0),
]
DELETED_IN = [(0, ("a", None, None)), (0, ("b", None, None)), (3, (None, 3, DAY))]
FIRST_ROW_IDS = [0, 2, 3, 4, 6, 7]
PARTITIONS = [
    (("a", 2, None), 1, 1, 1),
    (("a", None, None), 0, 2, 1),
    (("b", None, None), 0, 1, 1),
    ((None, 3, None), 1, 1, 1),
    ((None, 3, DAY), 3, 2, 2),
]
# value_count, null_value_count, nan_value_count, lower_bound, upper_bound of the file of (2, 'b', ...).
METRICS = {
    "bin": (1, 0, None, b"\x03", b"\x03"),
    "d": (1, 0, None, datetime.date(2024, 2, 1), datetime.date(2024, 2, 1)),
    "f": (1, 0, 1, None, None),
    "flag": (1, 0, None, False, False),
    "id": (1, 0, None, 2, 2),
    "l.element": None,
    "name": (1, 0, None, "b", "b"),
    "s.a": (1, 0, None, 2, 2),
    "s.b": (1, 0, 1, None, None),
}
METRIC_NAMES = ["bin", "d", "dec", "extra", "f", "flag", "id", "l.element", "name", "s.a", "s.b", "ts"]


def row(number: int, name: str, day: str, extra: str = "") -> str:
    return (
        f"({number}, {extra}{name}, DATE '{day}', named_struct('a', {number}, 'b', {number}.5D), array({number}), "
        f"{number}.5F, {number}.25BD, TIMESTAMP '{day} 10:00:00', X'0{number}', true)"
    )


def evolved(lake: Lake, version: int) -> str:
    """A table with three specs, a branch, a tag and, from version 2 on, deletes in three partitions."""
    mode = "merge-on-read" if version > 1 else "copy-on-write"
    name = lake.create(COLUMNS, "PARTITIONED BY (name)", **{"format-version": str(version), "write.delete.mode": mode})
    second = (
        "(2, 'b', DATE '2024-02-01', named_struct('a', 2, 'b', DOUBLE('nan')), array(3), FLOAT('nan'), 2.25BD, "
        "TIMESTAMP '2024-02-01 11:00:00', X'03', false)"
    )
    third = "(3, 'a', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    statements = [
        f"INSERT INTO {name} VALUES {row(1, repr('a'), '2024-01-01')}, {second}, {third}",
        "tag",
        f"ALTER TABLE {name} ADD PARTITION FIELD bucket(4, id)",
        f"INSERT INTO {name} VALUES {row(4, repr('a'), '2024-03-01')}, {row(5, 'NULL', '2024-03-02')}",
        f"DELETE FROM {name} WHERE id = 1",
        "branch",
        f"INSERT INTO {name}.branch_br VALUES {row(6, repr('c'), '2024-04-01')}",
        f"ALTER TABLE {name} DROP PARTITION FIELD name",
        f"ALTER TABLE {name} ADD PARTITION FIELD days(d) AS dd",
        f"INSERT INTO {name} VALUES {row(7, repr('d'), '2024-05-01')}",
        f"DELETE FROM {name} WHERE id IN (2, 7)",
        f"ALTER TABLE {name} ADD COLUMN extra INT AFTER id",
        f"INSERT INTO {name} VALUES {row(8, repr('d'), '2024-05-01', '80, ')}",
    ]
    for statement in statements if version > 1 else [text for text in statements if not text.startswith("DELETE")]:
        loaded = lake.table(name)
        match statement:
            case "tag":
                loaded.manage_snapshots().create_tag(loaded.current_snapshot().snapshot_id, "t1").commit()
            case "branch":
                loaded.manage_snapshots().create_branch(loaded.current_snapshot().snapshot_id, "br").commit()
            case _:
                lake.session.sql(statement)
    return name


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.nightly), 2, 3])
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def table(engine_lake: Lake, version: int) -> str:
    return evolved(engine_lake, version)


ANY_VERSION = pytest.mark.parametrize(
    "version",
    [*(pytest.param(one, marks=pytest.mark.nightly) for one in (1, 2)), 3],
    indirect=True,
    scope="module",
)
"""For tests whose subject does not depend on the format version: versions 1 and 2 run by night."""


def plain(value: object) -> object:
    """Rows as tuples, all the way down."""
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def in_utc(value: object) -> object:
    """A time without what its library calls the zone."""
    if not isinstance(value, datetime.datetime):
        return value
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def rows(lake: Lake, query: str) -> list[tuple]:
    found = [tuple(plain(value) for value in line) for line in lake.session.sql(query).collect()]
    return sorted(found, key=repr)


def shape(lake: Lake, name: str) -> list[tuple[str, str, bool]]:
    fields = lake.session.sql(f"SELECT * FROM {name}").schema.fields
    return [(field.name, field.dataType.simpleString(), field.nullable) for field in fields]


@ANY_VERSION
def test_columns_are_those_of_the_reference(lake: Lake, table: str) -> None:
    for name in ("files", "data_files", "delete_files", "all_files", "all_data_files", "all_delete_files"):
        *columns, metrics = shape(lake, f"{table}.{name}")
        assert columns == FILE_COLUMNS
        assert metrics[0] == "readable_metrics"
        assert metrics[2]
    for name in ("entries", "all_entries"):
        found = shape(lake, f"{table}.{name}")
        inner = ",".join(f"{column}:{kind}" for column, kind, _ in FILE_COLUMNS)
        assert found[:-1] == [
            ("status", "int", False),
            ("snapshot_id", "bigint", True),
            ("sequence_number", "bigint", True),
            ("file_sequence_number", "bigint", True),
            ("data_file", f"struct<{inner}>", False),
        ]
    for name, columns in OTHER_COLUMNS.items():
        assert shape(lake, f"{table}.{name}") == columns
    names = [column for column, _, _ in shape(lake, f"{table}.all_manifests")]
    assert names == [column for column, _, _ in MANIFEST_COLUMNS] + ["reference_snapshot_id"]


@pytest.mark.parametrize("driver_bytes", [limits.MAX_DRIVER_MANIFEST_BYTES, -1], ids=["driver", "tasks"])
def test_files_are_those_of_the_reference(
    lake: Lake, table: str, version: int, monkeypatch: pytest.MonkeyPatch, driver_bytes: int
) -> None:
    monkeypatch.setattr(limits, "MAX_DRIVER_MANIFEST_BYTES", driver_bytes)
    columns = "content, file_format, spec_id, partition, record_count, sort_order_id"
    assert rows(lake, f"SELECT {columns} FROM {table}.data_files") == sorted(DATA_FILES, key=repr)
    form = "PUFFIN" if version == 3 else "PARQUET"
    deletes = [(1, form, spec_id, partition, 1, None) for spec_id, partition in DELETED_IN] if version > 1 else []
    assert rows(lake, f"SELECT {columns} FROM {table}.delete_files") == sorted(deletes, key=repr)
    assert rows(lake, f"SELECT {columns} FROM {table}.files") == sorted([*DATA_FILES, *deletes], key=repr)
    first = [line[0] for line in rows(lake, f"SELECT first_row_id FROM {table}.data_files")]
    assert first == (FIRST_ROW_IDS if version == 3 else [None] * 6)
    (found,) = rows(
        lake,
        f"SELECT readable_metrics, lower_bounds[1] FROM {table}.files f WHERE content = 0 AND partition.name = 'b'",
    )
    metrics = dict(zip(METRIC_NAMES, found[0], strict=True))
    assert found[1] == (2).to_bytes(8, "little")
    assert metrics["extra"] == (None,) * 6
    for name, expected in METRICS.items():
        assert metrics[name][1:] == ((None,) * 5 if expected is None else expected), name


def test_partitions_are_those_of_the_reference(lake: Lake, table: str, version: int) -> None:
    columns = "partition, spec_id, record_count, file_count"
    assert rows(lake, f"SELECT {columns} FROM {table}.partitions") == sorted(PARTITIONS, key=repr)
    query = (
        "SELECT partition, position_delete_record_count, position_delete_file_count, equality_delete_file_count, "
        f"last_updated_at, last_updated_snapshot_id FROM {table}.partitions WHERE position_delete_file_count > 0"
    )
    deleted = rows(lake, query)
    assert [line[0] for line in deleted] == (sorted((part for _, part in DELETED_IN), key=repr) if version > 1 else [])
    assert {line[1:4] for line in deleted} <= {(1, 1, 0)}
    times = dict(rows(lake, f"SELECT snapshot_id, committed_at FROM {table}.snapshots"))
    updated = rows(lake, f"SELECT last_updated_snapshot_id, last_updated_at FROM {table}.partitions")
    assert all(times[snapshot_id] == time for snapshot_id, time in updated)


def test_entries_hold_what_they_inherit(lake: Lake, table: str, version: int) -> None:
    found = rows(
        lake, f"SELECT snapshot_id, sequence_number, file_sequence_number, data_file.content FROM {table}.entries"
    )
    added = {line[0] for line in rows(lake, f"SELECT snapshot_id FROM {table}.snapshots")}
    assert {line[0] for line in found} <= added
    assert all(line[1] == line[2] == 0 if version == 1 else line[1] == line[2] > 0 for line in found)
    files = rows(lake, f"SELECT file_path FROM {table}.files")
    live = rows(lake, f"SELECT data_file.file_path FROM {table}.entries WHERE status < 2")
    assert files == live


def test_the_small_ones(lake: Lake, table: str, version: int) -> None:
    loaded = lake.table(table)
    snapshots = rows(
        lake, f"SELECT snapshot_id, parent_id, operation, summary['total-data-files'] FROM {table}.snapshots"
    )
    assert len(snapshots) == (7 if version > 1 else 5)
    assert {line[2] for line in snapshots} == ({"append", "delete"} if version > 1 else {"append"})
    assert all(line[3] is not None for line in snapshots)
    history = rows(lake, f"SELECT snapshot_id, parent_id, is_current_ancestor FROM {table}.history")
    assert [line[2] for line in history] == [True] * (6 if version > 1 else 4)
    refs = rows(lake, f"SELECT name, type, snapshot_id FROM {table}.refs")
    assert [line[:2] for line in refs] == [("br", "BRANCH"), ("main", "BRANCH"), ("t1", "TAG")]
    assert refs[1][2] == loaded.current_snapshot().snapshot_id
    log = lake.session.sql(f"SELECT * FROM {table}.metadata_log_entries").collect()
    assert log[-1].file == loaded.metadata_location
    assert log[0].latest_snapshot_id is None
    assert log[-1].latest_snapshot_id == refs[1][2]
    assert log[-1].latest_sequence_number == (0 if version == 1 else 7)
    manifests = rows(lake, f"SELECT path, content, partition_spec_id FROM {table}.manifests")
    expected = manifests_of(loaded.io, loaded.current_snapshot())
    assert manifests == sorted(
        ((found.manifest_path, int(found.content), found.partition_spec_id) for found in expected), key=repr
    )
    (summary,) = rows(
        lake,
        f"SELECT partition_summaries FROM {table}.manifests WHERE partition_spec_id = 0 AND added_data_files_count = 2",
    )
    assert [plain(tuple(part)) for part in summary[0]] == [(False, False, "a", "b")]
    every = rows(lake, f"SELECT DISTINCT reference_snapshot_id FROM {table}.all_manifests")
    assert len(every) == len(snapshots)
    assert rows(lake, f"SELECT count(*) FROM {table}.all_data_files") == [(7,)]


def test_equal_to_pyiceberg_where_it_is_right(lake: Lake, table: str) -> None:
    inspect = lake.table(table).inspect
    for name in ("snapshots", "refs", "history", "metadata_log_entries"):
        theirs = getattr(inspect, name)()
        columns = [column for column in theirs.column_names if column != "summary"]
        ours = arrow_table(lake.session.sql(f"SELECT {', '.join(columns)} FROM {table}.{name}"))
        expected = [
            [in_utc(part) for part in line]
            for line in zip(*(theirs[column].to_pylist() for column in columns), strict=True)
        ]
        found = [
            [in_utc(part) for part in line]
            for line in zip(*(ours[column].to_pylist() for column in columns), strict=True)
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), name
    for name in ("files", "data_files", "all_data_files"):
        columns = ["content", "file_path", "record_count", "file_size_in_bytes", "spec_id", "split_offsets"]
        theirs = getattr(inspect, name)().select(columns)
        ours = arrow_table(lake.session.sql(f"SELECT {', '.join(columns)} FROM {table}.{name}"))
        assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist())), name


def test_position_deletes(lake: Lake, table: str, version: int) -> None:
    found = rows(lake, f"SELECT pos, row, partition, spec_id FROM {table}.position_deletes")
    expected = [(0, None, partition, spec_id) for spec_id, partition in DELETED_IN] if version > 1 else []
    assert found == sorted(expected, key=repr)
    names = [column for column, _, _ in shape(lake, f"{table}.position_deletes")]
    vectors = ["content_offset", "content_size_in_bytes"] if version == 3 else []
    assert names == ["file_path", "pos", "row", "partition", "spec_id", "delete_file_path", *vectors]
    deleted = rows(lake, f"SELECT DISTINCT delete_file_path FROM {table}.position_deletes")
    assert deleted == rows(lake, f"SELECT DISTINCT file_path FROM {table}.delete_files")
    paths = rows(lake, f"SELECT file_path FROM {table}.position_deletes p WHERE p.partition.name = 'b'")
    assert len(paths) == (1 if version > 1 else 0)


@ANY_VERSION
def test_time_travel(lake: Lake, table: str) -> None:
    first = lake.table(table).snapshots()[1].snapshot_id
    for name, tagged, second in (("files", 2, 4), ("entries", 2, 4), ("manifests", 1, 2), ("partitions", 2, 4)):
        for form, expected in (
            (f"{table}.{name} VERSION AS OF {first}", second),
            (f"{table}.{name} VERSION AS OF 't1'", tagged),
            (f"{table}.{name}.tag_t1", tagged),
            (f"{table}.{name}.snapshot_id_{first}", second),
        ):
            assert rows(lake, f"SELECT count(*) FROM {form}") == [(expected,)], form
    made = rows(lake, f"SELECT committed_at FROM {table}.snapshots ORDER BY committed_at LIMIT 1")[0][0]
    assert rows(lake, f"SELECT count(*) FROM {table}.files TIMESTAMP AS OF '{made.isoformat()}'") == [(2,)]
    data = rows(lake, f"SELECT count(*) FROM {table}.files.branch_br WHERE content = 0")
    assert data == [(5,)]
    for name in MetadataTable:
        if not name.is_of_one_snapshot:
            for form in (f"{table}.{name} VERSION AS OF {first}", f"{table}.{name}.branch_br"):
                with pytest.raises(dml.NotSupportedError, match="does not support time travel"):
                    lake.session.sql(f"SELECT * FROM {form}")


@ANY_VERSION
def test_filters_leave_out_what_cannot_match_and_nothing_else(
    lake: Lake, table: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each filter gives what Spark finds by itself in all rows."""
    everything = lake.session.sql(f"SELECT * FROM {table}.files").collect()
    conditions = [
        ("partition.name = 'a'", lambda line: line.partition.name == "a"),
        ("partition.name IS NULL", lambda line: line.partition.name is None),
        ("partition.id_bucket_4 > 2", lambda line: (line.partition.id_bucket_4 or 0) > 2),
        ("partition.dd = DATE '2024-05-01'", lambda line: line.partition.dd == DAY),
        ("partition.dd IS NULL AND content = 0", lambda line: line.partition.dd is None and line.content == 0),
        ("content = 1", lambda line: line.content == 1),
        ("spec_id = 1", lambda line: line.spec_id == 1),
        ("NOT (partition.name = 'a' OR spec_id = 3)", lambda line: line.spec_id != 3 and line.partition.name == "b"),
        ("record_count = 2", lambda line: line.record_count == 2),
    ]
    for driver_bytes, (condition, matches) in itertools.product((1 << 20, -1), conditions):
        monkeypatch.setattr(limits, "MAX_DRIVER_MANIFEST_BYTES", driver_bytes)
        found = rows(lake, f"SELECT file_path, content_offset FROM {table}.files WHERE {condition}")
        expected = [(line.file_path, line.content_offset) for line in everything if matches(line)]
        assert found == sorted(expected, key=repr), condition


@ANY_VERSION
def test_manifests_that_cannot_match_are_not_read(lake: Lake, table: str) -> None:
    """One that another spec wrote is gone: a filter on partitions that it does not have does without it."""
    loaded = lake.table(table)
    gone = next(found for found in manifests_of(loaded.io, loaded.current_snapshot()) if found.partition_spec_id == 0)
    path = gone.manifest_path.removeprefix("file://")
    with pathlib.Path(path).open("rb") as stream:
        content = stream.read()
    with pathlib.Path(path).open("wb") as stream:
        stream.write(content[: len(content) // 2])
    try:
        assert len(rows(lake, f"SELECT file_path FROM {table}.files WHERE partition.dd = DATE '2024-05-01'")) >= 2
        with pytest.raises(dml.CorruptFileError):
            rows(lake, f"SELECT file_path FROM {table}.files WHERE partition.name = 'a'")
    finally:
        with pathlib.Path(path).open("wb") as stream:
            stream.write(content)


@ANY_VERSION
def test_a_damaged_manifest_is_an_error_in_tasks_too(lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_DRIVER_MANIFEST_BYTES", -1)
    loaded = lake.table(table)
    path = manifests_of(loaded.io, loaded.current_snapshot())[0].manifest_path.removeprefix("file://")
    with pathlib.Path(path).open("rb") as stream:
        content = stream.read()
    with pathlib.Path(path).open("wb") as stream:
        stream.write(content[:-20] + bytes(20))
    try:
        # The job is the caller's own: the error is Spark's, and holds ours.
        with pytest.raises(PythonException, match=r"CorruptFileError: The metadata file .* cannot be read"):
            rows(lake, f"SELECT file_path FROM {table}.files")
    finally:
        with pathlib.Path(path).open("wb") as stream:
            stream.write(content)


@ANY_VERSION
def test_they_are_relations_like_others(lake: Lake, table: str) -> None:
    """Joins, subqueries, views, and DataFrames from `table`."""
    session = lake.session
    query = f"SELECT count(*) FROM {table}.entries e JOIN {table}.snapshots s ON e.snapshot_id = s.snapshot_id"
    total = rows(lake, f"SELECT count(*) FROM {table}.entries")
    assert rows(lake, query) == total
    assert [(session.table(f"{table}.entries").count(),)] == total
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW the_files AS SELECT * FROM {table}.data_files")
    assert session.sql("SELECT sum(record_count) FROM the_files").collect()[0][0] == 7
    assert session.table(f"{table}.FILES").where("content = 0").count() == 6


@pytest.mark.parametrize("number", [*(pytest.param(one, marks=pytest.mark.nightly) for one in (1, 2)), 3])
def test_an_empty_table(lake: Lake, number: int) -> None:
    name = lake.create("id BIGINT, name STRING", "PARTITIONED BY (name)", **{"format-version": str(number)})
    for metadata_table in MetadataTable:
        expected = 1 if metadata_table is MetadataTable.METADATA_LOG_ENTRIES else 0
        frame = lake.session.sql(f"SELECT * FROM {name}.{metadata_table}")
        assert len(frame.collect()) == expected, metadata_table
        assert rows(lake, f"SELECT count(*) FROM {name}.{metadata_table}") == [(expected,)], metadata_table


def test_a_table_that_never_was_partitioned_has_no_partition(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    assert "partition" not in lake.session.sql(f"SELECT * FROM {name}.files").columns
    columns = lake.session.sql(f"SELECT * FROM {name}.partitions").columns
    assert columns == [column for column, _, _ in PARTITION_COLUMNS[2:]]
    assert rows(lake, f"SELECT record_count, file_count FROM {name}.partitions") == [(1, 1)]


@ANY_VERSION
def test_a_wrong_name_is_told(lake: Lake, table: str) -> None:
    with pytest.raises(dml.NotFoundError) as raised:
        lake.session.sql(f"SELECT * FROM lake.{table}.fils")
    assert "files" in str(raised.value)


@ANY_VERSION
def test_all_of_them_count_what_they_show(lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`count(*)` of files is told by manifest lists, the rows by manifests."""
    for name in MetadataTable:
        counted = rows(lake, f"SELECT count(*) FROM {table}.{name}")
        assert counted == [(len(lake.session.sql(f"SELECT * FROM {table}.{name}").collect()),)], name
