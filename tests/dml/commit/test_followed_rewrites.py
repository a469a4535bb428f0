"""Deletes of rows whose file another commit has compacted: in either order both commit, and no deleted row returns."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import LessThan
from pyiceberg.io import FileIO
from pyiceberg.transforms import TruncateTransform

from dml import limits
from dml.commit import AppendFiles, CommittedSnapshot, RewriteFiles, RowDelta, commit, followed_rewrites
from dml.commit.changes import RowLevelChanges
from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.engine.writes import write_context
from dml.errors import CommitConflictError
from dml.model.row_map import ROW_MAP_KEY, RowMap
from dml.model.scan_task import ScanTask
from dml.model.write_task import ChangedFile, RowOrigins, origins
from dml.options import Command, IsolationLevel
from dml.scan.planner import plan_scan
from dml.write.delete_files import write_late_deletes
from tests.dml.commit.builders import data_file, deletes, ids, new_table, position_deletes, with_row_ids, with_row_map
from tests.dml.commit.test_concurrent_deletes import Deletes, index

BOTH = pytest.mark.parametrize("version", [2, 3])


def runs(rows: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Origins of rows, each a run of one."""
    firsts = np.concatenate([origins(ordinal, position, 1) for ordinal, position in rows] or [np.zeros(0, np.int64)])
    return firsts, np.ones(len(rows), np.int64)


