"""One commit that marks rows, writes files anew and takes files away, beside deletes of others in all of them."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from dml.commit import AppendFiles, RowDelta, commit
from dml.commit.changes import RowLevelChanges
from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CommitConflictError
from dml.model.manifest import ContentFile
from dml.model.scan_task import FileDeletes
from dml.model.write_task import NEW_ROWS, ChangedFile, RowOrigins
from dml.options import Command
from dml.read.applied_deletes import DeleteLoader
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import DELETES, data_file, deletes, ids, new_table, position_deletes, vectors

ROWS = 10
FILES = 3
KINDS = ("marked", "rewritten", "gone", "left")


def encoded(positions: Iterable[int]) -> bytes:
    return encode(PositionDeleteIndex.from_positions(sorted(positions)))


@dataclass
class Scene:
    """A table of three files of ten rows in one partition; a row's id is ten times its file and its position.

    Attributes:
        table: The table, as the statement knows it.
        catalog: Of the table.
        written: Delete files that were written late.
    """

    table: Table
    catalog: Catalog
    written: list[ContentFile] = field(default_factory=list)
    files: list[ContentFile] = field(default_factory=list)

    @staticmethod
    def of(catalog: Catalog, version: int, name: str, before: Iterable[int] = ()) -> "Scene":
        scene = Scene(new_table(catalog, version, name=name, partitioned=True), catalog)
        scene.files = [data_file(scene.table, range(first, first + ROWS)) for first in range(0, FILES * ROWS, ROWS)]
        commit(scene.table, AppendFiles(data_files=tuple(scene.files)))
        scene.others(before, Command.DELETE)
        scene.table.refresh()
        return scene

    def others(self, rows: Iterable[int], command: Command, *, together: bool = False) -> None:
        """Another commit's deletes, on what is there now: on version 2 maybe as one file for all data files."""
        table = self.catalog.load_table(self.table.name())
        by_path = {file.path: (place, file) for place, file in enumerate(self.files)}
        added, rewritten = [], set()
        wanted = set(rows)
        for task in plan_scan(table, table.metadata.current_snapshot_id).tasks:
            place, file = by_path[task.path]
            new = {row - place * ROWS for row in wanted if row // ROWS == place}
            if not new:
                continue
            old = (task.deletion_vector,) if task.deletion_vector else ()
            loader = DeleteLoader(table.schema(), {})
            before = loader.positions_in(task.path, old).to_numpy().tolist() if old else []
            added.append((file, sorted({*new, *before})))
            rewritten |= {ref.key for ref in old}
        if not added:
            return
        if together and table.metadata.format_version == 2:
            made = [self.for_several(table, added)]
        else:
            made = [deletes(table, *one) for one in added]
        commit(
            table,
            RowDelta(
                command=command,
                delete_files=tuple(made),
                rewritten_delete_files=frozenset(rewritten),
                starting_snapshot_id=table.metadata.current_snapshot_id,
            ),
        )

    def for_several(self, table: Table, added: Sequence[tuple[ContentFile, list[int]]]) -> ContentFile:
        """One position delete file for several data files."""
        pairs = sorted((file.path, position) for file, positions in added for position in positions)
        one = position_deletes(table, added[0][0], [0])
        local = Path(one.path.removeprefix("file://"))
        columns = [pa.array(column) for column in zip(*pairs, strict=True)]
        pq.write_table(pa.Table.from_arrays(columns, schema=DELETES), local)
        first, last = pairs[0][0].encode(), pairs[-1][0].encode()
        return replace(
            one,
            record_count=len(pairs),
            file_size_in_bytes=local.stat().st_size,
            lower_bounds={2147483546: first},
            upper_bounds={2147483546: last},
        )

    def write(self, wanted: Sequence[FileDeletes]) -> tuple[ContentFile, ...]:
        """Writes late deletes as the engine does."""
        if not wanted:
            return ()
        pairs = [
            (replace(self.files[0], path=of.path, spec_id=of.spec_id, partition=of.partition), of.positions.to_numpy())
            for of in wanted
        ]
        if self.table.metadata.format_version > 2:
            made = vectors(self.table, [(file, positions.tolist()) for file, positions in pairs])
        else:
            made = tuple(position_deletes(self.table, file, positions.tolist()) for file, positions in pairs)
        self.written += made
        return made

    def action(self, command: Command, kinds: Sequence[str], rows: set[int]) -> RowDelta:
        """What a statement does that changes some rows, each file in its way; an updated row's id is 1000 more."""
        tasks = {task.path: task for task in plan_scan(self.table, self.table.metadata.current_snapshot_id).tasks}
        loader = DeleteLoader(self.table.schema(), {})
        changed, made, rewritten, kept, origins = {}, [], set(), [], []
        updates = command is not Command.DELETE
        for place, (file, kind) in enumerate(zip(self.files, kinds, strict=True)):
            mine = {row - place * ROWS for row in rows if row // ROWS == place}
            if not mine:
                continue
            task = tasks[file.path]
            old = (task.deletion_vector,) if task.deletion_vector else task.position_deletes
            before = set(loader.positions_in(task.path, old).to_numpy().tolist()) if old else set()
            one = ChangedFile(
                path=file.path,
                rows_deleted=0 if updates else len(mine),
                rows_updated=len(mine) if updates else 0,
                deleted=encoded(() if updates else mine),
                updated=encoded(mine if updates else ()),
                observed=encoded(()),
            )
            if kind == "marked":
                made.append(deletes(self.table, file, sorted(mine | before)))
                rewritten |= {ref.key for ref in old}
                changed[file.path] = replace(one, deletes_before=len(before), deletes_after=len(mine | before))
            else:
                carried = [row for row in range(ROWS) if row not in mine | before]
                kept += [(place, row) for row in carried]
                live = ROWS - len(before)
                changed[file.path] = replace(one, rows_before=live, rows_carried=len(carried))
        new_files = []
        if kept:  # rows of several old files in one new one, after one that is nobody's
            new = data_file(self.table, [500, *(place * ROWS + row for place, row in kept)])
            ordinals = [tasks[self.files[place].path].file_ordinal for place, _ in kept]
            firsts = [NEW_ROWS, *((ordinal << 40) + row for ordinal, (_, row) in zip(ordinals, kept, strict=True))]
            origins.append(RowOrigins.of(new.path, np.array(firsts), np.ones(len(firsts), np.int64)))
            new_files.append(new)
        if updates and rows:
            new_files.append(data_file(self.table, [1000 + row for row in sorted(rows)]))
        return RowDelta(
            command=command,
            data_files=tuple(new_files),
            delete_files=tuple(made),
            rewritten_delete_files=frozenset(rewritten),
            removed_data_files=frozenset(path for path, file in changed.items() if file.rows_before is not None),
            referenced_data_files=frozenset(path for path, file in changed.items() if file.rows_before is None),
            conflict_detection_filter=EqualTo("p", "a"),
            starting_snapshot_id=self.table.metadata.current_snapshot_id,
            row_level=RowLevelChanges(
                changed=changed, tasks=tasks, loader=loader, write_deletes=self.write, row_origins=tuple(origins)
            ),
        )


def a_few(random_: random.Random, rows: Iterable[int], most: int) -> set[int]:
    found = list(rows)
    return set(random_.sample(found, random_.randint(0, min(most, len(found)))))


@pytest.mark.proves("V2", "V5", "V6")
@pytest.mark.parametrize("version", [2, 3])
def test_any_rows_of_any_files(catalog: Catalog, version: int) -> None:
    """Both sides' deletes stand, or a row is in both and the table stays as it was: no row is lost or comes back."""
    chance = random.Random(version)
    met = 0
    for number in range(12):
        everything = set(range(FILES * ROWS))
        before = a_few(chance, everything, 4)
        scene = Scene.of(catalog, version, f"t{number}", before)
        kinds = [chance.choice(KINDS) for _ in range(FILES)]
        live = everything - before
        mine: set[int] = set()
        for place, kind in enumerate(kinds):
            rows = {row for row in live if row // ROWS == place}
            mine |= rows if kind == "gone" else a_few(chance, rows, 3 if kind != "left" else 0)
        others = [a_few(chance, live - mine, 5)]
        others.append(a_few(chance, live - mine - others[0], 3))
        if number % 2 == 0:
            others.append(a_few(chance, live - others[0] - others[1], 6))
        theirs = set().union(*others)
        command = chance.choice(list(Command))
        action = scene.action(command, kinds, mine)
        for rows in others:
            scene.others(rows, chance.choice([Command.DELETE, Command.UPDATE]), together=chance.random() < 0.5)
        was = scene.catalog.load_table(scene.table.name()).metadata_location
        if mine & theirs:
            met += 1
            with pytest.raises(CommitConflictError, match="rows that this one changes too"):
                commit(scene.table, action)
            assert scene.catalog.load_table(scene.table.name()).metadata_location == was
            assert ids(was) == sorted(live - theirs)
            continue
        if not action.delete_files and not action.removed_data_files:
            continue
        now = commit(scene.table, action)
        new = {1000 + row for row in mine} if command is not Command.DELETE else set()
        new |= {500} if action.row_level and action.row_level.row_origins else set()
        assert ids(now.metadata_location) == sorted((live - mine - theirs) | new)
        reapplied = {row for row in theirs if scene.files[row // ROWS].path in action.removed_data_files}
        assert now.summary.get("rowdelta.deletes-reapplied", "0") == str(len(reapplied))
    assert 1 < met < 8


@pytest.mark.parametrize("version", [2, 3])
def test_rows_whose_place_is_not_known_are_a_conflict(catalog: Catalog, version: int) -> None:
    """Also where the other file's deletes could stand."""
    scene = Scene.of(catalog, version, "t")
    action = scene.action(Command.UPDATE, ["marked", "rewritten", "left"], {1, 12})
    scene.others([3, 14], Command.DELETE)
    level = action.row_level
    assert level is not None
    with pytest.raises(CommitConflictError):
        commit(scene.table, replace(action, row_level=replace(level, row_origins=())))
    unknown = {path: replace(one, deleted=None, updated=None, observed=None) for path, one in level.changed.items()}
    with pytest.raises(CommitConflictError):
        commit(scene.table, replace(action, row_level=replace(level, changed=unknown)))
    assert not scene.written
    made = commit(scene.table, action)
    assert ids(made.metadata_location) == sorted({*range(30)} - {1, 3, 12, 14} | {500, 1001, 1012})
