"""Compaction: the same rows in other files, or a conflict, whatever others do meanwhile."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import TruncateTransform

from dml.commit import (
    AppendFiles,
    CommittedSnapshot,
    DeleteFiles,
    OverwriteByFilter,
    ReplacePartitions,
    RewriteFiles,
    RowDelta,
    commit,
)
from dml.errors import ValidationFailedError
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, FileContent
from dml.options import Command, IsolationLevel
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import (
    ARROW,
    data_file,
    deletes,
    equality_deletes,
    ids,
    ids_by_duckdb,
    position_deletes,
    vectors,
)
from tests.dml.commit.test_conflicts import Scene, refused
from tests.other_writers import set_properties

ALL = pytest.mark.parametrize("version", [1, 2, 3])
WITH_DELETES = pytest.mark.parametrize("version", [2, 3])


class Compaction(Scene):
    """Two files, ids 1 to 3 and 4 to 6, of partition a, which a compaction has read."""

    def __init__(self, catalog: Catalog, version: int) -> None:
        super().__init__(catalog, version)
        self.second = data_file(self.table, [4, 5, 6], "a")
        commit(self.table, AppendFiles(data_files=(self.second,)))
        self.start = self.head()

    @property
    def number(self) -> int:
        """The sequence number of the snapshot that was read."""
        snapshot = self.table.refresh().metadata.snapshot_by_id(self.start)
        assert snapshot is not None
        return snapshot.sequence_number or 0

    def compacted(self, *, keep: bool = False, rows: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> RewriteFiles:
        paths = frozenset({self.file.path, self.second.path})
        return RewriteFiles(
            data_files=(data_file(self.table, rows, "a"),),
            removed_data_files=paths,
            listing=plan_scan(self.table, self.start).listing(paths, ()),
            data_sequence_number=self.number if keep else None,
            starting_snapshot_id=self.start,
        )

    def other_equality_delete(self, row: int) -> None:
        delete = equality_deletes(self.table, self.file, row)
        self.others(RowDelta(command=Command.UPDATE, delete_files=(delete,), starting_snapshot_id=self.head()))


def live_numbers(scene: Scene) -> dict[str, tuple[int | None, int | None]]:
    """Data and file sequence numbers of the live data files."""
    snapshot = scene.table.refresh().current_snapshot()
    entries = (
        entry
        for manifest in manifests_of(scene.table.io, snapshot)
        for entry in entries_of(manifest, scene.table.io, live_only=True)
    )
    return {
        entry.data_file.path: (entry.data_sequence_number, entry.file_sequence_number)
        for entry in entries
        if entry.data_file.content is FileContent.DATA
    }


def assert_replace(made: CommittedSnapshot) -> None:
    assert made.operation == "replace"
    assert (made.summary["added-data-files"], made.summary["deleted-data-files"]) == ("1", "2")


@ALL
def test_a_compaction_keeps_the_rows(catalog: Catalog, version: int) -> None:
    scene = Compaction(catalog, version)
    made = commit(scene.table, scene.compacted())
    assert_replace(made)
    assert made.summary["total-records"] == "6"
    assert ids(made.metadata_location) == [1, 2, 3, 4, 5, 6]


@ALL
def test_a_compaction_stands_beside_new_rows(catalog: Catalog, version: int) -> None:
    scene = Compaction(catalog, version)
    scene.other_append("a")
    scene.other_append("b")
    assert ids(commit(scene.table, scene.compacted()).metadata_location) == [1, 2, 3, 4, 5, 6, 7, 7]


@pytest.mark.proves("V2")
@WITH_DELETES
@pytest.mark.parametrize("keep", [False, True])
def test_a_compaction_does_not_bring_deleted_rows_back(catalog: Catalog, version: int, *, keep: bool) -> None:
    """V2, whether the new file keeps the sequence number or not: positions are those of the old file."""
    scene = Compaction(catalog, version)
    action = scene.compacted(keep=keep)
    scene.other_row_delete(1)
    refused(scene, action, "V2", "found new delete for replaced data file")
    assert ids(scene.table.refresh().metadata_location) == [1, 3, 4, 5, 6]


@WITH_DELETES
def test_rows_deleted_before_stay_deleted(catalog: Catalog, version: int) -> None:
    """The vector goes with its data file; a position delete file goes if it is named."""
    scene = Compaction(catalog, version)
    scene.other_row_delete(1)
    scene.start = scene.head()
    (task,) = [task for task in plan_scan(scene.table, scene.start).tasks if task.path == scene.file.path]
    old = (task.deletion_vector,) if task.deletion_vector else task.position_deletes
    action = replace(
        scene.compacted(rows=(1, 3, 4, 5, 6)),
        removed_delete_files=frozenset(reference.key for reference in old) if version == 2 else frozenset(),
    )
    made = commit(scene.table, action)
    assert made.summary["total-delete-files"] == "0"
    assert ids(made.metadata_location) == [1, 3, 4, 5, 6]


@WITH_DELETES
def test_an_equality_delete_that_came_meanwhile_applies_to_files_that_keep_their_number(
    catalog: Catalog, version: int
) -> None:
    scene = Compaction(catalog, version)
    keeping, fresh = scene.compacted(keep=True), scene.compacted()
    scene.other_equality_delete(5)
    refused(scene, fresh, "V2", "found new delete for replaced data file")
    number = scene.number
    made = commit(scene.table, keeping)
    assert ids_by_duckdb(made.metadata_location) == [1, 2, 3, 4, 6]
    assert live_numbers(scene) == {keeping.data_files[0].path: (number, made.sequence_number)}
    # And it stays so when later commits rewrite manifests and look for deletes that apply to nothing.
    new = deletes(scene.table, keeping.data_files[0], [0])
    scene.others(RowDelta(command=Command.DELETE, delete_files=(new,), starting_snapshot_id=scene.head()))
    scene.other_append("b")
    made = commit(scene.table, DeleteFiles(row_filter=EqualTo("p", "b")))
    assert ids_by_duckdb(made.metadata_location) == [2, 3, 4, 6]


@pytest.mark.proves("V2")
@WITH_DELETES
@pytest.mark.parametrize("of", ["the old spec", "the new spec", "no partition"])
def test_an_equality_delete_that_came_meanwhile_and_a_compaction_to_another_spec(
    catalog: Catalog, version: int, of: str
) -> None:
    """One of a partition does not follow rows to another partition, and may meet rows that are new there."""
    scene = Compaction(catalog, version)
    delete = equality_deletes(scene.table, scene.file, 5)
    with scene.table.update_spec() as update:
        update.remove_field("p")
    with scene.table.refresh().update_spec() as update:
        update.add_field("id", TruncateTransform(100), "id_trunc")
    last = scene.table.refresh().spec().spec_id
    partition = (0,)
    action = scene.compacted(keep=True)
    action = replace(action, data_files=(replace(action.data_files[0], spec_id=last, partition=partition),))
    if of == "the new spec":
        delete = replace(delete, spec_id=last, partition=partition)
    elif of == "no partition":
        (empty,) = [spec_id for spec_id, spec in scene.table.specs().items() if not spec.fields]
        delete = replace(delete, spec_id=empty, partition=())
    scene.others(RowDelta(command=Command.UPDATE, delete_files=(delete,), starting_snapshot_id=scene.head()))
    if of != "no partition":
        refused(scene, action, "V2", "found new delete for replaced data file")
    else:
        assert ids_by_duckdb(commit(scene.table, action).metadata_location) == [1, 2, 3, 4, 6]


@pytest.mark.proves("P10")
def test_delete_files_older_than_all_data_files_are_removed(catalog: Catalog) -> None:
    """With the counts of Iceberg 1.10 for a whole table that is compacted; an append removes no files."""
    scene = Compaction(catalog, 2)
    for file, position in ((scene.file, 0), (scene.second, 2)):
        delete = deletes(scene.table, file, [position])
        scene.others(RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=scene.head()))
    scene.start = scene.head()
    made = commit(scene.table, scene.compacted(keep=True, rows=(2, 3, 4, 5)))
    counts = {key: made.summary.get(key) for key in ("removed-position-delete-files", "removed-position-deletes")}
    assert counts == {"removed-position-delete-files": "1", "removed-position-deletes": "1"}
    assert made.summary["total-delete-files"] == "1"  # has the sequence number of the new data file
    scene.table.refresh()
    appended = commit(scene.table, AppendFiles(data_files=(data_file(scene.table, [7], "a"),)))
    assert appended.summary["total-delete-files"] == "1"
    again = scene.compacted(rows=(2, 3, 4, 5))
    paths = frozenset(
        file.path for file in plan_scan(scene.table.refresh(), scene.head()).tasks if file.record_count > 1
    )
    again = replace(again, removed_data_files=paths, listing=None, starting_snapshot_id=scene.head())
    made = commit(scene.table, again)
    assert made.summary["total-delete-files"] == "0"
    assert ids(made.metadata_location) == [2, 3, 4, 5, 7]


@pytest.mark.proves("V2")
@WITH_DELETES
def test_an_equality_delete_that_has_become_positions_meanwhile(catalog: Catalog, version: int) -> None:
    """V2: it would apply to the new file, but is not there any more."""
    scene = Compaction(catalog, version)
    action, delete = scene.compacted(keep=True), equality_deletes(scene.table, scene.file, 5)
    scene.others(RowDelta(command=Command.UPDATE, delete_files=(delete,), starting_snapshot_id=scene.head()))
    positions = deletes(scene.table, scene.second, [1])
    scene.others(
        RewriteFiles(
            delete_files=(positions,), removed_delete_files=frozenset({delete.key}), starting_snapshot_id=scene.head()
        )
    )
    refused(scene, action, "V2", "found new delete for replaced data file")
    assert ids(scene.table.refresh().metadata_location) == [1, 2, 3, 4, 6]


@WITH_DELETES
def test_a_number_that_would_undo_or_repeat_an_equality_delete_is_refused(catalog: Catalog, version: int) -> None:
    scene = Compaction(catalog, version)
    action = scene.compacted(keep=True)
    with pytest.raises(ValidationFailedError, match="does not fit"):
        commit(scene.table, replace(action, data_sequence_number=scene.number - 1))
    scene.other_equality_delete(5)
    with pytest.raises(ValidationFailedError, match="does not fit"):
        commit(scene.table, replace(action, data_sequence_number=scene.number + 1))
    assert ids_by_duckdb(scene.table.refresh().metadata_location) == [1, 2, 3, 4, 6]


@pytest.mark.proves("V3")
@ALL
@pytest.mark.parametrize("happens", [Scene.other_rewrite, Scene.other_file_delete])
def test_a_file_that_is_gone_cannot_be_compacted(
    catalog: Catalog, version: int, happens: Callable[[Scene], None]
) -> None:
    scene = Compaction(catalog, version)
    action = scene.compacted()
    happens(scene)
    refused(scene, action, "V3", "Missing required files to delete")


@ALL
def test_two_compactions_of_one_file_do_not_both_commit(catalog: Catalog, version: int) -> None:
    scene = Compaction(catalog, version)
    first, second = scene.compacted(), scene.compacted()
    commit(scene.other, first)
    refused(scene, second, "V3", "Missing required files to delete")
    assert ids(scene.table.refresh().metadata_location) == [1, 2, 3, 4, 5, 6]


@WITH_DELETES
def test_a_delete_file_that_is_gone_cannot_be_replaced(catalog: Catalog, version: int) -> None:
    scene = Compaction(catalog, version)
    scene.other_row_delete(1)
    start = scene.head()
    (task,) = [task for task in plan_scan(scene.table, start).tasks if task.path == scene.file.path]
    old = (task.deletion_vector,) if task.deletion_vector else task.position_deletes
    action = RewriteFiles(
        delete_files=(deletes(scene.table, scene.file, [1]),),
        removed_delete_files=frozenset(reference.key for reference in old),
        starting_snapshot_id=start,
    )
    other = replace(action, delete_files=(deletes(scene.table, scene.file, [1]),))
    assert ids(commit(scene.other, other).metadata_location) == [1, 3, 4, 5, 6]
    refused(scene, action, "V6" if version == 3 else "V3", "Found concurrently|Missing required")
    assert ids(scene.table.refresh().metadata_location) == [1, 3, 4, 5, 6]


def test_position_delete_files_become_a_vector_once(catalog: Catalog) -> None:
    """V6: after an upgrade another commit may have made the vector of the data file."""
    scene = Compaction(catalog, 2)
    old = position_deletes(scene.table, scene.file, [0, 1])
    scene.others(RowDelta(command=Command.DELETE, delete_files=(old,), starting_snapshot_id=scene.start))
    set_properties(scene.other, {"format-version": "3"})
    scene.table.refresh()
    scene.other.refresh()
    action = RewriteFiles(
        delete_files=vectors(scene.table, [(scene.file, [0, 1])]),
        removed_delete_files=frozenset({old.key}),
        starting_snapshot_id=scene.head(),
    )
    scene.others(
        RowDelta(
            command=Command.DELETE,
            delete_files=vectors(scene.table, [(scene.file, [0, 1, 2])]),
            starting_snapshot_id=scene.head(),
        )
    )
    refused(scene, action, "V6", "concurrently added deletion vectors")


@ALL
def test_other_commits_take_a_compaction_for_what_it_is(catalog: Catalog, version: int) -> None:
    """No new rows (V1), but files that are not there any more (V3)."""
    scene = Compaction(catalog, version)
    change = scene.copy_on_write(IsolationLevel.SNAPSHOT)
    insert = AppendFiles(
        data_files=(data_file(scene.table, [9], "a"),), validate_new_data_files=True, starting_snapshot_id=scene.start
    )
    scene.others(scene.compacted())
    assert ids(commit(scene.table, insert).metadata_location) == [1, 2, 3, 4, 5, 6, 9]
    refused(scene, change, "V3", "Missing required files to delete")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (RewriteFiles(), "has to remove files"),
        (RewriteFiles(removed_delete_files=frozenset({("d", None, None)})), "cannot add data files"),
        (RewriteFiles(removed_data_files=frozenset({"f"})), "cannot add delete files"),
    ],
)
def test_files_are_added_only_in_the_place_of_their_kind(catalog: Catalog, action: RewriteFiles, message: str) -> None:
    scene = Scene(catalog, 2)
    if "data" in message:
        action = replace(action, data_files=(scene.file,))
    if "delete" in message:
        action = replace(action, delete_files=(deletes(scene.table, scene.file, [0]),))
    with pytest.raises(ValidationFailedError, match=message):
        commit(scene.table, action)


def test_a_rewrite_holds_no_more_rows_than_there_were(catalog: Catalog) -> None:
    scene = Compaction(catalog, 2)
    with pytest.raises(ValidationFailedError, match="replaces 6 of them by 7"):
        commit(scene.table, scene.compacted(rows=(1, 2, 3, 4, 5, 6, 7)))


def test_equality_deletes_are_not_rewritten(catalog: Catalog) -> None:
    scene = Compaction(catalog, 2)
    delete = equality_deletes(scene.table, scene.file, 1)
    action = RewriteFiles(delete_files=(delete,), removed_delete_files=frozenset({delete.key}))
    with pytest.raises(ValidationFailedError, match="cannot add equality deletes"):
        commit(scene.table, action)


def with_lineage(scene: Scene, rows: list[tuple[int, int, int]]) -> ContentFile:
    """A data file with ids, row ids and sequence numbers."""
    columns = {
        "id": [row[0] for row in rows],
        "p": ["a"] * len(rows),
        "_row_id": [row[1] for row in rows],
        "_last_updated_sequence_number": [row[2] for row in rows],
    }
    schema = pa.schema(
        [
            *ARROW,
            pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"}),
            pa.field("_last_updated_sequence_number", pa.int64(), metadata={"PARQUET:field_id": "2147483539"}),
        ]
    )
    file = data_file(scene.table, [row[0] for row in rows], "a")
    local = Path(file.path.removeprefix("file://"))
    pq.write_table(pa.table(columns, schema=schema), local)
    return replace(file, file_size_in_bytes=local.stat().st_size)


@pytest.mark.proves("L3", "L12")
def test_rows_keep_their_lineage_in_version_3(catalog: Catalog) -> None:
    """The new file has row ids of its own to give, and its rows have theirs."""
    scene = Compaction(catalog, 3)
    assert scene.table.refresh().metadata.next_row_id == 6
    action = replace(
        scene.compacted(), data_files=(with_lineage(scene, [(n, n - 1, 1 + n // 4) for n in range(1, 7)]),)
    )
    made = commit(scene.table, action)
    assert scene.table.refresh().metadata.next_row_id == 12
    (task,) = plan_scan(scene.table, made.snapshot_id).tasks
    assert task.first_row_id == 6, "for rows without an id in the file: there is none"
    assert ids(made.metadata_location) == [1, 2, 3, 4, 5, 6]
    written = pq.read_table(Path(task.path.removeprefix("file://")))
    assert written["_row_id"].to_pylist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("isolation", [IsolationLevel.SNAPSHOT, IsolationLevel.SERIALIZABLE])
def test_overwrites_with_a_level_refuse_a_compaction_of_what_they_replace(
    catalog: Catalog, isolation: IsolationLevel
) -> None:
    """V7."""
    scene = Compaction(catalog, 2)
    new = (data_file(scene.table, [9], "a"),)
    commit(scene.other, scene.compacted())
    for action in (
        OverwriteByFilter(
            data_files=new, row_filter=EqualTo("p", "a"), starting_snapshot_id=scene.start, isolation_level=isolation
        ),
        ReplacePartitions(data_files=new, starting_snapshot_id=scene.start, isolation_level=isolation),
    ):
        refused(scene, action, "V7", "Found conflicting deleted files")
