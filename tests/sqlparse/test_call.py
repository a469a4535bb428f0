"""CALL: the procedures that there are; all others are Spark's."""

import pytest

from dml.errors import SqlError
from dml.sqlparse import parse
from dml.sqlparse.names import name_parts
from dml.sqlparse.statements import CallStatement, UnknownStatement


def test_arguments_by_place_and_by_name():
    """In the order written, as text."""
    sql = "call Lake.SYSTEM.Remove_Orphan_Files('db.t', OLDER_THAN => TIMESTAMP '2026-01-01', m => map('a', f(1, 2)));"
    statement = parse(sql)
    assert isinstance(statement, CallStatement)
    assert (statement.catalog, statement.procedure) == ("Lake", "remove_orphan_files")
    assert sql[statement.span.start : statement.span.end] == "Lake.SYSTEM.Remove_Orphan_Files"
    assert [(argument.name, argument.value.text) for argument in statement.arguments] == [
        (None, "'db.t'"),
        ("older_than", "TIMESTAMP '2026-01-01'"),
        ("m", "map('a', f(1, 2))"),
    ]
    named = statement.arguments[1].span
    assert sql[named.start : named.end] == "OLDER_THAN => TIMESTAMP '2026-01-01'"


def test_without_catalog_and_arguments():
    """What is missing is told when it is run."""
    statement = parse("CALL system.remove_orphan_files()")
    assert isinstance(statement, CallStatement)
    assert (statement.catalog, statement.arguments) == (None, ())


@pytest.mark.parametrize(
    "sql",
    [
        "CALL system.no_such_procedure('db.t')",
        "CALL remove_orphan_files('db.t')",
        "CALL other.remove_orphan_files('db.t')",
        "CALL a.b.system.remove_orphan_files('db.t')",
        "CALL f(1) whatever",
    ],
)
def test_other_procedures_are_sparks(sql):
    """Untouched."""
    assert parse(sql) == UnknownStatement(text=sql)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("CALL system.remove_orphan_files ^'t'^", "'(' before the arguments"),
        ("CALL system.remove_orphan_files('t',^)^", "another argument"),
        ("CALL system.remove_orphan_files(^,^ 't')", "a value"),
        ("CALL system.remove_orphan_files(table => ^)^", "a value"),
        ("CALL system.remove_orphan_files(table => 't', ^'x'^)", "a name and '=>'"),
        ("CALL system.remove_orphan_files('t') ^x^", "the end of the statement"),
        ("CALL system.remove_orphan_files(a => 1, ^a^ => 2)", None),
    ],
)
def test_mistakes_are_shown_at_their_place(marked, expected):
    """The place and what was expected there."""
    before, word, _ = marked.split("^")
    with pytest.raises(SqlError) as raised:
        parse(marked.replace("^", ""))
    assert (raised.value.position, raised.value.length) == (len(before), len(word))
    assert raised.value.expected == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("db.t", ("db", "t")),
        (" `a.b`.`c``d` . t ", ("a.b", "c`d", "t")),
        ("t", ("t",)),
        ("", ()),
        ("db.", ()),
        (".t", ()),
        ("db t", ()),
        ("db.'t'", ()),
        ("a-b", ()),
    ],
)
def test_names_in_strings(text, parts):
    """All of the text is the name."""
    assert name_parts(text) == parts
