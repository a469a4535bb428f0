"""Read ALTER TABLE. Pure; driver.

Input: a cursor at ALTER. Output: `AlterTable`, or a `SqlError`. Statements with actions that only Spark's own tables
have (SET LOCATION, ADD PARTITION (...) ...) go to Spark.
"""

from dataclasses import replace

from dml.errors import SqlError
from dml.sqlparse.cursor import Cursor, LeftToSpark
from dml.sqlparse.definitions import (
    read_column,
    read_data_type,
    read_default,
    read_keys,
    read_position,
    read_properties,
    read_sort_terms,
    read_transform,
)
from dml.sqlparse.fragments import FragmentReader, table_name
from dml.sqlparse.snapshot_references import read_drop_reference, read_set_reference
from dml.sqlparse.statements import (
    AddColumns,
    AddPartitionField,
    AlterAction,
    AlterColumn,
    AlterColumns,
    AlterTable,
    ColumnDefinition,
    DropColumns,
    DropIdentifierFields,
    DropPartitionField,
    RenameColumn,
    RenameTable,
    ReplacePartitionField,
    SetIdentifierFields,
    SetProperties,
    SetWriteOrder,
    Span,
    UnsetProperties,
)

__all__ = ["read_alter_table"]


def read_alter_table(cursor: Cursor, reader: FragmentReader) -> AlterTable:
    """Read `ALTER TABLE table action`."""
    cursor.expect("ALTER", "TABLE")
    table = table_name(cursor, reader)
    action = read_action(cursor)
    cursor.finish()
    return AlterTable(table=table, action=action)


def read_action(cursor: Cursor) -> AlterAction:
    if cursor.at_end():
        cursor.fail(expected="SET, UNSET, ADD, DROP, CREATE, REPLACE, RENAME, ALTER or WRITE")
    reference = read_set_reference(cursor) or read_drop_reference(cursor)
    if reference is not None:
        return reference
    if cursor.accept("SET", "TBLPROPERTIES"):
        return SetProperties(properties=read_properties(cursor))
    if cursor.accept("UNSET", "TBLPROPERTIES"):
        if_exists = cursor.accept("IF", "EXISTS")
        return UnsetProperties(keys=read_keys(cursor), if_exists=if_exists)
    if cursor.key() in {"SET", "DROP"} and cursor.key(1) == "IDENTIFIER":
        return identifier_fields(cursor)
    if cursor.accept("ADD", "PARTITION", "FIELD"):
        return AddPartitionField(term=read_transform(cursor, named=True))
    if cursor.accept("DROP", "PARTITION", "FIELD"):
        return DropPartitionField(term=read_transform(cursor))
    if cursor.accept("REPLACE", "PARTITION", "FIELD"):
        old = read_transform(cursor)
        cursor.expect("WITH")
        return ReplacePartitionField(old=old, new=read_transform(cursor, named=True))
    if cursor.accept("WRITE"):
        return write_order(cursor)
    if cursor.key() in {"ADD", "DROP"} and cursor.key(1) in {"COLUMN", "COLUMNS"}:
        return add_columns(cursor) if cursor.at("ADD") else drop_columns(cursor)
    if cursor.accept("RENAME", "COLUMN"):
        return rename_column(cursor)
    if cursor.accept("RENAME", "TO"):
        begin = cursor.index
        return RenameTable(new_name=cursor.names("the new name of the table"), span=cursor.span_from(begin))
    if cursor.at("ALTER") or cursor.at("CHANGE"):
        return alter_columns(cursor)
    raise LeftToSpark


def add_columns(cursor: Cursor) -> AddColumns:
    cursor.index += 2
    close = cursor.open_bracket("the columns") if cursor.at("(") else None
    columns: list[ColumnDefinition] = []
    while not columns or cursor.accept(","):
        columns.append(read_column(cursor, nested=True, positioned=True))
    read_close(cursor, close)
    return AddColumns(columns=tuple(columns))


def drop_columns(cursor: Cursor) -> DropColumns:
    cursor.index += 2
    if_exists = cursor.accept("IF", "EXISTS")
    close = cursor.open_bracket("the columns") if cursor.at("(") else None
    columns, spans = read_column_names(cursor)
    read_close(cursor, close)
    return DropColumns(columns=columns, spans=spans, if_exists=if_exists)


def read_column_names(cursor: Cursor) -> tuple[tuple[tuple[str, ...], ...], tuple[Span, ...]]:
    columns: list[tuple[str, ...]] = []
    spans: list[Span] = []
    while not columns or cursor.accept(","):
        begin = cursor.index
        columns.append(cursor.names("the name of a column"))
        spans.append(cursor.span_from(begin))
    return tuple(columns), tuple(spans)


