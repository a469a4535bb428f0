"""Parsed statements: one frozen dataclass for each kind. Pure: no Spark, no Iceberg, no I/O.

Spans are offsets into the text of the whole statement, from 0, so that errors can point at them and fragments can be
cut out and passed to Spark unchanged.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from sqlglot.expressions import Expression

__all__ = [
    "AddColumns",
    "AddPartitionField",
    "AlterAction",
    "AlterColumn",
    "AlterColumns",
    "AlterTable",
    "AnalyzeTable",
    "Assignment",
    "CallArgument",
    "CallStatement",
    "ColumnDefinition",
    "ColumnPosition",
    "ColumnReference",
    "CommentOnNamespace",
    "CreateNamespace",
    "CreateTable",
    "CurveTerm",
    "DeleteAction",
    "DeleteStatement",
    "Describe",
    "DescribeNamespace",
    "DropColumns",
    "DropIdentifierFields",
    "DropNamespace",
    "DropPartitionField",
    "DropReference",
    "DropTable",
    "Explain",
    "Fragment",
    "InsertAction",
    "InsertMode",
    "InsertStatement",
    "MergeStatement",
    "PartitionText",
    "PartitionValue",
    "Query",
    "ReferenceKind",
    "RefreshTable",
    "RenameColumn",
    "RenameTable",
    "ReplacePartitionField",
    "Retention",
    "SetIdentifierFields",
    "SetProperties",
    "SetReference",
    "SetWriteOrder",
    "ShowColumns",
    "ShowCreateTable",
    "ShowNamespaces",
    "ShowPartitions",
    "ShowProperties",
    "ShowTables",
    "Span",
    "Statement",
    "TableReference",
    "TransformTerm",
    "Truncate",
    "UnknownStatement",
    "UnsetProperties",
    "UpdateAction",
    "UpdateStatement",
    "Use",
    "WhenMatched",
    "WhenNotMatched",
    "WhenNotMatchedBySource",
]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of characters of the statement."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReference:
    """A table, view or CTE named somewhere in the statement.

    Attributes:
        parts: The name, outermost part first, without quotes (`("lake", "db", "t")`).
        span: The span of the name and its time travel clause, without the alias.
        alias: The alias, without quotes.
        column_aliases: `AS t (a, b)`: names for its columns.
        version: The operand of `VERSION AS OF ...`: a snapshot id, or the name of a branch or tag, without quotes.
        timestamp: The text of the expression in `TIMESTAMP AS OF ...`.
    """

    parts: tuple[str, ...]
    span: Span
    alias: str | None = None
    column_aliases: tuple[str, ...] = ()
    version: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReference:
    """A column or nested field, by its parts: `t.s.a` is `("t", "s", "a")`."""

    parts: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A part of the statement that Spark evaluates: the text of an expression or a query.

    Attributes:
        text: The text with its comments, without surrounding blanks.
        span: Its span in the statement.
        tables: Tables named in it, in subqueries and FROM clauses, in order of position, without the CTEs that the
            fragment or the statement defines.
        columns: Columns named in it, outside and inside subqueries.
        names: All identifiers in it, lower case. A column whose name is not among them is not read, unless `has_star`.
        has_star: True if it has a star for columns (not `count(*)`, not a multiplication), a NATURAL join, or anything
            else that reads columns without naming them. A quoted name counts as one name, even if it is a pattern (the
            caller checks `spark.sql.parser.quotedRegexColumnNames`).
        has_subquery: True if it contains a query (for an expression: a subquery).
        ast: sqlglot's tree, with offsets from the fragment's start; None if sqlglot cannot read the text or reads it
            differently than Spark. Then `columns` has every name that may be a column.
    """

    text: str
    span: Span
    tables: tuple[TableReference, ...] = ()
    columns: tuple[ColumnReference, ...] = ()
    names: frozenset[str] = frozenset()
    has_star: bool = False
    has_subquery: bool = False
    ast: Expression | None = field(default=None, compare=False, repr=False)


