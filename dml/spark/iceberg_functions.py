"""Rewrite Iceberg's SQL functions, `system.bucket`, `truncate`, `years` ..., to Spark's own expressions. Driver.

Input: SQL text. Output: the text with each call replaced by an expression. Spark evaluates it without a user-defined
function, so a call may appear wherever an expression may, also on Spark Connect.

    system.bucket(16, id)
    ->   CASE WHEN (id) IS NOT NULL THEN (hash(-1693959553, CAST((id) AS BIGINT)) & 2147483647) % (16) END

The expression depends on the argument types. To find them, Spark analyzes a probe in place of the call: an expression
that is invalid for all argument types, so that the error names them. Source: Iceberg specification, "Partition
Transforms" and "Appendix B: 32-bit Hash Requirements"; the types and results of the functions of Iceberg's Spark
catalog.
"""

import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import pyiceberg
from pyspark.errors import PySparkException

from dml.errors import AnalysisError, ErrorKind
from dml.hints import page
from dml.spark.versions import query_loggers
from dml.sqlparse.tokens import Source, read_source

__all__ = [
    "FUNCTIONS",
    "MOST_DIGITS",
    "NAMESPACE",
    "SparkType",
    "calls_iceberg_function",
    "expression",
    "hash_of_bytes",
    "hour_number",
    "replace_iceberg_functions",
]

VERSION: Final = "iceberg_version"
FUNCTIONS: Final = {"bucket": 2, "truncate": 2, "years": 1, "months": 1, "days": 1, "hours": 1, VERSION: 0}
"""The functions and their numbers of arguments."""

NAMESPACE: Final = "system"
SOME_CALL: Final = re.compile(rf"\.\s*`?(?:{'|'.join(FUNCTIONS)})`?\s*\(", re.IGNORECASE)

COUNTS: Final = frozenset({"TINYINT", "SMALLINT", "INT"})
INTEGERS: Final = frozenset({*COUNTS, "BIGINT"})
DATETIMES: Final = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
ACCEPTED: Final = {
    "bucket": (*sorted(INTEGERS), "DECIMAL", *DATETIMES, "STRING", "BINARY"),
    "truncate": (*sorted(INTEGERS), "DECIMAL", "STRING", "BINARY"),
    "years": DATETIMES,
    "months": DATETIMES,
    "days": DATETIMES,
    "hours": DATETIMES[1:],
}

PROBE: Final = "__rowdelta_call_"
ARGUMENT: Final = re.compile(r"`?a(\d)`?: ([A-Z_]+)(?:\((\d+)(?:, ?(\d+))?\))?")

SEED: Final = -1693959553
"""The int whose hash is 0 in Spark: as first argument of `hash` it sets the seed of the next to 0, Iceberg's seed."""

DAY: Final = 86_400_000_000
HOUR: Final = 3_600_000_000

