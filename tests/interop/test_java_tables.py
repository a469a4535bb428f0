"""Tables that Iceberg's Java library wrote: we read the rows that Java reads and change them, and others read those."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from dml.model.manifest import FileContent
from dml.spark.versions import arrow_table
from tests.fixtures.java.tables import NAMES, expected, lay_out
from tests.fixtures.java.values import rows_of, sorted_rows
from tests.interop.conftest import MERGE_ON_READ, InteropLake
from tests.interop.readers import duckdb_connection
from tests.marks import by_night

pytestmark = pytest.mark.spark

LINEAGE = ("_row_id", "_last_updated_sequence_number")
WRITES_PARQUET = {"write.format.default": "parquet", "write.delete.format.default": "parquet"}
CHANGES = (
    "DELETE FROM {t} WHERE id % 5 = 2",
    "UPDATE {t} SET s = concat(s, '!') WHERE id % 7 = 3",
    (
        "MERGE INTO {t} x USING (SELECT id * 3 AS id, 'merged' AS s FROM range(0, 15)) y ON x.id = y.id "
        "WHEN MATCHED AND x.id % 2 = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET s = y.s "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (y.id, y.s)"
    ),
)
# PyIceberg 0.12 reads a null list of structs, and a null map to structs or lists, as an empty one.
NULL_COLLECTIONS = {"ls", "la", "m", "mi"}
# Spark has no such type, so these columns can be copied and not selected.
NANOSECONDS = {"tn", "tz"}


@pytest.fixture
def java_table(lake: InteropLake, place_of_java_tables: Path) -> Callable[[str], str]:
    """Registers a table as Java left it; its name."""

    def register(name: str) -> str:
        registered = f"db.java{next(lake.numbers)}"
        lake.session.registry.catalogs["lake"].register_table(tuple(registered.split(".")), lay_out(name))
        return registered

    return register


def version_of(name: str) -> int:
    return 3 if LINEAGE[0] in expected(name)["rows"][0] else 1 if name.startswith("v1") else 2


def columns_of(name: str) -> list[str]:
    return [column for column in expected(name)["rows"][0] if column not in LINEAGE]


def without_lineage(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted_rows({column: value for column, value in row.items() if column not in LINEAGE} for row in rows)


def read_rows(lake: InteropLake, table: str, *columns: str) -> list[dict[str, Any]]:
    return rows_of(arrow_table(lake.session.sql(f"SELECT {', '.join(columns) or '*'} FROM {table}")))


def changed(rows: list[dict[str, Any]], inserted: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The rows by id that `CHANGES` make of Java's."""
    by_id = {row["id"]: row for row in rows if math.fmod(row["id"], 5) != 2}
    assert len({row["id"] for row in rows}) == len(rows)
    for number, row in by_id.items():
        if math.fmod(number, 7) == 3 and row["s"] is not None:
            by_id[number] = row | {"s": row["s"] + "!"}
    for number in range(0, 45, 3):
        if number not in by_id:
            by_id[number] = inserted | {"id": number, "s": "merged"}
        elif number % 2:
            del by_id[number]
        else:
            by_id[number] = by_id[number] | {"s": "merged"}
    return by_id


def read_by_others(lake: InteropLake, table: str, rows: list[dict[str, Any]], *, duckdb: bool = True) -> None:
    """PyIceberg and DuckDB read these rows, where they know all kinds of files of the table."""
    live = [(content, file.file_format) for content in FileContent for file in lake.files(table, content)]
    location = lake.table(table).metadata_location
    data = {kind for content, kind in live if content is FileContent.DATA}
    deletes = {kind for content, kind in live if content is FileContent.POSITION_DELETES}
    equality = any(content is FileContent.EQUALITY_DELETES for content, _ in live)
    if data <= {"parquet", "orc"} and deletes <= {"parquet", "puffin"} and not equality:
        scanned = StaticTable.from_metadata(location).scan().to_arrow()
        kept = [column for column in scanned.column_names if column not in NULL_COLLECTIONS]
        expected_rows = sorted_rows({column: row[column] for column in kept} for row in rows)
        assert rows_of(scanned.select(kept)) == expected_rows
    if duckdb and {kind for _, kind in live} <= {"parquet", "puffin"}:
        path = location.removeprefix("file://")
        assert rows_of(duckdb_connection().execute(f"SELECT * FROM iceberg_scan('{path}')").to_arrow_table()) == rows


SPARK_HAS_ALL_TYPES = [name for name in NAMES if name != "other_types"]


@pytest.mark.parametrize("name", SPARK_HAS_ALL_TYPES)
def test_the_rows_are_those_that_java_reads(lake: InteropLake, java_table: Callable[[str], str], name: str) -> None:
    """With row ids and the sequence numbers of their last change in version 3."""
    lineage = LINEAGE if version_of(name) == 3 else ()
    assert read_rows(lake, java_table(name), "*", *lineage) == sorted_rows(expected(name)["rows"])


MODES = [
    (name, mode)
    for name in SPARK_HAS_ALL_TYPES
    for mode in ("copy-on-write", "merge-on-read")
    if (version_of(name), mode) != (1, "merge-on-read")
]
HAVE_DELETES = {name for name in NAMES if "deletes" in name or "vectors" in name}
IN_TURN = {name: ("copy-on-write", "merge-on-read")[number % 2] for number, name in enumerate(SPARK_HAS_ALL_TYPES)}


