"""Read statements about namespaces, SHOW, DESCRIBE, COMMENT ON, REFRESH, ANALYZE, USE and CALL. Pure; driver.

Input: a cursor at the verb. Output: the statement, or a `SqlError`. Forms that only Spark supports (SHOW TABLE EXTENDED
... PARTITION, DESCRIBE a column ...) go to Spark, as do calls of procedures that are not in `PROCEDURES`, which belong
to Spark or to another catalog. Source: Spark's grammar, `callArguments`. The namespace `system` is that of Iceberg's
Spark procedures.
"""

from dataclasses import replace
from typing import Final

from dml.sqlparse.cursor import Cursor, LeftToSpark
from dml.sqlparse.definitions import read_key, read_properties, read_value
from dml.sqlparse.fragments import FragmentReader, table_and_column, table_name
from dml.sqlparse.statements import (
    AlterColumn,
    AlterTable,
    AnalyzeTable,
    CallArgument,
    CallStatement,
    CommentOnNamespace,
    CreateNamespace,
    Describe,
    DescribeNamespace,
    DropNamespace,
    PartitionText,
    RefreshTable,
    SetProperties,
    ShowColumns,
    ShowCreateTable,
    ShowNamespaces,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    Span,
    UnsetProperties,
    Use,
)

__all__ = [
    "PROCEDURES",
    "read_analyze_table",
    "read_call",
    "read_comment_on_column",
    "read_comment_on_namespace",
    "read_comment_on_table",
    "read_create_namespace",
    "read_describe",
    "read_drop_namespace",
    "read_refresh_table",
    "read_set_catalog",
    "read_show_columns",
    "read_show_create_table",
    "read_show_namespaces",
    "read_show_partitions",
    "read_show_properties",
    "read_show_table_extended",
    "read_show_tables",
    "read_use",
]

COMMENT: Final = "comment"
"""The property of a table that holds its comment."""
PROCEDURES_NAMESPACE: Final = "system"
PROCEDURES: Final = frozenset(
    {
        "add_files",
        "ancestors_of",
        "cherrypick_snapshot",
        "compute_partition_stats",
        "compute_table_stats",
        "convert_equality_deletes",
        "create_changelog_view",
        "expire_snapshots",
        "fast_forward",
        "health",
        "maintain",
        "migrate",
        "publish_changes",
        "register_table",
        "remove_orphan_files",
        "rewrite_data_files",
        "rewrite_table_path",
        "rewrite_manifests",
        "rewrite_position_delete_files",
        "rollback_to_snapshot",
        "rollback_to_timestamp",
        "set_current_snapshot",
        "snapshot",
        "verify",
    }
)
"""The names of RowDelta's procedures."""


def read_call(cursor: Cursor, reader: FragmentReader) -> CallStatement:
    """Read `CALL [catalog.]system.procedure([name =>] value, ...)`."""
    cursor.expect("CALL")
    begin = cursor.index
    names = cursor.names("the name of a procedure")
    span = cursor.span_from(begin)
    folded = tuple(name.lower() for name in names)
    if folded[-2:-1] != (PROCEDURES_NAMESPACE,) or folded[-1] not in PROCEDURES or len(names) > 3:
        raise LeftToSpark
    close = cursor.open_bracket("the arguments")
    arguments: list[CallArgument] = []
    while cursor.index < close:
        arguments.append(read_argument(cursor, reader, arguments))
        if cursor.index < close and not cursor.accept(","):
            cursor.fail(expected="',' or ')'")
        elif cursor.index == close and cursor.source.word(close - 1) == ",":
            cursor.fail(expected="another argument")
    cursor.index = close + 1
    cursor.finish()
    return CallStatement(
        catalog=names[0] if len(names) == 3 else None, procedure=folded[-1], span=span, arguments=tuple(arguments)
    )


def read_argument(cursor: Cursor, reader: FragmentReader, before: list[CallArgument]) -> CallArgument:
    begin = cursor.index
    name = None
    if cursor.at_name() and cursor.key(1) == "=>":
        name = cursor.name().lower()
        span = cursor.span_from(begin)
        cursor.expect("=>")
        if any(argument.name == name for argument in before):
            cursor.fail_at(span, f"The argument '{name}' is given twice", hint="Remove one of them")
    elif before and before[-1].name is not None:
        cursor.fail("A positional argument follows a named one", expected="a name and '=>'")
    start = cursor.index
    end = cursor.expression("a value", stops=frozenset({","}))
    return CallArgument(name=name, value=reader.expression(start, end), span=cursor.span_from(begin))


