"""Create manifest entries for data files of other programs, if the table can read them. Worker.

Input: a file, its partition, and the table's schema. Output: a `ContentFile` with the row count and the metrics of its
footer, or an error that names the file, the column and the types. Spec: "Column Projection", "Name Mapping", "Schema
Evolution", "Appendix A"; Iceberg's `TableMigrationUtil`, which compares no schemas.

A file is rejected if an engine would read wrong values from it, not only RowDelta. Iceberg's Java library reads Parquet
timestamps in milliseconds as microseconds, decimals of another scale by their unscaled numbers, and columns with the
field ids of another table by these ids; it fails on unsigned integers and on TINYINT read as BIGINT. A bound is dropped
if its writer is not known to order values as Iceberg does.
"""

import math
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml import limits
from dml.errors import AnalysisError, CorruptFileError, DmlError, ErrorKind
from dml.files.file_io import file_io
from dml.model.arrow_types import primitive_name
from dml.model.manifest import ContentFile, FileContent
from dml.model.write_task import REPORT_SCHEMA
from dml.options import DEFAULT_NAME_MAPPING
from dml.pyiceberg_patch import VariantType
from dml.read.avro_file import SCHEMA_KEY, AvroFile
from dml.read.data_file import DataFile, FileField, check_row_count, file_fields, walk
from dml.read.open_data_file import ParquetFile, open_data_file
from dml.read.projection import constant_array, projector
from dml.tasks.task_input import TaskInput
from dml.write.avro import avro_name
from dml.write.column_metrics import ColumnMetrics, MetricsMode, comparable, lower_bound, upper_bound

__all__ = ["ImportContext", "ImportTask", "ImportedFile", "SourceFile", "read_source_file", "try_source_file"]

NO_NAMES: Final = NameMapping([])
LAST_ID: Final = 2147483447
"""The greatest field id of a table's columns. Higher ids are reserved, for row lineage among others."""
INT96: Final = "INT96"
BYTE_ARRAYS: Final = frozenset({"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"})
SIGNED_ORDER: Final = re.compile(r"parquet-cpp-arrow version \d|parquet-mr version 1\.[1-9]\d")
"""Writers that order decimals in byte arrays numerically in their statistics. Older ones compared bytes."""

FILE_TYPES: Final[Mapping[type[IcebergType], frozenset[pa.DataType]]] = {
    BooleanType: frozenset({pa.bool_()}),
    IntegerType: frozenset({pa.int8(), pa.int16(), pa.int32()}),
    LongType: frozenset({pa.int32(), pa.int64()}),
    FloatType: frozenset({pa.float32()}),
    DoubleType: frozenset({pa.float32(), pa.float64()}),
    StringType: frozenset({pa.string(), pa.large_string()}),
    BinaryType: frozenset({pa.binary(), pa.large_binary()}),
    DateType: frozenset({pa.date32()}),
}
"""The types in files that every engine reads as a table type, including the promotions of all format versions."""

