"""What a commit does when another one came first: the checks V1 to V9, with two handles of one table."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo, LessThan
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate

from dml.commit import (
    Action,
    AppendFiles,
    DeleteFiles,
    OverwriteByFilter,
    OverwriteFiles,
    ReplacePartitions,
    RowDelta,
    attempt,
    commit,
)
from dml.commit.attempt import CHECKS, Check
from dml.errors import CommitConflictError, ValidationFailedError
from dml.model.manifest import ContentFile
from dml.options import Command, IsolationLevel
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import data_file, deletes, equality_deletes, ids, new_table, position_deletes
from tests.other_writers import set_properties

WITH_DELETES = pytest.mark.parametrize("version", [2, 3])
SERIALIZABLE, SNAPSHOT = IsolationLevel.SERIALIZABLE, IsolationLevel.SNAPSHOT


class Scene:
    """A table with a file of ids 1 to 3, in partition a, that a statement has read; then others commit."""

    def __init__(self, catalog: Catalog, version: int, *, partitioned: bool = True) -> None:
        self.table: Table = new_table(catalog, version, partitioned=partitioned)
        self.other: Table = catalog.load_table(("db", "t"))
        self.file = data_file(self.table, [1, 2, 3], "a")
        commit(self.table, AppendFiles(data_files=(self.file,)))
        self.start = self.head()
        self.listing = plan_scan(self.table, None).listing({self.file.path}, ())

    def head(self) -> int | None:
        return self.table.refresh().metadata.current_snapshot_id

    def copy_on_write(
        self, isolation: IsolationLevel = SERIALIZABLE, read: BooleanExpression | None = None
    ) -> OverwriteFiles:
        return OverwriteFiles(
            data_files=(data_file(self.table, [2, 3], "a"),),
            removed_data_files=frozenset({self.file.path}),
            listing=self.listing,
            conflict_detection_filter=read or AlwaysTrue(),
            starting_snapshot_id=self.start,
            isolation_level=isolation,
        )

    def merge_on_read(
        self,
        command: Command,
        isolation: IsolationLevel = SNAPSHOT,
        read: BooleanExpression | None = None,
        file: ContentFile | None = None,
        position: int = 0,
    ) -> RowDelta:
        return RowDelta(
            command=command,
            delete_files=(deletes(self.table, file or self.file, [position]),),
            referenced_data_files=frozenset({(file or self.file).path}),
            conflict_detection_filter=read or AlwaysTrue(),
            starting_snapshot_id=self.start,
            isolation_level=isolation,
        )

    def others(self, action: Action) -> None:
        commit(self.other, action)

    def other_append(self, p: str = "a") -> None:
        self.others(AppendFiles(data_files=(data_file(self.table, [7], p),)))

    def other_rewrite(self) -> None:
        head = self.head()
        self.others(
            OverwriteFiles(
                data_files=(data_file(self.table, [1, 2], "a"),),
                removed_data_files=frozenset({self.file.path}),
                starting_snapshot_id=head,
            )
        )

    def other_row_delete(self, position: int = 1) -> None:
        delete = deletes(self.table, self.file, [position])
        action = RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=self.head())
        self.others(action)

    def other_file_delete(self) -> None:
        self.others(DeleteFiles(paths=frozenset({self.file.path})))


def refused(scene: Scene, action: Action, label: str, message: str) -> CommitConflictError:
    """The action fails, and the table stays as the others left it."""
    before = scene.head()
    with pytest.raises(CommitConflictError, match=message) as raised:
        commit(scene.table, action)
    assert scene.head() == before
    assert {conflict.label for conflict in raised.value.context["conflicts"]} == {label}
    return raised.value


@pytest.mark.proves("V1")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_copy_on_write_and_a_concurrent_append(catalog: Catalog, version: int) -> None:
    """V1: serializable isolation refuses it, snapshot isolation does not."""
    scene = Scene(catalog, version)
    scene.other_append()
    refused(scene, scene.copy_on_write(SERIALIZABLE), "V1", "conflicting files that can contain records matching")
    assert ids(commit(scene.table, scene.copy_on_write(SNAPSHOT)).metadata_location) == [2, 3, 7]


@pytest.mark.proves("V1")
@pytest.mark.parametrize("read", [EqualTo("p", "a"), LessThan("id", 5)])
def test_an_append_that_holds_no_row_of_the_filter_is_no_conflict(catalog: Catalog, read: BooleanExpression) -> None:
    """V1 looks at partitions and at column metrics."""
    scene = Scene(catalog, 2)
    scene.other_append("b")
    assert ids(commit(scene.table, scene.copy_on_write(SERIALIZABLE, read)).metadata_location) == [2, 3, 7]


@pytest.mark.proves("V2")
@WITH_DELETES
@pytest.mark.parametrize("isolation", [SERIALIZABLE, SNAPSHOT])
def test_copy_on_write_and_a_concurrent_row_delete(catalog: Catalog, version: int, isolation: IsolationLevel) -> None:
    """V2: the deleted row would come back."""
    scene = Scene(catalog, version)
    scene.other_row_delete()
    refused(scene, scene.copy_on_write(isolation), "V2", "found new delete for replaced data file")


@WITH_DELETES
def test_copy_on_write_and_a_row_delete_elsewhere(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    elsewhere = data_file(scene.table, [7, 8], "a")
    commit(scene.table, AppendFiles(data_files=(elsewhere,)))
    scene.start = scene.head()
    delete = deletes(scene.table, elsewhere, [0])
    scene.others(RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=scene.start))
    assert ids(commit(scene.table, scene.copy_on_write()).metadata_location) == [2, 3, 8]


@WITH_DELETES
@pytest.mark.parametrize("isolation", IsolationLevel)
def test_copy_on_write_and_an_equality_delete_of_a_row_that_it_carries(
    catalog: Catalog, version: int, isolation: IsolationLevel
) -> None:
    """The filter does not cover the row, and yet the new file would bring it back."""
    scene = Scene(catalog, version)
    scene.others(
        RowDelta(
            command=Command.UPDATE,
            delete_files=(equality_deletes(scene.table, scene.file, 3),),
            starting_snapshot_id=scene.start,
        )
    )
    refused(scene, scene.copy_on_write(isolation, EqualTo("id", 1)), "V2", "found new delete for replaced data file")


@pytest.mark.proves("V3")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_copy_on_write_and_a_file_that_is_gone(catalog: Catalog, version: int) -> None:
    """V3, also where the hint at the file's partition finds nothing."""
    scene = Scene(catalog, version)
    scene.other_rewrite()
    refused(scene, scene.copy_on_write(SNAPSHOT), "V3", "Missing required files to delete")
    scene.others(DeleteFiles(row_filter=AlwaysTrue()))
    refused(scene, scene.copy_on_write(SNAPSHOT), "V3", "Missing required files to delete")


