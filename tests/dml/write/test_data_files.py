"""Data files: their columns, names, places, sizes; what is refused before anything is written."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from dml.errors import AnalysisError, DataError, ErrorKind, NotSupportedError
from dml.model.columns import DeltaLayout
from dml.options import WriteOptions
from dml.write.file_layout import convert_array, null_check
from dml.write.parquet import dictionary_columns
from dml.write.writer_spec import WriteJob, WriterSpec, check_writable
from tests.dml.write.builders import (
    BY_NAME,
    UNPARTITIONED,
    context,
    footer_schema,
    read_back,
    run,
    stored_files,
    table,
)

ROWS = DeltaLayout(value_ids=(1, 2, 3))
VALUE = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
EVERYTHING = Schema(
    NestedField(1, "u", UUIDType(), required=True),
    NestedField(2, "f", FixedType(3), required=False),
    NestedField(3, "t", TimeType(), required=False),
    NestedField(4, "ts", TimestampType(), required=False),
    NestedField(5, "tz", TimestamptzType(), required=False),
    NestedField(6, "ns", TimestampNanoType(), required=False),
    NestedField(7, "d9", DecimalType(9, 2), required=False),
    NestedField(8, "d38", DecimalType(38, 2), required=False),
    NestedField(9, "b", BinaryType(), required=False),
    NestedField(10, "i", IntegerType(), required=False),
    NestedField(
        11,
        "s",
        StructType(NestedField(20, "x", LongType(), required=True), NestedField(21, "y", DateType(), required=False)),
        required=False,
    ),
    NestedField(12, "l", ListType(22, UUIDType(), element_required=False), required=False),
    NestedField(13, "m", MapType(23, StringType(), 24, IntegerType(), value_required=True), required=False),
)


def spark_rows() -> pa.RecordBatch:
    """Rows as `mapInArrow` gives them: strings for UUIDs, other time zones, everything nullable."""
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    columns = [
        pa.array([str(VALUE), str(VALUE).upper()], pa.string()),
        pa.array([b"abc", None], pa.binary()),
        pa.array([1_000_000_999, None], pa.time64("ns")),
        pa.array([moment.replace(tzinfo=None), None], pa.timestamp("us")),
        pa.array([moment, None], pa.timestamp("us", "Europe/Berlin")),
        pa.array([moment.replace(tzinfo=None), None], pa.timestamp("us")),
        pa.array([Decimal("1.20"), None], pa.decimal128(9, 2)),
        pa.array([Decimal("-1.20"), None], pa.decimal128(38, 2)),
        pa.array([b"\x00", None], pa.large_binary()),
        pa.array([7, None], pa.int16()),
        pa.array([{"x": 1, "y": None}, None], pa.struct([("x", pa.int64()), ("y", pa.date32())])),
        pa.array([[str(VALUE), None], None], pa.list_(pa.large_string())),
        pa.array([[("k", 5)], None], pa.map_(pa.string(), pa.int32())),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[f"v{place}" for place in range(len(columns))])


def test_every_type_comes_from_spark_and_is_read_back(tmp_path: Path) -> None:
    layout = DeltaLayout(value_ids=tuple(range(1, 14)))
    commit = run(WriteJob.ROWS, [spark_rows()], context(tmp_path, schema=EVERYTHING, version=3), layout)
    first, second = read_back(commit)
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    assert first.pop("ns") == pa.scalar(moment.replace(tzinfo=None), pa.timestamp("ns")).as_py()
    assert first == {
        "u": VALUE,
        "f": b"abc",
        "t": time(0, 0, 1),
        "ts": moment.replace(tzinfo=None),
        "tz": moment,
        "d9": Decimal("1.20"),
        "d38": Decimal("-1.20"),
        "b": b"\x00",
        "i": 7,
        "s": {"x": 1, "y": None},
        "l": [VALUE, None],
        "m": [("k", 5)],
    }
    assert second.pop("u") == VALUE
    assert set(second.values()) == {None}


def test_files_have_the_field_ids_types_and_requiredness_of_the_table(tmp_path: Path) -> None:
    layout = DeltaLayout(value_ids=tuple(range(1, 14)))
    commit = run(WriteJob.ROWS, [spark_rows()], context(tmp_path, schema=EVERYTHING, version=3), layout)
    path = commit.data_files[0].path
    read = pyarrow_to_schema(pq.read_schema(path), downcast_ns_timestamp_to_us=False, format_version=3)
    assert read.as_struct() == EVERYTHING.as_struct()
    assert Schema.model_validate(footer_schema(path)).as_struct() == EVERYTHING.as_struct()
    columns = pq.read_metadata(path).schema
    physical = {columns.column(place).path: columns.column(place) for place in range(len(columns))}
    assert physical["d9"].physical_type == "INT32"
    assert physical["d38"].physical_type == "FIXED_LEN_BYTE_ARRAY"
    assert json.loads(physical["u"].logical_type.to_json()) == {"Type": "UUID"}
    assert "l.list.element" in physical
    assert "m.key_value.key" in physical


@pytest.mark.proves("A9")
def test_names_tell_partition_task_query_and_number(tmp_path: Path) -> None:
    batches = [table([1, 2, 3], ["a", "b/c", None]).to_batches()[0]]
    commit = run(WriteJob.ROWS, batches, context(tmp_path, specs=(UNPARTITIONED, BY_NAME)), ROWS)
    assert [str(path.relative_to(tmp_path)) for path in stored_files(tmp_path)] == sorted(
        [
            "data/name=a/00003-17-11111111-2222-3333-4444-555555555555-00001.parquet",
            "data/name=b%2Fc/00003-17-11111111-2222-3333-4444-555555555555-00002.parquet",
            "data/name=null/00003-17-11111111-2222-3333-4444-555555555555-00003.parquet",
        ]
    )
    assert {file.path for file in commit.data_files} == set(map(str, stored_files(tmp_path)))


def test_the_object_store_layout_spreads_files_by_hash(tmp_path: Path) -> None:
    properties = {"write.object-storage.enabled": "true"}
    write = context(tmp_path, specs=(UNPARTITIONED, BY_NAME), properties=properties)
    commit = run(WriteJob.ROWS, table([1], ["a"]).to_batches(), write, ROWS)
    parts = Path(commit.data_files[0].path).relative_to(tmp_path).parts
    assert parts[0] == "data"
    assert [len(part) for part in parts[1:5]] == [4, 4, 4, 8]
    assert set("".join(parts[1:5])) <= {"0", "1"}
    assert parts[5] == "name=a"


@pytest.mark.proves("F5")
def test_a_file_is_closed_at_the_target_size_and_the_next_one_opened(tmp_path: Path) -> None:
    write = context(tmp_path, properties={"write.target-file-size-bytes": "20000"})
    rows = table(list(range(20_000)))
    commit = run(WriteJob.ROWS, rows.to_batches(max_chunksize=5000), write, ROWS)
    assert len(commit.data_files) > 3
    assert [row["id"] for row in read_back(commit)] == list(range(20_000))


@pytest.mark.proves("F5", "P3")
def test_files_have_a_target_size_where_the_table_says_nothing() -> None:
    options = WriteOptions.from_properties({})
    assert (options.target_file_size, options.delete_target_file_size) == (512 << 20, 64 << 20)


def test_one_large_batch_is_cut_for_small_files_too(tmp_path: Path) -> None:
    write = context(tmp_path, properties={"write.target-file-size-bytes": "20000"})
    commit = run(WriteJob.ROWS, table(list(range(20_000))).to_batches(), write, ROWS)
    assert len(commit.data_files) > 3
    assert [row["id"] for row in read_back(commit)] == list(range(20_000))


@pytest.mark.parametrize(
    ("properties", "groups"),
    [
        ({"write.parquet.row-group-limit": "1000"}, [1000, 1000, 500]),
        ({"write.parquet.row-group-size-bytes": "1"}, [500] * 5),
        ({}, [2500]),
    ],
)
def test_row_groups_keep_their_limits(tmp_path: Path, properties: dict[str, str], groups: list[int]) -> None:
    batches = table(list(range(2500))).to_batches(max_chunksize=500)
    commit = run(WriteJob.ROWS, batches, context(tmp_path, properties=properties), ROWS)
    footer = pq.read_metadata(commit.data_files[0].path)
    assert [footer.row_group(place).num_rows for place in range(footer.num_row_groups)] == groups
    starts = [footer.row_group(place).column(0) for place in range(footer.num_row_groups)]
    assert commit.data_files[0].split_offsets == tuple(
        chunk.dictionary_page_offset or chunk.data_page_offset for chunk in starts
    )


@pytest.mark.parametrize(
    ("codec", "stored"),
    [("zstd", "ZSTD"), ("gzip", "GZIP"), ("snappy", "SNAPPY"), ("uncompressed", "UNCOMPRESSED"), ("lz4", "LZ4")],
)
def test_files_are_compressed_as_the_table_says(tmp_path: Path, codec: str, stored: str) -> None:
    properties = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": "1"}
    commit = run(WriteJob.ROWS, table([1]).to_batches(), context(tmp_path, properties=properties), ROWS)
    assert pq.read_metadata(commit.data_files[0].path).row_group(0).column(0).compression == stored


def test_columns_have_a_bloom_filter_where_the_table_says_so(tmp_path: Path) -> None:
    """Properties of columns that are gone do nothing; sizes follow from the rows."""
    properties = {
        "write.parquet.bloom-filter-enabled.column.name": "true",
        "write.parquet.bloom-filter-fpp.column.name": "0.1",
        "write.parquet.bloom-filter-enabled.column.id": "false",
        "write.parquet.bloom-filter-enabled.column.gone": "true",
    }
    rows = table(list(range(1000))).to_batches()
    plain = run(WriteJob.ROWS, rows, context(tmp_path / "plain"), ROWS).data_files[0]
    filtered = run(WriteJob.ROWS, rows, context(tmp_path / "filtered", properties=properties), ROWS).data_files[0]
    assert 500 < filtered.file_size_in_bytes - plain.file_size_in_bytes < 5000
    properties["write.parquet.bloom-filter-fpp.column.name"] = "1"
    with pytest.raises(AnalysisError, match="between 0 and 1"):
        check_writable(WriterSpec(job=WriteJob.ROWS, context=context(tmp_path, properties=properties), layout=ROWS))


def test_duckdb_reads_every_type(tmp_path: Path) -> None:
    """A reader with code of its own: types, requiredness, page index and statistics are as it expects."""
    layout = DeltaLayout(value_ids=tuple(range(1, 14)))
    write = context(tmp_path, schema=EVERYTHING, version=3)
    path = run(WriteJob.ROWS, [spark_rows()], write, layout).data_files[0].path
    query = f"SELECT u, f, t, ts, d9, d38, i, s, l, m FROM read_parquet('{path}') WHERE d9 > 1 AND u = '{VALUE}'"
    assert duckdb.sql(query).fetchall() == [
        (
            VALUE,
            b"abc",
            time(0, 0, 1),
            datetime(2024, 5, 6, 7, 8, 9, 123456),  # noqa: DTZ001 - a timestamp without time zone
            Decimal("1.20"),
            Decimal("-1.20"),
            7,
            {"x": 1, "y": None},
            [VALUE, None],
            {"k": 5},
        )
    ]


def test_only_columns_that_repeat_their_values_have_a_dictionary() -> None:
    """Nested columns too; the names are those of Parquet's physical columns."""
    many = list(range(50_000))
    rows = pa.table(
        {
            "unique": pa.array(many),
            "few": pa.array([value % 10 for value in many]),
            "flag": pa.array([value % 2 == 0 for value in many]),
            "s": pa.array([{"a": value, "b": 1} for value in many]),
            "l": pa.array([["x"]] * len(many)),
            "nothing": pa.nulls(len(many), pa.int64()),
        }
    )
    assert dictionary_columns(rows) == ["few", "s.b", "l.list.element", "nothing"]


