"""Columns whose types Spark has not: statements that do not name them carry their values, others are refused.

And those of the type `time`, which Spark has from 4.1 on, and `unknown`.
"""

import datetime
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UnknownType,
)

from dml.catalog import create_table
from dml.commit import AppendFiles, commit
from dml.errors import DmlError, NotSupportedError
from tests.dml.commit.builders import data_file
from tests.interop.readers import read_duckdb, read_pyiceberg
from tests.lake import COMMANDS, Lake
from tests.marks import by_night

pytestmark = pytest.mark.spark

INSIDE = StructType(NestedField(9, "point", GeometryType(), required=False))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "s", StringType(), required=False),
    NestedField(3, "shape", GeometryType(), required=False),
    NestedField(4, "place", GeographyType(), required=False),
    NestedField(5, "at", TimestampNanoType(), required=False),
    NestedField(6, "moment", TimestamptzNanoType(), required=False),
    NestedField(7, "inside", INSIDE, required=False),
    NestedField(8, "nothing", UnknownType(), required=False),
)
CARRIED = ("shape", "place", "at", "moment", "inside")
LOGICAL = {
    **dict.fromkeys(("shape", "inside.point"), "GEOMETRY"),
    **dict.fromkeys(("at", "moment"), "TIMESTAMP"),
    "place": "GEOGRAPHY",
}
COUNT = 6


def point(number: int) -> bytes:
    """A point as well-known binary."""
    return struct.pack("<BIdd", 1, 1, float(number), -number / 2)


