"""Snapshots recounted from their files: sound ones agree, and every damage is found and named."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import dml
from dml.commit import Action, AppendFiles, DeleteFiles, OverwriteFiles, RowDelta, commit, publish
from dml.commit.actions import RewriteFiles
from dml.model.manifest import ContentFile
from dml.options import Command, IsolationLevel
from dml.verification import Count, FileRole, Verification, verify
from tests.dml.commit.builders import (
    ARROW,
    data_file,
    deletes,
    equality_deletes,
    new_table,
    position_deletes,
    vectors,
)

OURS = {"rowdelta-version": "1"}


def counts_of_rows(*, deleted: int = 0, updated: int = 0, inserted: int = 0, carried: int = 0) -> dict[str, str]:
    """What a statement of ours says."""
    given = {"deleted": deleted, "updated": updated, "inserted": inserted, "carried": carried}
    return OURS | {f"rowdelta.rows-{name}": str(value) for name, value in given.items()}


def committed(table: Table, action: Action, summary: dict[str, str] | None = None) -> int:
    """Commit, and the snapshot's id."""
    return commit(table, action, summary=OURS if summary is None else summary).snapshot_id


def verified(table: Table, snapshot_id: int | None = None, *, every_file: bool = False) -> Verification:
    """The verification of a snapshot, of the current one by default."""
    table.refresh()
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    return verify(table, snapshot, "lake.db.t", every_file=every_file)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def roles(found: Verification) -> dict[str, tuple[int | None, int | None]]:
    """Live rows before and after, by what became of the file."""
    return {str(file.role): (file.rows_before, file.rows_after) for file in found.files}


