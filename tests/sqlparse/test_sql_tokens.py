"""Tokens follow Spark's lexer."""

import pytest

from dml.sqlparse import first_keyword, string_value
from dml.sqlparse.tokens import TokenKind, read_source


def keys(sql):
    source = read_source(sql)
    return [source.text(index) for index in range(source.end)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a -- b\n c", ["a", "c"]),
        ("a -- b \\\n still comment\n c", ["a", "c"]),
        ("a /* b /* c */ d */ e", ["a", "e"]),
        ("a /*+ HINT(x) */ e", ["a", "e"]),
        ("`a``b`.c", ["`a``b`", ".", "c"]),
        ("'it''s' 'a\\'b' \"x\"\"y\"", ["'it''s'", "'a\\'b'", '"x""y"']),
        ("r'\\' x", ["r'\\'", "x"]),
        ("$$ a ; ' $$ $t$ $$ $t$", ["$$ a ; ' $$", "$t$ $$ $t$"]),
        ("1L 1.5e3 .5 2bd 1e-3D", ["1L", "1.5e3", ".5", "2bd", "1e-3D"]),
        ("t.1a 2020_x", ["t", ".", "1a", "2020_x"]),
        (
            "a<=>b a->b a=>b a||b a::b |> c",
            ["a", "<=>", "b", "a", "->", "b", "a", "=>", "b", "a", "||", "b", "a", "::", "b", "|>", "c"],
        ),
        ("größe = 1;;", ["größe", "=", "1"]),
    ],
)
def test_text_is_cut_into_spark_tokens(sql, expected):
    assert keys(sql) == expected


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'a'", "a"),
        ("''", ""),
        ("'it''s'", "it's"),
        ('"a""b"', 'a"b'),
        ("\"it''s\"", "it''s"),
        (r"'a\'b'", "a'b"),
        (r"'a\\''b'", "a\\'b"),
        (r"'\n\t\u0041\U00000042\103'", "\n\tABC"),
        (r"'100\%'", r"100\%"),
        (r"'\q'", "q"),
        (r"r'\d\n'", r"\d\n"),
        ("$t$a'b$t$", "a'b"),
        (r"'\U0001F600 \ud83d\ude00'", "😀 😀"),
        (r"'\ud83d \U0000DE00 \U00110000'", "? ? ??"),
        (r"'\277\377\177'", "277377\x7f"),
        (r'R"a\"', "a\\"),
    ],
)
def test_string_literals_have_sparks_values(literal, value):
    assert string_value(literal) == value


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("select 1", "SELECT"),
        ("  ((\n/* a /* b */ */ -- c\n ( with a", "WITH"),
        ("/*+ x */ Merge into", "MERGE"),
        ("", ""),
        ("-- only", ""),
        ("/* open", ""),
        ("'a' select", ""),
        ("1 + 2", ""),
    ],
)
def test_the_first_keyword_is_found_behind_comments_and_parentheses(sql, word):
    assert first_keyword(sql) == word


def test_case_and_end_are_matched_and_columns_of_that_name_are_not():
    sql = "case when end > 1 then t.end else case when x then 1 end end + case + end"
    source = read_source(sql)
    pairs = {sql[source.tokens[first].start : source.tokens[last].end] for first, last in source.partner.items()}
    assert pairs == {sql[: sql.index(" + case")], "case when x then 1 end"}
    assert source.open_case is None


@pytest.mark.parametrize(
    ("sql", "position", "message"),
    [
        ("select 'abc", 7, "string"),
        ("select `abc", 7, "quoted identifier"),
        ("select /* abc", 7, "comment"),
        ("select (1", 7, "not balanced"),
        ("select 1]", 8, "not balanced"),
        ("select (1]", 9, "not balanced"),
        ("select 1; select 2", 10, "several statements"),
    ],
)
def test_what_is_wrong_with_a_text_is_kept_with_its_place(sql, position, message):
    problem = read_source(sql).problem
    assert problem is not None
    assert problem.position == position
    assert message in problem.message


def test_a_quoted_word_is_never_a_keyword():
    source = read_source("`select` 'select'")
    assert [token.kind for token in source.tokens[:2]] == [TokenKind.QUOTED, TokenKind.STRING]
    assert [token.key for token in source.tokens[:2]] == ["", ""]