NAMESPACE = frozenset({"NAMESPACE", "SCHEMA", "DATABASE"})


def read_create_namespace(cursor: Cursor, _: FragmentReader) -> CreateNamespace:
    """Read `CREATE NAMESPACE [IF NOT EXISTS] name [COMMENT c] [LOCATION l] [WITH PROPERTIES (...)]`."""
    cursor.index += 2
    if_not_exists = cursor.at("IF")
    if if_not_exists:
        cursor.expect("IF", "NOT", "EXISTS")
    name, span = read_namespace(cursor)
    comment, location = None, None
    properties: tuple[tuple[str, str], ...] = ()
    seen: set[str] = set()
    while not cursor.at_end():
        key = cursor.key()
        if key in seen:
            cursor.fail(f"The clause {key} is given twice")
        seen.add(key)
        if cursor.accept("COMMENT"):
            comment = cursor.string("a comment")
        elif cursor.accept("LOCATION"):
            location = cursor.string("a location")
        elif cursor.accept("WITH"):
            if not cursor.accept("DBPROPERTIES"):
                cursor.expect("PROPERTIES")
            properties = read_properties(cursor)
        elif cursor.at("DEFAULT", "COLLATION"):
            raise LeftToSpark
        else:
            cursor.fail(expected="COMMENT, LOCATION, WITH PROPERTIES or the end of the statement")
    return CreateNamespace(
        name=name, span=span, if_not_exists=if_not_exists, properties=properties, comment=comment, location=location
    )


def read_drop_namespace(cursor: Cursor, _: FragmentReader) -> DropNamespace:
    """Read `DROP NAMESPACE [IF EXISTS] name [RESTRICT | CASCADE]`."""
    cursor.index += 2
    if_exists = cursor.at("IF")
    if if_exists:
        cursor.expect("IF", "EXISTS")
    name, span = read_namespace(cursor)
    cascade = cursor.accept("CASCADE")
    if not cascade:
        cursor.accept("RESTRICT")
    cursor.finish()
    return DropNamespace(name=name, span=span, if_exists=if_exists, cascade=cascade)


def read_show_tables(cursor: Cursor, _: FragmentReader) -> ShowTables:
    """Read `SHOW TABLES [FROM | IN namespace] [[LIKE] pattern]`."""
    cursor.expect("SHOW", "TABLES")
    namespace, pattern = read_show_filter(cursor)
    return ShowTables(namespace=namespace, pattern=pattern)


def read_show_table_extended(cursor: Cursor, _: FragmentReader) -> ShowTables:
    """Read `SHOW TABLE EXTENDED [FROM | IN namespace] LIKE pattern`."""
    cursor.expect("SHOW", "TABLE", "EXTENDED")
    namespace = cursor.names("a namespace") if cursor.accept("FROM") or cursor.accept("IN") else None
    cursor.expect("LIKE")
    pattern = cursor.string("a pattern")
    if cursor.at("PARTITION"):
        raise LeftToSpark
    cursor.finish()
    return ShowTables(namespace=namespace, pattern=pattern, extended=True)


def read_show_namespaces(cursor: Cursor, _: FragmentReader) -> ShowNamespaces:
    """Read `SHOW NAMESPACES [FROM | IN parent] [[LIKE] pattern]`."""
    cursor.index += 2
    parent, pattern = read_show_filter(cursor)
    return ShowNamespaces(parent=parent, pattern=pattern)


def read_show_properties(cursor: Cursor, reader: FragmentReader) -> ShowProperties:
    """Read `SHOW TBLPROPERTIES table [(key)]`."""
    cursor.expect("SHOW", "TBLPROPERTIES")
    table = table_name(cursor, reader)
    key = None
    if cursor.at("("):
        close = cursor.open_bracket("the key")
        key = read_key(cursor)
        if cursor.index != close:
            cursor.fail(expected="')'", hint="Quote a key that is not made of plain names: 'a-b.c'.")
        cursor.index = close + 1
    cursor.finish()
    return ShowProperties(table=table, key=key)


