# ruff: noqa: E501 - SQL reads best on one line
"""DELETE, UPDATE, MERGE, INSERT and TRUNCATE: the frame is found and the pieces are cut out as written."""

import pytest

from dml.sqlparse import (
    DeleteAction,
    DeleteStatement,
    InsertMode,
    InsertStatement,
    MergeStatement,
    Truncate,
    UnknownStatement,
    UpdateAction,
    UpdateStatement,
    parse,
)

MERGE = """-- upsert
WITH fresh AS (SELECT * FROM lake.db.raw WHERE day > 3)
MERGE WITH SCHEMA EVOLUTION INTO lake.db.flights AS t
USING (SELECT id, max(delay) AS delay FROM fresh GROUP BY id) s (id, delay)
ON t.id = s.id /* keys */ AND CASE WHEN t.end IS NULL THEN true ELSE s.delay > 0 END
WHEN MATCHED AND s.delay > (SELECT avg(delay) FROM lake.db.stats) THEN DELETE
WHEN MATCHED AND t.`a``b` = 'when matched' THEN UPDATE SET t.delay = s.delay, meta.source = concat('a', ','), note = DEFAULT
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED BY TARGET AND s.id IS NOT NULL THEN INSERT (id, t.delay) VALUES (s.id, DEFAULT)
WHEN NOT MATCHED THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND t.month < 3 THEN DELETE
WHEN NOT MATCHED BY SOURCE THEN UPDATE SET note = CASE WHEN matched THEN 'x' END;
"""


def cut(sql, piece):
    return sql[piece.span.start : piece.span.end]


def test_a_merge_with_everything_is_read():
    merge = parse(MERGE)
    assert isinstance(merge, MergeStatement)
    assert merge.with_schema_evolution
    assert merge.target.parts == ("lake", "db", "flights")
    assert merge.target.alias == "t"
    assert merge.source.text == "(SELECT id, max(delay) AS delay FROM fresh GROUP BY id)"
    assert merge.source.tables == ()
    assert (merge.source_alias, merge.source_column_aliases) == ("s", ("id", "delay"))
    assert merge.ctes.text.startswith("WITH fresh AS (")
    assert [table.parts for table in merge.ctes.tables] == [("lake", "db", "raw")]
    assert merge.condition.text.startswith("t.id = s.id /* keys */")
    assert merge.condition.text.endswith("> 0 END")
    first, second, third = merge.matched
    assert isinstance(first.action, DeleteAction)
    assert first.condition.has_subquery
    assert [table.parts for table in first.condition.tables] == [("lake", "db", "stats")]
    assert second.condition.text == "t.`a``b` = 'when matched'"
    assert isinstance(second.action, UpdateAction)
    assert second.action.assignments is not None
    assert [assignment.key for assignment in second.action.assignments] == [
        ("t", "delay"),
        ("meta", "source"),
        ("note",),
    ]
    assert second.action.assignments[1].value.text == "concat('a', ',')"
    assert second.action.assignments[2].value is None
    assert (third.condition, third.action.assignments) == (None, None)
    insert, insert_all = merge.not_matched
    assert insert.action.assignments is not None
    assert [assignment.key for assignment in insert.action.assignments] == [("id",), ("t", "delay")]
    assert insert.action.assignments[1].value is None
    assert insert_all.action.assignments is None
    assert isinstance(merge.not_matched_by_source[0].action, DeleteAction)
    unmatched = merge.not_matched_by_source[1].action
    assert isinstance(unmatched, UpdateAction)
    assert unmatched.assignments is not None
    assert unmatched.assignments[0].value is not None
    assert unmatched.assignments[0].value.text == "CASE WHEN matched THEN 'x' END"
    assert cut(MERGE, third) == "WHEN MATCHED THEN UPDATE SET *"
    assert cut(MERGE, third.action) == "UPDATE SET *"


def test_every_piece_of_a_merge_is_cut_from_its_place():
    merge = parse(MERGE)
    clauses = (*merge.matched, *merge.not_matched, *merge.not_matched_by_source)
    pieces = [merge.source, merge.condition, merge.ctes, *(clause.condition for clause in clauses if clause.condition)]
    for clause in clauses:
        for assignment in getattr(clause.action, "assignments", None) or ():
            assert MERGE[assignment.key_span.start : assignment.key_span.end] == ".".join(assignment.key)
            if assignment.value:
                pieces.append(assignment.value)
    for piece in pieces:
        assert cut(MERGE, piece) == piece.text
        assert piece.ast is not None


