"""Places of words in a statement, and of errors of code that never saw its text."""

import pytest

from dml.errors import AnalysisError
from dml.sqlparse.diagnosis import at, words_at
from dml.sqlparse.statements import Span


@pytest.mark.parametrize(
    ("sql", "words", "found"),
    [
        ("ALTER TABLE t DROP COLUMN nope", "NOPE", "nope"),
        ("CREATE TABLE t (a decimal( 50,2 ))", "decimal(50, 2)", "decimal( 50,2 )"),
        ("SET TBLPROPERTIES ('format-version' = '9')", "format-version", "'format-version'"),
        ("SET TBLPROPERTIES (write.delete.mode = 'x')", "write.delete.mode", "write.delete.mode"),
        ("RENAME TO `a b` . c", "`a b`.c", "`a b` . c"),
        ("SELECT 'x' AS idx, id FROM t", "id", "id"),
        ("SELECT `we``ird`", "`we``ird`", "`we``ird`"),
        ("SELECT 1", "nope", None),
        ("SELECT 1", "", None),
    ],
)
def test_words_are_found_however_they_are_written(sql, words, found):
    place = words_at(sql, words)
    assert (None if place is None else sql[place.start : place.end]) == found


def test_words_are_looked_for_in_a_part_alone():
    sql = "ALTER TABLE db.id RENAME COLUMN id TO id"
    assert words_at(sql, "id", Span(17, len(sql))) == Span(32, 34)
    assert words_at(sql, "id", Span(35, len(sql))) == Span(38, 40)


def test_of_nested_parts_the_innermost_decides_and_a_place_that_is_known_stays():
    with pytest.raises(AnalysisError) as caught, at(Span(0, 9)), at(Span(2, 3)), at(None):
        raise AnalysisError("no")
    assert caught.value.span == (2, 3)
    with pytest.raises(AnalysisError) as caught, at(Span(0, 9)):
        raise AnalysisError("no", sql="abc", position=1)
    assert caught.value.span is None