@pytest.mark.proves("V4")
@WITH_DELETES
@pytest.mark.parametrize("command", list(Command))
def test_merge_on_read_and_a_rewrite_of_its_file(catalog: Catalog, version: int, command: Command) -> None:
    """V4 for every command and level."""
    scene = Scene(catalog, version)
    scene.other_rewrite()
    refused(scene, scene.merge_on_read(command), "V4", "missing data files")


@pytest.mark.proves("V4")
@WITH_DELETES
def test_merge_on_read_and_a_delete_of_its_whole_file(catalog: Catalog, version: int) -> None:
    """V4 lets a DELETE pass: its rows are gone anyway; its vector is left out, and its file deleted."""
    scene = Scene(catalog, version)
    scene.other_append()
    scene.other_file_delete()
    refused(scene, scene.merge_on_read(Command.UPDATE), "V4", "missing data files")
    made = commit(scene.table, scene.merge_on_read(Command.DELETE))
    assert made.operation == "delete"
    assert made.summary.get("added-dvs") is None
    assert ids(made.metadata_location) == [7]


@pytest.mark.proves("V5")
@pytest.mark.parametrize("command", [Command.UPDATE, Command.MERGE])
def test_updates_and_concurrent_row_deletes(catalog: Catalog, command: Command) -> None:
    """V5 refuses an UPDATE or MERGE anywhere in what it read, but not elsewhere; V6 does not count in version 2."""
    scene = Scene(catalog, 2)
    scene.other_row_delete()
    refused(scene, scene.merge_on_read(command), "V5", "new conflicting delete files that can apply to records")
    elsewhere = scene.merge_on_read(command, read=EqualTo("p", "b"))
    assert ids(commit(scene.table, elsewhere).metadata_location) == [3]