class Scene:
    """A table of some files, each with ten ids of its own: file 0 has 0 to 9, file 1 has 10 to 19."""

    def __init__(self, catalog: Catalog, version: int, files: int = 2, *, partitioned: bool = True) -> None:
        self.table = new_table(catalog, version, partitioned=partitioned)
        self.files = [data_file(self.table, range(10 * place, 10 * place + 10)) for place in range(files)]
        commit(self.table, AppendFiles(data_files=tuple(self.files)))
        self.start = self.head()
        self.means = Deletes(self.table)

    def head(self) -> int | None:
        return self.table.refresh().metadata.current_snapshot_id

    def tasks(self, snapshot_id: int | None = None) -> dict[str, ScanTask]:
        tasks = plan_scan(self.table.refresh(), snapshot_id or self.head()).tasks
        return {task.path: replace(task, file_ordinal=place) for place, task in enumerate(tasks)}

    def ids_in(self, path: str) -> list[int]:
        return pq.read_table(path.removeprefix("file://"))["id"].to_pylist()

    def changed(self, path: str, rows: Sequence[int], *, observed: Sequence[int] = ()) -> ChangedFile:
        return ChangedFile(
            path=path,
            rows_deleted=len(rows),
            rows_updated=0,
            deleted=encode(index(rows)),
            updated=encode(index([])),
            observed=encode(index(observed)),
        )

    def rows_read(self, changed: dict[str, ChangedFile], origins: tuple[RowOrigins, ...] = ()) -> RowLevelChanges:
        return RowLevelChanges(
            changed=changed,
            tasks=self.tasks(self.start),
            loader=self.means.loader,
            write_deletes=self.means.write,
            row_origins=origins,
        )

    def delete(
        self, wanted: Sequence[int], command: Command = Command.DELETE, *, observed: Sequence[int] = (), **more: object
    ) -> RowDelta:
        """What a statement that read the scene's start commits to delete these ids."""
        files, changed, replaced = [], {}, []
        for path, task in self.tasks(self.start).items():
            known = self.ids_in(path)
            rows = [known.index(one) for one in wanted if one in known]
            seen = [known.index(one) for one in observed if one in known]
            if not rows and not seen:
                continue
            old = (task.deletion_vector,) if task.deletion_vector else task.position_deletes
            before = self.means.loader.positions_in(path, old).to_numpy().tolist() if old else []
            changed[path] = self.changed(path, rows, observed=seen)
            if rows:
                of = replace(self.files[0], path=path, spec_id=task.spec_id, partition=task.partition)
                files.append(deletes(self.table, of, {*rows, *before}))
                replaced += [ref.key for ref in old]
        return RowDelta(
            command=command,
            data_files=() if command is Command.DELETE else (data_file(self.table, [100 + one for one in wanted]),),
            delete_files=tuple(files),
            rewritten_delete_files=frozenset(replaced),
            referenced_data_files=frozenset(path for path, file in changed.items() if file.rows_deleted),
            starting_snapshot_id=self.start,
            row_level=self.rows_read(changed),
            **more,
        )

    def row_ids(self, path: str) -> list[int]:
        """The row ids of a file that is live at the scene's start."""
        task = self.tasks(self.start)[path]
        assert task.first_row_id is not None
        rows = pq.read_table(path.removeprefix("file://"))
        if "_row_id" in rows.column_names:
            return rows["_row_id"].to_pylist()
        return list(range(task.first_row_id, task.first_row_id + task.record_count))

    def updated_in(self, path: str) -> list[int]:
        """The sequence numbers with which the rows of a file that is live at the scene's start were last updated."""
        rows = pq.read_table(path.removeprefix("file://"))
        if "_last_updated_sequence_number" in rows.column_names:
            return rows["_last_updated_sequence_number"].to_pylist()
        return [self.tasks(self.start)[path].data_sequence_number] * rows.num_rows

    def compact(
        self,
        paths: Sequence[str] | None = None,
        *,
        into: int = 1,
        with_maps: bool = True,
        with_ids: bool = False,
        reads_rows: bool = True,
    ) -> RewriteFiles:
        """What a compaction that read the scene's start commits; with row ids it also turns the rows round."""
        tasks = {path: task for path, task in self.tasks(self.start).items() if paths is None or path in paths}
        rows = []
        for path, task in tasks.items():
            old = (task.deletion_vector,) if task.deletion_vector else task.position_deletes
            gone = self.means.loader.positions_in(path, old) if old else PositionDeleteIndex()
            rows += [
                (task.file_ordinal, place, one) for place, one in enumerate(self.ids_in(path)) if place not in gone
            ]
        rows = rows[::-1] if with_ids else rows
        size = -(-len(rows) // into)
        made, found = [], []
        by_ordinal = {task.file_ordinal: path for path, task in tasks.items()}
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            file = data_file(self.table, [one for _, _, one in part])
            if with_ids:
                known = {ordinal: self.row_ids(path) for ordinal, path in by_ordinal.items()}
                updated = {ordinal: self.updated_in(path) for ordinal, path in by_ordinal.items()}
                lineage = ([found[ordinal][place] for ordinal, place, _ in part] for found in (known, updated))
                file = with_row_ids(file, next(lineage), 3, next(lineage))
            firsts, lengths = runs([(ordinal, place) for ordinal, place, _ in part])
            found.append(RowOrigins.of(file.path, firsts, lengths))
            made.append(with_row_map(file, RowMap.of(found[-1], by_ordinal)) if with_maps else file)
        return RewriteFiles(
            data_files=tuple(made),
            removed_data_files=frozenset(tasks),
            data_sequence_number=self.table.metadata.snapshot_by_id(self.start).sequence_number,
            starting_snapshot_id=self.start,
            row_level=self.rows_read({path: self.changed(path, ()) for path in tasks}, tuple(found))
            if reads_rows
            else None,
            has_row_maps=with_maps,
        )

    def compact_apart(self, *parts: Sequence[int]) -> RewriteFiles:
        """A compaction of the first file into files of these ids."""
        whole = self.compact([self.files[0].path])
        (task,) = [task for path, task in self.tasks(self.start).items() if path == self.files[0].path]
        made, found = [], []
        for part in parts:
            file = data_file(self.table, part)
            found.append(RowOrigins.of(file.path, *runs([(task.file_ordinal, one) for one in part])))
            made.append(with_row_map(file, RowMap.of(found[-1], {task.file_ordinal: task.path})))
        assert whole.row_level is not None
        rows = replace(whole.row_level, row_origins=tuple(found))
        return replace(whole, data_files=tuple(made), row_level=rows)

    def go_on(self) -> None:
        """Let later actions read the newest snapshot."""
        self.start = self.head()

    def commit(self, action: RowDelta | RewriteFiles | AppendFiles) -> CommittedSnapshot:
        return commit(self.table, action)


def left(count: int, *gone: int) -> list[int]:
    return [one for one in range(count) if one not in gone]


@BOTH
@pytest.mark.parametrize("into", [1, 3])
@pytest.mark.parametrize("command", [Command.DELETE, Command.UPDATE])
def test_a_statement_finds_its_rows_after_a_compaction(
    catalog: Catalog, version: int, into: int, command: Command
) -> None:
    scene = Scene(catalog, version)
    statement = scene.delete([0, 7, 13], command)
    scene.commit(scene.compact(into=into))
    made = scene.commit(statement)
    new = [] if command is Command.DELETE else [100, 107, 113]
    assert ids(made.metadata_location) == left(20, 0, 7, 13) + new
    assert len(scene.tasks()) == into + bool(new)


@BOTH
@pytest.mark.parametrize("into", [1, 3])
def test_a_compaction_takes_over_what_a_statement_deleted_meanwhile(catalog: Catalog, version: int, into: int) -> None:
    scene = Scene(catalog, version)
    compaction = scene.compact(into=into)
    scene.commit(scene.delete([0, 7, 13]))
    made = scene.commit(compaction)
    assert made.operation == "replace"
    assert ids(made.metadata_location) == left(20, 0, 7, 13)
    assert made.summary["rowdelta.deletes-reapplied"] == "3"


@BOTH
def test_rows_deleted_before_are_passed_over(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    scene.commit(scene.delete([1, 2, 15]))
    scene.go_on()
    statement, compaction = scene.delete([0, 3, 14, 19]), scene.compact()
    scene.commit(scene.delete([5]))
    scene.commit(compaction)
    made = scene.commit(statement)
    assert ids(made.metadata_location) == left(20, 0, 1, 2, 3, 5, 14, 15, 19)


@BOTH
def test_compactions_are_followed_one_after_the_other(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version, files=3)
    statement = scene.delete([0, 11, 29])
    start = scene.start
    scene.commit(scene.compact([file.path for file in scene.files[:2]], into=2))
    scene.go_on()
    scene.commit(scene.delete([1]))
    scene.go_on()
    scene.commit(scene.compact(into=2))
    scene.start = start
    assert ids(scene.commit(statement).metadata_location) == left(30, 0, 1, 11, 29)


@BOTH
def test_a_row_that_was_deleted_before_the_compaction_is_a_conflict(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    statement, compaction = scene.delete([0, 7]), scene.compact()
    scene.commit(scene.delete([7]))
    scene.commit(compaction)
    with pytest.raises(CommitConflictError, match="rows 7") as raised:
        scene.commit(statement)
    assert [conflict.snapshot_id for conflict in raised.value.context["conflicts"]] == [scene.head()]
    assert ids(scene.table.refresh().metadata_location) == left(20, 7)


@BOTH
def test_a_row_that_was_dropped_by_the_compaction_is_a_conflict(catalog: Catalog, version: int) -> None:
    """Another commit deleted the row, and the compaction left it out."""
    scene = Scene(catalog, version)
    statement = scene.delete([0, 7])
    start = scene.start
    scene.commit(scene.delete([7]))
    deleting = scene.head()
    scene.go_on()
    scene.commit(scene.compact())
    scene.start = start
    with pytest.raises(CommitConflictError, match="rows 7") as raised:
        scene.commit(statement)
    assert [conflict.snapshot_id for conflict in raised.value.context["conflicts"]] == [deleting]
    assert scene.files[0].path in str(raised.value)


@BOTH
@pytest.mark.parametrize("isolation", IsolationLevel)
def test_a_row_that_was_only_matched_counts_if_serializable(
    catalog: Catalog, version: int, isolation: IsolationLevel
) -> None:
    scene = Scene(catalog, version)
    statement = scene.delete([0], observed=[7], isolation_level=isolation)
    start = scene.start
    scene.commit(scene.delete([7]))
    scene.go_on()
    scene.commit(scene.compact())
    scene.start = start
    if isolation is IsolationLevel.SERIALIZABLE:
        with pytest.raises(CommitConflictError, match="rows 7"):
            scene.commit(statement)
    else:
        assert ids(scene.commit(statement).metadata_location) == left(20, 0, 7)


@BOTH
@pytest.mark.parametrize("isolation", IsolationLevel)
@pytest.mark.parametrize("further", ["deleted with all rows beside it", "compacted without maps"])
def test_a_row_that_was_only_matched_is_followed_into_a_file_without_changed_rows(
    catalog: Catalog, version: int, isolation: IsolationLevel, further: str
) -> None:
    scene = Scene(catalog, version, files=1)
    statement = scene.delete([0], Command.MERGE, observed=[7], isolation_level=isolation)
    start, apart = scene.start, scene.compact_apart(range(5), range(5, 10))
    scene.commit(apart)
    scene.go_on()
    if further == "compacted without maps":
        scene.commit(scene.compact([apart.data_files[1].path], with_maps=False))
        left_ids, message = left(10, 0), "missing data files"
    else:
        scene.commit(scene.delete(range(5, 10)))
        scene.go_on()
        scene.commit(scene.compact())
        left_ids, message = [1, 2, 3, 4], "rows 2"
    scene.start = start
    if isolation is IsolationLevel.SERIALIZABLE:
        with pytest.raises(CommitConflictError, match=message):
            scene.commit(statement)
    else:
        assert ids(scene.commit(statement).metadata_location) == [*left_ids, 100]


@BOTH
def test_rows_are_followed_to_a_partition_spec_that_the_statement_does_not_know(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    statement = scene.delete([0, 13])
    assert statement.row_level is not None
    write = partial(write_late_deletes, write_context(scene.table, "statement"))
    statement = replace(statement, row_level=replace(statement.row_level, write_deletes=write))
    with scene.table.update_spec() as update:
        update.add_field("id", TruncateTransform(100), "id_trunc")
    scene.table.refresh()
    compaction = scene.compact()
    moved = tuple(replace(file, partition=("a", 0)) for file in compaction.data_files)
    scene.commit(replace(compaction, data_files=moved))
    assert ids(scene.commit(statement).metadata_location) == left(20, 0, 13)


@BOTH
def test_both_delete_in_the_new_file(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    statement, compaction = scene.delete([0, 13]), scene.compact()
    start = scene.start
    scene.commit(scene.delete([5]))
    scene.commit(compaction)
    scene.go_on()
    scene.commit(scene.delete([6]))
    scene.start = start
    made = scene.commit(statement)
    assert ids(made.metadata_location) == left(20, 0, 5, 6, 13)
    if version == 3:
        assert made.summary["total-delete-files"] == "1"


@pytest.mark.proves("V4")
@BOTH
@pytest.mark.parametrize("loss", ["no map", "another file's map", "one file without", "damaged", "gone"])
def test_without_a_map_a_compaction_is_a_conflict(catalog: Catalog, version: int, loss: str) -> None:
    scene = Scene(catalog, version)
    statement = scene.delete([0, 13])
    compaction = scene.compact(into=2)
    first, second = compaction.data_files
    text = pq.read_metadata(first.path.removeprefix("file://")).metadata[ROW_MAP_KEY.encode()].decode()
    damaged = {
        "another file's map": text.replace(first.path, "/elsewhere"),
        "one file without": "{}",
        "damaged": text.replace('"origins": "', '"origins": "AAAA'),
    }
    if loss == "no map":
        compaction = replace(scene.compact(), has_row_maps=False)
    elif loss in damaged:
        compaction = replace(compaction, data_files=(with_row_map(first, damaged[loss]), second))
    scene.commit(compaction)
    if loss == "gone":
        Path(first.path.removeprefix("file://")).unlink()
    with pytest.raises(CommitConflictError, match="missing data files"):
        scene.commit(statement)


@BOTH
def test_footers_of_other_partitions_are_not_read(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(catalog, version)
    elsewhere = data_file(scene.table, [50], "b")
    scene.commit(AppendFiles(data_files=(elsewhere,)))
    scene.go_on()
    statement, compaction = scene.delete([0, 13]), scene.compact([file.path for file in scene.files])
    compaction = replace(
        compaction,
        data_files=(*compaction.data_files, data_file(scene.table, [50], "b")),
        removed_data_files=compaction.removed_data_files | {elsewhere.path},
    )
    scene.commit(compaction)
    original, read = followed_rewrites.read_row_map, []

    def recorded(io: FileIO, file: ScanTask) -> RowMap | None:
        read.append(file.path)
        return original(io, file)

    monkeypatch.setattr(followed_rewrites, "read_row_map", recorded)
    made = scene.commit(statement)
    assert read == [compaction.data_files[0].path]
    assert ids(made.metadata_location) == [*left(20, 0, 13), 50]


@BOTH
def test_files_that_stay_keep_their_deletes(catalog: Catalog, version: int) -> None:
    """Only what the compaction replaced moves."""
    scene = Scene(catalog, version)
    statement = scene.delete([0, 13])
    scene.commit(scene.compact([scene.files[0].path]))
    made = scene.commit(statement)
    assert ids(made.metadata_location) == left(20, 0, 13)
    assert scene.files[1].path in scene.tasks()


def test_a_delete_file_of_a_partition_keeps_what_it_has_of_other_files(catalog: Catalog) -> None:
    """It has deletes of two files, old ones of the file that stays among them."""
    scene = Scene(catalog, 2)
    scene.commit(scene.delete([12]))
    scene.go_on()
    statement = scene.delete([0, 13])
    tasks = scene.tasks(scene.start)
    one, other = (file.path for file in scene.files)
    file = position_deletes(scene.table, scene.files[0], [0])
    local = Path(file.path.removeprefix("file://"))
    rows = sorted([(one, 0), (other, 2), (other, 3)])
    schema = pq.read_schema(local)
    pq.write_table(
        pa.table({"file_path": [path for path, _ in rows], "pos": [at for _, at in rows]}, schema=schema), local
    )
    file = replace(
        file,
        record_count=3,
        file_size_in_bytes=local.stat().st_size,
        upper_bounds={2147483546: max(one, other).encode()},
        lower_bounds={2147483546: min(one, other).encode()},
    )
    old = tasks[other].position_deletes
    statement = replace(
        statement,
        delete_files=(file,),
        rewritten_delete_files=frozenset(ref.key for ref in old),
        referenced_data_files=frozenset({one, other}),
    )
    scene.commit(scene.compact([one]))
    made = scene.commit(statement)
    assert ids(made.metadata_location) == left(20, 0, 12, 13)
    assert not local.exists()


@BOTH
def test_a_delete_that_lost_its_file_meanwhile_is_moot(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    statement = scene.delete([0, 13])
    start = scene.start
    scene.commit(scene.compact())
    scene.go_on()
    scene.commit(scene.delete(list(range(20))))
    scene.start = start
    with pytest.raises(CommitConflictError, match="rows 0, 13"):
        scene.commit(statement)


@pytest.mark.proves("V2")
@BOTH
def test_a_compaction_without_origins_does_not_bring_rows_back(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    compaction = scene.compact(reads_rows=False)
    scene.commit(scene.delete([7]))
    with pytest.raises(CommitConflictError, match="found new delete for replaced data file"):
        scene.commit(compaction)


# ---- row ids


def rewritten(scene: Scene, **options: Any) -> RewriteFiles:
    """What another engine commits that sorts the rows and keeps their row ids."""
    return scene.compact(with_maps=False, with_ids=True, reads_rows=False, **options)


@pytest.mark.parametrize("into", [1, 3])
@pytest.mark.parametrize("command", [Command.DELETE, Command.UPDATE])
def test_a_statement_finds_its_rows_by_their_row_ids(catalog: Catalog, into: int, command: Command) -> None:
    scene = Scene(catalog, 3)
    statement = scene.delete([0, 7, 13], command)
    scene.commit(rewritten(scene, into=into))
    made = scene.commit(statement)
    new = [] if command is Command.DELETE else [100, 107, 113]
    assert ids(made.metadata_location) == left(20, 0, 7, 13) + new
    assert made.summary["rowdelta.rows-followed"] == "row-id"


@pytest.mark.parametrize("first", ["row-map", "row-id"])
@pytest.mark.parametrize("second", ["row-map", "row-id"])
def test_rewrites_of_several_engines_are_followed_one_after_the_other(
    catalog: Catalog, first: str, second: str
) -> None:
    """The files between have stored row ids, or count them up from their first."""
    scene = Scene(catalog, 3, files=3)
    statement, start = scene.delete([0, 11, 29]), scene.start
    for way, other in ((first, 5), (second, 6)):
        scene.commit(rewritten(scene, into=2) if way == "row-id" else scene.compact(with_ids=True))
        scene.go_on()
        scene.commit(scene.delete([other]))
        scene.go_on()
    scene.start = start
    made = scene.commit(statement)
    assert ids(made.metadata_location) == left(30, 0, 5, 6, 11, 29)
    assert set(made.summary["rowdelta.rows-followed"].split(", ")) == {first, second}


def test_a_row_that_was_deleted_before_a_rewrite_of_another_engine_is_a_conflict(catalog: Catalog) -> None:
    scene = Scene(catalog, 3)
    statement, start = scene.delete([0, 7]), scene.start
    scene.commit(scene.delete([7]))
    deleting = scene.head()
    scene.go_on()
    scene.commit(rewritten(scene))
    scene.start = start
    with pytest.raises(CommitConflictError, match="rows 7") as raised:
        scene.commit(statement)
    assert [conflict.snapshot_id for conflict in raised.value.context["conflicts"]] == [deleting]


@pytest.mark.parametrize("isolation", list(IsolationLevel))
@pytest.mark.parametrize("command", [Command.DELETE, Command.UPDATE])
def test_an_updated_row_is_not_the_row_that_the_statement_read(
    catalog: Catalog, command: Command, isolation: IsolationLevel
) -> None:
    """It has the same row id. Its new version is outside of the condition, so only the update itself is a conflict."""
    scene = Scene(catalog, 3, files=1, partitioned=False)
    below = LessThan("id", 100)
    start = scene.start
    statement = scene.delete([7], command, isolation_level=isolation, conflict_detection_filter=below)
    update = scene.delete([7], Command.UPDATE, conflict_detection_filter=below)
    new_version = with_row_ids(data_file(scene.table, [1007]), [7], sequence_numbers=[2])
    scene.commit(replace(update, data_files=(new_version,)))
    scene.go_on()
    scene.commit(scene.compact(with_maps=False, with_ids=True, reads_rows=False))
    scene.start = start
    before = ids(scene.table.refresh().metadata_location)
    assert 1007 in before
    with pytest.raises(CommitConflictError, match="7"):
        scene.commit(statement)
    assert ids(scene.table.refresh().metadata_location) == before


@pytest.mark.proves("V4")
@pytest.mark.parametrize(
    "loss", ["no ids", "one id", "twice", "text", "gone", "old file gone", "no old ids", "too many"]
)
def test_without_row_ids_a_rewrite_of_another_engine_is_a_conflict(
    catalog: Catalog, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyIceberg rewrites files, for example: the rows get new ids."""
    scene = Scene(catalog, 3)
    statement = scene.delete([0, 13])
    rewrite = rewritten(scene)
    (file,) = rewrite.data_files
    local = Path(file.path.removeprefix("file://"))
    rows = pq.read_table(local)
    plain, row_ids = data_file(scene.table, rows["id"].to_pylist()), rows["_row_id"].to_pylist()
    match loss:
        case "no ids":
            file = plain
        case "one id":
            file = with_row_ids(plain, [None if row_id == 13 else row_id for row_id in row_ids])
        case "twice":
            file = with_row_ids(plain, [0 if row_id == 4 else row_id for row_id in row_ids])
        case "text":
            field = pa.field("_row_id", pa.string(), metadata={"PARQUET:field_id": "2147483540"})
            pq.write_table(rows.set_column(2, field, pa.array(map(str, row_ids))), local)
            file = replace(file, file_size_in_bytes=local.stat().st_size)
        case "no old ids":  # the file is older than version 3, as far as the statement knows
            assert statement.row_level is not None
            tasks = {path: replace(task, first_row_id=None) for path, task in statement.row_level.tasks.items()}
            statement = replace(statement, row_level=replace(statement.row_level, tasks=tasks))
        case "too many":
            monkeypatch.setattr(limits, "MAX_ROW_IDS_READ", 2)
    scene.commit(replace(rewrite, data_files=(file,)))
    if loss.endswith("gone"):
        Path((scene.files[0].path if loss == "old file gone" else file.path).removeprefix("file://")).unlink()
    with pytest.raises(CommitConflictError, match="missing data files") as raised:
        scene.commit(statement)
    assert all(conflict.is_compaction for conflict in raised.value.context["conflicts"])


def test_only_row_groups_that_may_hold_a_row_are_read(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(catalog, 3)
    statement = scene.delete([0, 13])
    scene.commit(rewritten(scene))
    monkeypatch.setattr(limits, "MAX_ROW_IDS_READ", 6)
    assert ids(scene.commit(statement).metadata_location) == left(20, 0, 13)


@pytest.mark.parametrize("into", [1, 3])
def test_a_compaction_without_origins_finds_deleted_rows_by_their_row_ids(catalog: Catalog, into: int) -> None:
    """As a sort of many rows: the runs of neighbours are too many to report."""
    scene = Scene(catalog, 3)
    compaction = scene.compact(with_ids=True, into=into)
    assert compaction.row_level is not None
    compaction = replace(compaction, row_level=replace(compaction.row_level, row_origins=()), has_row_maps=False)
    scene.commit(scene.delete([0, 7, 13]))
    made = scene.commit(compaction)
    assert ids(made.metadata_location) == left(20, 0, 7, 13)
    assert made.summary["rowdelta.deletes-reapplied"] == "3"
    assert made.summary["rowdelta.rows-followed"] == "row-id"


@settings(
    max_examples=max(12, settings.default.max_examples // 4),  # more by night
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    version=st.sampled_from([2, 3]),
    rounds=st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 2), st.booleans()), min_size=1, max_size=3
    ),
    rows=st.permutations(range(30)),
)
def test_whatever_the_order_each_row_is_deleted_once(
    catalog: Catalog, version: int, rounds: list[tuple[int, int, int, bool]], rows: list[int]
) -> None:
    """Each round reads one snapshot: some statements, late ones of which commit in the next round, and a compaction."""
    if ("db", "t") in catalog.list_tables("db"):
        catalog.drop_table(("db", "t"))
    scene = Scene(catalog, version, files=3)
    gone: set[int] = set()
    late: list[RowDelta] = []
    for into, place, delayed, has_maps in rounds:
        scene.go_on()
        mine, rows = rows[:6], rows[6:]
        statements = [scene.delete(mine[:3]), scene.delete(mine[3:])]
        gone.update(mine)
        compaction = scene.compact(into=into, with_ids=version > 2)
        if version > 2 and not has_maps and compaction.row_level is not None:
            bare = replace(compaction.row_level, row_origins=())
            compaction = replace(compaction, row_level=bare, has_row_maps=False)
        due = [*late, *statements[delayed:]]
        late = statements[:delayed]
        for action in (*due[:place], compaction, *due[place:]):
            made = scene.commit(action)
    for action in late:
        made = scene.commit(action)
    assert ids(made.metadata_location) == left(30, *gone)