def is_for_every_change(one: tuple[str, str]) -> bool:
    """Both modes where Java left deletes, which one mode applies and the other adds to; else one of them in turn."""
    name, mode = one
    return name in HAVE_DELETES or version_of(name) == 1 or mode == IN_TURN[name]


@pytest.mark.parametrize(("name", "mode"), by_night(MODES, is_for_every_change))
def test_statements_change_the_rows_and_others_read_them(
    lake: InteropLake, java_table: Callable[[str], str], name: str, mode: str
) -> None:
    """DELETE, UPDATE and MERGE, one after the other."""
    table = java_table(name)
    modes = dict.fromkeys(MERGE_ON_READ, mode) | WRITES_PARQUET
    listed = ", ".join(f"'{key}' = '{text}'" for key, text in modes.items())
    lake.run(table, f"ALTER TABLE {{t}} SET TBLPROPERTIES ({listed})", *CHANGES)
    inserted = dict.fromkeys(columns_of(name))
    if name == "defaults":
        inserted |= {"n": 7, "word": "new", "d": {"float": "0.5"}, "dt": {"date": 18321}}
    before = expected(name)["rows"]
    by_id = changed(before, dict.fromkeys(before[0]) | inserted)
    rows = without_lineage(list(by_id.values()))
    assert read_rows(lake, table) == rows
    if version_of(name) == 3:
        kept = {row["id"]: row["_row_id"] for row in by_id.values() if row["_row_id"] is not None}
        found = {row["id"]: row["_row_id"] for row in read_rows(lake, table, "id", "_row_id")}
        assert {number: found[number] for number in kept} == kept
        assert len(set(found.values())) == len(found)
    read_by_others(lake, table, rows)


@pytest.mark.parametrize("name", ["all_types_orc", "all_types_parquet"])
def test_fields_of_null_structs_are_null_whatever_java_counts(
    lake: InteropLake, java_table: Callable[[str], str], name: str
) -> None:
    """Java's metrics of an ORC file say of a struct's field that there is no NULL, where the struct itself is NULL."""
    table = java_table(name)
    rows = expected(name)["rows"]
    left = [row for row in rows if row["st"] is not None and dict(row["st"]["struct"])["a"] is not None]
    assert any(row["st"] is None for row in rows)
    listed = ", ".join(f"'{key}' = '{text}'" for key, text in WRITES_PARQUET.items())
    lake.run(table, f"ALTER TABLE {{t}} SET TBLPROPERTIES ({listed})")
    assert lake.session.delete(table, "st.a IS NULL").rows_deleted == len(rows) - len(left)
    assert read_rows(lake, table) == sorted_rows(left)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_types_that_spark_does_not_have(lake: InteropLake, java_table: Callable[[str], str], mode: str) -> None:
    """They are read where they are near to a type of Spark's, and copied in any case."""
    table = java_table("other_types")
    rows = {row["id"]: row for row in expected("other_types")["rows"]}
    shown = [column for column in rows[0] if column not in NANOSECONDS]

    def as_spark_shows_them() -> list[dict[str, Any]]:
        uuids = {number: row["uuid"] and row["uuid"]["uuid"] for number, row in rows.items()}
        return sorted_rows(
            {column: (row | {"uuid": uuids[number]})[column] for column in shown} for number, row in rows.items()
        )

    assert read_rows(lake, table, *shown) == as_spark_shows_them()
    modes = ", ".join(f"'{key}' = '{mode}'" for key in MERGE_ON_READ)
    lake.run(table, f"ALTER TABLE {{t}} SET TBLPROPERTIES ({modes})", "DELETE FROM {t} WHERE id = 2", CHANGES[1])
    rows = {
        number: row | {"s": row["s"] + "!" if number == 3 else row["s"]} for number, row in rows.items() if number != 2
    }
    assert read_rows(lake, table, *shown) == as_spark_shows_them()
    lake.run(
        table, "ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')", "UPDATE {t} SET s = 'all'"
    )
    rows = {number: row | {"s": "all"} for number, row in rows.items()}
    assert {file.file_format for file in lake.files(table, FileContent.DATA)} == {"parquet"}
    read_by_others(lake, table, sorted_rows(rows.values()), duckdb=False)  # DuckDB 1.5 has no nanoseconds either


def test_branches_tags_and_old_snapshots(lake: InteropLake, java_table: Callable[[str], str]) -> None:
    """Each has the rows that it had for Java."""
    table = java_table("branches")
    ids = {
        place: sorted(row["id"] for row in read_rows(lake, f"{table} {place}", "id"))
        for place in ("VERSION AS OF 'first'", "VERSION AS OF 'side'", "VERSION AS OF 'main'")
    }
    first = list(range(8))
    assert list(ids.values()) == [first, [*first, 100], [number for number in first if number != 3]]
    lake.run(table, "DELETE FROM {t}.branch_side WHERE id < 100")
    assert [row["id"] for row in read_rows(lake, f"{table}.branch_side", "id")] == [100]
    assert len(read_rows(lake, table)) == 7
