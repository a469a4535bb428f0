"""Translate Spark's exceptions into RowDelta's. Driver; classic Spark and Spark Connect.

Input: any exception that a PySpark call raised. Output: a `DmlError` that states the root cause in one sentence, in
terms of the user's statement: names of internal temporary views and generated SQL are removed. Facts for programs and
the planner (names, proposals, the SQL fragment that Spark points at) are in `error.context`.

Source: Spark's error conditions (`error-conditions.json`); SQLSTATE classes of the SQL standard for the rest.
"""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml import errors, limits
from dml.errors import (
    AlreadyExistsError,
    AnalysisError,
    CorruptFileError,
    DataError,
    DmlError,
    ErrorKind,
    ExecutionError,
    NotFoundError,
    NotSupportedError,
    SqlError,
)
from dml.hints import did_you_mean
from dml.spark.bridge.gateway import Py4JError, Py4JJavaError, Py4JNetworkError, gateway
from dml.spark.bridge.sessions import is_connect
from dml.spark.versions import java_failure, sql_failure
from dml.sqlparse.quoting import quoted_parts

__all__ = [
    "SparkFailure",
    "condition_of",
    "failure_of",
    "generated_sql_error",
    "is_jvm_exit",
    "jvm_exit_error",
    "translate",
]

MAX_CAUSES: Final = 12
RAISED_BY_US: Final = re.compile(rf"\[rowdelta:(?P<kind>{'|'.join(ErrorKind)})\](?P<text>.*)", re.DOTALL)
INTERNAL_QUALIFIER: Final = re.compile(r"`?\b__rowdelta_\w+`?\.")
CONDITION: Final = re.compile(r"\[(?P<condition>[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]\s*")
SQLSTATE: Final = re.compile(r"\s*\(?SQLSTATE: (?P<state>[0-9A-Z]{5})\)?")
TAIL: Final = re.compile(
    r"\n\n?== (?:SQL|DataFrame)\b|;? ?\(?line \d+,? pos \d+|\n\n?JVM stacktrace|\n\tat ", re.DOTALL
)
ADVICE: Final = re.compile(r"\.\s+(?=(?:Add|Consider|Correct|If|Please|Rewrite|To|Try|Use)\b)")
PLACE: Final = re.compile(r"\bline (?P<line>\d+),? pos (?P<column>\d+)")
TRACEBACK: Final = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFailure:
    """The parts of one Spark exception.

    Attributes:
        condition: The error condition, such as `UNRESOLVED_COLUMN.WITH_SUGGESTION`; empty if it has none.
        state: The SQLSTATE; empty if it has none.
        message: The message without condition, SQLSTATE, place and stack.
        parameters: The message parameters.
        fragments: The SQL fragments that it points at, outermost first.
        place: The line, from 1, and column, from 0, in the SQL that Spark parsed; None if it names no place.
    """

    condition: str = ""
    state: str = ""
    message: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    fragments: tuple[str, ...] = ()
    place: tuple[int, int] | None = None


def translate(error: BaseException) -> DmlError:
    """Translate a Spark exception into the error to raise in its place (`raise ... from error`).

    Args:
        error: What PySpark raised; a `DmlError` is returned unchanged.

    Returns:
        An error with a class, a kind, a one-sentence message, and the facts as context.
    """
    if isinstance(error, DmlError):
        return error
    failures = list(failures_of(error))
    for failure in reversed(failures):
        raised = raised_in_sql(failure) or raised_in_worker(failure)
        if raised is not None:
            return raised
    failure = next((f for f in reversed(failures) if f.condition), failures[-1])
    main = failure.condition.partition(".")[0]
    if main in SPECIAL:
        return SPECIAL[main](failure)
    error_class, kind = CLASSES.get(main) or STATES.get(failure.state[:2]) or (ExecutionError, ErrorKind.EXECUTION)
    message, hint = split_advice(failure.message or type(error).__name__)
    if error_class is ExecutionError:
        message = f"Spark failed: {message}"
    return error_class(message, kind=kind, hint=hint, **facts(failure))


def generated_sql_error(error: BaseException) -> DmlError | None:
    """Return the error that RowDelta's generated SQL raised for a row; None if Spark or the user raised it."""
    return next((raised for failure in failures_of(error) if (raised := raised_in_sql(failure)) is not None), None)