def identifier_fields(cursor: Cursor) -> SetIdentifierFields | DropIdentifierFields:
    action = SetIdentifierFields if cursor.at("SET") else DropIdentifierFields
    cursor.index += 2
    cursor.expect("FIELDS")
    columns, spans = read_column_names(cursor)
    return action(columns=columns, spans=spans)


def read_close(cursor: Cursor, close: int | None) -> None:
    if close is None:
        return
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1


def rename_column(cursor: Cursor) -> RenameColumn:
    begin = cursor.index
    column = cursor.names("the name of a column")
    span = cursor.span_from(begin)
    cursor.expect("TO")
    new_name = cursor.name("the new name of the column")
    if cursor.at("."):
        cursor.fail(expected="the end of the statement", hint="The new name is that of the field alone.")
    return RenameColumn(column=column, new_name=new_name, span=span)


def alter_columns(cursor: Cursor) -> AlterColumn | AlterColumns:
    cursor.index += 1
    cursor.accept("COLUMN")
    columns: list[AlterColumn] = []
    while not columns or cursor.accept(","):
        columns.append(alter_column(cursor))
    return columns[0] if len(columns) == 1 else AlterColumns(columns=tuple(columns))


def alter_column(cursor: Cursor) -> AlterColumn:
    begin = cursor.index
    column = cursor.names("the name of a column")
    span = cursor.span_from(begin)
    if cursor.at_name() and cursor.key() not in {"TYPE", "COMMENT", "FIRST", "AFTER", "SET", "DROP"}:
        return hive_change(cursor, column, span)
    data_type, comment, position, required, default = None, None, None, None, None
    drop_default, options = False, 0
    while True:
        if cursor.accept("TYPE"):
            data_type = read_data_type(cursor)
        elif cursor.accept("COMMENT"):
            comment = cursor.string("a comment")
        elif cursor.key() in {"FIRST", "AFTER"}:
            position = read_position(cursor)
        elif cursor.key() in {"SET", "DROP"} and cursor.key(1) == "NOT":
            required = cursor.at("SET")
            cursor.index += 2
            cursor.expect("NULL")
        elif cursor.accept("SET", "DEFAULT"):
            default = read_default(cursor)
        elif cursor.accept("DROP", "DEFAULT"):
            drop_default = True
        else:
            break
        options += 1
    if options == 0:
        cursor.fail(expected="TYPE, COMMENT, FIRST, AFTER, SET NOT NULL, DROP NOT NULL, SET DEFAULT or DROP DEFAULT")
    return AlterColumn(
        column=column,
        span=span,
        data_type=data_type,
        comment=comment,
        position=position,
        required=required,
        default=default,
        drop_default=drop_default,
    )


def hive_change(cursor: Cursor, column: tuple[str, ...], span: Span) -> AlterColumn:
    # CHANGE COLUMN a a bigint COMMENT 'x' FIRST: Hive's form names the column twice.
    begin = cursor.index
    definition = read_column(cursor, nested=False, positioned=True)
    if definition.path[0].lower() != column[-1].lower():
        raise SqlError(
            f"CHANGE COLUMN cannot rename '{column[-1]}' to '{definition.path[0]}'",
            sql=cursor.source.sql,
            position=cursor.source.tokens[begin].start,
            length=len(definition.path[0]),
            hint=f"Write ALTER TABLE ... RENAME COLUMN {'.'.join(column)} TO {definition.path[0]}.",
        )
    return AlterColumn(
        column=column,
        span=span,
        data_type=definition.data_type,
        comment=definition.comment,
        position=definition.position,
        required=True if definition.required else None,
        default=definition.default,
    )


def write_order(cursor: Cursor) -> SetWriteOrder:
    # Each of the two clauses at most once, in any order.
    distributed = read_distribution(cursor)
    order = read_write_order(cursor)
    distributed = distributed or read_distribution(cursor)
    if order is None and not distributed:
        cursor.fail(expected="ORDERED BY, LOCALLY, DISTRIBUTED BY or UNORDERED")
    return replace(order or SetWriteOrder(), distributed_by_partition=distributed)


def read_distribution(cursor: Cursor) -> bool:
    if not cursor.accept("DISTRIBUTED"):
        return False
    cursor.expect("BY", "PARTITION")
    return True


def read_write_order(cursor: Cursor) -> SetWriteOrder | None:
    if cursor.accept("UNORDERED"):
        return SetWriteOrder(unordered=True)
    locally = cursor.accept("LOCALLY")
    if not locally and not cursor.at("ORDERED"):
        return None
    cursor.expect("ORDERED", "BY")
    return SetWriteOrder(terms=read_sort_terms(cursor), locally=locally)
