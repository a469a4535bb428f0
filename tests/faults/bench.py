"""One statement on one small table, again and again: each run with other faults, and what must hold after it.

After a run the table is as before or as after, the statement's report is true, and no file is there that the table does
not need, unless the outcome is unknown.
"""

import itertools
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Final, cast
from unittest import mock

from pyiceberg.table import StaticTable, Table
from pyspark.sql import SparkSession

import dml
from dml import limits
from dml.commit import RowDelta, commit
from dml.errors import CommitStateUnknownError, DmlError
from dml.model.manifest import ContentFile
from dml.options import Command
from dml.result import Result
from dml.scan.planner import plan_scan
from dml.session import Session
from tests.dml.commit.builders import equality_deletes
from tests.faults.injection import FOLDER, Action, Call, Fault, Faults, FaultyCatalog, FaultyFileIO
from tests.interop.readers import read_duckdb, read_pyiceberg

__all__ = [
    "AFTER_FAULT",
    "CONVERT",
    "CTAS",
    "EXPIRE",
    "LARGE_INSERT",
    "STATEMENTS",
    "Bench",
    "Place",
    "Run",
    "lake_properties",
    "needed_files",
    "table_kinds",
]

CTAS: Final = "create as select"
LARGE_INSERT: Final = "large insert"
"""An INSERT whose task writes its file. The driver writes the file of a small one (decision 024)."""

EXPIRE: Final = "expire"
CONVERT: Final = "convert"
"""Of a table in which another engine deleted the row 10 by its key."""

LARGE: Final = 2 * limits.MAX_TASK_HELD_BYTES
STATEMENTS: Final = {
    "delete": "DELETE FROM db.t WHERE id = 2",
    "update": "UPDATE db.t SET s = 'u' WHERE id = 2",
    "merge": "MERGE INTO db.t AS t USING (SELECT id * 2 AS id FROM range(1, 3)) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET s = 'm' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, 'n')",
    "insert": "INSERT INTO db.t VALUES (4, 'i')",
    LARGE_INSERT: f"INSERT INTO db.t SELECT id + 3, repeat('i', {LARGE}) FROM range(1, 2)",
    "overwrite": "INSERT OVERWRITE db.t VALUES (4, 'o')",
    "whole files": "DELETE FROM db.t WHERE id >= 10",
    "truncate": "TRUNCATE TABLE db.t",
    CTAS: "CREATE TABLE db.t AS SELECT id, 'c' AS s FROM range(1, 3)",
    "rewrite": "CALL lake.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    EXPIRE: "CALL lake.system.expire_snapshots('db.t', TIMESTAMP '2200-01-01', 1)",
    CONVERT: "CALL lake.system.convert_equality_deletes(table => 'db.t')",
}
"""On a table with the rows 1 and 2 in one file, the row 10 in another; 0 and 3 were in the first and are deleted."""

BEFORE: Final = {1: "a", 2: "b", 10: "z"}
AFTER: Final[Mapping[str, Mapping[int, str]]] = {
    "delete": {1: "a", 10: "z"},
    "update": {1: "a", 2: "u", 10: "z"},
    "merge": {1: "a", 2: "m", 4: "n", 10: "z"},
    "insert": {**BEFORE, 4: "i"},
    LARGE_INSERT: {**BEFORE, 4: "i" * LARGE},
    "overwrite": {4: "o"},
    "whole files": {1: "a", 2: "b"},
    "truncate": {},
    CTAS: {1: "c", 2: "c"},
    "rewrite": BEFORE,
    EXPIRE: BEFORE,
    CONVERT: {1: "a", 2: "b"},
}
AFTER_FAULT: Final = {
    (Call.ANSWER, Action.FAIL): "after",  # the answer is lost: the table tells
    (Call.COMMIT, Action.FAIL): "unknown",  # as far as anybody can tell
    (Call.COMMIT, Action.LOSE): "after",  # tried again
    **{(call, Action.DELAY): "after" for call in Call},
}
"""What must come of one fault, where only one thing may."""

