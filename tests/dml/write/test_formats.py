"""Data files and position delete files in ORC and Avro: they hold, and say, what Parquet files of the same rows do."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.deletes.position_delete_file import positions_by_file, table_of
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import AnalysisError, DataError, ErrorKind
from dml.model.columns import DeltaLayout
from dml.model.manifest import ContentFile
from dml.model.scan_task import ScanContext, ScanTask
from dml.model.write_task import TaskCommit, TaskFailure, WriteContext
from dml.read.open_data_file import open_data_file
from dml.read.reader import scan_file
from dml.write.delete_files import write_position_deletes
from dml.write.orc import check_instants
from dml.write.output_files import OutputFileFactory
from dml.write.writer_spec import WriteJob, WriterSpec, check_writable
from tests.dml.write.builders import TASK, context, run, stored_files, table

FORMATS = pytest.mark.parametrize("file_format", ["orc", "avro"])

NESTED = StructType(
    NestedField(30, "x", LongType(), required=True),
    NestedField(31, "y", DateType(), required=False),
    NestedField(32, "in", StructType(NestedField(33, "z", StringType(), required=False)), required=False),
)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "b", BooleanType(), required=False),
    NestedField(3, "i", IntegerType(), required=False),
    NestedField(4, "f", FloatType(), required=False),
    NestedField(5, "d", DoubleType(), required=False),
    NestedField(6, "d9", DecimalType(9, 2), required=False),
    NestedField(7, "d38", DecimalType(38, 10), required=False),
    NestedField(8, "s", StringType(), required=False),
    NestedField(9, "x", BinaryType(), required=False),
    NestedField(10, "u", UUIDType(), required=False),
    NestedField(11, "fx", FixedType(3), required=False),
    NestedField(12, "dt", DateType(), required=False),
    NestedField(13, "t", TimeType(), required=False),
    NestedField(14, "ts", TimestampType(), required=False),
    NestedField(15, "tz", TimestamptzType(), required=False),
    NestedField(16, "st", NESTED, required=False),
    NestedField(17, "l", ListType(40, NESTED.fields[2].field_type, element_required=False), required=False),
    NestedField(18, "m", MapType(50, StringType(), 51, ListType(52, UUIDType()), value_required=False), required=False),
    NestedField(19, "mi", MapType(60, IntegerType(), 61, DecimalType(9, 2), value_required=True), required=False),
    NestedField(20, "with space-and.dot", StringType(), required=False),
)
ROWS = DeltaLayout(value_ids=tuple(range(1, 21)))
UUIDS = ["f79c3e09-677c-4bbd-a479-3f349cb785e7", "00000000-0000-0000-0000-000000000001"]


def rows() -> pa.RecordBatch:
    """Least and greatest values, NULL, NaN, both zeros, instants before 1970, long texts, empty and NULL containers."""
    nested = pa.struct([("x", pa.int64()), ("y", pa.date32()), ("in", pa.struct([("z", pa.string())]))])
    inner, uuids = pa.struct([("z", pa.string())]), pa.list_(pa.string())
    numbers = pa.map_(pa.int32(), pa.decimal128(9, 2))
    columns = {
        "id": pa.array([1, 2, 3, 4, -(2**63)], pa.int64()),
        "b": pa.array([True, None, False, True, None]),
        "i": pa.array([2**31 - 1, None, -(2**31), 0, 1], pa.int32()),
        "f": pa.array([math.nan, None, -0.0, 1.5, math.inf], pa.float32()),
        "d": pa.array([math.nan, None, math.nan, None, math.nan], pa.float64()),
        "d9": pa.array([Decimal("-9999999.99"), None, Decimal("0.01"), Decimal(0), None], pa.decimal128(9, 2)),
        "d38": pa.array([Decimal("-1e27"), None, Decimal("1e27"), Decimal("1e-10"), None], pa.decimal128(38, 10)),
        "s": pa.array(["", None, "ä" * 40, "z" * 17, "\x00"]),
        "x": pa.array([b"", None, b"\xff" * 20, b"\x00", b"a"]),
        "u": pa.array([UUIDS[0], None, UUIDS[1], None, UUIDS[0]]),
        "fx": pa.array([b"abc", None, b"\xff\xff\xff", b"\x00\x00\x00", None], pa.binary()),
        "dt": pa.array([-719162, None, -1, 0, 2932896], pa.date32()),
        "t": pa.array([0, None, 86_399_999_999, 1, None], pa.time64("us")),
        "ts": pa.array([-1_000_000, None, -86_400_000_000, 0, 253_402_300], pa.timestamp("us")),
        "tz": pa.array([-7_000_000, None, -9_000_000_000_000_000, 1, 2**52], pa.timestamp("us", "UTC")),
        "st": pa.array([{"x": 1, "in": {"z": "a"}}, None, {"x": 3, "in": None}, None, {"x": -5}], nested),
        "l": pa.array([[{"z": "q"}, None], None, [], [{"z": None}], None], pa.list_(inner)),
        "m": pa.array([[("k", [UUIDS[0]]), ("", None)], None, [], None, [("v", [])]], pa.map_(pa.string(), uuids)),
        "mi": pa.array([[(1, Decimal("1.5"))], None, [], [(2, Decimal(0)), (-1, Decimal("2.25"))], None], numbers),
        "o": pa.array(["a", None, "b", None, "c"]),
    }  # fmt: skip
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def written(folder: Path, file_format: str, batches: list[pa.RecordBatch], **properties: str) -> ContentFile:
    """One file of a format."""
    commit = run(WriteJob.ROWS, batches, write_context(folder, file_format, **properties), ROWS)
    assert isinstance(commit, TaskCommit), commit
    (file,) = commit.data_files
    assert file.file_format == file_format
    assert file.path.endswith(f".{file_format}")
    assert file.file_size_in_bytes == Path(file.path).stat().st_size
    return file


def write_context(folder: Path, file_format: str, **properties: str) -> WriteContext:
    return context(folder, schema=SCHEMA, properties={"write.format.default": file_format, **properties})


def rows_of(file: ContentFile) -> list[dict[str, Any]]:
    """What our reader finds in a file."""
    task = ScanTask(
        file_ordinal=0,
        path=file.path,
        file_format=file.file_format,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        start=0,
        length=file.file_size_in_bytes,
        spec_id=0,
        partition=(),
        data_sequence_number=1,
    )
    scan = ScanContext(schema_json=SCHEMA.model_dump_json(), projected_ids=tuple(range(1, 21)), specs_json=())
    return [row for part in scan_file(task, scan) for row in part.batch.to_pylist()]


@FORMATS
def test_rows_are_those_of_a_parquet_file(tmp_path: Path, file_format: str) -> None:
    """Of all types, nested ones too; batches that are slices of others among them."""
    batches = [rows(), rows().slice(1, 3), rows().slice(4)]
    expected = rows_of(written(tmp_path / "parquet", "parquet", batches))
    assert len(expected) == 9
    found = rows_of(written(tmp_path / file_format, file_format, batches))
    assert repr(found) == repr(expected)  # NaN is not equal to itself


@FORMATS
def test_metrics_are_those_of_a_parquet_file(tmp_path: Path, file_format: str) -> None:
    """But the sizes of columns, and where blocks start."""
    modes = {"write.metadata.metrics.column.x": "full", "write.metadata.metrics.column.i": "counts"}
    modes |= {"write.metadata.metrics.column.b": "none"}
    of_parquet = written(tmp_path / "parquet", "parquet", [rows(), rows().slice(2, 2)], **modes)
    found = written(tmp_path / file_format, file_format, [rows(), rows().slice(2, 2)], **modes)
    for name in (
        "record_count",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
    ):
        assert getattr(found, name) == getattr(of_parquet, name), name
    assert found.column_sizes == {}
    assert found.split_offsets == ()


@FORMATS
def test_files_have_the_ids_of_the_table(tmp_path: Path, file_format: str) -> None:
    file = written(tmp_path, file_format, [rows()])
    with open_data_file(PyArrowFileIO(), file.path, file_format, None, size=file.file_size_in_bytes) as opened:
        assert [field.field_id for field in opened.fields] == list(range(1, 21))
        struct = opened.fields[15]
        assert [child.field_id for child in struct.children] == [30, 31, 32]


@FORMATS
def test_no_rows_and_large_files(tmp_path: Path, file_format: str) -> None:
    """Files are closed at the target size."""
    count = 30_000
    many = table(list(range(count)), [f"{value * 2654435761 % 2**32:x}" * 4 for value in range(count)])
    write = context(
        tmp_path,
        properties={
            "write.format.default": file_format,
            "write.target-file-size-bytes": "60000",
            "write.orc.stripe-size-bytes": "20000",
        },
    )
    commit = run(WriteJob.ROWS, many.to_batches(max_chunksize=3000), write, DeltaLayout(value_ids=(1, 2, 3)))
    assert isinstance(commit, TaskCommit), commit
    assert len(commit.data_files) > 2
    assert sum(file.record_count for file in commit.data_files) == count
    assert run(WriteJob.ROWS, [], write, DeltaLayout(value_ids=(1, 2, 3))).data_files == ()


CODECS = [
    *(("orc", "write.orc.compression-codec", codec) for codec in ("zlib", "zstd", "snappy", "lz4", "none")),
    *(("avro", "write.avro.compression-codec", codec) for codec in ("gzip", "zstd", "snappy", "uncompressed")),
]


@pytest.mark.parametrize(("file_format", "key", "codec"), CODECS)
def test_codecs(tmp_path: Path, file_format: str, key: str, codec: str) -> None:
    plain = written(
        tmp_path / "plain", file_format, [rows()] * 50, **{key: "none" if file_format == "orc" else "uncompressed"}
    )
    file = written(tmp_path / codec, file_format, [rows()] * 50, **{key: codec})
    assert len(rows_of(file)) == 250
    different = Path(file.path).read_bytes()[:4000] != Path(plain.path).read_bytes()[:4000]
    assert different == (codec not in {"none", "uncompressed"}) or file_format == "avro"  # whose marks are random


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"write.format.default": "csv"}, "write.format.default"),
        ({"write.format.default": "orc", "write.orc.compression-codec": "brotli"}, "write.orc.compression-codec"),
        ({"write.format.default": "avro", "write.avro.compression-codec": "lz4"}, "write.avro.compression-codec"),
    ],
)
def test_unknown_formats_and_codecs_are_refused_before_anything_is_written(
    tmp_path: Path, properties: dict[str, str], named: str
) -> None:
    spec = WriterSpec(job=WriteJob.ROWS, context=context(tmp_path, properties=properties), layout=ROWS)
    with pytest.raises(AnalysisError, match=named) as caught:
        check_writable(spec)
    assert caught.value.kind is ErrorKind.INVALID_PROPERTY


@pytest.mark.parametrize("micros", [-11_676_096_000_000_000, 9_300_000_000_000_000, -1, -999_999, -1_500_000])
@pytest.mark.parametrize("unit", [TimestampType(), TimestamptzType()], ids=["timestamp", "timestamptz"])
def test_instants_that_readers_of_orc_do_not_agree_about_are_refused(
    tmp_path: Path, unit: PrimitiveType, micros: int
) -> None:
    """At any depth; nothing stays behind, and Avro takes them."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "l", ListType(3, unit, element_required=False), required=False),
    )
    zone = "UTC" if isinstance(unit, TimestamptzType) else None
    values = pa.array([[0, micros]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us", zone)))
    batch = pa.RecordBatch.from_arrays([pa.array([1]), values], names=["id", "l"])
    write = context(tmp_path, schema=schema, properties={"write.format.default": "orc"})
    with pytest.raises(DataError, match="readers of ORC files do not agree"):
        raise_failure(run(WriteJob.ROWS, [batch], write, DeltaLayout(value_ids=(1, 2))))
    assert stored_files(tmp_path) == []
    write = context(tmp_path, schema=schema, properties={"write.format.default": "avro"})
    raise_failure(run(WriteJob.ROWS, [batch], write, DeltaLayout(value_ids=(1, 2))))


def test_hidden_instants_are_not_checked_for_orc() -> None:
    """A NULL struct, and the items outside of a slice, may hold anything."""
    instants = pa.array([-1, 0, -1], pa.int64()).cast(pa.timestamp("us"))
    places = pa.array([0, 1, 2, 3], pa.int32())
    lists = pa.ListArray.from_arrays(places, instants)
    maps = pa.MapArray.from_arrays(places, pa.array(["a", "b", "c"]), instants)
    hiding = pa.StructArray.from_arrays([instants], names=["t"], mask=pa.array([True, False, True]))
    nested = pa.StructArray.from_arrays([lists], names=["l"], mask=pa.array([True, False, True]))
    for hidden in (hiding, nested, lists.slice(1, 1), maps.slice(1, 1)):
        check_instants(hidden, "c")
    for shown in (lists.slice(1, 2), maps, pa.StructArray.from_arrays([lists], names=["l"])):
        with pytest.raises(DataError, match="readers of ORC files do not agree"):
            check_instants(shown, "c")


def raise_failure(commit: Any) -> None:
    """What a task reports is raised by the driver."""
    if isinstance(commit, TaskFailure):
        raise commit.error


@FORMATS
def test_position_deletes(tmp_path: Path, file_format: str) -> None:
    write = context(tmp_path, properties={"write.delete.format.default": file_format})
    index = PositionDeleteIndex.from_positions([1, 5, 2**40])
    output = OutputFileFactory(write, TASK)
    file = write_position_deletes((0, ()), table_of({"file:/a": index}), write.options, output)
    assert (file.file_format, file.record_count) == (file_format, 3)
    assert file.referenced_data_file == "file:/a"
    assert file.file_size_in_bytes == Path(file.path).stat().st_size
    with open_data_file(PyArrowFileIO(), file.path, file_format, None, size=file.file_size_in_bytes) as opened:
        assert [field.field_id for field in opened.fields] == [2147483546, 2147483545]
        (batch,) = opened.batches(opened.pieces, [0, 1], 100)
    ((path, positions),) = positions_by_file(batch.rename_columns(["file_path", "pos"]))
    assert (path, positions.tolist()) == ("file:/a", [1, 5, 2**40])
