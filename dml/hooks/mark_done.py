"""Partitions that are done: their time is over, so that whoever waits for them may begin. Driver.

Input: a table that is partitioned by time, and the files of a commit to main. Output: the table's property
`commit.mark-done.until`, before which all partitions are done, and with the action `success-file` a file `_SUCCESS` in
the folder of each partition that became done. A commit that adds rows to a partition which is done already writes its
file anew: its modification time says so. Files come before the property: what is interrupted is done again.

Nothing happens until somebody commits: a partition becomes done with the first commit after its time and the delay.
Source: Paimon's documentation, "Partition Mark Done".
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.types import DateType, StringType

from dml.ddl.commit import MetadataChange
from dml.errors import AnalysisError, ErrorKind
from dml.hook_options import HookOptions
from dml.manifests.read import entries_of, manifests_of
from dml.manifests.write import partition_type
from dml.model.manifest import ContentFile, ManifestContent, ManifestFile, Partition
from dml.model.transforms import partition_path
from dml.options import COMMIT_MARK_DONE_UNTIL, WRITE_DATA_PATH

__all__ = ["DonePartitions", "done_partitions", "until_change", "write_success_files"]

SUCCESS: Final = "_SUCCESS"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DonePartitions:
    """What became done.

    Attributes:
        until: Partitions that end then or before are done.
        moved: Whether that is later than the table says.
        partitions: Those that became done, or got new files since.
    """

    until: datetime
    moved: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class TimeField:
    """The partition field of a spec that says when a partition ends.

    Attributes:
        position: Its place in the spec.
        field: It.
        options: With the time zone of dates.
        is_text: Whether its values are texts.
    """

    position: int
    field: PartitionField
    options: HookOptions
    is_text: bool

    def end(self, value: Any) -> datetime | None:
        """When the time of a partition is over; None where it has none."""
        try:
            return None if value is None else self._end(value)
        except (OverflowError, ValueError):
            return None  # after the year 9999

    def _end(self, value: Any) -> datetime | None:
        match self.field.transform:
            case HourTransform():
                return EPOCH + timedelta(hours=int(value) + 1)
            case DayTransform():
                return EPOCH + timedelta(days=int(value) + 1)
            case MonthTransform():
                return month_start(int(value) + 1)
            case YearTransform():
                return month_start(12 * (int(value) + 1))
        day = day_of(value)
        if day is None:
            return None
        following = day + timedelta(days=1)
        return datetime(following.year, following.month, following.day, tzinfo=self.options.time_zone).astimezone(UTC)

    def boundary(self, moment: datetime) -> datetime:
        """The last end of a partition's time at or before a moment."""
        match self.field.transform:
            case HourTransform():
                return moment.replace(minute=0, second=0, microsecond=0)
            case DayTransform():
                return midnight(moment)
            case MonthTransform():
                return midnight(moment).replace(day=1)
            case YearTransform():
                return midnight(moment).replace(month=1, day=1)
        return midnight(moment.astimezone(self.options.time_zone)).astimezone(UTC)

    @property
    def fineness(self) -> int:
        """Finer ones are less."""
        order = (HourTransform, DayTransform, IdentityTransform, MonthTransform, YearTransform)
        return next(number for number, kind in enumerate(order) if isinstance(self.field.transform, kind))


def midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def month_start(months: int) -> datetime:
    """The beginning of the month of a number since January 1970."""
    return datetime(1970 + months // 12, 1 + months % 12, 1, tzinfo=UTC)


def day_of(value: Any) -> date | None:
    """The day of an identity partition: days since 1970, or a text such as 2026-11-22 or 20261122."""
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else date(1970, 1, 1) + timedelta(days=int(value))
    except (ValueError, OverflowError):
        return None


def time_field(spec: PartitionSpec, metadata: TableMetadata, options: HookOptions) -> TimeField | None:
    """The finest partition field of a spec that is a time; None where there is none."""
    found = []
    for position, field in enumerate(spec.fields):
        match field.transform:
            case HourTransform() | DayTransform() | MonthTransform() | YearTransform():
                found.append(TimeField(position, field, options, is_text=False))
            case IdentityTransform():
                kind = metadata.schema().find_field(field.source_id).field_type
                if isinstance(kind, DateType | StringType):
                    found.append(TimeField(position, field, options, is_text=isinstance(kind, StringType)))
    return min(found, key=lambda field: field.fineness, default=None)


def done_partitions(
    table: Table, snapshot: Snapshot, added: Iterable[ContentFile], options: HookOptions, *, with_files: bool
) -> DonePartitions:
    """What a commit made done.

    Args:
        table: The table as it is now.
        snapshot: The snapshot that was committed; its time is the time that counts.
        added: The data files that it added.
        options: What the table asks for.
        with_files: Whether the partitions themselves are asked for.

    Raises:
        AnalysisError: the table is not partitioned by time.
        DmlError: its manifests could not be read.
    """
    metadata = table.metadata
    fields = {spec_id: time_field(spec, metadata, options) for spec_id, spec in metadata.specs().items()}
    current = fields[metadata.default_spec_id]
    if current is None:
        raise AnalysisError(
            "The table is not partitioned by hours, days, months, years, a date or a text that is a date",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="Set 'commit.mark-done.action' to 'none', or partition the table by time",
        )
    moment = EPOCH + timedelta(milliseconds=snapshot.timestamp_ms - options.mark_done_delay_ms)
    boundary, before = current.boundary(moment), known_until(metadata)
    until = boundary if before is None else max(boundary, before)
    done = set()
    if with_files:
        for file in added:
            if ends_in(fields[file.spec_id], file.partition, None, until):
                done.add((file.spec_id, file.partition))
        if before is not None and before < until:
            done |= set(ended_between(table, snapshot, fields, before, until))
    return DonePartitions(until=until, moved=before is None or before < until, partitions=tuple(sorted(done, key=repr)))


def known_until(metadata: TableMetadata) -> datetime | None:
    """Until when partitions are done, as the table says; None where it does not."""
    text = metadata.properties.get(COMMIT_MARK_DONE_UNTIL)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None  # somebody's mistake: it is as if there were none
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def ends_in(field: TimeField | None, partition: tuple[Any, ...], after: datetime | None, until: datetime) -> bool:
    """Whether the time of a partition ends after one moment and not after another."""
    end = None if field is None else field.end(partition[field.position])
    return end is not None and end <= until and (after is None or end > after)


def ended_between(
    table: Table, snapshot: Snapshot, fields: dict[int, TimeField | None], after: datetime, until: datetime
) -> Iterator[Partition]:
    """The partitions with files whose time ended between two moments."""
    for manifest in manifests_of(table.io, snapshot):
        field = fields[manifest.partition_spec_id]
        if field is None or manifest.content is not ManifestContent.DATA or not manifest.has_live_files:
            continue
        if not may_end_between(manifest, field, table.metadata, after, until):
            continue
        for entry in entries_of(manifest, table.io, live_only=True):
            if ends_in(field, entry.data_file.partition, after, until):
                yield entry.data_file.spec_id, entry.data_file.partition


def may_end_between(
    manifest: ManifestFile, field: TimeField, metadata: TableMetadata, after: datetime, until: datetime
) -> bool:
    """Whether a manifest may have files of such partitions: what it says of its partitions is not against it."""
    if manifest.partitions is None or field.is_text:
        return True
    summary = manifest.partitions[field.position]
    if summary.lower_bound is None or summary.upper_bound is None:
        return False
    source = metadata.schema().find_field(field.field.source_id).field_type
    kind: Any = field.field.transform.result_type(source)
    first, last = (field.end(from_bytes(kind, bound)) for bound in (summary.lower_bound, summary.upper_bound))
    return (first is None or first <= until) and (last is None or last > after)


def until_change(metadata: TableMetadata, done: DonePartitions) -> MetadataChange:
    """The table's property, moved; nothing where somebody else has moved it as far."""
    before = known_until(metadata)
    if before is not None and before >= done.until:
        return MetadataChange()
    value = done.until.isoformat().replace("+00:00", "Z")
    return MetadataChange(updates=(SetPropertiesUpdate(updates={COMMIT_MARK_DONE_UNTIL: value}),))


def write_success_files(table: Table, done: DonePartitions, *, now_ms: int) -> tuple[str, ...]:
    """Write the file of each partition that is done.

    Returns:
        Their locations.

    Raises:
        OSError: the storage failed.
    """
    properties, metadata = table.properties, table.metadata
    root = (properties.get(WRITE_DATA_PATH) or f"{table.location()}/data").rstrip("/")
    specs = metadata.specs()
    written = []
    for spec_id, partition in done.partitions:
        folder = partition_path(specs[spec_id], partition_type(specs[spec_id], metadata), partition)
        location = f"{root}/{folder}/{SUCCESS}"
        text = json.dumps({"creationTime": created(table, location, now_ms), "modificationTime": now_ms})
        with table.io.new_output(location).create(overwrite=True) as stream:
            stream.write(text.encode())
        written.append(location)
    return tuple(written)


def created(table: Table, location: str, now_ms: int) -> int:
    """When the file of a partition was written first; now where there is none, or none of ours."""
    try:
        with table.io.new_input(location).open() as stream:
            return int(json.loads(stream.read())["creationTime"])
    except (OSError, ValueError, KeyError, TypeError):
        return now_ms
