# ruff: noqa: E501 - SQL reads best on one line
"""Queries: every table is found, with its place, and nothing else is taken for one."""

import pytest
from sqlglot import exp

from dml.sqlparse import Explain, Query, UnknownStatement, parse


def tables(sql):
    statement = parse(sql)
    assert isinstance(statement, Query)
    found = statement.fragment.tables
    for table in found:
        assert 0 <= table.span.start < table.span.end <= len(sql)
    return [".".join(table.parts) for table in found]


QUERIES = [
    ("select a from lake.db.t", ["lake.db.t"]),
    ("SELECT a FROM a.b x, c.d AS y, e", ["a.b", "c.d", "e"]),
    ("select * from (a.b x left join c.d y on x.i = y.i) cross join e.f", ["a.b", "c.d", "e.f"]),
    ("select * from a join b using (x) natural join c left anti join d on true", ["a", "b", "c", "d"]),
    ("table a.b", ["a.b"]),
    ("from a.b select x", ["a.b"]),
    ("from a |> where x > 1 |> join b on a.i = b.i |> union all (select * from c) |> select x", ["a", "b", "c"]),
    ("values (1), (2)", []),
    ("select * from values (1, x), (2, y) as v(a, b), c", ["c"]),
    ("select * from (values (1), (2)) v, c", ["c"]),
    ("(select 1 from a) union all ((select 2 from b) except select 3 from c)", ["a", "b", "c"]),
    ("select 1 from a union table b", ["a", "b"]),
    ("select * except (x) from a", ["a"]),
    (
        "select extract(year from x), trim(both 'a' from y), substring(z from 1 for 2), overlay(a placing b from 2) from t",
        ["t"],
    ),
    ("select trim(from x) from t where a is not distinct from b and a is distinct from c", ["t"]),
    ("select a from t where x in (select y from u where exists (select 1 from v where v.a = u.a))", ["t", "u", "v"]),
    ("select (select max(x) from u) + 1, ((select 1 from w)) from t order by (select 1 from z)", ["u", "w", "t", "z"]),
    ("select * from t lateral view explode(m) e as k, v where k in (select k from u)", ["t", "u"]),
    (
        "select * from range(10) r, lateral explode(array(1)) e, udtf(table(a.b)), udtf(table c, 1), udtf(table(select * from d))",
        ["a.b", "c", "d"],
    ),
    ("select * from t, lateral (select t.x from u)", ["t", "u"]),
    ("select * from t pivot (sum(x) for y in (1, 2)) p", ["t"]),
    ("select * from t tablesample (5 rows) s join u", ["t", "u"]),
    ("select count(*) over (partition by a order by b rows between unbounded preceding and current row) from t", ["t"]),
    ("select * from identifier('a.`b c`') x", ["a.b c"]),
    ("select * from `a.b`.`c``d`", ["a.b.c`d"]),
    ("select /*+ broadcast(u) */ * from t -- from x\n join u /* from y */", ["t", "u"]),
    ("select 'from x', \"from y\" from t", ["t"]),
    ("select a.from, from_x from t window w as (order by x)", ["t"]),
    ("select * from db.t.snapshots", ["db.t.snapshots"]),
    ("select x -> x + 1 from t group by all having max(x) > 1 limit 3 offset 2", ["t"]),
    ("select case when exists (select 1 from u) then 1 else (select 2 from v) end from t", ["u", "v", "t"]),
    ("(((select 1 from a)))", ["a"]),
    ("select * from stream a.b, stream, stream as s", ["a.b", "stream", "stream"]),
]


@pytest.mark.parametrize(("sql", "expected"), QUERIES)
def test_tables_are_found(sql, expected):
    assert tables(sql) == expected


@pytest.mark.parametrize(("sql", "expected"), [case for case in QUERIES if parse(case[0]).fragment.ast is not None])
def test_sqlglot_finds_no_table_that_is_missed(sql, expected):
    tree = parse(sql).fragment.ast
    seen = {".".join(part.name for part in table.parts) for table in tree.find_all(exp.Table) if table.name}
    seen -= {cte.alias for cte in tree.find_all(exp.CTE)}
    assert {name for name in seen if "(" not in name} <= set(expected) | {"range", ""}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("with a as (select 1) select * from a", []),
        ("with a as (select * from a) select * from A", ["a"]),
        ("with a as (select 1 from x), b as (select * from a, y) select * from b, c", ["x", "y", "c"]),
        ("with b as (with a as (select 1) select * from a) select * from a, b", ["a"]),
        ("select * from (with a as (select 1) select * from a) q, a", ["a"]),
        ("with a as (select 1) select * from db.a where x in (select 1 from a)", ["db.a"]),
        ("with recursive r(n) as (select 1 union all select n + 1 from r) select * from r", []),
        ("with r(n) as (select 1 from r) select * from r", ["r"]),
        ("(with a as (select 1) select * from a) union select * from a", ["a"]),
        ("with a (x, y) as (values (1, 2)) from a select x", []),
    ],
)
def test_ctes_hide_tables_only_where_they_are_visible(sql, expected):
    assert tables(sql) == expected