SETTINGS: Final = {
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.num-retries": "2",
    "commit.retry.min-wait-ms": "1",
    "commit.retry.num-retries": "2",
}
RAW: Final = re.compile(r"Traceback \(|Py4J|\bjava\.|org\.apache|SparkException|\n\s*at |\[Errno None\]")
OLD_SECONDS: Final = 10 * 86_400
READING: Final = Lock()  # DuckDB's connection is everybody's
ADVICE: Final = re.compile(r"[.:] (Check|[Rr]estore|Run|Look) ")
COPIES: Final = "before"


def table_kinds() -> tuple[tuple[int, str], ...]:
    """Versions and modes."""
    return ((2, "copy-on-write"), (3, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read"))


@dataclass(frozen=True, kw_only=True)
class Run:
    """What came of a run.

    Attributes:
        outcome: `after`, `before` or `unknown`.
        said: The text of the error that the statement raised; empty if it raised none.
        injected: The calls that were hit.
        calls: The locations of the calls of each kind, in their order.
        problems: What should not be so.
    """

    outcome: str
    said: str
    injected: tuple[str, ...]
    calls: Mapping[Call, Sequence[str]]
    problems: tuple[str, ...]


@dataclass
class Place:
    """A folder with the catalog and the table of a bench, for whoever looks at it.

    Attributes:
        folder: The folder.
    """

    folder: Path

    @property
    def table_folder(self) -> Path:
        return self.folder / "lake" / "db" / "t"

    @property
    def metadata_location(self) -> str | None:
        """Where the catalog's database says that the table is; None if there is none."""
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'db' AND table_name = 't'"
        with sqlite3.connect(self.folder / "catalog.db", timeout=60) as connection:
            found = connection.execute(query).fetchone()
        connection.close()
        return None if found is None else str(found[0])

    def files(self) -> dict[Path, tuple[int, int]]:
        """Size and time of each file of the table."""
        found = {path: path.stat() for path in self.table_folder.rglob("*") if path.is_file()}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}

    def left(self) -> set[str]:
        """The files that the table does not need, as PyIceberg reads its metadata."""
        location = self.metadata_location
        needed = set() if location is None else needed_files(StaticTable.from_metadata(location))
        return {f"file://{path}" for path in self.files()} - needed


@dataclass
class Bench(Place):
    """A statement, and a catalog of its own with the table.

    Attributes:
        session: On the catalog.
        catalog: Its faults are those of the run.
        statement: Which one, a key of `STATEMENTS`.
        victims: The processes that a fault kills.
        before: The metadata file and all files of the table before each run.
    """

    session: Session
    catalog: FaultyCatalog
    statement: str
    numbers: Iterator[int] = field(default_factory=itertools.count)
    victims: tuple[int, ...] = ()
    before: tuple[str | None, Mapping[Path, tuple[int, int]]] = (None, MappingProxyType({}))

    @staticmethod
    def of(spark: SparkSession, folder: Path, statement: str, version: int, mode: str) -> "Bench":
        """A bench with its table."""
        folder.mkdir(parents=True)
        (folder / COPIES).mkdir()
        properties = lake_properties(folder, Faults(folder / "faults" / "none"))
        session = dml.connect(catalog="lake", spark=spark, progress=False, **properties)
        session.disable()
        catalog = session.registry.catalogs["lake"]
        assert isinstance(catalog, FaultyCatalog)
        bench = Bench(folder, session, catalog, statement)
        session.sql("CREATE NAMESPACE db")
        if statement != CTAS:
            modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
            listed = ", ".join(
                f"'{key}' = '{value}'" for key, value in {**modes, **SETTINGS, "format-version": str(version)}.items()
            )
            session.sql(f"CREATE TABLE db.t (id BIGINT, s STRING) TBLPROPERTIES ({listed})")
            session.sql(
                "INSERT INTO db.t SELECT /*+ COALESCE(1) */ * FROM VALUES (0, '-'), (1, 'a'), (2, 'b'), (3, '-')"
            )
            session.sql("INSERT INTO db.t VALUES (10, 'z')")
            session.sql("DELETE FROM db.t WHERE id IN (0, 3)")
            if statement == CONVERT:
                delete_key(catalog.load_table(("db", "t")), 10)
            shutil.copytree(bench.table_folder, folder / COPIES / "t")
        bench.before = (bench.metadata_location, bench.files())
        return bench

    def reset(self) -> None:
        """The table as it was."""
        location, files = self.before
        if self.files() != files:
            shutil.rmtree(self.table_folder, ignore_errors=True)
            if location is not None:
                shutil.copytree(self.folder / COPIES / "t", self.table_folder)
        if self.metadata_location != location:
            with sqlite3.connect(self.folder / "catalog.db", timeout=60) as connection:
                if location is None:
                    connection.execute("DELETE FROM iceberg_tables")
                else:
                    connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))
            connection.close()

    def new_faults(self, *injected: Fault) -> Faults:
        """The faults of another run."""
        faults = Faults(self.folder / "faults" / str(next(self.numbers)))
        faults.inject(*injected)
        faults.victims(*self.victims)
        return faults

    def run(self, *injected: Fault) -> Run:
        """Run the statement once with these faults, look at what it left, and take that back."""
        problems: list[str] = []
        if (self.metadata_location, self.files()) != self.before:
            problems.append(f"the run before went on: {sorted(self.files().keys() ^ self.before[1].keys())}")
            self.reset()
        faults = self.new_faults(*injected)
        self.catalog.properties[FOLDER] = faults.folder
        snapshot_id: int | None = None
        raised: BaseException | None = None
        try:
            result = self.session.sql(STATEMENTS[self.statement])
            snapshot_id = result.snapshot_id if isinstance(result, Result) else self.head
        except Exception as error:  # noqa: BLE001 - what it is, is looked at below
            raised = error
        hit = faults.injected()
        problems += said_badly(raised, hit)
        is_damaged = any(" cut " in one and one.endswith(".avro") for one in hit)
        outcome, found = self.looked_at(snapshot_id, raised, may_leave=raised is not None or is_damaged)
        problems += found
        self.reset()
        named = f"{self.statement}, {hit or 'no fault'}: {outcome}, {type(raised).__name__} {raised}"
        return Run(
            outcome="unknown" if isinstance(raised, CommitStateUnknownError) else outcome,
            said="" if raised is None else str(raised),
            injected=tuple(hit),
            calls=faults.calls(),
            problems=tuple(f"{named}: {problem}" for problem in problems),
        )

    def looked_at(
        self, snapshot_id: int | None, raised: BaseException | None, *, may_leave: bool
    ) -> tuple[str, list[str]]:
        """The state of the table, and what is wrong with it or with what the statement said of it.

        Args:
            snapshot_id: The statement's snapshot.
            raised: Its error.
            may_leave: Whether an expiration may leave files behind: it failed, or a manifest (list) is damaged.
        """
        problems: list[str] = []
        location, files = self.metadata_location, self.files()
        expires = self.statement == EXPIRE
        unknown = isinstance(raised, CommitStateUnknownError)
        if location == self.before[0]:
            if raised is None:
                problems.append("reported as done, and is not there")
            changed = {path for path, stat in self.before[1].items() if files.get(path) != stat}
            if changed:
                problems.append(f"files of the table were changed or are gone: {sorted(changed)}")
            left = files.keys() - self.before[1].keys()
            if left and not unknown:
                problems.append(f"files were left: {sorted(map(str, left))}")
            if unknown and not left and not expires:
                problems.append("files were deleted, though the commit may land yet")
            return "before", problems
        assert location is not None
        if raised is not None and not unknown and not (expires and "have expired, but" in str(raised)):
            problems.append("reported as failed, and is there")
        problems += wrong_rows(location, AFTER[self.statement])
        table = StaticTable.from_metadata(location)
        ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        old = self.before[0]
        known = [] if old is None else [one.snapshot_id for one in StaticTable.from_metadata(old).metadata.snapshots]
        expected = known[-1:] if expires else [*known, *ids[len(known) :][:1]]
        if ids != expected or len(ids) != (1 if expires else len(known) + 1) or (not raised and ids[-1] != snapshot_id):
            problems.append(f"the history is {ids} after {known}, the statement's snapshot {snapshot_id}")
        needed = needed_files(table)
        there = {f"file://{path}" for path in files}
        if needed - there:
            problems.append(f"files are missing: {sorted(needed - there)}")
        surplus = there - needed
        if expires and may_leave:
            if surplus != self.orphans():
                problems.append(f"files were left that remove_orphan_files does not find: {sorted(surplus)}")
        elif surplus and not unknown:
            problems.append(f"files were left: {sorted(surplus)}")
        return "after", problems

    @property
    def head(self) -> int | None:
        """The current snapshot, as the catalog's database says."""
        location = self.metadata_location
        return None if location is None else StaticTable.from_metadata(location).metadata.current_snapshot_id

    def orphans(self) -> set[str]:
        """What `remove_orphan_files` would remove if all files and metadata were old, without faults."""
        old = time.time() - OLD_SECONDS
        for path in self.files():
            os.utime(path, (old, old))
        self.catalog.properties[FOLDER] = self.new_faults().folder
        return self.remove_orphans(dry_run=True)

    def remove_orphans(self, *, dry_run: bool = False) -> set[str]:
        """Remove orphan files; earlier metadata, which keeps the files of expired snapshots, counts as old."""
        later = datetime.now(UTC) + timedelta(days=1)
        with mock.patch.object(import_module("dml.maintenance.remove_orphan_files"), "LEAST_AGE", timedelta(days=-2)):
            return set(self.session.remove_orphan_files("db.t", older_than=later, dry_run=dry_run))


