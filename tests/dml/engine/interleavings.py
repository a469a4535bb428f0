"""Two writers of one table, for tests of isolation: what one does while the other's statement runs.

A table is made once for each format version and then copied by its metadata alone, so that a case costs milliseconds.
The statement runs on Spark, and right before its commit everything else that could have happened meanwhile is played
through on copies of the table, with the statement's own commit; one of these cases is then let happen for good.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from dml.catalog import create_table
from dml.commit import AppendFiles, DeleteFiles, OverwriteFiles, RewriteFiles, RowDelta, commit
from dml.errors import CommitConflictError, DmlError, ValidationFailedError
from dml.iceberg import metadata_json
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, FileContent
from dml.model.row_map import RowMap
from dml.model.write_task import RowOrigins
from dml.options import Command
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import deletes, with_row_ids, with_row_map
from tests.other_writers import set_properties

Row = tuple[int, str, str]
Rows = frozenset[Row]
Change = Callable[[Rows], Rows]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "v", StringType(), required=False),
)
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("p", pa.string(), metadata={"PARQUET:field_id": "2"}),
        pa.field("v", pa.string(), metadata={"PARQUET:field_id": "3"}),
    ]
)

THE_FILE, INSIDE, OUTSIDE = (1, 2, 3, 4), (5, 6), (11, 12, 13, 14)
"""Ids of the three data files: the one that statements change, another of its partition, and one of another."""


def row(number: int) -> Row:
    return number, "b" if number in {*OUTSIDE, 42} else "a", f"v{number}"


BASE: Rows = frozenset(map(row, (*THE_FILE, *INSIDE, *OUTSIDE)))


def data_file(table: Table, rows: Sequence[Row]) -> ContentFile:
    """A Parquet file of rows of one partition, with the metrics that writers give."""
    path = f"{table.location()}/data/{uuid4()}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    columns = [list(column) for column in zip(*rows, strict=True)]
    pq.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=ARROW), local)
    types = (LongType(), StringType(), StringType())
    return ContentFile(
        content=FileContent.DATA,
        path=path,
        file_format="parquet",
        spec_id=0,
        partition=(rows[0][1],),
        record_count=len(rows),
        file_size_in_bytes=local.stat().st_size,
        value_counts=dict.fromkeys((1, 2, 3), len(rows)),
        null_value_counts=dict.fromkeys((1, 2, 3), 0),
        lower_bounds={i + 1: to_bytes(of, min(columns[i])) for i, of in enumerate(types)},
        upper_bounds={i + 1: to_bytes(of, max(columns[i])) for i, of in enumerate(types)},
    )


def live_files(table: Table) -> dict[int, ContentFile]:
    """The live data files, by their least id."""
    snapshot = table.current_snapshot()
    entries = (e for m in manifests_of(table.io, snapshot) for e in entries_of(m, table.io, live_only=True))
    files = (entry.data_file for entry in entries)
    return {int.from_bytes(file.lower_bounds[1], "little"): file for file in files if file.content is FileContent.DATA}


def rows_of(table: Table) -> list[Row]:
    """The rows as PyIceberg reads them; columns by their place, for one may have another name now."""
    read = table.scan().to_arrow()
    return sorted(zip(*(read.column(place).to_pylist() for place in range(3)), strict=True))


# ---- what others do


@dataclass(frozen=True, kw_only=True)
class Happening:
    """What another writer does.

    Attributes:
        text: As the documentation says it.
        act: Does it.
        change: What becomes of the rows.
    """

    text: str
    act: Callable[[Table], Any] = field(repr=False)
    change: Change = field(repr=False, default=lambda rows: rows)


def without(ids: Iterable[int]) -> Change:
    gone = set(ids)
    return lambda rows: frozenset(one for one in rows if one[0] not in gone)


def changed(ids: Iterable[int], value: str) -> Change:
    chosen = set(ids)
    return lambda rows: frozenset((one[0], one[1], value) if one[0] in chosen else one for one in rows)


def appends(text: str, number: int) -> Happening:
    return Happening(
        text=text,
        act=lambda table: commit(table, AppendFiles(data_files=(data_file(table, [row(number)]),))),
        change=lambda rows: rows | {row(number)},
    )


def deletes_row(text: str, ids: Sequence[int], position: int) -> Happening:
    def act(table: Table) -> None:
        delete = deletes(table, live_files(table)[ids[0]], [position])
        start = table.metadata.current_snapshot_id
        commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))

    return Happening(text=text, act=act, change=without([ids[position]]))


def removes(text: str, ids: Sequence[int]) -> Happening:
    def act(table: Table) -> None:
        commit(table, DeleteFiles(paths=frozenset({live_files(table)[ids[0]].path})))

    return Happening(text=text, act=act, change=without(ids))


def compacts(text: str, ids: Sequence[int]) -> Happening:
    def act(table: Table) -> None:
        old = live_files(table)[ids[0]].path
        new = data_file(table, list(map(row, ids)))
        one_run = RowOrigins.of(new.path, np.zeros(1, np.int64), np.array([len(ids)]))
        commit(
            table,
            RewriteFiles(
                data_files=(with_row_map(new, RowMap.of(one_run, {0: old})),),
                removed_data_files=frozenset({old}),
                starting_snapshot_id=table.metadata.current_snapshot_id,
                has_row_maps=True,
            ),
        )

    return Happening(text=text, act=act)


def compacts_elsewhere(text: str, ids: Sequence[int]) -> Happening:
    """As other engines do: without a row map, in version 3 with the row ids; the rows in another order."""

    def act(table: Table) -> None:
        path = live_files(table)[ids[0]].path
        (old,) = [one for one in plan_scan(table, table.metadata.current_snapshot_id).tasks if one.path == path]
        new = data_file(table, list(map(row, reversed(ids))))
        if old.first_row_id is not None:
            new = with_row_ids(new, [old.first_row_id + place for place in reversed(range(len(ids)))])
        commit(
            table,
            RewriteFiles(
                data_files=(new,),
                removed_data_files=frozenset({old.path}),
                starting_snapshot_id=table.metadata.current_snapshot_id,
            ),
        )

    return Happening(text=text, act=act)


def rewrites(text: str, ids: Sequence[int], number: int) -> Happening:
    change = changed([number], "theirs")

    def act(table: Table) -> None:
        commit(
            table,
            OverwriteFiles(
                data_files=(data_file(table, sorted(change(frozenset(map(row, ids))))),),
                removed_data_files=frozenset({live_files(table)[ids[0]].path}),
                starting_snapshot_id=table.metadata.current_snapshot_id,
            ),
        )

    return Happening(text=text, act=act, change=change)


def adds_column(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("extra", IntegerType())


def renames_column(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("p", "q")


def adds_partition_field(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4))


HAPPENINGS = (
    appends("appends a row that the statement would change or find", 32),
    appends("appends other rows inside the filter", 33),
    appends("appends rows outside", 42),
    deletes_row("deletes a row that the statement changes", THE_FILE, 1),
    deletes_row("deletes another row of the same file", THE_FILE, 0),
    deletes_row("deletes a row of another file inside", INSIDE, 0),
    deletes_row("deletes a row outside", OUTSIDE, 0),
    removes("removes the file", THE_FILE),
    removes("removes another file inside", INSIDE),
    removes("removes a file outside", OUTSIDE),
    compacts("compacts the file", THE_FILE),
    compacts("compacts another file inside", INSIDE),
    compacts("compacts a file outside", OUTSIDE),
    compacts_elsewhere("compacts the file in another engine", THE_FILE),
    rewrites("overwrites the file, with another row changed", THE_FILE, 3),
    rewrites("overwrites another file inside", INSIDE, 6),
    rewrites("overwrites a file outside", OUTSIDE, 11),
    Happening(text="adds a column", act=adds_column),
    Happening(text="renames a column of the filter", act=renames_column),
    Happening(text="changes the partition spec", act=adds_partition_field),
    Happening(text="sets a property", act=lambda table: set_properties(table, {"owner": "them"})),
    Happening(text="upgrades the table to version 3", act=lambda table: set_properties(table, {"format-version": "3"})),
)


# ---- copies of a table


class Copies:
    """A table of one format version, and copies of it.

    Args:
        catalog: Where they are.
        version: The format version.
    """

    def __init__(self, catalog: Catalog, version: int) -> None:
        self.catalog, self.version = catalog, version
        self.base = create_table(
            catalog,
            ("db", f"base{version}"),
            SCHEMA,
            partition_spec=BY_P,
            properties={"format-version": str(version), "write.distribution-mode": "none"},
        )
        for ids in (THE_FILE, INSIDE, OUTSIDE):
            commit(self.base, AppendFiles(data_files=(data_file(self.base, list(map(row, ids))),)))
        self.base.refresh()

    def copy(self, name: str, **properties: str) -> Table:
        """A table of its own with the same files; new files go to a folder of its own."""
        location = f"{self.base.location()}-{name}"
        metadata = self.base.metadata.model_copy(
            update={"location": location, "properties": {**self.base.metadata.properties, **properties}}
        )
        folder = Path(location.removeprefix("file://")) / "metadata"
        folder.mkdir(parents=True)
        (folder.parent / "data").mkdir()
        path = folder / "00000.metadata.json"
        path.write_text(metadata_json(metadata))
        return self.catalog.register_table(("db", name), f"file://{path}")

    @cached_property
    def afterwards(self) -> tuple[Table, ...]:
        """The table after each of the happenings."""
        found = []
        for number, happening in enumerate(HAPPENINGS):
            table = self.copy(f"after{self.version}x{number}")
            happening.act(table)
            found.append(table.refresh())
        return tuple(found)

    @cached_property
    def rows_afterwards(self) -> tuple[list[Row], ...]:
        """The rows after each of the happenings: where nothing is committed, they are read once."""
        return tuple(map(rows_of, self.afterwards))

    @cached_property
    def files_afterwards(self) -> tuple[set[str], ...]:
        """The files that the table needs after each of the happenings."""
        return tuple(map(files_of, self.afterwards))


class OneTable:
    """A catalog of one table, in memory: as much of a catalog as a commit needs.

    Args:
        table: The table, which is not changed.
    """

    properties: dict[str, str] = {}  # noqa: RUF012 - as in PyIceberg
    name = "copies"

    def __init__(self, table: Table) -> None:
        self.metadata: TableMetadata = table.metadata
        self.table, self.commits = table, 0

    def handle(self, name: tuple[str, ...], metadata: TableMetadata) -> Table:
        return Table(
            identifier=name,
            metadata=metadata,
            metadata_location=self.table.metadata_location,
            io=self.table.io,
            catalog=self,  # type: ignore[arg-type]
        )

    def load_table(self, name: tuple[str, ...]) -> Table:
        return self.handle(name, self.metadata)

    def supports_server_side_planning(self) -> bool:
        return False

    def commit_table(
        self, _: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        for requirement in requirements:
            requirement.validate(self.metadata)
        self.metadata = update_table_metadata(self.metadata, updates)
        self.commits += 1
        return CommitTableResponse(metadata=self.metadata, metadata_location=self.table.metadata_location)


def files_in(*folders: str) -> set[str]:
    """All files of folders."""
    return {
        str(path)
        for folder in folders
        for path in Path(folder.removeprefix("file://")).glob("*/**/*")
        if path.is_file() and not path.name.startswith(".")
    }


def files_of(table: Table) -> set[str]:
    """All files that a table's snapshots need, and its metadata."""
    metadata = table.metadata
    used = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    for snapshot in metadata.snapshots:
        used.add(snapshot.manifest_list)
        for manifest in manifests_of(table.io, snapshot):
            used.add(manifest.manifest_path)
            used.update(entry.data_file.path for entry in entries_of(manifest, table.io))
    return {location.removeprefix("file://") for location in used}