@pytest.mark.parametrize(
    ("source", "text", "alias", "version", "timestamp"),
    [
        ("t version as of 12 x", "t version as of 12", "x", "12", None),
        ("t FOR VERSION AS OF 'br' AS x", "t FOR VERSION AS OF 'br'", "x", "br", None),
        ("t for system_version as of 'it''s'", "t for system_version as of 'it''s'", None, "it's", None),
        ("t system_version as of 3", "t system_version as of 3", None, "3", None),
        ("t timestamp as of '2024-01-01' where 1=1", "t timestamp as of '2024-01-01'", None, None, "'2024-01-01'"),
        (
            "t for system_time as of date '2024-01-01' x",
            "t for system_time as of date '2024-01-01'",
            "x",
            None,
            "date '2024-01-01'",
        ),
        (
            "t timestamp as of current_timestamp() - interval 1 day x",
            "t timestamp as of current_timestamp() - interval 1 day",
            "x",
            None,
            "current_timestamp() - interval 1 day",
        ),
        (
            "t timestamp as of date_sub(a, (1)) , u",
            "t timestamp as of date_sub(a, (1))",
            None,
            None,
            "date_sub(a, (1))",
        ),
        (
            "t timestamp as of (select max(x) from u) x",
            "t timestamp as of (select max(x) from u)",
            "x",
            None,
            "(select max(x) from u)",
        ),
        ("t version", "t", "version", None, None),
        ("t as timestamp", "t", "timestamp", None, None),
        ("t `select`", "t", "select", None, None),
        ("t where x", "t", None, None, None),
    ],
)
def test_time_travel_belongs_to_the_reference_and_the_alias_does_not(source, text, alias, version, timestamp):
    sql = f"select * from {source}"
    table = parse(sql).fragment.tables[0]
    assert sql[table.span.start : table.span.end] == text
    assert (table.alias, table.version, table.timestamp) == (alias, version, timestamp)


@pytest.mark.parametrize(
    ("sql", "star"),
    [
        ("select a, b * 2, c*d, (a)*b, f(x) * -1, count(*), 2 * (3) from t", False),
        ("select * from t", True),
        ("select t.* from t", True),
        ("select a, * except (b) from t", True),
        ("select struct(*) from t", True),
        ("select count(t.*) from t", True),
        ("select count(distinct *) from t", True),
        ("select distinct * from t", True),
        ("select a from t where exists (select * from u)", True),
        ("table t", True),
        ("from t", True),
        ("from t |> where a > 1", True),
        ("from t select a", False),
        ("select a from t natural join u", True),
        ("select a from t pivot (sum(b) for c in (1))", True),
        ("select a from t as x(a, b)", True),
        ("select a from (select a from t) as x(a)", False),
        ("select a from udtf(table(t))", True),
        ("select `(a|b)?+.+`, `x*y`, `*` from t where `/*x*/` = `{}`", False),
        ("select identifier(:c) from t", True),
        ("select end * 3, case when a then b end * 2 from t", False),
    ],
)
def test_a_star_that_stands_for_columns_is_seen(sql, star):
    assert parse(sql).fragment.has_star is star


def test_names_hold_every_identifier():
    fragment = parse("select A.b['k'].C, `D e`, \"F\", identifier('g.h'), x -> y from t join u using (Id)").fragment
    assert {"a", "b", "c", "d e", "f", "g", "h", "x", "y", "t", "u", "id"} <= fragment.names


def test_a_query_that_sqlglot_cannot_read_keeps_its_tables_and_names():
    sql = "select s:a.b[*], strange ~~~ thing from lake.db.t x where x.a in (select b from u)"
    fragment = parse(sql).fragment
    assert fragment.ast is None
    assert [table.parts for table in fragment.tables] == [("lake", "db", "t"), ("u",)]
    assert {"s", "strange", "thing", "a", "b"} <= fragment.names
    assert ("x", "a") in {column.parts for column in fragment.columns}


def test_columns_have_their_places():
    sql = "select a, t.b.c, f(`d e`) from db.t where x in (select y from u)"
    columns = parse(sql).fragment.columns
    assert [column.parts for column in columns] == [("a",), ("t", "b", "c"), ("d e",), ("x",), ("y",)]
    assert [sql[c.span.start : c.span.end] for c in columns] == ["a", "t.b.c", "`d e`", "x", "y"]


@pytest.mark.parametrize(
    "sql",
    [
        "from x insert into a select 1 insert into b select 2",
        "create view v as select 1",
        "call c.p()",
        "set a = 'b",
        "cache table t",
        "12 + 3",
        "begin select 1; select 2; end",
        "describe query select 1",
    ],
)
def test_other_statements_are_left_to_spark(sql):
    assert parse(sql) == UnknownStatement(text=sql)


def test_explain_holds_the_statement_with_places_in_the_whole_text():
    sql = "EXPLAIN FORMATTED select * from db.t"
    statement = parse(sql)
    assert isinstance(statement, Explain)
    assert (statement.mode, statement.prefix) == ("formatted", "EXPLAIN FORMATTED ")
    table = statement.statement.fragment.tables[0]
    assert sql[table.span.start : table.span.end] == "db.t"
    assert parse("explain create view v as select 1").statement == UnknownStatement(text="create view v as select 1")


def test_nesting_without_end_is_no_problem():
    sql = "select " + "(" * 3000 + "1" + ")" * 3000 + " from t"
    fragment = parse(sql).fragment
    assert [table.parts for table in fragment.tables] == [("t",)]


def test_a_statement_behind_with_that_is_no_query_has_no_tree(caplog):
    fragment = parse("with a as (select 1 from t) set matched").fragment
    assert fragment.ast is None
    assert [table.parts for table in fragment.tables] == [("t",)]
    assert caplog.text == ""