def test_two_row_deletes_of_one_file_both_commit_in_version_2(catalog: Catalog) -> None:
    scene = Scene(catalog, 2)
    scene.other_row_delete(1)
    made = commit(scene.table, scene.merge_on_read(Command.DELETE, SERIALIZABLE))
    assert made.summary["total-delete-files"] == "2"
    assert ids(made.metadata_location) == [3]


def test_two_deletes_that_replace_one_position_delete_file_both_commit(catalog: Catalog) -> None:
    """The old file is gone for the second one; both new ones hold what it held."""
    scene = Scene(catalog, 2)
    old = position_deletes(scene.table, scene.file, [0])
    commit(scene.table, RowDelta(command=Command.DELETE, delete_files=(old,), starting_snapshot_id=scene.start))
    start = scene.head()
    for table, positions in ((scene.other, [0, 1]), (scene.table, [0, 2])):
        action = RowDelta(
            command=Command.DELETE,
            delete_files=(position_deletes(table, scene.file, positions),),
            rewritten_delete_files=frozenset({old.key}),
            starting_snapshot_id=start,
        )
        made = commit(table, action)
    assert made.summary["total-delete-files"] == "2"
    assert ids(made.metadata_location) == []


@pytest.mark.proves("V6")
@pytest.mark.parametrize("command", list(Command))
def test_two_vectors_for_one_file_do_not_both_commit(catalog: Catalog, command: Command) -> None:
    """V6 (V5 comes first where it applies), whatever the level, the rows and the filter."""
    scene = Scene(catalog, 3)
    scene.other_row_delete(1)
    label, message = (
        ("V6", "concurrently added deletion vectors") if command is Command.DELETE else ("V5", "delete files")
    )
    refused(scene, scene.merge_on_read(command), label, message)
    if command is not Command.DELETE:
        elsewhere = scene.merge_on_read(command, read=EqualTo("p", "b"))
        refused(scene, elsewhere, "V6", "concurrently added deletion vectors")


def test_two_vectors_for_two_files_both_commit(catalog: Catalog) -> None:
    scene = Scene(catalog, 3)
    second = data_file(scene.table, [7, 8], "a")
    commit(scene.table, AppendFiles(data_files=(second,)))
    scene.start = scene.head()
    scene.other_row_delete(1)
    made = commit(scene.table, scene.merge_on_read(Command.DELETE, SERIALIZABLE, file=second))
    assert ids(made.metadata_location) == [1, 3, 8]


@pytest.mark.proves("V8")
@WITH_DELETES
def test_a_file_cannot_be_removed_and_pointed_to(catalog: Catalog, version: int) -> None:
    """V8."""
    scene = Scene(catalog, version)
    action = RowDelta(
        command=Command.MERGE,
        delete_files=(deletes(scene.table, scene.file, [0]),),
        removed_data_files=frozenset({scene.file.path}),
        referenced_data_files=frozenset({scene.file.path}),
        starting_snapshot_id=scene.start,
    )
    with pytest.raises(ValidationFailedError, match="that are referenced by new delete files"):
        commit(scene.table, action)


