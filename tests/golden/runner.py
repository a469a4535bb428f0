"""Runs a golden script in one combination of format version, mode and partitioning, through one door. Driver.

The tables that a script begins with are made once for each format version and partitioning, and registered under their
names again for the next mode, or the next script that begins alike: a row-level statement is what is tested, and what
takes the time.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml.options import Command
from dml.spark.versions import arrow_table
from tests.golden.doors import Door, Entrance, Outcome
from tests.golden.readers import READ
from tests.golden.script import Combination, Expectation, ExpectationKind, Script, Step
from tests.golden.values import rendered_rows

__all__ = ["GoldenRunner"]

NAMESPACE = "db"
TARGET = ("db", "t")
SETTING = re.compile(r"SET\s+(?P<key>[\w.]+)\s*=\s*(?P<value>\S+)")
UNSET = re.compile(r"RESET\s+(?P<key>[\w.]+)")
VIEW = re.compile(r"CREATE\s+OR\s+REPLACE\s+TEMPORARY\s+VIEW\s+(?P<name>\w+)")
CREATE = re.compile(r"CREATE\s+TABLE\s+(?P<table>[\w.]+)\s*\(", re.IGNORECASE)
MAKES_TABLES = re.compile(r"(CREATE\s+TABLE|INSERT\s+INTO)\s+\w+\.\w+\b(?!\s+WITH)", re.IGNORECASE)

TableKey = tuple[tuple[str, ...], int, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What must not change when a statement fails or does nothing."""

    metadata_location: str
    files: frozenset[str]
    snapshots: frozenset[int]


