"""Bind the space-filling curve of a rewrite. Driver.

    CALL lake.system.rewrite_data_files('db.t', sort_order => 'zorder(a, b)')

Source: Iceberg's `SparkCurveFileRewriteRunner` and `RewriteDataFilesProcedure`, whose messages these are.
"""

import logging
from collections.abc import Sequence
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
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
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.ddl.types import type_text
from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.rows.space_filling_curves import Curve, CurveKind
from dml.sqlparse.statements import CurveTerm, TransformTerm

__all__ = ["curve_of"]

LOG = logging.getLogger(__name__)

ORDERED_TYPES: Final[tuple[type[IcebergType], ...]] = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimeType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

KEY_COLUMNS: Final = {CurveKind.ZORDER: "ICEZVALUE", CurveKind.HILBERT: "ICEHVALUE"}
"""Columns in which the reference keeps keys while it sorts. It refuses tables that have one, and so does RowDelta, so
that a call works in both engines or in neither."""

LABELS: Final = {CurveKind.ZORDER: "ZOrder", CurveKind.HILBERT: "HILBERT"}


def curve_of(terms: Sequence[TransformTerm | CurveTerm], table: Table, text: str) -> Curve:
    """Bind a curve to the columns of a table. Identity partition columns are left out: a group has one value.

    Args:
        terms: The terms of the sort order, at least one of them a curve. The columns of several curves are joined.
        table: The table.
        text: The sort order as written.

    Raises:
        AnalysisError: The order mixes a curve with something else, or a column does not exist, has a type without an
            order, or is a partition column.
    """
    curves = [term for term in terms if isinstance(term, CurveTerm)]
    if len({term.curve for term in curves}) > 1:
        raise invalid(f"Cannot mix Zorder and Hilbert sort expressions: {text}", "Use one of them")
    if len(curves) < len(terms):
        raise invalid(
            f"Cannot mix identity sort columns and a Zorder or Hilbert sort expression: {text}",
            "Put all columns into the curve, or sort by columns alone",
        )
    kind, schema = CurveKind(curves[0].curve), table.schema()
    if KEY_COLUMNS[kind].lower() in {field.name.lower() for field in schema.fields}:
        raise invalid(
            f"Cannot {LABELS[kind]} because the table has a column named '{KEY_COLUMNS[kind]}', which conflicts with "
            f"Iceberg's internal {kind} column name",
            "Rename the column, or sort by columns",
        )
    partitioned = {field.source_id for field in table.spec().fields if isinstance(field.transform, IdentityTransform)}
    names, field_ids = [], []
    for path in (path for term in curves for path in term.columns):
        name, field = column_of(path, schema)
        if field.field_id in partitioned:
            LOG.warning("Ignoring '%s' as such values are constant within a partition", name)
            continue
        names.append(name)
        field_ids.append(field.field_id)
    if not field_ids:
        raise invalid(
            f"Cannot {LABELS[kind]}, all columns provided were identity partition columns and cannot be used",
            "Name columns that vary within a partition",
        )
    return Curve(kind=kind, columns=tuple(names), field_ids=tuple(field_ids))


def column_of(path: tuple[str, ...], schema: Schema) -> tuple[str, NestedField]:
    """Return the full name and the field of a column, or of a field of structs.

    Raises:
        AnalysisError: There is no such column, or its values have no order.
    """
    name, names = ".".join(path), []
    fields: tuple[NestedField, ...] = schema.fields
    found: NestedField | None = None
    for part in path:
        found = next((field for field in fields if field.name.lower() == part.lower()), None)
        if found is None:
            raise AnalysisError(
                f"Cannot find column '{name}' in table schema",
                kind=ErrorKind.UNRESOLVED_COLUMN,
                hint=did_you_mean(part, (field.name for field in fields)),
                option="sort_order",
            )
        names.append(found.name)
        fields = found.field_type.fields if isinstance(found.field_type, StructType) else ()
    assert found is not None, "a column has a name"
    if not isinstance(found.field_type, ORDERED_TYPES):
        raise AnalysisError(
            f"Cannot use column {name} of type {type_text(found.field_type)} in ZOrdering, the type is unsupported",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Use columns of numbers, dates, times, text, binaries or booleans",
            option="sort_order",
        )
    return ".".join(names), found


def invalid(message: str, hint: str) -> AnalysisError:
    return AnalysisError(message, kind=ErrorKind.INVALID_VALUE, hint=hint, option="sort_order")
