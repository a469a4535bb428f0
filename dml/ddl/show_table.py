"""SHOW TBLPROPERTIES, SHOW CREATE TABLE, SHOW COLUMNS, DESCRIBE TABLE. Driver.

Input: the statement and a loaded table. Output: `DdlResult` in Spark's layout. Source: Spark's `DescribeTableExec`,
`ShowCreateTableExec`, `ShowTablePropertiesExec`; the properties that Iceberg's `SparkTable` shows.
"""

from collections.abc import Iterator

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyiceberg.view import View

from dml.ddl.literals import literal_text
from dml.ddl.properties import COMMENT
from dml.ddl.tables import DdlResult
from dml.ddl.terms import sort_order_text, term_text
from dml.ddl.types import type_text
from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.options import DEFAULT_FILE_FORMAT, FORMAT_VERSION
from dml.sqlparse.quoting import quote_identifier, quote_name, quote_string
from dml.sqlparse.statements import Describe, ShowProperties

__all__ = [
    "describe_table",
    "live_fields",
    "show_columns",
    "show_create_table",
    "show_properties",
    "table_information",
    "view_information",
]

Row = tuple[str, str | None, str | None]

OWNER = "owner"
EMPTY: Row = ("", "", "")
HEADINGS = frozenset({"# Detailed Table Information"})
TREE_NAMES = {"int": "integer", "bigint": "long"}
DESCRIBE_COLUMNS = (("col_name", "string"), ("data_type", "string"), ("comment", "string"))


def show_properties(statement: ShowProperties, table: Table) -> DdlResult:
    """Run SHOW TBLPROPERTIES, which shows stored and computed properties.

    Raises:
        AnalysisError: The table does not have the key of the statement.
    """
    properties = shown_properties(table.metadata)
    key = statement.key
    if key is not None and key not in properties:
        raise AnalysisError(
            f"The table {quote_name(table.name())} has no property '{key}'",
            kind=ErrorKind.NOT_FOUND,
            hint=did_you_mean(key, sorted(properties)),
            property=key,
        )
    shown = properties if key is None else {key: properties[key]}
    return DdlResult(columns=(("key", "string"), ("value", "string")), rows=tuple(sorted(shown.items())))


def show_columns(table: Table) -> DdlResult:
    """Run SHOW COLUMNS."""
    return DdlResult(columns=(("col_name", "string"),), rows=tuple((field.name,) for field in table.schema().fields))


def show_create_table(table: Table, name: tuple[str, ...]) -> DdlResult:
    """Run SHOW CREATE TABLE, which returns a statement that creates the table without its rows.

    Args:
        table: The table.
        name: Its full name, catalog first.

    Returns:
        One row with the text. CREATE TABLE has no clause for a sort order, so it follows as a comment.
    """
    metadata = table.metadata
    schema = metadata.schema()
    columns = ",\n".join(f"  {column_text(field)}" for field in schema.fields)
    lines = [f"CREATE TABLE {quote_name(name)} (\n{columns})", "USING iceberg"]
    fields = live_fields(metadata)
    if fields:
        lines.append(f"PARTITIONED BY ({', '.join(term_text(field, schema) for field in fields)})")
    if COMMENT in metadata.properties:
        lines.append(f"COMMENT {quote_string(metadata.properties[COMMENT])}")
    lines.append(f"LOCATION {quote_string(metadata.location)}")
    stored = {key: value for key, value in metadata.properties.items() if key != COMMENT}
    stored[FORMAT_VERSION] = str(metadata.format_version)
    entries = ",\n".join(f"  {quote_string(key)} = {quote_string(value)}" for key, value in sorted(stored.items()))
    lines.append(f"TBLPROPERTIES (\n{entries})")
    order = metadata.sort_order()
    if not order.is_unsorted:
        lines.append(f"-- ALTER TABLE {quote_name(name)} WRITE ORDERED BY {sort_order_text(order, schema)}")
    return DdlResult(columns=(("createtab_stmt", "string"),), rows=(("\n".join(lines),),))