def split_advice(message: str) -> tuple[str, str | None]:
    """Split a message into what happened and Spark's advice, if any."""
    what, *advice = ADVICE.split(message, maxsplit=1)
    return what, advice[0] if advice else None


def failure_of(error: BaseException) -> SparkFailure:
    """Return the innermost failure that has an error condition, or the innermost one."""
    failures = list(failures_of(error))
    return next((failure for failure in reversed(failures) if failure.condition), failures[-1])


def failures_of(error: BaseException) -> Iterator[SparkFailure]:
    """Yield the failure of an exception, then those of its causes."""
    cause: Any = error
    for _ in range(MAX_CAUSES):
        if cause is None:
            return
        if isinstance(cause, Py4JJavaError):
            cause = cause.java_exception
        if isinstance(cause, PySparkException):
            yield failure_in_python(cause)
            cause = sql_failure(cause).cause
        elif isinstance(cause, BaseException):
            yield parse_failure(str(cause))
            cause = cause.__cause__
        else:
            yield failure_in_java(cause)
            cause = cause.getCause()


def failure_in_python(error: PySparkException) -> SparkFailure:
    """Parse an exception that PySpark converted."""
    failure = sql_failure(error)
    return parse_failure(
        failure.message or str(error),
        condition=failure.condition or "",
        state=failure.state or "",
        parameters=error.getMessageParameters() or {},
        fragments=failure.fragments,
        shown=str(error),
    )


def failure_in_java(error: Any) -> SparkFailure:
    """Parse a Java exception that PySpark did not convert."""
    raw = str(error.getMessage() or error.toString())
    try:
        failure = java_failure(error)
        return parse_failure(
            raw,
            condition=failure.condition or "",
            state=failure.state or "",
            parameters=dict(error.getMessageParameters() or {}),
            fragments=failure.fragments,
        )
    except Py4JError:  # not one of Spark's own exceptions
        return parse_failure(raw)


def parse_failure(
    raw: str,
    *,
    condition: str = "",
    state: str = "",
    parameters: Mapping[str, str] | None = None,
    fragments: tuple[str, ...] = (),
    shown: str = "",
) -> SparkFailure:
    """Parse a message; arguments override what it contains. The place is read from `shown`, or else from `raw`."""
    body = raw if TRACEBACK in raw else TAIL.split(raw, maxsplit=1)[0]
    found = CONDITION.search(body)
    sqlstate = SQLSTATE.search(body)
    text = SQLSTATE.sub("", body[found.end() :] if found else body)
    place = PLACE.search(shown or raw)
    return SparkFailure(
        condition=condition or (found["condition"] if found else ""),
        state=state or (sqlstate["state"] if sqlstate else ""),
        message=INTERNAL_QUALIFIER.sub("", text).strip().rstrip("."),
        parameters={key: INTERNAL_QUALIFIER.sub("", str(value)) for key, value in (parameters or {}).items()},
        fragments=tuple(INTERNAL_QUALIFIER.sub("", fragment) for fragment in fragments),
        place=None if place is None else (int(place["line"]), int(place["column"])),
    )


def raised_in_sql(failure: SparkFailure) -> DmlError | None:
    """Return the error of `raise_error('[rowdelta:kind]text')` in RowDelta's generated SQL, or None."""
    found = RAISED_BY_US.search(failure.parameters.get("errorMessage", failure.message))
    if found is None:
        return None
    kind = ErrorKind(found["kind"])
    fields = found["text"].strip().split("|", 3)
    if kind is ErrorKind.OVERFLOW and len(fields) == 4:
        column, source, target, value = fields
        return DataError(
            f"The value {value} of type {source} does not fit the column '{column}' of type {target}",
            kind=kind,
            hint="Nothing was changed",
            column=column,
            value=value,
        )
    return DataError(found["text"].strip(), kind=kind)


