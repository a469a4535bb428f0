"""Cherry-picks, fast-forwards and rollbacks on hand-made histories, without Spark."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetSnapshotRefUpdate

from dml.commit import Action, AppendFiles, CommittedSnapshot, ReplacePartitions, RowDelta, commit
from dml.engine.procedures import history
from dml.errors import AnalysisError, DmlError, NotFoundError, ValidationFailedError
from dml.model.manifest import ContentFile
from dml.options import Command
from tests.dml.commit.builders import data_file, ids_by_pyiceberg, new_table, position_deletes

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


def append(table: Table, *ids: int, p: str = "a") -> AppendFiles:
    return AppendFiles(data_files=(data_file(table, ids, p),))


def replace(table: Table, *ids: int, p: str) -> ReplacePartitions:
    return ReplacePartitions(data_files=(data_file(table, ids, p),))


def stage(table: Table, action: Action, wap_id: str = "w") -> CommittedSnapshot:
    return commit(table, action, wap_id=wap_id)


def pick(table: Table, snapshot_id: int) -> TableMetadata:
    """Cherry-pick a snapshot and return the table's metadata, whose head is what the pick reports."""
    current = history.cherry_pick(table.refresh(), snapshot_id, {"engine-name": "tests"}).snapshot_id
    metadata = table.refresh().metadata
    assert current == metadata.current_snapshot_id
    return metadata


def ids(table: Table) -> list[int]:
    return sorted(ids_by_pyiceberg(table.refresh().metadata_location))


@VERSIONS
@pytest.mark.parametrize("filled", [False, True])
def test_main_moves_to_a_snapshot_that_follows_it(catalog: Catalog, version: int, filled: bool) -> None:
    """Without a new snapshot."""
    table = new_table(catalog, version)
    if filled:
        commit(table, append(table, 1))
    staged = stage(table, append(table, 2))
    metadata = pick(table, staged.snapshot_id)
    assert metadata.current_snapshot_id == staged.snapshot_id
    assert len(metadata.snapshots) == 1 + filled
    assert metadata.snapshot_log[-1].snapshot_id == staged.snapshot_id
    assert ids(table) == ([1, 2] if filled else [2])


