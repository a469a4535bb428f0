"""Convert pandas, Polars, Arrow and DuckDB data to rows in Spark's types. Driver.

Input: a pandas DataFrame, or an object of the Arrow PyCapsule interface. Output: `ForeignRows` with the same values, or
an error if Spark has no type that holds each of them. This imports neither pandas nor Polars.

Source: the Arrow PyCapsule interface; Spark's mapping of Parquet's unsigned integers.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeGuard, runtime_checkable
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dml.errors import AnalysisError, DataError, ErrorKind
from dml.spark.versions import frame_of_table

__all__ = ["ArrowStream", "ForeignRows", "foreign_rows", "is_foreign_data"]

MICROSECONDS: Final = "us"
MAX_PRECISION: Final = 38
"""The most digits of Spark's decimals."""

UNSIGNED: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
"""The type for unsigned integers: the next larger signed one, as Spark reads them from Parquet files."""


@runtime_checkable
class ArrowStream(Protocol):
    """Rows of another library: a DataFrame of pandas or Polars, an Arrow table, a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def is_foreign_data(value: object) -> TypeGuard[ArrowStream]:
    """Return True if a value holds rows that `foreign_rows` takes."""
    return isinstance(value, ArrowStream) or is_pandas(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRows:
    """Foreign rows: rows of another library, converted to types that Spark has.

    Attributes:
        table: The rows, in Arrow types that Spark reads.
        schema: Spark's types of its columns.
        origin: The library and class of the data, for errors, such as "pandas DataFrame".
    """

    table: pa.Table = field(repr=False)
    schema: StructType
    origin: str

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(self.table.column_names)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Create a DataFrame with the rows.

        Args:
            spark: A session, classic or Connect.

        Raises:
            AnalysisError: Spark cannot read them.
        """
        try:
            return frame_of_table(spark, self.table, self.schema)
        except (PySparkException, pa.ArrowException) as error:
            raise unreadable_error(self.origin, error) from error


def unreadable_error(origin: str, error: Exception) -> AnalysisError:
    return AnalysisError(f"Spark cannot read the {origin}: {error}", kind=ErrorKind.TYPE_MISMATCH)


def foreign_rows(data: ArrowStream) -> ForeignRows:
    """Convert the rows of another library.

    The rows are copied at once: later changes of `data` have no effect. The index of a pandas DataFrame is left out,
    and its NaN are NULL; those of other libraries stay NaN. Timestamps without a zone are TIMESTAMP_NTZ.

    Args:
        data: The rows. A stream, such as a `pyarrow.RecordBatchReader`, is read to its end.

    Raises:
        AnalysisError: There are no columns, two have the same name, or one has a type that Spark lacks.
        DataError: A value does not fit Spark's type, such as a timestamp with nanoseconds.
    """
    try:
        table = pandas_table(data) if is_pandas(data) else pa.table(data)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        # The arguments of a UnicodeError hold the text that no stream can print.
        reason = str(error) if isinstance(error, UnicodeError) else "; ".join(map(str, error.args))
        raise AnalysisError(
            f"The {called(data)} cannot be read as rows: {reason}",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Give each column one name and values of one type; integers of more than 64 bits are decimals",
        ) from error
    check_names(table.column_names)
    columns = [spark_column(name, table.column(place)) for place, name in enumerate(table.column_names)]
    table = pa.table(columns, names=table.column_names)
    try:
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise unreadable_error(called(data), error) from error
    return ForeignRows(table=table, schema=schema, origin=called(data))


def called(data: object) -> str:
    """Return the name of the data's class in messages, with its library: `pandas DataFrame`."""
    kind = type(data)
    return f"{kind.__module__.partition('.')[0]} {kind.__name__}"


def is_pandas(value: object) -> bool:
    """Return True for a DataFrame of pandas."""
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def pandas_table(data: object) -> pa.Table:
    """Return the rows of a pandas DataFrame, without its index; NaN are NULL."""
    return pa.Table.from_pandas(data, preserve_index=False)


def check_names(names: Sequence[str]) -> None:
    """Raise if there are no columns, or two of the same name.

    Raises:
        AnalysisError: There are none, or two have the same name.
    """
    if not names:
        raise AnalysisError("The source has no columns", kind=ErrorKind.INVALID_VALUE)
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise AnalysisError(
            f"The source has {Counter(names)[doubled[0]]} columns named '{doubled[0]}'",
            kind=ErrorKind.AMBIGUOUS_COLUMN,
            hint="Rename or drop all but one",
            column=doubled[0],
        )