@pytest.mark.proves("F7")
def test_files_in_the_tables_order_say_so(tmp_path: Path) -> None:
    order = SortOrder(
        SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST), order_id=4
    ).model_dump_json()
    for is_sorted, expected in ((True, 4), (False, 0)):
        write = replace(context(tmp_path), sort_order_json=order, sorted_by_table_order=is_sorted)
        assert run(WriteJob.ROWS, table([1]).to_batches(), write, ROWS).data_files[0].sort_order_id == expected


def test_columns_of_unknown_type_are_not_stored(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", UnknownType(), required=False))
    batch = pa.record_batch([pa.array([1]), pa.nulls(1)], names=["v0", "v1"])
    layout = DeltaLayout(value_ids=(1, 2))
    commit = run(WriteJob.ROWS, [batch], context(tmp_path, schema=schema, version=3), layout)
    assert read_back(commit) == [{"id": 1}]


@pytest.mark.parametrize(
    ("values", "target", "kind"),
    [
        (pa.array([2**40]), pa.int32(), ErrorKind.OVERFLOW),
        (pa.array([b"toolong"]), pa.binary(3), ErrorKind.OVERFLOW),
        (pa.array(["not a uuid"]), pa.uuid(), ErrorKind.INVALID_VALUE),
        (pa.array([2**62], pa.timestamp("us")), pa.timestamp("ns"), ErrorKind.OVERFLOW),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.int64()), ("b", pa.int64())]), ErrorKind.INVALID_VALUE),
    ],
)
def test_a_value_that_does_not_fit_names_its_column(values: pa.Array, target: pa.DataType, kind: ErrorKind) -> None:
    with pytest.raises(DataError, match="'c'") as caught:
        convert_array(values, target, "c")
    assert caught.value.kind is kind