@pytest.mark.parametrize(
    ("source", "text", "alias", "columns", "tables"),
    [
        ("updates", "updates", None, (), [("updates",)]),
        ("a.b s", "a.b", "s", (), [("a", "b")]),
        ("a.b AS s (x, y)", "a.b", "s", ("x", "y"), [("a", "b")]),
        ("a.b version as of 3 s", "a.b version as of 3", "s", (), [("a", "b")]),
        ("(select * from c join d using (id)) AS s", "(select * from c join d using (id))", "s", (), [("c",), ("d",)]),
        (
            "((select 1 id) union all (select 2 from d)) s",
            "((select 1 id) union all (select 2 from d))",
            "s",
            (),
            [("d",)],
        ),
        ("(table c) s", "(table c)", "s", (), [("c",)]),
        ("(values (1, 2)) as s(id, b)", "(values (1, 2))", "s", ("id", "b"), []),
        ("values (1, 2), (3, 4) as s(id, b)", "values (1, 2), (3, 4)", "s", ("id", "b"), []),
        ("range(10) s", "range(10)", "s", (), []),
        ("`my source`", "`my source`", None, (), [("my source",)]),
        ("matched", "matched", None, (), [("matched",)]),
    ],
)
def test_any_source_of_a_merge_is_read(source, text, alias, columns, tables):
    merge = parse(f"merge into t using {source} on t.id = 1 when matched then delete")
    assert merge.source.text == text
    assert (merge.source_alias, merge.source_column_aliases) == (alias, columns)
    assert [table.parts for table in merge.source.tables] == tables
    assert merge.condition.text == "t.id = 1"


def test_clauses_of_different_kinds_may_be_mixed():
    merge = parse(
        "merge into t using s on x when not matched then insert * when matched and y then delete when matched then update set a = 1"
    )
    assert (len(merge.matched), len(merge.not_matched)) == (2, 1)


@pytest.mark.parametrize(
    ("sql", "alias", "condition"),
    [
        ("DELETE FROM lake.db.t", None, None),
        ("delete from lake.db.t where x > 1;", None, "x > 1"),
        ("delete from lake.db.t as a where a.x in (select y from u where z)", "a", "a.x in (select y from u where z)"),
        ("delete from lake.db.t a where `where` = 'where' -- where\n", "a", "`where` = 'where'"),
        ("delete from lake.db.t where date > value and end = key", None, "date > value and end = key"),
        ("delete from lake.db.t where when is null and case = 3", None, "when is null and case = 3"),
        ("delete from identifier('lake.db.t') where true", None, "true"),
    ],
)
def test_delete_is_read(sql, alias, condition):
    statement = parse(sql)
    assert isinstance(statement, DeleteStatement)
    assert (statement.target.parts, statement.target.alias) == (("lake", "db", "t"), alias)
    assert (statement.condition.text if statement.condition else None) == condition


def test_update_is_read():
    sql = "with c as (select 1 from x) update db.t as u set u.a = b, b = default, s.f.g = (select max(c1) from c, y where c1 > 1), `x y` == 1 where id in (select 1 from c)"
    statement = parse(sql)
    assert isinstance(statement, UpdateStatement)
    assert statement.target.alias == "u"
    assert [assignment.key for assignment in statement.assignments] == [("u", "a"), ("b",), ("s", "f", "g"), ("x y",)]
    assert [assignment.value and assignment.value.text for assignment in statement.assignments] == [
        "b",
        None,
        "(select max(c1) from c, y where c1 > 1)",
        "1",
    ]
    assert [table.parts for table in statement.assignments[2].value.tables] == [("y",)]
    assert statement.condition.tables == ()
    assert [table.parts for table in statement.ctes.tables] == [("x",)]


def test_keywords_that_are_not_reserved_name_columns():
    statement = parse(
        "update t set date = value, end = case when end > 1 then end end, key = matched, source = target, set = 1 where default = 2"
    )
    assert [assignment.key[0] for assignment in statement.assignments] == ["date", "end", "key", "source", "set"]
    assert statement.assignments[1].value.text == "case when end > 1 then end end"