@pytest.mark.proves("V9")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_planned_delete_of_whole_files_meets_a_file_that_matches_partly(catalog: Catalog, version: int) -> None:
    """V9: a concurrent file that matches wholly goes as well, one that matches partly makes the statement run again."""
    scene = Scene(catalog, version)
    scene.others(AppendFiles(data_files=(data_file(scene.table, [3], "a"),)))
    made = commit(scene.table, DeleteFiles(row_filter=LessThan("id", 5)))
    assert made.summary["deleted-data-files"] == "2"
    scene.others(AppendFiles(data_files=(data_file(scene.table, [3, 30], "a"),)))
    with pytest.raises(CommitConflictError, match="Cannot delete file where some, but not all, rows match filter"):
        commit(scene.table, DeleteFiles(row_filter=LessThan("id", 5)))


@pytest.mark.proves("V1", "V5", "V7")
@pytest.mark.parametrize("isolation", [None, SNAPSHOT, SERIALIZABLE])
@pytest.mark.parametrize(
    ("happens", "label", "strictest"),
    [
        (Scene.other_append, "V1", SERIALIZABLE),
        (Scene.other_rewrite, "V7", SNAPSHOT),
        (Scene.other_row_delete, "V5", SNAPSHOT),
    ],
)
def test_overwrites_validate_as_much_as_their_level_says(
    catalog: Catalog,
    happens: Callable[[Scene], None],
    label: str,
    strictest: IsolationLevel,
    isolation: IsolationLevel | None,
) -> None:
    """V1, V7 and V5, for an overwrite by filter and for one of partitions."""
    scene = Scene(catalog, 2)
    happens(scene)
    new = (data_file(scene.table, [9], "a"),)
    by_filter = OverwriteByFilter(
        data_files=new, row_filter=EqualTo("p", "a"), starting_snapshot_id=scene.start, isolation_level=isolation
    )
    by_partition = ReplacePartitions(data_files=new, starting_snapshot_id=scene.start, isolation_level=isolation)
    applies = isolation is SERIALIZABLE or (isolation is SNAPSHOT and strictest is SNAPSHOT)
    if applies:
        # A concurrent rewrite adds a file as well, so that serializable isolation finds that first.
        found = "V1" if isolation is SERIALIZABLE and happens is Scene.other_rewrite else label
        refused(scene, by_filter, found, "matching")
        refused(scene, by_partition, found, r"matching partitions \[p=a\]:")
    else:
        assert ids(commit(scene.table, by_filter).metadata_location) == [9]


def test_other_partitions_do_not_conflict(catalog: Catalog) -> None:
    scene = Scene(catalog, 2)
    scene.other_append("b")
    new = (data_file(scene.table, [9], "a"),)
    made = commit(
        scene.table,
        ReplacePartitions(data_files=new, starting_snapshot_id=scene.start, isolation_level=SERIALIZABLE),
    )
    assert ids(made.metadata_location) == [7, 9]


@pytest.mark.proves("V1")
def test_a_merge_that_only_inserts_can_ask_that_nobody_else_inserted(catalog: Catalog) -> None:
    scene = Scene(catalog, 2)
    scene.other_append("a")
    insert = AppendFiles(
        data_files=(data_file(scene.table, [7], "a"),),
        validate_new_data_files=True,
        conflict_detection_filter=EqualTo("p", "a"),
        starting_snapshot_id=scene.start,
    )
    refused(scene, insert, "V1", "conflicting files")
    commit(scene.table, AppendFiles(data_files=insert.data_files))