LOCAL_TIMESTAMP: Final = b'"local-timestamp-'


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file to import.

    Attributes:
        location: The location.
        size: The size in bytes.
        file_format: `parquet`, `orc` or `avro`.
        partition: The partition tuple, in Iceberg's internal form.
    """

    location: str
    size: int
    file_format: str
    partition: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportContext:
    """The facts about the table that all files of an import share.

    Attributes:
        schema_json: The table's schema (Iceberg JSON).
        mapping_json: The table's name mapping (JSON).
        names: The names that each field has had in the table, by id.
        spec_id: The partition spec of the files.
        source_ids: The column of each partition field, all of them identity or void; None for void.
        modes: The metrics modes of the table's columns.
        io_properties: Properties of the FileIO. They may hold credentials and are never printed.
    """

    schema_json: str
    mapping_json: str
    names: Mapping[int, frozenset[str]]
    spec_id: int
    source_ids: tuple[int | None, ...] = ()
    modes: Mapping[int, MetricsMode] = field(default_factory=dict)
    io_properties: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file that was examined.

    Attributes:
        location: The location.
        content_file: The entry for a manifest; None if the table cannot read the file.
        unknown_columns: Columns of the file that the table does not have. They are not read.
        error: The reason why the table cannot read the file.
    """

    location: str
    content_file: ContentFile | None = None
    unknown_columns: tuple[str, ...] = ()
    error: DmlError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTask:
    """Examines files in a Spark task. Picklable.

    Attributes:
        input: Groups of `SourceFile`s, with an `ImportContext`.
    """

    input: TaskInput

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row for each group: the pickled `ImportedFile`s."""
        context: ImportContext = self.input.context
        for files in self.input.groups(batches):
            found = [try_source_file(context, file, file_io(context.io_properties, file.location)) for file in files]
            data = pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL)
            yield pa.record_batch([pa.array([data], pa.binary())], schema=REPORT_SCHEMA)


def try_source_file(context: ImportContext, file: SourceFile, io: FileIO) -> ImportedFile:
    """Examine a file, and return an error as part of the result."""
    try:
        return read_source_file(context, file, io)
    except DmlError as error:
        return ImportedFile(location=file.location, error=error)


def read_source_file(context: ImportContext, file: SourceFile, io: FileIO) -> ImportedFile:
    """Examine a file.

    Raises:
        AnalysisError: The table cannot read a column of the file, or a value contradicts the file's partition.
        CorruptFileError: The file is missing, has another size, or breaks its format.
        ExecutionError: The storage failed.
    """
    try:
        return describe(context, file, io)
    except CorruptFileError as error:
        reason = str(error.__cause__ or error.message).partition("\n")[0].rstrip(".")
        raise CorruptFileError(
            f"The file '{file.location}' is not a readable {file.file_format} file: {reason}",
            hint="Move it out of the source, or name the format that the files have",
            file=file.location,
        ) from error


def describe(context: ImportContext, file: SourceFile, io: FileIO) -> ImportedFile:
    schema, mapping = parsed(context.schema_json, context.mapping_json)
    with open_data_file(io, file.location, file.file_format, mapping, size=file.size) as opened:
        examined = OpenedSource(context, schema, file, opened)
        unknown = examined.check_columns()
        rows = examined.check_values()
        if isinstance(opened, ParquetFile):
            metrics, offsets = footer_metrics(opened, schema, context.modes), offsets_of(opened)
        else:
            metrics, offsets = ColumnMetrics(), ()
    return ImportedFile(
        location=file.location,
        unknown_columns=unknown,
        content_file=ContentFile(
            content=FileContent.DATA,
            path=file.location,
            file_format=file.file_format,
            spec_id=context.spec_id,
            partition=file.partition,
            record_count=rows,
            file_size_in_bytes=file.size,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            split_offsets=offsets,
            sort_order_id=0,
        ),
    )


@lru_cache(maxsize=1)
def parsed(schema_json: str, mapping_json: str) -> tuple[Schema, NameMapping]:
    """Return a table's schema and name mapping; cached, because all files of an import share them."""
    return Schema.model_validate_json(schema_json), parse_mapping_from_json(mapping_json)


def has_ids(opened: DataFile) -> bool:
    """Return True if the file stores field ids. If so, all readers select columns by id, otherwise by name."""
    match opened:
        case ParquetFile():
            stored = file_fields(opened.file.schema_arrow, NO_NAMES)
        case AvroFile():
            stored = tuple(decoder.field for decoder in opened.decoders)
        case _:
            stored = file_fields(opened.schema, NO_NAMES)  # type: ignore[attr-defined]
    return any(one.field_id is not None for one in walk(stored))


def leaves_in(fields: Iterable[FileField]) -> list[FileField]:
    """Return the physical columns of a Parquet file, in its order."""
    return [one for one in walk(fields) if not one.children]


