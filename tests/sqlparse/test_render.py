# ruff: noqa: E501 - SQL reads best on one line
"""Tables are replaced, and all else stays as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.sqlparse import Span, parse, quote_identifier, relation_aliases, render
from dml.sqlparse.parser import read_statement


def replaced(sql, **options):
    spans = [relation.reference.span for relation in read_statement(sql).relations]
    return render(sql, {span: f"v{number}" for number, span in enumerate(spans)}, **options)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT t.x FROM lake.db.t", "SELECT t.x FROM v0 AS t"),
        ("select lake.db.t.x, db.t.y.z, t.*, db.t.* from lake.db.t", "select t.x, t.y.z, t.*, t.* from v0 AS t"),
        ("select LAKE.`db`.T.x from lake.db.t", "select t.x from v0 AS t"),
        ("select a.x from lake.db.t a", "select a.x from v0 a"),
        ("select a.x from lake.db.t as a (x, y)", "select a.x from v0 as a (x, y)"),
        ("TABLE lake.db.t", "TABLE v0"),
        ("select * from udtf(TABLE(lake.db.t))", "select * from udtf(TABLE(v0))"),
        ("select x from a.t version as of 3", "select x from v0 AS t"),
        ("select x from a.t for timestamp as of '2024-01-01' as s", "select x from v0 as s"),
        (
            "select x from a.t tablesample (5 rows) repeatable (3) where x",
            "select x from v0 tablesample (5 rows) repeatable (3) AS t where x",
        ),
        ("select x from a.t pivot (sum(x) for y in (1))", "select x from v0 AS t pivot (sum(x) for y in (1))"),
        ("select x from a.`my t`, a.order", "select x from v0 AS `my t`, v1 AS `order`"),
        ("select x from t -- t\n where 't' = t.x", "select x from v0 AS t -- t\n where 't' = t.x"),
        (
            "with t as (select 1 from t) select t.x from t, u",
            "with t as (select 1 from v0 AS t) select t.x from t, v1 AS u",
        ),
        (
            "select db.t.x from db.t where x in (select u.y from db.u where db.u.y = db.t.x)",
            "select t.x from v0 AS t where x in (select u.y from v1 AS u where u.y = t.x)",
        ),
        ("select db.t.f(1), db.t.x.y from db.t", "select db.t.f(1), t.x.y from v0 AS t"),
        ("select db.t.x from db.u", "select db.t.x from v0 AS u"),
        ("select 1 from db.t union select db.t.x from u", "select 1 from v0 AS t union select db.t.x from v1 AS u"),
        ("select a.t.x, b.t.x from a.t, b.t", "select t__2.x, t__3.x from v0 AS t__2, v1 AS t__3"),
        (
            "select a.t.x from a.t where exists (select a.t.y from a.t)",
            "select t.x from v0 AS t where exists (select t.y from v1 AS t)",
        ),
        (
            "select * from (a.t join b.u on a.t.x = b.u.x) where a.t.x > 1",
            "select * from (v0 AS t join v1 AS u on t.x = u.x) where t.x > 1",
        ),
        ("insert into a.t select * from a.u", "insert into v0 select * from v1 AS u"),
        ("explain select * from a.u", "explain select * from v0 AS u"),
        ("create table x.y as select a.u.x from a.u", "create table v0 as select u.x from v1 AS u"),
        ("select * from identifier('a.b') where a.b.c = 1", "select * from v0 AS b where b.c = 1"),
    ],
)
def test_references_are_replaced(sql, expected):
    assert replaced(sql) == expected


def test_a_part_of_a_merge_is_rendered_by_itself():
    sql = "merge into lake.db.t using db.s on db.t.id = db.s.id and lake.db.t.x in (select y from q) when matched then delete"
    merge = parse(sql)
    replacements = {merge.target.span: "target", merge.source.tables[0].span: "source"}
    assert render(sql, replacements, merge.condition.span) == "t.id = s.id and t.x in (select y from q)"
    assert render(sql, replacements, merge.source.span) == "source"
    replacements[merge.condition.tables[0].span] = "`q v`"
    assert render(sql, replacements, merge.condition.span) == "t.id = s.id and t.x in (select y from `q v` AS q)"


def test_target_and_source_of_one_name_get_two_aliases():
    sql = "merge into a.t using b.t on a.t.id = b.t.id when matched then delete"
    merge = parse(sql)
    spans = (merge.target.span, merge.source.tables[0].span)
    aliases = relation_aliases(sql)
    assert len({aliases[span] for span in spans}) == 2
    text = render(sql, dict.fromkeys(spans, "v"), merge.condition.span)
    assert text == f"{aliases[spans[0]]}.id = {aliases[spans[1]]}.id"


def test_a_table_that_is_not_replaced_keeps_its_qualifiers():
    sql = "select db.t.x, db.u.y from db.t, db.u"
    first = parse(sql).fragment.tables[0]
    assert render(sql, {first.span: "v"}) == "select t.x, db.u.y from v AS t, db.u"


def test_full_names_are_recognised_when_given():
    sql = "select lake.db.t.x, db.t.y from t"
    span = parse(sql).fragment.tables[0].span
    assert render(sql, {span: "v"}) == "select lake.db.t.x, db.t.y from v AS t"
    assert render(sql, {span: "v"}, full_names={span: ("lake", "db", "t")}) == "select t.x, t.y from v AS t"


def test_a_place_without_a_table_is_refused():
    with pytest.raises(ValueError, match="There is no table reference"):
        render("select 1 from t", {Span(0, 3): "v"})


def test_nothing_to_replace_leaves_the_text():
    sql = "select  1 /* x */ from t;;"
    assert render(sql, {}) == sql
    assert render(sql, {}, Span(0, 9)) == "select  1"


@given(st.text(min_size=1, max_size=10))
def test_any_name_can_be_quoted(name):
    quoted = quote_identifier(name)
    table = parse(f"select * from {quoted}").fragment.tables[0]
    assert table.parts == (name,)


@given(
    st.lists(
        st.sampled_from(["a", "db.b", "lake.db.`c d`", "e as f", "(select * from g.h) i"]), min_size=1, max_size=4
    ),
    st.sampled_from([", ", "\n join ", " /* x */ left join "]),
)
def test_replacing_each_table_by_itself_changes_nothing_but_aliases(sources, join):
    sql = "select 1 from " + join.join(sources)
    relations = read_statement(sql).relations
    same = {
        relation.reference.span: sql[relation.reference.span.start : relation.reference.span.end]
        for relation in relations
    }
    again = parse(render(sql, same)).fragment
    assert [table.parts for table in again.tables] == [relation.reference.parts for relation in relations]
    assert all(table.alias for table in again.tables)
