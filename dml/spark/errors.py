"""Spark's exceptions as ours. Driver; classic Spark and Spark Connect.

Input: whatever a call of PySpark raised. Output: a `DmlError` that says the first cause in one sentence, in the words
of the user's statement: names of our temporary views and the text of our generated SQL are left out. What a program or
the planner may want (names, proposals, the fragment of SQL that Spark points at) is in `error.context`.

Source: Spark's error conditions (`error-conditions.json`); SQLSTATE classes of the SQL standard for the rest.
"""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
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
from dml.spark.versions import java_failure, sql_failure
from dml.sqlparse.quoting import quoted_parts
from dml.suggestions import did_you_mean

__all__ = ["SparkFailure", "condition_of", "ended_with", "failure_of", "raised_by_us", "spark_ended", "translate"]

MAX_CAUSES: Final = 12
RAISED_BY_US: Final = re.compile(r"\[rowdelta:(?P<kind>[a-z-]+)\](?P<text>.*)", re.DOTALL)
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
    """What one exception of Spark says.

    Attributes:
        condition: Its error condition, `UNRESOLVED_COLUMN.WITH_SUGGESTION`; empty where it has none.
        state: Its SQLSTATE; empty where it has none.
        message: Its message without condition, SQLSTATE, place and stack.
        parameters: The values in the message.
        fragments: Pieces of SQL that it points at, outermost first.
        place: Line, from 1, and column, from 0, in the SQL that Spark was given; None where it says none.
    """

    condition: str = ""
    state: str = ""
    message: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    fragments: tuple[str, ...] = ()
    place: tuple[int, int] | None = None


def translate(error: BaseException) -> DmlError:
    """The error to raise for an exception of Spark, with the exception as its cause (`raise ... from error`).

    Args:
        error: What PySpark raised; an error of ours comes back as it is.

    Returns:
        The class that says what to do, the kind, a one-sentence message, and the facts as context.
    """
    if isinstance(error, DmlError):
        return error
    failures = list(failures_of(error))
    for failure in reversed(failures):
        ours = raised_in_sql(failure) or raised_in_worker(failure)
        if ours is not None:
            return ours
    failure = next((f for f in reversed(failures) if f.condition), failures[-1])
    main = failure.condition.partition(".")[0]
    if main in SPECIAL:
        return SPECIAL[main](failure)
    error_class, kind = CLASSES.get(main) or STATES.get(failure.state[:2]) or (ExecutionError, ErrorKind.EXECUTION)
    message, hint = advice_apart(failure.message or type(error).__name__)
    if error_class is ExecutionError:
        message = f"Spark failed: {message}"
    return error_class(message, kind=kind, hint=hint, **facts(failure))


def raised_by_us(error: BaseException) -> DmlError | None:
    """The error that our own SQL raised for a value of a row; None for what is Spark's or the user's."""
    return next((ours for failure in failures_of(error) if (ours := raised_in_sql(failure)) is not None), None)


def advice_apart(message: str) -> tuple[str, str | None]:
    """What happened, and what Spark says to do about it."""
    what, *advice = ADVICE.split(message, maxsplit=1)
    return what, advice[0] if advice else None


def failure_of(error: BaseException) -> SparkFailure:
    """What Spark says itself: the first cause that has an error condition."""
    failures = list(failures_of(error))
    return next((failure for failure in reversed(failures) if failure.condition), failures[-1])


def failures_of(error: BaseException) -> Iterator[SparkFailure]:
    """What an exception and its causes say, the exception first."""
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
            yield parsed(str(cause))
            cause = cause.__cause__
        else:
            yield failure_in_java(cause)
            cause = cause.getCause()


def failure_in_python(error: PySparkException) -> SparkFailure:
    """What an exception that PySpark converted says."""
    failure = sql_failure(error)
    return parsed(
        failure.message or str(error),
        condition=failure.condition or "",
        state=failure.state or "",
        parameters=error.getMessageParameters() or {},
        fragments=failure.fragments,
        shown=str(error),
    )


def failure_in_java(error: Any) -> SparkFailure:
    """What an exception that PySpark left as it was says."""
    raw = str(error.getMessage() or error.toString())
    try:
        failure = java_failure(error)
        return parsed(
            raw,
            condition=failure.condition or "",
            state=failure.state or "",
            parameters=dict(error.getMessageParameters() or {}),
            fragments=failure.fragments,
        )
    except Py4JError:  # no exception of Spark's own
        return parsed(raw)


def parsed(
    raw: str,
    *,
    condition: str = "",
    state: str = "",
    parameters: Mapping[str, str] | None = None,
    fragments: tuple[str, ...] = (),
    shown: str = "",
) -> SparkFailure:
    """A failure from its message and what else is known of it; only an exception that is shown names its place."""
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
    """An error that our generated SQL raised: `raise_error('[rowdelta:kind]text')`."""
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
    """An error that Python code raised in a task: ours with its class, others as an execution error."""
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
    """The error condition that Spark has for an error of ours, and its parameters; None where it has none.

    Programs look at it, whatever engine ran their statement.
    """
    condition = str(error.context.get("condition") or "")
    if isinstance(error, NotFoundError) and condition == "TABLE_OR_VIEW_NOT_FOUND":  # Spark has said so itself
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
    """A failure as context of an error."""
    found: dict[str, Any] = {"condition": failure.condition, "parameters": dict(failure.parameters)}
    if failure.fragments:
        found["fragment"] = failure.fragments[0]
    if failure.place is not None:
        found["place"] = failure.place
    return found


