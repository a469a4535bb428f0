"""Read parts of table definitions: columns and data types, transforms and sort terms, properties. Pure; driver.

Input: a cursor at a column of CREATE TABLE, ADD COLUMNS or ALTER COLUMN; at `bucket(4, id)`, `days(ts)`, `dep`; or at
`('key' = 'value', a.b = 1, ...)`. Output: `ColumnDefinition`s, with types and defaults as unchanged text;
`TransformTerm`s with plural forms folded; pairs of strings as Spark would store them. Iceberg spec: "Partition
Transforms".
"""

from dml.sqlparse.cursor import Cursor, LeftToSpark
from dml.sqlparse.quoting import string_value
from dml.sqlparse.statements import ColumnDefinition, ColumnPosition, CurveTerm, Span, TransformTerm
from dml.sqlparse.tokens import TokenKind, words

__all__ = [
    "read_clustering",
    "read_column",
    "read_data_type",
    "read_default",
    "read_keys",
    "read_position",
    "read_properties",
    "read_sort_terms",
    "read_transform",
    "read_value",
]

AFTER_TYPE = words(
    "NOT NULL DEFAULT COMMENT GENERATED FIRST AFTER CONSTRAINT PRIMARY UNIQUE REFERENCES CHECK FOREIGN SET DROP"
)
CONSTRAINTS = frozenset(["CONSTRAINT", "PRIMARY", "UNIQUE", "REFERENCES", "CHECK", "FOREIGN"])
AFTER_DEFAULT = AFTER_TYPE | {","}


def read_column(cursor: Cursor, *, nested: bool, positioned: bool) -> ColumnDefinition:
    """Read one column.

    Args:
        cursor: Its position is the name.
        nested: True if the name may be a path into a struct.
        positioned: True if FIRST and AFTER are allowed.

    Raises:
        SqlError: A name or a type is missing, or an option is given twice.
        LeftToSpark: The column is generated or has a constraint, which Iceberg does not support.
    """
    begin = cursor.index
    path = cursor.names("the name of a column") if nested else (cursor.name("the name of a column"),)
    if cursor.at("."):
        cursor.fail(expected="a data type")
    data_type = read_data_type(cursor)
    required, default, comment, position = False, None, None, None
    while True:
        before = cursor.index
        if cursor.accept("NOT"):
            again = required
            cursor.expect("NULL")
            required = True
        elif cursor.accept("DEFAULT"):
            again = default is not None
            default = read_default(cursor)
        elif cursor.accept("COMMENT"):
            again = comment is not None
            comment = cursor.string("a comment")
        elif positioned and cursor.key() in {"FIRST", "AFTER"}:
            again = position is not None
            position = read_position(cursor)
        elif cursor.key() in CONSTRAINTS or cursor.at("GENERATED"):
            raise LeftToSpark
        else:
            break
        if again:
            cursor.fail_at(cursor.span_from(before), f"An option of column '{'.'.join(path)}' is given twice")
    return ColumnDefinition(
        path=path,
        data_type=data_type,
        span=cursor.span_from(begin),
        required=required,
        default=default,
        comment=comment,
        position=position,
    )


def read_data_type(cursor: Cursor) -> str:
    """Read the text of a data type: `decimal(10, 2)`, `struct<a: int NOT NULL, b: array<string>>`."""
    source, begin, depth = cursor.source, cursor.index, 0
    while cursor.index < source.end:
        token = source.tokens[cursor.index]
        if depth == 0:
            if token.kind is TokenKind.WORD and token.key in AFTER_TYPE and cursor.index > begin:
                break
            opens = token.key in {"<", "<>", "("} and cursor.index > begin
            if token.kind is not TokenKind.WORD and not opens:
                break
        if token.key in {"<", ">"}:
            depth += 1 if token.key == "<" else -1
        cursor.index = source.partner.get(cursor.index, cursor.index) + 1
    if depth > 0:
        cursor.fail(expected="'>' to close the data type")
    if cursor.index == begin:
        cursor.fail(expected="a data type")
    return source.sql[source.tokens[begin].start : source.tokens[cursor.index - 1].end]


