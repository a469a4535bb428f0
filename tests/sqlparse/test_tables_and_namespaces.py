"""CREATE, ALTER, DROP, SHOW, DESCRIBE and USE."""

from dataclasses import replace

import pytest

from dml.errors import SqlError
from dml.sqlparse import (
    AddColumns,
    AddPartitionField,
    AlterColumn,
    AlterColumns,
    AlterTable,
    AnalyzeTable,
    ColumnPosition,
    CommentOnNamespace,
    CreateNamespace,
    CreateTable,
    Describe,
    DescribeNamespace,
    DropColumns,
    DropIdentifierFields,
    DropNamespace,
    DropPartitionField,
    DropReference,
    DropTable,
    RenameColumn,
    RenameTable,
    ReplacePartitionField,
    Retention,
    SetIdentifierFields,
    SetProperties,
    SetReference,
    SetWriteOrder,
    ShowCreateTable,
    ShowNamespaces,
    ShowPartitions,
    ShowProperties,
    ShowTables,
    UnknownStatement,
    UnsetProperties,
    Use,
    parse,
    unquoted,
)


def terms(found):
    return [(term.transform, ".".join(term.column), term.argument) for term in found]


def test_create_table_with_every_clause_is_read():
    sql = """CREATE TABLE IF NOT EXISTS lake.db.t (
      id BIGINT NOT NULL COMMENT 'the ''key''',
      m MAP<STRING, ARRAY<STRUCT<a: INT NOT NULL, b: DECIMAL(10, 2)>>>,
      d DECIMAL(10, 2) DEFAULT 1 + 2 COMMENT "x" NOT NULL,
      ts TIMESTAMP_NTZ DEFAULT current_timestamp(), `date` DATE, i INTERVAL DAY TO SECOND
    ) USING iceberg PARTITIONED BY (bucket(16, id), days(ts), truncate(d, 3), month(`date`), id, s.x)
    TBLPROPERTIES ('a.b' = 'c', 'g' 'h', write.mode 'd', n = 1, m 1.50, t = TRUE, neg = -2, 'e' == "f")
    COMMENT 'table' LOCATION 's3://x'"""
    table = parse(sql)
    assert isinstance(table, CreateTable)
    assert table.table.parts == ("lake", "db", "t")
    assert [(c.path[0], c.data_type, c.required, c.default, c.comment) for c in table.columns] == [
        ("id", "BIGINT", True, None, "the 'key'"),
        ("m", "MAP<STRING, ARRAY<STRUCT<a: INT NOT NULL, b: DECIMAL(10, 2)>>>", False, None, None),
        ("d", "DECIMAL(10, 2)", True, "1 + 2", "x"),
        ("ts", "TIMESTAMP_NTZ", False, "current_timestamp()", None),
        ("date", "DATE", False, None, None),
        ("i", "INTERVAL DAY TO SECOND", False, None, None),
    ]
    assert terms(table.partitioning) == [
        ("bucket", "id", 16),
        ("day", "ts", None),
        ("truncate", "d", 3),
        ("month", "date", None),
        ("identity", "id", None),
        ("identity", "s.x", None),
    ]
    assert table.properties == (
        ("a.b", "c"),
        ("g", "h"),
        ("write.mode", "d"),
        ("n", "1"),
        ("m", "1.50"),
        ("t", "true"),
        ("neg", "-2"),
        ("e", "f"),
    )
    assert (table.provider, table.comment, table.location) == ("iceberg", "table", "s3://x")
    assert table.if_not_exists
    column = table.columns[2]
    assert sql[column.span.start : column.span.end].startswith("d DECIMAL(10, 2) DEFAULT")


@pytest.mark.parametrize(
    ("sql", "replaces", "replace_only", "query"),
    [
        ("create table t using iceberg as select * from u", False, False, "select * from u"),
        ("create or replace table t as (select 1)", True, False, "(select 1)"),
        (
            "replace table t as with c as (select 1) select * from c",
            False,
            True,
            "with c as (select 1) select * from c",
        ),
        ("create table t select 1", False, False, "select 1"),
        ("create table t partitioned by (a) as table u", False, False, "table u"),
        ("create or replace table t (a int)", True, False, None),
    ],
)
def test_tables_are_created_and_replaced_from_queries(sql, replaces, replace_only, query):
    table = parse(sql)
    assert (table.or_replace, table.replace_only) == (replaces, replace_only)
    assert (table.query.text if table.query else None) == query


