"""What validation looks at: a commit's own files whatever its filter says, names as they were, history once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo, LessThan
from pyiceberg.io import FileIO, InputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform

from dml.commit import (
    Action,
    AppendFiles,
    DeleteFiles,
    ReplacePartitions,
    RewriteFiles,
    RowDelta,
    commit,
)
from dml.errors import CommitConflictError
from dml.manifests.read import manifests_of
from dml.model.manifest import ContentFile, ManifestContent
from dml.options import Command, IsolationLevel
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import data_file, equality_deletes, ids
from tests.dml.commit.test_conflicts import Scene, refused
from tests.other_writers import set_properties

WITH_DELETES = pytest.mark.parametrize("version", [2, 3])
SERIALIZABLE, SNAPSHOT = IsolationLevel.SERIALIZABLE, IsolationLevel.SNAPSHOT


@dataclass
class Probe:
    """Finds a row of the statement where it is said to be."""

    paths: set[str] = field(default_factory=set)
    asked: list[list[str]] = field(default_factory=list)

    def __call__(self, metadata: TableMetadata, snapshot_id: int, files: Sequence[ContentFile]) -> bool:
        self.asked.append([file.path for file in files])
        return any(file.path in self.paths for file in files)


# ---- the commit's own files


@WITH_DELETES
def test_a_filter_of_other_partitions_does_not_hide_that_the_file_is_gone(catalog: Catalog, version: int) -> None:
    """V4 is about the file, wherever the filter says that rows are."""
    scene = Scene(catalog, version)
    scene.other_rewrite()
    refused(scene, scene.merge_on_read(Command.UPDATE, read=EqualTo("p", "b")), "V4", "missing data files")


@WITH_DELETES
def test_nor_that_rows_of_the_replaced_file_were_deleted(catalog: Catalog, version: int) -> None:
    """V2 likewise."""
    scene = Scene(catalog, version)
    scene.other_row_delete(1)
    refused(scene, scene.copy_on_write(SNAPSHOT, EqualTo("p", "b")), "V2", "found new delete for replaced data file")


@WITH_DELETES
def test_a_row_delta_that_removes_a_file_minds_deletes_in_it(catalog: Catalog, version: int) -> None:
    """V2 for the data files that a row delta removes."""
    scene = Scene(catalog, version)
    scene.other_row_delete(1)
    action = RowDelta(
        command=Command.DELETE,
        data_files=(data_file(scene.table, [2, 3], "a"),),
        removed_data_files=frozenset({scene.file.path}),
        starting_snapshot_id=scene.start,
        isolation_level=SNAPSHOT,
    )
    refused(scene, action, "V2", "found new delete for replaced data file")


# ---- rows of others


def compaction(scene: Scene, file: ContentFile) -> RewriteFiles:
    return RewriteFiles(
        data_files=(data_file(scene.table, [7], "a"),),
        removed_data_files=frozenset({file.path}),
        starting_snapshot_id=scene.head(),
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_new_row_does_not_hide_behind_a_compaction(catalog: Catalog, version: int) -> None:
    """The file that brought it is not there any more to be asked, and the row is."""
    scene = Scene(catalog, version)
    insert = AppendFiles(
        data_files=(data_file(scene.table, [7], "a"),),
        validate_new_data_files=True,
        starting_snapshot_id=scene.start,
        row_probe=Probe(),
    )
    new = data_file(scene.table, [7], "a")
    scene.others(AppendFiles(data_files=(new,)))
    scene.others(compaction(scene, new))
    refused(scene, insert, "V1", "conflicting files that can contain records")


def test_what_was_asked_before_a_compaction_is_known(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction between two attempts brings no row."""
    scene = Scene(catalog, 2)
    new = data_file(scene.table, [8], "a")
    scene.others(AppendFiles(data_files=(new,)))
    probe = Probe()
    insert = AppendFiles(
        data_files=(data_file(scene.table, [7], "a"),),
        validate_new_data_files=True,
        starting_snapshot_id=scene.start,
        row_probe=probe,
    )
    original = catalog.commit_table

    def beaten(*args: Any) -> Any:
        monkeypatch.undo()
        scene.others(compaction(scene, new))
        raise CommitFailedException("somebody was faster")

    monkeypatch.setattr(catalog, "commit_table", beaten)
    assert commit(scene.table, insert).attempts == 2
    assert catalog.commit_table == original
    assert probe.asked == [[new.path]]