def arrow_field(number: int, name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


ARROW = pa.schema(
    [
        arrow_field(1, "id", pa.int64()),
        arrow_field(2, "s", pa.string()),
        arrow_field(3, "shape", pa.binary()),
        arrow_field(4, "place", pa.binary()),
        arrow_field(5, "at", pa.timestamp("ns")),
        arrow_field(6, "moment", pa.timestamp("ns", tz="UTC")),
        arrow_field(7, "inside", pa.struct([arrow_field(9, "point", pa.binary())])),
    ]
)


def row(number: int) -> dict[str, Any]:
    """A row, with nanoseconds; each third one has NULL in its columns."""
    if number % 3 == 2:
        return {"id": number, "s": f"s{number}", **dict.fromkeys(CARRIED)}
    return {
        "id": number,
        "s": f"s{number}",
        "shape": point(number),
        "place": point(-number),
        "at": 1_700_000_000_000_000_001 + number,
        "moment": -number * 10**9 - 1,
        "inside": {"point": point(7 * number)},
    }


def made(lake: Lake, mode: str, **properties: str) -> str:
    """A table with a file of another engine."""
    name = lake.new_name()
    modes = {f"write.{command}.mode": mode for command in COMMANDS}
    catalog = lake.session.registry.catalogs["lake"]
    table = create_table(
        catalog, tuple(name.split(".")), SCHEMA, properties={"format-version": "3", **modes, **properties}
    )
    file = replace(data_file(table, []), record_count=COUNT, lower_bounds={}, upper_bounds={}, value_counts={})
    local = Path(file.path.removeprefix("file://"))
    pq.write_table(pa.Table.from_pylist([row(number) for number in range(COUNT)], schema=ARROW), local)
    file = replace(file, file_size_in_bytes=local.stat().st_size, null_value_counts={})
    commit(table, AppendFiles(data_files=(file,)))
    return name


def stored(lake: Lake, name: str) -> dict[int, dict[str, Any]]:
    """The rows that are there: which these are is asked of us, what they hold of their files."""
    found: dict[int, dict[str, Any]] = {}
    for number, path, position in lake.rows(f"SELECT id, _file, _pos FROM {name}"):
        part = pq.read_table(path.removeprefix("file://"), partitioning=None).slice(position, 1).select(ARROW.names)
        for place in ("at", "moment"):
            part = part.set_column(part.schema.get_field_index(place), place, part[place].cast(pa.int64()))
        (found[number],) = part.to_pylist()
    return found


def logical_types(path: str) -> dict[str, str]:
    """What a file's schema calls the columns."""
    columns = pq.ParquetFile(path.removeprefix("file://")).schema
    return {columns.column(place).path: columns.column(place).logical_type.type for place in range(len(columns))}


@pytest.mark.parametrize(
    ("mode", "spliced"),
    by_night(
        [("copy-on-write", True), ("merge-on-read", False), ("copy-on-write", False)],
        always=lambda one: one != ("copy-on-write", False),
    ),
)
def test_statements_that_do_not_name_them_carry_their_values(lake: Lake, mode: str, spliced: bool) -> None:
    """To the last nanosecond; what is written is called what it is, and has no bounds where these would be points."""
    splice = {"write.splice.min-file-size-bytes": "1"} if spliced else {}
    name = made(lake, mode, **splice)
    before = {file.path for file in lake.data_files(name)}
    expected = {number: row(number) for number in range(COUNT)}
    lake.session.sql(f"UPDATE {name} SET s = 'changed' WHERE id IN (1, 2)")
    expected |= {number: {**row(number), "s": "changed"} for number in (1, 2)}
    assert stored(lake, name) == expected
    lake.session.sql(
        f"MERGE INTO {name} t USING (SELECT id, 'merged' AS s FROM range(4, 8)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, s.s)"
    )
    expected |= {number: {**row(number), "s": "merged"} for number in (4, 5)}
    expected |= {number: {**dict.fromkeys(ARROW.names), "id": number, "s": "merged"} for number in (6, 7)}
    assert stored(lake, name) == expected
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (0, 5)")
    lake.session.sql(f"INSERT INTO {name} (id, s) VALUES (9, 'new')")
    del expected[0], expected[5]
    expected[9] = {**dict.fromkeys(ARROW.names), "id": 9, "s": "new"}
    assert stored(lake, name) == expected
    assert lake.rows(f"SELECT id, s, nothing FROM {name}") == sorted(
        (number, values["s"], None) for number, values in expected.items()
    )
    assert lake.session.verify(name).ok
    for file in lake.data_files(name):
        if file.path in before:
            continue
        kinds = logical_types(file.path)
        assert {column: kinds[column] for column in LOGICAL} == LOGICAL
        assert not {3, 4, 9} & (file.lower_bounds or {}).keys()
    assert lake.rows(f"SELECT count(readable_metrics) FROM {name}.files WHERE content = 0") != []


@pytest.mark.parametrize("column", by_night(CARRIED, always=lambda column: column in {"shape", "at"}))
def test_statements_that_name_them_say_so_and_change_nothing(lake: Lake, column: str) -> None:
    name = made(lake, "copy-on-write")
    before = lake.state(name)
    for statement in (
        f"SELECT {column} FROM {name}",
        f"DELETE FROM {name} WHERE {column} IS NULL",
        f"UPDATE {name} SET {column} = NULL",
        f"UPDATE {name} SET s = CAST({column} AS STRING)",
        f"INSERT INTO {name} (id, {column}) VALUES (1, X'00')",
    ):
        with pytest.raises(NotSupportedError, match=r"[Cc]olumns of the type") as caught:
            lake.session.sql(statement)
        assert "Leave the column out" in str(caught.value), statement
    assert lake.state(name) == before


def test_geometries_are_written_into_parquet_files_alone(lake: Lake) -> None:
    name = made(lake, "copy-on-write", **{"write.format.default": "avro"})
    before = lake.state(name)
    with pytest.raises(NotSupportedError, match="geometries are written into Parquet files only"):
        lake.session.sql(f"UPDATE {name} SET s = 'x' WHERE id = 1")
    assert lake.state(name) == before


def test_a_column_of_the_type_unknown_is_null(lake: Lake) -> None:
    """It can be read and compared, and given nothing but NULL."""
    name = made(lake, "copy-on-write")
    assert lake.rows(f"SELECT count(*) FROM {name} WHERE nothing IS NULL") == [(COUNT,)]
    assert lake.session.sql(f"UPDATE {name} SET nothing = NULL, s = 'x' WHERE id = 1").rows_updated == 1
    before = lake.state(name)
    with pytest.raises(DmlError, match="nothing"):
        lake.session.sql(f"UPDATE {name} SET nothing = 1")
    assert lake.state(name) == before


@pytest.fixture
def times(lake: Lake) -> Iterator[None]:
    """Spark casts to its type for times of day only if it is told to."""
    lake.session.spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    lake.session.spark.conf.unset("spark.sql.timeType.enabled")


def test_times_of_day_that_an_insert_leaves_out_need_no_setting(lake: Lake) -> None:
    """Spark is asked for no cast."""
    name = lake.create("id INT, t TIME(6), d TIME DEFAULT TIME '07:30:00'", **{"format-version": "3"})
    lake.session.sql(f"INSERT INTO {name} (id) VALUES (1)")
    assert read_pyiceberg(lake.table(name).metadata_location) == [repr((1, None, datetime.time(7, 30)))]


@pytest.mark.usefixtures("times")
def test_times_of_day(lake: Lake) -> None:
    """To the microsecond, in statements, conditions and defaults, as DuckDB and PyIceberg read them."""
    name = lake.create("id INT, t TIME(6), d TIME DEFAULT TIME '07:30:00'", **{"format-version": "3"})
    lake.session.sql(f"INSERT INTO {name} (id, t) VALUES (1, TIME '12:34:56.789012'), (2, TIME '00:00:00'), (3, NULL)")
    lake.session.sql(f"UPDATE {name} SET t = TIME '23:59:59.999999' WHERE t < TIME '00:00:01'")
    lake.session.sql(
        f"MERGE INTO {name} t USING (SELECT 3 AS id, TIME '01:02:03' AS t) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t = s.t"
    )
    expected = [
        (1, datetime.time(12, 34, 56, 789012), datetime.time(7, 30)),
        (2, datetime.time(23, 59, 59, 999999), datetime.time(7, 30)),
        (3, datetime.time(1, 2, 3), datetime.time(7, 30)),
    ]
    assert lake.rows(name) == expected
    assert lake.session.sql(f"DELETE FROM {name} WHERE t = TIME '12:34:56.789012'").rows_deleted == 1
    location = lake.table(name).metadata_location
    assert read_pyiceberg(location) == read_duckdb(location) == sorted(repr(row) for row in expected[1:])
    before = lake.state(name)
    with pytest.raises(DmlError):
        lake.session.sql(f"INSERT INTO {name} (id, t) VALUES (4, 17)")
    assert lake.state(name) == before
