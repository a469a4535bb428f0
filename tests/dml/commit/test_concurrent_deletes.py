"""Two commits that delete rows of one data file: other rows stand side by side, the same row is a conflict."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from dml.commit import AppendFiles, OverwriteFiles, RowDelta, commit
from dml.commit.changes import RowLevelChanges
from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CommitConflictError, ValidationFailedError
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, FileContent
from dml.model.scan_task import FileDeletes, ScanTask
from dml.model.write_task import ChangedFile, RowOrigins
from dml.options import Command, IsolationLevel
from dml.read.applied_deletes import DeleteLoader
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import data_file, deletes, equality_deletes, ids, new_table, position_deletes, vectors

BOTH = pytest.mark.parametrize("version", [2, 3])
SERIALIZABLE, SNAPSHOT = IsolationLevel.SERIALIZABLE, IsolationLevel.SNAPSHOT


def index(positions: Iterable[int]) -> PositionDeleteIndex:
    return PositionDeleteIndex.from_positions(list(positions))


@dataclass
class Deletes:
    """Reads and writes deletes as the engine does, and counts the writing."""

    table: Table
    written: list[str] = field(default_factory=list)

    @property
    def loader(self) -> DeleteLoader:
        return DeleteLoader(self.table.schema(), {})

    def write(self, wanted: Sequence[FileDeletes]) -> tuple[ContentFile, ...]:
        if not wanted:
            return ()
        pairs = [(self.file(of), of.positions.to_numpy().tolist()) for of in wanted]
        if self.table.metadata.format_version > 2:
            made = vectors(self.table, pairs)
        else:
            made = tuple(position_deletes(self.table, *pair) for pair in pairs)
        self.written += {file.path: None for file in made}
        return made

    def file(self, of: FileDeletes) -> ContentFile:
        return replace(data_file(self.table, []), path=of.path, spec_id=of.spec_id, partition=of.partition)


@dataclass
class Outdated(Deletes):
    """Writes position delete files, as a statement does that knows the table as one of version 2."""

    def write(self, wanted: Sequence[FileDeletes]) -> tuple[ContentFile, ...]:
        return tuple(position_deletes(self.table, self.file(of), of.positions.to_numpy().tolist()) for of in wanted)


class Scene:
    """A table with a file of ids 0 to 9, of which a statement has read the rows; some may be deleted before."""

    def __init__(self, catalog: Catalog, version: int, before: Sequence[int] = ()) -> None:
        self.table = new_table(catalog, version, partitioned=True)
        self.other = catalog.load_table(("db", "t"))
        self.file = data_file(self.table, range(10))
        commit(self.table, AppendFiles(data_files=(self.file,)))
        if before:
            self.others(Command.DELETE, before)
        self.start = self.table.refresh().metadata.current_snapshot_id
        self.plan = plan_scan(self.table, None)
        (self.task,) = self.plan.tasks
        self.means = Deletes(self.table)

    def action(
        self,
        command: Command,
        rows: Sequence[int],
        *,
        observed: Sequence[int] = (),
        isolation: IsolationLevel = SERIALIZABLE,
        task: ScanTask | None = None,
        start: int | None = None,
        updates: bool = False,
        rewrites: bool = True,
    ) -> RowDelta:
        """Deletes of rows as a statement that has read `task` commits them, its new file holding what was deleted."""
        task = task or self.task
        old = (task.deletion_vector,) if task.deletion_vector else task.position_deletes
        before = self.means.loader.positions_in(task.path, old).to_numpy().tolist() if old else []
        changed = ChangedFile(
            path=self.file.path,
            rows_deleted=len(rows),
            rows_updated=0,
            deleted=encode(index(rows)),
            updated=encode(index([])),
            observed=encode(index(observed)),
        )
        return RowDelta(
            command=command,
            data_files=(data_file(self.table, [100 + row for row in rows]),) if updates else (),
            delete_files=(deletes(self.table, self.file, sorted({*rows, *before})),),
            rewritten_delete_files=frozenset(ref.key for ref in old) if rewrites else frozenset(),
            referenced_data_files=frozenset({self.file.path}),
            conflict_detection_filter=EqualTo("p", "a"),
            starting_snapshot_id=start or self.start,
            isolation_level=isolation,
            row_level=RowLevelChanges(
                changed={self.file.path: changed},
                tasks={self.file.path: task},
                loader=self.means.loader,
                write_deletes=self.means.write,
            ),
        )

    def others(self, command: Command, rows: Sequence[int]) -> None:
        """Another commit's deletes, on what is there now."""
        (task,) = plan_scan(self.other, self.other.refresh().metadata.current_snapshot_id).tasks
        old = (task.deletion_vector,) if task.deletion_vector else task.position_deletes
        before = Deletes(self.table).loader.positions_in(task.path, old).to_numpy().tolist() if old else []
        commit(
            self.other,
            RowDelta(
                command=command,
                delete_files=(deletes(self.table, self.file, sorted({*rows, *before})),),
                rewritten_delete_files=frozenset(ref.key for ref in old),
                starting_snapshot_id=self.other.metadata.current_snapshot_id,
            ),
        )

    def metadata_location(self) -> str:
        return self.table.refresh().metadata_location


