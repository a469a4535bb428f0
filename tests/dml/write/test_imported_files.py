"""Files of other programs: what the table can read is described right, and what any engine would misread is rejected.

The facts about Iceberg's Java library are of 1.10.2 on Spark 3.5.9, recorded with the same files.
"""

import datetime as dt
import decimal
import math
from pathlib import Path
from types import SimpleNamespace

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import DoubleType, NestedField

from dml.ddl.new_schema import schema_of
from dml.ddl.types import parse_type
from dml.errors import AnalysisError, CorruptFileError
from dml.write import imported_files
from dml.write.column_metrics import ColumnMetrics, MetricsMode, metrics_modes
from dml.write.imported_files import ImportContext, SourceFile, read_source_file

IO = PyArrowFileIO({})


def schema(**kinds: str) -> Schema:
    fields = (
        NestedField(0, name, parse_type(kind.removesuffix(" not null")), required=kind.endswith("not null"))
        for name, kind in kinds.items()
    )
    return schema_of(tuple(fields))


def examine(path: Path, table: Schema, *, partition=(), source_ids=(), mapping=None, names=None, **properties: str):
    context = ImportContext(
        schema_json=table.model_dump_json(),
        mapping_json=mapping or create_mapping_from_schema(table).model_dump_json(),
        names=names or {},
        spec_id=3,
        source_ids=source_ids,
        modes=metrics_modes(table, properties),
    )
    source = SourceFile(location=str(path), size=path.stat().st_size, file_format=path.suffix[1:], partition=partition)
    return read_source_file(context, source, IO)


def parquet(folder: Path, columns, **options) -> Path:
    path = folder / "a.parquet"
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return path


def test_metrics_are_those_that_java_finds(tmp_path: Path) -> None:
    """Counts, sizes and bounds as Java's add_files recorded them for this file; row groups besides."""
    table = schema(
        b="boolean",
        i="int",
        l="bigint",
        f="float",
        d="double",
        dec9="decimal(9,2)",
        dec38="decimal(38,2)",
        day="date",
        s="string",
        bin="binary",
        st="struct<x: int, y: string>",
        li="array<int>",
        m="map<string, int>",
    )
    path = parquet(
        tmp_path,
        {
            "b": pa.array([True, None]),
            "i": pa.array([1, -5], pa.int32()),
            "l": pa.array([1, 2**40], pa.int64()),
            "f": pa.array([1.5, math.nan], pa.float32()),
            "d": pa.array([-0.0, 2.5]),
            "dec9": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3.50")], pa.decimal128(9, 2)),
            "dec38": pa.array([decimal.Decimal("-1.25"), decimal.Decimal("3.50")], pa.decimal128(38, 2)),
            "day": pa.array([dt.date(2024, 1, 1), dt.date(1960, 1, 1)]),
            "s": pa.array(["a" * 30, "zz"]),
            "bin": pa.array([b"\xff" * 20, b"\x00"]),
            "st": pa.array([{"x": 1, "y": "q"}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])),
            "li": pa.array([[1, 2], []], pa.list_(pa.int32())),
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
        },
    )
    found = examine(path, table)
    file = found.content_file
    assert found.unknown_columns == ()
    assert file is not None
    assert (file.record_count, file.spec_id, file.sort_order_id, file.split_offsets) == (2, 3, 0, (4,))
    assert dict(file.value_counts) == dict.fromkeys((*range(1, 11), 14, 15), 2)
    assert dict(file.null_value_counts) == {**dict.fromkeys(range(2, 11), 0), 1: 1, 14: 1, 15: 1}
    assert file.nan_value_counts == {}
    assert {key: value.hex() for key, value in file.lower_bounds.items()} == {
        1: "01",
        2: "fbffffff",
        3: "0100000000000000",
        4: "0000c03f",
        5: "0000000000000080",
        6: "fea2",
        7: "83",
        8: "bbf1ffff",
        9: "61" * 16,
        10: "00",
        14: "01000000",
        15: "71",
    }
    assert {key: value.hex() for key, value in file.upper_bounds.items()} == {
        1: "01",
        2: "01000000",
        3: "0000000000010000",
        4: "0000c03f",
        5: "0000000000000440",
        6: "7d",
        7: "015e",
        8: "0b4d0000",
        9: "7a7a",
        14: "01000000",
        15: "71",
    }
    assert set(file.column_sizes) == {*range(1, 11), 14, 15, 16, 17, 18}


numbers = st.floats(width=32) | st.none()