def test_hive_partitioning_adds_a_column():
    table = parse("create table t (a int) partitioned by (dep string comment 'x', a)")
    assert [column.path for column in table.columns] == [("a",), ("dep",)]
    assert terms(table.partitioning) == [("identity", "dep", None), ("identity", "a", None)]


@pytest.mark.parametrize(
    "sql",
    [
        "create table t (a int) stored as parquet",
        "refresh 'path'",
        "create table t (a int generated always as (1))",
        "create table t (a int, primary key (a))",
        "create external table t (a int)",
        "create temporary view v as select 1",
        "create table t (a int) clustered by (a) into 4 buckets",
        "alter table t set location 'x'",
        "alter table t add partition (a = 1)",
        "alter table t replace columns (a int)",
        "alter view v as select 1",
        "show table extended like 'a' partition (k = 1)",
        "show functions",
        "describe function f",
        "describe t c",
        "desc table t as json",
        "show create table t as serde",
        "drop view v",
    ],
)
def test_what_only_spark_does_is_left_to_it(sql):
    assert parse(sql) == UnknownStatement(text=sql)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("set tblproperties ('a'='b', c.d = 1)", SetProperties(properties=(("a", "b"), ("c.d", "1")))),
        ("unset tblproperties if exists ('a', b.c)", UnsetProperties(keys=("a", "b.c"), if_exists=True)),
        ("rename to db.u", RenameTable(new_name=("db", "u"), span=None)),
        ("rename column a.b to c", RenameColumn(column=("a", "b"), new_name="c", span=None)),
        ("drop columns if exists (a, b.c)", DropColumns(columns=(("a",), ("b", "c")), spans=(), if_exists=True)),
        ("drop column a", DropColumns(columns=(("a",),), spans=())),
        ("alter column a.b type decimal(10, 2)", AlterColumn(column=("a", "b"), span=None, data_type="decimal(10, 2)")),
        ("alter a comment 'x'", AlterColumn(column=("a",), span=None, comment="x")),
        ("alter column a first", AlterColumn(column=("a",), span=None, position=ColumnPosition())),
        ("alter column a after `b c`", AlterColumn(column=("a",), span=None, position=ColumnPosition(after="b c"))),
        ("alter column a set not null", AlterColumn(column=("a",), span=None, required=True)),
        ("alter column a drop not null", AlterColumn(column=("a",), span=None, required=False)),
        ("alter column a set default 1 + 1", AlterColumn(column=("a",), span=None, default="1 + 1")),
        ("alter column a drop default", AlterColumn(column=("a",), span=None, drop_default=True)),
        (
            "change column a a bigint comment 'x' first",
            AlterColumn(column=("a",), span=None, data_type="bigint", comment="x", position=ColumnPosition()),
        ),
        (
            "alter column a type bigint comment 'x' after b",
            AlterColumn(column=("a",), span=None, data_type="bigint", comment="x", position=ColumnPosition(after="b")),
        ),
        ("set identifier fields a, b.`c d`", SetIdentifierFields(columns=(("a",), ("b", "c d")), spans=())),
        ("drop identifier fields b.c", DropIdentifierFields(columns=(("b", "c"),), spans=())),
        ("write unordered", SetWriteOrder(unordered=True)),
        ("write distributed by partition", SetWriteOrder(distributed_by_partition=True)),
    ],
)
def test_alter_table_is_read(action, expected):
    statement = parse(f"alter table db.t {action}")
    assert isinstance(statement, AlterTable)
    assert statement.table.parts == ("db", "t")
    found = statement.action
    assert type(found) is type(expected)
    for name in expected.__slots__:
        if name not in {"span", "spans"}:
            assert getattr(found, name) == getattr(expected, name)


def test_columns_are_added_with_paths_and_positions():
    action = parse(
        "alter table t add columns (a.b int not null after c, d array<string> default array() comment 'x' first)"
    ).action
    assert isinstance(action, AddColumns)
    first, second = action.columns
    assert (first.path, first.data_type, first.required, first.position) == (
        ("a", "b"),
        "int",
        True,
        ColumnPosition(after="c"),
    )
    assert (second.default, second.comment, second.position) == ("array()", "x", ColumnPosition())
    assert len(parse("alter table t add column x string, y int").action.columns) == 2


