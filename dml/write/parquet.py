"""Write one Parquet file. Worker.

Input: record batches of the file's schema. Output: the file, and its size, split offsets and column metrics. Spec:
"Appendix A: Parquet", Parquet's logical types GEOMETRY and GEOGRAPHY; the key `iceberg.schema` is Java's.

A dictionary makes columns with few distinct values small and fast to read. For other columns the writer would hash each
value, and then drop the dictionary because it is too large. A sample of the first row group determines which columns
get one.
"""

import inspect
import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import GeographyType, GeometryType, IcebergType, NestedField

from dml import limits
from dml.model.arrow_types import PARQUET_FIELD_ID, arrow_type_of, primitive_arrow_type
from dml.model.row_map import ROW_MAP_KEY
from dml.options import PARQUET_COMPRESSION, WriteOptions
from dml.splice.footer import annotate_tail
from dml.write.column_metrics import Leaf, NanCounter, parquet_metrics
from dml.write.file_layout import FileLayout, FileStatistics, codec_of
from dml.write.variant_shredding import infer_shreddings, physical_columns, shred_table

__all__ = [
    "CODECS",
    "ParquetFileWriter",
    "check_codec",
    "dictionary_columns",
    "geometry_schema",
    "open_parquet",
    "split_offsets",
    "write_parquet",
]


def dictionary_columns(table: pa.Table) -> list[str]:
    """Return the dotted names of the physical columns with few distinct values.

    Args:
        table: The first row group.
    """
    sample = sample_of(table)
    names: list[str] = []
    for field, column in zip(table.schema, sample.columns, strict=True):
        names.extend(repeating_names(field, field.name, column.combine_chunks()))
    return names


def sample_of(table: pa.Table) -> pa.Table:
    if table.num_rows <= limits.DICTIONARY_SAMPLES * limits.DICTIONARY_SAMPLE_ROWS:
        return table
    step = table.num_rows // limits.DICTIONARY_SAMPLES
    return pa.concat_tables(
        [table.slice(start * step, limits.DICTIONARY_SAMPLE_ROWS) for start in range(limits.DICTIONARY_SAMPLES)]
    )


def repeating_names(field: pa.Field, name: str, values: pa.Array) -> list[str]:
    kind = field.type
    if pa.types.is_struct(kind):
        return [
            inner
            for place in range(kind.num_fields)
            for inner in repeating_names(kind.field(place), f"{name}.{kind.field(place).name}", values.field(place))
        ]
    if pa.types.is_map(kind):
        return [
            *repeating_names(kind.key_field, f"{name}.key_value.key", values.keys),
            *repeating_names(kind.item_field, f"{name}.key_value.value", values.items),
        ]
    if pa.types.is_list(kind):
        return repeating_names(kind.value_field, f"{name}.list.element", values.values)
    return [name] if repeats(values) else []


def repeats(values: pa.Array) -> bool:
    if pa.types.is_boolean(values.type):
        return False
    storage = values.storage if isinstance(values, pa.ExtensionArray) else values
    filled = len(storage) - storage.null_count
    return bool(filled == 0 or pc.count_distinct(storage).as_py() <= max(1, filled * limits.MAX_DICTIONARY_SHARE))


CODECS = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "brotli": "brotli",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "uncompressed": "none",
    "none": "none",
}
FIRST_RATIO = 0.5
"""Assumed size in the file per byte in memory, until the first row group is written."""

KNOWN_OPTIONS = inspect.signature(pq.ParquetWriter).parameters
"""The options of Arrow's writer, which differ between the supported versions."""


