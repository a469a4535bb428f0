"""ALTER TABLE: branches and tags.

`REFERENCE` is what Iceberg's Java library (1.10.2, Spark 3.5) answers to the same statements on a table with the
snapshots 1 and 2: the branches and tags after each, or the error.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from dml.commit import AppendFiles, commit
from dml.errors import CommitConflictError, DmlError, ErrorKind
from tests.dml.ddl.conftest import DdlCatalog

NewTable = Callable[..., DdlCatalog]
DAY, HOUR, MINUTE = 86_400_000, 3_600_000, 60_000

# A branch or tag: its snapshot, max_ref_age_ms, min_snapshots_to_keep, max_snapshot_age_ms.
REFERENCE: list[tuple[str, dict[str, tuple[Any, ...] | None] | str]] = [
    ("CREATE BRANCH b", {"BRANCH b": (2, None, None, None)}),
    ("CREATE BRANCH b", "Ref b already exists"),
    ("CREATE BRANCH IF NOT EXISTS b AS OF VERSION 1 RETAIN 1 DAYS", {}),
    ("CREATE TAG b", "Ref b already exists"),
    ("CREATE TAG IF NOT EXISTS b", {}),
    ("CREATE OR REPLACE TAG b", "Ref b is a branch not a tag"),
    ("REPLACE TAG b", "Ref b is a branch not a tag"),
    ("REPLACE TAG nope", "Tag does not exist: nope"),
    ("REPLACE BRANCH nope", "Branch does not exist: nope"),
    (
        "CREATE BRANCH old AS OF VERSION 1 RETAIN 2 HOURS WITH SNAPSHOT RETENTION 5 SNAPSHOTS",
        {"BRANCH old": (1, 2 * HOUR, 5, None)},
    ),
    ("CREATE BRANCH age WITH SNAPSHOT RETENTION 90 MINUTES", {"BRANCH age": (2, None, None, 90 * MINUTE)}),
    ("REPLACE BRANCH old", {"BRANCH old": (2, 2 * HOUR, 5, None)}),
    ("CREATE OR REPLACE BRANCH old WITH SNAPSHOT RETENTION 1 DAYS", {"BRANCH old": (2, 2 * HOUR, 5, DAY)}),
    ("CREATE TAG v1 AS OF VERSION 1 RETAIN 3 DAYS", {"TAG v1": (1, 3 * DAY, None, None)}),
    ("REPLACE TAG v1", {"TAG v1": (2, 3 * DAY, None, None)}),
    ("CREATE OR REPLACE TAG v1 RETAIN 5 MINUTES", {"TAG v1": (2, 5 * MINUTE, None, None)}),
    ("CREATE OR REPLACE TAG v2", {"TAG v2": (2, None, None, None)}),
    ("CREATE TAG IF NOT EXISTS v2 AS OF VERSION 17", {}),
    ("CREATE TAG v3 AS OF VERSION 17", "The table has no snapshot 17"),  # Cannot set v3 to unknown snapshot: 17
    ("REPLACE TAG v1 AS OF VERSION 17", "The table has no snapshot 17"),
    ("CREATE BRANCH v2", "Ref v2 already exists"),
    ("CREATE OR REPLACE BRANCH v2", "Ref v2 is a tag not a branch"),
    ("REPLACE BRANCH v1", "Ref v1 is a tag not a branch"),
    ("CREATE TAG main", "Ref main already exists"),
    ("CREATE OR REPLACE TAG main", "Ref main is a branch not a tag"),
    ("CREATE BRANCH main", "Ref main already exists"),
    ("CREATE BRANCH IF NOT EXISTS main", {}),
    ("DROP BRANCH main", "Cannot remove main branch"),
    ("DROP BRANCH IF EXISTS main", "Cannot remove main branch"),
    ("DROP TAG main", "Ref main is a branch not a tag"),
    ("DROP BRANCH v1", "Ref v1 is a tag not a branch"),
    ("DROP TAG IF EXISTS b", "Ref b is a branch not a tag"),
    ("DROP BRANCH IF EXISTS nope", {}),
    ("DROP TAG nope", "Tag does not exist: nope"),
    ("DROP BRANCH nope", "Branch does not exist: nope"),
    ("CREATE BRANCH `a.b/c`", {"BRANCH a.b/c": (2, None, None, None)}),
    ("DROP TAG v1", {"TAG v1": None}),
    ("DROP BRANCH old", {"BRANCH old": None}),
    (
        "REPLACE BRANCH main AS OF VERSION 1 RETAIN 4 DAYS WITH SNAPSHOT RETENTION 3 SNAPSHOTS",
        {"BRANCH main": (1, 4 * DAY, 3, None)},
    ),
]


def references(lake: DdlCatalog, ids: list[int]) -> dict[str, tuple[Any, ...]]:
    return {
        f"{ref.snapshot_ref_type.name} {name}": (
            ids.index(ref.snapshot_id) + 1,
            ref.max_ref_age_ms,
            ref.min_snapshots_to_keep,
            ref.max_snapshot_age_ms,
        )
        for name, ref in lake.table().metadata.refs.items()
    }


def with_snapshots(lake: DdlCatalog) -> list[int]:
    """Commit two snapshots, and return their ids."""
    return [commit(lake.table(), AppendFiles()).snapshot_id for _ in range(2)]


def test_branches_and_tags_change_as_in_the_reference(new_table: NewTable, version: int) -> None:
    lake = new_table("id INT", version)
    ids = with_snapshots(lake)
    expected = {"BRANCH main": (2, None, None, None)}
    for action, outcome in REFERENCE:
        text = action
        for number, snapshot_id in enumerate(ids, 1):
            text = text.replace(f"VERSION {number} ", f"VERSION {snapshot_id} ").removesuffix(" ")
        before = lake.table().metadata_location
        if isinstance(outcome, str):
            with pytest.raises(DmlError) as caught:
                lake.run(f"ALTER TABLE db.t {text}")
            assert outcome in caught.value.message, action
            assert caught.value.span is not None, action
        else:
            lake.run(f"ALTER TABLE db.t {text}")
            expected = {name: ref for name, ref in (expected | outcome).items() if ref is not None}
        assert references(lake, ids) == expected, action
        assert (lake.table().metadata_location != before) == (isinstance(outcome, dict) and bool(outcome)), action
    assert lake.table().metadata.current_snapshot_id == ids[0]
    assert [entry.snapshot_id for entry in lake.table().metadata.snapshot_log] == [*ids, ids[0]]


@pytest.mark.parametrize(
    ("action", "message", "kind"),
    [
        ("CREATE TAG v1", "no current snapshot", ErrorKind.NOT_FOUND),
        ("CREATE OR REPLACE TAG v1", "no current snapshot", ErrorKind.NOT_FOUND),
        ("REPLACE BRANCH b", "Branch does not exist: b", ErrorKind.NOT_FOUND),
        ("CREATE TAG main", "main cannot be a tag", ErrorKind.NOT_SUPPORTED),
        ("DROP BRANCH main", "Cannot remove main", ErrorKind.NOT_SUPPORTED),
        ("CREATE BRANCH b AS OF VERSION 1", "no snapshot 1", ErrorKind.NOT_FOUND),
    ],
)
def test_a_table_without_snapshots_has_nothing_to_refer_to(
    new_table: NewTable, action: str, message: str, kind: ErrorKind
) -> None:
    lake = new_table("id INT")
    with pytest.raises(DmlError, match=message) as caught:
        lake.run(f"ALTER TABLE db.t {action}")
    assert caught.value.kind is kind


def test_a_branch_that_another_commit_moves_is_replaced_on_the_newest_state(
    new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_table("id INT")
    ids = with_snapshots(lake)
    lake.run(f"ALTER TABLE db.t CREATE BRANCH b AS OF VERSION {ids[0]}")
    commit_table, calls = type(lake.catalog).commit_table, 0

    def after_another(self: Any, table: Any, requirements: Any, updates: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            monkeypatch.setattr(type(lake.catalog), "commit_table", commit_table)
            lake.run("ALTER TABLE db.t REPLACE BRANCH b RETAIN 7 DAYS")
            monkeypatch.setattr(type(lake.catalog), "commit_table", after_another)
        return commit_table(self, table, requirements, updates)

    monkeypatch.setattr(type(lake.catalog), "commit_table", after_another)
    lake.run(f"ALTER TABLE db.t REPLACE BRANCH b AS OF VERSION {ids[0]} WITH SNAPSHOT RETENTION 2 SNAPSHOTS")
    assert calls == 2
    assert references(lake, ids)["BRANCH b"] == (1, 7 * DAY, 2, None)


def test_a_tag_that_others_always_move_first_is_a_conflict(
    new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_table("id INT")
    with_snapshots(lake)
    lake.run("ALTER TABLE db.t SET TBLPROPERTIES ('commit.retry.num-retries' = '1', 'commit.retry.min-wait-ms' = '1')")

    def lose(*_: Any) -> None:
        raise CommitFailedException("another")

    monkeypatch.setattr(type(lake.catalog), "commit_table", lose)
    with pytest.raises(CommitConflictError, match="2 times"):
        lake.run("ALTER TABLE db.t CREATE TAG v1")