def raised_in_worker(failure: SparkFailure) -> DmlError | None:
    """Return the error of Python code in a task: a RowDelta error as its class, any other as an ExecutionError."""
    text = failure.parameters.get("traceback", failure.message)
    if TRACEBACK not in text:
        return None
    lines = text.splitlines()
    last_frame = max(i for i, line in enumerate(lines) if line.startswith("  File ") or line.endswith(TRACEBACK))
    raised = [i for i, line in enumerate(lines) if i > last_frame and line and not line.startswith(" ")]
    if not raised:
        return ExecutionError(f"A Python function failed in a task: {lines[-1].strip()}")
    raw = SQLSTATE.sub("", TAIL.split("\n".join(lines[raised[0] :]), maxsplit=1)[0]).strip()
    name, _, message = raw.partition(": ")
    module, _, class_name = name.rpartition(".")
    if module == errors.__name__ and class_name in errors.__all__:
        error_class: type[DmlError] = getattr(errors, class_name)
        return error_class(message)
    return ExecutionError(f"A Python function failed in a task: {raw}", traceback=text)


CONDITIONS: Final[tuple[tuple[type[DmlError], str, str, str], ...]] = (
    (NotFoundError, "table", "TABLE_OR_VIEW_NOT_FOUND", "relationName"),
    (NotFoundError, "namespace", "SCHEMA_NOT_FOUND", "schemaName"),
    (AlreadyExistsError, "table", "TABLE_OR_VIEW_ALREADY_EXISTS", "relationName"),
    (AlreadyExistsError, "namespace", "SCHEMA_ALREADY_EXISTS", "schemaName"),
)


def condition_of(error: DmlError) -> tuple[str, dict[str, str]] | None:
    """Return Spark's error condition for a RowDelta error, and its parameters, or None.

    Programs check the condition whichever engine ran their statement.
    """
    condition = str(error.context.get("condition") or "")
    if isinstance(error, NotFoundError) and condition == "TABLE_OR_VIEW_NOT_FOUND":  # Spark itself raised it
        return condition, dict(error.context.get("parameters", {}))
    return next(
        (
            (name, {parameter: str(error.context[key])})
            for kind, key, name, parameter in CONDITIONS
            if isinstance(error, kind) and key in error.context
        ),
        None,
    )


def facts(failure: SparkFailure) -> dict[str, Any]:
    """Return the context of the error for a failure."""
    found: dict[str, Any] = {"condition": failure.condition, "parameters": dict(failure.parameters)}
    if failure.fragments:
        found["fragment"] = failure.fragments[0]
    if failure.place is not None:
        found["place"] = failure.place
    return found


def parse_names(names: str) -> tuple[str, ...]:
    """Parse a list of names as Spark formats it: "[`a`.`id`, `b`.`id`]" is `("a.id", "b.id")`."""
    found = re.findall(r"(?:`(?:[^`]|``)*`|[^,.\s`]+)(?:\.(?:`(?:[^`]|``)*`|[^,.\s`]+))*", names.strip("[]"))
    return tuple(dict.fromkeys(".".join(quoted_parts(name)) for name in found))


def first_parameter(failure: SparkFailure, *keys: str) -> str:
    return next((failure.parameters[key] for key in keys if key in failure.parameters), "")


def unresolved_column(failure: SparkFailure) -> DmlError:
    parts = quoted_parts(first_parameter(failure, "objectName", "fieldName", "colName"))
    proposals = parse_names(first_parameter(failure, "proposal", "fields", "suggestion"))
    return AnalysisError(
        f"There is no column '{'.'.join(parts)}' here",
        kind=ErrorKind.UNRESOLVED_COLUMN,
        hint=did_you_mean(".".join(parts), proposals) if proposals else None,
        name=".".join(parts),
        parts=parts,
        proposals=proposals,
        **facts(failure),
    )


def ambiguous_reference(failure: SparkFailure) -> DmlError:
    parts = quoted_parts(failure.parameters.get("name", ""))
    candidates = parse_names(failure.parameters.get("referenceNames", ""))
    return AnalysisError(
        f"The column '{'.'.join(parts)}' is ambiguous",
        kind=ErrorKind.AMBIGUOUS_COLUMN,
        hint="Qualify the column: " + " or ".join(f"'{name}'" for name in candidates) if candidates else None,
        name=".".join(parts),
        parts=parts,
        proposals=candidates,
        **facts(failure),
    )


def table_not_found(failure: SparkFailure) -> DmlError:
    quoted = next((failure.parameters[key] for key in ("relationName", "identifier") if key in failure.parameters), "")
    parts = quoted_parts(quoted)
    name = ".".join(parts)
    return NotFoundError(f"There is no table or view '{name}'", name=name, parts=parts, **facts(failure))


