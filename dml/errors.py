"""The errors of RowDelta: a leaf that every module may import, on the driver and on workers.

The class tells callers how to react; `kind` is a stable code of what happened::

    DmlError
    ├── SqlError                    change the text of the statement (the message shows line and column)
    │   └── AnalysisError           change the statement or the table: a name, a type or a mode does not fit
    │       ├── NotFoundError       the table, namespace, branch or snapshot does not exist
    │       ├── AlreadyExistsError  the name is taken
    │       └── NotSupportedError   use the alternative that the message names
    ├── DataError                   change the data: a value or a row breaks a rule of the statement or the table
    ├── CorruptFileError            repair the table: one of its files is missing or damaged
    ├── SetupError                  repair the installation: Java, Spark, a catalog's settings
    ├── ExecutionError              Spark, a task or a storage failed; the cause is attached
    ├── CommitConflictError         run the statement again: a concurrent commit conflicts
    ├── ValidationFailedError       the commit would break the table or the isolation level
    ├── RowConservationError        report it: rows would have been lost or duplicated; nothing was published
    └── CommitStateUnknownError     check the table's snapshots first: the commit may have landed
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar, Final

__all__ = [
    "AlreadyExistsError",
    "AnalysisError",
    "Clues",
    "CommitConflictError",
    "CommitStateUnknownError",
    "CorruptFileError",
    "DataError",
    "DmlError",
    "ErrorKind",
    "ExecutionError",
    "NotFoundError",
    "NotSupportedError",
    "RowConservationError",
    "SetupError",
    "SqlError",
    "ValidationFailedError",
    "clues_of",
    "expired_at",
    "storage_failure",
]


class ErrorKind(StrEnum):
    """What happened, as a stable code for programs. Codes are only ever added."""

    SYNTAX = "syntax"
    ANALYSIS = "analysis"
    UNRESOLVED_COLUMN = "unresolved-column"
    UNRESOLVED_FUNCTION = "unresolved-function"
    AMBIGUOUS_COLUMN = "ambiguous-column"
    TYPE_MISMATCH = "type-mismatch"
    INVALID_ASSIGNMENT = "invalid-assignment"
    INVALID_CONDITION = "invalid-condition"
    INVALID_PROPERTY = "invalid-property"
    NOT_FOUND = "not-found"
    ALREADY_EXISTS = "already-exists"
    NOT_EMPTY = "not-empty"
    NOT_SUPPORTED = "not-supported"
    CARDINALITY_VIOLATION = "cardinality-violation"
    NOT_NULL_VIOLATION = "not-null-violation"
    OVERFLOW = "overflow"
    INVALID_VALUE = "invalid-value"
    CORRUPT_FILE = "corrupt-file"
    SETUP = "setup"
    EXECUTION = "execution"
    CONFLICT = "conflict"
    VALIDATION_FAILED = "validation-failed"
    STATE_UNKNOWN = "state-unknown"
    ROW_CONSERVATION = "row-conservation"
    IDEMPOTENCY_KEY = "idempotency-key"
    CHECKPOINT = "checkpoint"


def rebuild(error_class: type["DmlError"], state: dict[str, Any]) -> "DmlError":
    """Restore an error from its pickled state: exceptions with keyword arguments do not unpickle by themselves."""
    error = error_class.__new__(error_class)
    Exception.__init__(error, state["message"])
    error.__dict__.update(state)
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Clues:
    """The facts of an error that help to locate it in the statement.

    Attributes:
        parts: The name that the error is about.
        proposals: Similar names.
        subjects: Words of the statement in the error, the most specific first.
        column: The column that the error is about, with dots for nested fields.
        condition: Spark's error condition; empty for other errors.
        parameters: The values in Spark's message.
        fragment: The SQL that Spark points at; empty if there is none.
        place: The line, from 1, and the column, from 0, in the SQL that Spark received.
    """

    parts: tuple[str, ...] = ()
    proposals: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    column: str | None = None
    condition: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    fragment: str = ""
    place: tuple[int, int] | None = None


SUBJECTS: Final = ("call", "property", "option", "type", "column", "namespace", "table")
"""Facts of an error that are words of the statement, the most specific first."""


class DmlError(Exception):
    """The base class of all errors that RowDelta raises.

    Args:
        message: What happened and where, one sentence, without a final period.
        kind: The stable code; each class has a default.
        hint: What to do about it, one sentence.
        sql: The whole statement, if there is one.
        position: The offset of the offending text in `sql`, from 0; None if unknown.
        length: The length of the offending text, at least 1.
        expected: What was expected there.
        **context: Facts for programs (`table`, `column`, `file`, `snapshot_id` ...), read as `error.context`.
    """

    default_kind: ClassVar[ErrorKind] = ErrorKind.EXECUTION
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind | None = None,
        hint: str | None = None,
        sql: str = "",
        position: int | None = None,
        length: int = 1,
        expected: str | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.default_kind
        self.hint = hint
        self.sql = sql
        self.position = position
        self.length = max(1, length)
        self.expected = expected
        self.context = context
        # Offsets of the part of the statement that was processed, for callers with the statement's text.
        self.span: tuple[int, int] | None = None
        self._cause: BaseException | None = None

    @property
    def cause(self) -> BaseException | None:
        """The exception that caused this one, such as Spark's, or None. The traceback may hide it."""
        return self.__cause__ or self._cause

    @cause.setter
    def cause(self, cause: BaseException | None) -> None:
        self._cause = cause

    @property
    def line(self) -> int | None:
        """The line of the offending text, from 1."""
        return None if self.position is None else self.sql.count("\n", 0, self.position) + 1

    @property
    def column(self) -> int | None:
        """The column of the offending text in its line, from 1."""
        if self.position is None:
            return None
        return self.position - (self.sql.rfind("\n", 0, self.position) + 1) + 1

    def point_at(self, sql: str, start: int, end: int) -> None:
        """Set the position of the error in a statement.

        Args:
            sql: The statement.
            start: The offset of the offending text.
            end: The offset after it.
        """
        self.sql, self.position, self.length = sql, start, max(1, end - start)

    def __str__(self) -> str:
        text = self.message + (f", expected {self.expected}" if self.expected else "")
        if self.sql and self.position is not None and self.line is not None and self.column is not None:
            source = self.sql.split("\n")[self.line - 1]
            # Keep tabs, so that the marks line up.
            indent = "".join("\t" if character == "\t" else " " for character in source[: self.column - 1])
            marks = "^" * max(1, min(self.length, len(source) - self.column + 1))
            text += f" (line {self.line}, column {self.column})\n  {source}\n  {indent}{marks}"
            return f"{text}\n{self.hint}" if self.hint else text
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), {**self.__dict__, "_cause": None})  # exceptions of Py4J cannot be pickled