def listed(names: str) -> tuple[str, ...]:
    """The names of a list as Spark writes it: "[`a`.`id`, `b`.`id`]" is `("a.id", "b.id")`."""
    found = re.findall(r"(?:`(?:[^`]|``)*`|[^,.\s`]+)(?:\.(?:`(?:[^`]|``)*`|[^,.\s`]+))*", names.strip("[]"))
    return tuple(dict.fromkeys(".".join(quoted_parts(name)) for name in found))


def first_parameter(failure: SparkFailure, *keys: str) -> str:
    return next((failure.parameters[key] for key in keys if key in failure.parameters), "")


def unresolved_column(failure: SparkFailure) -> DmlError:
    """A name that is no column, field or parameter."""
    parts = quoted_parts(first_parameter(failure, "objectName", "fieldName", "colName"))
    proposals = listed(first_parameter(failure, "proposal", "fields", "suggestion"))
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
    """A name that two tables have."""
    parts = quoted_parts(failure.parameters.get("name", ""))
    candidates = listed(failure.parameters.get("referenceNames", ""))
    return AnalysisError(
        f"The column '{'.'.join(parts)}' is ambiguous",
        kind=ErrorKind.AMBIGUOUS_COLUMN,
        hint="Write which one is meant: " + " or ".join(f"'{name}'" for name in candidates) if candidates else None,
        name=".".join(parts),
        parts=parts,
        proposals=candidates,
        **facts(failure),
    )


def table_not_found(failure: SparkFailure) -> DmlError:
    """A table that is in none of the catalogs."""
    quoted = next((failure.parameters[key] for key in ("relationName", "identifier") if key in failure.parameters), "")
    parts = quoted_parts(quoted)
    name = ".".join(parts)
    return NotFoundError(f"The table or view '{name}' is not there", name=name, parts=parts, **facts(failure))


def function_not_found(failure: SparkFailure) -> DmlError:
    """A function that is neither Spark's nor the user's."""
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
    """A function with too many or too few arguments."""
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
    """Operands or arguments of types that do not go together; a condition that is none."""
    parameters, detail = failure.parameters, failure.condition.partition(".")[2]
    branch = parameters.get("sqlExpr", "").startswith('"CASE WHEN ') and "BOOLEAN" in parameters.get("requiredType", "")
    if detail == "FILTER_NOT_BOOLEAN" or (detail == "UNEXPECTED_INPUT_TYPE" and branch):
        return not_boolean(failure)
    return AnalysisError(failure.message, kind=ErrorKind.TYPE_MISMATCH, **facts(failure))


def not_boolean(failure: SparkFailure) -> DmlError:
    """A condition that is neither true nor false."""
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
    """A subquery that stands for one value and has several rows."""
    return DataError(
        "A subquery that stands for one value gave more than one row",
        kind=ErrorKind.CARDINALITY_VIOLATION,
        hint="Make it give one: with a stricter WHERE, an aggregate such as max(), or LIMIT 1",
        **facts(failure),
    )


def user_raised(failure: SparkFailure) -> DmlError:
    """The statement's own `raise_error` or `assert_true`."""
    return DataError(failure.parameters.get("errorMessage", failure.message), **facts(failure))


def divide_by_zero(failure: SparkFailure) -> DmlError:
    """A division whose divisor was zero in some row."""
    place = f" in '{failure.fragments[0]}'" if failure.fragments else ""
    return DataError(f"Division by zero{place}", hint="try_divide(a, b) gives NULL instead", **facts(failure))


def not_deterministic(failure: SparkFailure) -> DmlError:
    """`rand()` and the like in a condition that decides which rows change."""
    expressions = failure.parameters.get("sqlExprs", "").strip('[]"')
    return AnalysisError(
        f"A condition must give the same answer each time it is asked, and {expressions or 'this one'} does not",
        kind=ErrorKind.INVALID_CONDITION,
        hint="Compute such values into a table or a view's column first",
        **facts(failure),
    )


def failed_read(failure: SparkFailure) -> DmlError:
    """A file that Spark's own reader could not read."""
    path = first_parameter(failure, "path")
    return CorruptFileError(
        f"The file '{path}' is not there, or cannot be read: {failure.message}", file=path, **facts(failure)
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

# Of the conditions above none: by the class of the SQLSTATE, its first two characters.
STATES: Final[Mapping[str, tuple[type[DmlError], ErrorKind]]] = {
    "0A": (NotSupportedError, ErrorKind.NOT_SUPPORTED),
    "21": (DataError, ErrorKind.CARDINALITY_VIOLATION),
    "22": (DataError, ErrorKind.INVALID_VALUE),
    "23": (DataError, ErrorKind.INVALID_VALUE),
    "42": (AnalysisError, ErrorKind.ANALYSIS),
    "54": (NotSupportedError, ErrorKind.NOT_SUPPORTED),
}


# ---- Spark's end ----------------------------------------------------------------------------------------------

# A JVM that ends (killed for its memory, most often) leaves the Python process with a connection to nobody, and every
# call then fails with an error of the network that says nothing of it.


def ended_with(error: BaseException, spark: SparkSession) -> bool:
    """Whether an error came of Spark's end; False where another process started Spark, as on Connect.

    Args:
        error: What a call raised.
        spark: The session.
    """
    if not isinstance(error, OSError | Py4JNetworkError):
        return False
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(limits.JVM_END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def spark_ended() -> ExecutionError:
    """The error to raise from one that came of Spark's end."""
    return ExecutionError(
        "Spark's JVM ended while the statement ran",
        hint="Look into the system's log for the reason; if it was killed for its memory, lower spark.driver.memory or "
        "the number of cores. Start Python anew, and look whether the table has changed before running it again",
    )
