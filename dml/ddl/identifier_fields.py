"""ALTER TABLE ... SET and DROP IDENTIFIER FIELDS. Pure; driver.

Input: the action and a schema. Output: the schema with other identifier fields. Source: Iceberg specification,
"Identifier Field IDs"; `SchemaUpdate.validateIdentifierField`.
"""

from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType

from dml.ddl.schema_change import find_field
from dml.ddl.types import type_text
from dml.errors import AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.sqlparse.diagnosis import at
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import DropIdentifierFields, SetIdentifierFields

__all__ = ["with_identifier_fields"]


def with_identifier_fields(action: SetIdentifierFields | DropIdentifierFields, schema: Schema) -> Schema:
    """Return the schema after SET IDENTIFIER FIELDS, which names all of them, or DROP IDENTIFIER FIELDS.

    Raises:
        AnalysisError: There is no such column, or its type cannot identify rows.
        NotSupportedError: The column or a struct around it is not NOT NULL, or it is inside an array or a map.
        NotFoundError: A column to drop is not an identifier field.
    """
    sets = isinstance(action, SetIdentifierFields)
    ids = [] if sets else list(schema.identifier_field_ids)
    for path, span in zip(action.columns, action.spans, strict=True):
        with at(span):
            field_id = find_field(schema, path).field_id
            if sets:
                check_identifies(schema, path)
                ids.append(field_id)
            elif field_id not in ids:
                raise NotFoundError(f"{quote_name(path)} is not an identifier field", hint=known_fields(schema))
            else:
                ids.remove(field_id)
    return Schema(*schema.fields, schema_id=schema.schema_id, identifier_field_ids=list(dict.fromkeys(ids)))


def check_identifies(schema: Schema, path: tuple[str, ...]) -> None:
    column, kind = quote_name(path), find_field(schema, path).field_type
    for depth in range(1, len(path) + 1):
        part = find_field(schema, path[:depth])
        if depth < len(path) and not part.field_type.is_struct:
            raise NotSupportedError(
                f"{column} cannot be an identifier field: it is inside an array or a map",
                hint="Choose a column or a field of a struct",
            )
        if not part.required:
            raise NotSupportedError(
                f"{column} cannot be an identifier field: {quote_name(path[:depth])} may be NULL",
                hint="Identifier fields, and the structs around them, are declared NOT NULL when the table is created",
            )
    if not kind.is_primitive or isinstance(kind, FloatType | DoubleType):
        raise AnalysisError(
            f"{column} cannot be an identifier field: its type is {type_text(kind)}",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Identifier fields are single values, and neither FLOAT nor DOUBLE",
        )


def known_fields(schema: Schema) -> str:
    names = sorted(quote_name(name.split(".")) for name in schema.identifier_field_names())
    return f"The identifier fields are {', '.join(names)}" if names else "The table has no identifier fields"