@VERSIONS
def test_an_append_is_committed_again_once(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    commit(table, append(table, 1))
    staged = stage(table, append(table, 2, 3))
    other = stage(table, append(table, 4), "other")
    head = commit(table, append(table, 5))
    metadata = pick(table, staged.snapshot_id)
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.parent_snapshot_id == head.snapshot_id
    kept = ("source-snapshot-id", "published-wap-id", "wap.id", "engine-name", "added-records", "total-records")
    assert [snapshot.summary.additional_properties.get(key) for key in kept] == [
        str(staged.snapshot_id), "w", None, "tests", "2", "4",
    ]  # fmt: skip
    if version == 3:
        spans = [(one.first_row_id, one.added_rows) for one in metadata.snapshots]
        assert spans == [(0, 1), (1, 2), (3, 1), (4, 1), (5, 2)]
    assert ids(table) == [1, 2, 3, 5]
    # As a second id of the same rows, and by the snapshot that was made of it.
    for again, message in (
        (staged.snapshot_id, "Duplicate request to cherry pick wap id that was published already: w"),
        (snapshot.snapshot_id, f"Cannot cherrypick snapshot {snapshot.snapshot_id}: already an ancestor"),
        (head.snapshot_id, f"Cannot cherrypick snapshot {head.snapshot_id}: already an ancestor"),
    ):
        with pytest.raises(ValidationFailedError, match=message):
            pick(table, again)
    pick(table, other.snapshot_id)
    assert ids(table) == [1, 2, 3, 4, 5]


def test_a_snapshot_without_a_wap_id_is_picked_once(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    commit(table, append(table, 1))
    staged = commit(table, append(table, 2), stage_only=True)
    commit(table, append(table, 3))
    made = pick(table, staged.snapshot_id).current_snapshot_id
    with pytest.raises(ValidationFailedError, match=f"already picked to create ancestor {made}"):
        pick(table, staged.snapshot_id)
    with pytest.raises(NotFoundError, match="Cannot cherry-pick unknown snapshot ID: 17"):
        pick(table, 17)


def delete_first_row(table: Table, file: ContentFile) -> RowDelta:
    return RowDelta(
        command=Command.DELETE,
        delete_files=(position_deletes(table, file, [0]),),
        starting_snapshot_id=table.refresh().metadata.current_snapshot_id,
    )


Change = Callable[[Table], Action]
CHANGES: dict[str, tuple[Change, bool]] = {
    "rows in another partition": (lambda table: append(table, 9, p="b"), True),
    "rows in its partition": (lambda table: append(table, 9, p="a"), False),
    "its partition replaced": (lambda table: replace(table, 9, p="a"), False),
    "a row of its partition deleted": (
        lambda table: delete_first_row(table, FIRST[0]),
        False,
    ),
}
FIRST: list[ContentFile] = []


@pytest.mark.parametrize("change", CHANGES)
def test_a_dynamic_overwrite_is_picked_if_its_partitions_are_unchanged(catalog: Catalog, change: str) -> None:
    table = new_table(catalog, 2, partitioned=True)
    first = data_file(table, [1, 2], "a")
    FIRST[:] = [first]
    commit(table, AppendFiles(data_files=(first, data_file(table, [3], "b"))))
    staged = stage(table, replace(table, 5, p="a"))
    make, is_picked = CHANGES[change]
    commit(table, make(table))
    before = table.refresh().metadata_location
    if is_picked:
        picked = pick(table, staged.snapshot_id).current_snapshot()
        assert picked is not None
        assert picked.summary is not None
        summary = picked.summary
        assert (summary["source-snapshot-id"], summary["replace-partitions"]) == (str(staged.snapshot_id), "true")
        assert ids(table) == [3, 5, 9]
    else:
        with pytest.raises(ValidationFailedError, match="Cannot cherry-pick replace partitions with changed partition"):
            pick(table, staged.snapshot_id)
        assert table.refresh().metadata_location == before


def test_what_cannot_be_applied_again_is_refused(catalog: Catalog) -> None:
    """Rows that were read meanwhile stand on other rows; an overwrite of a state that main left replaced other rows."""
    table = new_table(catalog, 2, partitioned=True)
    first = data_file(table, [1], "a")
    start = commit(table, AppendFiles(data_files=(first,)))
    deleted = stage(table, delete_first_row(table, first), "d")
    second = commit(table, append(table, 2, p="b"))
    overwritten = stage(table, replace(table, 7, p="c"), "o")
    with pytest.raises(ValidationFailedError, match="not append, dynamic overwrite, or fast-forward"):
        pick(table, deleted.snapshot_id)
    metadata = table.refresh().metadata
    assert history.branch_move(metadata, "main", second.snapshot_id).updates == ()
    history.commit_change(catalog, table.name(), lambda now: history.branch_move(now, "main", start.snapshot_id))
    with pytest.raises(ValidationFailedError, match="overwrite not based on an ancestor of the current state"):
        pick(table, overwritten.snapshot_id)
    # Main is where the DELETE was staged again.
    pick(table, deleted.snapshot_id)
    assert ids(table) == []


@pytest.mark.parametrize("moves", ["main", "the same pick"])
def test_a_commit_that_lands_first(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, moves: str) -> None:
    """A fast-forward becomes a new snapshot; of two picks of a snapshot one is applied."""
    table = new_table(catalog, 2)
    commit(table, append(table, 1))
    staged = stage(table, append(table, 2))
    if moves == "the same pick":
        commit(table, append(table, 3))
    original, pending = SqlCatalog.commit_table, [True]

    def commit_second(self: SqlCatalog, *arguments: object) -> object:
        if pending:
            pending.clear()
            if moves == "main":
                commit(table, append(table, 3))
            else:
                history.cherry_pick(catalog.load_table(("db", "t")), staged.snapshot_id, {})
        return original(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_second)
    fresh = catalog.load_table(("db", "t"))
    if moves == "main":
        assert pick(fresh, staged.snapshot_id).current_snapshot_id != staged.snapshot_id
    else:
        with pytest.raises(ValidationFailedError, match="published already: w"):
            pick(fresh, staged.snapshot_id)
    assert ids(table) == [1, 2, 3]


def test_a_wap_id_names_one_snapshot(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    staged = stage(table, append(table, 1), "once")
    for _ in range(2):
        stage(table, append(table, 2), "twice")
    metadata = table.refresh().metadata
    assert history.staged_snapshot_id(metadata, "once") == staged.snapshot_id
    with pytest.raises(NotFoundError, match="Cannot apply unknown WAP ID 'nope'"):
        history.staged_snapshot_id(metadata, "nope")
    with pytest.raises(ValidationFailedError, match="Found multiple snapshots with WAP ID 'twice'"):
        history.staged_snapshot_id(metadata, "twice")


def test_a_branch_moves_forward_to_what_descends_from_it(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    first = commit(table, append(table, 1))
    manage = table.refresh().manage_snapshots()
    manage.create_branch(first.snapshot_id, "audit", max_ref_age_ms=10**9).create_tag(first.snapshot_id, "v1").commit()
    ahead = commit(table, append(table, 2), branch="audit")

    def move(branch: str, to: str) -> tuple[tuple[str, int, int | None], ...]:
        updates = history.fast_forward_move(table.refresh().metadata, branch, to).updates
        return tuple(
            (update.ref_name, update.snapshot_id, update.max_ref_age_ms)
            for update in updates
            if isinstance(update, SetSnapshotRefUpdate)
        )

    assert move("main", "audit") == (("main", ahead.snapshot_id, None),)
    assert move("fresh", "audit") == (("fresh", ahead.snapshot_id, None),)
    assert move("audit", "audit") == move("main", "v1") == ()
    commit(table, append(table, 3), branch="audit")
    history.commit_change(catalog, table.name(), lambda metadata: history.fast_forward_move(metadata, "main", "audit"))
    assert ids(table) == [1, 2, 3]
    commit(table, append(table, 4))
    assert move("audit", "main") == (("audit", table.refresh().metadata.current_snapshot_id, 10**9),)
    errors: tuple[tuple[str, str, type[DmlError], str], ...] = (
        ("main", "nope", NotFoundError, "Ref does not exist: nope"),
        ("v1", "main", AnalysisError, "Ref v1 is a tag not a branch"),
        ("main", "audit", ValidationFailedError, "Cannot fast-forward: main is not an ancestor of audit"),
    )
    for branch, to, error, message in errors:
        with pytest.raises(error, match=message):
            move(branch, to)


def test_a_time_selects_the_newest_ancestor_before_it(catalog: Catalog) -> None:
    """Strictly before, and only among the ancestors of main; microseconds are cut off."""
    table = new_table(catalog, 2)
    made = [commit(table, append(table, number)).snapshot_id for number in range(3)]
    stage(table, append(table, 9))
    times = [1_000, 2_000, 2_000, 2_500]
    metadata = table.refresh().metadata
    snapshots = [
        one.model_copy(update={"timestamp_ms": time}) for one, time in zip(metadata.snapshots, times, strict=True)
    ]
    metadata = metadata.model_copy(update={"snapshots": snapshots})

    def before(seconds: float) -> int:
        return history.ancestor_before(metadata, datetime.fromtimestamp(seconds, UTC))

    assert (before(2), before(2.0009), before(2.001), before(100)) == (made[0], made[0], made[2], made[2])
    with pytest.raises(ValidationFailedError, match="no valid snapshot older than: 1000"):
        before(1)
    metadata = new_table(catalog, 2, name="empty").metadata
    with pytest.raises(ValidationFailedError, match="Main has no snapshots"):
        before(100)