def test_several_columns_are_altered_at_once():
    action = parse("alter table t alter column a type bigint, b.c drop not null, d comment 'x'").action
    assert isinstance(action, AlterColumns)
    assert [column.column for column in action.columns] == [("a",), ("b", "c"), ("d",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bucket(16, id)", ("bucket", "id", 16)),
        ("BUCKET(id, 16)", ("bucket", "id", 16)),
        ("truncate(4, s.a)", ("truncate", "s.a", 4)),
        *(
            (f"{name}(ts)", (folded, "ts", None))
            for folded, names in {
                "year": ["year", "years"],
                "month": ["month", "months"],
                "day": ["day", "days", "date"],
                "hour": ["hour", "hours", "date_hour"],
                "identity": ["identity"],
                "void": ["void"],
            }.items()
            for name in names
        ),
        ("days", ("identity", "days", None)),
    ],
)
def test_transforms_are_folded_to_their_names_in_the_format(text, expected):
    action = parse(f"alter table t add partition field {text} as p").action
    assert isinstance(action, AddPartitionField)
    assert (*terms([action.term]), action.term.name) == (expected, "p")
    assert terms([parse(f"alter table t drop partition field {text}").action.term]) == [expected]


def test_partition_fields_are_replaced():
    action = parse("alter table t replace partition field ts_day with hours(ts) as h").action
    assert isinstance(action, ReplacePartitionField)
    assert (terms([action.old, action.new]), action.new.name) == (
        [("identity", "ts_day", None), ("hour", "ts", None)],
        "h",
    )
    assert isinstance(parse("alter table t drop partition field days(ts)").action, DropPartitionField)


@pytest.mark.parametrize(
    "text",
    [
        "locally ordered by {}",
        "ordered by ({})",
        "distributed by partition ordered by {}",
        "distributed by partition locally ordered by {}",
        "locally ordered by {} distributed by partition",
    ],
)
def test_write_orders_are_read(text):
    action = parse(
        "alter table t write " + text.format("a, b desc, bucket(4, c) asc nulls last, d desc nulls first")
    ).action
    assert [(term.ascending, term.nulls_first) for term in action.terms] == [
        (True, True),
        (False, False),
        (True, False),
        (False, True),
    ]
    assert action.locally is ("locally" in text)
    assert action.distributed_by_partition is ("distributed" in text)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("create branch b", SetReference(kind="branch", name="b", span=None, create=True)),
        (
            "create branch if not exists `a b` as of version 17L",
            SetReference(kind="branch", name="a b", span=None, create=True, if_not_exists=True, snapshot_id=17),
        ),
        (
            "create or replace branch b retain 2 days with snapshot retention 3 snapshots 90 minutes",
            SetReference(
                kind="branch",
                name="b",
                span=None,
                create=True,
                replace=True,
                retention=Retention(max_ref_age_ms=172_800_000, min_snapshots_to_keep=3, max_snapshot_age_ms=5_400_000),
            ),
        ),
        (
            "replace branch b with snapshot retention 1 snapshots",
            SetReference(
                kind="branch", name="b", span=None, replace=True, retention=Retention(min_snapshots_to_keep=1)
            ),
        ),
        (
            "replace branch b with snapshot retention 1 hours",
            SetReference(
                kind="branch", name="b", span=None, replace=True, retention=Retention(max_snapshot_age_ms=3_600_000)
            ),
        ),
        (
            "replace tag v1 as of version 9223372036854775807 retain 5 minutes",
            SetReference(
                kind="tag",
                name="v1",
                span=None,
                replace=True,
                snapshot_id=2**63 - 1,
                retention=Retention(max_ref_age_ms=300_000),
            ),
        ),
        ("drop branch if exists b", DropReference(kind="branch", name="b", span=None, if_exists=True)),
        ("drop tag v1", DropReference(kind="tag", name="v1", span=None)),
    ],
)
def test_branches_and_tags_are_read(action, expected):
    sql = f"alter table db.t {action}"
    found = parse(sql).action
    assert unquoted(sql[found.span.start : found.span.end]) == expected.name
    spans = {name: None for name in ("span", "snapshot_span") if hasattr(found, name)}
    assert replace(found, **spans) == expected