MOST_DIGITS: Final = 18
"""Maximum precision of a decimal whose unscaled value fits a BIGINT."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call in a text: the function, the text range of the call, and those of its arguments."""

    name: str
    start: int
    end: int
    arguments: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SparkType:
    """The type of an argument: its name, and the precision and scale of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.name == "DECIMAL" else self.name


def calls_iceberg_function(text: str, catalogs: Collection[str]) -> bool:
    """Return True if an SQL text calls one of Iceberg's functions.

    Args:
        text: SQL.
        catalogs: The names of RowDelta's catalogs, which may qualify `system`.
    """
    return SOME_CALL.search(text) is not None and bool(calls_in(read_source(text), catalogs))


def replace_iceberg_functions(text: str, analyse: Callable[[str], object], catalogs: Collection[str]) -> str:
    """Replace the calls in an SQL text with Spark expressions.

    Args:
        text: SQL.
        analyse: Runs Spark's analysis of a text.
        catalogs: The names of RowDelta's catalogs, which may qualify `system`.

    Raises:
        AnalysisError: the arguments of a call have the wrong number or types.
        PySparkException: Spark cannot analyse the text for another reason.
    """
    if SOME_CALL.search(text) is None:
        return text
    source = read_source(text)
    calls = calls_in(source, catalogs)
    rendered: dict[int, str] = {}
    while len(rendered) < len(calls):
        for number, call in enumerate(calls):
            if number not in rendered and call.name == VERSION:
                check_arity(text, call)
                rendered[number] = f"'{pyiceberg.__version__}'"
        if len(rendered) == len(calls):
            break
        found = run_probe(replace_calls(text, calls, rendered, 0, len(text)), analyse)
        if found is None:
            raise AnalysisError("The argument types of Iceberg's functions are not known here", sql=text)
        number, types = found
        call = calls[number]
        arguments = [replace_calls(text, calls, rendered, start, end) for start, end in call.arguments]
        check_arguments(text, call, types)
        rendered[number] = expression(call.name, arguments, types)
    return replace_calls(text, calls, rendered, 0, len(text))


def calls_in(source: Source, catalogs: Collection[str]) -> list[FunctionCall]:
    """Find the calls in a text, in order of their opening parentheses."""
    found = []
    names = {name.lower() for name in catalogs}
    for index in range(source.end):
        if source.tokens[index].key != "(" or index < 3 or not source.is_name(index - 1):
            continue
        name = source.name(index - 1).lower()
        first = index - 1
        qualifier: list[str] = []
        while source.tokens[first - 1].key == "." and first >= 2 and source.is_name(first - 2):
            first -= 2
            qualifier.insert(0, source.name(first).lower())
        is_iceberg = qualifier == [NAMESPACE] or (qualifier[1:] == [NAMESPACE] and qualifier[0] in names)
        if name not in FUNCTIONS or not is_iceberg or index not in source.partner:
            continue
        close = source.partner[index]
        found.append(
            FunctionCall(
                name=name,
                start=source.tokens[first].start,
                end=source.tokens[close].end,
                arguments=tuple(arguments_in(source, index, close)),
            )
        )
    return found


def arguments_in(source: Source, opening: int, closing: int) -> list[tuple[int, int]]:
    """Return the text ranges of the arguments between two parentheses."""
    arguments = []
    index = first = opening + 1
    while index <= closing:
        if index == closing or source.tokens[index].key == ",":
            if index > first:
                arguments.append((source.tokens[first].start, source.tokens[index - 1].end))
            first = index + 1
        index = source.partner.get(index, index) + 1
    return arguments


def replace_calls(text: str, calls: list[FunctionCall], rendered: dict[int, str], start: int, end: int) -> str:
    """Replace the calls in a range of the text: with their expressions if known, otherwise with probes."""
    pieces = []
    place = start
    for number, call in enumerate(calls):
        if call.start < place or call.end > end:
            continue
        pieces.append(text[place : call.start])
        pieces.append(rendered[number] if number in rendered else probe(text, calls, rendered, number))
        place = call.end
    return "".join((*pieces, text[place:end]))


def probe(text: str, calls: list[FunctionCall], rendered: dict[int, str], number: int) -> str:
    """Return an expression that fails analysis for all argument types: `map_keys` of a struct with the arguments."""
    fields = ", ".join(
        f"'a{index}', ({replace_calls(text, calls, rendered, start, end)})"
        for index, (start, end) in enumerate(calls[number].arguments)
    )
    return f"map_keys(named_struct('{PROBE}{number}_', named_struct({fields or 'NULL, NULL'})))"


def run_probe(text: str, analyse: Callable[[str], object]) -> tuple[int, tuple[SparkType, ...]] | None:
    """Return the number of a call and its argument types, from Spark's error; None if the text has no probe.

    Raises:
        PySparkException: another error.
    """
    for logger in query_loggers():
        logger.addFilter(is_no_probe)
    try:
        analyse(text)
    except PySparkException as error:
        input_type = (error.getMessageParameters() or {}).get("inputType", "")
        match = re.search(rf"{PROBE}(\d+)_`?: (.*)", input_type)
        if match is None:
            raise
        types = [
            SparkType(name, int(precision or 0), int(scale or 0))
            for _, name, precision, scale in ARGUMENT.findall(match[2])
        ]
        return int(match[1]), tuple(types)
    return None


def is_no_probe(record: logging.LogRecord) -> bool:
    """Return False for a log record about a probe, which is no error for the user."""
    return PROBE not in record.getMessage()


def check_arity(text: str, call: FunctionCall) -> None:
    """Raise an AnalysisError if a call has the wrong number of arguments."""
    wanted = FUNCTIONS[call.name]
    if len(call.arguments) != wanted:
        expected = ("no arguments", "one argument, a value", "two arguments, a number and a value")[wanted]
        raise call_error(text, call, f"system.{call.name} takes {expected}, not {len(call.arguments)}")


def check_arguments(text: str, call: FunctionCall, types: tuple[SparkType, ...]) -> None:
    """Check the number, types and values of a call's arguments.

    Raises:
        AnalysisError: the function does not accept them.
    """
    check_arity(text, call)
    value = types[-1]
    if len(types) != len(call.arguments) or value.name not in ACCEPTED[call.name]:
        what = " or ".join((", ".join(ACCEPTED[call.name][:-1]), ACCEPTED[call.name][-1]))
        raise call_error(text, call, f"system.{call.name} takes a value of type {what}, not {value}")
    if len(types) > 1:
        what = "number of buckets" if call.name == "bucket" else "width"
        number = text[slice(*call.arguments[0])]
        if types[0].name not in COUNTS:
            raise call_error(text, call, f"The {what} of system.{call.name} must be an INT, not {types[0]}")
        if re.fullmatch(r"0+|-\s*\d+", number):
            raise call_error(text, call, f"The {what} of system.{call.name} must be at least 1, not {number}")
    if value.name == "DECIMAL" and value.precision > MOST_DIGITS:
        raise call_error(
            text,
            call,
            f"system.{call.name} supports decimals of at most {MOST_DIGITS} digits, not {value}",
            "Cast the value to a shorter decimal, if it fits",
        )


def call_error(text: str, call: FunctionCall, message: str, hint: str = "") -> AnalysisError:
    """Return an error about a call. Its context has the text of the call, which locates it in the statement."""
    return AnalysisError(
        message,
        kind=ErrorKind.TYPE_MISMATCH,
        hint=hint or f"{page('SQL reference')} lists Iceberg's functions and their argument types",
        call=text[call.start : call.end],
    )


# ---- expressions ----------------------------------------------------------------------------------------------


def expression(name: str, arguments: list[str], types: tuple[SparkType, ...]) -> str:
    """Return the Spark expression of a call."""
    value, kind = f"({arguments[-1]})", types[-1]
    match name:
        case "bucket":
            hashed = hash_of(value, kind)
            return f"CASE WHEN {value} IS NOT NULL THEN ({hashed} & 2147483647) % ({arguments[0]}) END"
        case "truncate":
            return truncate_sql(f"({arguments[0]})", value, kind)
        case "years":
            return f"(year({date_of(value, kind)}) - 1970)"
        case "months":
            date = date_of(value, kind)
            return f"((year({date}) - 1970) * 12 + month({date}) - 1)"
        case "days":
            return date_of(value, kind)
    return f"CAST({hour_number(value, kind)} AS INT)"


def date_of(value: str, kind: SparkType) -> str:
    """Return SQL for the day of a date or timestamp, in UTC."""
    if kind.name == "TIMESTAMP":
        return f"date_from_unix_date(CAST({units_of(value, DAY)} AS INT))"
    return f"CAST({value} AS DATE)"


def hour_number(value: str, kind: SparkType) -> str:
    """Return SQL for the hours since 1970 of a timestamp, in UTC, as a BIGINT: late timestamps do not fit an INT."""
    if kind.name == "TIMESTAMP":
        return units_of(value, HOUR)
    return f"(CAST(unix_date(CAST({value} AS DATE)) AS BIGINT) * 24 + hour({value}))"


def units_of(value: str, unit: int) -> str:
    """Return SQL for the whole days or hours since 1970 of an instant, as a BIGINT."""
    # `div` rounds towards 0. Adding an offset first would overflow for late timestamps.
    micros = f"unix_micros({value})"
    return f"({micros} div {unit}L - CAST({micros} % {unit}L < 0 AS BIGINT))"


def truncate_sql(width: str, value: str, kind: SparkType) -> str:
    """Return SQL for a truncated value: the greatest multiple of `width` up to a number, or a prefix."""
    match kind.name:
        case "STRING" | "BINARY":
            return f"substring({value}, 1, {width})"
        case "BIGINT":
            return f"({value} - pmod({value}, CAST({width} AS BIGINT)))"
        case "DECIMAL":
            step = f"0.{'1'.zfill(kind.scale)}" if kind.scale else "1"
            unit = f"CAST({width} AS DECIMAL(10,0)) * CAST('{step}' AS DECIMAL({kind.scale + 1},{kind.scale}))"
            return f"try_cast({value} - pmod({value}, {unit}) AS {kind})"
    long = f"CAST({value} AS BIGINT)"
    half, all_ones = {"TINYINT": (1 << 7, 0xFF), "SMALLINT": (1 << 15, 0xFFFF), "INT": (1 << 31, 0xFFFFFFFF)}[kind.name]
    # Numbers below the smallest multiple wrap around, as in Java.
    below = f"{long} - pmod({long}, CAST({width} AS BIGINT))"
    return f"CAST((({below} + {half}L) & {all_ones}L) - {half}L AS {kind})"


def hash_of(value: str, kind: SparkType) -> str:
    """Return SQL for Iceberg's hash of a value that is not NULL: Murmur3, 32 bits, seed 0."""
    match kind.name:
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            return f"hash({SEED}, {value})"  # of the microseconds
        case "DATE":
            return f"hash({SEED}, CAST(unix_date({value}) AS BIGINT))"
        case "STRING" | "BINARY":
            return hash_of_bytes(f"CAST({value} AS BINARY)")
        case "DECIMAL":
            return hash_of_bytes(decimal_bytes(value, kind))
    return f"hash({SEED}, CAST({value} AS BIGINT))"