# ---- queries and row-level statements -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """SELECT, WITH ... SELECT, VALUES, TABLE t, FROM t ...: a statement that returns rows and changes nothing."""

    fragment: Fragment


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStatement:
    """`[WITH ...] DELETE FROM target [[AS] alias] [WHERE condition]`.

    Attributes:
        target: The table, with the alias in the statement.
        condition: The condition; None deletes all rows.
        ctes: The text from `WITH` up to `DELETE`.
    """

    target: TableReference
    condition: Fragment | None = None
    ctes: Fragment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`key = value`, or one column of an INSERT action.

    Attributes:
        key: Column or nested field: `("t", "s", "a")`, alias included.
        key_span: The span of the key.
        value: The expression; None for `DEFAULT`.
        value_span: The span of the value.
    """

    key: tuple[str, ...]
    key_span: Span
    value: Fragment | None
    value_span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStatement:
    """`[WITH ...] UPDATE target [[AS] alias] SET assignments [WHERE condition]`."""

    target: TableReference
    assignments: tuple[Assignment, ...]
    condition: Fragment | None = None
    ctes: Fragment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAction:
    """`UPDATE SET ...`; `assignments` is None for `UPDATE SET *`."""

    assignments: tuple[Assignment, ...] | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAction:
    """`DELETE`."""

    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertAction:
    """`INSERT (columns) VALUES (values)`; `assignments` is None for `INSERT *`."""

    assignments: tuple[Assignment, ...] | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenMatched:
    """`WHEN MATCHED [AND condition] THEN UPDATE ... | DELETE`."""

    condition: Fragment | None
    action: UpdateAction | DeleteAction
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenNotMatched:
    """`WHEN NOT MATCHED [BY TARGET] [AND condition] THEN INSERT ...`."""

    condition: Fragment | None
    action: InsertAction
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenNotMatchedBySource:
    """`WHEN NOT MATCHED BY SOURCE [AND condition] THEN UPDATE ... | DELETE`."""

    condition: Fragment | None
    action: UpdateAction | DeleteAction
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStatement:
    """`[WITH ...] MERGE [WITH SCHEMA EVOLUTION] INTO target USING source ON condition WHEN ...`.

    Attributes:
        target: The table, with the alias in the statement.
        source: The source, without its alias: a table name, a query in parentheses, VALUES ....
        source_alias: The alias of the source; for a bare table without one, None.
        source_column_aliases: `AS s (a, b)`.
        condition: The ON condition.
        matched: Clauses in the order of the statement.
        not_matched: Clauses in the order of the statement.
        not_matched_by_source: Clauses in the order of the statement.
        with_schema_evolution: True for `WITH SCHEMA EVOLUTION`.
        ctes: The text from `WITH` up to `MERGE`.
    """

    target: TableReference
    source: Fragment
    source_alias: str | None
    source_column_aliases: tuple[str, ...] = ()
    condition: Fragment
    matched: tuple[WhenMatched, ...] = ()
    not_matched: tuple[WhenNotMatched, ...] = ()
    not_matched_by_source: tuple[WhenNotMatchedBySource, ...] = ()
    with_schema_evolution: bool = False
    ctes: Fragment | None = None


class InsertMode(StrEnum):
    """The rows that an INSERT replaces: none, partitions, or those that match a condition."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    REPLACE_WHERE = "replace where"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionValue:
    """One entry of `PARTITION (a = 1, b)`; `value` is None for a dynamic column."""

    column: str
    value: Fragment | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertStatement:
    """`[WITH ...] INSERT INTO | OVERWRITE target [PARTITION (...)] [(columns) | BY NAME] query`.

    Attributes:
        target: The table.
        mode: INTO, OVERWRITE, or INTO ... REPLACE WHERE.
        partition: Entries of the PARTITION clause.
        columns: The column list; empty if there is none.
        by_name: True for `BY NAME`.
        replace_where: The condition of REPLACE WHERE.
        query: The query for the rows: SELECT, VALUES, TABLE, FROM ....
        ctes: The text from a leading `WITH` up to `INSERT`.
        column_spans: The spans of `columns`.
        options: `WITH ('key' = 'value')` after the target: write options.
        with_schema_evolution: True for `INSERT WITH SCHEMA EVOLUTION`.
    """

    target: TableReference
    mode: InsertMode
    partition: tuple[PartitionValue, ...] = ()
    columns: tuple[str, ...] = ()
    column_spans: tuple[Span, ...] = ()
    by_name: bool = False
    replace_where: Fragment | None = None
    query: Fragment
    ctes: Fragment | None = None
    options: tuple[tuple[str, str], ...] = ()
    with_schema_evolution: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """`TRUNCATE TABLE target [PARTITION (a = 1, ...)]`.

    Attributes:
        target: The table.
        partition: The values of the partitions to delete; empty for all rows.
    """

    target: TableReference
    partition: tuple[PartitionValue, ...] = ()


