"""PyIceberg and DuckDB read every kind of table that we write, row for row as we do."""

import pytest

from dml.model.manifest import FileContent
from tests.interop.conftest import InteropLake
from tests.interop.readers import read_duckdb
from tests.marks import by_night

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, k INT, s STRING, ts TIMESTAMP, dt DATE, v DOUBLE"
FILL = (
    "INSERT INTO {t} SELECT id, CAST(id % 5 AS INT), concat('name-', id % 7), "
    "timestamp_seconds(1577836800 + id * 40000), date_add(DATE '2019-12-25', CAST(id % 30 AS INT)), id / 4 FROM range("
)
CHANGES = (
    "DELETE FROM {t} WHERE id % 5 = 2",
    "UPDATE {t} SET v = -v, s = concat(s, '!') WHERE id % 7 = 3",
    (
        "MERGE INTO {t} x USING (SELECT id * 3 AS id, 'merged' AS s FROM range(0, 24)) y ON x.id = y.id "
        "WHEN MATCHED AND x.k = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET s = y.s "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (y.id, y.s)"
    ),
    "DELETE FROM {t} WHERE id IN (4, 9)",
)


def filled(least: int, end: int) -> str:
    """An INSERT of the ids of a range."""
    return f"{FILL}{least}, {end})"


def ids_left() -> set[int]:
    """The ids after `CHANGES`, counted by hand."""
    ids = {i for i in range(50) if i % 5 != 2}
    merged = {3 * i for i in range(24)}
    return ((ids - {i for i in ids & merged if i % 5 == 1}) | (merged - ids)) - {4, 9}


def changed(lake: InteropLake, name: str) -> None:
    """Two data files' worth of rows, and all kinds of changes."""
    lake.run(name, filled(0, 35), filled(35, 50), *CHANGES)


