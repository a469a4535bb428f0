"""Select the snapshots and files that the micro-batches of a stream read. Driver.

Input: the current table, the offset that was reached, the reader's options. Output: the offset at which the next batch
ends; the scan tasks between two offsets.

A stream reads the files that append snapshots added, in full, even if later snapshots deleted rows of them. It skips
compactions. Other snapshots that delete or replace rows raise an error unless the reader skips them: a stream cannot
retract rows.

Source: `SparkMicroBatchStream` and `SyncSparkMicroBatchPlanner` of Iceberg.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from dml.commit.window import ancestors, walk_back
from dml.errors import AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.hints import did_you_mean
from dml.manifests.read import manifests_of
from dml.model.scan_task import ScanTask
from dml.scan.planner import delete_index, scan_task
from dml.streaming.files import SnapshotFileCache, SnapshotPart, deletes_of
from dml.streaming.offsets import NOTHING_READ, StreamOffset
from dml.streaming.source_options import (
    FROM_SNAPSHOT,
    SKIP_DELETES,
    SKIP_OVERWRITES,
    ReadLimits,
    SourceOptions,
    fixed_state_error,
)

__all__ = ["StreamedTable", "check_columns"]

START_OVER: Final = (
    "Give the query a new 'checkpointLocation' to start over; 'stream-from-snapshot-id', 'stream-from-timestamp' and "
    "'stream-scan-all-files' select where"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedTable:
    """The current state of a table that a stream reads.

    Attributes:
        name: The table's full name, for errors.
        table: The table.
        options: The reader's options.
        files: The cache of the snapshots' files.
    """

    name: str
    table: Table
    options: SourceOptions
    files: SnapshotFileCache

    @property
    def head_id(self) -> int | None:
        """The newest snapshot of the branch; None if it has none yet.

        Raises:
            NotFoundError: There is no such branch.
        """
        branch = self.options.branch or MAIN_BRANCH
        ref = self.table.refs().get(branch)
        if ref is not None and ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
            raise fixed_state_error(f"'{branch}', a tag,")
        if ref is None and branch != MAIN_BRANCH:
            raise NotFoundError(f"There is no branch '{branch}'", hint=did_you_mean(branch, self.table.refs()))
        return None if ref is None else ref.snapshot_id

    def end_of_head(self) -> StreamOffset:
        """Return the offset at which everything has been read."""
        head_id = self.head_id
        if head_id is None:
            return NOTHING_READ
        return self.offset_after(SnapshotPart(snapshot=self.find_snapshot(head_id)))

    def starting_offset(self) -> StreamOffset:
        """Return where a new stream begins: at the oldest snapshot, or at the one that the reader selects.

        Raises:
            NotFoundError: The selected snapshot is not in the branch's history.
        """
        head_id, options = self.head_id, self.options
        if options.from_snapshot_id is not None:
            if all(found.snapshot_id != options.from_snapshot_id for found in ancestors(self.table.metadata, head_id)):
                raise NotFoundError(
                    f"The stream cannot begin at snapshot {options.from_snapshot_id}: it is not in the history of "
                    f"branch '{options.branch or MAIN_BRANCH}' of {self.name}",
                    hint=f"Give '{FROM_SNAPSHOT}' a snapshot of {self.name}.history",
                )
            return StreamOffset(snapshot_id=options.from_snapshot_id, scan_all_files=options.scan_all_files)
        if head_id is None:
            return NOTHING_READ
        if options.scan_all_files and options.from_timestamp is None:
            return StreamOffset(snapshot_id=head_id, scan_all_files=True)
        first = self.first_after_timestamp(head_id)
        if first is None:
            return NOTHING_READ
        return StreamOffset(snapshot_id=first.snapshot_id, scan_all_files=options.scan_all_files)

    def first_after_timestamp(self, head_id: int) -> Snapshot | None:
        """Return the oldest snapshot, not counting those before the reader's timestamp if it has one."""
        since, first = self.options.from_timestamp, None
        for snapshot in ancestors(self.table.metadata, head_id):
            if since is not None and snapshot.timestamp_ms < since:
                break
            first = snapshot
        return first

    def latest_offset(self, start: StreamOffset, limits: ReadLimits, head_id: int | None) -> StreamOffset:
        """Return where the next micro-batch ends, or `start` if there is nothing to read.

        Args:
            start: Where the micro-batch begins.
            limits: How much it may read.
            head_id: The last snapshot that may be read; None if there is none.

        Raises:
            NotFoundError: The snapshot of the start does not exist, or is not in the branch any more.
            NotSupportedError: A snapshot deleted or replaced rows.
        """
        if head_id is None and start == NOTHING_READ:
            return start
        if head_id is None:
            raise self.rollback_error(start.snapshot_id, "branch has no snapshots")
        begin = self.resolve_start(start, head_id)
        if begin == NOTHING_READ:
            return start
        if limits.is_open:
            self.files.load_newest(self.table, self.find_snapshot(head_id))
        taken, last = BatchSize(), None
        for part in self.parts(begin, head_id):
            last = part
            if limits.is_open:
                continue
            for place, file in self.files.with_positions(self.table, part):
                grown = taken.add_file(file.record_count, file.file_size_in_bytes)
                if taken.files and grown.exceeds(limits):
                    return offset_at(part, place)
                if grown.reaches(limits):
                    return offset_at(part, place + 1)
                taken = grown
        return begin if last is None else self.offset_after(last)

    def tasks(self, start: StreamOffset, end: StreamOffset) -> tuple[ScanTask, ...]:
        """Return the scan tasks of a micro-batch. The result is repeatable: later commits do not change it.

        Args:
            start: The first offset.
            end: The offset after the last.

        Raises:
            NotFoundError: A snapshot does not exist any more.
            NotSupportedError: A snapshot deleted or replaced rows.
        """
        if end in {NOTHING_READ, start}:
            return ()
        self.find_snapshot(end.snapshot_id)
        parts = list(self.parts(self.resolve_start(start, end.snapshot_id), end.snapshot_id, end.position))
        no_deletes = delete_index((), self.table.specs())
        tasks: list[ScanTask] = []
        for part, files in zip(parts, self.files.files_of_parts(self.table, parts), strict=True):
            index = deletes_of(self.table, part.snapshot) if part.scan_all_files else no_deletes
            for file in files:
                tasks.append(scan_task(len(tasks), file, index, {}))
        return tuple(tasks)

    def resolve_start(self, start: StreamOffset, head_id: int) -> StreamOffset:
        """Return the offset, or the first that exists now if the stream has found nothing yet.

        Raises:
            NotFoundError: Snapshots that followed the start of the stream were expired before it read them.
        """
        if start != NOTHING_READ:
            return start
        first = self.first_after_timestamp(self.find_snapshot(head_id).snapshot_id)
        if first is None:
            return NOTHING_READ
        if self.options.from_timestamp is None and has_older_files(self.table, first):
            raise NotFoundError(
                f"Snapshots of {self.name} from before {first.snapshot_id} were expired before the stream read them",
                hint=START_OVER,
                snapshot_id=first.snapshot_id,
            )
        return StreamOffset(snapshot_id=first.snapshot_id)

    def parts(self, begin: StreamOffset, head_id: int, end: int | None = None) -> Iterator[SnapshotPart]:
        """Yield the snapshot parts to read from an offset on.

        Args:
            begin: The offset.
            head_id: The last snapshot.
            end: The position in the last snapshot to stop before; None to read all of it.
        """
        snapshots = [self.find_snapshot(begin.snapshot_id)]
        if begin.snapshot_id != head_id:
            self.find_snapshot(head_id)
            walked, reached = walk_back(self.table.metadata, head_id, begin.snapshot_id)
            if reached != begin.snapshot_id:
                raise self.rollback_error(begin.snapshot_id, f"newest snapshot, {head_id}, does not descend from it")
            snapshots += reversed(walked)
        for number, snapshot in enumerate(snapshots):
            is_whole = begin.scan_all_files and number == 0
            if is_whole or self.is_read(snapshot):
                yield SnapshotPart(
                    snapshot=snapshot,
                    start=begin.position if number == 0 else 0,
                    end=end if snapshot.snapshot_id == head_id else None,
                    scan_all_files=is_whole,
                )

    def find_snapshot(self, snapshot_id: int) -> Snapshot:
        """Return a snapshot that the stream needs.

        Raises:
            NotFoundError: The snapshot does not exist any more.
        """
        found = self.table.snapshot_by_id(snapshot_id)
        if found is None:
            raise NotFoundError(
                f"Cannot load current offset at snapshot {snapshot_id}, the snapshot was expired or removed: "
                f"{self.name} does not have it",
                hint=f"Or the table was dropped and created again since the checkpoint was written. {START_OVER}",
                snapshot_id=snapshot_id,
            )
        return found

    def rollback_error(self, snapshot_id: int, why: str) -> NotFoundError:
        """Build the error for an offset that is not in the branch's history any more."""
        branch = self.options.branch or MAIN_BRANCH
        return NotFoundError(
            f"Cannot continue from snapshot {snapshot_id} of {self.name} on branch '{branch}': the {why}",
            hint="The branch was rolled back or replaced, or snapshots between the two were expired before the stream "
            f"read them. {START_OVER}",
            snapshot_id=snapshot_id,
        )

    def is_read(self, snapshot: Snapshot) -> bool:
        """Return True if the stream reads the rows that a snapshot added, or False if it skips the snapshot.

        Raises:
            NotSupportedError: The snapshot deleted or replaced rows, and no option skips it.
        """
        operation = Operation.APPEND if snapshot.summary is None else snapshot.summary.operation
        match operation:
            case Operation.APPEND:
                return True
            case Operation.REPLACE:
                return False
            case Operation.DELETE if self.options.skips_deletes:
                return False
            case Operation.OVERWRITE if self.options.skips_overwrites:
                return False
            case _:
                skip = SKIP_DELETES if operation is Operation.DELETE else SKIP_OVERWRITES
                raise NotSupportedError(
                    f"Cannot process {operation.value} snapshot: {snapshot.snapshot_id} of {self.name} removed rows, "
                    "which a stream cannot do",
                    hint=f"Set the option '{skip}' to true to skip such snapshots, including the rows that they added",
                    snapshot_id=snapshot.snapshot_id,
                )

    def offset_after(self, part: SnapshotPart) -> StreamOffset:
        """Return the offset after a part of a snapshot."""
        end = self.files.end(self.table, part.snapshot, scan_all_files=part.scan_all_files)
        return offset_at(part, max(part.start, end))


