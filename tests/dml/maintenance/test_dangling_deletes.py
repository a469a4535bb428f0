"""Delete files that apply to nothing leave a branch, and no other one does."""

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from dml.commit import AppendFiles, CommittedSnapshot, RewriteFiles, RowDelta, commit
from dml.deletes.delete_file_index import DeleteEntry, DeleteKind
from dml.errors import CommitConflictError
from dml.maintenance import remove_dangling_deletes
from dml.maintenance.dangling_deletes import LiveDataFiles, dangling_deletes
from dml.options import Command
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import BY_P, data_file, deletes, equality_deletes, ids, ids_by_duckdb, new_table

PARTITIONED, UNPARTITIONED = 0, 1
SPECS = {PARTITIONED: BY_P, UNPARTITIONED: UNPARTITIONED_PARTITION_SPEC}
KINDS = {"v": DeleteKind.DELETION_VECTOR, "p": DeleteKind.POSITION_DELETES, "e": DeleteKind.EQUALITY_DELETES}


def entry(kind: str, number: int, partition: str | None = "a", of: str | None = None) -> DeleteEntry:
    return DeleteEntry(
        payload=(kind, number),
        kind=KINDS[kind],
        spec_id=UNPARTITIONED if partition is None else PARTITIONED,
        partition=() if partition is None else (partition,),
        data_sequence_number=number,
        referenced_data_file=of,
        equality_ids=(1,) if kind == "e" else (),
    )


@pytest.mark.parametrize(
    ("delete", "dangles"),
    [
        # Partition a has files of the numbers 5 and 8, partition b one of the number 2.
        (entry("p", 4), True),
        (entry("p", 5), False),
        (entry("e", 5), True),
        (entry("e", 6), False),
        # A partition without data files.
        (entry("p", 9, "c"), True),
        (entry("e", 9, "c"), True),
        # Of one data file: whether that is live decides, and for a position delete file its number, too.
        (entry("v", 5, of="x"), False),
        (entry("v", 5, of="gone"), True),
        (entry("p", 9, of="gone"), True),
        (entry("p", 9, of="x"), False),
        (entry("p", 4, of="x"), True),
        # Of a spec without partitions: equality deletes apply to all files, position deletes to those of the spec.
        (entry("e", 3, None), False),
        (entry("e", 2, None), True),
        (entry("p", 9, None), True),
    ],
)
def test_a_delete_file_dangles_if_no_data_file_is_old_enough(delete: DeleteEntry, dangles: bool) -> None:
    files = LiveDataFiles()
    for path, partition, number in (("x", "a", 5), ("y", "a", 8), ("z", "b", 2)):
        files.add(path, PARTITIONED, (partition,), number)
    assert dangling_deletes([delete], files, SPECS) == ([delete] if dangles else [])


def test_without_data_files_all_delete_files_dangle() -> None:
    found = [entry("e", 3, None), entry("p", 3), entry("v", 3, of="x")]
    assert dangling_deletes(found, LiveDataFiles(), SPECS) == found


@pytest.mark.parametrize("branch", ["main", "side"])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("partitioned", [False, True])
def test_dangling_deletes_leave_a_branch(catalog: Catalog, version: int, partitioned: bool, branch: str) -> None:
    """A rewritten file's position deletes go; those of another file of the partition stay, with its rows."""
    table = new_table(catalog, version, partitioned=partitioned)
    first, second = data_file(table, [1, 2, 3]), data_file(table, [4, 5, 6])
    commit(table, AppendFiles(data_files=(first,)))

    def on_branch(action: AppendFiles | RowDelta | RewriteFiles) -> CommittedSnapshot:
        return commit(table.refresh(), action, branch=branch, create_branch=True)

    start = on_branch(AppendFiles(data_files=(second,))).snapshot_id
    marked = (deletes(table, first, [0]), deletes(table, second, [1]))
    start = on_branch(RowDelta(command=Command.DELETE, delete_files=marked, starting_snapshot_id=start)).snapshot_id
    equality = equality_deletes(table, first, 2)
    last = on_branch(RowDelta(command=Command.UPDATE, delete_files=(equality,), starting_snapshot_id=start))
    on_branch(
        RewriteFiles(
            data_files=(data_file(table, [3]),),
            removed_data_files=frozenset({first.path}),
            data_sequence_number=last.sequence_number,
            starting_snapshot_id=last.snapshot_id,
        )
    )
    before = plan_scan(table.refresh(), table.metadata.refs[branch].snapshot_id)
    # A vector leaves with its file. The equality delete still applies to the second file.
    assert remove_dangling_deletes(table, branch, {}) == (1 if version == 2 else 0)
    after = plan_scan(table.refresh(), table.metadata.refs[branch].snapshot_id)
    assert after.tasks == before.tasks
    assert remove_dangling_deletes(table, branch, {}) == 0
    if branch == "main":
        assert ids_by_duckdb(table.metadata_location) == [3, 4, 6]  # PyIceberg reads no equality deletes


def test_a_branch_that_is_set_back_meanwhile_keeps_its_deletes(catalog: Catalog) -> None:
    """What dangles in the newer snapshot is needed in the older one."""
    table = new_table(catalog, 2)
    first = data_file(table, [1, 2, 3])
    start = commit(table, AppendFiles(data_files=(first,))).snapshot_id
    delta = RowDelta(command=Command.DELETE, delete_files=(deletes(table, first, [0]),), starting_snapshot_id=start)
    older = commit(table, delta).snapshot_id
    rewrite = RewriteFiles(
        data_files=(data_file(table, [2, 3]),),
        removed_data_files=frozenset({first.path}),
        starting_snapshot_id=older,
    )
    newer = commit(table, rewrite).snapshot_id
    table.refresh()
    table.manage_snapshots().rollback_to_snapshot(older).commit()
    stale = table.refresh()
    keys = frozenset(ref.key for task in plan_scan(stale, older).tasks for ref in task.position_deletes)
    with pytest.raises(CommitConflictError, match="not an ancestor"):
        commit(stale, RewriteFiles(removed_delete_files=keys, starting_snapshot_id=newer))
    assert ids(stale.refresh().metadata_location) == [2, 3]


def test_what_others_have_removed_meanwhile_is_no_conflict(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    first, second = data_file(table, [1, 2, 3]), data_file(table, [4, 5, 6])
    start = commit(table, AppendFiles(data_files=(first, second))).snapshot_id
    marked = (deletes(table, first, [0]), deletes(table, second, [1]))
    last = commit(table, RowDelta(command=Command.DELETE, delete_files=marked, starting_snapshot_id=start))
    rewrite = RewriteFiles(
        data_files=(data_file(table, [2, 3, 4, 6]),),
        removed_data_files=frozenset({first.path, second.path}),
        data_sequence_number=last.sequence_number,
        starting_snapshot_id=last.snapshot_id,
    )
    newest = commit(table, rewrite).snapshot_id
    stale = table.refresh()
    other = RewriteFiles(removed_delete_files=frozenset({marked[0].key}), starting_snapshot_id=newest)
    commit(catalog.load_table(table.name()), other)
    assert remove_dangling_deletes(stale, "main", {}) == 1
    assert ids(table.refresh().metadata_location) == [2, 3, 4, 6]