def lose_races(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, scene: Scene, rows: list[list[int]]) -> None:
    """Let somebody else be faster with each of these deletes before the commit gets through."""
    original = catalog.commit_table

    def beaten(*args: object) -> object:
        if rows:
            monkeypatch.undo()
            scene.others(Command.UPDATE, rows.pop(0))
            monkeypatch.setattr(catalog, "commit_table", beaten)
            raise CommitFailedException("somebody was faster")
        return original(*args)

    monkeypatch.setattr(catalog, "commit_table", beaten)


def delete_files(table: Table) -> list[ContentFile]:
    """The live ones."""
    manifests = manifests_of(table.io, table.current_snapshot())
    entries = (entry for manifest in manifests for entry in entries_of(manifest, table.io, live_only=True))
    return [entry.data_file for entry in entries if entry.data_file.content is not FileContent.DATA]


def conflict(scene: Scene, action: RowDelta | OverwriteFiles, match: str) -> CommitConflictError:
    before = scene.metadata_location()
    with pytest.raises(CommitConflictError, match=match) as raised:
        commit(scene.table, action)
    assert scene.metadata_location() == before
    return raised.value


@BOTH
@pytest.mark.parametrize("command", Command)
@pytest.mark.parametrize("before", [(), (0, 9)])
def test_other_rows_of_one_file_are_both_deleted(
    catalog: Catalog, version: int, command: Command, before: Sequence[int]
) -> None:
    scene = Scene(catalog, version, before)
    scene.others(Command.UPDATE, [1, 2])
    made = commit(scene.table, scene.action(command, [5, 6]))
    assert ids(made.metadata_location) == sorted({*range(10)} - {1, 2, 5, 6, *before})


@BOTH
def test_a_row_that_both_delete_is_a_conflict_that_names_it(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version, [0])
    scene.others(Command.UPDATE, [1, 2, 7])
    error = conflict(scene, scene.action(Command.UPDATE, [2, 5, 7]), "rows 2, 7")
    assert error.context["rows"] == (2, 7)
    assert scene.file.path in str(error)
    assert not scene.means.written


def test_rows_deleted_before_are_nobodys(catalog: Catalog) -> None:
    """Both vectors hold them; the union is taken over what each added."""
    scene = Scene(catalog, 3, [0, 3, 9])
    scene.others(Command.DELETE, [1])
    made = commit(scene.table, scene.action(Command.DELETE, [5]))
    assert ids(made.metadata_location) == [2, 4, 6, 7, 8]
    assert (made.summary["added-dvs"], made.summary["removed-dvs"], made.summary["total-delete-files"]) == (
        "1",
        "1",
        "1",
    )
    assert made.summary["total-position-deletes"] == "5"


def test_the_vector_that_nobody_needs_is_deleted(catalog: Catalog) -> None:
    scene = Scene(catalog, 3)
    scene.others(Command.DELETE, [1])
    action = scene.action(Command.DELETE, [5])
    commit(scene.table, action)
    assert not Path(action.delete_files[0].path.removeprefix("file://")).exists()
    assert Path(scene.means.written[0].removeprefix("file://")).exists()


