"""Write one ORC file. Worker.

Input: record batches of the file's schema. Output: the file, and its size and column metrics. Spec: "Appendix A: ORC":
column attributes hold field ids (`iceberg.id`) and types that ORC lacks.

Arrow's writer buffers rows until they fill a stripe, and does not expose where stripes start.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc
from pyiceberg.types import (
    FixedType,
    IcebergType,
    NestedField,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.errors import DataError, ErrorKind
from dml.model.arrow_types import arrow_type_of, primitive_arrow_type
from dml.options import ORC_COMPRESSION, WriteOptions
from dml.write.column_metrics import BatchMetrics
from dml.write.file_layout import FileLayout, FileStatistics, codec_of, convert_array

__all__ = ["OrcFileWriter", "check_orc_codec"]

CODECS: Final = {
    "zlib": "zlib",
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "none": "uncompressed",
    "uncompressed": "uncompressed",
}
NANOS: Final = 1000
FIRST_MICROS, LAST_MICROS = -(2**63) // NANOS + 1, (2**63 - 1) // NANOS
"""The timestamps that Arrow can read from ORC, where they are nanoseconds: from 1677 to 2262."""
SECOND: Final = {"us": 10**6, "ns": 10**9}


class OrcFileWriter:
    """Write one data file. The caller opens and closes the stream.

    Args:
        stream: An empty stream.
        layout: The file's columns.
        options: Sizes and compression.
    """

    def __init__(self, stream: pa.NativeFile, layout: FileLayout, options: WriteOptions) -> None:
        self._stream = stream
        self._metrics = BatchMetrics(layout.leaves, layout.modes)
        self._schema = pa.schema([orc_field(column) for column in layout.columns])
        self._rows = 0
        self._left = 0
        self._writer = orc.ORCWriter(
            Unclosed(stream),
            compression=check_orc_codec(options),
            compression_strategy=options.orc_strategy,
            stripe_size=options.orc_stripe_size,
        )
        self._empty = True

    @property
    def buffered_bytes(self) -> int:
        """The approximate bytes of rows in the open stripe."""
        return self._left

    @property
    def estimated_size(self) -> int:
        """Bytes written, and the estimated bytes of the open stripe."""
        return int(self._stream.tell()) + self._left // 2

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            DataError: A timestamp cannot be stored so that all readers agree about it.
        """
        before = self._stream.tell()
        arrays = []
        for array, field in zip(batch.columns, self._schema, strict=True):
            check_instants(array, field.name)
            arrays.append(whole(convert_array(array, field.type, field.name)))
        self._writer.write(pa.Table.from_batches([pa.RecordBatch.from_arrays(arrays, schema=self._schema)]))
        self._empty = False
        self._metrics.add(batch)
        self._rows += batch.num_rows
        self._left = self._left + batch.nbytes if self._stream.tell() == before else 0

    def flush(self) -> None:
        """Do nothing: a stripe is written when it is full."""

    def close(self, row_map: str | None = None) -> FileStatistics:  # noqa: ARG002 - Arrow writes no keys of its callers
        """Write the buffered rows and the footer. The stream stays open."""
        if self._empty:
            self._writer.write(self._schema.empty_table())
        self._writer.close()
        return FileStatistics(
            record_count=self._rows,
            file_size_in_bytes=self._stream.tell(),
            split_offsets=(),
            metrics=self._metrics.metrics(),
        )

    def abort(self) -> None:
        """Stop writing. The bytes written so far are no valid file."""
        self._writer.is_open = False  # an open writer writes its footer when it is garbage-collected


class Unclosed:
    """A stream that stays open when Arrow's writer closes it, because the caller closes it.

    Args:
        stream: The stream.
    """

    closed = False

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        """Write bytes."""
        return int(self._stream.write(data))

    def tell(self) -> int:
        """Return the number of bytes written."""
        return int(self._stream.tell())

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def close(self) -> None:
        """Do nothing."""