@pytest.mark.parametrize(
    ("head", "mode", "columns", "by_name", "query"),
    [
        ("insert into t select * from u", InsertMode.APPEND, (), False, "select * from u"),
        ("insert into table t values (1, default)", InsertMode.APPEND, (), False, "values (1, default)"),
        ("insert into t table u", InsertMode.APPEND, (), False, "table u"),
        ("insert into t from u select a", InsertMode.APPEND, (), False, "from u select a"),
        ("insert into t (a, `b c`) values (1, 2)", InsertMode.APPEND, ("a", "b c"), False, "values (1, 2)"),
        ("insert into t(a) (select 1)", InsertMode.APPEND, ("a",), False, "(select 1)"),
        ("insert into t (select 1)", InsertMode.APPEND, (), False, "(select 1)"),
        ("insert into t ((select 1) union (select 2))", InsertMode.APPEND, (), False, "((select 1) union (select 2))"),
        ("insert into t by name select 1 as a", InsertMode.APPEND, (), True, "select 1 as a"),
        ("insert overwrite t select 1", InsertMode.OVERWRITE, (), False, "select 1"),
        ("insert overwrite table t (a) select 1", InsertMode.OVERWRITE, ("a",), False, "select 1"),
        (
            "insert into t with c as (select 1) select * from c",
            InsertMode.APPEND,
            (),
            False,
            "with c as (select 1) select * from c",
        ),
        ("insert into t (values, source) select 1, 2", InsertMode.APPEND, ("values", "source"), False, "select 1, 2"),
    ],
)
def test_insert_is_read(head, mode, columns, by_name, query):
    statement = parse(head)
    assert isinstance(statement, InsertStatement)
    assert (statement.mode, statement.columns, statement.by_name) == (mode, columns, by_name)
    assert statement.query.text == query
    assert len(statement.column_spans) == len(columns)


@pytest.mark.parametrize(
    "condition", ["a > 1", "exists (select 1 from u) and a in (1, 2)", "a = (select 1)", "a between 1 and 2"]
)
@pytest.mark.parametrize(
    "query", ["select * from s", "values (1)", "table s", "(select 1)", "with c as (select 1) select 2"]
)
def test_replace_where_ends_where_the_query_begins(condition, query):
    statement = parse(f"insert into t replace where {condition} {query}")
    assert statement.mode is InsertMode.REPLACE_WHERE
    assert (statement.replace_where.text, statement.query.text) == (condition, query)


def test_insert_has_partitions_options_and_a_leading_with():
    sql = "with c as (select 1) insert overwrite t with ('branch' = 'b') partition (a = 'x', b = 1 + 1, `c d`) (e) select * from c, u"
    statement = parse(sql)
    assert [(value.column, value.value and value.value.text) for value in statement.partition] == [
        ("a", "'x'"),
        ("b", "1 + 1"),
        ("c d", None),
    ]
    assert statement.options == (("branch", "b"),)
    assert statement.ctes.text == "with c as (select 1)"
    assert [table.parts for table in statement.query.tables] == [("u",)]


@pytest.mark.parametrize(
    "sql",
    [
        "insert overwrite directory '/x' select 1",
        "insert overwrite local directory '/x' select 1",
        "insert overwrite t partition (a=1) if not exists select 1",
    ],
)
def test_forms_of_other_tables_are_left_to_spark(sql):
    assert parse(sql) == UnknownStatement(text=sql)


def test_insert_may_ask_for_schema_evolution():
    assert parse("insert with schema evolution into t select 1").with_schema_evolution
    assert not parse("insert into t select 1").with_schema_evolution


def test_truncate_is_read():
    assert parse("truncate table a.b") == Truncate(target=parse("truncate table a.b").target)
    assert parse("truncate table a.b").target.parts == ("a", "b")


def test_an_update_action_and_a_delete_action_differ():
    merge = parse("merge into t using s on x when matched then update set a = 1, b.c = 2")
    assert isinstance(merge.matched[0].action, UpdateAction)


def test_case_of_names_counts_for_assignments_only_if_asked():
    with pytest.raises(Exception, match="Multiple assignments for 'A'"):
        parse("update t set a = 1, A = 2")
    assert len(parse("update t set a = 1, A = 2", case_sensitive=True).assignments) == 2