@pytest.mark.proves("V10")
def test_rows_that_a_statement_rests_on_may_not_go(catalog: Catalog) -> None:
    """V10 and V5; a compaction takes no row away."""
    scene = Scene(catalog, 2)
    elsewhere = data_file(scene.table, [7], "a")
    commit(scene.table, AppendFiles(data_files=(elsewhere,)))
    scene.start = scene.head()
    actions: list[Action] = [
        replace(scene.copy_on_write(), depends_on_rows=True),
        replace(scene.merge_on_read(Command.DELETE, SERIALIZABLE), depends_on_rows=True),
    ]
    scene.others(compaction(scene, elsewhere))
    scene.others(AppendFiles(data_files=(data_file(scene.table, [8], "b"),)))
    of_partition = [replace(action, conflict_detection_filter=EqualTo("p", "a")) for action in actions]
    assert ids(commit(scene.table, of_partition[1]).metadata_location) == [2, 3, 7, 8]
    scene = Scene(catalog_of(catalog), 2)
    scene.others(AppendFiles(data_files=(elsewhere := data_file(scene.table, [7], "a"),)))
    scene.start = scene.head()
    again = scene.copy_on_write(), scene.merge_on_read(Command.DELETE, SERIALIZABLE)
    scene.others(DeleteFiles(paths=frozenset({elsewhere.path})))
    for action in again:
        refused(scene, replace(action, depends_on_rows=True), "V10", "Found conflicting removed files")


def catalog_of(catalog: Catalog) -> Catalog:
    """The same catalog without its table."""
    catalog.drop_table(("db", "t"))
    return catalog


