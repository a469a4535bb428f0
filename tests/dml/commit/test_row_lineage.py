"""Row ids of format version 3: assigned by manifest lists, kept by rewritten manifests (rules L5 to L10)."""

from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dml.commit import AppendFiles, DeleteFiles, OverwriteFiles, RowDelta, commit
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import EntryStatus, ManifestContent, ManifestEntry
from dml.options import Command
from tests.dml.commit.builders import data_file, ids, new_table, position_deletes, vectors
from tests.other_writers import set_properties


def head(table: Table, branch: str = "main") -> Snapshot:
    metadata = table.refresh().metadata
    snapshot = metadata.snapshot_by_id(metadata.refs[branch].snapshot_id)
    assert snapshot is not None
    return snapshot


def entries(table: Table, branch: str = "main") -> dict[str, ManifestEntry]:
    """Entries of the branch's data files, by path."""
    return {
        entry.data_file.path: entry
        for manifest in manifests_of(table.io, head(table, branch))
        if manifest.content is ManifestContent.DATA
        for entry in entries_of(manifest, table.io)
    }


@pytest.mark.proves("L7", "L8", "R6")
def test_each_snapshot_takes_the_next_row_ids(catalog: Catalog) -> None:
    table = new_table(catalog, 3)
    assert table.metadata.next_row_id == 0
    first, second, third = data_file(table, [1, 2, 3]), data_file(table, [4]), data_file(table, [5, 6])
    commit(table, AppendFiles(data_files=(first, second)))
    assert (head(table).first_row_id, head(table).added_rows, table.metadata.next_row_id) == (0, 4, 4)
    commit(table, AppendFiles(data_files=(third,)))
    assert (head(table).first_row_id, head(table).added_rows, table.metadata.next_row_id) == (4, 2, 6)
    found = entries(table)
    assert [found[file.path].first_row_id for file in (first, second, third)] == [0, 3, 4]


@pytest.mark.proves("L5", "L8")
def test_a_snapshot_that_assigns_nothing_says_where_it_would_have(catalog: Catalog) -> None:
    table = new_table(catalog, 3)
    first = data_file(table, [1, 2, 3])
    commit(table, AppendFiles(data_files=(first,)))
    start = head(table).snapshot_id
    delete = vectors(table, [(first, [0])])
    commit(table, RowDelta(command=Command.DELETE, delete_files=delete, starting_snapshot_id=start))
    assert (head(table).first_row_id, head(table).added_rows, table.metadata.next_row_id) == (3, 0, 3)
    deletes = [m for m in manifests_of(table.io, head(table)) if m.content is ManifestContent.DELETES]
    assert [manifest.first_row_id for manifest in deletes] == [None]
    assert all(entry.first_row_id is None for entry in entries_of(deletes[0], table.io))


@pytest.mark.proves("L5", "L7")
def test_a_rewritten_manifest_keeps_the_row_ids_of_its_files(catalog: Catalog) -> None:
    """The rewritten manifest takes a span of its own, which its files do not use; new files come after it."""
    table = new_table(catalog, 3)
    first, second = data_file(table, [1, 2, 3]), data_file(table, [4])
    commit(table, AppendFiles(data_files=(first, second)))
    new = data_file(table, [1, 2])
    action = OverwriteFiles(
        data_files=(new,), removed_data_files=frozenset({first.path}), starting_snapshot_id=head(table).snapshot_id
    )
    commit(table, action)
    found = entries(table)
    assert (found[first.path].status, found[first.path].first_row_id) == (EntryStatus.DELETED, 0)
    assert (found[second.path].status, found[second.path].first_row_id) == (EntryStatus.EXISTING, 3)
    assert (found[new.path].status, found[new.path].first_row_id) == (EntryStatus.ADDED, 4)
    assert (head(table).first_row_id, head(table).added_rows, table.metadata.next_row_id) == (4, 3, 7)


@pytest.mark.proves("L5", "S1")
def test_merged_manifests_keep_row_ids_and_sequence_numbers(catalog: Catalog) -> None:
    table = new_table(catalog, 3, **{"commit.manifest.min-count-to-merge": "3"})
    files = [data_file(table, [number, number]) for number in range(3)]
    for file in files:
        commit(table, AppendFiles(data_files=(file,)))
    assert len(manifests_of(table.io, head(table))) == 1
    found = entries(table)
    assert [found[file.path].first_row_id for file in files[:2]] == [0, 2]
    assert [found[file.path].data_sequence_number for file in files] == [1, 2, 3]
    existing, added = EntryStatus.EXISTING, EntryStatus.ADDED
    assert [found[file.path].status for file in files] == [existing, existing, added]
    # All ids are different, the new file's come from the merged manifest's own span.
    firsts = [entry.first_row_id for entry in found.values() if entry.first_row_id is not None]
    assert len({first + row for first in firsts for row in range(2)}) == 6
    newest = head(table)
    assert newest.first_row_id is not None
    assert newest.added_rows is not None
    assert table.metadata.next_row_id == newest.first_row_id + newest.added_rows