class ParquetFileWriter:
    """Write one data file. The caller opens and closes the stream.

    Batches are buffered, without a copy, until they fill a row group.

    Args:
        stream: An empty stream.
        layout: The file's columns.
        options: Sizes and compression.
    """

    def __init__(self, stream: pa.NativeFile, layout: FileLayout, options: WriteOptions) -> None:
        self._stream = stream
        self._layout = layout
        self._options = options
        self._tail = TailHolder(stream) if layout.variant_ids else None
        self._geometries = geometry_schema(layout.columns) if layout.has_geometries else None
        self._shreddings: dict[int, pa.DataType] = {}
        self._nans = NanCounter(layout.leaves, layout.modes)
        self._writer: pq.ParquetWriter | None = None
        self._footer: list[Any] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._flushed_bytes = 0
        self._written_bytes = 0
        self._rows = 0
        self.buffered_bytes = 0

    @property
    def estimated_size(self) -> int:
        """Bytes written, and the estimated bytes of the buffered rows."""
        ratio = self._written_bytes / self._flushed_bytes if self._flushed_bytes else FIRST_RATIO
        return self._written_bytes + int(self.buffered_bytes * ratio)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        limit = self._options.row_group_rows
        for start in range(0, batch.num_rows, limit):
            self._add(batch.slice(start, limit) if batch.num_rows > limit else batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        if self._pending_rows + batch.num_rows > self._options.row_group_rows:
            self.flush()
        self._nans.add(batch.columns)
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._rows += batch.num_rows
        self.buffered_bytes += batch.nbytes
        if self._pending_rows >= self._options.row_group_rows or self.buffered_bytes >= self._options.row_group_size:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self._layout.arrow)
        if self._geometries is not None:
            table = table.cast(self._geometries)
        if self._writer is None and self._layout.variant_ids and self._options.shred_variants:
            self._shreddings = infer_shreddings(table, self._options.variant_inference_rows)
        table = shred_table(table, self._shreddings)
        if self._writer is None:
            self._writer = self._open(table)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._flushed_bytes += self.buffered_bytes
        self._written_bytes = self._stream.tell()
        self._pending, self._pending_rows, self.buffered_bytes = [], 0, 0

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        writer = open_parquet(
            self._stream if self._tail is None else pa.PythonFile(self._tail, mode="w"),
            first.schema,
            self._options,
            dictionary=dictionary_columns(first),
            footer=self._footer,
            bloom_filters={
                name: {"ndv": max(1, first.num_rows), "fpp": probability}
                for name, probability in self._layout.bloom_filters.items()
            },
        )
        writer.add_key_value_metadata({"iceberg.schema": self._layout.schema_json})
        return writer

    def close(self, row_map: str | None = None) -> FileStatistics:
        """Write the buffered rows and the footer. The stream stays open."""
        self.flush()
        if self._writer is None:
            self._writer = self._open((self._geometries or self._layout.arrow).empty_table())
        if row_map is not None:
            self._writer.add_key_value_metadata({ROW_MAP_KEY: row_map})
        if self._tail is not None:
            self._tail.hold()
        self._writer.close()
        if self._tail is not None:
            self._stream.write(annotate_tail(self._tail.take(), self._layout.variant_ids))
        footer = self._footer[0]
        return FileStatistics(
            record_count=self._rows,
            file_size_in_bytes=self._stream.tell(),
            split_offsets=split_offsets(footer),
            metrics=parquet_metrics(footer, self._leaves(), self._layout.modes, self._nans.counts),
        )

    def _leaves(self) -> tuple[Leaf, ...]:
        """Return the physical columns of the file, including those of shredded variants."""
        if not self._shreddings:
            return self._layout.leaves
        found: list[Leaf] = []
        for leaf in self._layout.leaves:
            found.append(leaf)
            typed = self._shreddings.get(leaf.path[0])
            if typed is not None and not leaf.counts:  # `typed_value` follows `value`
                found.extend([leaf] * physical_columns(typed))
        return tuple(found)

    def abort(self) -> None:
        """Stop writing. The bytes written so far are no valid file."""
        self._pending = []
        if self._writer is not None:
            self._writer.is_open = False  # an open one writes its footer when it is garbage-collected


class TailHolder:
    """A stream that can hold back the end of a file, so that the footer written by Arrow can be changed.

    Args:
        stream: Receives the bytes that are not held back.
    """

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._held: list[bytes] | None = None
        self.closed = False

    def hold(self) -> None:
        """Hold back all later bytes."""
        self._held = []

    def take(self) -> bytes:
        """Return the bytes that were held back."""
        return b"".join(self._held or ())

    def write(self, data: bytes) -> int:
        """Pass bytes to the stream, or hold them back."""
        if self._held is None:
            self._stream.write(data)
        else:
            self._held.append(bytes(data))
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written, including held ones."""
        return int(self._stream.tell()) + sum(map(len, self._held or ()))

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Close this stream. The inner one stays open."""
        self.closed = True


def check_codec(options: WriteOptions) -> str:
    """Return Arrow's name of the table's compression codec.

    Raises:
        AnalysisError: The codec does not exist, or Arrow was built without it.
    """
    available = {name: codec for name, codec in CODECS.items() if codec == "none" or pa.Codec.is_available(codec)}
    return codec_of(PARQUET_COMPRESSION, options.compression, available)