@given(st.lists(st.lists(numbers, min_size=1, max_size=5), min_size=1, max_size=4), st.integers(0, 3))
def test_bounds_hold_for_every_value(tmp_path_factory, groups, kind) -> None:
    """Also beside NaN, which other engines order differently, and for all types by the same values."""
    values = [value for group in groups for value in group]
    column, declared = [
        (pa.array(values, pa.float32()), "double"),
        (pa.array([None if v is None else str(v) * 9 for v in values], pa.string()), "string"),
        (pa.array([None if v is None else repr(v).encode() * 9 for v in values], pa.binary()), "binary"),
        (
            pa.array(
                [None if v is None or not math.isfinite(v) else int(v % 1e6) - 500_000 for v in values], pa.int32()
            ),
            "bigint",
        ),
    ][kind]
    path = parquet(tmp_path_factory.mktemp("bounds"), {"c": column}, row_group_size=2)
    table = schema(c=declared)
    file = examine(path, table).content_file
    assert file is not None
    low, high = file.lower_bounds.get(1), file.upper_bounds.get(1)
    for value in column.to_pylist():
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        if low is not None:
            assert from_bytes(table.find_type(1), low) <= value
        if high is not None:
            assert from_bytes(table.find_type(1), high) >= value


def test_a_bound_that_may_be_wrong_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decimals in byte arrays by a writer that compared bytes; int96; a chunk without statistics."""
    numbers = pa.array([decimal.Decimal("-1.25"), decimal.Decimal("3.50")], pa.decimal128(38, 2))
    path = parquet(tmp_path, {"c": numbers})
    assert examine(path, schema(c="decimal(38,2)")).content_file.lower_bounds
    monkeypatch.setattr(imported_files, "SIGNED_ORDER", imported_files.re.compile("another"))
    assert examine(path, schema(c="decimal(38,2)")).content_file.lower_bounds == {}
    times = pa.array([MOMENT], pa.timestamp("us"))
    path = parquet(tmp_path, {"c": times}, use_deprecated_int96_timestamps=True)
    file = examine(path, schema(c="timestamp")).content_file
    assert (file.lower_bounds, dict(file.value_counts)) == ({}, {1: 1})
    path = parquet(tmp_path, {"c": pa.array([1, 2])}, write_statistics=False)
    file = examine(path, schema(c="bigint")).content_file
    assert (file.lower_bounds, file.null_value_counts, dict(file.value_counts)) == ({}, {}, {1: 2})


def test_statistics_that_may_hide_a_smaller_number() -> None:
    """Some writers store NaN as minimum and maximum of a chunk, or nothing: its other values are then unknown."""
    known = SimpleNamespace(has_min_max=True, min_raw=1.0, max_raw=2.0)
    others = (
        SimpleNamespace(has_min_max=True, min_raw=math.nan, max_raw=math.nan),
        SimpleNamespace(has_min_max=False, min_raw=None, max_raw=None),
    )
    cases = [([known], 1), ([], 0), *((some, 0) for other in others for some in ([known, other], [other, known]))]
    for statistics, bounds in cases:
        result = ColumnMetrics()
        imported_files.add_bounds(result, 1, DoubleType(), statistics, MetricsMode())
        assert len(result.lower_bounds) == len(result.upper_bounds) == bounds


@pytest.mark.parametrize("version", ["1.8.1", "1.9.0"])
def test_old_writers_are_known_by_their_version(version: str) -> None:
    assert not imported_files.SIGNED_ORDER.match(f"parquet-mr version {version} (build x)")
    assert imported_files.SIGNED_ORDER.match("parquet-mr version 1.10.1 (build x)")
    assert imported_files.SIGNED_ORDER.match("parquet-cpp-arrow version 21.0.0")


MOMENT = dt.datetime.fromisoformat("2024-01-02 03:04:05")
NUMBER = decimal.Decimal("1.25")


@pytest.mark.parametrize(
    ("value", "stored", "declared"),
    [
        (1, pa.int8(), "int"),
        (1, pa.int16(), "int"),
        (1, pa.int32(), "bigint"),
        (1.5, pa.float32(), "double"),
        (NUMBER, pa.decimal128(5, 2), "decimal(20,2)"),
        ("a", pa.large_string(), "string"),
        ("a", pa.dictionary(pa.int32(), pa.string()), "string"),
        (MOMENT, pa.timestamp("us", "UTC"), "timestamp"),
        (MOMENT, pa.timestamp("us"), "timestamp_ntz"),
        (MOMENT, pa.timestamp("ns", "UTC"), "timestamptz_ns"),
        (dt.time(1, 2), pa.time64("us"), "time"),
        (b"ab", pa.binary(2), "fixed(2)"),
        ([1], pa.large_list(pa.int32()), "array<bigint>"),
        ({"x": 1}, pa.struct([("x", pa.int32()), ("more", pa.string())]), "struct<x: bigint>"),
        ([("a", 1)], pa.map_(pa.string(), pa.int32()), "map<string, bigint>"),
    ],
)
def test_types_that_every_engine_reads(tmp_path: Path, value, stored, declared: str) -> None:
    path = parquet(tmp_path, {"c": pa.array([value], stored)})
    assert examine(path, schema(c=declared)).content_file.record_count == 1


@pytest.mark.parametrize(
    ("value", "stored", "declared", "message"),
    [
        # What Java made of them: 1970-01-20, the year 55972, 12.5, an exception for each of the others.
        (MOMENT, pa.timestamp("ms"), "timestamp_ntz", "timestamp.ms. in the file, and timestamp_ntz in the table"),
        (MOMENT, pa.timestamp("ns"), "timestamp_ntz", "timestamp.ns. in the file"),
        (NUMBER, pa.decimal128(5, 2), "decimal(5,1)", r"decimal128\(5, 2\) in the file, and decimal\(5,1\)"),
        (1, pa.int64(), "int", "int64 in the file, and int in the table"),
        (1, pa.int8(), "bigint", "int8 in the file"),
        (200, pa.uint8(), "int", "uint8 in the file"),
        (2**31, pa.uint32(), "bigint", "uint32 in the file"),
        (b"abc", pa.binary(), "string", "binary in the file, and string in the table"),
        ("abc", pa.string(), "binary", "string in the file"),
        (dt.date(2024, 1, 2), pa.date32(), "timestamp", "date32.day. in the file, and timestamp in the table"),
        ("1", pa.string(), "bigint", "string in the file, and bigint in the table"),
        # What Java reads, but not as what the file says.
        (MOMENT, pa.timestamp("us"), "timestamp", "timestamp.us. in the file, and timestamp in the table"),
        (MOMENT, pa.timestamp("us", "UTC"), "timestamp_ntz", "tz=UTC. in the file"),
        (b"x" * 16, pa.binary(16), "uuid", "fixed_size_binary.16. in the file, and uuid in the table"),
        (NUMBER, pa.decimal128(9, 2), "decimal(5,2)", r"and decimal\(5,2\) in the table"),
        ({"x": "1"}, pa.struct([("x", pa.string())]), "struct<x: bigint>", "the column 'c.x': it is string"),
        ([1], pa.list_(pa.int64()), "array<int>", "the column 'c.element': it is int64"),
        (1, pa.int32(), "struct<x: int>", "int32 in the file, and struct<"),
    ],
)
def test_types_that_an_engine_would_misread(tmp_path: Path, value, stored, declared: str, message: str) -> None:
    """The error names the file, the column and both types."""
    path = parquet(tmp_path, {"c": pa.array([value], stored)})
    with pytest.raises(AnalysisError, match=message) as caught:
        examine(path, schema(c=declared))
    assert str(path) in caught.value.message
    assert caught.value.context["column"].startswith("c")


def with_ids(**ids: int) -> pa.Schema:
    return pa.schema(
        [pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(number)}) for name, number in ids.items()]
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"B": [1], "a": [1]}, "'B' of the file would not be read: names match by case"),
        ({"x": [1]}, "it has none of the table's columns, only x"),
    ],
)
def test_columns_that_would_be_null(tmp_path: Path, columns, message: str) -> None:
    """Java reads NULL, without a word."""
    with pytest.raises(AnalysisError, match=message):
        examine(parquet(tmp_path, columns), schema(a="bigint", b="bigint"))


def test_field_ids_of_another_table(tmp_path: Path) -> None:
    """Readers take columns by id, whatever their names are."""
    table = schema(a="bigint", b="bigint")
    swapped = pa.table([[1], [2]], schema=with_ids(b=1, a=2))
    with pytest.raises(AnalysisError, match="the field id 1 is that of the column 'b' in the file"):
        examine(parquet(tmp_path, swapped), table)
    shifted = pa.table([[1], [2]], schema=with_ids(a=1, b=5))
    with pytest.raises(AnalysisError, match="has the field id 5 there, and 2 in the table"):
        examine(parquet(tmp_path, shifted), table)
    renamed = parquet(tmp_path, pa.table([[1], [2]], schema=with_ids(old=1, b=2)))
    assert examine(renamed, table, names={1: frozenset({"old", "a"})}).content_file.record_count == 1


def test_row_ids_of_another_table(tmp_path: Path) -> None:
    """Readers would take them for those of this one."""
    lineage = pa.table([[1], [7]], schema=with_ids(a=1, _row_id=2147483540))
    with pytest.raises(AnalysisError, match="it stores '_row_id' of the rows of another table"):
        examine(parquet(tmp_path, lineage), schema(a="bigint"))


def test_unknown_columns_are_named_and_missing_ones_are_null(tmp_path: Path) -> None:
    path = parquet(tmp_path, {"a": [1], "x": [2]})
    assert examine(path, schema(a="bigint", b="bigint")).unknown_columns == ("x",)
    with pytest.raises(AnalysisError, match="the column 'b': the file lacks the column, which is NOT NULL"):
        examine(path, schema(a="bigint", b="bigint not null"))


@pytest.mark.parametrize("statistics", [True, False])
def test_required_columns_have_no_null(tmp_path: Path, statistics: bool) -> None:
    table = schema(a="bigint not null")
    full = parquet(tmp_path, {"a": pa.array([1, 2])}, write_statistics=statistics)
    assert examine(full, table).content_file.record_count == 2
    with pytest.raises(AnalysisError, match="the column 'a': it has NULLs"):
        examine(parquet(tmp_path, {"a": pa.array([1, None])}, write_statistics=statistics), table)


def write_avro(path: Path, kind, values) -> Path:
    record = {"type": "record", "name": "r", "fields": [{"name": "c", "type": ["null", kind]}]}
    with path.open("wb") as stream:
        fastavro.writer(stream, fastavro.parse_schema(record), [{"c": value} for value in values])
    return path


@pytest.mark.parametrize("suffix", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("values", "partition", "fits"),
    [([7, 7], 7, True), ([7, 8], 7, False), ([7, None], 7, False), ([None], None, True), ([7], None, False)],
)
def test_a_partition_column_in_the_file_agrees_with_the_folder(
    tmp_path: Path, suffix: str, values, partition, fits: bool
) -> None:
    """Java takes the folder's value, other readers that of the file: a file with others is read in two ways."""
    path = tmp_path / f"a.{suffix}"
    table = pa.table({"c": pa.array(values, pa.int32())})
    match suffix:
        case "parquet":
            pq.write_table(table, path)
        case "orc":
            orc.write_table(table, path)
        case "avro":
            write_avro(path, "int", values)
    if fits:
        found = examine(path, schema(c="bigint"), partition=(partition,), source_ids=(1,))
        assert (found.content_file.record_count, found.content_file.partition) == (len(values), (partition,))
    else:
        with pytest.raises(AnalysisError, match="the column 'c': the file has other values than its partition"):
            examine(path, schema(c="bigint"), partition=(partition,), source_ids=(1,))


