"""CALL. Pure; driver.

Input: a cursor at CALL. Output: `CallStatement`, or a `SqlError`. Procedures that are not in `PROCEDURES` belong to
Spark or to another catalog. Source: Spark's grammar, `callArguments`; Iceberg's Spark procedures live in the namespace
`system`.
"""

from typing import Final

from dml.sqlparse.cursor import Cursor, NotOurs
from dml.sqlparse.fragments import FragmentReader
from dml.sqlparse.statements import CallArgument, CallStatement

__all__ = ["PROCEDURES", "read_call"]

NAMESPACE: Final = "system"
PROCEDURES: Final = frozenset({"remove_orphan_files", "verify"})
"""The procedures that there are."""


def read_call(cursor: Cursor, reader: FragmentReader) -> CallStatement:
    """`CALL [catalog.]system.procedure([name =>] value, ...)`."""
    cursor.expect("CALL")
    begin = cursor.index
    names = cursor.names("the name of a procedure")
    span = cursor.span_from(begin)
    folded = tuple(name.lower() for name in names)
    if folded[-2:-1] != (NAMESPACE,) or folded[-1] not in PROCEDURES or len(names) > 3:
        raise NotOurs
    close = cursor.open_bracket("the arguments")
    arguments: list[CallArgument] = []
    while cursor.index < close:
        arguments.append(read_argument(cursor, reader, arguments))
        if cursor.index < close and not cursor.accept(","):
            cursor.fail(expected="',' or ')'")
        elif cursor.index == close and cursor.source.word(close - 1) == ",":
            cursor.fail(expected="another argument")
    cursor.index = close + 1
    cursor.finish()
    return CallStatement(
        catalog=names[0] if len(names) == 3 else None, procedure=folded[-1], span=span, arguments=tuple(arguments)
    )


def read_argument(cursor: Cursor, reader: FragmentReader, before: list[CallArgument]) -> CallArgument:
    begin = cursor.index
    name = None
    if cursor.at_name() and cursor.key(1) == "=>":
        name = cursor.name().lower()
        span = cursor.span_from(begin)
        cursor.expect("=>")
        if any(argument.name == name for argument in before):
            cursor.fail_at(span, f"The argument '{name}' is given twice")
    elif before and before[-1].name is not None:
        cursor.fail("An argument without a name stands after one with a name", expected="a name and '=>'")
    start = cursor.index
    end = cursor.expression("a value", stops=frozenset({","}))
    return CallArgument(name=name, value=reader.expression(start, end), span=cursor.span_from(begin))