def read_show_create_table(cursor: Cursor, reader: FragmentReader) -> ShowCreateTable:
    """Read `SHOW CREATE TABLE table`."""
    cursor.expect("SHOW", "CREATE", "TABLE")
    table = table_name(cursor, reader)
    if cursor.at("AS", "SERDE"):
        raise LeftToSpark
    cursor.finish()
    return ShowCreateTable(table=table)


def read_show_columns(cursor: Cursor, reader: FragmentReader) -> ShowColumns:
    """Read `SHOW COLUMNS FROM | IN table [FROM | IN namespace]`."""
    cursor.expect("SHOW", "COLUMNS")
    if not (cursor.accept("FROM") or cursor.accept("IN")):
        cursor.fail(expected="FROM or IN")
    table = table_name(cursor, reader)
    if cursor.accept("FROM") or cursor.accept("IN"):
        namespace, span = read_namespace(cursor)
        own = table.parts[:-1]
        if namespace[len(namespace) - len(own) :] != own and own[len(own) - len(namespace) :] != namespace:
            cursor.fail_at(span, f"The table '{'.'.join(table.parts)}' is in another namespace", hint="Name it once.")
        table = replace(table, parts=(*max(own, namespace, key=len), table.parts[-1]))
    cursor.finish()
    return ShowColumns(table=table)


def read_show_partitions(cursor: Cursor, reader: FragmentReader) -> ShowPartitions:
    """Read `SHOW PARTITIONS table [PARTITION (name = constant, ...)]`."""
    cursor.expect("SHOW", "PARTITIONS")
    table = table_name(cursor, reader)
    entries: list[PartitionText] = []
    if cursor.accept("PARTITION"):
        close = cursor.open_bracket("the partition")
        while not entries or cursor.accept(","):
            begin = cursor.index
            name = cursor.name("the name of a partition field")
            cursor.expect("=")
            text = read_constant(cursor, name)
            entries.append(PartitionText(name=name, text=text, span=cursor.span_from(begin)))
        if cursor.index != close:
            cursor.fail(expected="',' or ')'")
        cursor.index = close + 1
    cursor.finish()
    return ShowPartitions(table=table, partition=tuple(entries))


def read_constant(cursor: Cursor, name: str) -> str | None:
    if cursor.accept("NULL"):
        return None
    if cursor.key() in {"DATE", "TIMESTAMP"}:
        cursor.index += 1
        return cursor.string(f"a value for '{name}'")
    return read_value(cursor, name)


def read_comment_on_table(cursor: Cursor, reader: FragmentReader) -> AlterTable:
    """Read `COMMENT ON TABLE table IS text | NULL`, which sets or removes the table's comment."""
    cursor.expect("COMMENT", "ON", "TABLE")
    table = table_name(cursor, reader)
    comment = read_comment(cursor)
    if comment is None:
        return AlterTable(table=table, action=UnsetProperties(keys=(COMMENT,)))
    return AlterTable(table=table, action=SetProperties(properties=((COMMENT, comment),)))


def read_comment_on_column(cursor: Cursor, reader: FragmentReader) -> AlterTable:
    """Read `COMMENT ON COLUMN table.column IS text | NULL`; as in Spark, it takes no fields of structs."""
    cursor.expect("COMMENT", "ON", "COLUMN")
    table, column = table_and_column(cursor, reader)
    comment = read_comment(cursor)
    action = AlterColumn(column=column.parts, span=column.span, comment=comment, drop_comment=comment is None)
    return AlterTable(table=table, action=action)


def read_comment_on_namespace(cursor: Cursor, _: FragmentReader) -> CommentOnNamespace:
    """Read `COMMENT ON NAMESPACE | SCHEMA | DATABASE name IS text | NULL`."""
    cursor.index += 3
    name, span = read_namespace(cursor)
    return CommentOnNamespace(name=name, span=span, comment=read_comment(cursor))


def read_comment(cursor: Cursor) -> str | None:
    cursor.expect("IS")
    comment = None if cursor.accept("NULL") else cursor.string("a comment or NULL")
    cursor.finish()
    return comment