def delete_key(table: Table, key: int) -> None:
    """Delete an id by an equality delete, as other engines do."""
    (task,) = [one for one in plan_scan(table, table.metadata.current_snapshot_id).tasks if one.record_count == 1]
    delete = equality_deletes(table, cast("ContentFile", task), key)
    start = table.metadata.current_snapshot_id
    commit(table, RowDelta(command=Command.UPDATE, delete_files=(delete,), starting_snapshot_id=start))


def lake_properties(folder: Path, faults: Faults) -> dict[str, str]:
    """The catalog of a bench."""
    return {
        "py-catalog-impl": f"{FaultyCatalog.__module__}.{FaultyCatalog.__name__}",
        "py-io-impl": f"{FaultyFileIO.__module__}.{FaultyFileIO.__name__}",
        "uri": f"sqlite:///{folder}/catalog.db?timeout=60",
        "warehouse": f"file://{folder}/lake",
        FOLDER: faults.folder,
    }


def wrong_rows(location: str, expected: Mapping[int, str]) -> list[str]:
    """What PyIceberg and DuckDB read otherwise than expected."""
    rows = sorted(repr(row) for row in expected.items())
    readers = {"PyIceberg": read_pyiceberg, "DuckDB": read_duckdb}
    with READING:
        found = {name: read(location) for name, read in readers.items()}
    return [f"{name} reads {read}" for name, read in found.items() if read != rows]