class OpenedSource:
    """Checks that a table can read an open file.

    Args:
        context: The facts about the table.
        schema: The table's schema.
        file: The file.
        opened: The open file.
    """

    def __init__(self, context: ImportContext, schema: Schema, file: SourceFile, opened: DataFile) -> None:
        self.context = context
        self.schema = schema
        self.file = file
        self.opened = opened
        self.has_ids = has_ids(opened)
        self.physical: dict[int, Any] = {}
        if isinstance(opened, ParquetFile):
            columns = opened.metadata.schema
            self.physical = {id(leaf): columns.column(place) for place, leaf in enumerate(leaves_in(opened.fields))}

    # ---- columns

    def check_columns(self) -> tuple[str, ...]:
        """Check that the table's columns can be read, and return the names of columns that it does not have.

        Raises:
            AnalysisError: A column cannot be read.
        """
        if isinstance(self.opened, AvroFile) and LOCAL_TIMESTAMP in self.opened.container.metadata[SCHEMA_KEY]:
            raise self.problem(None, "it has local timestamps, which Iceberg's Java library cannot read from Avro")
        reserved = next((one.name for one in self.opened.fields if (one.field_id or 0) > LAST_ID), None)
        if reserved is not None:
            raise self.problem(None, f"it stores '{reserved}' of the rows of another table")
        self.check_struct(self.schema.fields, self.opened.fields, "")
        known = {one.field_id for one in self.schema.fields}
        unknown = tuple(one.name for one in self.opened.fields if one.field_id not in known)
        if self.opened.fields and len(unknown) == len(self.opened.fields):
            raise self.problem(None, f"it has none of the table's columns, only {', '.join(unknown)}")
        return unknown

    def check_struct(self, fields: Sequence[NestedField], held: Sequence[FileField], prefix: str) -> None:
        by_id: dict[int, FileField] = {}
        for one in held:
            if one.field_id is not None and by_id.setdefault(one.field_id, one) is not one:
                raise self.problem(prefix + one.name, f"it has two columns with the field id {one.field_id}")
        for wanted in fields:
            name = prefix + wanted.name
            found = by_id.get(wanted.field_id)
            if found is None:
                self.check_absent(wanted, held, name)
                continue
            names = self.context.names.get(wanted.field_id, frozenset()) | {wanted.name}
            if self.has_ids and found.name not in names and found.name not in {avro_name(one) for one in names}:
                raise self.problem(
                    name,
                    f"the field id {wanted.field_id} is that of the column '{found.name}' in the file: "
                    "its field ids are those of another table",
                )
            self.check_type(wanted.field_type, found, name)

    def check_absent(self, wanted: NestedField, held: Sequence[FileField], name: str) -> None:
        alike = next((one for one in held if one.name.lower() == wanted.name.lower()), None)
        if alike is not None:
            raise self.problem(
                name, f"the column '{alike.name}' of the file would not be read: {self.why(alike, wanted)}"
            )
        if wanted.required and wanted.initial_default is None and wanted.field_id not in self.context.source_ids:
            raise self.problem(name, "the file lacks the column, which is NOT NULL in the table")

    def why(self, alike: FileField, wanted: NestedField) -> str:
        if self.has_ids:
            stored = "no field id" if alike.field_id is None else f"the field id {alike.field_id}"
            return f"it has {stored} there, and {wanted.field_id} in the table"
        mapping = f"the table property '{DEFAULT_NAME_MAPPING}'"
        if alike.name != wanted.name:
            return f"names match by case, unless {mapping} has this one"
        return f"{mapping} lacks the column"

    def check_type(self, kind: IcebergType, held: FileField, name: str) -> None:
        source, children = held.type, held.children
        match kind:
            case StructType() if pa.types.is_struct(source):
                self.check_struct(kind.fields, children, f"{name}.")
                required = {child.field_id for child in kind.fields if child.required}
                for place, child in enumerate(children):
                    if child.field_id in required and source.field(place).nullable:
                        raise self.problem(f"{name}.{child.name}", "it may be NULL in the file, and not in the table")
            case ListType() if pa.types.is_list(source) or pa.types.is_large_list(source):
                self.check_inner(kind.element_field, children[0], f"{name}.element")
                if kind.element_required and source.value_field.nullable:
                    raise self.problem(f"{name}.element", "it may be NULL in the file, and not in the table")
            case MapType() if pa.types.is_map(source):
                self.check_inner(kind.key_field, children[0], f"{name}.key")
                self.check_inner(kind.value_field, children[1], f"{name}.value")
                if kind.value_required and source.item_field.nullable:
                    raise self.problem(f"{name}.value", "it may be NULL in the file, and not in the table")
            case PrimitiveType() if self.fits(kind, held):
                pass
            case _:
                shown = primitive_name(kind) if isinstance(kind, PrimitiveType) else str(kind)
                stored = self.physical.get(id(held))
                unit = "" if stored is None or stored.physical_type != INT96 else " (INT96)"
                raise self.problem(name, f"it is {source}{unit} in the file, and {shown} in the table")

    def check_inner(self, wanted: NestedField, held: FileField, name: str) -> None:
        if held.field_id != wanted.field_id:
            raise self.problem(name, f"it has the field id {held.field_id} in the file, {wanted.field_id} in the table")
        self.check_type(wanted.field_type, held, name)

    def fits(self, kind: PrimitiveType, held: FileField) -> bool:
        """Return True if every engine reads a column of the file as this type."""
        source, stored = held.type, self.physical.get(id(held))
        if pa.types.is_dictionary(source):
            source = source.value_type
        if type(kind) in FILE_TYPES:
            return source in FILE_TYPES[type(kind)]
        # Iceberg's own ORC files store further types in attributes of the columns, which go with field ids.
        is_iceberg_orc = self.file.file_format == "orc" and self.has_ids
        match kind:
            case DecimalType():
                same_scale = pa.types.is_decimal(source) and source.scale == kind.scale
                return bool(same_scale and source.precision <= kind.precision)
            case TimestamptzType() | TimestampType() | TimestamptzNanoType() | TimestampNanoType():
                return self.is_same_timestamp(kind, source, stored)
            case TimeType():
                return source == pa.time64("us") or (is_iceberg_orc and pa.types.is_int64(source))
            case FixedType():
                return source == pa.binary(len(kind)) or (is_iceberg_orc and pa.types.is_binary(source))
            case UUIDType() if stored is not None:
                return bool(stored.logical_type.type == "UUID")
            case UUIDType():
                return self.has_ids and source in {pa.binary(16), pa.binary()}
            case VariantType():
                return self.has_ids and pa.types.is_struct(source)
            case GeometryType() | GeographyType():
                return self.has_ids and pa.types.is_binary(source)
        return False

    def is_same_timestamp(self, kind: PrimitiveType, source: pa.DataType, stored: Any) -> bool:
        if not pa.types.is_timestamp(source):
            return False
        is_instant = isinstance(kind, TimestamptzType | TimestamptzNanoType)
        is_nano = isinstance(kind, TimestampNanoType | TimestamptzNanoType)
        if stored is not None:
            # All readers return the same digits for INT96, those of UTC, with or without a time zone.
            int96 = stored.physical_type == INT96
            unit = "ns" if is_nano else "us"
            return source.unit == unit and not (int96 and is_nano) and (int96 or is_instant == (source.tz is not None))
        if isinstance(self.opened, AvroFile):
            # Avro timestamps have a time zone, unless Iceberg wrote them and marked them otherwise.
            return (is_instant or self.has_ids) and source.unit in ({"ns"} if is_nano else {"ms", "us"})
        return is_instant == (source.tz is not None) and (self.has_ids or not is_nano)

    def problem(self, column: str | None, what: str) -> AnalysisError:
        place = "" if column is None else f"the column '{column}': "
        return AnalysisError(
            f"The table cannot read the file '{self.file.location}': {place}{what}",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Read the file with Spark and insert its rows instead, or change the table's schema",
            file=self.file.location,
            column=column,
        )

    # ---- values

    def check_values(self) -> int:
        """Check the values on which readers could disagree, and return the row count.

        Engines read an identity partition column from the partition or from the file, so the values must be equal.
        Columns that are NOT NULL in the table must have no NULLs.

        Raises:
            AnalysisError: A value contradicts the partition, or is NULL in a NOT NULL column.
            CorruptFileError: The file has another row count than its footer records.
        """
        opened, partition = self.opened, self.file.partition
        by_id = {one.field_id: place for place, one in enumerate(opened.fields) if one.field_id is not None}
        checks: list[tuple[NestedField, int, Any, bool]] = []
        for wanted in self.schema.fields:
            place = by_id.get(wanted.field_id)
            if place is None:
                continue
            constant = wanted.field_id in self.context.source_ids
            if constant:
                value = partition[self.context.source_ids.index(wanted.field_id)]
                checks.append((wanted, place, value, True))
            elif wanted.required and self.may_be_null(wanted.field_id):
                checks.append((wanted, place, None, False))
        rows = opened.rows
        if not checks and isinstance(opened, AvroFile):
            return sum(count for count, _ in opened.container.blocks())
        if not checks and rows is not None:
            return rows
        places = [place for _, place, _, _ in checks]
        projections = [projector(wanted, opened.fields[place], spark=False) for wanted, place, _, _ in checks]
        batches = opened.batches(opened.pieces, places, limits.NARROW_BATCH_ROWS)
        found = 0
        for batch in batches if rows is None else check_row_count(batches, rows, self.file.location):
            found += batch.num_rows
            for (wanted, _, value, constant), project, array in zip(checks, projections, batch.columns, strict=True):
                values = array if project is None else project(array)
                if not constant:
                    if values.null_count:
                        raise self.problem(wanted.name, "it has NULLs, and is NOT NULL in the table")
                elif not is_constant(values, value, wanted):
                    raise self.problem(wanted.name, f"the file has other values than its partition, {value!r}")
        return found

    def may_be_null(self, field_id: int) -> bool:
        """Return False if the footer proves that a column has no NULL."""
        opened = self.opened
        if not isinstance(opened, ParquetFile) or field_id not in opened.leaf_of:
            return True
        column = opened.leaf_of[field_id][0]
        statistics = [opened.metadata.row_group(piece.index).column(column).statistics for piece in opened.pieces]
        return not all(one is not None and one.has_null_count and one.null_count == 0 for one in statistics)