def count_of(found: Verification, name: str) -> Count:
    return next(count for count in found.counts if count.name == name)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_kind_of_snapshot_agrees_with_its_files(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    first, second, third = (data_file(table, ids) for ids in ([1, 2, 3], [4, 5], [6]))
    added = committed(table, AppendFiles(data_files=(first, second, third)), counts_of_rows(inserted=6))
    rewritten = data_file(table, [1, 2, 33])
    overwritten = committed(
        table,
        OverwriteFiles(data_files=(rewritten,), removed_data_files=frozenset({first.path}), starting_snapshot_id=added),
        counts_of_rows(updated=1, carried=2),
    )
    removed = committed(table, DeleteFiles(paths=frozenset({third.path})))
    for snapshot_id, expected in (
        (added, {"added": (0, 1)}),
        (overwritten, {"removed": (3, 0), "added": (0, 3)}),
        (removed, {"removed": (1, 0)}),
    ):
        found = verified(table, snapshot_id)
        assert found.ok, repr(found)
        assert (found.unverified == ()) == (snapshot_id != removed), "only the last one has no counts of rows"
        assert roles(found) == expected
        assert found.raise_for_problems() is found
    assert "no counts of rows" in verified(table, removed).unverified[0]
    assert len(verified(table, every_file=True).files) == 3  # two live ones, and the removed one
    assert count_of(verified(table, removed), "total-records") == Count(name="total-records", recorded=5, counted=5)


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_are_read_and_counted(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    file = data_file(table, range(10))
    start = committed(table, AppendFiles(data_files=(file,)), counts_of_rows(inserted=10))
    old = deletes(table, file, [0, 1])
    committed(
        table,
        RowDelta(command=Command.DELETE, delete_files=(old,), starting_snapshot_id=start),
        counts_of_rows(deleted=2),
    )
    merged = deletes(table, file, [0, 1, 5, 6])
    updated = data_file(table, [5, 6])
    committed(
        table,
        RowDelta(
            command=Command.UPDATE,
            data_files=(updated,),
            delete_files=(merged,),
            rewritten_delete_files=frozenset({old.key}),
            starting_snapshot_id=table.refresh().current_snapshot().snapshot_id,
        ),
        counts_of_rows(updated=2),
    )
    found = verified(table)
    assert found.ok, repr(found)
    assert roles(found) == {"deleted from": (8, 6), "added": (0, 2)}
    assert count_of(found, "rows deleted, updated and carried") == Count(
        name="rows deleted, updated and carried", recorded=2, counted=2
    )
    assert count_of(found, "total-position-deletes").counted == 4


def test_equality_deletes_are_compared_with_the_rows(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    file = data_file(table, [1, 2, 2, 3])
    unmet = data_file(table, [4, 5])
    start = committed(table, AppendFiles(data_files=(file, unmet)))
    delete = equality_deletes(table, file, 2)
    committed(
        table,
        RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start),
        counts_of_rows(deleted=2),
    )
    found = verified(table)
    assert found.ok, repr(found)
    assert sorted((file.rows_before, file.rows_after) for file in found.files) == [(2, 2), (4, 2)]


def test_a_table_without_a_snapshot_has_nothing_to_verify(catalog: Catalog) -> None:
    found = verify(new_table(catalog, 2), None, "lake.db.t")
    assert found.ok
    assert repr(found) == "lake.db.t has no snapshot: there is nothing to verify"


def test_a_snapshot_whose_parent_has_expired_is_verified_by_itself(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    first = committed(table, AppendFiles(data_files=(data_file(table, [1]),)), counts_of_rows(inserted=1))
    committed(table, AppendFiles(data_files=(data_file(table, [2, 3]),)), counts_of_rows(inserted=2))
    table.refresh().maintenance.expire_snapshots().by_id(first).commit()
    found = verified(table)
    assert found.ok, repr(found)
    assert "The parent snapshot has expired" in found.unverified[0]
    assert roles(found) == {"added": (None, 2)}


def test_a_snapshot_of_another_engine_is_verified_as_far_as_it_speaks(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    table.append(pa.table({"id": [1, 2], "p": ["a", "a"]}, schema=ARROW.remove_metadata()))
    found = verified(table)
    assert found.ok, repr(found)
    assert count_of(found, "added-records").counted == 2
    assert "another engine" in found.unverified[0]


def test_rows_that_another_delete_took_with_their_file_are_not_missed(catalog: Catalog) -> None:
    table = new_table(catalog, 3)
    gone, kept = data_file(table, [1, 2, 3]), data_file(table, [4, 5])
    start = committed(table, AppendFiles(data_files=(gone, kept)), counts_of_rows(inserted=5))
    committed(table, DeleteFiles(paths=frozenset({gone.path})))
    for rows_deleted, ok in (({gone.path: 1, kept.path: 1}, True), ({}, True), ({gone.path: 0, kept.path: 1}, False)):
        action = RowDelta(
            command=Command.DELETE,
            delete_files=vectors(table, [(gone, [0]), (kept, [1])]),
            starting_snapshot_id=start,
            isolation_level=IsolationLevel.SNAPSHOT,
            rows_deleted=rows_deleted,
        )
        committed(table, action, counts_of_rows(deleted=2))
        found = verified(table)
        assert found.ok is ok, repr(found)
        assert any("their number is unknown" in reason for reason in found.unverified) is (rows_deleted == {})
        table.refresh().manage_snapshots().rollback_to_snapshot(found.parent_snapshot_id).commit()


def test_rows_that_were_carried_and_deleted_again_are_counted(catalog: Catalog) -> None:
    """Another commit deleted a row of the file while it was rewritten; the row is deleted in the new file as well."""
    table = new_table(catalog, 3)
    old = data_file(table, [1, 2, 3])
    start = committed(table, AppendFiles(data_files=(old,)), counts_of_rows(inserted=3))
    theirs = deletes(table, old, [0])
    action = RowDelta(command=Command.DELETE, delete_files=(theirs,), starting_snapshot_id=start)
    parent = committed(table, action, counts_of_rows(deleted=1))
    new = data_file(table, [1, 2, 33])
    rewrite = RowDelta(
        command=Command.UPDATE,
        data_files=(new,),
        delete_files=(deletes(table, new, [0]),),
        removed_data_files=frozenset({old.path}),
        starting_snapshot_id=parent,
        isolation_level=IsolationLevel.SNAPSHOT,
    )
    committed(table, rewrite, counts_of_rows(carried=2, updated=1))
    found = verified(table)
    assert found.ok, repr(found)
    assert roles(found) == {"removed": (2, 0), "added": (0, 2)}


def test_a_storage_that_fails_is_no_damage(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(catalog, 2)
    file = data_file(table, [1])
    committed(table, AppendFiles(data_files=(file,)))
    real = type(table.refresh().io).new_input

    def new_input(io: object, location: str) -> object:
        if location == file.path:
            raise OSError(5, "Input/output error")
        return real(io, location)

    monkeypatch.setattr(type(table.io), "new_input", new_input)
    with pytest.raises(dml.ExecutionError, match="Input/output error"):
        verified(table)


# ---- damages


def with_files(
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    action: Action,
    change: Callable[[ContentFile], Sequence[ContentFile]],
    summary: dict[str, str],
) -> None:
    """Commit with manifests that list other files than the summary counts: as an engine with a fault would."""
    real = publish.merged_manifests

    def merged(attempt: Any, content: Any, changes: Any, *others: Any) -> Any:
        data = tuple(other for file in changes.added_data_files for other in change(file))
        dropped = tuple(other for file in changes.added_delete_files for other in change(file))
        return real(attempt, content, replace(changes, added_data_files=data, added_delete_files=dropped), *others)

    with monkeypatch.context() as patched:
        patched.setattr(publish, "merged_manifests", merged)
        committed(table, action, summary)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_doubled_file_is_found(catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(catalog, version)
    file = data_file(table, [1, 2])
    action = AppendFiles(data_files=(file,))
    with_files(table, monkeypatch, action, lambda file: (file, file), counts_of_rows(inserted=2))
    found = verified(table)
    assert f"The file '{file.path}' is listed twice" in found.problems
    assert "total-records: the summary has 2, the files have 4" in found.problems
    assert not found.ok
    with pytest.raises(dml.CorruptFileError, match=r"listed twice.* more") as caught:
        found.raise_for_problems()
    assert caught.value.context["problems"] == found.problems


def test_a_dropped_file_is_found(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the summary counts is in no manifest."""
    table = new_table(catalog, 2)
    kept, lost = data_file(table, [1, 2]), data_file(table, [3])
    action = AppendFiles(data_files=(kept, lost))
    with_files(table, monkeypatch, action, lambda file: () if file is lost else (file,), counts_of_rows(inserted=3))
    assert set(verified(table).problems) == {
        "total-data-files: the summary has 2, the files have 1",
        "total-records: the summary has 3, the files have 2",
        "added-data-files: the summary has 2, the files have 1",
        "added-records: the summary has 3, the files have 2",
        "rows inserted, updated and carried: the summary has 3, the files have 2",
    }


def test_a_file_of_the_parent_that_got_lost_is_found(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later commit forgot a manifest."""
    table = new_table(catalog, 2, **{"commit.manifest-merge.enabled": "false"})
    committed(table, AppendFiles(data_files=(data_file(table, [1, 2]),)), counts_of_rows(inserted=2))
    real = publish.new_snapshot

    def snapshot(attempt: object, manifests: tuple, summary: object) -> object:
        return real(attempt, manifests[:1], summary)

    with monkeypatch.context() as patched:
        patched.setattr(publish, "new_snapshot", snapshot)
        committed(table, AppendFiles(data_files=(data_file(table, [3]),)), counts_of_rows(inserted=1))
    found = verified(table)
    assert "deleted-records: the summary has 0, the files have 2" in found.problems
    assert "The operation is append, but 2 rows were removed" in found.problems


def test_rows_that_a_rewrite_lost_are_found(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    file = data_file(table, [1, 2, 3])
    start = committed(table, AppendFiles(data_files=(file,)), counts_of_rows(inserted=3))
    action = OverwriteFiles(
        data_files=(data_file(table, [1]),), removed_data_files=frozenset({file.path}), starting_snapshot_id=start
    )
    committed(table, action, counts_of_rows(deleted=1, carried=2))
    assert verified(table).problems == ("rows inserted, updated and carried: the summary has 2, the files have 1",)


def test_a_compaction_that_loses_rows_is_found(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(catalog, 2)
    file, smaller = data_file(table, [1, 2, 3]), data_file(table, [1, 2])
    start = committed(table, AppendFiles(data_files=(file,)))
    committed(
        table,
        RewriteFiles(data_files=(smaller,), removed_data_files=frozenset({file.path}), starting_snapshot_id=start),
    )
    assert "The operation is replace, and 3 live rows became 2" in verified(table).problems


@pytest.mark.parametrize("wrong", [1, 4])
def test_a_deletion_vector_with_another_cardinality_is_found(catalog: Catalog, wrong: int) -> None:
    table = new_table(catalog, 3)
    file = data_file(table, range(10))
    start = committed(table, AppendFiles(data_files=(file,)), counts_of_rows(inserted=10))
    vector = replace(deletes(table, file, [1, 5]), record_count=wrong)
    committed(
        table,
        RowDelta(command=Command.DELETE, delete_files=(vector,), starting_snapshot_id=start),
        counts_of_rows(deleted=2),
    )
    found = verified(table)
    assert any("holds 2 positions" in problem and str(wrong) in problem for problem in found.problems), found
    assert roles(found) == {"deleted from": (10, None)}
    assert count_of(found, "rows deleted, updated and carried").counted is None


@pytest.mark.parametrize("version", [2, 3])
def test_positions_past_the_end_are_found(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    file = data_file(table, range(10))
    start = committed(table, AppendFiles(data_files=(file,)), counts_of_rows(inserted=10))
    delete = deletes(table, file, [3, 10])
    committed(
        table,
        RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start),
        counts_of_rows(deleted=2),
    )
    assert verified(table).problems == (
        f"The delete file '{delete.path}' deletes row 10 of '{file.path}', which has 10 rows",
    )


def test_a_position_delete_file_that_names_a_row_twice_is_found(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    file = data_file(table, range(10))
    start = committed(table, AppendFiles(data_files=(file,)), counts_of_rows(inserted=10))
    delete = position_deletes(table, file, [3, 3, 4])
    committed(
        table,
        RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start),
        counts_of_rows(deleted=3),
    )
    assert set(verified(table).problems) == {
        f"The delete file '{delete.path}' has 3 rows, and only 2 are distinct",
        "rows deleted, updated and carried: the summary has 3, the files have 2",
    }


def test_two_vectors_of_one_file_are_found(catalog: Catalog) -> None:
    table = new_table(catalog, 3)
    file = data_file(table, range(10))
    start = committed(table, AppendFiles(data_files=(file,)))
    both = (*vectors(table, [(file, [1])]), *vectors(table, [(file, [2])]))
    committed(table, RowDelta(command=Command.DELETE, delete_files=both, starting_snapshot_id=start))
    assert any("Two deletion vectors" in problem for problem in verified(table).problems)


def test_a_file_with_other_rows_than_its_manifest_says_is_found(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    file = data_file(table, [1, 2, 3])
    committed(table, AppendFiles(data_files=(replace(file, record_count=4),)), counts_of_rows(inserted=4))
    assert verified(table).problems == (
        f"The file '{file.path}' has 3 rows, but its manifest records 4",
        "rows inserted, updated and carried: the summary has 4, the files have 3",
    )


def test_a_file_that_was_changed_afterwards_is_found(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    file, other = data_file(table, [1, 2, 3]), data_file(table, [7])
    committed(table, AppendFiles(data_files=(file,)), counts_of_rows(inserted=3))
    committed(table, AppendFiles(data_files=(other,)), counts_of_rows(inserted=1))
    pq.write_table(pa.table({"id": [1, 2], "p": ["a", "b" * 1000]}, schema=ARROW), local(file.path))
    assert verified(table).ok, "the second snapshot did not touch it"
    found = verified(table, every_file=True)
    size = local(file.path).stat().st_size
    assert found.problems == (
        f"The file '{file.path}' has 2 rows, but its manifest records 3",
        f"The file '{file.path}' has {size} bytes, but its manifest records {file.file_size_in_bytes}",
    )
    assert {file.role for file in found.files} == {FileRole.ADDED, FileRole.UNTOUCHED}


@pytest.mark.parametrize("damage", ["missing", "truncated", "empty"])
@pytest.mark.parametrize("which", ["data", "deletes"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_file_that_is_missing_or_cut_short_is_found(catalog: Catalog, version: int, which: str, damage: str) -> None:
    table = new_table(catalog, version)
    file = data_file(table, range(10))
    start = committed(table, AppendFiles(data_files=(file,)), counts_of_rows(inserted=10))
    delete = deletes(table, file, [3])
    committed(
        table,
        RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start),
        counts_of_rows(deleted=1),
    )
    victim = (file if which == "data" else delete).path
    if damage == "missing":
        local(victim).unlink()
    else:
        content = local(victim).read_bytes()
        local(victim).write_bytes(content[: len(content) // 2] if damage == "truncated" else b"")
    found = verified(table)
    assert any(victim in problem for problem in found.problems), found
    assert not any("the summary has" in problem for problem in found.problems), "what cannot be read is not counted"


def test_a_missing_manifest_is_an_error_that_names_it(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    committed(table, AppendFiles(data_files=(data_file(table, [1]),)))
    manifest = table.refresh().current_snapshot().manifests(table.io)[0].manifest_path
    local(manifest).unlink()
    with pytest.raises(dml.CorruptFileError, match=Path(manifest).name):
        verified(table)


def test_a_summary_that_is_wrong_is_found(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    committed(table, AppendFiles(data_files=(data_file(table, [1, 2]),)), counts_of_rows(inserted=2, carried=1))
    assert verified(table).problems == (
        "rows deleted, updated and carried: the summary has 1, the files have 0",
        "rows inserted, updated and carried: the summary has 3, the files have 2",
    )


def test_a_verification_is_a_value_that_can_be_printed_and_kept(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    file = replace(data_file(table, [1, 2]), record_count=5)
    snapshot_id = committed(table, AppendFiles(data_files=(file,)), counts_of_rows(inserted=2))
    found = verified(table)
    assert found == verified(table)
    text = repr(found)
    assert text.startswith(f"Snapshot {snapshot_id} of lake.db.t (append): 1 problem\n")
    assert "added: " in text
    assert "<pre>" in found._repr_html_()
    kept = json.loads(json.dumps(found.as_dict()))
    assert kept["ok"] is False
    assert kept["files"][0]["role"] == "added"
    assert kept["problems"] == list(found.problems)
    many = replace(found, problems=("p",) * 21, files=found.files * 22)
    assert repr(many).count("problem: p") == 20
    assert "and 1 more problem: see .problems" in repr(many)
    assert "and 2 more data files: see .files" in repr(many)
