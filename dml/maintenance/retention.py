"""Plan which snapshots, branches and tags of a table expire. Pure; driver.

Input: table metadata and the rules. Output: the refs and snapshots to remove, and a decision with its reason for each
ref and snapshot. Refs other than main expire by age. The heads of kept refs are kept, and so are ancestors of kept
branches that are young enough or among the most recent. Snapshots that no kept ref reaches are kept while they are
young enough. Source: Iceberg's `RemoveSnapshots`; Iceberg specification, "Snapshot Retention Policy".
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from dml.commit import ancestors
from dml.errors import AnalysisError, ErrorKind
from dml.options import MAX_REF_AGE_MS, MAX_SNAPSHOT_AGE_MS, MIN_SNAPSHOTS_TO_KEEP, integer
from dml.result import Decision

__all__ = ["RetentionPlan", "RetentionRules", "duration", "plan_retention", "time_text"]

HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """The rules of an expiration; times in milliseconds since 1970.

    Attributes:
        now_ms: The time of the call, from which ages are computed.
        older_than_ms: Ancestors of branches and unreferenced snapshots that are older than this expire.
        retain_last: The number of snapshots that each branch keeps regardless of their age.
        max_ref_age_ms: Refs whose snapshot is older than this many milliseconds expire.
        snapshot_ids: Snapshots that expire regardless of the other rules.
    """

    now_ms: int
    older_than_ms: int
    retain_last: int
    max_ref_age_ms: int
    snapshot_ids: frozenset[int]

    @staticmethod
    def of(
        properties: Mapping[str, str],
        now_ms: int,
        older_than_ms: int | None = None,
        retain_last: int | None = None,
        snapshot_ids: Iterable[int] = (),
    ) -> "RetentionRules":
        """Complete the arguments of a call with the properties of its table.

        Raises:
            AnalysisError: A property has an invalid value.
        """
        age_ms = integer(properties, MAX_SNAPSHOT_AGE_MS, 5 * DAY_MS)
        least = integer(properties, MIN_SNAPSHOTS_TO_KEEP, 1)
        return RetentionRules(
            now_ms=now_ms,
            older_than_ms=now_ms - age_ms if older_than_ms is None else older_than_ms,
            retain_last=least if retain_last is None else retain_last,
            max_ref_age_ms=integer(properties, MAX_REF_AGE_MS, FOREVER_MS),
            snapshot_ids=frozenset(snapshot_ids),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What expires.

    Attributes:
        expired: The ids of the snapshots to remove.
        removed_refs: The branches and tags to remove.
        decisions: A decision for each ref and each snapshot, in the order of the metadata.
    """

    expired: frozenset[int]
    removed_refs: tuple[str, ...]
    decisions: tuple[Decision, ...]