@pytest.mark.parametrize("word", ["namespace", "schema", "DATABASE"])
def test_namespaces_are_created_dropped_and_described(word):
    created = parse(f"create {word} if not exists a.b comment 'c' location 'l' with properties ('k' = 'v')")
    assert isinstance(created, CreateNamespace)
    assert (created.name, created.if_not_exists, created.comment, created.location) == (("a", "b"), True, "c", "l")
    assert created.properties == (("k", "v"),)
    dropped = parse(f"drop {word} if exists a.b cascade")
    assert isinstance(dropped, DropNamespace)
    assert (dropped.name, dropped.if_exists, dropped.cascade) == (("a", "b"), True, True)
    described = parse(f"describe {word} extended a.b")
    assert isinstance(described, DescribeNamespace)
    assert (described.name, described.extended) == (("a", "b"), True)


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("show columns in t", ("t",)),
        ("show columns from t from a.b", ("a", "b", "t")),
        ("show columns from b.t in a.b", ("a", "b", "t")),
        ("show columns from a.b.t in b", ("a", "b", "t")),
        ("refresh table b.t", ("b", "t")),
        ("show partitions b.t", ("b", "t")),
    ],
)
def test_tables_that_are_shown_are_named(sql, parts):
    assert parse(sql).table.parts == parts


def test_partitions_are_named_by_text():
    found = parse("show partitions t partition (a = 'x' 'y', b = -1, `c d` = DATE '2024-01-01', e = null, f = TRUE)")
    assert isinstance(found, ShowPartitions)
    assert [(entry.name, entry.text) for entry in found.partition] == [
        ("a", "xy"),
        ("b", "-1"),
        ("c d", "2024-01-01"),
        ("e", None),
        ("f", "true"),
    ]
    truncated = parse("truncate table a.t partition (k = 1 + 1, d = 'x')")
    assert [(entry.column, entry.value.text) for entry in truncated.partition] == [("k", "1 + 1"), ("d", "'x'")]


def test_analyze_names_columns_or_none():
    for text, columns, of_columns in (
        ("analyze table c.db.t compute statistics;", None, False),
        ("ANALYZE TABLE t COMPUTE STATISTICS noscan", None, False),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS", None, True),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS a, `b c`, s.f", ("a", "b c", "s.f"), True),
    ):
        found = parse(text)
        assert isinstance(found, AnalyzeTable)
        assert (found.columns, found.of_columns) == (columns, of_columns)
    for text, message in (
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS", "column"),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS a,", "column"),
        ("ANALYZE TABLE t COMPUTE STATISTICS SCAN", "SCAN"),
        ("ANALYZE TABLE t PARTITION (p = 1) COMPUTE STATISTICS", "all partitions"),
    ):
        with pytest.raises(SqlError, match=message):
            parse(text)


def test_comments_are_read():
    assert parse("comment on table a.t is 'x'").action == SetProperties(properties=(("comment", "x"),))
    assert parse("comment on table a.t is null").action == UnsetProperties(keys=("comment",))
    for word in ("namespace", "schema", "database"):
        found = parse(f"comment on {word} a.b is null")
        assert isinstance(found, CommentOnNamespace)
        assert (found.name, found.comment) == (("a", "b"), None)


def test_create_table_like_is_read():
    found = parse("create table if not exists a.t like b.u using iceberg location 'l' tblproperties (k = 'v')")
    assert isinstance(found, CreateTable)
    assert (found.table.parts, found.like.parts, found.if_not_exists) == (("a", "t"), ("b", "u"), True)
    assert (found.provider, found.location, found.properties) == ("iceberg", "l", (("k", "v"),))
    assert parse("create table like (a int)").like is None


