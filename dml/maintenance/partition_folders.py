"""Read partition values from Hive-style folders, and convert them to the types of a partition spec. Pure; driver.

    code=001/day=2026-01-31/a.parquet    of a table PARTITIONED BY (code STRING, day DATE)    ('001', 20484)

Input: paths below a folder, a partition spec. Output: partition tuples in Iceberg's internal form. A value has the type
of the table's column; types are never inferred from the text. Source: Hive's and Spark's escaping of partition
values (`ExternalCatalogUtils.escapePathName`), Iceberg's `Conversions.fromPartitionString` and
`SparkTableUtil.findCompatibleSpec`.
"""

import math
import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from dml.errors import AnalysisError, ErrorKind
from dml.manifests.write import partition_type
from dml.model.arrow_types import primitive_name
from dml.model.transforms import INTEGER_LIMITS
from dml.sqlparse.constants import TimeZone, text_date, text_timestamp

__all__ = ["HIVE_NULL", "PartitionTexts", "PartitionTyper", "compatible_spec", "folder_texts"]

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The text of Hive and Spark for NULL and for an empty string."""

PartitionTexts = tuple[tuple[str, str], ...]
"""Names and values of partition columns, decoded from folder names, outermost first."""


def folder_texts(folders: Sequence[str]) -> PartitionTexts | None:
    """Return the partition values in folder names; None if a name is not of the form `name=value`.

    Spark and Hive percent-encode some ASCII characters, other writers also the bytes of other UTF-8 characters.

    Args:
        folders: The names of the folders, outermost first.
    """
    pairs = [folder.partition("=") for folder in folders]
    if not all(name and equals for name, equals, _ in pairs):
        return None
    return tuple((unescape(name), unescape(value)) for name, _, value in pairs)


def unescape(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise AnalysisError(
            f"The folder name '{text}' has an escaped value that is not UTF-8", kind=ErrorKind.INVALID_VALUE
        ) from None


def compatible_spec(metadata: TableMetadata, names: Sequence[str], table: str) -> PartitionSpec:
    """Return the partition spec whose fields are these columns themselves, in this order; the current one is preferred.

    Args:
        metadata: The table's metadata.
        names: The names of the source's partition columns.
        table: The table's name, for the error.

    Raises:
        AnalysisError: The table has no such spec.
    """
    wanted = [name.lower() for name in names]
    columns = {field.field_id for field in metadata.schema().fields}
    for spec in (metadata.spec(), *metadata.partition_specs):
        live = live_fields(spec)
        of_columns = all(
            isinstance(field.transform, IdentityTransform) and field.source_id in columns for field in live
        )
        if of_columns and wanted == [field.name.lower() for field in live]:
            return spec
    raise AnalysisError(
        f"Cannot find a partition spec in Iceberg table {table} that matches the partition columns "
        f"({', '.join(names)}) in input table",
        hint="The table must be PARTITIONED BY these columns themselves, in this order",
        table=table,
    )


def live_fields(spec: PartitionSpec) -> list[PartitionField]:
    return [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]


@dataclass(frozen=True, slots=True)
class PartitionTyper:
    """Converts partition values to the types of a spec's fields.

    Attributes:
        spec: The spec; its fields are identity or void.
        kinds: The partition type of the spec.
        zone: The time zone of timestamps without one.
    """

    spec: PartitionSpec
    kinds: StructType
    zone: TimeZone

    @staticmethod
    def of(metadata: TableMetadata, spec: PartitionSpec, time_zone: str) -> "PartitionTyper":
        """Return the typer of a table's spec.

        Args:
            metadata: The table's metadata.
            spec: The spec.
            time_zone: The session's time zone.
        """
        return PartitionTyper(spec, partition_type(spec, metadata), TimeZone.of(time_zone, certain=False))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields that have values."""
        return tuple(field.name for field in live_fields(self.spec))

    @property
    def source_ids(self) -> tuple[int | None, ...]:
        """The column of each field; None if its value is always NULL."""
        live = {field.field_id for field in live_fields(self.spec)}
        return tuple(field.source_id if field.field_id in live else None for field in self.spec.fields)

    def partition(self, texts: PartitionTexts) -> tuple[Any, ...]:
        """Return the partition tuple for the values of a folder, which has the columns of the spec in order.

        Raises:
            AnalysisError: A text is not a value of the column's type.
        """
        values = iter(texts)
        live = {field.field_id for field in live_fields(self.spec)}
        return tuple(
            self.value(field.name, next(values)[1]) if field.field_id in live else None for field in self.spec.fields
        )

    def value(self, name: str, text: str) -> Any:
        """Return the value of a partition field for a text.

        Raises:
            AnalysisError: The text is not a value of the field's type.
        """
        kind = next(field.field_type for field in self.kinds.fields if field.name == name)
        if text == HIVE_NULL:
            return None
        convert = CONVERTERS.get(type(kind))
        if convert is None:
            raise AnalysisError(
                f"The partition column '{name}' is {primitive_name(kind)}, which folder names cannot hold",
                kind=ErrorKind.TYPE_MISMATCH,
                hint="Read the files with Spark and insert their rows instead",
                column=name,
            )
        found = convert(text, kind, self.zone) if text else None
        if found is None:
            raise AnalysisError(
                f"The value '{text}' of the partition column '{name}' is not a {primitive_name(kind)}",
                kind=ErrorKind.INVALID_VALUE,
                hint=f"NULL is {HIVE_NULL}",
                column=name,
            )
        return found

    def filter(self, texts: Mapping[str, str], table: str) -> Callable[[tuple[Any, ...]], bool]:
        """Return a function that tests whether a partition tuple matches a filter.

        Args:
            texts: Values by partition field, for some or all fields.
            table: The table's name, for errors.

        Raises:
            AnalysisError: The filter does not fit the table's partition columns.
        """
        names = self.names
        if not texts:
            return lambda _: True
        if not names:
            raise AnalysisError(f"Cannot use partition filter with an unpartitioned table {table}", table=table)
        if len(texts) > len(names):
            raise AnalysisError(
                f"Cannot add data files to target table {table} because that table is partitioned, but the number of "
                f"columns in the provided partition filter ({len(texts)}) is greater than the number of partitioned "
                f"columns in table ({len(names)})",
                table=table,
            )
        unknown = [name for name in texts if name not in names]
        if unknown:
            raise AnalysisError(
                f"Cannot add files to target table {table}. {table} is partitioned but the specified partition filter "
                f"refers to columns that are not partitioned: [{', '.join(unknown)}] . Valid partition columns: "
                f"[{','.join(names)}]",
                table=table,
            )
        wanted = {name: self.value(name, text) for name, text in texts.items()}
        places = [(place, wanted[field.name]) for place, field in enumerate(self.spec.fields) if field.name in wanted]
        return lambda partition: all(is_equal(partition[place], value) for place, value in places)


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return (one is None) == (other is None) and bool(one == other)


INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
FRACTIONS: Final = {
    "nan": math.nan,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
    "inf": math.inf,
    "-inf": -math.inf,
}
BOOLEANS: Final = {"true": True, "false": False}
DATE: Final = re.compile(r"([+-]?\d{4,7})-(\d{1,2})-(\d{1,2})", re.ASCII)
UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
MAX_DECIMAL_DIGITS: Final = 80


def whole_number(text: str, kind: IcebergType, _: TimeZone) -> int | None:
    value = int(text) if INTEGER.fullmatch(text) else None
    limit = INTEGER_LIMITS[type(kind)]
    return value if value is not None and -limit <= value < limit else None


def fraction(text: str, kind: IcebergType, _: TimeZone) -> float | None:
    value = float(text) if NUMBER.fullmatch(text) else FRACTIONS.get(text.lower())
    if value is None or not isinstance(kind, FloatType):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0]) if not math.isnan(value) else math.nan
    except OverflowError:
        return None


def exact_decimal(text: str, kind: IcebergType, _: TimeZone) -> Decimal | None:
    assert isinstance(kind, DecimalType)
    if len(text) > MAX_DECIMAL_DIGITS or not NUMBER.fullmatch(text):
        return None
    # Digits are scaled as integers, because decimal arithmetic rounds to the precision of the context.
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    unscaled, shift = int("".join(map(str, digits))), exponent + kind.scale
    if not -MAX_DECIMAL_DIGITS <= shift <= MAX_DECIMAL_DIGITS:
        return None
    scaled, rest = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift)
    if rest or scaled >= 10**kind.precision:
        return None
    return Decimal((sign if scaled else 0, tuple(map(int, str(scaled))), -kind.scale))


def day(text: str, _: IcebergType, __: TimeZone) -> int | None:
    match = DATE.fullmatch(text)
    return None if match is None else text_date(f"{match[1]}-{match[2]:0>2}-{match[3]:0>2}")


def fixed(text: str, kind: IcebergType, _: TimeZone) -> bytes | None:
    assert isinstance(kind, FixedType)
    data = text.encode()
    return data if len(data) == len(kind) else None


CONVERTERS: Final[dict[type[IcebergType], Callable[[str, Any, TimeZone], Any]]] = {
    BooleanType: lambda text, _kind, _zone: BOOLEANS.get(text.lower()),
    IntegerType: whole_number,
    LongType: whole_number,
    FloatType: fraction,
    DoubleType: fraction,
    DecimalType: exact_decimal,
    StringType: lambda text, _kind, _zone: text,
    DateType: day,
    TimestampType: lambda text, _kind, _zone: text_timestamp(text, None),
    TimestamptzType: lambda text, _kind, zone: text_timestamp(text, zone),
    UUIDType: lambda text, _kind, _zone: uuid.UUID(text) if UUID.fullmatch(text) else None,
    BinaryType: lambda text, _kind, _zone: text.encode(),
    FixedType: fixed,
}
"""By type, a function that parses a text. It returns None if the text is not a value of the type."""