def is_constant(values: pa.Array, value: Any, wanted: NestedField) -> bool:
    """Return True if all values equal a partition value."""
    if value is None:
        return bool(values.null_count == len(values))
    if values.null_count:
        return False
    expected = constant_array(value, wanted.field_type, 1, spark=False)
    if isinstance(value, float) and math.isnan(value):
        return bool(pc.all(pc.is_nan(values)).as_py() in {None, True})
    if isinstance(values, pa.ExtensionArray):
        values, expected = values.storage, expected.storage
    return bool(pc.all(pc.equal(values, expected[0])).as_py() in {None, True})


def offsets_of(opened: ParquetFile) -> tuple[int, ...]:
    """Return the offsets of row groups; empty if they do not ascend, as manifests require."""
    starts = tuple(piece.start for piece in opened.pieces)
    return starts if list(starts) == sorted(set(starts)) else ()


def footer_metrics(opened: ParquetFile, schema: Schema, modes: Mapping[int, MetricsMode]) -> ColumnMetrics:
    """Return the metrics of a Parquet file of any writer.

    Unlike in RowDelta's own files (`parquet_metrics`), a floating-point column chunk without bounds may hold numbers
    as well as NaN, bounds may be NaN, and old writers ordered some types differently.

    Args:
        opened: The file.
        schema: The table's schema.
        modes: The metrics modes of the table's columns.
    """
    result, footer = ColumnMetrics(), opened.metadata
    groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
    for place, leaf in enumerate(leaves_in(opened.fields)):
        mode = None if leaf.field_id is None else modes.get(leaf.field_id)
        if leaf.field_id is None or mode is None or not mode.counts:
            continue
        chunks = [group.column(place) for group in groups]
        result.column_sizes[leaf.field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        if leaf.field_id not in opened.leaf_of:
            continue  # values inside lists and maps are not one per row
        result.value_counts[leaf.field_id] = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks]
        if any(one is None or not one.has_null_count for one in statistics):
            continue
        result.null_value_counts[leaf.field_id] = sum(one.null_count for one in statistics)
        kind = schema.find_type(leaf.field_id)
        filled = [one for one, chunk in zip(statistics, chunks, strict=True) if one.null_count < chunk.num_values]
        if mode.bounds and has_iceberg_order(footer, place, kind):
            add_bounds(result, leaf.field_id, kind, filled, mode)
    return result


def has_iceberg_order(footer: Any, place: int, kind: IcebergType) -> bool:
    """Return True if the writer ordered a column's statistics like its Iceberg type."""
    physical = footer.schema.column(place).physical_type
    if isinstance(kind, DecimalType) and physical in BYTE_ARRAYS:
        return SIGNED_ORDER.match(footer.created_by or "") is not None
    return bool(physical != INT96)


def add_bounds(
    result: ColumnMetrics, field_id: int, kind: IcebergType, statistics: Sequence[Any], mode: MetricsMode
) -> None:
    assert isinstance(kind, PrimitiveType)
    if not statistics or not all(one.has_min_max for one in statistics):
        return  # a column chunk without bounds may hold any values
    least = [comparable(one.min_raw, kind) for one in statistics]
    greatest = [comparable(one.max_raw, kind) for one in statistics]
    if any(isinstance(one, float) and math.isnan(one) for one in (*least, *greatest)):
        return  # min() of numbers and NaN depends on their order
    low, high = lower_bound(min(least), kind, mode.length), upper_bound(max(greatest), kind, mode.length)
    if low is not None:
        result.lower_bounds[field_id] = low
    if high is not None:
        result.upper_bounds[field_id] = high
