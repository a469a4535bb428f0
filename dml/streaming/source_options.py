"""Options of a stream's reader: where to begin, what to skip, how much to read at a time. Driver; pure.

Input: the options of `spark.readStream`. Output: `SourceOptions`. Options that Iceberg's JAR also has keep its names.
Unknown options with a stream prefix are rejected: a misspelled limit or skip option would be ignored silently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.hints import did_you_mean

__all__ = ["FROM_SNAPSHOT", "SKIP_DELETES", "SKIP_OVERWRITES", "ReadLimits", "SourceOptions", "fixed_state_error"]

FROM_TIMESTAMP: Final = "stream-from-timestamp"
FROM_SNAPSHOT: Final = "stream-from-snapshot-id"
SCAN_ALL_FILES: Final = "stream-scan-all-files"
SKIP_DELETES: Final = "streaming-skip-delete-snapshots"
SKIP_OVERWRITES: Final = "streaming-skip-overwrite-snapshots"
MAX_FILES: Final = "streaming-max-files-per-micro-batch"
MAX_ROWS: Final = "streaming-max-rows-per-micro-batch"
MAX_BYTES: Final = "streaming-max-bytes-per-micro-batch"
POLLING: Final = "streaming-snapshot-polling-interval-ms"
"""Accepted and ignored: it tunes the JAR's asynchronous planning and does not change the rows that are read."""

KNOWN: Final = (
    FROM_TIMESTAMP,
    FROM_SNAPSHOT,
    SCAN_ALL_FILES,
    SKIP_DELETES,
    SKIP_OVERWRITES,
    MAX_FILES,
    MAX_ROWS,
    MAX_BYTES,
    POLLING,
)
FIXED: Final = ("snapshot-id", "as-of-timestamp", "tag")
"""Options of `spark.read` that select a fixed state of a table, which gets no more rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much a micro-batch reads at most; None for no limit.

    Attributes:
        files: Data files.
        rows: Rows; the file that reaches the limit is the last one.
        size: Bytes of data files; a file that would exceed the limit waits, unless it is the first.
    """

    files: int | None = None
    rows: int | None = None
    size: int | None = None

    @property
    def is_open(self) -> bool:
        """True if there is no limit."""
        return self.files is None and self.rows is None and self.size is None

    def combine(self, other: "ReadLimits") -> "ReadLimits":
        """Return the lower limit of each kind."""
        return ReadLimits(
            files=least(self.files, other.files), rows=least(self.rows, other.rows), size=least(self.size, other.size)
        )


def least(first: int | None, second: int | None) -> int | None:
    return min((limit for limit in (first, second) if limit is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The parsed options of a stream's reader.

    Attributes:
        branch: The branch that is read; None for `main`.
        from_timestamp: Begin with the first snapshot of this time or later, in milliseconds since 1970.
        from_snapshot_id: Begin with this snapshot.
        scan_all_files: Read all rows of the first snapshot, not only those that it appended. Without a start option
            the first snapshot is the newest one.
        skips_deletes: Skip snapshots that deleted rows.
        skips_overwrites: Skip snapshots that replaced rows.
        limits: How much a micro-batch reads.
    """

    branch: str | None = None
    from_timestamp: int | None = None
    from_snapshot_id: int | None = None
    scan_all_files: bool = False
    skips_deletes: bool = False
    skips_overwrites: bool = False
    limits: ReadLimits = field(default_factory=ReadLimits)

    @staticmethod
    def of(options: Mapping[str, str], branch: str | None = None) -> "SourceOptions":
        """Parse the options of a reader.

        Args:
            options: The options, with names in lower case.
            branch: The branch at the end of the table's name.

        Raises:
            AnalysisError: An option is unknown or has an invalid value.
            NotSupportedError: An option selects a fixed state of the table.
        """
        for key in options:
            if key.startswith(("stream-", "streaming-")) and key not in KNOWN:
                raise AnalysisError(
                    f"Unknown option '{key}' of streams",
                    kind=ErrorKind.INVALID_VALUE,
                    hint=did_you_mean(key, KNOWN),
                )
        for key in FIXED:
            if key in options:
                raise fixed_state_error(f"the option '{key}'")
        if FROM_TIMESTAMP in options and FROM_SNAPSHOT in options:
            raise AnalysisError(
                f"The options '{FROM_TIMESTAMP}' and '{FROM_SNAPSHOT}' cannot be combined: each selects where to begin",
                kind=ErrorKind.INVALID_VALUE,
                hint="Set one of them",
            )
        return SourceOptions(
            branch=options.get("branch", branch),
            from_timestamp=number(options, FROM_TIMESTAMP),
            from_snapshot_id=number(options, FROM_SNAPSHOT),
            scan_all_files=flag(options, SCAN_ALL_FILES),
            skips_deletes=flag(options, SKIP_DELETES),
            skips_overwrites=flag(options, SKIP_OVERWRITES),
            limits=ReadLimits(
                files=number(options, MAX_FILES, minimum=1),
                rows=number(options, MAX_ROWS, minimum=1),
                size=number(options, MAX_BYTES, minimum=1),
            ),
        )


def fixed_state_error(what: str) -> NotSupportedError:
    """Build the error for a stream of a fixed state of a table."""
    return NotSupportedError(
        f"A stream follows a branch, and {what} selects a state of the table that gets no more rows",
        hint=f"Begin at a snapshot with '{FROM_SNAPSHOT}' or '{FROM_TIMESTAMP}'",
    )


def number(options: Mapping[str, str], key: str, *, minimum: int | None = None) -> int | None:
    """Parse an option as an integer; return None if it is not set."""
    text = options.get(key)
    if text is None:
        return None
    try:
        value = int(text.strip())
    except ValueError:
        value = None
    if value is None or (minimum is not None and value < minimum):
        wanted = "a whole number" if minimum is None else f"a whole number from {minimum}"
        raise AnalysisError(f"The option '{key}' is '{text}'", kind=ErrorKind.INVALID_VALUE, hint=f"It is {wanted}")
    return value


def flag(options: Mapping[str, str], key: str) -> bool:
    """Parse an option as a boolean, false by default."""
    text = options.get(key, "false").strip().lower()
    if text not in {"true", "false"}:
        raise AnalysisError(
            f"The option '{key}' is '{options[key]}'", kind=ErrorKind.INVALID_VALUE, hint="It is true or false"
        )
    return text == "true"