def describe_table(statement: Describe, table: Table, name: tuple[str, ...]) -> DdlResult:
    """Run DESCRIBE TABLE.

    Args:
        statement: The statement.
        table: The table.
        name: Its full name, catalog first.

    Returns:
        Columns, partitioning, and with EXTENDED the defaults, metadata columns and details.
    """
    metadata = table.metadata
    rows: list[Row] = [(field.name, type_text(field.field_type), field.doc) for field in metadata.schema().fields]
    rows += partition_rows(metadata)
    if statement.extended:
        rows += default_rows(metadata)
        rows += metadata_column_rows(metadata)
        rows += detail_rows(metadata, name)
    return DdlResult(columns=DESCRIBE_COLUMNS, rows=tuple(rows))


def table_information(table: Table, name: tuple[str, ...]) -> str:
    """Return the information lines of SHOW TABLE EXTENDED for a table.

    Args:
        table: The table.
        name: Its full name, catalog first.
    """
    metadata = table.metadata
    named = information_head(name)
    details = [f"{key}: {value}" for key, value, _ in detail_rows(metadata, name) if key not in {"", "Name"} | HEADINGS]
    terms = [term_text(field, metadata.schema()) for field in live_fields(metadata)]
    parts = [f"Part {index}: {term}" for index, term in enumerate(terms)]
    return "\n".join([*named, *details, *parts, *tree_lines(metadata.schema())]) + "\n"


def view_information(view: View, name: tuple[str, ...]) -> str:
    """Return the information lines of SHOW TABLE EXTENDED for a view; arguments as for `table_information`."""
    comment = [f"Comment: {view.properties[COMMENT]}"] if COMMENT in view.properties else []
    return "\n".join([*information_head(name), "Type: VIEW", *comment, *tree_lines(view.schema())]) + "\n"


def information_head(name: tuple[str, ...]) -> list[str]:
    return [f"Catalog: {name[0]}", f"Namespace: {quote_name(name[1:-1])}", f"Table: {name[-1]}"]


def tree_lines(schema: Schema) -> list[str]:
    # Spark's schema format: clients parse " |-- name: type (nullable = true)".
    return ["Schema: root", *(line for field in schema.fields for line in field_lines(field, " |-- "))]


def field_lines(field: NestedField, lead: str) -> Iterator[str]:
    yield f"{lead}{field.name}: {tree_type(field.field_type)} (nullable = {str(not field.required).lower()})"
    yield from inner_lines(field.field_type, lead.replace("|-- ", "|    |-- "))


def inner_lines(kind: IcebergType, lead: str) -> Iterator[str]:
    match kind:
        case StructType():
            for field in kind.fields:
                yield from field_lines(field, lead)
        case ListType():
            nullable = str(not kind.element_required).lower()
            yield f"{lead}element: {tree_type(kind.element_type)} (containsNull = {nullable})"
            yield from inner_lines(kind.element_type, lead.replace("|-- ", "|    |-- "))
        case MapType():
            nullable = str(not kind.value_required).lower()
            yield f"{lead}key: {tree_type(kind.key_type)}"
            yield from inner_lines(kind.key_type, lead.replace("|-- ", "|    |-- "))
            yield f"{lead}value: {tree_type(kind.value_type)} (valueContainsNull = {nullable})"
            yield from inner_lines(kind.value_type, lead.replace("|-- ", "|    |-- "))


def tree_type(kind: IcebergType) -> str:
    match kind:
        case StructType():
            return "struct"
        case ListType():
            return "array"
        case MapType():
            return "map"
        case _:
            text = type_text(kind)
            return TREE_NAMES.get(text, text)


def column_text(field: NestedField) -> str:
    text = f"{quote_identifier(field.name)} {type_text(field.field_type)}"
    if field.required:
        text += " NOT NULL"
    if field.write_default is not None:
        text += f" DEFAULT {literal_text(field.write_default, field.field_type)}"
    return text if field.doc is None else f"{text} COMMENT {quote_string(field.doc)}"


