# ruff: noqa: E501 - SQL reads best on one line
"""A mistake is answered with its place, what stands there and what was expected; nothing else is ever raised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.errors import SqlError
from dml.sqlparse import first_keyword, parse

M = "merge into t using s on x "
CASES = [
    ("update t a ^b^ = 1", "SET"),
    ("update t a ^=^ 1", "SET"),
    ("update t set a ^b^", "'='"),
    ("update t set ^=^ 1", "the name of a column to assign"),
    ("update t set a = ^where^ b", "a value for 'a'"),
    ("update t set a = 1 ^b^ = 2", "',' between two assignments"),
    ("update t set ^*^", "the name of a column to assign"),
    ("update t set a = s.a ^from^ s", "the end of a value for 'a'"),
    ("delete ^t^ where x", "FROM"),
    ("delete from t ^using^ s", "WHERE or the end of the statement"),
    ("delete from t where a = 1 ^limit^ 3", "the end of a condition"),
    ("merge ^t^ using s", "INTO"),
    ("merge into t ^on^ x", "USING"),
    ("merge into t using s ^when^ matched then delete", "ON"),
    ("merge into t using a ^join^ b on x", "ON"),
    ("merge into t using ^on^ x", "a source: the name of a table, a query in parentheses or VALUES"),
    (M + "when matched ^delete^", "THEN"),
    (M + "when ^match^ then delete", "MATCHED or NOT MATCHED after WHEN"),
    (M + "when not matched by ^s^ then insert *", "TARGET or SOURCE after BY"),
    (M + "when matched and ^then^ delete", "the condition of the WHEN clause"),
    (M + "when matched then ^insert^ *", "UPDATE or DELETE"),
    (M + "when not matched then ^update^ set *", "INSERT"),
    (M + "when not matched then ^delete^", "INSERT"),
    (M + "when not matched by source then ^insert^ *", "UPDATE or DELETE"),
    (M + "when not matched by source then update set ^*^", "the name of a column to assign"),
    (M + "when matched then update ^a^ = 1", "SET"),
    (M + "when not matched then insert ^values^ (1)", "the list of columns before VALUES"),
    (M + "when not matched then insert (a) ^(^1)", "VALUES"),
    (M + "when not matched then insert (a, b) values ^(1)^", "2 values"),
    (M + "when matched then delete ^foo^", "WHEN or the end of the statement"),
    (M.replace("x", "^case^ when a then b") + "when matched then delete", "END after it"),
    ("insert ^t^ select 1", "INTO or OVERWRITE"),
    ("insert into t (a^.^b) values (1)", "',' or ')'"),
    ("insert into t ^delete^ from x", "a query: SELECT, VALUES, TABLE, FROM or WITH"),
    ("truncate ^t^", "TABLE"),
    ("create table t (a^)^", "a data type"),
    ("create table t (a int,^)^", "the name of a column"),
    ("create table t (a int) tblproperties ('a' = ^b^)", "a value for 'a': a string, a number, true or false"),
    (
        "create table t (a int) partitioned by (^foo^(a))",
        "bucket, truncate, years, months, days, hours, identity or void",
    ),
    ("alter table t rename column a ^b^", "TO"),
    ("alter table t write ^by^ a", "ORDERED BY, LOCALLY, DISTRIBUTED BY or UNORDERED"),
    ("drop table if ^t^", "EXISTS"),
    ("select 1; ^select^ 2", "the end of the statement"),
    ("delete from t; ^x^", "the end of the statement"),
    ("delete from t where a = ^'abc^", "' after it"),
]


@pytest.mark.parametrize(("marked", "expected"), CASES)
def test_the_error_points_at_the_mistake(marked, expected):
    position = marked.index("^")
    length = marked.index("^", position + 1) - position - 1
    sql = marked.replace("^", "")
    with pytest.raises(SqlError) as caught:
        parse(sql)
    error = caught.value
    assert (error.position, error.length, error.expected) == (position, length, expected)
    assert error.sql == sql
    assert "\n  " + " " * position + "^" * length in str(error)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("update t set a[0] = 1", "assign the whole array or map"),
        ("delete from t limit 3", "subquery in WHERE"),
        ("delete from t where a = 1 limit 3", "LIMIT n"),
        ("update t set a = 1 order by b", "LIMIT n"),
        ("update t set a = 1 where b order by b limit 1", "LIMIT n"),
        ("update t set a = s.a from s", "MERGE INTO"),
        ("delete from t where a = 1 join s", "MERGE INTO"),
    ],
)
def test_what_other_databases_have_is_answered_with_the_way_to_do_it_here(sql, hint):
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("sql", "message", "place"),
    [
        (M, "There must be at least one WHEN clause in a MERGE statement", ""),
        (
            M + "when matched then delete when matched then update set *",
            "Only the last WHEN MATCHED clause may omit its condition",
            "when matched then delete",
        ),
        (
            M + "when not matched then insert * when not matched by target and y then insert *",
            "Only the last WHEN NOT MATCHED clause may omit its condition",
            "when not matched then insert *",
        ),
        (
            M + "when not matched by source then delete when not matched by source then delete",
            "Only the last WHEN NOT MATCHED BY SOURCE clause may omit its condition",
            "when not matched by source then delete",
        ),
        ("update t set id = 1, x = 2, id = 3", "Multiple assignments for 'id'", "id"),
        ("update db.t set t.id = 1, db.t.ID = 3", "Multiple assignments for 'ID'", "db.t.ID"),
        ("update t set c.n1 = 1, c.n1 = 2", "Multiple assignments for 'c.n1'", "c.n1"),
        ("update t set c = 1, c.n1 = 2", "Conflicting assignments for 'c'", "c.n1"),
        ("update t as u set u.c.n1.x = 1, c.n1 = 2", "Conflicting assignments for 'c.n1'", "c.n1"),
        (M + "when matched then update set a = 1, A = 2", "Multiple assignments for 'A'", "A"),
        (M + "when not matched then insert (a, t.a) values (1, 2)", "Multiple assignments for 'a'", "t.a"),
        ("delete from t version as of 3 where x", "Cannot write to a table with time travel", "t version as of 3"),
        ("select (1", "The parentheses are not balanced: '(' has no ')'", "("),
        ("delete from t where x) = 1", "The parentheses are not balanced: ')' has no '('", ")"),
        ("", "The statement is empty", None),
        (" -- nothing\n", "The statement is empty", None),
        (";", "The statement is empty", None),
        ("delete from t where", "The statement ends too early", ""),
        ("delete from t where a = 1 and", "The statement ends too early", ""),
    ],
)
def test_the_error_says_what_is_wrong(sql, message, place):
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert caught.value.message == message
    if place:
        start = sql.rindex(place) if message[0] == "M" or "Conf" in message or "'a'" in message else sql.index(place)
        assert (caught.value.position, caught.value.length) == (start, len(place))


def test_fields_of_different_structs_do_not_conflict():
    assert len(parse("update t set c.a = 1, c.b = 2, d = 3, ca = 4").assignments) == 4


def refusal(sql):
    try:
        parse(sql)
    except SqlError as error:
        return error
    return None


WORDS = st.sampled_from(
    [
        "select",
        "from",
        "where",
        "with",
        "values",
        "table",
        "update",
        "set",
        "delete",
        "merge",
        "into",
        "using",
        "on",
        "when",
        "matched",
        "not",
        "then",
        "insert",
        "and",
        "case",
        "end",
        "as",
        "by",
        "source",
        "target",
        "create",
        "replace",
        "alter",
        "add",
        "drop",
        "column",
        "partition",
        "field",
        "bucket",
        "show",
        "describe",
        "use",
        "explain",
        "version",
        "timestamp",
        "of",
        "for",
        "interval",
        "lateral",
        "view",
        "join",
        "union",
        "except",
        "exists",
        "in",
        "is",
        "null",
        "default",
        "*",
        ",",
        ".",
        "(",
        ")",
        "[",
        "]",
        "=",
        "<=>",
        ";",
        "a",
        "t",
        "`b`",
        "'c'",
        "1",
        "1.5",
        "identifier",
        "tablesample",
        "pivot",
        "|>",
        "->",
        "-",
        "+",
        "'",
        '"',
        "`",
        "/*",
        "*/",
        "--",
        "\n",
        "$$",
        "tblproperties",
        "comment",
        "natural",
    ]
)


@given(st.lists(WORDS, max_size=25).map(" ".join))
def test_any_sequence_of_words_is_read_or_refused_with_an_sql_error(sql):
    error = refusal(sql)
    assert error is None or error.position is None or 0 <= error.position <= len(sql)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_an_sql_error(sql):
    first_keyword(sql)
    error = refusal(sql)
    assert error is None or str(error)


@given(st.integers(0, 400), st.integers(0, 12), st.text(max_size=4))
def test_a_damaged_merge_is_read_or_refused_with_an_sql_error(place, length, text):
    sql = (
        "merge into lake.db.t as t using (select * from u version as of 3 x) s on t.id = s.id and case when a then b end "
        "when matched and s.x > 1 then update set a.b = 1, c = default when not matched then insert (a, b) values (1, f(x)) "
        "when not matched by source then delete"
    )
    error = refusal(sql[:place] + text + sql[place + length :])
    assert error is None or error.length >= 1


IDENTIFIERS = st.sampled_from(["a", "`b c`", "`d``e`", "end", "date", "value", "lake.db.t", "t.x", "größe"])


@given(
    st.lists(
        st.tuples(
            IDENTIFIERS,
            st.sampled_from(
                ["1", "s.x", "f(a, b)", "case when a then b end", "'x, y'", "default", "(select max(z) from u)"]
            ),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda pair: pair[0],
    ),
    st.sampled_from([" ", "\n", " /* , set where */ ", " -- when\n"]),
)
def test_pieces_of_an_update_are_the_text_between_the_keywords(pairs, blank):
    sql = (
        f"update x set{blank}"
        + f"{blank},{blank}".join(f"{key}{blank}={blank}{value}" for key, value in pairs)
        + f"{blank}where q = 1"
    )
    statement = parse(sql)
    for (key, value), assignment in zip(pairs, statement.assignments, strict=True):
        assert sql[assignment.key_span.start : assignment.key_span.end] == key
        assert sql[assignment.value_span.start : assignment.value_span.end] == value
        if value == "default":
            assert assignment.value is None
        else:
            assert assignment.value.text == sql[assignment.value.span.start : assignment.value.span.end] == value
    assert statement.condition.text == "q = 1"