def read_default(cursor: Cursor) -> str:
    """Read the text of a DEFAULT expression up to the next option of the column."""
    begin = cursor.index
    end = cursor.expression("a default value", stops=AFTER_DEFAULT)
    tokens = cursor.source.tokens
    return cursor.source.sql[tokens[begin].start : tokens[end - 1].end]


def read_position(cursor: Cursor) -> ColumnPosition:
    """Read `FIRST` or `AFTER column`."""
    if cursor.accept("FIRST"):
        return ColumnPosition()
    cursor.expect("AFTER")
    return ColumnPosition(after=cursor.name("the name of a column"))


NAMES = {
    "IDENTITY": "identity",
    "BUCKET": "bucket",
    "TRUNCATE": "truncate",
    "YEAR": "year",
    "YEARS": "year",
    "MONTH": "month",
    "MONTHS": "month",
    "DAY": "day",
    "DAYS": "day",
    "DATE": "day",
    "HOUR": "hour",
    "HOURS": "hour",
    "DATE_HOUR": "hour",
    "VOID": "void",
}
WITH_NUMBER = frozenset({"bucket", "truncate"})


def read_transform(cursor: Cursor, *, named: bool = False) -> TransformTerm:
    """Read one term.

    Args:
        cursor: Its position is the column or the transform's name.
        named: True if `AS name` may follow.

    Raises:
        SqlError: The transform is not one of Iceberg's, or its arguments are invalid.
    """
    begin = cursor.index
    path = cursor.names("a column or a transform")
    transform, argument = "identity", None
    if cursor.at("("):
        transform = transform_name(cursor, path, cursor.span_from(begin))
        path, argument = arguments(cursor, transform)
    span = cursor.span_from(begin)
    name = cursor.name("a name") if named and cursor.accept("AS") else None
    return TransformTerm(transform=transform, column=path, argument=argument, name=name, span=span)


def read_sort_terms(cursor: Cursor) -> tuple[TransformTerm, ...]:
    """Read `term [ASC | DESC] [NULLS FIRST | LAST], ...`, perhaps in parentheses."""
    close = cursor.open_bracket("the order") if cursor.at("(") else None
    terms = [sort_term(cursor)]
    while cursor.accept(","):
        terms.append(sort_term(cursor))
    if close is not None:
        if cursor.index != close:
            cursor.fail(expected="',' or ')'")
        cursor.index = close + 1
    return tuple(terms)


def read_clustering(cursor: Cursor) -> tuple[TransformTerm | CurveTerm, ...]:
    """Read the terms of a sort order, among which space-filling curves are allowed: `zorder(a, b)`."""
    terms = [curve_term(cursor) or sort_term(cursor)]
    while cursor.accept(","):
        terms.append(curve_term(cursor) or sort_term(cursor))
    return tuple(terms)


CURVES = {"ZORDER": "zorder", "HILBERT": "hilbert"}


def curve_term(cursor: Cursor) -> CurveTerm | None:
    """Read a curve and its columns; None if none comes next. A direction has no effect, as in the reference."""
    if cursor.key() not in CURVES or cursor.key(1) != "(":
        return None
    curve = CURVES[cursor.key()]
    cursor.index += 1
    close = cursor.open_bracket("the columns")
    columns = [cursor.names("the name of a column")]
    while cursor.accept(","):
        columns.append(cursor.names("the name of a column"))
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    read_direction(cursor)
    return CurveTerm(curve=curve, columns=tuple(columns))


def sort_term(cursor: Cursor) -> TransformTerm:
    term = read_transform(cursor)
    ascending, nulls_first = read_direction(cursor)
    return TransformTerm(
        transform=term.transform,
        column=term.column,
        argument=term.argument,
        span=term.span,
        ascending=ascending,
        nulls_first=nulls_first,
    )


def read_direction(cursor: Cursor) -> tuple[bool, bool]:
    """Read `[ASC | DESC] [NULLS FIRST | LAST]`; return whether it is ascending, and whether NULLs come first."""
    ascending = not cursor.accept("DESC")
    if ascending:
        cursor.accept("ASC")
    nulls_first = ascending
    if cursor.accept("NULLS"):
        nulls_first = cursor.accept("FIRST")
        if not nulls_first:
            cursor.expect("LAST")
    return ascending, nulls_first


