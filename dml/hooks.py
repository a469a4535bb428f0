"""Run the post-commit actions of a statement: tags, marks, callbacks, a compaction, metrics. Driver.

Input: the result of a statement, a DataFrame's write or a micro-batch; the properties of its table, which the session's
settings override. `after_statement` runs the actions in this order. A failing action is a warning and never fails the
statement: the snapshot is committed.

- *Tags* of each commit, or of the last commit of each hour or day. The first commit of a later day creates the tag of a
  day, at the last snapshot of the day, so the tag never moves. If that commit's action failed, the next commits make up
  for it. The next change removes tags that are too old, or too many. Automatic tags are recognized by their names: the
  prefix, and the name that this module gives their snapshot. Source: Paimon's documentation, "Manage Tags"; Iceberg
  specification, "Snapshot References" (`max-ref-age-ms`).
- *Done partitions*: their time is over, so that readers which wait for them can start. The table's property
  `commit.mark-done.until` is the time before which all partitions are done; with the action `success-file` each has a
  file `_SUCCESS` in its folder. A commit that adds rows to a done partition rewrites its file with a new modification
  time. Files are written before the property, so an interrupted action is repeated. A partition becomes done only with
  the first commit after its time and the delay. Source: Paimon's documentation, "Partition Mark Done".
- *Callbacks* run in a thread of their own, one after the other, while the statement's thread waits: a statement in a
  callback reads the table's new state, and not the state that the finished statement read. The statements of a callback
  call no callbacks, which prevents infinite recursion.
- *Compaction*, if a trigger of the table is due (`dml.maintenance.triggers`): in the thread of the statement, with a
  budget. Commits of a compaction, and of statements that maintenance runs, trigger none.
- *Metrics*: one line of JSON for each statement, a record of level INFO at the logger `dml.metrics`, and a span of
  OpenTelemetry if its API is installed; neither is built if the logger is off or the API is missing. They contain
  counts, sizes, times and names; no SQL text, no values of rows, and of a snapshot's summary only the keys of streams,
  because users may put anything there.
"""

import importlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.types import DateType, StringType

from dml.catalog.credentials import redact
from dml.catalog.tables import load_table
from dml.commit import ancestors
from dml.ddl.commit import MetadataChange, commit_change
from dml.errors import AnalysisError, ErrorKind
from dml.hook_options import HookOptions, MarkDone, TagCreation
from dml.manifests.read import entries_of, manifests_of
from dml.manifests.write import partition_type
from dml.model.manifest import ContentFile, ManifestContent, ManifestFile, Partition
from dml.model.summary_keys import EPOCH_ID, QUERY_ID
from dml.model.transforms import partition_path
from dml.options import (
    COMMIT_MARK_DONE,
    COMMIT_MARK_DONE_UNTIL,
    COMMIT_TAG_CREATION,
    MAINTENANCE_TRIGGER_COMMITS,
    MAINTENANCE_TRIGGER_DELETED_RATIO,
    MAINTENANCE_TRIGGER_SMALL_FILES,
    WRITE_DATA_PATH,
    WriteOptions,
)
from dml.result import Result
from dml.spark.jobs import local_property, set_local_property

__all__ = ["METRICS", "Callbacks", "Compaction", "Finished", "after_statement", "in_maintenance", "record_metrics"]

METRICS: Final = logging.getLogger("dml.metrics")

COUNTS: Final = tuple(
    field.name for field in fields(Result) if field.type in {int, int | None} and field.name != "snapshot_id"
)
"""The counts of rows, files and bytes of a result, derived from its fields so that no number is missing."""


def tracer() -> Any:
    """Return OpenTelemetry's tracer; None if its API is not installed."""
    try:
        return importlib.import_module("opentelemetry.trace").get_tracer("rowdelta")
    except ImportError:
        return None


TRACER: Final = tracer()