def decimal_bytes(value: str, kind: SparkType) -> str:
    """Return SQL for the minimal big-endian two's complement of a decimal's unscaled value."""
    unscaled = f"CAST({value} * CAST({10**kind.scale}L AS DECIMAL({kind.scale + 1},0)) AS BIGINT)"
    sizes = " ".join(f"WHEN u BETWEEN {-(1 << bits)}L AND {(1 << bits) - 1}L THEN {bits // 8 + 1}" for bits in BITS)
    size = f"CASE {sizes} ELSE 8 END"
    return let("u", unscaled, f"substring(unhex(lpad(hex(u), 16, '0')), 9 - ({size}), 8)")


BITS: Final = (7, 15, 23, 31, 39, 47, 55)


def hash_of_bytes(value: str) -> str:
    """Return SQL for the Murmur3 hash of bytes.

    Spark's `hash` is Murmur3 if the length is a multiple of four, and differs from it for the remaining bytes. So
    `hash` takes the whole words, its finalization is inverted, the remaining bytes are mixed in, and the finalization
    is repeated.
    """
    mask = "4294967295L"
    body = "length(b) - length(b) % 4"
    tail = "hex(substring(b, 1 + length(b) - length(b) % 4, 3))"
    reversed_tail = f"concat(substring({tail}, 5, 2), substring({tail}, 3, 2), substring({tail}, 1, 2))"
    # h: the state after the whole words; k: the remaining bytes.
    steps = (
        ("h", f"CAST(hash({SEED}, substring(b, 1, {body})) AS BIGINT) & {mask}"),
        ("h", multiply_sql("(h ^ shiftright(h, 16))", pow(0xC2B2AE35, -1, 1 << 32))),
        ("h", multiply_sql("(h ^ shiftright(h, 13) ^ shiftright(h, 26))", pow(0x85EBCA6B, -1, 1 << 32))),
        ("h", f"h ^ shiftright(h, 16) ^ CAST({body} AS BIGINT)"),
        ("k", f"CAST(conv({reversed_tail}, 16, 10) AS BIGINT)"),
        ("k", multiply_sql("k", 0xCC9E2D51)),
        ("k", multiply_sql(f"((shiftleft(k, 15) | shiftright(k, 17)) & {mask})", 0x1B873593)),
        ("h", "h ^ k ^ CAST(length(b) AS BIGINT)"),
        ("h", multiply_sql("(h ^ shiftright(h, 16))", 0x85EBCA6B)),
        ("h", multiply_sql("(h ^ shiftright(h, 13))", 0xC2B2AE35)),
    )
    result = "CAST((h ^ shiftright(h, 16)) & 2147483647L AS INT)"
    for name, step in reversed(steps):
        result = let(name, step, result)
    return let("b", value, f"CASE WHEN length(b) % 4 = 0 THEN hash({SEED}, b) ELSE {result} END")


def multiply_sql(value: str, factor: int) -> str:
    """Return SQL for the lower 32 bits of a product of 32-bit numbers, computed in halves to fit a BIGINT."""
    high = f"shiftleft((shiftright({value}, 16) * {factor}L) & 65535L, 16)"
    return f"(({value} & 65535L) * {factor}L + {high}) & 4294967295L"


def let(name: str, value: str, body: str) -> str:
    """Return SQL that evaluates `value` once and binds it to `name` in `body`."""
    return f"element_at(transform(array({value}), __{name} -> {prefix_variable(name, body)}), 1)"


def prefix_variable(name: str, body: str) -> str:
    """Prefix a variable in an expression, so that it cannot be a column's name."""
    return re.sub(rf"(?<![\w'`.]){name}(?![\w'`.])", f"__{name}", body)