def read_refresh_table(cursor: Cursor, reader: FragmentReader) -> RefreshTable:
    """Read `REFRESH TABLE table`."""
    cursor.expect("REFRESH", "TABLE")
    table = table_name(cursor, reader)
    cursor.finish()
    return RefreshTable(table=table)


def read_analyze_table(cursor: Cursor, reader: FragmentReader) -> AnalyzeTable:
    """Read `ANALYZE TABLE table COMPUTE STATISTICS [NOSCAN | FOR COLUMNS name, ... | FOR ALL COLUMNS]`."""
    cursor.expect("ANALYZE", "TABLE")
    table = table_name(cursor, reader)
    if cursor.at("PARTITION"):
        cursor.fail(
            "ANALYZE TABLE computes the statistics of all partitions of a table", hint="Leave out PARTITION (...)"
        )
    cursor.expect("COMPUTE", "STATISTICS")
    columns: list[str] = []
    of_columns = cursor.accept("FOR")
    if of_columns:
        if cursor.accept("ALL"):
            cursor.expect("COLUMNS")
        else:
            cursor.expect("COLUMNS")
            while not columns or cursor.accept(","):
                columns.append(".".join(cursor.names("the name of a column")))
    else:
        cursor.accept("NOSCAN")
    cursor.finish()
    return AnalyzeTable(table=table, columns=tuple(columns) or None, of_columns=of_columns)


def read_describe(cursor: Cursor, reader: FragmentReader) -> Describe | DescribeNamespace:
    """Read `DESCRIBE [TABLE] [EXTENDED | FORMATTED] table` and `DESCRIBE NAMESPACE [EXTENDED] name`."""
    cursor.index += 1
    if cursor.key() in NAMESPACE and not is_whole_name(cursor):
        cursor.index += 1
        extended = cursor.at("EXTENDED") and not is_whole_name(cursor) and cursor.accept("EXTENDED")
        name, span = read_namespace(cursor)
        cursor.finish()
        return DescribeNamespace(name=name, span=span, extended=extended)
    if cursor.key() in {"FUNCTION", "QUERY", "PROCEDURE"} and not is_whole_name(cursor):
        raise LeftToSpark
    if cursor.at("TABLE") and not is_whole_name(cursor):
        cursor.index += 1
    extended = cursor.key() in {"EXTENDED", "FORMATTED"} and not is_whole_name(cursor)
    cursor.index += extended
    if cursor.source.query_start[cursor.index]:
        raise LeftToSpark
    table = table_name(cursor, reader)
    if not cursor.at_end():
        raise LeftToSpark  # a partition, a column, AS JSON
    return Describe(table=table, extended=extended)


def read_use(cursor: Cursor, _: FragmentReader) -> Use:
    """Read `USE [NAMESPACE | CATALOG] name`."""
    cursor.expect("USE")
    catalog_only = False
    if not is_whole_name(cursor):
        if cursor.key() in NAMESPACE:
            cursor.index += 1
        else:
            catalog_only = cursor.accept("CATALOG")
    name, span = read_namespace(cursor)
    cursor.finish()
    return Use(name=name, span=span, catalog_only=catalog_only)


def read_set_catalog(cursor: Cursor, _: FragmentReader) -> Use:
    """Read `SET CATALOG name`; the name may be a string."""
    cursor.expect("SET", "CATALOG")
    begin = cursor.index
    name = cursor.string("a name") if cursor.at_string() else cursor.name("the name of a catalog")
    span = cursor.span_from(begin)
    if not cursor.at_end():
        raise LeftToSpark
    return Use(name=(name,), span=span, catalog_only=True)


def read_namespace(cursor: Cursor) -> tuple[tuple[str, ...], Span]:
    begin = cursor.index
    return cursor.names("a name"), cursor.span_from(begin)


def is_whole_name(cursor: Cursor) -> bool:
    # USE schema; DESCRIBE table.x: the keyword is the name itself if no name follows it.
    following = cursor.index + 1
    return not cursor.source.is_name(following)


def read_show_filter(cursor: Cursor) -> tuple[tuple[str, ...] | None, str | None]:
    namespace = cursor.names("a namespace") if cursor.accept("FROM") or cursor.accept("IN") else None
    pattern = None
    if cursor.accept("LIKE") or cursor.at_string():
        pattern = cursor.string("a pattern")
    cursor.finish()
    return namespace, pattern
