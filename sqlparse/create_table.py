"""Read CREATE TABLE, CREATE OR REPLACE TABLE, REPLACE TABLE and DROP TABLE. Pure; driver.

Input: a cursor at the verb. Output: the statement, or a `SqlError`. Statements with clauses that only Spark's own
tables have (STORED AS, CLUSTERED BY ...) go to Spark.
"""

from dataclasses import dataclass, field

from dml.sqlparse.cursor import Cursor, LeftToSpark
from dml.sqlparse.definitions import read_column, read_properties, read_transform
from dml.sqlparse.fragments import FragmentReader, table_name
from dml.sqlparse.statements import ColumnDefinition, CreateTable, DropTable, Fragment, TableReference, TransformTerm
from dml.sqlparse.tokens import words

__all__ = ["read_create_table", "read_drop_table"]

SPARK_ONLY = words("STORED ROW CLUSTERED CLUSTER SKEWED DEFAULT WITH SORTED")
CONSTRAINTS = frozenset(["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"])
QUERY = frozenset({"SELECT", "VALUES", "TABLE", "FROM", "WITH", "("})


@dataclass(slots=True)
class Clauses:
    provider: str | None = None
    partitioning: tuple[TransformTerm, ...] | None = None
    added: tuple[ColumnDefinition, ...] = ()
    properties: tuple[tuple[str, str], ...] | None = None
    options: tuple[tuple[str, str], ...] | None = None
    comment: str | None = None
    location: str | None = None
    seen: set[str] = field(default_factory=set)


def read_create_table(cursor: Cursor, reader: FragmentReader) -> CreateTable:
    """Read `CREATE [OR REPLACE] TABLE [IF NOT EXISTS] | REPLACE TABLE name ...`."""
    replace_only = cursor.accept("REPLACE", "TABLE")
    or_replace = False
    if not replace_only:
        cursor.expect("CREATE")
        or_replace = cursor.accept("OR", "REPLACE")
        cursor.expect("TABLE")
    if_not_exists = cursor.at("IF")
    if if_not_exists:
        if or_replace or replace_only:
            cursor.fail(expected="the name of a table", hint="A table that is replaced needs no IF NOT EXISTS.")
        cursor.expect("IF", "NOT", "EXISTS")
    table = table_name(cursor, reader)
    if cursor.at("LIKE") and not or_replace and not replace_only:
        return read_create_like(cursor, reader, table, if_not_exists=if_not_exists)
    columns = read_columns(cursor) if cursor.at("(") and not cursor.source.query_start[cursor.index] else ()
    clauses = read_clauses(cursor)
    query = read_query(cursor, reader)
    if query is not None and columns:
        cursor.fail_at(
            query.span,
            "A table is created from a query or from a list of columns, not from both",
            hint="Drop the list of columns, or create the table first and INSERT INTO it.",
        )
    if query is None and not columns and not clauses.added and (or_replace or replace_only):
        cursor.fail(expected="the columns of the table or AS query")
    return CreateTable(
        table=table,
        columns=columns + clauses.added,
        if_not_exists=if_not_exists,
        or_replace=or_replace,
        replace_only=replace_only,
        provider=clauses.provider,
        partitioning=clauses.partitioning or (),
        properties=clauses.properties or (),
        options=clauses.options or (),
        comment=clauses.comment,
        location=clauses.location,
        query=query,
    )


def read_create_like(
    cursor: Cursor, reader: FragmentReader, table: TableReference, *, if_not_exists: bool
) -> CreateTable:
    cursor.expect("LIKE")
    like = table_name(cursor, reader)
    begin = cursor.index
    clauses = read_clauses(cursor)
    if clauses.partitioning is not None or clauses.options is not None or clauses.comment is not None:
        cursor.fail_at(cursor.span_from(begin), "Only USING, LOCATION and TBLPROPERTIES can follow the table of LIKE")
    cursor.finish()
    return CreateTable(
        table=table,
        if_not_exists=if_not_exists,
        provider=clauses.provider,
        properties=clauses.properties or (),
        location=clauses.location,
        like=like,
    )


def read_drop_table(cursor: Cursor, reader: FragmentReader) -> DropTable:
    """Read `DROP TABLE [IF EXISTS] name [PURGE]`."""
    cursor.expect("DROP", "TABLE")
    if_exists = cursor.at("IF")
    if if_exists:
        cursor.expect("IF", "EXISTS")
    table = table_name(cursor, reader)
    purge = cursor.accept("PURGE")
    cursor.finish()
    return DropTable(table=table, if_exists=if_exists, purge=purge)


def read_columns(cursor: Cursor) -> tuple[ColumnDefinition, ...]:
    close = cursor.open_bracket("the columns")
    columns: list[ColumnDefinition] = []
    while cursor.index != close or not columns:
        if cursor.key() in CONSTRAINTS and cursor.key(1) in {"KEY", "("} | CONSTRAINTS:
            raise LeftToSpark
        columns.append(read_column(cursor, nested=False, positioned=False))
        if not cursor.accept(","):
            break
        if cursor.index == close:
            cursor.fail(expected="the name of a column")
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    return tuple(columns)


def read_clauses(cursor: Cursor) -> Clauses:
    clauses = Clauses()
    while True:
        key = cursor.key()
        if key in clauses.seen:
            cursor.fail(f"The clause {key} is given twice")
        clauses.seen.add(key)
        if cursor.accept("USING"):
            clauses.provider = ".".join(cursor.names("a table format"))
        elif cursor.accept("PARTITIONED"):
            cursor.expect("BY")
            clauses.partitioning, clauses.added = read_partitioning(cursor)
        elif cursor.accept("TBLPROPERTIES"):
            clauses.properties = read_properties(cursor)
        elif key == "OPTIONS" and (clauses.provider or "iceberg").lower() != "iceberg":
            raise LeftToSpark
        elif cursor.accept("OPTIONS"):
            clauses.options = read_properties(cursor)
        elif cursor.accept("COMMENT"):
            clauses.comment = cursor.string("a comment")
        elif cursor.accept("LOCATION"):
            clauses.location = cursor.string("a location")
        elif key in SPARK_ONLY and not (key == "WITH" and cursor.source.query_start[cursor.index]):
            raise LeftToSpark
        else:
            return clauses


def read_partitioning(cursor: Cursor) -> tuple[tuple[TransformTerm, ...], tuple[ColumnDefinition, ...]]:
    close = cursor.open_bracket("the partitioning")
    terms, added = [], []
    while True:
        begin = cursor.index
        if cursor.at_name() and cursor.source.is_name(begin + 1):
            column = read_column(cursor, nested=False, positioned=False)
            added.append(column)
            terms.append(TransformTerm(transform="identity", column=column.path, span=column.span))
        else:
            terms.append(read_transform(cursor))
        if not cursor.accept(","):
            break
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    return tuple(terms), tuple(added)


def read_query(cursor: Cursor, reader: FragmentReader) -> Fragment | None:
    explicit = cursor.accept("AS")
    if cursor.at_end() and not explicit:
        return None
    if cursor.key() not in QUERY:
        clauses = (
            "USING, OPTIONS, PARTITIONED BY, TBLPROPERTIES, COMMENT, LOCATION, AS query or the end of the statement"
        )
        cursor.fail(expected="a query" if explicit else clauses)
    begin, end = cursor.index, cursor.source.end
    cursor.index = end
    return reader.query(begin, end)