def transform_name(cursor: Cursor, path: tuple[str, ...], span: Span) -> str:
    transform = NAMES.get(path[0].upper()) if len(path) == 1 else None
    if transform is None:
        cursor.fail_at(
            span,
            f"There is no partition transform '{'.'.join(path)}'",
            expected="bucket, truncate, years, months, days, hours, identity or void",
        )
    return transform


def arguments(cursor: Cursor, transform: str) -> tuple[tuple[str, ...], int | None]:
    close = cursor.open_bracket("the arguments")
    argument = number(cursor)
    if argument is not None:
        cursor.expect(",")
    path = cursor.names("the name of a column")
    if argument is None and cursor.accept(","):
        argument = number(cursor)
        if argument is None:
            cursor.fail(expected="a number")
    if cursor.index != close:
        cursor.fail(expected="')'")
    if (transform in WITH_NUMBER) != (argument is not None):
        takes = "a number and a column" if transform in WITH_NUMBER else "a column only"
        cursor.fail(f"The transform '{transform}' takes {takes}", hint=f"Write {example(transform)}.")
    if argument is not None and argument <= 0:
        cursor.fail(f"The number of '{transform}' must be positive")
    cursor.index = close + 1
    return path, argument


def number(cursor: Cursor) -> int | None:
    text = cursor.source.text(cursor.index)
    if cursor.source.tokens[cursor.index].kind is not TokenKind.NUMBER:
        return None
    if not text.isdecimal() or len(text) > 10:
        cursor.fail(expected="a whole number")
    cursor.index += 1
    return int(text)


def example(transform: str) -> str:
    return f"{transform}(16, column)" if transform in WITH_NUMBER else f"{transform}(column)"


def read_properties(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """Read a list of properties with their values.

    Raises:
        SqlError: A key, a value or a bracket is missing, or a key is given twice.
    """
    close = cursor.open_bracket("the properties")
    properties: dict[str, str] = {}
    while True:
        begin = cursor.index
        key = read_key(cursor)
        if key in properties:
            cursor.fail_at(cursor.span_from(begin), f"The property '{key}' is given twice")
        if not cursor.accept("="):
            cursor.accept("==")
        properties[key] = read_value(cursor, key)
        if not cursor.accept(","):
            break
    if cursor.index != close:
        cursor.fail(expected="',' or ')'")
    cursor.index = close + 1
    return tuple(properties.items())


def read_keys(cursor: Cursor) -> tuple[str, ...]:
    """Read a list of keys."""
    close = cursor.open_bracket("the keys")
    keys = [read_key(cursor)]
    while cursor.accept(","):
        keys.append(read_key(cursor))
    if cursor.index != close:
        cursor.fail(expected="',' or ')'", hint="Quote a key that is not made of plain names: 'a-b.c'.")
    cursor.index = close + 1
    return tuple(keys)


def read_key(cursor: Cursor) -> str:
    """Read one key: a string or a dotted name."""
    if cursor.at_string():
        cursor.index += 1  # one literal only: a value may follow without `=`
        return string_value(cursor.source.text(cursor.index - 1))
    return ".".join(cursor.names("the key of a property"))


def read_value(cursor: Cursor, key: str) -> str:
    """Read the value of a property or partition as text: a string, a number, TRUE or FALSE."""
    if cursor.at_string():
        return cursor.string("a value")
    negative = "-" if cursor.at("-") and cursor.source.tokens[cursor.index + 1].kind is TokenKind.NUMBER else ""
    cursor.index += len(negative)
    token = cursor.source.tokens[cursor.index]
    if token.kind is not TokenKind.NUMBER and token.key not in {"TRUE", "FALSE"}:
        hint = "Quote a key that is not made of plain names: 'a-b.c'." if cursor.key() == "-" else None
        cursor.fail(expected=f"a value for '{key}': a string, a number, true or false", hint=hint)
    text = cursor.source.text(cursor.index)
    cursor.index += 1
    return negative + (text.lower() if token.kind is TokenKind.WORD else text)