def check_orc_codec(options: WriteOptions) -> str:
    """Return Arrow's name of the table's compression codec for ORC.

    Raises:
        AnalysisError: The codec does not exist.
    """
    return codec_of(ORC_COMPRESSION, options.orc_compression, CODECS)


def orc_field(column: NestedField) -> pa.Field:
    """Return the Arrow field of an ORC column, whose metadata become the column's attributes."""
    attributes = {"iceberg.id": str(column.field_id), "iceberg.required": str(column.required).lower()}
    match column.field_type:
        case TimeType():
            attributes["iceberg.long-type"] = "TIME"
        case UUIDType():
            attributes["iceberg.binary-type"] = "UUID"
        case FixedType() as fixed:
            attributes |= {"iceberg.binary-type": "FIXED", "iceberg.length": str(len(fixed))}
        case TimestampType() | TimestamptzType():
            attributes["iceberg.timestamp-unit"] = "MICROS"
        case TimestampNanoType() | TimestamptzNanoType():
            attributes["iceberg.timestamp-unit"] = "NANOS"
    return pa.field(column.name, arrow_type_of(column.field_type, orc_type, orc_field), metadata=attributes)


def orc_type(primitive: IcebergType) -> pa.DataType:
    """Return the Arrow type that ORC stores for a primitive type."""
    match primitive:
        case TimeType():
            return pa.int64()
        case UUIDType() | FixedType():
            return pa.binary()
    found = primitive_arrow_type(primitive)
    assert found is not None  # `file_layout` rejects types without an Arrow type
    return found


def whole(array: pa.Array) -> pa.Array:
    """Copy nested values into new buffers: Arrow's ORC writer misreads the validity of sliced structs."""
    return array.take(pa.array(range(len(array)))) if pa.types.is_nested(array.type) else array


def check_instants(values: pa.Array, column: str) -> None:
    """Reject timestamps that some reader would misread.

    ORC stores seconds and nanoseconds separately, and readers disagree about fractions of seconds before 1970: Java's
    reader returns some a second early, and the last second before 1970 is indistinguishable from the first after it
    (ORC-306, ORC-763, ORC-771). Arrow can write timestamps outside of 64 bits of nanoseconds, but not read them.

    Raises:
        DataError: There is such a timestamp.
    """
    for found in instants(values):
        counts = found.cast(pa.int64())
        extremes = pc.min_max(counts)
        least, greatest = extremes["min"].as_py(), extremes["max"].as_py()
        if least is None:
            continue
        if found.type.unit == "us" and (least < FIRST_MICROS or greatest > LAST_MICROS):
            raise not_for_orc(column, "a timestamp before 1678 or after 2261")
        second = SECOND[found.type.unit]
        early = counts.filter(pc.less(counts, 0)) if least < 0 else counts.slice(0, 0)
        whole_seconds = pc.multiply(pc.divide(early, second), second)
        if pc.any(pc.not_equal(early, whole_seconds)).as_py():
            raise not_for_orc(column, "a timestamp before 1970 with a fraction of a second")


def not_for_orc(column: str, what: str) -> DataError:
    """Return the error for a value that not all ORC readers read alike."""
    return DataError(
        f"The column '{column}' has {what}, which readers of ORC files do not agree about",
        kind=ErrorKind.OVERFLOW,
        hint="Set 'write.format.default' = 'parquet' for the table: it may hold files of several formats",
        column=column,
    )


def instants(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the timestamps in an array, at any depth, without those that a slice or a NULL around them hides."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        yield values
    elif pa.types.is_struct(kind):
        for field in values.flatten():
            yield from instants(field)
    elif pa.types.is_map(kind):
        shown = values.drop_null()
        start, end = shown.offsets[0].as_py(), shown.offsets[-1].as_py()
        for part in (shown.keys, shown.items):
            yield from instants(part.slice(start, end - start))
    elif pa.types.is_list(kind):
        yield from instants(values.flatten())
