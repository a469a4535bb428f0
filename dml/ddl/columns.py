"""Column definitions of CREATE TABLE and ADD COLUMNS to Iceberg fields. Pure; driver.

Input: `ColumnDefinition`, the table's format version and the session's time zone. Output: fields without ids.
Source: Iceberg specification, "Default values" (version 3), "Reserved Field IDs".
"""

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from dml.ddl.literals import constant
from dml.ddl.quoting import quote_name
from dml.ddl.types import parse_type
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.model.columns import INTERNAL_PREFIX, METADATA_COLUMNS, ROW_OPERATION
from dml.sqlparse.statements import ColumnDefinition

__all__ = ["check_format_version", "field_of", "refuse_default", "refuse_reserved_name"]

DEFAULTS_SINCE = 3
RESERVED = frozenset({*METADATA_COLUMNS, ROW_OPERATION, "_deleted", "_change_type", "_change_ordinal"})


def field_of(definition: ColumnDefinition, *, format_version: int, time_zone: str) -> NestedField:
    """The field that a definition means; its default is both the initial and the write default.

    Args:
        definition: As written.
        format_version: The table's.
        time_zone: The session's, for TIMESTAMP defaults.

    Returns:
        The field, with id 0.

    Raises:
        AnalysisError: the type or the default does not read, or the default is NULL where NULL may not be.
        NotSupportedError: the format version has no defaults, or the name is reserved.
    """
    name = definition.path[-1]
    if len(definition.path) == 1:
        refuse_reserved_name(name)
    kind = parse_type(definition.data_type)
    default = None
    if definition.default is not None:
        default = constant(definition.default, kind, column=quote_name(definition.path), time_zone=time_zone)
        if default is not None:
            refuse_default(format_version, definition.path)
        elif definition.required:
            raise AnalysisError(
                f"Column {quote_name(definition.path)} is NOT NULL, so its default cannot be NULL",
                kind=ErrorKind.INVALID_VALUE,
                hint="Leave out the one or the other",
            )
    return NestedField(
        0,
        name,
        kind,
        required=definition.required,
        doc=definition.comment,
        initial_default=default,
        write_default=default,
    )


def refuse_default(format_version: int, path: tuple[str, ...]) -> None:
    """Refuse a default where the format has none.

    Raises:
        NotSupportedError: the format version is below 3.
    """
    if format_version < DEFAULTS_SINCE:
        raise NotSupportedError(
            f"Column {quote_name(path)} cannot have a default: the table has format version {format_version}",
            hint="Defaults need version 3: SET TBLPROPERTIES ('format-version' = '3')",
        )


def refuse_reserved_name(name: str) -> None:
    """Refuse a column that would hide a metadata column, or one that statements use inside their queries.

    Raises:
        NotSupportedError: the name is reserved.
    """
    if name.lower() in RESERVED or name.lower().startswith(INTERNAL_PREFIX):
        raise NotSupportedError(f"The name '{name}' is reserved for metadata", hint="Choose another name")


def check_format_version(schema: Schema, format_version: int) -> None:
    """Refuse types that the format version does not have.

    Raises:
        NotSupportedError: a type needs a later version.
    """
    try:
        schema.check_format_version_compatibility(format_version)
    except ValueError as error:
        raise NotSupportedError(
            f"The table has format version {format_version}: {error}",
            hint="Set 'format-version' to a later version in TBLPROPERTIES, or choose another type",
        ) from None