SLICES = [
    pa.array([{"a": 1}, None, {"a": 3}, {"a": None}]),
    pa.array([[1, 2], None, [], [3]], pa.large_list(pa.int32())),
    pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int32())),
    pa.array([str(VALUE), None, "{" + str(VALUE) + "}", str(VALUE)]),
    pa.array([str(VALUE), None, str(VALUE), str(VALUE)], pa.large_string()),
    pa.array(["x", "y", "x", None]).dictionary_encode(),
]
TARGETS = [
    pa.struct([pa.field("a", pa.int32())]),
    pa.list_(pa.field("element", pa.int64())),
    pa.map_(pa.string(), pa.field("value", pa.int64())),
    pa.uuid(),
    pa.uuid(),
    pa.string(),
]


@pytest.mark.parametrize(("values", "target"), list(zip(SLICES, TARGETS, strict=True)))
@pytest.mark.parametrize(("start", "length"), [(0, 4), (1, 2), (3, 1), (2, 0)])
def test_slices_are_converted_like_whole_arrays(values: pa.Array, target: pa.DataType, start: int, length: int) -> None:
    whole, part = convert_array(values, target, "c"), convert_array(values.slice(start, length), target, "c")
    part.validate(full=True)
    assert part.type == target
    assert part.to_pylist() == whole.to_pylist()[start : start + length]


