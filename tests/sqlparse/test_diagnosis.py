# ruff: noqa: E501 - SQL reads best on one line
"""What was meant where a statement stops making sense: the word to blame, what was due there, the keyword meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.errors import SqlError
from dml.sqlparse import parse
from dml.sqlparse.diagnosis import diagnose_syntax
from dml.sqlparse.tokens import read_source

M = "merge into t using s on x "
OURS = [
    ("delete from t ^were^ id = 1", "WHERE or the end of the statement", "Did you mean WHERE?"),
    ("delete ^form^ t", "FROM", "Did you mean FROM?"),
    ("delete from ^where^ id = 1", "a table after 'from'", None),
    ("update t ^seet^ a = 1", "SET", "Did you mean SET?"),
    ("update t set a = 1, ^where^ b = 2", "another item after ','", None),
    ("update t set ^where^ b = 2", "the name of a column to assign after 'set'", None),
    ("update t set a = 1 ^wher^ b = 2", "',' between two assignments", "Did you mean WHERE?"),
    ("update ^table^ db.t set a = 1", "the name of a table", "Leave it out."),
    ("merge into t ^uisng^ s on x when matched then delete", "USING", "Did you mean USING?"),
    ("merge into t using select ^*^ from s on x", "ON", "Put the query in parentheses: USING (SELECT ...) AS s."),
    (M + "when ^match^ then delete", "MATCHED or NOT MATCHED after WHEN", "Did you mean MATCHED?"),
    (M + "when matched and a = 1 ^delete^", "THEN after the condition of the WHEN clause", None),
    (M + "when matched then ^updte^ set a = 1", "UPDATE or DELETE after THEN", "Did you mean UPDATE?"),
    ("insert into t ^selct^ 1", "a query: SELECT, VALUES, TABLE, FROM or WITH", "Did you mean SELECT?"),
    ("insert into t values ^(^1, 2", "')' after it", None),
    ("insert into t values (1, 2)^)^", None, "Remove it, or add '(' where it begins."),
    ("create table t (a int) ^partition^ by (a)", "USING, OPTIONS, PARTITIONED BY, TBLPROPERTIES, COMMENT, LOCATION, AS query or the end of the statement", "Did you mean PARTITIONED?"),
    ("insert into t (value ^name^) values (1)", "',' or ')'", None),
]  # fmt: skip


def unmarked(marked: str) -> tuple[str, int, int]:
    """The text without its two marks, and the place between them."""
    start = marked.index("^")
    return marked.replace("^", ""), start, marked.index("^", start + 1) - 1


@pytest.mark.parametrize(("marked", "expected", "hint"), OURS)
def test_the_word_to_blame_is_found(marked, expected, hint):
    sql, start, end = unmarked(marked)
    with pytest.raises(SqlError) as caught:
        parse(sql)
    error = caught.value
    assert error.position is not None
    assert error.length is not None
    assert (error.position, error.position + error.length, error.expected, error.hint) == (start, end, expected, hint)


SPARKS = [
    ("select * from t where id = 1 |^name^ = 'a'", "an operator or ',' after '1'", None),
    ("select * from t where id = = |^=^ 1", "an expression after '='", None),
    ("select * from t where a = 1 or ^or^ |id = 2", "a condition after 'or'", None),
    ("select * from t where a in (1, |^)^", "another item after ','", None),
    ("insert into t values (1)|^^", "more after ')'", None),
    ("insert into t values |^^", "a row of values in parentheses after 'values'", None),
    ("insert into t values (1) |^(^2)", "an operator or ',' after ')'", None),
    ("select * ^form^ |t", None, "Did you mean FROM?"),
    ("select * from t ^were^ |id = 1", None, "Did you mean WHERE?"),
    ("select id, ^from^ t|.a", "another item after ','", None),
    ("select ^from^ |t", "something to select after 'select'", None),
    ("select * from t group |^id^", "BY after 'group'", None),
    ("select * from t where id between 1 |^^", "AND and the upper bound of BETWEEN after '1'", None),
    ("select * from t where id between 1 and 2 |^x^", "an operator or ',' after '2'", None),
    ("|^selct^ 1", None, "Did you mean SELECT?"),
    ("drop |^tabel^ t", None, "Did you mean TABLE?"),
    ("alter table db.t |^renam^ to x", None, "Did you mean RENAME?"),
    ("|^^", "a statement", None),
]


@pytest.mark.parametrize(("marked", "expected", "hint"), SPARKS)
def test_where_spark_stops_something_was_due(marked, expected, hint):
    sql, start, end = unmarked(marked.replace("|", ""))
    stopped = marked.replace("^", "").index("|")
    source = read_source(sql)
    index = next((i for i in range(source.end) if source.tokens[i].end > stopped), source.end)
    found = diagnose_syntax(source, index)
    token = source.tokens[found.index]
    assert (found.expected, found.hint) == (expected, hint)
    assert (token.start, token.end) == ((start, end) if start < end else (token.start, token.start))


@given(st.lists(st.sampled_from(["select", "from", ",", "(", ")", "a", "1", "between", "and", "."]), max_size=8))
def test_every_place_of_every_text_has_a_diagnosis(words):
    source = read_source(" ".join(words))
    for index in range(source.end + 1):
        found = diagnose_syntax(source, index)
        assert 0 <= found.index <= source.end
        assert found.expected or found.hint