def test_orc_and_avro_have_record_counts(tmp_path: Path) -> None:
    """And no metrics: an entry without them is read always."""
    orc.write_table(pa.table({"c": ["a", "b", None]}), tmp_path / "a.orc")
    write_avro(tmp_path / "a.avro", "string", ["a", "b", None])
    for suffix in ("orc", "avro"):
        file = examine(tmp_path / f"a.{suffix}", schema(c="string")).content_file
        assert (file.record_count, file.file_format, file.value_counts, file.lower_bounds) == (3, suffix, {}, {})


def timestamp_of_avro(name: str):
    return {"type": "long", "logicalType": name}


def test_timestamps_of_orc_and_avro(tmp_path: Path) -> None:
    """Java refuses to read ORC's local timestamps as instants, and local timestamps of Avro at all."""
    orc.write_table(pa.table({"c": pa.array([MOMENT], pa.timestamp("ns"))}), tmp_path / "a.orc")
    assert examine(tmp_path / "a.orc", schema(c="timestamp_ntz")).content_file.record_count == 1
    with pytest.raises(AnalysisError, match="and timestamp in the table"):
        examine(tmp_path / "a.orc", schema(c="timestamp"))
    instant = write_avro(tmp_path / "a.avro", timestamp_of_avro("timestamp-micros"), [MOMENT.replace(tzinfo=dt.UTC)])
    assert examine(instant, schema(c="timestamp")).content_file.record_count == 1
    with pytest.raises(AnalysisError, match="and timestamp_ntz in the table"):
        examine(instant, schema(c="timestamp_ntz"))
    local = write_avro(tmp_path / "a.avro", timestamp_of_avro("local-timestamp-micros"), [MOMENT])
    with pytest.raises(AnalysisError, match="local timestamps, which Iceberg's Java library cannot read"):
        examine(local, schema(c="timestamp_ntz"))


def test_files_of_another_format_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"id,name\n1,a\n")
    with pytest.raises(CorruptFileError, match=r"'.*a.parquet' is not a readable parquet file"):
        examine(path, schema(a="bigint"))