def test_a_start_that_the_branch_does_not_come_from_is_refused(catalog: Catalog) -> None:
    """A statement that read another branch, or a snapshot that was rolled back."""
    scene = Scene(catalog, 2)
    scene.table.manage_snapshots().create_branch(scene.start, "b").commit()
    commit(scene.table, AppendFiles(data_files=(data_file(scene.table, [7]),)), branch="b")
    scene.start = scene.table.refresh().metadata.refs["b"].snapshot_id
    with pytest.raises(CommitConflictError, match="is not an ancestor of"):
        commit(scene.table, scene.merge_on_read(Command.DELETE))
    with pytest.raises(CommitConflictError, match="Cannot determine history between starting snapshot"):
        commit(scene.table, scene.copy_on_write())


def test_an_equality_delete_of_a_spec_of_void_fields_is_about_the_whole_table(catalog: Catalog) -> None:
    """Version 1 keeps a dropped partition field, which then has the partition value NULL."""
    scene = Scene(catalog, 1)
    with scene.other.update_spec() as update:
        update.remove_field("p")
    set_properties(scene.other, {"format-version": "2"})
    of_all = replace(
        equality_deletes(scene.table, scene.file, 3), spec_id=scene.other.refresh().spec().spec_id, partition=(None,)
    )
    head = scene.head()
    scene.others(RowDelta(command=Command.UPDATE, delete_files=(of_all,), starting_snapshot_id=head))
    refused(scene, scene.copy_on_write(), "V2", "found new delete for replaced data file")


@WITH_DELETES
def test_a_table_that_was_replaced_meanwhile_gets_none_of_the_old_rows(catalog: Catalog, version: int) -> None:
    """CREATE OR REPLACE TABLE takes the main branch away: what was read is not in its history any more."""
    scene = Scene(catalog, version)
    update = scene.merge_on_read(Command.UPDATE)
    insert = AppendFiles(
        data_files=(data_file(scene.table, [7]),), validate_new_data_files=True, starting_snapshot_id=scene.start
    )
    same_table = AssertTableUUID(uuid=scene.table.metadata.table_uuid)
    catalog.commit_table(scene.other, (same_table,), (RemoveSnapshotRefUpdate(ref_name="main"),))
    for action in (update, insert, scene.copy_on_write()):
        with pytest.raises(CommitConflictError, match=f"{scene.start} is not in the history of the branch"):
            commit(scene.table, action)
    assert scene.table.refresh().current_snapshot() is None


def test_without_a_start_every_snapshot_is_a_concurrent_one(catalog: Catalog) -> None:
    """The statement read an empty table."""
    scene = Scene(catalog, 2)
    scene.start = None
    refused(scene, scene.merge_on_read(Command.DELETE, SERIALIZABLE), "V1", "conflicting files")


def test_a_column_of_the_filter_that_was_dropped_meanwhile_is_a_conflict(catalog: Catalog) -> None:
    scene = Scene(catalog, 2, partitioned=False)
    with scene.other.update_schema() as update:
        update.rename_column("id", "key")
    with pytest.raises(CommitConflictError, match="does not fit the table's schema any more"):
        commit(scene.table, scene.copy_on_write(SERIALIZABLE, LessThan("id", 5)))


def test_checks_run_in_this_order():
    """An upgrade explains more than a missing file, and what others added is looked at before manifests are written."""
    assert [check.label for check in CHECKS] == [
        *("branch", "upgrade", "manifests", "format", "V8", "history", "filter"),
        *("V4", "V1", "V7", "V10", "rows", "V5", "V6", "format"),
        *("V9", "V2", "V3", "rewrite", "V3"),
    ]


def test_the_first_check_that_fails_is_the_one_that_is_told(monkeypatch):
    """They run one after the other, and the rest of them not at all."""

    def fails(_):
        raise CommitConflictError("the second")

    ran: list[str] = []
    checks = (Check("a", ran.append), Check("b", fails), Check("c", ran.append))
    monkeypatch.setattr(attempt, "CHECKS", checks)
    with pytest.raises(CommitConflictError, match="the second"):
        attempt.check("an attempt")
    assert ran == ["an attempt"]
