"""Which snapshots, branches and tags expire: as in Java, on histories that Java has expired."""

import json
import re
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate

from dml.errors import AnalysisError
from dml.iceberg import remove_snapshots
from dml.maintenance.retention import RetentionRules, plan_retention
from tests.fixtures.java.histories import HOUR_MS, metadata
from tests.fixtures.java.tables import HERE

NOW_MS = 1_800_000_000_000
HISTORIES: list[dict[str, Any]] = json.loads((HERE / "retention.json").read_text(encoding="utf-8"))


def table(history: dict[str, Any]) -> TableMetadata:
    return TableMetadataUtil.parse_obj(metadata(history, "file:///t", NOW_MS))


def rules(history: dict[str, Any], found: TableMetadata) -> RetentionRules:
    older_than = history["older_than"]
    older_than_ms = None if older_than is None else NOW_MS - int(older_than * HOUR_MS)
    return RetentionRules.of(
        found.properties, NOW_MS, older_than_ms, history["retain_last"], tuple(history["snapshot_ids"])
    )


def is_same_refusal(found: dict[str, Any], java: dict[str, Any]) -> bool:
    """Of several ids and refs, Java names the first in the order of their hashes."""
    pattern = r"Cannot expire (\d+)\. Still referenced by refs: \[(.+)\]"
    one, other = (re.fullmatch(pattern, outcome.get("error", "")) for outcome in (found, java))
    if one is None or other is None:
        return False
    return one[1] != other[1] or set(one[2].split(", ")) == set(other[2].split(", "))


def test_the_same_expires_as_in_java():
    """Snapshots with their parents, refs and the log, or the error; of all histories, so that a failure names it."""
    wrong = []
    for history in HISTORIES:
        before = table(history)
        try:
            plan = plan_retention(before, rules(history, before))
        except AnalysisError as error:
            found: dict[str, Any] = {"error": error.message}
        else:
            updates = (
                *(RemoveSnapshotRefUpdate(ref_name=name) for name in plan.removed_refs),
                RemoveSnapshotsUpdate(snapshot_ids=sorted(plan.expired)),
            )
            after, _ = remove_snapshots(before, updates)
            found = {
                "kept": [[one.snapshot_id, one.parent_snapshot_id] for one in after.snapshots],
                "refs": sorted(set(after.refs) - set(plan.removed_refs)),
                "log": [entry.snapshot_id for entry in after.snapshot_log],
            }
        if found != history["java"] and not is_same_refusal(found, history["java"]):
            wrong.append((history, found))
    assert not wrong
    assert sum("error" in history["java"] for history in HISTORIES) > 5


def test_each_ref_and_snapshot_has_one_decision_that_agrees_with_the_plan():
    """`keep` is what stays, and reasons are never empty."""
    for history in HISTORIES:
        if "error" in history["java"]:
            continue
        before = table(history)
        plan = plan_retention(before, rules(history, before))
        decisions = {one.object: one.decision for one in plan.decisions}
        assert len(decisions) == len(plan.decisions)
        assert all(one.reason for one in plan.decisions)
        for name, ref in before.refs.items():
            expected = "remove" if name in plan.removed_refs else "keep"
            assert decisions.pop(f"{ref.snapshot_ref_type.value} {name}") == expected
        for snapshot in before.snapshots:
            expected = "expire" if snapshot.snapshot_id in plan.expired else "keep"
            assert decisions.pop(f"snapshot {snapshot.snapshot_id}") == expected
        assert set(decisions.values()) <= {"skip"}


def test_reasons():
    """Each rule has its own."""
    history = {
        "snapshots": [[1, None, 9.5], [2, 1, 7.5], [3, 2, 5.5], [4, 3, 3.5], [5, 1, 8.5], [6, 1, 0.5], [7, 2, 6.5]],
        "refs": {"main": ["branch", 4, None, None, None], "old": ["tag", 1, 2], "v2": ["tag", 7, None]},
        "properties": {},
    }
    before, limit = table(history), "2027-01-15 03:30:00.000+00:00"
    found = plan_retention(before, RetentionRules.of({}, NOW_MS, NOW_MS - int(4.5 * HOUR_MS), 2, (2, 99)))
    assert [(one.decision, one.object, one.reason) for one in found.decisions] == [
        ("keep", "branch main", "main always stays"),
        ("remove", "tag old", "its snapshot is 9.5 hours old, above its max-ref-age-ms of 2.0 hours"),
        ("keep", "tag v2", "it has no max-ref-age-ms"),
        (
            "expire",
            "snapshot 1",
            "of 2027-01-14 22:30:00.000+00:00: too old for its branches, and not among their last snapshots",
        ),
        ("expire", "snapshot 2", "snapshot_ids names it"),
        ("keep", "snapshot 3", "one of the last 2 snapshots of main"),
        ("keep", "snapshot 4", "referenced by main"),
        (
            "expire",
            "snapshot 5",
            f"no kept branch or tag reaches it, and it is of 2027-01-14 23:30:00.000+00:00, before {limit}",
        ),
        (
            "keep",
            "snapshot 6",
            f"no kept branch or tag reaches it, but it is of 2027-01-15 07:30:00.000+00:00, not before {limit}",
        ),
        ("keep", "snapshot 7", "referenced by v2"),
        ("skip", "snapshot 99", "the table has no such snapshot"),
    ]


@pytest.mark.parametrize("name", ["max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms"])
def test_an_invalid_property_is_an_error(name):
    """It never falls back to a default, which may delete more."""
    with pytest.raises(AnalysisError, match=name):
        RetentionRules.of({f"history.expire.{name}": "5 days"}, NOW_MS)