def plan_retention(metadata: TableMetadata, rules: RetentionRules) -> RetentionPlan:
    """Plan an expiration.

    Args:
        metadata: The table.
        rules: The rules.

    Raises:
        AnalysisError: A kept branch or tag is at a snapshot of `rules.snapshot_ids`.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    refs = {name: ref_decision(name, ref, known, rules) for name, ref in metadata.refs.items()}
    kept_refs = {name: metadata.refs[name] for name, decision in refs.items() if decision.decision == "keep"}
    refuse_referenced(kept_refs, rules.snapshot_ids)

    kept: dict[int, str] = {}
    referenced: set[int] = set()
    for name, ref in kept_refs.items():
        if ref.snapshot_ref_type is SnapshotRefType.TAG:
            referenced.add(ref.snapshot_id)
        else:
            history = list(ancestors(metadata, ref.snapshot_id))
            referenced.update(snapshot.snapshot_id for snapshot in history)
            for snapshot, reason in retained_ancestors(name, ref, history, rules):
                kept.setdefault(snapshot.snapshot_id, reason)
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in referenced and snapshot.timestamp_ms >= rules.older_than_ms:
            when = f"{time_text(snapshot.timestamp_ms)}, not before {time_text(rules.older_than_ms)}"
            kept[snapshot.snapshot_id] = f"no kept branch or tag reaches it, but it is of {when}"
    names: defaultdict[int, list[str]] = defaultdict(list)
    for name, ref in kept_refs.items():
        names[ref.snapshot_id].append(name)
    for snapshot_id, heads in names.items():
        kept[snapshot_id] = f"referenced by {', '.join(heads)}"
    for snapshot_id in rules.snapshot_ids:
        kept.pop(snapshot_id, None)

    snapshots = tuple(snapshot_decision(snapshot, kept, referenced, rules) for snapshot in metadata.snapshots)
    unknown = tuple(
        Decision(decision="skip", object=f"snapshot {snapshot_id}", reason="the table has no such snapshot")
        for snapshot_id in sorted(rules.snapshot_ids - known.keys())
    )
    return RetentionPlan(
        expired=frozenset(known) - kept.keys(),
        removed_refs=tuple(name for name in metadata.refs if name not in kept_refs),
        decisions=(*refs.values(), *snapshots, *unknown),
    )


def ref_decision(name: str, ref: SnapshotRef, known: Mapping[int, Snapshot], rules: RetentionRules) -> Decision:
    what = f"{ref.snapshot_ref_type.value} {name}"
    if name == MAIN_BRANCH:
        return Decision(decision="keep", object=what, reason="main always stays")
    snapshot = known.get(ref.snapshot_id)
    if snapshot is None:
        reason = f"its snapshot {ref.snapshot_id} does not exist"
        return Decision(decision="remove", object=what, reason=reason)
    limit = rules.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    if limit == FOREVER_MS:
        return Decision(decision="keep", object=what, reason="it has no max-ref-age-ms")
    age = rules.now_ms - snapshot.timestamp_ms
    kept = age <= limit
    relation = "not above" if kept else "above"
    reason = f"its snapshot is {duration(age)} old, {relation} its max-ref-age-ms of {duration(limit)}"
    return Decision(decision="keep" if kept else "remove", object=what, reason=reason)


def refuse_referenced(refs: Mapping[str, SnapshotRef], snapshot_ids: Iterable[int]) -> None:
    for snapshot_id in snapshot_ids:
        names = [name for name, ref in refs.items() if ref.snapshot_id == snapshot_id]
        if names:
            raise AnalysisError(
                f"Cannot expire {snapshot_id}. Still referenced by refs: [{', '.join(names)}]",
                kind=ErrorKind.INVALID_VALUE,
                hint="Drop or move these branches and tags first, or leave the id out of snapshot_ids",
                snapshot_id=snapshot_id,
                refs=tuple(names),
            )


def retained_ancestors(
    name: str, branch: SnapshotRef, history: Iterable[Snapshot], rules: RetentionRules
) -> Iterator[tuple[Snapshot, str]]:
    """Yield the snapshots that a branch keeps, with the reason, newest first.

    As in Java, the walk ends at the first snapshot that is neither young enough nor among the most recent, even if an
    ancestor has a later time.
    """
    older_than_ms = (
        rules.older_than_ms if branch.max_snapshot_age_ms is None else rules.now_ms - branch.max_snapshot_age_ms
    )
    count = rules.retain_last if branch.min_snapshots_to_keep is None else branch.min_snapshots_to_keep
    for place, snapshot in enumerate(history):
        if place < count:
            yield snapshot, f"one of the last {count} snapshots of {name}"
        elif snapshot.timestamp_ms >= older_than_ms:
            when = f"of {time_text(snapshot.timestamp_ms)}, not before {time_text(older_than_ms)}"
            yield snapshot, f"a snapshot of {name}, {when}"
        else:
            return


def snapshot_decision(
    snapshot: Snapshot, kept: Mapping[int, str], referenced: set[int], rules: RetentionRules
) -> Decision:
    snapshot_id, when = snapshot.snapshot_id, time_text(snapshot.timestamp_ms)
    what = f"snapshot {snapshot_id}"
    if snapshot_id in kept:
        return Decision(decision="keep", object=what, reason=kept[snapshot_id])
    if snapshot_id in rules.snapshot_ids:
        reason = "snapshot_ids names it"
    elif snapshot_id in referenced:
        reason = f"of {when}: too old for its branches, and not among their last snapshots"
    else:
        reason = f"no kept branch or tag reaches it, and it is of {when}, before {time_text(rules.older_than_ms)}"
    return Decision(decision="expire", object=what, reason=reason)


def time_text(millis: int) -> str:
    """Return a time in milliseconds since 1970 as text, in UTC."""
    try:
        return (EPOCH + timedelta(milliseconds=millis)).isoformat(sep=" ", timespec="milliseconds")
    except OverflowError:  # a property may set any age
        return f"{millis} ms"


def duration(millis: int) -> str:
    """Return a span of time as text: in days, in hours or in milliseconds."""
    hours = millis / HOUR_MS
    if abs(hours) < 1:
        return f"{millis} ms"
    return f"{hours / 24:.1f} days" if abs(hours) >= 48 else f"{hours:.1f} hours"