# ---- tables and namespaces ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPosition:
    """`FIRST` (then `after` is None) or `AFTER column`."""

    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """One column of CREATE TABLE or ADD COLUMNS.

    Attributes:
        path: `("s", "a")` adds the field `a` to the struct `s`.
        data_type: The text of the Spark type (`struct<a: int NOT NULL>`, `timestamp_ntz` ...).
        span: The span of the definition.
        required: True for `NOT NULL`.
        default: The text of the DEFAULT expression.
        comment: The comment.
        position: The position of the new column.
    """

    path: tuple[str, ...]
    data_type: str
    span: Span
    required: bool = False
    default: str | None = None
    comment: str | None = None
    position: ColumnPosition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformTerm:
    """A term of PARTITIONED BY, partition field DDL or WRITE ORDERED BY: `bucket(4, id)`, `days(ts)`, `dep`.

    Attributes:
        transform: Lower case, plural forms folded: `identity`, `bucket`, `truncate`, `year`, `month`, `day`, `hour`,
            `void`.
        column: The source column, outermost first.
        argument: N of `bucket(N, c)`, W of `truncate(W, c)`.
        name: `... AS name`.
        span: Its span.
        ascending: Direction, for a sort order.
        nulls_first: Null order, for a sort order.
    """

    transform: str
    column: tuple[str, ...]
    argument: int | None = None
    name: str | None = None
    span: Span
    ascending: bool = True
    nulls_first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveTerm:
    """A space-filling curve in a sort order of `rewrite_data_files`: `zorder(a, b.c)`, `hilbert(a, b)`.

    Attributes:
        curve: `zorder` or `hilbert`.
        columns: The columns, each a path.
    """

    curve: str
    columns: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """`CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name [(columns)] [USING p [OPTIONS (...)]] ... [AS query]`.

    `CREATE TABLE [IF NOT EXISTS] name LIKE like ...` takes the columns, partitions and write order of another table.

    Hive's form, `PARTITIONED BY (dep string)`, adds a column and partitions by it: it is in both `columns` and
    `partitioning`.
    """

    table: TableReference
    columns: tuple[ColumnDefinition, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    replace_only: bool = False
    provider: str | None = None
    partitioning: tuple[TransformTerm, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    comment: str | None = None
    location: str | None = None
    query: Fragment | None = None
    like: TableReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    """`DROP TABLE [IF EXISTS] name [PURGE]`."""

    table: TableReference
    if_exists: bool = False
    purge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNamespace:
    """`CREATE NAMESPACE | SCHEMA | DATABASE [IF NOT EXISTS] name [COMMENT c] [LOCATION l] [WITH PROPERTIES (...)]`."""

    name: tuple[str, ...]
    span: Span
    if_not_exists: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    comment: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNamespace:
    """`DROP NAMESPACE | SCHEMA | DATABASE [IF EXISTS] name [RESTRICT | CASCADE]`."""

    name: tuple[str, ...]
    span: Span
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentOnNamespace:
    """`COMMENT ON NAMESPACE | SCHEMA | DATABASE name IS text`; `comment` is None for NULL."""

    name: tuple[str, ...]
    span: Span
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTables:
    """`SHOW TABLES [FROM | IN namespace] [LIKE pattern]`.

    Attributes:
        namespace: The namespace of the tables; None for the current one.
        pattern: A pattern for the names of the tables.
        extended: True for `SHOW TABLE EXTENDED ... LIKE pattern`, which returns details of each table.
    """

    namespace: tuple[str, ...] | None = None
    pattern: str | None = None
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowNamespaces:
    """`SHOW NAMESPACES | SCHEMAS | DATABASES [FROM | IN parent] [LIKE pattern]`."""

    parent: tuple[str, ...] | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowProperties:
    """`SHOW TBLPROPERTIES table [(key)]`."""

    table: TableReference
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowColumns:
    """`SHOW COLUMNS FROM | IN table [FROM | IN namespace]`; the table's name includes the namespace."""

    table: TableReference


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionText:
    """`name = constant` of SHOW PARTITIONS: the value of a partition field as text, None for NULL."""

    name: str
    text: str | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowPartitions:
    """`SHOW PARTITIONS table [PARTITION (name = constant, ...)]`."""

    table: TableReference
    partition: tuple[PartitionText, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshTable:
    """`REFRESH TABLE table`."""

    table: TableReference


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeTable:
    """`ANALYZE TABLE table COMPUTE STATISTICS [NOSCAN | FOR COLUMNS name, ... | FOR ALL COLUMNS]`.

    Attributes:
        table: The table.
        columns: The columns to analyze, dotted for fields of structs; None for all.
        of_columns: Whether the statement is about columns; without FOR it is not.
    """

    table: TableReference
    columns: tuple[str, ...] | None = None
    of_columns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateTable:
    """`SHOW CREATE TABLE table`."""

    table: TableReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """`DESCRIBE | DESC [TABLE] [EXTENDED | FORMATTED] table`."""

    table: TableReference
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeNamespace:
    """`DESCRIBE NAMESPACE | SCHEMA | DATABASE [EXTENDED] name`."""

    name: tuple[str, ...]
    span: Span
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """`USE [NAMESPACE | SCHEMA | DATABASE] name`; `USE CATALOG name` and `SET CATALOG name` name a catalog only."""

    name: tuple[str, ...]
    span: Span
    catalog_only: bool = False


# ---- ALTER TABLE ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties:
    """`SET TBLPROPERTIES (k = v, ...)`."""

    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsetProperties:
    """`UNSET TBLPROPERTIES [IF EXISTS] (k, ...)`."""

    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumns:
    """`ADD COLUMN[S] ...`."""

    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumns:
    """`DROP COLUMN[S] [IF EXISTS] ...`."""

    columns: tuple[tuple[str, ...], ...]
    spans: tuple[Span, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    """`RENAME COLUMN a.b TO c`."""

    column: tuple[str, ...]
    new_name: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterColumn:
    """`ALTER | CHANGE COLUMN c [TYPE t] [COMMENT s] [FIRST | AFTER x] [SET | DROP NOT NULL] [SET | DROP DEFAULT]`.

    Attributes:
        column: The column or field.
        span: The span of its name.
        data_type: The new type.
        comment: The new comment.
        drop_comment: True if the comment is removed: `COMMENT ON COLUMN t.c IS NULL`.
        position: The new position.
        required: True for SET NOT NULL, False for DROP NOT NULL.
        default: The text of the expression of SET DEFAULT.
        drop_default: True for DROP DEFAULT.
    """

    column: tuple[str, ...]
    span: Span
    data_type: str | None = None
    comment: str | None = None
    drop_comment: bool = False
    position: ColumnPosition | None = None
    required: bool | None = None
    default: str | None = None
    drop_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterColumns:
    """`ALTER COLUMN a ..., b ...`: several columns (a single one is an `AlterColumn`)."""

    columns: tuple[AlterColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionField:
    """`ADD PARTITION FIELD term [AS name]`."""

    term: TransformTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartitionField:
    """`DROP PARTITION FIELD term-or-name`: a bare name may be a field's name or an identity source."""

    term: TransformTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePartitionField:
    """`REPLACE PARTITION FIELD term-or-name WITH term [AS name]`."""

    old: TransformTerm
    new: TransformTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWriteOrder:
    """`WRITE [DISTRIBUTED BY PARTITION] [LOCALLY] ORDERED BY ... | UNORDERED`.

    Attributes:
        terms: The sort order; empty for UNORDERED.
        distributed_by_partition: True for `DISTRIBUTED BY PARTITION`.
        locally: True for `LOCALLY`.
        unordered: True for `UNORDERED`.
    """

    terms: tuple[TransformTerm, ...] = ()
    distributed_by_partition: bool = False
    locally: bool = False
    unordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetIdentifierFields:
    """`SET IDENTIFIER FIELDS a, b.c`: all identifier fields of the table, and the spans of their names."""

    columns: tuple[tuple[str, ...], ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIdentifierFields:
    """`DROP IDENTIFIER FIELDS a, b.c`."""

    columns: tuple[tuple[str, ...], ...]
    spans: tuple[Span, ...]


class ReferenceKind(StrEnum):
    """A snapshot reference: a branch, to which snapshots can be added, or a tag."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a branch or tag and its snapshots are kept; None for the settings of the table.

    Attributes:
        max_ref_age_ms: `RETAIN n DAYS`, the age of its snapshot at which a branch or tag is removed, in milliseconds.
        min_snapshots_to_keep: `WITH SNAPSHOT RETENTION n SNAPSHOTS`, of a branch.
        max_snapshot_age_ms: `WITH SNAPSHOT RETENTION n DAYS`, of a branch, in milliseconds.
    """

    max_ref_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReference:
    """`CREATE [OR REPLACE] | REPLACE BRANCH | TAG [IF NOT EXISTS] name [AS OF VERSION n] [RETAIN ...] [WITH ...]`.

    Attributes:
        kind: A branch or a tag.
        name: Its name.
        span: The span of the name.
        create: True for `CREATE`.
        replace: True for `REPLACE` and `CREATE OR REPLACE`.
        if_not_exists: True for `IF NOT EXISTS`.
        snapshot_id: The snapshot of `AS OF VERSION`; None for the current one.
        snapshot_span: The span of its number.
        retention: `RETAIN` and `WITH SNAPSHOT RETENTION`.
    """

    kind: ReferenceKind
    name: str
    span: Span
    create: bool = False
    replace: bool = False
    if_not_exists: bool = False
    snapshot_id: int | None = None
    snapshot_span: Span | None = None
    retention: Retention = field(default_factory=Retention)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReference:
    """`DROP BRANCH | TAG [IF EXISTS] name`."""

    kind: ReferenceKind
    name: str
    span: Span
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable:
    """`RENAME TO name`."""

    new_name: tuple[str, ...]
    span: Span


AlterAction = (
    SetProperties
    | UnsetProperties
    | AddColumns
    | DropColumns
    | RenameColumn
    | AlterColumn
    | AlterColumns
    | AddPartitionField
    | DropPartitionField
    | ReplacePartitionField
    | SetWriteOrder
    | SetIdentifierFields
    | DropIdentifierFields
    | SetReference
    | DropReference
    | RenameTable
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    """`ALTER TABLE table action`."""

    table: TableReference
    action: AlterAction


# ---- procedures -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CallArgument:
    """`[name =>] value`.

    Attributes:
        name: Lower case; None for a positional argument.
        value: A constant expression.
        span: The span of the name and the value.
    """

    name: str | None
    value: Fragment
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStatement:
    """`CALL [catalog.]system.procedure([name =>] value, ...)`.

    Attributes:
        catalog: The catalog, or None.
        procedure: The name of the procedure without namespace, lower case.
        span: The span of the name.
        arguments: The arguments, positional ones first.
    """

    catalog: str | None
    procedure: str
    span: Span
    arguments: tuple[CallArgument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownStatement:
    """Any other statement, which goes to Spark unchanged."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """`EXPLAIN [EXTENDED | CODEGEN | COST | FORMATTED] statement`.

    Attributes:
        statement: The explained statement; its spans are offsets in the whole text.
        mode: Lower case, empty for the plain form.
        prefix: The text before the explained statement, such as `EXPLAIN FORMATTED `.
    """

    statement: "Statement"
    mode: str = ""
    prefix: str = ""


Statement = (
    Query
    | DeleteStatement
    | UpdateStatement
    | MergeStatement
    | InsertStatement
    | Truncate
    | CreateTable
    | DropTable
    | CreateNamespace
    | DropNamespace
    | ShowTables
    | ShowNamespaces
    | ShowProperties
    | ShowCreateTable
    | ShowColumns
    | ShowPartitions
    | RefreshTable
    | AnalyzeTable
    | CommentOnNamespace
    | Describe
    | DescribeNamespace
    | Use
    | AlterTable
    | CallStatement
    | Explain
    | UnknownStatement
)