def open_parquet(
    stream: pa.NativeFile,
    schema: pa.Schema,
    options: WriteOptions,
    *,
    dictionary: list[str] | bool,
    footer: list[Any],
    bloom_filters: dict[str, dict[str, float]] | None = None,
    deltas: Sequence[str] = (),
) -> pq.ParquetWriter:
    """Open a Parquet writer with the table's options.

    Args:
        stream: Receives the file.
        schema: The file's columns.
        options: Sizes and compression.
        dictionary: Physical columns with a dictionary; True for all, False for none.
        footer: The writer appends the file's metadata to it when it is closed.
        bloom_filters: Expected distinct values and false-positive probability, by physical column.
        deltas: Physical columns of integers that are stored as differences, without a dictionary.
    """
    codec = check_codec(options)
    newer = {"max_rows_per_page": options.page_rows, "bloom_filter_options": bloom_filters or None}
    levels = codec in {"zstd", "gzip", "brotli"}
    return pq.ParquetWriter(
        stream,
        schema,
        version="2.6",
        compression=codec,
        compression_level=options.compression_level if levels else None,
        use_dictionary=dictionary,
        column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED") if deltas else None,
        data_page_size=options.page_size,
        dictionary_pagesize_limit=options.dictionary_size,
        write_page_index=True,
        write_page_checksum=True,
        store_schema=False,
        store_decimal_as_integer=True,
        metadata_collector=footer,
        **{name: value for name, value in newer.items() if name in KNOWN_OPTIONS},
    )


def write_parquet(
    stream: pa.NativeFile, table: pa.Table, options: WriteOptions, key_values: dict[str, str]
) -> tuple[int, tuple[int, ...]]:
    """Write a whole table to a file that is not a data file. The caller closes the stream.

    Returns:
        The file size in bytes, and the split offsets.
    """
    footer: list[Any] = []
    writer = open_parquet(stream, table.schema, options, dictionary=True, footer=footer)
    writer.add_key_value_metadata(key_values)
    writer.write_table(table, row_group_size=min(options.row_group_rows, max(1, table.num_rows)))
    writer.close()
    return stream.tell(), split_offsets(footer[0])


def split_offsets(footer: Any) -> tuple[int, ...]:
    """Return the offsets of the row groups."""
    first = (footer.row_group(place).column(0) for place in range(footer.num_row_groups))
    return tuple(
        column.data_page_offset if column.dictionary_page_offset is None else column.dictionary_page_offset
        for column in first
    )


GEOARROW: Final = "geoarrow.wkb"
DEFAULT_CRS: Final = "OGC:CRS84"


class WellKnownBinary(pa.ExtensionType):  # type: ignore[misc]
    """GeoArrow's type of geometries. It is not registered, so readers get plain bytes.

    Args:
        metadata: The coordinate reference system and the edges, unless they are the default.
    """

    def __init__(self, metadata: dict[str, str]) -> None:
        self._metadata = metadata
        super().__init__(pa.binary(), GEOARROW)

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps(self._metadata).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, serialized: bytes) -> "WellKnownBinary":
        return cls(json.loads(serialized))


def geometry_schema(columns: Sequence[NestedField]) -> pa.Schema:
    """Return the Arrow schema of a Parquet file with geometries, whose values are plain bytes everywhere else."""
    return pa.schema([parquet_field(column) for column in columns])


def parquet_field(field: NestedField) -> pa.Field:
    """Return the Arrow field of a column or of a field inside one, with its field id."""
    kind = arrow_type_of(field.field_type, parquet_type, parquet_field)
    return pa.field(field.name, kind, not field.required, {PARQUET_FIELD_ID: str(field.field_id).encode()})


def parquet_type(primitive: IcebergType) -> pa.DataType:
    """Return the Arrow type of a primitive type in a Parquet file."""
    match primitive:
        case GeometryType(crs=crs):
            return WellKnownBinary({} if crs == DEFAULT_CRS else {"crs": crs})
        case GeographyType(crs=crs, algorithm=algorithm):
            return WellKnownBinary({"edges": algorithm, **({} if crs == DEFAULT_CRS else {"crs": crs})})
    found = primitive_arrow_type(primitive)
    assert found is not None, "the file layout rejects types without an Arrow type"
    return found