def test_show_describe_drop_and_use_are_read():
    assert parse("show tables") == ShowTables()
    assert parse("show tables from a.b like 'x*'") == ShowTables(namespace=("a", "b"), pattern="x*")
    assert parse("show tables in a 'x'") == ShowTables(namespace=("a",), pattern="x")
    assert parse("show table extended like '*'") == ShowTables(pattern="*", extended=True)
    extended = parse("/* dbt */ show table extended in a.b like 'x*|y'")
    assert extended == ShowTables(namespace=("a", "b"), pattern="x*|y", extended=True)
    partition = "show table extended in a like 'x' partition (k = 1)"
    assert isinstance(parse(partition), UnknownStatement)
    assert isinstance(parse("show table"), UnknownStatement)
    with pytest.raises(SqlError, match="LIKE"):
        parse("show table extended in a")
    assert parse("SHOW DATABASES IN a LIKE 'x'") == ShowNamespaces(parent=("a",), pattern="x")
    for sql, key in {
        "show tblproperties a.t": None,
        "show tblproperties a.t ('k.l')": "k.l",
        "show tblproperties a.t (k.l)": "k.l",
    }.items():
        shown = parse(sql)
        assert isinstance(shown, ShowProperties)
        assert (shown.table.parts, shown.key) == (("a", "t"), key)
    assert isinstance(parse("show create table a.t"), ShowCreateTable)
    for sql, is_extended in {
        "desc a.t": False,
        "describe table extended a.t": True,
        "describe formatted a.t": True,
    }.items():
        described = parse(sql)
        assert isinstance(described, Describe)
        assert (described.table.parts, described.extended) == (("a", "t"), is_extended)
    dropped = parse("drop table if exists a.t purge")
    assert isinstance(dropped, DropTable)
    assert (dropped.if_exists, dropped.purge) == (True, True)
    for sql, name, catalog in [
        ("use a.b", ("a", "b"), False),
        ("use schema b", ("b",), False),
        ("use catalog c", ("c",), True),
        ("use catalog", ("catalog",), False),
        ("set catalog 'c'", ("c",), True),
    ]:
        used = parse(sql)
        assert isinstance(used, Use)
        assert (used.name, used.catalog_only) == (name, catalog)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("create table t (a int) partitioned by (bucket(a))", "takes a number and a column"),
        ("create table t (a int) partitioned by (days(3, a))", "takes a column only"),
        ("create table t (a int) partitioned by (bucket(0, a))", "must be positive"),
        ("create table t (a int) as select 1", "not from both"),
        ("create table t (a int) comment 'a' comment 'b'", "COMMENT is given twice"),
        ("create table t (a int) tblproperties ('a'='b', a='c')", "'a' is given twice"),
        ("create table t (a int not null not null)", "given twice"),
        ("create table t (a array<int)", "expected '>'"),
        ("alter table t change column a b int", "RENAME COLUMN a TO b"),
        ("alter table t rename column a to b.c", "the field alone"),
        ("create table t (a int) tblproperties (a-b = 1)", "Quote a key"),
        ("show columns t", "expected FROM or IN"),
        ("show columns in a.t in b", "in another namespace"),
        ("show partitions t partition (a)", "expected '='"),
        ("show partitions t partition (a = b)", "expected a value for 'a'"),
        ("truncate table t partition (a)", "'a' has no value"),
        ("comment on table t", "expected IS"),
        ("comment on table t is 1", "expected a comment or NULL"),
        ("create table t like u comment 'x'", "Only USING, LOCATION and TBLPROPERTIES"),
        ("create or replace table t like u", "Unexpected 'like'"),
        ("alter table t set identifier fields", "expected the name of a column"),
        ("alter table t set identifier fields (a)", "expected the name of a column"),
        ("alter table t create b", "expected BRANCH, TAG or OR REPLACE"),
        ("alter table t create branch", "expected the name of a branch"),
        ("alter table t create branch a.b", "expected the end"),
        ("alter table t create or replace tag if not exists a", "does not need IF NOT EXISTS"),
        ("alter table t create tag a with snapshot retention 1 snapshots", "expected the end"),
        ("alter table t create tag a as of version 'b'", "expected the id of a snapshot"),
        ("alter table t create tag a as of version 9223372036854775808", "out of range"),
        ("alter table t create tag a retain 1 day", "expected DAYS, HOURS or MINUTES"),
        ("alter table t create tag a retain 0 days", "expected a number from 1"),
        ("alter table t create tag a retain 106751991168 days", "longer than Iceberg can record"),
        ("alter table t create branch a retain 1 days as of version 1", "Unexpected 'as'"),
        ("alter table t create branch a with snapshot retention 3", "SNAPSHOTS, DAYS, HOURS or MINUTES"),
        ("alter table t create branch a with snapshot retention 2147483648 snapshots", "out of range"),
        ("alter table t create branch a with snapshot retention 1 days 2 snapshots", "expected the end"),
    ],
)
def test_mistakes_in_ddl_are_explained(sql, message):
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert message in str(caught.value)
    assert caught.value.position is not None