# ---- what becomes of a commit


AGAIN = "again"
"""How the documentation calls it that a statement runs again by itself."""


def outcome(error: DmlError | None) -> str:
    """How the documentation calls it: `ok`, `again`, or what the conflict is about."""
    if error is None:
        return "ok"
    assert isinstance(error, CommitConflictError | ValidationFailedError), error
    conflicts = error.context.get("conflicts", ())
    if conflicts and all(conflict.is_compaction for conflict in conflicts):
        return AGAIN
    labels = sorted({conflict.label for conflict in conflicts})
    if labels:
        (label,) = labels
        return "rows" if label == "ROWS" else label
    known = {
        "does not fit the table's schema": "schema",
        "was upgraded": "upgrade",
        "some, but not all, rows match": "V9",
    }
    (found,) = [name for words, name in known.items() if words in str(error)]
    return found


@dataclass(frozen=True, kw_only=True)
class Case:
    """A statement and a happening.

    Attributes:
        happening: Its text.
        outcome: What became of the statement's commit.
        problem: What is wrong with the table afterwards; empty if nothing is.
    """

    happening: str
    outcome: str
    problem: str = ""


def judged(rows: list[Row], happening: Happening, mine: Change, error: DmlError | None) -> str:
    """What is wrong with the rows: after a success they have to be those of one order of the two, else the other's."""
    theirs = happening.change(BASE)
    allowed = [theirs] if error is not None else [mine(theirs), happening.change(mine(BASE))]
    return "" if rows in [sorted(one) for one in allowed] else f"rows are {rows}, not one of {allowed}"