def has_older_files(table: Table, snapshot: Snapshot) -> bool:
    """Return True if there were earlier snapshots. On expiry some writers drop the parent id, so check files too."""
    return snapshot.parent_snapshot_id is not None or any(
        manifest.added_snapshot_id != snapshot.snapshot_id or manifest.existing_files_count
        for manifest in manifests_of(table.io, snapshot)
    )


def offset_at(part: SnapshotPart, position: int) -> StreamOffset:
    return StreamOffset(snapshot_id=part.snapshot.snapshot_id, position=position, scan_all_files=part.scan_all_files)


@dataclass(frozen=True, slots=True)
class BatchSize:
    """What a micro-batch has read so far. Size is in bytes."""

    files: int = 0
    rows: int = 0
    size: int = 0

    def add_file(self, rows: int, size: int) -> "BatchSize":
        """Add one file."""
        return BatchSize(self.files + 1, self.rows + rows, self.size + size)

    def exceeds(self, limits: ReadLimits) -> bool:
        """Return True if the last file was one too many."""
        return (limits.files is not None and self.files > limits.files) or (
            limits.size is not None and self.size > limits.size
        )

    def reaches(self, limits: ReadLimits) -> bool:
        """Return True if no further file fits. The limit in files is checked on the next file, by `exceeds`."""
        return (limits.rows is not None and self.rows >= limits.rows) or (
            limits.size is not None and self.size >= limits.size
        )


def check_columns(name: str, read: Schema, now: Schema) -> None:
    """Refuse to continue if a column has changed its type or nullability since the query started.

    Added and renamed columns are allowed: a stream reads its initial columns by id.

    Args:
        name: The table's full name.
        read: The columns that the query reads, as they were when it started.
        now: The table's columns now.

    Raises:
        AnalysisError: A column has another type now, or may be NULL where it could not.
    """
    columns = index_by_id(now)
    for field_id, field in index_by_id(read).items():
        found = columns.get(field_id)
        if found is not None and field.field_type.is_primitive and found.field_type != field.field_type:
            change = f"the type {found.field_type} where it had {field.field_type}"
        elif field.required and (found is None or not found.required):
            change = "NULLs where it could have none"
        else:
            continue
        raise AnalysisError(
            f"The column '{field.name}' of {name} has {change} when the stream started",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Start the query again: it continues from its checkpoint with the current columns",
        )