def record_metrics(result: Result, failed_hooks: Sequence[str] = (), *, trace: Any = TRACER) -> None:
    """Log what a statement did, and trace it.

    Args:
        result: The result of the statement.
        failed_hooks: The post-commit actions that failed.
        trace: OpenTelemetry's tracer; None without its API.
    """
    listens = METRICS.isEnabledFor(logging.INFO)
    if not listens and trace is None:
        return
    now = time.time()
    facts = facts_of(result, failed_hooks)
    if listens:
        METRICS.info("%s", json.dumps({"time": datetime.fromtimestamp(now, UTC).isoformat(), **facts}))
    if trace is not None:
        attributes = {f"rowdelta.{key}": value for key, value in flatten_seconds(facts).items() if value is not None}
        started = int((now - result.seconds.total) * 1e9)
        trace.start_span(f"rowdelta {result.command}", start_time=started, attributes=attributes).end(int(now * 1e9))


def facts_of(result: Result, failed_hooks: Sequence[str]) -> dict[str, Any]:
    """Return the entries of a metrics line, without the time."""
    stream = {"query_id": result.summary.get(QUERY_ID), "epoch_id": result.summary.get(EPOCH_ID)}
    return {
        "command": result.command,
        "table": result.table,
        "branch": result.branch,
        "mode": result.mode,
        "snapshot_id": result.snapshot_id,
        "operation": result.summary.get("operation"),
        "replayed": result.replayed,
        **{name: getattr(result, name) for name in COUNTS},
        "seconds": {
            "plan": round(result.seconds.plan, 6),
            "execute": round(result.seconds.execute, 6),
            "commit": round(result.seconds.commit, 6),
            "total": round(result.seconds.total, 6),
        },
        **{key: value for key, value in stream.items() if value is not None},
        **({"failed_hooks": list(failed_hooks)} if failed_hooks else {}),
    }


def flatten_seconds(facts: dict[str, Any]) -> dict[str, Any]:
    """Flatten the seconds of each phase: attributes of a span cannot be nested."""
    return {
        **{key: value for key, value in facts.items() if key != "seconds"},
        **{f"seconds.{phase}": value for phase, value in facts["seconds"].items()},
    }


FORMATS = {TagCreation.HOURLY: "%Y-%m-%d-%H", TagCreation.DAILY: "%Y-%m-%d"}


def tag_change(metadata: TableMetadata, snapshot_id: int, options: HookOptions, *, now_ms: int) -> MetadataChange:
    """Return the tags to create and to remove after a commit.

    Args:
        metadata: The table's current metadata.
        snapshot_id: The snapshot that was committed.
        options: The options of the table.
        now_ms: The time, in milliseconds since 1970.
    """
    found = tagged_snapshot(metadata, snapshot_id, options)
    updates: list[TableUpdate] = []
    requirements: list[TableRequirement] = []
    mine = dict(automatic_tags(metadata, options))
    if found is not None and not is_expired(found, options, now_ms):
        name = tag_name(found, options)
        if name not in metadata.refs:
            mine[name] = found
            requirements.append(AssertRefSnapshotId(ref=name, snapshot_id=None))
            updates.append(
                SetSnapshotRefUpdate(
                    ref_name=name,
                    type=SnapshotRefType.TAG,
                    snapshot_id=found.snapshot_id,
                    max_ref_age_ms=options.tag_max_age_ms,
                    max_snapshot_age_ms=None,
                    min_snapshots_to_keep=None,
                )
            )
    for name in surplus_tags(mine, options, now_ms):
        if name in metadata.refs:
            requirements.append(AssertRefSnapshotId(ref=name, snapshot_id=metadata.refs[name].snapshot_id))
            updates.append(RemoveSnapshotRefUpdate(ref_name=name))
    return MetadataChange(updates=tuple(updates), requirements=tuple(requirements))


def is_tagged(metadata: TableMetadata, options: HookOptions, *, now_ms: int) -> bool:
    """Return True if the metadata before the commit proves that no tag changes: most commits are not a day's first.

    Args:
        metadata: The table as the statement loaded it.
        options: The options of the table.
        now_ms: The time, in milliseconds since 1970.
    """
    head = metadata.snapshot_by_name(MAIN_BRANCH)
    if head is None or options.tag_creation not in FORMATS:
        return False
    now = local_time(now_ms, options.time_zone).strftime(FORMATS[options.tag_creation])
    return period(head, options) == now and not tag_change(metadata, head.snapshot_id, options, now_ms=now_ms).updates