def function_not_found(failure: SparkFailure) -> DmlError:
    parts = quoted_parts(failure.parameters.get("routineName", ""))
    name = ".".join(parts)
    return AnalysisError(
        f"There is no function '{name}'",
        kind=ErrorKind.UNRESOLVED_FUNCTION,
        name=name,
        parts=parts,
        **facts(failure),
    )


def wrong_arguments(failure: SparkFailure) -> DmlError:
    function = ".".join(quoted_parts(failure.parameters.get("functionName", "")))
    expected, actual = (failure.parameters.get(key, "") for key in ("expectedNum", "actualNum"))
    if not (function and expected and actual):
        return AnalysisError(failure.message, **facts(failure))
    return AnalysisError(
        f"The function '{function}' takes {expected.strip('[]').replace(', ', ' or ')} arguments, not {actual}",
        name=function,
        **facts(failure),
    )


def mismatched_types(failure: SparkFailure) -> DmlError:
    """Return the error for operands or arguments of incompatible types, or for a condition that is not boolean."""
    parameters, detail = failure.parameters, failure.condition.partition(".")[2]
    branch = parameters.get("sqlExpr", "").startswith('"CASE WHEN ') and "BOOLEAN" in parameters.get("requiredType", "")
    if detail == "FILTER_NOT_BOOLEAN" or (detail == "UNEXPECTED_INPUT_TYPE" and branch):
        return not_boolean(failure)
    return AnalysisError(failure.message, kind=ErrorKind.TYPE_MISMATCH, **facts(failure))


def not_boolean(failure: SparkFailure) -> DmlError:
    condition, kind = (
        next((failure.parameters[key].strip('"') for key in keys if key in failure.parameters), "")
        for keys in (("filter", "joinCondition", "inputSql"), ("type", "conditionType", "inputType"))
    )
    return AnalysisError(
        f"The condition '{condition}' is not a boolean but of type {kind}",
        kind=ErrorKind.TYPE_MISMATCH,
        hint="Compare it with a value, or test it with IS NOT NULL",
        **facts(failure),
    )


def too_many_rows(failure: SparkFailure) -> DmlError:
    """Return the error for a scalar subquery with several rows."""
    return DataError(
        "A scalar subquery returned more than one row",
        kind=ErrorKind.CARDINALITY_VIOLATION,
        hint="Make it return one: with a stricter WHERE, an aggregate such as max(), or LIMIT 1",
        **facts(failure),
    )


def user_raised(failure: SparkFailure) -> DmlError:
    """Return the error of the user's own `raise_error` or `assert_true`."""
    return DataError(failure.parameters.get("errorMessage", failure.message), **facts(failure))


def divide_by_zero(failure: SparkFailure) -> DmlError:
    place = f" in '{failure.fragments[0]}'" if failure.fragments else ""
    return DataError(f"Division by zero{place}", hint="try_divide(a, b) returns NULL instead", **facts(failure))


def not_deterministic(failure: SparkFailure) -> DmlError:
    """Return the error for `rand()` and the like in a condition that selects the rows to change."""
    expressions = failure.parameters.get("sqlExprs", "").strip('[]"')
    return AnalysisError(
        f"A condition must be deterministic, and {expressions or 'this one'} is not",
        kind=ErrorKind.INVALID_CONDITION,
        hint="Compute such values into a table or a view's column first",
        **facts(failure),
    )


def failed_read(failure: SparkFailure) -> DmlError:
    """Return the error for a file that Spark's own reader could not read."""
    path = first_parameter(failure, "path")
    return CorruptFileError(
        f"The file '{path}' is missing or cannot be read: {failure.message}", file=path, **facts(failure)
    )


SPECIAL: Final[Mapping[str, Callable[[SparkFailure], DmlError]]] = {
    "AMBIGUOUS_REFERENCE": ambiguous_reference,
    "DATATYPE_MISMATCH": mismatched_types,
    "DIVIDE_BY_ZERO": divide_by_zero,
    "FAILED_READ_FILE": failed_read,
    "FIELD_NOT_FOUND": unresolved_column,
    "INVALID_NON_DETERMINISTIC_EXPRESSIONS": not_deterministic,
    "JOIN_CONDITION_IS_NOT_BOOLEAN_TYPE": not_boolean,
    "REQUIRES_SINGLE_PART_NAMESPACE": table_not_found,
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": too_many_rows,
    "TABLE_OR_VIEW_NOT_FOUND": table_not_found,
    "UNRESOLVED_COLUMN": unresolved_column,
    "UNRESOLVED_FIELD": unresolved_column,
    "UNRESOLVED_USING_COLUMN_FOR_JOIN": unresolved_column,
    "UNRESOLVED_ROUTINE": function_not_found,
    "USER_RAISED_EXCEPTION": user_raised,
    "WRONG_NUM_ARGS": wrong_arguments,
}

