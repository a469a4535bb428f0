"""A text of several statements is split at its semicolons, and errors name the statement and the place in the text."""

import pytest

from dml.errors import AnalysisError, NotSupportedError, SqlError
from dml.sqlparse import UnknownStatement, check_first_word, parse, split_statements


def texts(script: str) -> list[str]:
    return [statement.text for statement in split_statements(script)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT 1;\n\n;;SELECT 2;\n", ["SELECT 1", "SELECT 2"]),
        ("-- a; b\nSELECT ';', \";\", `;` /* ; */; SELECT r';' -- ; end\n", ["SELECT ';', \";\", `;`", "SELECT r';'"]),
        ("SET x = 1; BEGIN SELECT 1; SELECT 2; END", ["SET x = 1", "BEGIN SELECT 1; SELECT 2; END"]),
    ],
)
def test_semicolons_outside_of_strings_and_comments_end_statements(script: str, expected: list[str]) -> None:
    assert texts(script) == expected


@pytest.mark.parametrize("script", ["", "  ", "SELECT 1", "SELECT 1;\n", "SELECT ';'", "a: BEGIN SELECT 1; END", "'"])
def test_a_text_of_one_statement_stays_as_it_is(script: str) -> None:
    assert texts(script) == [script]


@pytest.mark.parametrize(
    ("script", "place"), [("SELECT 1; SELECT 'a", (1, 18)), ("DELETE FROM t;\nUPDATE t ST a = 1;\nSELECT 1", (2, 10))]
)
def test_what_is_wrong_with_any_statement_is_found_before_one_runs(script: str, place: tuple[int, int]) -> None:
    with pytest.raises(SqlError) as caught:
        split_statements(script)
    assert (caught.value.line, caught.value.column) == place
    assert caught.value.sql == script


@pytest.mark.parametrize(
    "script",
    [
        "BEGIN",
        "begin;",
        "BEGIN; DELETE FROM t; COMMIT",
        "BEGIN WORK; DELETE FROM t; COMMIT WORK;",
        "START TRANSACTION",
        "COMMIT",
        "ROLLBACK TO SAVEPOINT a",
        "SAVEPOINT a",
        "BEGIN ISOLATION LEVEL SERIALIZABLE; DELETE FROM t; COMMIT",
        "BEGIN READ WRITE; DELETE FROM t",
        "BEGIN IMMEDIATE; DELETE FROM t",
        "BEGIN DEFERRED TRANSACTION",
        "BEGIN TRAN; DELETE FROM t",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SELECT 1",
    ],
)
def test_transactions_are_refused_before_a_statement_runs(script: str) -> None:
    with pytest.raises(NotSupportedError, match="each statement commits by itself") as caught:
        [parse(statement.text) for statement in split_statements(script)]
    assert caught.value.position == 0


@pytest.mark.parametrize(
    "script",
    ["BEGIN isolation: BEGIN SELECT 1; END; END", "BEGIN SELECT 1; END", "SET transaction = 1", "SET TRANSACTION"],
)
def test_compound_statements_and_settings_are_no_transactions(script: str) -> None:
    (only,) = split_statements(script)
    assert only.text == script
    assert isinstance(parse(only.text), UnknownStatement)


@pytest.mark.parametrize(
    ("text", "meant"), [("SELEC 1", "SELECT"), ("  -- all\ndelte FROM t", "DELETE"), ("UPDTE t SET a = 1", "UPDATE")]
)
def test_a_misspelled_first_word_is_rejected_without_spark(text: str, meant: str) -> None:
    with pytest.raises(SqlError, match=f"Did you mean {meant}"):
        check_first_word(text)


@pytest.mark.parametrize(
    "text",
    ["RESET x", "selct: BEGIN SELECT 1; END", "OPTIMIZE db.t", "(SELEC 1)", "FETCH a INTO b", "`SELEC` 1", "", ";"],
)
def test_first_words_that_spark_may_know_are_left_to_spark(text: str) -> None:
    """Words of Spark's grammar, labels, and words that resemble no keyword."""
    check_first_word(text)


def test_an_error_has_its_place_in_the_whole_text_and_says_what_has_run() -> None:
    script = "SELECT 1;\nSELECT 2;\n  SELECT a FROM t"
    third = split_statements(script)[2]
    with pytest.raises(AnalysisError) as caught, third.report_position():
        raise AnalysisError("There is no column 'a'", sql=third.text, position=7, hint="Did you mean 'b'?")
    assert str(caught.value).splitlines() == [
        "There is no column 'a' (line 3, column 10)",
        "    SELECT a FROM t",
        "           ^",
        "Did you mean 'b'? Statement 3 of 3 failed; 2 statements ran before it",
    ]
    assert caught.value.context == {"statement": 3, "statements_run": 2}


def test_an_error_of_the_only_statement_is_left_alone() -> None:
    (only,) = split_statements("SELECT a FROM t;")
    with pytest.raises(AnalysisError) as caught, only.report_position():
        raise AnalysisError("There is no column 'a'")
    assert str(caught.value) == "There is no column 'a'"