def needed_files(table: StaticTable) -> set[str]:
    """All files that are live in a snapshot of a table or make up its metadata, as PyIceberg reads it."""
    needed = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        needed.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            needed.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            needed.update(entry.data_file.file_path for entry in entries)
    return needed


def said_badly(raised: BaseException | None, hit: Sequence[str]) -> list[str]:
    """What an error should say and does not: which file or table, and what to do; and nothing of Spark's inside."""
    if raised is None:
        return []
    if not isinstance(raised, DmlError):
        return [f"an error that is none of ours: {type(raised).__name__}"]
    text, problems = str(raised), []
    if RAW.search(text):
        problems.append("the error shows what is inside")
    if not (raised.hint or ADVICE.search(text)):  # one that comes from a task has its hint in its text
        problems.append("the error does not say what to do")
    # A file that could not be deleted is no matter: it was, at the next attempt.
    # One that was killed is told as that.
    blamed = [line for line in hit if not line.startswith(Call.DELETE) and f" {Action.KILL} " not in line]
    names = {line.rpartition("/")[2] if "/" in line else "db.t" for line in blamed}
    if any(name.endswith(".metadata.json") for name in names):
        names.add("db.t")  # a table that is loaded or committed: the catalog reads and writes that file
    if names and not any(name in text for name in names):
        problems.append(f"the error names none of {sorted(names)}")
    return problems