KINDS = [(1, "copy-on-write"), (2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read")]


LAYOUTS = ["", "PARTITIONED BY (k)", "PARTITIONED BY (bucket(3, id), days(ts))"]
ON_LAYOUTS = [(*kind, layout) for kind in KINDS for layout in LAYOUTS]


@pytest.mark.parametrize(
    ("version", "mode", "partitioning"),
    by_night(
        ON_LAYOUTS,  # each kind of table on one of them, the default on all
        lambda one: one[:2] == (2, "copy-on-write") or LAYOUTS.index(one[2]) == KINDS.index(one[:2]) % len(LAYOUTS),
    ),
)
def test_rows_after_every_kind_of_change(lake: InteropLake, version: int, mode: str, partitioning: str) -> None:
    name = lake.create(COLUMNS, partitioning, version=version, mode=mode)
    changed(lake, name)
    rows = lake.assert_readers_agree(name, len(ids_left()))
    assert {int(row[1:].partition(",")[0]) for row in rows} == ids_left()
    if version == 3:  # row ids and sequence numbers of carried, updated, merged and new rows
        columns = "id, _row_id, _last_updated_sequence_number"
        assert read_duckdb(lake.table(name).metadata_location, columns) == lake.row_texts(name, columns)


def parquet_rows(lake: InteropLake) -> list[str]:
    """The rows of a Parquet table after all changes."""
    name = lake.create(COLUMNS, "PARTITIONED BY (k)")
    changed(lake, name)
    return lake.row_texts(name)


@pytest.mark.parametrize(("version", "mode"), [(2, "merge-on-read"), (3, "copy-on-write")])
@pytest.mark.parametrize("file_format", ["orc", "avro"])
@pytest.mark.proves("C21")
def test_other_formats(lake: InteropLake, file_format: str, version: int, mode: str) -> None:
    """PyIceberg reads ORC files without instants, and no Avro: those have the rows of a Parquet table."""
    properties = {"write.format.default": file_format}
    name = lake.create(COLUMNS, "PARTITIONED BY (k)", version=version, mode=mode, **properties)
    changed(lake, name)
    if file_format == "orc":
        lake.run(name, "ALTER TABLE {t} DROP COLUMN ts")
        lake.assert_readers_agree(name, len(ids_left()), duckdb=False)
    else:
        assert lake.row_texts(name) == lake.once(parquet_rows, lambda: parquet_rows(lake))
    formats = {file.file_format for file in lake.files(name, FileContent.DATA)}
    assert formats == {file_format}
    assert {file.file_format for file in lake.delete_files(name)} == ({file_format} if version == 2 else set())


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_position_deletes_at_both_granularities(lake: InteropLake, granularity: str) -> None:
    """Files for one data file each name it; files for a partition's data files name none."""
    name = lake.create(COLUMNS, version=2, mode="merge-on-read", **{"write.delete.granularity": granularity})
    lake.run(
        name, filled(0, 20), filled(20, 40), "DELETE FROM {t} WHERE id % 5 = 2", "DELETE FROM {t} WHERE id % 5 = 3"
    )
    lake.assert_readers_agree(name, 24)
    deletes = lake.delete_files(name)
    assert sum(file.record_count for file in deletes) == 16
    scoped = [
        2147483546 in file.lower_bounds and file.lower_bounds[2147483546] == file.upper_bounds[2147483546]
        for file in deletes
    ]
    if granularity == "file":
        assert all(scoped)
        assert len(deletes) == len(lake.files(name, FileContent.DATA))


@pytest.mark.proves("DV1", "DV2", "DV4")
def test_replaced_deletion_vectors_and_several_in_one_file(lake: InteropLake) -> None:
    """A data file never has two vectors; those of one task share a Puffin file."""
    name = lake.create("id BIGINT, k BIGINT", "PARTITIONED BY (k)", version=3, mode="merge-on-read")
    lake.run(
        name,
        "INSERT INTO {t} SELECT id, id DIV 4 FROM range(0, 48)",
        "DELETE FROM {t} WHERE id % 4 = 2",
        "DELETE FROM {t} WHERE id % 4 = 1 AND id % 8 <> 1",
    )
    vectors = lake.delete_files(name)
    assert all(file.is_deletion_vector for file in vectors)
    data = lake.files(name, FileContent.DATA)
    assert sorted(str(file.referenced_data_file) for file in vectors) == sorted(file.path for file in data)
    assert sorted(file.record_count for file in vectors) == [1] * 6 + [2] * 6
    assert len({file.path for file in vectors}) < len(vectors)
    lake.assert_readers_agree(name, 30)


@pytest.mark.parametrize(("version", "mode"), by_night(KINDS[1:], lambda one: one != (3, "copy-on-write")))
def test_partition_evolution(lake: InteropLake, version: int, mode: str) -> None:
    """Data files and deletes of several specs live side by side."""
    name = lake.create(COLUMNS, version=version, mode=mode)
    lake.run(
        name,
        filled(0, 15),
        "DELETE FROM {t} WHERE id % 5 = 2",
        "ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)",
        filled(15, 30),
        "UPDATE {t} SET v = -v WHERE k = 3",
        "ALTER TABLE {t} ADD PARTITION FIELD days(ts)",
        "ALTER TABLE {t} DROP PARTITION FIELD bucket(4, id)",
        filled(30, 50),
        *CHANGES,
        "ALTER TABLE {t} REPLACE PARTITION FIELD days(ts) WITH months(ts)",
        "UPDATE {t} SET v = 0 WHERE id % 10 = 5",
    )
    # DuckDB 1.5 takes the wrong vector for a file of an older spec.
    lake.assert_readers_agree(name, len(ids_left()), duckdb=not (version == 3 and mode == "merge-on-read"))


@pytest.mark.parametrize(("version", "mode"), by_night(KINDS[1:], lambda one: one in {KINDS[1], KINDS[-1]}))
def test_schema_evolution(lake: InteropLake, version: int, mode: str) -> None:
    """Columns renamed, added, dropped, added again under the old name, moved and widened, nested ones too."""
    name = lake.create(
        "id INT, f FLOAT, d DECIMAL(9,2), s STRING, gone INT, st STRUCT<a: INT, b: STRING>", version=version, mode=mode
    )
    fill = (
        "INSERT INTO {t} SELECT CAST(id AS INT), CAST(id / 2 AS FLOAT), CAST(id / 4 AS DECIMAL(9,2)), "
        "concat('s', id), 1, named_struct('a', CAST(id AS INT), 'b', 'q') FROM range(0, 20)"
    )
    lake.run(
        name,
        fill,
        "ALTER TABLE {t} RENAME COLUMN s TO label",
        "ALTER TABLE {t} RENAME COLUMN st.a TO aa",
        "ALTER TABLE {t} ADD COLUMN extra STRING AFTER id",
        "ALTER TABLE {t} ADD COLUMN st.c DOUBLE",
        "ALTER TABLE {t} DROP COLUMN gone",
        "ALTER TABLE {t} DROP COLUMN st.b",
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
        "ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(20,2)",
        "ALTER TABLE {t} ADD COLUMN gone STRING",
        "ALTER TABLE {t} ALTER COLUMN d FIRST",
        "DELETE FROM {t} WHERE id % 5 = 2",
        "UPDATE {t} SET f = -1, gone = 'new', st.c = 2.5 WHERE id % 7 = 1",
        "INSERT INTO {t} VALUES "
        "(12345678901234.25, 99999999999, 'x', 1e300, 'l', named_struct('aa', 1, 'c', NULL), NULL)",
    )
    lake.assert_readers_agree(name, 17)


ALL_TYPES = (
    "id BIGINT NOT NULL, b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, d9 DECIMAL(9,2), d18 DECIMAL(18,3), "
    "d38 DECIMAL(38,10), s STRING, dt DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, bin BINARY, "
    "st STRUCT<a: INT, b: STRUCT<c: STRING, d: DATE>>, la ARRAY<INT>, ls ARRAY<STRUCT<x: INT, y: STRING>>, "
    "m MAP<STRING, DECIMAL(9,2)>, mi MAP<INT, ARRAY<STRING>>"
)
ALL_ROWS = (
    (
        "(1, true, 1, 1, 1.5, 1.5, 1.50, 1.500, 1.5, 'a', DATE '2020-02-29', TIMESTAMP '2020-02-29 12:34:56.123456', "
        "TIMESTAMP_NTZ '2020-02-29 12:34:56.123456', X'00ff', named_struct('a', 1, 'b', named_struct('c', 'x', 'd', "
        "DATE '1999-12-31')), array(1, NULL, 3), array(named_struct('x', 1, 'y', 'p')), map('k', 1.25, 'j', NULL), "
        "map(1, array('q', NULL)))"
    ),
    (
        "(2, false, -2147483648, -9223372036854775808, float('nan'), double('nan'), -9999999.99, -999999999999999.999, "
        "-1234567890123456789012345678.0123456789, '', DATE '0001-01-01', TIMESTAMP '0001-01-01 00:00:00', "
        "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999', X'', named_struct('a', NULL, 'b', NULL), array(), "
        "array(), map(), map())"
    ),
    (
        "(3, NULL, 2147483647, 9223372036854775807, float('infinity'), double('-infinity'), 9999999.99, "
        "999999999999999.999, 1234567890123456789012345678.0123456789, "
        "'Z\u00fcrich \U0001f980 long enough to be truncated', "
        "DATE '9999-12-31', TIMESTAMP '9999-12-31 23:59:59.999999', TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', "
        "X'ffffffffffffffffffffffffffffffffffffff', named_struct('a', 7, 'b', named_struct('c', NULL, 'd', NULL)), "
        "array(CAST(NULL AS INT)), array(NULL, named_struct('x', NULL, 'y', NULL)), map('', 0), "
        "map(-1, CAST(NULL AS ARRAY<STRING>)))"
    ),
    # PyIceberg 0.12 reads a null list of structs as an empty one, so there is none here.
    "(4" + ", NULL" * 15 + ", array(), NULL, NULL)",
    (
        "(5, NULL, 0, 0, float('-0.0'), double('-0.0'), 0, 0, 0, 'z', DATE '1970-01-01', "
        "TIMESTAMP '1970-01-01 00:00:00', "
        "TIMESTAMP_NTZ '1970-01-01 00:00:00', X'00', NULL, NULL, array(), NULL, NULL)"
    ),
)


@pytest.mark.parametrize(("version", "mode"), by_night(KINDS, lambda one: one in {KINDS[1], KINDS[-1]}))
def test_all_types_with_nulls_and_extremes(lake: InteropLake, version: int, mode: str) -> None:
    """Also after rows were carried, updated and merged."""
    name = lake.create(ALL_TYPES, version=version, mode=mode)
    lake.run(name, *(f"INSERT INTO {{t}} VALUES {', '.join(rows)}" for rows in (ALL_ROWS[:3], ALL_ROWS[3:])))
    before = lake.assert_readers_agree(name, 5)
    lake.run(
        name,
        "UPDATE {t} SET i = 17, st.a = 9 WHERE id IN (1, 4)",
        "DELETE FROM {t} WHERE id = 2",
        "MERGE INTO {t} t USING (SELECT * FROM {t} WHERE id IN (3, 5)) s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 3 THEN UPDATE SET *",
    )
    after = lake.assert_readers_agree(name, 4)
    assert {row for row in before if row[1] in "35"} == {row for row in after if row[1] in "35"}


@pytest.mark.parametrize("version", by_night([1, 2, 3], lambda version: version == 3))
def test_a_table_with_a_sort_order(lake: InteropLake, version: int) -> None:
    """Files say which order they follow."""
    name = lake.create(COLUMNS, version=version)
    lake.run(name, "ALTER TABLE {t} WRITE ORDERED BY s DESC, id")
    changed(lake, name)
    lake.assert_readers_agree(name, len(ids_left()))


@pytest.mark.parametrize("version", by_night([2, 3], lambda version: version == 3))
def test_bounds_with_nan_and_null_prune_no_row(lake: InteropLake, version: int) -> None:
    """Readers that prune by our metrics find rows next to NaN and NULL."""
    name = lake.create("id INT, d DOUBLE, s STRING", version=version, mode="merge-on-read")
    lake.run(
        name,
        "INSERT INTO {t} VALUES (1, double('nan'), NULL), (2, 1.0, 'b')",
        "INSERT INTO {t} VALUES (3, double('nan'), NULL)",
        "INSERT INTO {t} VALUES (4, NULL, 'a'), (5, double('-0.0'), 'zzzzzzzzzzzzzzzzzzzzzzzzzzz')",
    )
    lake.assert_readers_agree(name, 5)
    table = lake.table(name)
    for text, expected in (
        ("d = 1.0", {2}),
        ("d >= 0.0", {2, 5}),
        ("s >= 'zzzzzzzzzzzzzzzzzzzzzzzzzz'", {5}),
        ("s IS NULL", {1, 3}),
        ("d IS NULL", {4}),
    ):
        found = set(table.scan(row_filter=text).to_arrow()["id"].to_pylist())
        assert found - {1, 3} == expected - {1, 3}, text
        assert expected <= found | {1, 3}
    lake.run(name, "DELETE FROM {t} WHERE d > 1.0")  # NaN is greater than every number
    lake.assert_readers_agree(name, 3)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_table_that_went_from_version_2_to_3(lake: InteropLake, mode: str) -> None:
    """Position deletes of version 2 stay valid beside, and go into, deletion vectors."""
    name = lake.create(COLUMNS, "PARTITIONED BY (k)", version=2, mode="merge-on-read")
    changed(lake, name)
    modes = ", ".join(f"'write.{command}.mode' = '{mode}'" for command in ("delete", "update", "merge"))
    lake.run(
        name,
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version' = '3', {modes})",
        "DELETE FROM {t} WHERE id % 9 = 1",
        "UPDATE {t} SET s = 'up' WHERE id % 8 = 1",
    )
    lake.assert_readers_agree(name, len({i for i in ids_left() if i % 9 != 1}))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_defaults_of_version_3(lake: InteropLake, mode: str) -> None:
    """Rows from before a column was added read its default."""
    name = lake.create("id INT", version=3, mode=mode)
    lake.run(
        name,
        "INSERT INTO {t} VALUES (1), (2), (3)",
        "ALTER TABLE {t} ADD COLUMN n INT DEFAULT 7",
        "ALTER TABLE {t} ADD COLUMN s STRING DEFAULT 'abc'",
        "UPDATE {t} SET n = n + 1 WHERE id = 2",
        "INSERT INTO {t} (id) VALUES (4)",
        "DELETE FROM {t} WHERE id = 1",
    )
    assert lake.row_texts(name) == ["(2, 8, 'abc')", "(3, 7, 'abc')", "(4, 7, 'abc')"]
    lake.assert_readers_agree(name, 3)