CLASSES: Final[Mapping[str, tuple[type[DmlError], ErrorKind]]] = {
    "AMBIGUOUS_COLUMN_OR_FIELD": (AnalysisError, ErrorKind.AMBIGUOUS_COLUMN),
    "ARITHMETIC_OVERFLOW": (DataError, ErrorKind.OVERFLOW),
    "BINARY_ARITHMETIC_OVERFLOW": (DataError, ErrorKind.OVERFLOW),
    "CAST_OVERFLOW": (DataError, ErrorKind.OVERFLOW),
    "CAST_OVERFLOW_IN_TABLE_INSERT": (DataError, ErrorKind.OVERFLOW),
    "GROUP_BY_AGGREGATE": (AnalysisError, ErrorKind.INVALID_CONDITION),
    "INVALID_EXTRACT_BASE_FIELD_TYPE": (AnalysisError, ErrorKind.TYPE_MISMATCH),
    "INVALID_WHERE_CONDITION": (AnalysisError, ErrorKind.INVALID_CONDITION),
    "MERGE_CARDINALITY_VIOLATION": (DataError, ErrorKind.CARDINALITY_VIOLATION),
    "NOT_NULL_ASSERT_VIOLATION": (DataError, ErrorKind.NOT_NULL_VIOLATION),
    "NUMERIC_VALUE_OUT_OF_RANGE": (DataError, ErrorKind.OVERFLOW),
    "PARSE_EMPTY_STATEMENT": (SqlError, ErrorKind.SYNTAX),
    "PARSE_SYNTAX_ERROR": (SqlError, ErrorKind.SYNTAX),
    "SCHEMA_ALREADY_EXISTS": (AlreadyExistsError, ErrorKind.ALREADY_EXISTS),
    "SCHEMA_NOT_FOUND": (NotFoundError, ErrorKind.NOT_FOUND),
    "TABLE_OR_VIEW_ALREADY_EXISTS": (AlreadyExistsError, ErrorKind.ALREADY_EXISTS),
}

# For all other conditions: by SQLSTATE class, its first two characters.
STATES: Final[Mapping[str, tuple[type[DmlError], ErrorKind]]] = {
    "0A": (NotSupportedError, ErrorKind.NOT_SUPPORTED),
    "21": (DataError, ErrorKind.CARDINALITY_VIOLATION),
    "22": (DataError, ErrorKind.INVALID_VALUE),
    "23": (DataError, ErrorKind.INVALID_VALUE),
    "42": (AnalysisError, ErrorKind.ANALYSIS),
    "54": (NotSupportedError, ErrorKind.NOT_SUPPORTED),
}


# ---- end of the JVM -------------------------------------------------------------------------------------------

# When the JVM exits (most often killed for its memory), its Python process keeps a dead connection, and every call then
# fails with a network error that does not name the cause.


def is_jvm_exit(error: BaseException, spark: SparkSession) -> bool:
    """Return True if an error was caused by the exit of Spark's JVM.

    False if another process started Spark, as on Connect.
    """
    # py4j hides a lost connection behind an error without a trace.
    is_bare = type(error) is Py4JError and "Trace:" not in str(error)
    if not (is_bare or isinstance(error, OSError | Py4JNetworkError)):
        return False
    process = None if is_connect(spark) else getattr(gateway(), "proc", None)
    if process is None:
        return False
    try:
        process.wait(limits.JVM_END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def jvm_exit_error() -> ExecutionError:
    """Return the error to raise from one for which `is_jvm_exit` is True."""
    return ExecutionError(
        "Spark's JVM ended while the statement ran",
        hint="Check the system log for the reason; if it was killed for its memory, lower spark.driver.memory or "
        "the number of cores. Restart Python, and check whether the table has changed before running it again",
    )