@dataclass(slots=True, kw_only=True)
class GoldenRunner:
    """Runs scripts.

    Attributes:
        catalog: The catalog `lake`.
        doors: The ways into its tables, all with one session of Spark.
        make: Runs the statements that make the tables that scripts begin with.
        files_of: Lists the files of a table.
        properties: Further properties of new tables of a format version.
        readers: Other engines' readings of a table, by its metadata file.
        keeps_files: Whether the files of a table that was dropped stay, so that it can be registered again.
        made: Metadata locations of tables that were made, by what made them.
        views: Temporary views that the running script made.
        before: The session's settings that the running script changed, as they were; None for one that was not set.
        read: The metadata file of db.t that all other readers have read, and the rows that they saw.
        door: The one that the running script goes through.
    """

    catalog: Catalog
    doors: Mapping[Door, Entrance]
    make: Callable[[str], object]
    files_of: Callable[[Table], Collection[str]] = field(default_factory=lambda: local_files)
    properties: Callable[[int], Mapping[str, str]] = field(default_factory=lambda: no_properties)
    readers: Mapping[str, Callable[[str], pa.Table]] = field(default_factory=lambda: READ)
    keeps_files: bool = True
    made: dict[TableKey, dict[str, str]] = field(default_factory=dict)
    views: set[str] = field(default_factory=set)
    before: dict[str, str | None] = field(default_factory=dict)
    read: tuple[str, list[str]] | None = None
    door: Entrance = field(init=False)

    def __post_init__(self) -> None:
        self.door = next(iter(self.doors.values()))

    def run(self, script: Script, combination: Combination, door: Door) -> None:
        """Run a script.

        Raises:
            AssertionError: an expectation does not hold.
        """
        prefix = leading_tables(script)
        self.door = self.doors[door]
        with self.clean(), self.door.opened():
            self.make_tables(tuple(step.sql for step in prefix), combination)
            for step in script.steps[len(prefix) :]:
                try:
                    self.step(script, step, combination, door)
                except Exception as failure:
                    failure.add_note(f"{script.path.name}:{step.line} [{combination}, {door}]: {step.sql}")
                    raise
            self.check_readers(script)

    # ---- tables

    @contextmanager
    def clean(self) -> Iterator[None]:
        """An empty namespace before, the session's settings and views as they were after."""
        self.catalog.create_namespace_if_not_exists(NAMESPACE)
        for identifier in self.catalog.list_tables(NAMESPACE):
            self.catalog.drop_table(identifier)
        self.read = None
        try:
            yield
        finally:
            for key, value in self.before.items():
                self.configure(key, value)
            self.before.clear()
            for view in self.views:
                self.door.spark.catalog.dropTempView(view)
            self.views.clear()

    def configure(self, key: str, value: str | None) -> None:
        """Set a setting of the session, or unset it."""
        if value is None:
            self.door.spark.conf.unset(key)
        else:
            self.door.spark.conf.set(key, value)

    def change_setting(self, key: str, value: str | None) -> None:
        """The same for the running script."""
        self.before.setdefault(key, self.door.spark.conf.get(key, None))
        self.configure(key, value)

    def make_tables(self, statements: tuple[str, ...], combination: Combination) -> None:
        """The tables that a script begins with, in this combination."""
        key = (statements, combination.version, combination.partitioning)
        if not self.keeps_files or key not in self.made:
            for statement in statements:
                self.make(self.created(statement, combination))
            tables = self.catalog.list_tables(NAMESPACE)
            self.made[key] = {name[-1]: self.catalog.load_table(name).metadata_location for name in tables}
        else:
            for name, location in self.made[key].items():
                self.catalog.register_table((NAMESPACE, name), location)
        if "t" in self.made[key]:
            properties = ", ".join(f"'write.{command}.mode' = '{combination.mode}'" for command in Command)
            self.make(f"ALTER TABLE db.t SET TBLPROPERTIES ({properties})")

    def created(self, statement: str, combination: Combination) -> str:
        """A CREATE TABLE with the combination's format version, and its partitioning for db.t; others as they are."""
        found = CREATE.match(statement)
        if found is None:
            return statement
        if found["table"] == "db.t" and combination.partitioning and "PARTITIONED BY" not in statement:
            statement += f"\nPARTITIONED BY ({combination.partitioning})"
        properties = {"format-version": str(combination.version), **self.properties(combination.version)}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        return f"{statement}\nTBLPROPERTIES ({listed})"

    def table(self, identifier: tuple[str, ...] = TARGET) -> Table:
        """A table as it is now."""
        return self.catalog.load_table(identifier)

    def state(self) -> TableState | None:
        """The state of db.t, if it is there."""
        if not self.catalog.table_exists(TARGET):
            return None
        table = self.table()
        return TableState(
            metadata_location=table.metadata_location,
            files=frozenset(self.files_of(table)),
            snapshots=frozenset(snapshot.snapshot_id for snapshot in table.snapshots()),
        )

    # ---- statements

    def step(self, script: Script, step: Step, combination: Combination, door: Door) -> None:
        """Run a statement and check what is expected of it."""
        before = self.state()
        words = combination.words | {str(door)}
        errors = step.expected(words, ExpectationKind.ERROR)
        if errors:
            self.check_error(step, errors[0])
            assert self.state() == before, "the statement failed, and yet the table or its folder changed"
            return
        outcome = self.execute(step.sql, combination)
        if step.expected(words, ExpectationKind.UNCHANGED):
            assert self.state() == before, "the statement should change nothing, and the table or its folder changed"
            assert outcome.facts is None or outcome.facts.get("changed", "False") == "False"
        elif any(e.kind is ExpectationKind.SNAPSHOT for e in step.expectations):
            assert self.state() != before, "the statement made no snapshot"
        for expectation in step.expected(words, ExpectationKind.RESULT):
            self.check_result(outcome, expectation)
        for expectation in step.expected(words, ExpectationKind.SNAPSHOT):
            self.check_snapshot(before, outcome, expectation)
        for expectation in step.expected(words, ExpectationKind.ROWS):
            self.check_rows(script, step, outcome, expectation)

    def execute(self, sql: str, combination: Combination) -> Outcome:
        """Run a statement; settings are made here."""
        unset = UNSET.fullmatch(sql)
        if unset is not None:
            self.change_setting(unset["key"], None)
            return Outcome()
        setting = SETTING.fullmatch(sql)
        if setting is not None:
            self.change_setting(setting["key"], setting["value"])
            return Outcome()
        view = VIEW.match(sql)
        if view is not None:
            self.views.add(view["name"])
        return self.door.run(self.created(sql, combination))

    # ---- expectations

    def check_error(self, step: Step, expectation: Expectation) -> None:
        """The statement fails as expected, as far as the door transports errors."""
        name, kind = expectation.head.split()
        try:
            outcome = self.door.run(step.sql)
            if outcome.frame is not None:
                outcome.frame.collect()
        except Exception as error:  # noqa: BLE001  the door tells what it is
            failure = self.door.failure(error)
        else:
            raise AssertionError(f"the statement succeeded, expected {name}: {outcome!r}")
        assert (failure.name, failure.kind or kind) == (name, kind), failure.text
        assert expectation.text.lower() in failure.text.lower(), failure.text

    def check_result(self, outcome: Outcome, expectation: Expectation) -> None:
        """The attributes of the statement's `Result` that the door transports."""
        assert outcome.facts is not None, "the statement has no result"
        wanted = {key: value for key, value in expectation.pairs.items() if key in outcome.facts}
        got = {key: outcome.facts[key] for key in wanted}
        assert got == wanted, f"{got} is not {wanted}"

    def check_snapshot(self, before: TableState | None, outcome: Outcome, expectation: Expectation) -> None:
        """Check the summary of the snapshot that the statement made, and that its result names the snapshot."""
        table = self.table()
        assert before is not None
        assert table.metadata_location != before.metadata_location
        snapshot = table.metadata.snapshots[-1]
        assert snapshot.snapshot_id not in before.snapshots, "the statement made no snapshot"
        if outcome.facts and "snapshot_id" in outcome.facts:
            assert outcome.facts["snapshot_id"] == str(snapshot.snapshot_id)
        assert snapshot.summary is not None
        summary = {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}
        got = {key: summary.get(key, "absent") for key in expectation.pairs}
        assert got == expectation.pairs, f"{got} is not {expectation.pairs}"

    def check_rows(self, script: Script, step: Step, outcome: Outcome, expectation: Expectation) -> None:
        """Rows: of a query, of the statement itself if it is one, else of db.t, as other engines read it."""
        wanted = sorted(expectation.rows)
        if expectation.text:
            got = self.query_rows(expectation.text)
            assert got == wanted, f"{got} is not {wanted}"
        elif outcome.frame is not None and outcome.frame.columns:
            got = rendered_rows(arrow_table(outcome.frame))
            assert got == wanted, f"{got} is not {wanted}"
        else:
            for reader in script.readers or ("ours",):
                got = self.rows_by(reader)
                assert got == wanted, f"read by {reader}: {got} is not {wanted}"
            self.read = (self.table().metadata_location, wanted) if script.readers else None

    def query_rows(self, query: str) -> list[str]:
        """Return the rows of a query through the door."""
        return rendered_rows(self.door.query(query))

    def rows_by(self, reader: str) -> list[str]:
        """Rows of db.t as one reader sees them."""
        if reader == "ours":
            return self.query_rows("SELECT * FROM db.t")
        return rendered_rows(self.readers[reader](self.table().metadata_location))

    def check_readers(self, script: Script) -> None:
        """In the end all readers see the rows that we see."""
        if self.catalog.table_exists(TARGET):
            ours = self.rows_by("ours")
            if self.read == (self.table().metadata_location, ours):
                return  # they read it a moment ago
            for reader in script.readers:
                assert self.rows_by(reader) == ours, f"{reader} reads other rows than we do"


def local_files(table: Table) -> list[str]:
    """The files below the table's folder."""
    return [str(path) for path in Path(table.location().removeprefix("file://")).rglob("*") if path.is_file()]


def no_properties(_: int) -> Mapping[str, str]:
    """None beside the format version."""
    return {}


def leading_tables(script: Script) -> tuple[Step, ...]:
    """The steps at a script's beginning that make tables and have no expectation."""
    count = 0
    for step in script.steps:
        if step.expectations or not MAKES_TABLES.match(step.sql):
            break
        count += 1
    return script.steps[:count]