@BOTH
def test_several_commits_in_between(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    for row in (1, 2, 3):
        scene.others(Command.UPDATE, [row])
    made = commit(scene.table, scene.action(Command.MERGE, [5]))
    assert ids(made.metadata_location) == [0, 4, 6, 7, 8, 9]
    if version == 3:
        assert made.summary["total-delete-files"] == "1"


@BOTH
def test_a_row_that_was_matched_and_left_alone_counts_under_serializable_isolation(
    catalog: Catalog, version: int
) -> None:
    """A MERGE that found the row gone would have inserted."""
    scene = Scene(catalog, version)
    scene.others(Command.DELETE, [4])
    conflict(scene, scene.action(Command.MERGE, [5], observed=[4]), "rows 4")
    made = commit(scene.table, scene.action(Command.MERGE, [5], observed=[4], isolation=SNAPSHOT))
    assert ids(made.metadata_location) == [0, 1, 2, 3, 6, 7, 8, 9]


@BOTH
def test_positions_that_are_not_known_are_judged_by_files(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    scene.others(Command.DELETE, [1])
    action = scene.action(Command.UPDATE, [5])
    assert action.row_level is not None
    unknown = {path: replace(file, deleted=None, updated=None) for path, file in action.row_level.changed.items()}
    conflict(scene, replace(action, row_level=replace(action.row_level, changed=unknown)), "conflicting delete files")
    conflict(scene, replace(action, row_level=None), "conflicting delete files")


@BOTH
def test_equality_deletes_of_others_are_judged_by_files(catalog: Catalog, version: int) -> None:
    """They may delete any row."""
    scene = Scene(catalog, version)
    commit(
        scene.other,
        RowDelta(
            command=Command.UPDATE,
            delete_files=(equality_deletes(scene.table, scene.file, 1),),
            starting_snapshot_id=scene.other.refresh().metadata.current_snapshot_id,
        ),
    )
    conflict(scene, scene.action(Command.UPDATE, [5]), "conflicting delete files")


@BOTH
def test_a_compaction_between_does_not_bring_deleted_rows_back(catalog: Catalog, version: int) -> None:
    """The file is another one then: the deletes would point to nothing."""
    scene = Scene(catalog, version)
    commit(
        scene.other,
        OverwriteFiles(
            data_files=(data_file(scene.table, range(10)),),
            removed_data_files=frozenset({scene.file.path}),
            starting_snapshot_id=scene.start,
        ),
    )
    conflict(scene, scene.action(Command.DELETE, [5], isolation=SNAPSHOT), "missing data files")


def test_a_second_vector_does_not_slip_in_past_the_filter(catalog: Catalog) -> None:
    """Whatever the statement's filter says, its own files decide."""
    scene = Scene(catalog, 3)
    scene.others(Command.DELETE, [5])
    conflict(scene, replace(scene.action(Command.DELETE, [5]), conflict_detection_filter=EqualTo("id", 77)), "rows 5")
    made = commit(scene.table, replace(scene.action(Command.DELETE, [6]), conflict_detection_filter=EqualTo("id", 77)))
    assert made.summary["total-delete-files"] == "1"
    assert ids(made.metadata_location) == [0, 1, 2, 3, 4, 7, 8, 9]


@BOTH
def test_a_lost_race_merges_with_the_winner(catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The union that the first attempt wrote is not the one that is committed, and is gone."""
    scene = Scene(catalog, version)
    scene.others(Command.DELETE, [1])
    lose_races(catalog, monkeypatch, scene, [[2], [3]])
    made = commit(scene.table, scene.action(Command.UPDATE, [5], updates=True, isolation=SNAPSHOT))
    assert made.attempts == 3
    assert ids(made.metadata_location) == [0, 4, 6, 7, 8, 9, 105]
    there = [path for path in scene.means.written if Path(path.removeprefix("file://")).exists()]
    assert there == scene.means.written[-1:] if version == 3 else not scene.means.written


@pytest.mark.proves("A10")
def test_what_a_commit_that_fails_wrote_with_the_deletes_of_others_is_deleted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt wrote a union; the second meets a delete of the same row."""
    scene = Scene(catalog, 3)
    scene.others(Command.DELETE, [1])
    lose_races(catalog, monkeypatch, scene, [[5]])
    with pytest.raises(CommitConflictError, match="rows 5"):
        commit(scene.table, scene.action(Command.UPDATE, [5], updates=True, isolation=SNAPSHOT))
    assert len(scene.means.written) == 1
    assert not Path(scene.means.written[0].removeprefix("file://")).exists()


def rewriting(
    scene: Scene, rows: Sequence[int], *, isolation: IsolationLevel = SERIALIZABLE, observed: Sequence[int] = ()
) -> OverwriteFiles:
    """A statement that deletes rows of the file by writing it anew, in two files: the even ids, and the odd ones."""
    task = scene.task
    old = (task.deletion_vector,) if task.deletion_vector else task.position_deletes
    before = scene.means.loader.positions_in(task.path, old).to_numpy().tolist() if old else []
    kept = [row for row in range(10) if row not in {*rows, *before}]
    halves = [[row for row in kept if row % 2 == odd] for odd in (0, 1)]
    files = tuple(data_file(scene.table, half) for half in halves)
    ones = [
        (file.path, np.array(half, np.int64), np.ones(len(half), np.int64))
        for file, half in zip(files, halves, strict=True)
    ]
    changed = ChangedFile(
        path=scene.file.path,
        rows_deleted=len(rows),
        rows_updated=0,
        rows_before=10 - len(before),
        rows_carried=len(kept),
        deleted=encode(index(rows)),
        updated=encode(index([])),
        observed=encode(index(observed)),
    )
    return OverwriteFiles(
        data_files=files,
        removed_data_files=frozenset({scene.file.path}),
        listing=scene.plan.listing({scene.file.path}, ()),
        conflict_detection_filter=EqualTo("p", "a"),
        starting_snapshot_id=scene.start,
        isolation_level=isolation,
        row_level=RowLevelChanges(
            changed={scene.file.path: changed},
            tasks={scene.file.path: task},
            loader=scene.means.loader,
            write_deletes=scene.means.write,
            row_origins=tuple(RowOrigins.of(*parts) for parts in ones),
        ),
    )


@BOTH
@pytest.mark.parametrize("before", [(), (0, 9)])
def test_rewritten_files_take_over_the_deletes_of_others(catalog: Catalog, version: int, before: Sequence[int]) -> None:
    scene = Scene(catalog, version, before)
    scene.others(Command.DELETE, [1, 2])
    scene.others(Command.UPDATE, [7])
    made = commit(scene.table, rewriting(scene, [5, 6]))
    assert ids(made.metadata_location) == sorted({*range(10)} - {1, 2, 5, 6, 7, *before})
    assert made.summary["rowdelta.deletes-reapplied"] == "3"
    assert made.operation == "overwrite"
    # The other's vector goes with its data file, wherever it was listed when the statement read the table.
    vectors_of = {file.referenced_data_file for file in delete_files(scene.table.refresh())}
    assert version == 2 or scene.file.path not in vectors_of


@BOTH
def test_a_row_that_a_rewritten_file_lost_and_another_deleted_is_a_conflict(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version, [0])
    scene.others(Command.UPDATE, [1, 2, 7])
    conflict(scene, rewriting(scene, [2, 5, 7]), "rows 2, 7")
    conflict(scene, rewriting(scene, [5], observed=[7]), "rows 7")
    assert not scene.means.written
    made = commit(scene.table, rewriting(scene, [5], observed=[7], isolation=SNAPSHOT))
    assert ids(made.metadata_location) == [3, 4, 6, 8, 9]


@BOTH
def test_rows_whose_place_in_the_new_files_is_not_known_are_judged_by_files(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    scene.others(Command.DELETE, [1])
    action = rewriting(scene, [5])
    assert action.row_level is not None
    for known in ((), action.row_level.row_origins[:1]):
        level = replace(action.row_level, row_origins=known)
        conflict(scene, replace(action, row_level=level), "found new delete for replaced data file")
    assert not scene.means.written


@BOTH
def test_equality_deletes_of_others_in_a_rewritten_file_are_a_conflict(catalog: Catalog, version: int) -> None:
    scene = Scene(catalog, version)
    scene.others(Command.DELETE, [2])
    commit(
        scene.other,
        RowDelta(
            command=Command.UPDATE,
            delete_files=(equality_deletes(scene.table, scene.file, 1),),
            starting_snapshot_id=scene.other.refresh().metadata.current_snapshot_id,
        ),
    )
    conflict(scene, rewriting(scene, [5]), "found new delete for replaced data file")


def test_a_table_upgraded_meanwhile_gets_no_deletes_of_the_old_version(catalog: Catalog) -> None:
    """Its data files may stay; what is written late would be of the version that the statement knows."""
    scene = Scene(catalog, 2)
    scene.others(Command.DELETE, [1])
    action = rewriting(scene, [5])
    catalog.commit_table(scene.other.refresh(), (), (UpgradeFormatVersionUpdate(format_version=3),))
    level = replace(action.row_level, write_deletes=Outdated(scene.table).write) if action.row_level else None
    before = scene.metadata_location()
    with pytest.raises(ValidationFailedError, match="Must use DVs"):
        commit(scene.table, replace(action, row_level=level))
    assert scene.metadata_location() == before


@BOTH
def test_a_rewritten_file_that_lost_a_race_takes_over_the_winners_deletes(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(catalog, version)
    scene.others(Command.DELETE, [1])
    lose_races(catalog, monkeypatch, scene, [[2], [3]])
    made = commit(scene.table, rewriting(scene, [5], isolation=SNAPSHOT))
    assert made.attempts == 3
    assert ids(made.metadata_location) == [0, 4, 6, 7, 8, 9]
    there = {path for path in scene.means.written if Path(path.removeprefix("file://")).exists()}
    of_new_files = {made.path for made in delete_files(scene.table.refresh()) if made.path in scene.means.written}
    assert there == of_new_files
    assert len(there) == (1 if version == 3 else 2)