@pytest.mark.proves("V5")
@WITH_DELETES
def test_rows_that_a_statement_rests_on_may_not_be_deleted(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    elsewhere = data_file(scene.table, [7, 8], "a")
    commit(scene.table, AppendFiles(data_files=(elsewhere,)))
    scene.start = scene.head()
    plain = scene.merge_on_read(Command.DELETE, SERIALIZABLE), scene.copy_on_write()
    delete = scene.merge_on_read(Command.DELETE, SERIALIZABLE, file=elsewhere)
    scene.others(delete)
    for action in plain:
        refused(scene, replace(action, depends_on_rows=True), "V5", "new conflicting delete files")
        snapshot = replace(action, depends_on_rows=True, isolation_level=SNAPSHOT)
        if action is plain[1]:
            assert ids(commit(scene.table, snapshot).metadata_location) == [2, 3, 8]


# ---- names


def test_names_that_were_exchanged_are_not_mistaken(catalog: Catalog) -> None:
    """Columns are known by id: a filter must not look at the column that has the name now."""
    scene = Scene(catalog, 2, partitioned=False)
    table = catalog.load_table(("db", "t"))
    planned = catalog.load_table(("db", "t"))
    for old, new in (("id", "x"), ("p", "id")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    for action in (
        DeleteFiles(row_filter=EqualTo("p", "a")),
        replace(scene.copy_on_write(), conflict_detection_filter=LessThan("id", 5)),
    ):
        before = scene.head()
        with pytest.raises(CommitConflictError, match="was dropped or renamed"):
            commit(planned, action)
        assert scene.head() == before


def test_columns_that_the_filter_does_not_name_may_change(catalog: Catalog) -> None:
    scene = Scene(catalog, 2, partitioned=False)
    planned = catalog.load_table(("db", "t"))
    with scene.other.update_schema() as update:
        update.rename_column("p", "q")
    commit(planned, replace(scene.copy_on_write(), conflict_detection_filter=LessThan("id", 5)))


# ---- partition specs


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("change", ["add", "remove"])
def test_new_files_of_a_spec_that_came_meanwhile(catalog: Catalog, version: int, change: str) -> None:
    """The filter is projected on their spec too; without partitions their metrics tell."""
    scene = Scene(catalog, version)
    planned = catalog.load_table(("db", "t"))
    inside, outside = scene.copy_on_write(read=EqualTo("p", "a")), scene.copy_on_write(read=EqualTo("p", "b"))
    with scene.other.update_spec() as update:
        if change == "add":
            update.add_field("id", BucketTransform(4))
        else:
            update.remove_field("p")
    spec = scene.other.refresh().spec()
    partition = ("a", 3) if change == "add" else tuple(None for _ in spec.fields)
    new = replace(data_file(scene.table, [7], "a"), spec_id=spec.spec_id, partition=partition)
    scene.others(AppendFiles(data_files=(new,)))
    with pytest.raises(CommitConflictError, match="conflicting files that can contain records"):
        commit(planned, inside)
    assert ids(commit(planned, outside).metadata_location) == [2, 3, 7]


# ---- versions


@pytest.mark.proves("L12", "R4")
def test_rows_of_replaced_files_keep_their_ids_through_an_upgrade(catalog: Catalog) -> None:
    """The new file was written without ids, and the table has given some meanwhile."""
    scene = Scene(catalog, 2)
    planned = catalog.load_table(("db", "t"))
    action = scene.copy_on_write(SNAPSHOT)
    set_properties(scene.other, {"format-version": "3"})
    scene.other_append()
    with pytest.raises(CommitConflictError, match="upgraded from format version 2 to 3"):
        commit(planned, action)
    commit(planned, AppendFiles(data_files=(data_file(planned, [9], "a"),)))


# ---- the start


@pytest.mark.parametrize("rolled_back_to", ["before", "start"])
def test_a_branch_that_was_rolled_back(catalog: Catalog, rolled_back_to: str) -> None:
    """To where the statement started is fine; to before it is a conflict, although what was read is still there."""
    scene = Scene(catalog, 2)
    before = scene.start
    scene.other_append("b")
    scene.start = scene.head()
    scene.other_append("b")
    action = scene.merge_on_read(Command.UPDATE, SERIALIZABLE)
    target = scene.start if rolled_back_to == "start" else before
    scene.other.refresh()
    scene.other.manage_snapshots().set_current_snapshot(snapshot_id=target).commit()
    if rolled_back_to == "start":
        assert ids(commit(scene.table, action).metadata_location) == [2, 3, 7]
        return
    with pytest.raises(CommitConflictError, match="is not an ancestor of"):
        commit(scene.table, action)
    with pytest.raises(CommitConflictError, match="Cannot determine history"):
        commit(scene.table, scene.copy_on_write(SNAPSHOT))


@pytest.mark.parametrize("expired", ["start", "between"])
def test_snapshots_that_expired_meanwhile(catalog: Catalog, expired: str) -> None:
    """A gap hides what a commit did. If only the start has expired, its child still names it, as in Java."""
    scene = Scene(catalog, 2)
    scene.other_append("b")
    between = scene.head()
    scene.other_append("b")
    action = scene.copy_on_write(SERIALIZABLE, EqualTo("p", "a"))
    scene.other.refresh()
    snapshot_id = scene.start if expired == "start" else between
    assert snapshot_id is not None
    scene.other.maintenance.expire_snapshots().by_id(snapshot_id).commit()
    if expired == "start":
        commit(scene.table, action)
        return
    with pytest.raises(CommitConflictError, match="Cannot determine history"):
        commit(scene.table, action)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_empty_table_that_got_rows_whose_snapshot_expired(catalog: Catalog, version: int) -> None:
    """The head is not the first."""
    scene = Scene(catalog, version)
    insert = AppendFiles(data_files=(data_file(scene.table, [1], "a"),), validate_new_data_files=True)
    first = scene.start
    scene.other_append("b")
    scene.other.refresh()
    scene.other.maintenance.expire_snapshots().by_id(first).commit()
    of_a = replace(insert, conflict_detection_filter=EqualTo("p", "a"))
    with pytest.raises(CommitConflictError, match="Cannot determine history"):
        commit(scene.table, of_a)


# ---- history is read once


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each metadata file was opened for reading."""
    counts: Counter[str] = Counter()

    def counting(kind: type[FileIO]) -> None:
        original = kind.new_input

        def new_input(self: FileIO, location: str) -> InputFile:
            counts[location] += 1
            return original(self, location)

        monkeypatch.setattr(kind, "new_input", new_input)

    for kind in FileIO.__subclasses__():
        counting(kind)
    return counts


def lists_and_manifests(scene: Scene, snapshot_ids: Sequence[int | None]) -> tuple[set[str], set[str]]:
    """The manifest lists of snapshots, and the manifests that they added."""
    metadata = scene.table.refresh().metadata
    snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in snapshot_ids]
    return (
        {snapshot.manifest_list for snapshot in snapshots},
        {
            manifest.manifest_path
            for snapshot in snapshots
            for manifest in manifests_of(scene.table.io, snapshot)
            if manifest.added_snapshot_id == snapshot.snapshot_id
        },
    )


@WITH_DELETES
@pytest.mark.parametrize("kind", ["copy-on-write", "merge-on-read", "insert-only", "dynamic overwrite"])
def test_history_is_read_once(
    catalog: Catalog, version: int, kind: str, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what k snapshots added, each manifest once, in however many attempts; and nothing outside the filter."""
    scene = Scene(catalog, version)
    for name in "defg":
        scene.other_append(name)
    scene.start = scene.head()
    listing = plan_scan(scene.table, None).listing({scene.file.path}, ())
    actions: dict[str, Action] = {
        "copy-on-write": replace(scene.copy_on_write(SERIALIZABLE, LessThan("id", 5)), listing=listing),
        "merge-on-read": scene.merge_on_read(Command.UPDATE, SERIALIZABLE, LessThan("id", 5)),
        "insert-only": AppendFiles(
            data_files=(data_file(scene.table, [9], "a"),),
            validate_new_data_files=True,
            conflict_detection_filter=LessThan("id", 5),
            starting_snapshot_id=scene.start,
        ),
        "dynamic overwrite": ReplacePartitions(
            data_files=(data_file(scene.table, [9], "a"),),
            starting_snapshot_id=scene.start,
            isolation_level=SERIALIZABLE,
        ),
    }
    action = actions[kind]
    if kind in {"copy-on-write", "merge-on-read"} or kind == "insert-only":
        action = replace(action, conflict_detection_filter=EqualTo("p", "a") & LessThan("id", 5))
    head = scene.head
    between = []
    # Inside the filter's partition are files of other rows, which only the manifest's entries tell.
    inside = kind != "dynamic overwrite"
    for name in ("b", "a", "c", "a") if inside else ("b", "c"):
        scene.other_append(name)
        between.append(head())
    outside = [snapshot for snapshot, name in zip(between, "baca", strict=False) if name != "a" or not inside]
    attempts = 0
    original = catalog.commit_table

    def late(*args: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise CommitFailedException("somebody was faster")
        return original(*args)

    set_properties(scene.other, {"commit.retry.min-wait-ms": "1", "commit.manifest-merge.enabled": "false"})
    before, own = lists_and_manifests(scene, [snapshot.snapshot_id for snapshot in scene.table.refresh().snapshots()])
    lists, manifests = lists_and_manifests(scene, between)
    _, not_wanted = lists_and_manifests(scene, outside)
    monkeypatch.setattr(catalog, "commit_table", late)
    opened.clear()
    made = commit(scene.table, action)
    assert made.attempts == 3
    metadata = {location: count for location, count in opened.items() if location.endswith(".avro")}
    assert max(metadata.values()) == 1, metadata
    assert {location for location in metadata if location in before} == lists
    read = {location for location in metadata if location in own}
    assert read & manifests == manifests - not_wanted
    start = scene.table.metadata.snapshot_by_id(scene.start)
    holding = {
        manifest.manifest_path
        for manifest in manifests_of(scene.table.io, start)
        if manifest.manifest_path in listing.data_manifests
    }
    # Beside what came since, only the manifest that loses the file.
    assert read - manifests == (holding if kind in {"copy-on-write", "dynamic overwrite"} else set())


@WITH_DELETES
def test_delete_manifests_of_other_partitions_are_not_opened(
    catalog: Catalog, version: int, opened: Counter[str]
) -> None:
    scene = Scene(catalog, version)
    files = [data_file(scene.table, [7, 8], p) for p in "abc"]
    commit(scene.table, AppendFiles(data_files=tuple(files)))
    scene.start = scene.head()
    action = scene.merge_on_read(Command.UPDATE, SERIALIZABLE, EqualTo("p", "a") & LessThan("id", 5))
    between = []
    for file in files[1:]:
        scene.others(scene.merge_on_read(Command.DELETE, file=file))
        between.append(scene.head())
        scene.start = scene.head()
    lists, manifests = lists_and_manifests(scene, between)
    opened.clear()
    commit(scene.table, action)
    assert all(opened[location] == 1 for location in lists)
    assert not [location for location in manifests if opened[location]]


def test_what_the_conflicts_of_a_global_equality_delete_are(catalog: Catalog) -> None:
    """Its manifest is of no partition, and yet it is opened."""
    scene = Scene(catalog, 2)
    with scene.other.update_spec() as update:
        update.remove_field("p")
    spec_id = scene.other.refresh().spec().spec_id
    of_all = replace(equality_deletes(scene.table, scene.file, 3), spec_id=spec_id, partition=())
    scene.others(RowDelta(command=Command.UPDATE, delete_files=(of_all,), starting_snapshot_id=scene.head()))
    action = scene.copy_on_write(SNAPSHOT, EqualTo("p", "a"))
    refused(scene, action, "V2", "found new delete for replaced data file")
    assert ManifestContent.DELETES in {m.content for m in manifests_of(scene.table.io, scene.table.current_snapshot())}