def spark_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column to an Arrow type that Spark reads, without loss.

    Raises:
        AnalysisError: Spark has no such type.
        DataError: The type cannot hold a value.
    """
    if pa.types.is_run_end_encoded(column.type):
        column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type)
    if column.type == pa.uuid():  # Iceberg's UUIDs are strings in Spark
        values = column.cast(pa.binary()).to_pylist()
        return pa.chunked_array([pa.array([each and str(UUID(bytes=each)) for each in values], pa.string())])
    try:
        # PyArrow decodes no dictionary of string views, which Polars has: its values are converted first.
        found = column.cast(spark_arrow_type(column.type, decode=False)).cast(spark_arrow_type(column.type))
        if pa.types.is_decimal(found.type):
            found.validate(full=True)  # no producer has to check that its values have at most the type's digits
    except (NotImplementedError, pa.ArrowNotImplementedError) as error:
        raise AnalysisError(
            f"The source column '{name}' has the type {column.type}, for which Spark has no type",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Convert it to another type, or drop it",
            column=name,
        ) from error
    except pa.ArrowInvalid as error:
        raise DataError(
            f"The source column '{name}' of the type {column.type} has values that Spark cannot store: {error}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Round the values: Spark stores microseconds, and decimals of up to 38 digits",
            column=name,
        ) from error
    # PySpark converts no map without chunks.
    return found if found.num_chunks else pa.chunked_array([pa.array([], found.type)])


def spark_arrow_type(kind: pa.DataType, *, decode: bool = True) -> pa.DataType:
    """Return an Arrow type that Spark reads and that holds all values of a type.

    Fields of structs, elements and values are nullable in it, because a library may not enforce its own NOT NULL.

    Args:
        kind: The type.
        decode: Replace dictionaries by the type of their values.

    Raises:
        NotImplementedError: There is none.
    """
    types = pa.types
    match kind:
        case pa.BaseExtensionType():
            return spark_extension_type(kind)
        case _ if types.is_dictionary(kind):
            values = spark_arrow_type(kind.value_type, decode=decode)
            return values if decode else pa.dictionary(kind.index_type, values, kind.ordered)
        case _ if types.is_map(kind):
            keys, items = kind.key_type, kind.item_type
            return pa.map_(spark_arrow_type(keys, decode=decode), spark_arrow_type(items, decode=decode))
        case _ if types.is_struct(kind):
            names = [field.name for field in kind]
            if not names or len(set(names)) < len(names):
                raise NotImplementedError
            return pa.struct([(field.name, spark_arrow_type(field.type, decode=decode)) for field in kind])
        case _ if any(is_list(kind) for is_list in LISTS):
            return pa.list_(spark_arrow_type(kind.value_type, decode=decode))
        case _ if types.is_decimal(kind):
            return spark_decimal(kind)
        case _ if types.is_timestamp(kind):
            return pa.timestamp(MICROSECONDS, None if kind.tz is None else "UTC")
        case _:
            return next((simple for is_kind, simple in SIMPLE if is_kind(kind)), None) or integer_or_float(kind)


LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
"""Kinds of lists. Views of lists are left out: PyArrow casts them to lists whose last offset is missing."""

SIMPLE: Final = (
    (pa.types.is_string, pa.string()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_date, pa.date32()),
    (pa.types.is_time, pa.time64(MICROSECONDS)),
    (pa.types.is_duration, pa.duration(MICROSECONDS)),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_null, pa.null()),
    (pa.types.is_boolean, pa.bool_()),
)
"""Kinds of types, and the type that Spark reads them as."""


def integer_or_float(kind: pa.DataType) -> pa.DataType:
    """Return the type for numbers.

    Raises:
        NotImplementedError: The type is none of them.
    """
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        raise NotImplementedError
    return UNSIGNED.get(kind, kind)


def spark_extension_type(kind: pa.BaseExtensionType) -> pa.DataType:
    """Return the type for an extension type whose storage has the values as Spark knows them.

    Raises:
        NotImplementedError: The storage means something else.
    """
    if kind.extension_name == "arrow.json":
        return pa.string()
    if kind.extension_name == "arrow.bool8":
        return pa.bool_()
    raise NotImplementedError


def spark_decimal(kind: pa.DataType) -> pa.DataType:
    """Return the type for decimals; values of more than 38 digits do not fit.

    Raises:
        NotImplementedError: The scale is above 38.
    """
    scale = max(0, kind.scale)
    if scale > MAX_PRECISION:
        raise NotImplementedError
    return pa.decimal128(min(MAX_PRECISION, max(kind.precision - min(0, kind.scale), scale)), scale)