@dataclass
class Interleaved:
    """Stands in for `commit` while a statement runs: plays every case through, then lets one happen.

    Attributes:
        original: The commit.
        copies: The table's copies.
        mine: What the statement makes of the rows.
        chosen: Number of the happening that happens for good.
        name: The statement's table.
        plays: Whether to play the cases through, too.
        cases: What was found.
        played: Files that the played cases left behind, in their own tables.
        came: Whether the statement came to its commit.
    """

    original: Callable[..., Any]
    copies: Copies
    mine: Change
    chosen: int
    name: tuple[str, str]
    plays: bool = True
    cases: list[Case] = field(default_factory=list)
    played: set[str] = field(default_factory=set)
    came: bool = False

    def __call__(self, table: Table, action: Any, **options: Any) -> Any:
        if self.came:  # the statement runs again
            return self.original(table, action, **options)
        written = {path: Path(path).read_bytes() for path in files_in(table.location())}
        for number in range(len(HAPPENINGS)) if self.plays else ():
            self.cases.append(self.play(table, action, options, number))
            # A commit deletes delete files that turn out not to be needed; the next case may need them.
            for path, data in written.items():
                Path(path).write_bytes(data)
        self.played = files_in(table.location()) - written.keys()
        self.came = True
        HAPPENINGS[self.chosen].act(self.copies.catalog.load_table(self.name))
        return self.original(table, action, **options)

    def play(self, table: Table, action: Any, options: dict[str, Any], number: int) -> Case:
        happening, after = HAPPENINGS[number], self.copies.afterwards[number]
        catalog, error = OneTable(after), None
        folders = table.location(), after.location()
        before = files_in(*folders)
        try:
            self.original(catalog.handle(self.name, table.metadata), action, **options)
        except DmlError as raised:
            error = raised
        made = catalog.handle(self.name, catalog.metadata)
        problem = judged(
            rows_of(made) if catalog.commits else self.copies.rows_afterwards[number], happening, self.mine, error
        )
        now = files_in(*folders)
        left = now - before - (files_of(made) if catalog.commits else set())
        if left:
            problem += f" files were left: {left}"
        if gone := self.copies.files_afterwards[number] - now - files_in(self.copies.base.location()):
            problem += f" files of the other are gone: {gone}"
        if error is not None and catalog.commits:
            problem += " it was committed"
        return Case(happening=happening.text, outcome=outcome(error), problem=problem)


def with_outcomes(cases: Iterable[Case]) -> dict[str, str]:
    return {case.happening: case.outcome for case in cases}


__all__ = [
    "AGAIN",
    "BASE",
    "HAPPENINGS",
    "Case",
    "Change",
    "Copies",
    "Happening",
    "Interleaved",
    "Row",
    "Rows",
    "changed",
    "files_in",
    "files_of",
    "judged",
    "outcome",
    "row",
    "rows_of",
    "with_outcomes",
]