@pytest.mark.proves("L7", "L10")
def test_the_first_commit_after_an_upgrade_assigns_ids_to_all_files(catalog: Catalog) -> None:
    """Also a commit that only deletes; the old manifests stay as they are."""
    table = new_table(catalog, 2)
    first, second = data_file(table, [1, 2, 3]), data_file(table, [4, 5])
    for file in (first, second):
        commit(table, AppendFiles(data_files=(file,)))
    old = position_deletes(table, first, [1])
    commit(
        table,
        RowDelta(command=Command.DELETE, delete_files=(old,), starting_snapshot_id=head(table).snapshot_id),
    )
    before = {manifest.manifest_path for manifest in manifests_of(table.io, head(table))}
    table = set_properties(table, {"format-version": "3"})
    assert table.metadata.next_row_id == 0
    assert all(entry.first_row_id is None for entry in entries(table).values())
    action = RowDelta(
        command=Command.DELETE,
        delete_files=vectors(table, [(first, [0, 1])]),
        rewritten_delete_files=frozenset({old.key}),
        starting_snapshot_id=head(table).snapshot_id,
    )
    made = commit(table, action)
    assert (head(table).first_row_id, head(table).added_rows, table.metadata.next_row_id) == (0, 5, 5)
    found = entries(table)
    assert sorted(found[file.path].first_row_id or 0 for file in (first, second)) == [0, 2]
    data = {m.manifest_path for m in manifests_of(table.io, head(table)) if m.content is ManifestContent.DATA}
    assert data <= before
    assert ids(made.metadata_location) == [3, 4, 5]


@pytest.mark.proves("L8")
def test_branches_give_different_ids_to_the_files_that_they_share_from_before_the_upgrade(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    shared = data_file(table, [1, 2])
    commit(table, AppendFiles(data_files=(shared,)))
    commit(table, AppendFiles(), branch="b", create_branch=True)
    table = set_properties(table, {"format-version": "3"})
    commit(table, AppendFiles())
    commit(table, AppendFiles(), branch="b")
    assert entries(table)[shared.path].first_row_id == 0
    assert entries(table, "b")[shared.path].first_row_id == 2
    assert table.refresh().metadata.next_row_id == 4


@pytest.mark.proves("L8", "R6")
def test_staged_snapshots_take_row_ids(catalog: Catalog) -> None:
    table = new_table(catalog, 3)
    commit(table, AppendFiles(data_files=(data_file(table, [1, 2]),)), wap_id="w")
    later = data_file(table, [3])
    commit(table, AppendFiles(data_files=(later,)))
    assert entries(table)[later.path].first_row_id == 2


def test_deleted_entries_do_not_take_row_ids(catalog: Catalog) -> None:
    table = new_table(catalog, 3)
    first, second = data_file(table, [1, 2, 3]), data_file(table, [4])
    commit(table, AppendFiles(data_files=(first, second)))
    commit(table, DeleteFiles(paths=frozenset({first.path})))
    assert (head(table).first_row_id, head(table).added_rows, table.metadata.next_row_id) == (4, 1, 5)
    assert entries(table)[second.path].first_row_id == 3


@pytest.mark.proves("L5", "L6")
def test_reading_fills_in_row_ids_of_live_entries_only(catalog: Catalog) -> None:
    """L6: an entry without an id counts on from the manifest's; explicit ids and deleted entries take none."""
    table = new_table(catalog, 3)
    first, second = data_file(table, [1, 2, 3]), data_file(table, [4])
    commit(table, AppendFiles(data_files=(first, second)))
    (manifest,) = manifests_of(table.io, head(table))
    counted = list(entries_of(replace(manifest, first_row_id=100), table.io))
    assert [entry.first_row_id for entry in counted] == [100, 103]
    uncounted = list(entries_of(replace(manifest, first_row_id=None), table.io))
    assert [entry.first_row_id for entry in uncounted] == [None, None]