def tagged_snapshot(metadata: TableMetadata, snapshot_id: int, options: HookOptions) -> Snapshot | None:
    """Return the snapshot to tag: the new one, or the last one of an earlier hour or day."""
    history = ancestors(metadata, snapshot_id)
    newest = next(history, None)
    if newest is None or options.tag_creation in {TagCreation.COMMIT, TagCreation.NONE}:
        return newest
    current = period(newest, options)
    return next((snapshot for snapshot in history if period(snapshot, options) < current), None)


def tag_name(snapshot: Snapshot, options: HookOptions) -> str:
    if options.tag_creation is TagCreation.COMMIT:
        return f"{options.tag_prefix}{snapshot.snapshot_id}"
    return f"{options.tag_prefix}{period(snapshot, options)}"


def period(snapshot: Snapshot, options: HookOptions) -> str:
    """Return the hour or day of a snapshot, as text that sorts by time."""
    return local_time(snapshot.timestamp_ms, options.time_zone).strftime(FORMATS[options.tag_creation])


def local_time(timestamp_ms: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone(zone)


def automatic_tags(metadata: TableMetadata, options: HookOptions) -> Iterator[tuple[str, Snapshot]]:
    """Yield the tags of a table that this module created, with their snapshots."""
    for name, ref in metadata.refs.items():
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        if is_tag(ref) and snapshot is not None and name == tag_name(snapshot, options):
            yield name, snapshot


def is_tag(ref: SnapshotRef) -> bool:
    return ref.snapshot_ref_type is SnapshotRefType.TAG


def surplus_tags(tags: dict[str, Snapshot], options: HookOptions, now_ms: int) -> list[str]:
    """Return the tags that are expired, and the oldest ones beyond the number to retain."""
    newest_first = sorted(
        tags, key=lambda name: (tags[name].timestamp_ms, tags[name].sequence_number or 0), reverse=True
    )
    kept = newest_first[: options.tag_num_retained]
    return [name for name in newest_first if name not in kept or is_expired(tags[name], options, now_ms)]


def is_expired(snapshot: Snapshot, options: HookOptions, now_ms: int) -> bool:
    """Return whether a snapshot's tag is too old, measured by the snapshot's time, as in Iceberg's expiration."""
    return options.tag_max_age_ms is not None and now_ms - snapshot.timestamp_ms > options.tag_max_age_ms


SUCCESS: Final = "_SUCCESS"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DonePartitions:
    """The partitions that became done.

    Attributes:
        until: Partitions that end then or before are done.
        moved: Whether that is later than the table's property.
        partitions: Those that became done, or got new files since.
    """

    until: datetime
    moved: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class TimeField:
    """The partition field of a spec that determines when a partition ends.

    Attributes:
        position: Its index in the spec.
        field: The partition field.
        options: The options with the time zone of dates.
        is_text: Whether its values are strings.
    """

    position: int
    field: PartitionField
    options: HookOptions
    is_text: bool

    def end(self, value: Any) -> datetime | None:
        """Return when the time of a partition ends; None if it has no time."""
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
        """Return the last end of a partition's time at or before a moment."""
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
        """The rank of the field's granularity; finer ones are smaller."""
        order = (HourTransform, DayTransform, IdentityTransform, MonthTransform, YearTransform)
        return next(number for number, kind in enumerate(order) if isinstance(self.field.transform, kind))


def midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def month_start(months: int) -> datetime:
    """Return the beginning of a month, numbered from January 1970."""
    return datetime(1970 + months // 12, 1 + months % 12, 1, tzinfo=UTC)


def day_of(value: Any) -> date | None:
    """Return the day of an identity partition: days since 1970, or a text such as 2026-11-22 or 20261122."""
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else date(1970, 1, 1) + timedelta(days=int(value))
    except (ValueError, OverflowError):
        return None


def time_field(spec: PartitionSpec, metadata: TableMetadata, options: HookOptions) -> TimeField | None:
    """Return the finest partition field of a spec that is a time; None if there is none."""
    found = []
    for position, part in enumerate(spec.fields):
        match part.transform:
            case HourTransform() | DayTransform() | MonthTransform() | YearTransform():
                found.append(TimeField(position, part, options, is_text=False))
            case IdentityTransform():
                kind = metadata.schema().find_field(part.source_id).field_type
                if isinstance(kind, DateType | StringType):
                    found.append(TimeField(position, part, options, is_text=isinstance(kind, StringType)))
    return min(found, key=lambda time: time.fineness, default=None)


def done_partitions(
    table: Table, snapshot: Snapshot, added: Iterable[ContentFile], options: HookOptions, *, with_files: bool
) -> DonePartitions:
    """Find the partitions that a commit made done.

    Args:
        table: The table in its current state.
        snapshot: The committed snapshot; its time is compared with the ends of partitions.
        added: The data files that it added.
        options: The options of the table.
        with_files: Whether to collect the partitions themselves.

    Raises:
        AnalysisError: the table is not partitioned by time.
        DmlError: its manifests could not be read.
    """
    metadata = table.metadata
    fields = {spec_id: time_field(spec, metadata, options) for spec_id, spec in metadata.specs().items()}
    current = fields[metadata.default_spec_id]
    if current is None:
        raise AnalysisError(
            "The table is not partitioned by hours, days, months, years, a date or a string that is a date",
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
    """Return the time before which partitions are done, from the table's property; None if it is unset."""
    text = metadata.properties.get(COMMIT_MARK_DONE_UNTIL)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None  # a user set an invalid value: treat it as unset
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def ends_in(field: TimeField | None, partition: tuple[Any, ...], after: datetime | None, until: datetime) -> bool:
    """Return whether the time of a partition ends after `after`, and not after `until`."""
    end = None if field is None else field.end(partition[field.position])
    return end is not None and end <= until and (after is None or end > after)


def ended_between(
    table: Table, snapshot: Snapshot, fields: dict[int, TimeField | None], after: datetime, until: datetime
) -> Iterator[Partition]:
    """Yield the partitions with files whose time ended between two moments."""
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
    """Return False if a manifest's partition summary proves that none of its partitions ends between two moments."""
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
    """Return the update of the table's property; empty if a concurrent commit has moved it as far."""
    before = known_until(metadata)
    if before is not None and before >= done.until:
        return MetadataChange()
    value = done.until.isoformat().replace("+00:00", "Z")
    return MetadataChange(updates=(SetPropertiesUpdate(updates={COMMIT_MARK_DONE_UNTIL: value}),))


def write_success_files(table: Table, done: DonePartitions, *, now_ms: int) -> tuple[str, ...]:
    """Write the `_SUCCESS` file of each done partition.

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
        text = json.dumps({"creationTime": creation_time(table, location, now_ms), "modificationTime": now_ms})
        with table.io.new_output(location).create(overwrite=True) as stream:
            stream.write(text.encode())
        written.append(location)
    return tuple(written)


def creation_time(table: Table, location: str, now_ms: int) -> int:
    """Return when the file of a partition was first written; now if there is none, or not one of RowDelta."""
    try:
        with table.io.new_input(location).open() as stream:
            return int(json.loads(stream.read())["creationTime"])
    except (OSError, ValueError, KeyError, TypeError):
        return now_ms


LOG: Final = logging.getLogger("dml.hooks")

Callback = Callable[[Result], object]
Compaction = Callable[[HookOptions], None]


class Callbacks:
    """The callbacks of a session, which any thread may add and remove."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[Callback, ...] = ()

    def add(self, callback: Callback) -> Callable[[], None]:
        """Call a function after each commit from now on.

        Returns:
            A function that removes the callback.

        Raises:
            AnalysisError: `callback` is not callable.
        """
        if not callable(callback):
            raise AnalysisError(f"A callback is a function that takes a Result, not {type(callback).__name__}")
        with self._lock:
            self._known = (*self._known, callback)

        def remove() -> None:
            with self._lock:
                rest = list(self._known)
                if callback in rest:
                    rest.remove(callback)
                self._known = tuple(rest)

        return remove

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._known)

    def __bool__(self) -> bool:
        return bool(self._known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A successful statement.

    Attributes:
        result: Its result.
        table: The table, as the statement loaded it.
        identifier: Its name in its catalog.
        staged: Whether its snapshot is staged, and on no branch.
        settings: The session's settings, by the names of the table properties that they override.
        added: The data files that it added; None to read those of the snapshots that the branch got.
        callbacks: The session's callbacks.
        compact: Compacts the table, given the options of its triggers; None if the session cannot.
    """

    result: Result
    table: Table = field(repr=False)
    identifier: tuple[str, ...]
    staged: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    added: Sequence[ContentFile] | None = field(default=(), repr=False)
    callbacks: Callbacks = field(default_factory=Callbacks)
    compact: Compaction | None = None

    @property
    def catalog(self) -> Catalog:
        """The table's catalog."""
        return self.table.catalog


def after_statement(finished: Finished) -> None:
    """Run the post-commit actions of a statement: tags, marks, callbacks, a compaction, metrics. Never fails."""
    failed: list[str] = []
    result, options = finished.result, NO_HOOKS
    if result.changed and not result.replayed:
        if result.branch == MAIN_BRANCH and not finished.staged:
            with warn_on_error("table properties", finished, failed):
                options = options_of(finished)
                if options.tag_creation is not TagCreation.NONE:
                    with warn_on_error("tag", finished, failed):
                        make_tags(finished, options)
                if options.mark_done is not MarkDone.NONE:
                    with warn_on_error("mark-done", finished, failed):
                        mark_done(finished, options)
        if finished.callbacks and not in_callback():
            with warn_on_error("callback", finished, failed):
                call_back(finished, failed)
        if finished.compact is not None and not IN_MAINTENANCE.get():
            with warn_on_error("maintenance", finished, failed):
                compact_if_due(finished, options)
    with warn_on_error("metrics", finished, failed):
        record_metrics(result, failed)


NO_HOOKS: Final = HookOptions()
TRIGGERS: Final = (
    MAINTENANCE_TRIGGER_COMMITS,
    MAINTENANCE_TRIGGER_SMALL_FILES,
    MAINTENANCE_TRIGGER_DELETED_RATIO,
)


def options_of(finished: Finished) -> HookOptions:
    """Return the options of the table, overridden by the session.

    Raises:
        AnalysisError: a value is invalid.
    """
    properties = {**finished.table.properties, **finished.settings}
    asks = properties.keys() & {COMMIT_TAG_CREATION, COMMIT_MARK_DONE, *TRIGGERS}
    return HookOptions.from_properties(properties) if asks else NO_HOOKS


@contextmanager
def warn_on_error(hook: str, finished: Finished, failed: list[str]) -> Iterator[None]:
    """Turn an error inside the block into a warning."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the snapshot is committed, whatever fails now
        failed.append(hook)
        result = finished.result
        LOG.warning(
            "After snapshot %s of %s was committed, the hook '%s' failed: %s",
            result.snapshot_id,
            result.table,
            hook,
            redact(f"{type(error).__name__}: {error}", finished.catalog.properties),
        )


def make_tags(finished: Finished, options: HookOptions) -> None:
    """Create and remove tags of the table, as one change of its metadata."""
    snapshot_id, now_ms = finished.result.snapshot_id, time.time_ns() // 1_000_000
    assert snapshot_id is not None
    if is_tagged(finished.table.metadata, options, now_ms=now_ms):
        return
    commit_change(
        finished.catalog,
        finished.identifier,
        lambda metadata: tag_change(metadata, snapshot_id, options, now_ms=now_ms),
    )


def mark_done(finished: Finished, options: HookOptions) -> None:
    """Write the files and the property of partitions whose time is over."""
    table = load_table(finished.catalog, finished.identifier)
    snapshot = table.metadata.snapshot_by_id(finished.result.snapshot_id or 0)
    if snapshot is None:
        return  # it has expired already
    with_files = options.mark_done is MarkDone.SUCCESS_FILE
    added = finished.added
    if added is None:
        added = new_files(table, snapshot, finished.table.metadata.current_snapshot_id) if with_files else ()
    done = done_partitions(table, snapshot, added, options, with_files=with_files)
    if done.partitions:
        write_success_files(table, done, now_ms=time.time_ns() // 1_000_000)
    if done.moved:
        commit_change(finished.catalog, finished.identifier, lambda metadata: until_change(metadata, done))


def new_files(table: Table, snapshot: Snapshot, previous_id: int | None) -> list[ContentFile]:
    """Return the live data files of a snapshot that the snapshots after its ancestor `previous_id` added."""
    history = ancestors(table.metadata, snapshot.snapshot_id)
    new = {one.snapshot_id for one in takewhile(lambda one: one.snapshot_id != previous_id, history)}
    return [
        entry.data_file
        for manifest in manifests_of(table.io, snapshot)
        if manifest.content is ManifestContent.DATA and manifest.added_snapshot_id in new
        for entry in entries_of(manifest, table.io, live_only=True)
        if entry.snapshot_id in new
    ]


# ---- compaction

IN_MAINTENANCE: Final = ContextVar("IN_MAINTENANCE", default=False)


@contextmanager
def in_maintenance() -> Iterator[None]:
    """Keep the commits of the block from triggering a compaction."""
    token = IN_MAINTENANCE.set(True)
    try:
        yield
    finally:
        IN_MAINTENANCE.reset(token)


def compact_if_due(finished: Finished, options: HookOptions) -> None:
    """Compact the table if one of its triggers is due."""
    if (options.trigger_commits, options.trigger_small_files, options.trigger_deleted_ratio) == (None, None, None):
        return
    # Others may have committed between the start of the statement and its commit: each commit has a place of its own.
    metadata = load_table(finished.catalog, finished.identifier).metadata
    committed = metadata.snapshot_by_id(finished.result.snapshot_id or 0)
    before = None if committed is None else committed.parent_snapshot_id
    history = () if before is None else ancestors(metadata, before)
    target = WriteOptions.from_properties(metadata.properties).target_file_size
    rules = importlib.import_module("dml.maintenance")  # few tables have triggers, and it is large
    small = int(target * rules.rewrite_options.MIN_SIZE_SHARE)
    reason: str | None = rules.due_trigger(finished.result.summary, history, options, small)
    if reason is not None and finished.compact is not None:
        LOG.info("Compacting %s: %s", finished.result.table, reason)
        finished.compact(options)


# ---- callbacks

IN_CALLBACK: Final = ContextVar("IN_CALLBACK", default=False)
STREAM_QUERY_ID: Final = "sql.streaming.queryId"
NO_QUERY: Final = "none"
PROPERTY: Final = "spark.rowdelta.callback"
"""Spark's local property with the same meaning: Spark calls a DataFrame's write back in another Python thread."""


def in_callback() -> bool:
    """Return whether this thread, or the thread for which the JVM calls it, runs a callback."""
    # A stream that a callback has started inherits the property, but its threads have another query id.
    return IN_CALLBACK.get() or local_property(PROPERTY) == (local_property(STREAM_QUERY_ID) or NO_QUERY)


def call_back(finished: Finished, failed: list[str]) -> None:
    """Call the session's callbacks, and wait for them."""
    thread = threading.Thread(target=run_callbacks, args=(finished, failed), name="rowdelta-callbacks", daemon=True)
    thread.start()
    thread.join()


def run_callbacks(finished: Finished, failed: list[str]) -> None:
    """Call the callbacks one after the other; an error becomes a warning with its traceback."""
    IN_CALLBACK.set(True)
    set_local_property(PROPERTY, local_property(STREAM_QUERY_ID) or NO_QUERY)
    try:
        for callback in finished.callbacks:
            try:
                callback(finished.result)
            except BaseException:
                failed.append("callback")
                LOG.warning(
                    "After snapshot %s of %s was committed, the callback %s failed",
                    finished.result.snapshot_id,
                    finished.result.table,
                    getattr(callback, "__qualname__", repr(callback)),
                    exc_info=True,
                )
    finally:
        set_local_property(PROPERTY, None)