def clues_of(error: DmlError) -> Clues:
    """Return the facts of an error's context that help to locate it in the statement."""
    facts = error.context
    return Clues(
        parts=facts.get("parts", ()),
        proposals=facts.get("proposals", ()),
        subjects=tuple(str(facts[key]) for key in SUBJECTS if facts.get(key)),
        column=None if facts.get("column") is None else str(facts["column"]),
        condition=str(facts.get("condition", "")),
        parameters=facts.get("parameters", {}),
        fragment=facts.get("fragment", ""),
        place=facts.get("place"),
    )


class SqlError(DmlError):
    """The text of a statement is invalid."""

    default_kind = ErrorKind.SYNTAX


class AnalysisError(SqlError):
    """The statement is valid SQL but does not fit the table: a name, a type, an assignment, a mode."""

    default_kind = ErrorKind.ANALYSIS


class NotFoundError(AnalysisError):
    """A table, namespace, catalog, branch or snapshot of the statement does not exist."""

    default_kind = ErrorKind.NOT_FOUND


class AlreadyExistsError(AnalysisError):
    """The table, namespace or other object that the statement would create exists."""

    default_kind = ErrorKind.ALREADY_EXISTS


class NotSupportedError(AnalysisError):
    """The table format, the mode or RowDelta does not allow the statement; the message names an alternative."""

    default_kind = ErrorKind.NOT_SUPPORTED


class DataError(DmlError):
    """A value or a row breaks a rule: overflow, NULL in a required column, two source rows for one target row."""

    default_kind = ErrorKind.INVALID_VALUE


class CorruptFileError(DmlError):
    """A file of the table is missing or damaged; `context["file"]` names it."""

    default_kind = ErrorKind.CORRUPT_FILE


class SetupError(DmlError):
    """The installation cannot run: no Java, too old a Python, a catalog that does not load."""

    default_kind = ErrorKind.SETUP


class ExecutionError(DmlError):
    """Spark, a task or the storage failed during the statement; `cause` is the exception behind it."""

    default_kind = ErrorKind.EXECUTION


def storage_failure(
    action: str, location: str, error: BaseException, io_properties: Mapping[str, object] | None = None
) -> ExecutionError:
    """Return the error for a file that a storage did not read or write.

    Args:
        action: What was done: "Reading the file".
        location: The file.
        error: The storage's exception; raise the result from it.
        io_properties: The properties of the FileIO, with the expiry of a credential that a catalog vended.
    """
    expiry = expired_at(io_properties or {})
    if expiry is not None or EXPIRED.search(str(error)):
        when = "" if expiry is None else f" at {expiry:%Y-%m-%dT%H:%M:%SZ}"
        return ExecutionError(
            f"{action} '{location}' failed: the credential for the storage expired{when}: {error}",
            hint="Run the statement again with a new credential. If it runs longer than a credential is valid, let the "
            "catalog vend longer-lived ones, or split the statement",
            file=location,
        )
    return ExecutionError(
        f"{action} '{location}' failed: {error}",
        hint="Check that the storage is reachable, has free space and grants access, then run the statement again",
        file=location,
    )


EXPIRED: Final = re.compile(r"(?i)Expired-?Token|(token|credential|signature|request)s?\b[^.]{0,40}\bexpired")
"""Matches storage errors about expired credentials."""

EXPIRES_AT: Final = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms.")
"""The properties, or their prefixes, with the expiry of a credential from a REST catalog, in milliseconds."""


def expired_at(io_properties: Mapping[str, object]) -> datetime | None:
    """Return when a credential among a FileIO's properties expired; None if none has.

    Source: Iceberg REST catalog specification, `LoadTableResult`: storage credentials.
    """
    times = [str(value) for key, value in io_properties.items() if key.startswith(EXPIRES_AT)]
    first = min((int(text) for text in times if text.isdecimal()), default=None)
    if first is None or first / 1000 > time.time():
        return None
    return datetime.fromtimestamp(first / 1000, UTC)


class CommitConflictError(DmlError):
    """A concurrent commit conflicts: nothing was published, and the statement can be run again."""

    default_kind = ErrorKind.CONFLICT
    retryable = True


class ValidationFailedError(DmlError):
    """The commit would break the table or its isolation level; running it again would not help."""

    default_kind = ErrorKind.VALIDATION_FAILED


class RowConservationError(DmlError):
    """The rows that were read, changed and written do not add up. Nothing was published; the written files are kept."""

    default_kind = ErrorKind.ROW_CONSERVATION


class CommitStateUnknownError(DmlError):
    """The catalog's response was lost: the commit may have landed. No file was deleted."""

    default_kind = ErrorKind.STATE_UNKNOWN
