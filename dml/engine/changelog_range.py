"""Select the snapshots whose changes a changelog shows. Pure; driver.

Input: a table's metadata, the options of `create_changelog_view`. Output: the snapshots, oldest first. Starts are
exclusive, ends inclusive. Source: Iceberg's `SparkChangelogScanBuilder` and `BaseIncrementalScan`, including their
messages. Unlike there, a range that ends where it starts is empty instead of an error, so an up-to-date reader need not
check first; and a range that ends before the first snapshot is empty even if the start is an id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from dml.commit.window import ancestors, walk_back
from dml.errors import AnalysisError, ErrorKind, NotFoundError, ValidationFailedError
from dml.hints import did_you_mean

__all__ = ["ChangelogRange"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
REPLACE: Final = Operation.REPLACE
SNAPSHOTS_HINT: Final = "Take one from the table's metadata table 'snapshots'; it may have been expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRange:
    """The bounds of a changelog; None for an open bound.

    Attributes:
        start_snapshot_id: Only changes after this snapshot, which may have expired.
        end_snapshot_id: Only changes up to this snapshot; the current one by default.
        start_timestamp: Only changes after this time, in milliseconds since 1970.
        end_timestamp: Only changes up to this time, in milliseconds since 1970.
    """

    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None

    @staticmethod
    def of(options: Mapping[str, str]) -> "ChangelogRange":
        """Read the options of a call.

        Args:
            options: `start-snapshot-id`, `end-snapshot-id`, `start-timestamp` and `end-timestamp`, in any case.

        Raises:
            AnalysisError: An option is unknown, is not a whole number, or excludes another option.
        """
        known = [field.name.replace("_", "-") for field in fields(ChangelogRange)]
        bounds: dict[str, int] = {}
        for key, text in options.items():
            name = key.lower()
            if name not in known:
                raise AnalysisError(
                    f"create_changelog_view has no option '{key}'",
                    kind=ErrorKind.INVALID_VALUE,
                    hint=did_you_mean(name, known),
                )
            try:
                bounds[name.replace("-", "_")] = int(text)
            except ValueError:
                raise AnalysisError(
                    f"The option '{key}' is '{text}'",
                    kind=ErrorKind.INVALID_VALUE,
                    hint="It is a snapshot id"
                    if name.endswith("id")
                    else "It is a time in milliseconds since 1970-01-01 00:00:00 UTC: unix_millis(TIMESTAMP '...')",
                ) from None
        for side in ("start", "end"):
            if {f"{side}_snapshot_id", f"{side}_timestamp"} <= bounds.keys():
                raise AnalysisError(
                    f"Cannot set both {side}-snapshot-id and {side}-timestamp for changelogs",
                    kind=ErrorKind.INVALID_VALUE,
                    hint="Leave out one of them",
                )
        found = ChangelogRange(**bounds)
        start, end = found.start_timestamp, found.end_timestamp
        if start is not None and end is not None and start >= end:
            raise AnalysisError(
                "Cannot set start-timestamp to be greater than end-timestamp for changelogs",
                kind=ErrorKind.INVALID_VALUE,
                hint=f"{start} is not before {end}: the start is exclusive, the end inclusive",
            )
        return found

    def snapshots(self, metadata: TableMetadata) -> tuple[Snapshot, ...]:
        """Return the snapshots of the range, oldest first, without those of operation `replace`.

        Raises:
            NotFoundError: The end does not exist, or snapshots from before the start time have expired.
            ValidationFailedError: The start is not in the history of the end.
        """
        start, end = self.start_snapshot_id, self.end_snapshot_id
        current = list(ancestors(metadata, metadata.current_snapshot_id))
        if self.start_timestamp is not None:
            start = snapshot_at(current, self.start_timestamp)
            if start is None and current and current[-1].parent_snapshot_id is not None:
                raise NotFoundError(
                    f"Cannot find snapshot older than {utc_text(self.start_timestamp)}",
                    hint=f"Older snapshots have expired: the oldest one is of {utc_text(current[-1].timestamp_ms)}",
                )
        if self.end_timestamp is not None:
            end = snapshot_at(current, self.end_timestamp)
            if end is None:
                return ()
        if end is None and not current:
            if self.start_snapshot_id is None:
                return ()
            raise NotFoundError("End snapshot is not set and table has no current snapshot", hint=SNAPSHOTS_HINT)
        if end is not None and metadata.snapshot_by_id(end) is None:
            raise NotFoundError(f"Cannot find the end snapshot: {end}", hint=SNAPSHOTS_HINT, snapshot_id=end)
        head = current[0].snapshot_id if end is None else end
        walked, stop = walk_back(metadata, head, start)
        if start is not None and start != stop:
            raise ValidationFailedError(
                f"Starting snapshot (exclusive) {start} is not a parent ancestor of end snapshot {head}",
                hint=f"The changes up to {head} begin with its ancestors, which ancestors_of lists",
                snapshot_id=start,
            )
        return tuple(one for one in reversed(walked) if one.summary is None or one.summary.operation != REPLACE)


def snapshot_at(history: Iterable[Snapshot], millis: int) -> int | None:
    """Return the id of the snapshot that was current at a time; None before the first one.

    Args:
        history: The snapshots, newest first.
        millis: The time in milliseconds since 1970.
    """
    return next((one.snapshot_id for one in history if one.timestamp_ms <= millis), None)


def utc_text(millis: int) -> str:
    """Format a time as ISO 8601, or as a number if it is outside Python's calendar."""
    try:
        return (EPOCH + timedelta(milliseconds=millis)).isoformat()
    except OverflowError:
        return str(millis)