def shown_properties(metadata: TableMetadata) -> dict[str, str]:
    schema, order = metadata.schema(), metadata.sort_order()
    shown = {key: value for key, value in metadata.properties.items() if key not in {COMMENT, OWNER}}
    shown["current-snapshot-id"] = str(metadata.current_snapshot_id or "none")
    shown["format"] = "iceberg/" + metadata.properties.get(DEFAULT_FILE_FORMAT, "parquet").lower()
    shown[FORMAT_VERSION] = str(metadata.format_version)
    if not order.is_unsorted:
        shown["sort-order"] = sort_order_text(order, schema)
    if schema.identifier_field_ids:
        shown["identifier-fields"] = f"[{','.join(sorted(schema.identifier_field_names()))}]"
    return shown


def live_fields(metadata: TableMetadata) -> list[PartitionField]:
    """Return the partition fields of the current spec, without the void ones of format version 1."""
    return [field for field in metadata.spec().fields if not isinstance(field.transform, VoidTransform)]


def partition_rows(metadata: TableMetadata) -> list[Row]:
    schema, fields = metadata.schema(), live_fields(metadata)
    if not fields:
        return []
    if all(isinstance(field.transform, IdentityTransform) for field in fields):
        sources = [schema.find_field(field.source_id) for field in fields]
        columns: list[Row] = [
            (term_text(field, schema), type_text(source.field_type), source.doc)
            for field, source in zip(fields, sources, strict=True)
        ]
        return [("# Partition Information", "", ""), ("# col_name", "data_type", "comment"), *columns]
    parts: list[Row] = [(f"Part {index}", term_text(field, schema), "") for index, field in enumerate(fields)]
    return [EMPTY, ("# Partitioning", "", ""), *parts]


def default_rows(metadata: TableMetadata) -> list[Row]:
    rows: list[Row] = [
        (field.name, type_text(field.field_type), literal_text(field.write_default, field.field_type))
        for field in metadata.schema().fields
        if field.write_default is not None
    ]
    return [EMPTY, ("# Column Default Values", "", ""), *rows] if rows else []


def metadata_column_rows(metadata: TableMetadata) -> list[Row]:
    # The partition as a struct over all specs, like the metadata column `_partition`.
    fields: dict[int, NestedField] = {}
    for spec in metadata.partition_specs:
        for field in spec.partition_type(metadata.schema()).fields:
            fields.setdefault(field.field_id, field)
    inside = ",".join(f"{quote_identifier(field.name)}:{type_text(field.field_type)}" for field in fields.values())
    rows: list[Row] = [
        ("_spec_id", "int", ""),
        ("_partition", f"struct<{inside}>", ""),
        ("_file", "string", ""),
        ("_pos", "bigint", ""),
    ]
    if metadata.format_version >= 3:
        rows += [("_row_id", "bigint", ""), ("_last_updated_sequence_number", "bigint", "")]
    return [EMPTY, ("# Metadata Columns", "", ""), *rows]


def detail_rows(metadata: TableMetadata, name: tuple[str, ...]) -> list[Row]:
    rows: list[Row] = [
        EMPTY,
        ("# Detailed Table Information", "", ""),
        ("Name", quote_name(name), ""),
        ("Type", "MANAGED", ""),
    ]
    if COMMENT in metadata.properties:
        rows.append(("Comment", metadata.properties[COMMENT], ""))
    rows += [("Location", metadata.location, ""), ("Provider", "iceberg", "")]
    if OWNER in metadata.properties:
        rows.append(("Owner", metadata.properties[OWNER], ""))
    shown = ",".join(f"{key}={value}" for key, value in sorted(shown_properties(metadata).items()))
    rows.append(("Table Properties", f"[{shown}]", ""))
    return rows