def nested(required: bool) -> NestedField:
    inner = StructType(NestedField(2, "x", LongType(), required=required))
    return NestedField(1, "s", ListType(3, inner, element_required=False), required=False)


def test_a_nested_null_counts_only_where_its_parent_is_there() -> None:
    values = pa.array([[{"x": 1}, None], None], pa.list_(pa.struct([("x", pa.int64())])))
    check = null_check(nested(required=True))
    assert check is not None
    check(values)
    with pytest.raises(DataError, match=r"s\.element\.x"):
        check(pa.array([[{"x": None}]], values.type))
    assert null_check(nested(required=False)) is None


def test_a_required_map_value_is_checked_in_the_maps_of_a_slice_only() -> None:
    field = NestedField(1, "m", MapType(2, StringType(), 3, IntegerType(), value_required=True), required=False)
    values = pa.array([[("a", None)], [("b", 1)], None], pa.map_(pa.string(), pa.int32()))
    check = null_check(field)
    assert check is not None
    check(values[1:])
    with pytest.raises(DataError, match=r"m\.value"):
        check(values)


@pytest.mark.parametrize(
    ("properties", "job", "version", "error", "word"),
    [
        ({}, WriteJob.MERGE_ON_READ, 1, NotSupportedError, "version 1"),
        ({"write.parquet.compression-codec": "lzo"}, WriteJob.ROWS, 2, AnalysisError, "compression-codec"),
        ({"write.metadata.metrics.default": "some"}, WriteJob.ROWS, 2, AnalysisError, "metrics"),
        ({"write.metadata.metrics.max-inferred-column-defaults": "x"}, WriteJob.ROWS, 2, AnalysisError, "whole number"),
    ],
)
def test_what_cannot_be_written_is_refused_up_front(
    tmp_path: Path, properties: dict[str, str], job: WriteJob, version: int, error: Any, word: str
) -> None:
    write = context(tmp_path, properties=properties, version=version)
    with pytest.raises(error, match=word):
        check_writable(WriterSpec(job=job, context=write, layout=ROWS))


def test_a_table_of_version_3_does_not_care_about_the_format_of_delete_files(tmp_path: Path) -> None:
    write = context(tmp_path, properties={"write.delete.format.default": "orc"}, version=3)
    check_writable(WriterSpec(job=WriteJob.MERGE_ON_READ, context=write, layout=DeltaLayout()))


def test_a_partition_transform_that_is_not_known_is_refused_up_front(tmp_path: Path) -> None:
    spec = PartitionSpec.model_validate(
        {
            "spec-id": 1,
            "fields": [{"source-id": 1, "field-id": 1000, "transform": "zorder", "name": "z"}],
        }
    )
    assert isinstance(spec.fields[0], PartitionField)
    with pytest.raises(NotSupportedError, match="unsupported transforms"):
        check_writable(WriterSpec(job=WriteJob.ROWS, context=context(tmp_path, specs=(spec,)), layout=ROWS))
