"""Columns, literals, conditions and values of random statements, as SQL text that Spark and DuckDB read alike.

Few values and small pools, so that rows meet; among them NULL, NaN, both zeros, infinities, dates before 1970, texts
longer than a truncated bound. What the dialects spell differently is left to `duck.Duck`, which translates.
"""

from hypothesis import strategies as st

__all__ = ["BASE_COLUMNS", "POOLS", "conditions", "literals", "new_values", "row_literals"]

BASE_COLUMNS = {
    "uid": "BIGINT",
    "id": "BIGINT",
    "k": "INT",
    "s": "STRING",
    "d": "DOUBLE",
    "m": "DECIMAL(9,2)",
    "ts": "TIMESTAMP_NTZ",
    "dt": "DATE",
    "st": "STRUCT<a: INT, b: STRING>",
}
"""The columns that a table starts with; `uid` tells a row for its whole life and is never assigned."""

POOLS = {
    "BIGINT": (None, "-1", "0", "1", "2", "3", "4", "1099511627776"),
    "INT": (None, "0", "1", "2", "3"),
    "STRING": (None, "''", "'a'", "'ab'", "'abc'", "'b'", "'\u00e9t\u00e9'", "'long enough for a truncated bound'"),
    "DOUBLE": (None, "'NaN'", "'-0.0'", "'0.0'", "'1.5'", "'-2.5'", "'Infinity'", "'-Infinity'"),
    "DECIMAL(9,2)": (None, "'0.00'", "'1.10'", "'-9.99'", "'9999999.99'"),
    "TIMESTAMP_NTZ": (
        None,
        "'1969-12-31 23:59:59.999999'",
        "'1970-01-01 00:00:00'",
        "'2024-02-29 12:00:00'",
        "'2024-02-29 23:59:59.5'",
        "'2024-03-01 00:00:00'",
    ),
    "DATE": (None, "'1969-12-31'", "'1970-01-01'", "'2024-02-29'"),
    "FLOAT": (None, "'NaN'", "'-0.0'", "'0.0'", "'0.1'", "'Infinity'"),
    "BOOLEAN": (None, "TRUE", "FALSE"),
    "TIMESTAMP": (None, "'1969-12-31 23:59:59.999999'", "'2024-02-29 12:00:00'", "'2024-03-01 00:00:00'"),
    "BINARY": (None, "''", "'a'", "'long enough for a truncated bound'"),
}
"""Texts that a cast to the type takes."""

STRUCT = BASE_COLUMNS["st"]
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


def cast(text: str | None, kind: str) -> str:
    """A literal of a type."""
    return f"CAST({text or 'NULL'} AS {kind})"


@st.composite
def literals(draw, kind: str, nullable: bool = True) -> str:
    """A literal of a type."""
    if kind == STRUCT:
        if draw(st.integers(0, 4)) == 0:
            return cast(None, STRUCT)
        return f"named_struct('a', {draw(literals('INT'))}, 'b', {draw(literals('STRING'))})"
    pool = POOLS[kind] if nullable else POOLS[kind][1:]
    return cast(draw(st.sampled_from(pool)), kind)


def row_literals(columns: dict[str, str], uid: int):
    """One row of VALUES."""
    return st.tuples(
        *(st.just(cast(str(uid), "BIGINT")) if name == "uid" else literals(kind) for name, kind in columns.items())
    ).map(lambda row: f"({', '.join(row)})")


def operands(columns: dict[str, str], qualifier: str):
    """Columns and nested fields that can be compared, with their types."""
    found = [(f"{qualifier}{name}", kind) for name, kind in columns.items() if kind != STRUCT and name != "uid"]
    for name, kind in columns.items():
        if kind == STRUCT:
            found += [(f"{qualifier}{name}.a", "INT"), (f"{qualifier}{name}.b", "STRING")]
    return st.sampled_from(found)


@st.composite
def simple_conditions(draw, columns: dict[str, str], qualifier: str) -> str:
    """One predicate on one column."""
    name, kind = draw(operands(columns, qualifier))
    form = draw(st.integers(0, 6))
    if form <= 2:
        return f"{name} {draw(st.sampled_from(COMPARISONS))} {draw(literals(kind))}"
    if form == 3:
        return f"{name} IS {draw(st.sampled_from(('', 'NOT ')))}NULL"
    if form == 4:
        listed = ", ".join(draw(st.lists(literals(kind), min_size=1, max_size=3)))
        return f"{name} {draw(st.sampled_from(('IN', 'NOT IN')))} ({listed})"
    if form == 5:
        return f"{name} BETWEEN {draw(literals(kind, nullable=False))} AND {draw(literals(kind, nullable=False))}"
    if kind == "STRING":
        pattern = draw(st.sampled_from(("a%", "%b", "%", "")))
        return f"{name} {draw(st.sampled_from(('LIKE', 'NOT LIKE')))} '{pattern}'"
    return draw(st.sampled_from(("TRUE", "FALSE", f"{name} = {name}", "CAST(NULL AS BOOLEAN)")))


def conditions(columns: dict[str, str], qualifier: str):
    """Predicates under AND, OR and NOT."""
    return st.recursive(
        simple_conditions(columns, qualifier),
        lambda inner: st.one_of(
            inner.map(lambda one: f"NOT ({one})"),
            st.tuples(inner, st.sampled_from(("AND", "OR")), inner).map(lambda it: f"({it[0]} {it[1]} {it[2]})"),
        ),
        max_leaves=3,
    )


@st.composite
def new_values(
    draw,
    name: str,
    kind: str,
    columns: dict[str, str],
    qualifiers: tuple[str, ...],
    table: str,
    *,
    correlated: bool = True,
) -> str:
    """An expression to assign to a column: a literal, another column, arithmetic, a conditional, a subquery.

    Args:
        draw: Of Hypothesis.
        name: The column.
        kind: Its type.
        columns: The columns of the table.
        qualifiers: What may stand before a column: `t.`, `s.`.
        table: The table, for subqueries.
        correlated: Whether a subquery may name a column of the row.
    """
    alike = [column for column, other in columns.items() if other == kind and column != "uid"]
    other = draw(st.sampled_from(qualifiers)) + draw(st.sampled_from(alike or [name]))
    form = draw(st.integers(0, 7 if correlated else 6))
    if form <= 2 or not alike:
        return draw(literals(kind))
    if form == 3 or kind == STRUCT:
        return other
    if form == 4:
        steps = {"STRING": "|| 'x'", "TIMESTAMP_NTZ": "+ INTERVAL '1' DAY", "DATE": None, "DECIMAL(9,2)": "* -1"}
        step = steps.get(kind, "+ 1")
        return f"{other} {step}" if step else other
    if form == 5:
        condition = draw(simple_conditions(columns, qualifiers[0]))
        return f"CASE WHEN {condition} THEN {other} ELSE {draw(literals(kind))} END"

    def plain(extreme: str) -> str:
        """Avoid an extreme that is a zero, whose sign is undefined: DuckDB may drop `+ 0.0`."""
        return f"CASE WHEN {extreme} = 0 THEN CAST('0.0' AS DOUBLE) ELSE {extreme} END" if kind == "DOUBLE" else extreme

    if form == 6:
        return f"(SELECT {plain(f'max(x.{alike[0]})')} FROM {table} x)"
    k = next(column for column in columns if column.startswith("k"))
    # Not the table itself: in `s.k` it would be asked for a field of its own column `s`.
    inner = f"(SELECT {alike[0]} AS v, {k} AS g FROM {table}) x"
    return f"(SELECT {plain('min(x.v)')} FROM {inner} WHERE x.g = {qualifiers[0]}{k})"
