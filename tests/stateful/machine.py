"""A table of ours and the same table in DuckDB, changed by the same random statements.

After each statement: the rows are equal (read by us and by PyIceberg), the counts of the result are right, a failed
statement left the metadata and every folder as they were, and on version 3 row ids and sequence numbers are kept,
new and grown as the specification says. At the end no file lies in the table's folder that no snapshot names.
"""

from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyiceberg.table import Table

from dml.errors import DmlError
from dml.manifests.read import entries_of, manifests_of
from dml.result import Result
from dml.session import Session
from dml.spark.versions import arrow_table
from tests.stateful.duck import Duck, canonical_rows
from tests.stateful.merges import Merge, merges
from tests.stateful.values import BASE_COLUMNS, STRUCT, conditions, literals, new_values, row_literals

__all__ = ["TableMachine"]

PARTITIONINGS = {
    "": (),
    "k": ("k",),
    "bucket(3, id)": ("id",),
    "days(ts)": ("ts",),
    "truncate(2, s)": ("s",),
    "bucket(2, id), days(dt)": ("id", "dt"),
    "truncate(2, s), k": ("s", "k"),
}
NEW_FIELDS = ("k", "bucket(2, id)", "months(ts)", "truncate(1, s)", "truncate(2, id)", "days(dt)", "bucket(2, m)")
MODES = ("copy-on-write", "merge-on-read")


@dataclass
class Expected:
    """What a statement does, by the model.

    Attributes:
        deleted: `uid`s of the rows that go.
        updated: `uid`s of the rows that are updated, with the `uid` that they have afterwards.
        inserted: How many rows are new.
        fails: Whether the statement must fail.
    """

    deleted: set[int] = field(default_factory=set)
    updated: dict[int, int] = field(default_factory=dict)
    inserted: int = 0
    fails: bool = False


class TableMachine(RuleBasedStateMachine):
    """One table under random statements; a subclass sets the session, the format version and the first mode."""

    lake: Session
    version: int
    mode: str
    tables = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).tables += 1
        self.name = f"db.t{self.version}{self.mode[0]}{self.tables}"
        self.duck = Duck()
        self.columns = dict(BASE_COLUMNS)
        self.fixed = {"uid"}  # columns that stay: partition fields, of any spec, come from them
        self.uids = 0
        self.names = 0
        self.lineage: dict[int, tuple[int | None, int | None]] = {}
        self.seen_ids: set[int] = set()
        self.evolved = False

    # ---- means

    def table(self) -> Table:
        return self.lake.registry.catalogs["lake"].load_table(tuple(self.name.split(".")))

    def folder(self) -> Path:
        return Path(self.table().location().removeprefix("file://"))

    def files(self) -> set[Path]:
        return {path for path in self.folder().rglob("*") if path.is_file()}

    def next_uid(self) -> int:
        self.uids += 1
        return self.uids

    def new_rows(self, draw, least: int = 1, most: int = 4) -> list[str]:
        count = draw(st.integers(least, most))
        return [draw(row_literals(self.columns, self.next_uid())) for _ in range(count)]

    def uids_where(self, condition: str) -> set[int]:
        return {row[0] for row in self.duck.values(f"SELECT t.uid FROM {self.name} t WHERE {condition}")}

    def current(self, prefix: str) -> str:
        """The name that a column has by now."""
        return next(name for name in self.columns if name.startswith(prefix))

    # ---- statements

    @initialize(data=st.data())
    def create(self, data) -> None:
        """A table with some rows."""
        partitioning = data.draw(st.sampled_from(tuple(PARTITIONINGS)), "partitioned by")
        self.fixed |= set(PARTITIONINGS[partitioning])
        granularity = data.draw(st.sampled_from(("file", "partition")), "granularity")
        properties = {
            "format-version": str(self.version),
            "write.delete.granularity": granularity,
            "write.parquet.row-group-limit": data.draw(st.sampled_from(("2", "1000")), "rows in a row group"),
            **{f"write.{command}.mode": self.mode for command in ("delete", "update", "merge")},
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        clause = f"PARTITIONED BY ({partitioning})" if partitioning else ""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        note(f"CREATE TABLE ... {clause} TBLPROPERTIES ({listed})")
        self.lake.sql(f"CREATE TABLE {self.name} ({columns}) {clause} TBLPROPERTIES ({listed})")
        self.duck.run(f"CREATE TABLE {self.name} ({columns})")
        rows = self.new_rows(data.draw, 3, 8)
        self.run(f"INSERT INTO {self.name} VALUES {', '.join(rows)}", Expected(inserted=len(rows)))

    @rule(data=st.data())
    def insert(self, data) -> None:
        rows = self.new_rows(data.draw)
        self.run(f"INSERT INTO {self.name} VALUES {', '.join(rows)}", Expected(inserted=len(rows)))

    @rule(data=st.data())
    def insert_some_columns(self, data) -> None:
        optional = [name for name in self.columns if name != "uid"]
        chosen = data.draw(st.lists(st.sampled_from(optional), unique=True, max_size=3))
        values = ", ".join([str(self.next_uid()), *(data.draw(literals(self.columns[name])) for name in chosen)])
        self.run(f"INSERT INTO {self.name} ({', '.join(['uid', *chosen])}) VALUES ({values})", Expected(inserted=1))

    @rule(data=st.data())
    def insert_from_itself(self, data) -> None:
        condition = data.draw(conditions(self.columns, "t."))
        base = self.uids
        self.uids *= 2
        found = self.uids_where(condition)
        rest = ", ".join(f"t.{name}" for name in self.columns if name != "uid")
        query = f"SELECT t.uid + {base}, {rest} FROM {self.name} t WHERE {condition}"
        self.run(f"INSERT INTO {self.name} {query}", Expected(inserted=len(found)))

    def where(self, draw) -> str:
        """A condition of DELETE or UPDATE, with or without subqueries."""
        plain = draw(conditions(self.columns, "t."))
        form = draw(st.integers(0, 8))
        if form <= 4:
            return plain
        inner = draw(conditions(self.columns, "x."))
        k, key = self.current("k"), self.current("id")
        subquery = {
            5: f"t.{key} IN (SELECT x.{key} FROM {self.name} x WHERE {inner})",
            6: f"t.{key} NOT IN (SELECT x.{key} FROM {self.name} x WHERE {inner})",
            7: f"EXISTS (SELECT 1 FROM {self.name} x WHERE x.{k} = t.{k} AND x.uid <> t.uid AND {inner})",
            8: f"t.{key} = (SELECT max(x.{key}) FROM {self.name} x WHERE x.{k} = t.{k})",
        }[form]
        return draw(st.sampled_from((subquery, f"{subquery} AND {plain}", f"{plain} OR {subquery}")))

    @rule(data=st.data())
    def delete(self, data) -> None:
        condition = self.where(data.draw)
        self.run(f"DELETE FROM {self.name} AS t WHERE {condition}", Expected(deleted=self.uids_where(condition)))

    @rule(data=st.data())
    def update(self, data) -> None:
        condition = self.where(data.draw)
        ours, model = self.assignments(data.draw, ("t.",))
        updated = {uid: uid for uid in self.uids_where(condition)}
        head, tail = f"UPDATE {self.name} AS t SET ", f" WHERE {condition}"
        self.run(head + ours + tail, Expected(updated=updated), head + model + tail)

    def assignments(self, draw, qualifiers: tuple[str, ...]) -> tuple[str, str]:
        """A SET list for us, and the same for DuckDB, which assigns no nested fields."""
        names = [name for name in self.columns if name != "uid"]
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        ours, model = [], []
        for name in chosen:
            kind = self.columns[name]
            if kind == STRUCT and draw(st.booleans()):
                part = draw(st.sampled_from(("a", "b")))
                column = draw(st.sampled_from(qualifiers)) + name
                value = draw(st.one_of(literals("INT" if part == "a" else "STRING"), st.just(f"{column}.{part}")))
                parts = {one: f"{qualifiers[0]}{name}.{one}" for one in ("a", "b")} | {part: value}
                ours.append(f"{name}.{part} = {value}")
                model.append(f"{name} = named_struct('a', {parts['a']}, 'b', {parts['b']})")
                continue
            value = draw(new_values(name, kind, self.columns, qualifiers, self.name))
            ours.append(f"{name} = {value}")
            model.append(f"{name} = {value}")
        return ", ".join(ours), ", ".join(model)

    @rule(data=st.data())
    def merge(self, data) -> None:
        merge = data.draw(merges(self))
        expected = self.expected_of(merge)
        if len(set(expected.updated.values())) == len(expected.updated):  # else UPDATE SET * gives two rows one uid
            self.run(merge.ours, expected, merge.model)

    def expected_of(self, merge: Merge) -> Expected:
        """What a MERGE does, found with joins."""
        matched = self.duck.values(
            f"SELECT t.uid, s.uid, {merge.action('MATCHED')} FROM {self.name} t JOIN {merge.source} ON {merge.on}"
        )
        alone = self.duck.values(
            f"SELECT t.uid, t.uid, {merge.action('NOT MATCHED BY SOURCE')} FROM {self.name} t "
            f"WHERE NOT EXISTS (SELECT 1 FROM {merge.source} WHERE {merge.on})"
        )
        new = self.duck.values(
            f"SELECT s.uid, {merge.action('NOT MATCHED')} FROM {merge.source} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self.name} t WHERE {merge.on})"
        )
        twice = len({target for target, _, _ in matched}) < len(matched)
        expected = Expected(fails=merge.checks_cardinality and twice, inserted=sum(row[1] is not None for row in new))
        for target, source, action in (*matched, *alone):
            if action == "DELETE":
                expected.deleted.add(target)
            elif action == "UPDATE *":
                expected.updated[target] = source
            elif action == "UPDATE":
                expected.updated[target] = target
        return expected

    @rule()
    def truncate(self) -> None:
        self.run(f"TRUNCATE TABLE {self.name}", Expected(deleted=self.uids_where("TRUE")), f"DELETE FROM {self.name}")

    @rule(data=st.data())
    def insert_overwrite(self, data) -> None:
        rows = self.new_rows(data.draw, 1, 3)
        values = f"VALUES {', '.join(rows)}"
        before = self.uids_where("TRUE")
        self.run(
            f"INSERT OVERWRITE {self.name} {values}",
            Expected(deleted=before, inserted=len(rows)),
            f"DELETE FROM {self.name}",
            f"INSERT INTO {self.name} {values}",
        )

    # ---- the table's definition

    @rule(data=st.data())
    def add_column(self, data) -> None:
        self.names += 1
        name, kind = f"n{self.names}", data.draw(st.sampled_from(("INT", "STRING", "DOUBLE")))
        default = ""
        if self.version >= 3 and data.draw(st.booleans()):
            default = " DEFAULT " + {"INT": "7", "STRING": "'seven'", "DOUBLE": "7.5D"}[kind]
        self.alter(f"ADD COLUMN {name} {kind}{default}", f"ADD COLUMN {name} {kind}{default.replace('7.5D', '7.5')}")
        self.columns[name] = kind

    @rule(data=st.data())
    def rename_column(self, data) -> None:
        old = data.draw(st.sampled_from([name for name in self.columns if name != "uid"]))
        self.names += 1
        new = f"{old.partition('_')[0]}_{self.names}"
        self.alter(f"RENAME COLUMN {old} TO {new}")
        self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}
        if old in self.fixed:
            self.fixed.add(new)

    @rule(data=st.data())
    def drop_column(self, data) -> None:
        kept = {self.current("k"), self.current("id")}
        droppable = [name for name in self.columns if name not in self.fixed | kept]
        if droppable:
            name = data.draw(st.sampled_from(droppable))
            self.alter(f"DROP COLUMN {name}")
            del self.columns[name]

    @precondition(lambda self: self.columns[self.current("k")] == "INT")
    @rule()
    def widen_column(self) -> None:
        name = self.current("k")
        self.alter(f"ALTER COLUMN {name} TYPE BIGINT")
        self.columns[name] = "BIGINT"

    @rule(data=st.data())
    def evolve_partitions(self, data) -> None:
        fields = [str(field.name) for field in self.table().spec().fields]
        if fields and data.draw(st.booleans()):
            self.alter(f"DROP PARTITION FIELD {data.draw(st.sampled_from(fields))}", None)
        else:
            added = data.draw(st.sampled_from(NEW_FIELDS))
            source = added.rpartition(" ")[2].rpartition("(")[2].rstrip(")")
            present = next((name for name in self.columns if name.partition("_")[0] == source), None)
            if present is None:
                return
            added = (
                added[: len(added) - len(source)] + present
                if "(" not in added
                else (added.replace(f"{source})", f"{present})"))
            )
            try:
                self.alter(f"ADD PARTITION FIELD {added}", None)
            except DmlError as error:
                note(f"refused: {error}")  # there already, or its name is
                return
            self.fixed.add(present)
        self.evolved = True

    @rule(data=st.data())
    def set_modes(self, data) -> None:
        command = data.draw(st.sampled_from(("delete", "update", "merge")))
        mode = data.draw(st.sampled_from((*MODES, "auto")))
        if mode == "auto":  # tables are small: of a tenth of their rows none could be marked
            self.alter(
                "SET TBLPROPERTIES ('write.auto.enabled' = 'true', 'write.auto.max-deleted-ratio' = '0.6')", None
            )
        else:
            self.alter(f"SET TBLPROPERTIES ('write.auto.enabled' = 'false', 'write.{command}.mode' = '{mode}')", None)

    @precondition(lambda self: self.version == 2 and self.table().format_version == 2)
    @rule()
    def upgrade(self) -> None:
        self.alter("SET TBLPROPERTIES ('format-version' = '3')", None)

    def alter(self, clause: str, model: str | None = "") -> None:
        """ALTER TABLE on both sides; None leaves DuckDB's table alone."""
        note(f"ALTER TABLE {self.name} {clause}")
        self.lake.sql(f"ALTER TABLE {self.name} {clause}")
        if model is not None:
            self.duck.run(f"ALTER TABLE {self.name} {model or clause}")

    # ---- one statement, and what is checked after it

    def run(self, ours: str, expected: Expected, *model: str) -> None:
        """Run a statement on both sides and compare.

        Args:
            ours: The statement.
            expected: What it does.
            *model: What DuckDB runs instead, if it is not the same text.
        """
        note(ours)
        fails = expected.fails or not self.model_runs(model or (ours,))
        if fails:
            self.check_failure(ours)
            return
        before = self.table().current_snapshot()
        result = self.lake.sql(ours)
        assert isinstance(result, Result)
        note(repr(result))
        self.check_counts(result, expected)
        self.check_rows(ours)
        table = self.table()
        after = table.current_snapshot()
        changes = bool(expected.deleted or expected.updated or expected.inserted)
        if changes:
            assert after != before, "a change makes a snapshot"
        elif after != before:
            # Whole files go by metadata also if all of their rows had been deleted before.
            assert result.mode == "metadata", "without a change there is no snapshot"
            assert result.data_files_removed, "without a change there is no snapshot"
        if table.format_version >= 3:
            self.check_lineage(expected, 0 if after is None else after.sequence_number or 0)

    def model_runs(self, statements: tuple[str, ...]) -> bool:
        """Run the model's statements; False if they fail, which changes nothing."""
        self.duck.run("BEGIN")
        try:
            for statement in statements:
                self.duck.run(statement)
        except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            note(f"DuckDB: {error}")
            self.duck.run("ROLLBACK")
            return False
        self.duck.run("COMMIT")
        return True

    def check_failure(self, ours: str) -> None:
        """A failed statement leaves metadata and files as they were."""
        location, files = self.table().metadata_location, self.files()
        try:
            self.lake.sql(ours)
        except DmlError as error:
            note(f"fails as it must: {error}")
        else:
            raise AssertionError(f"must fail: {ours}")
        assert self.table().metadata_location == location
        assert self.files() == files
        self.check_rows(ours)

    def check_counts(self, result: Result, expected: Expected) -> None:
        """The result's counts are the model's."""
        if result.rows_deleted is not None and not result.command.startswith("INSERT"):
            assert result.rows_deleted == len(expected.deleted)
        assert result.rows_updated == len(expected.updated)
        assert result.rows_inserted == expected.inserted

    def check_rows(self, ours: str) -> None:
        """Our reader and PyIceberg's find the model's rows."""
        rows = self.duck.rows(self.name)
        mine = canonical_rows(arrow_table(self.lake.sql(f"SELECT * FROM {self.name}")))
        assert mine == rows, ours
        assert canonical_rows(self.table().scan().to_arrow()) == rows, f"as PyIceberg reads: {ours}"

    def check_lineage(self, expected: Expected, sequence_number: int) -> None:
        """Row ids stay with their rows and are never used again; sequence numbers tell who was updated when."""
        found = self.lake.sql(f"SELECT uid, _row_id, _last_updated_sequence_number FROM {self.name}").collect()
        now = {row[0]: (row[1], row[2]) for row in found}
        ids = [row_id for row_id, _ in now.values() if row_id is not None]
        assert len(ids) == len(set(ids)), "row ids are unique"
        origin = {after: before for before, after in expected.updated.items()}
        for uid, (row_id, number) in now.items():
            before = self.lineage.get(origin.get(uid, uid))
            if before is None or before[0] is None:
                assert row_id is None or row_id not in self.seen_ids, f"the id of row {uid} is new"
                continue
            assert row_id == before[0], f"row {uid} keeps its id"
            if uid in origin:
                assert number == sequence_number, f"row {uid} was updated now"
            else:
                assert number == before[1], f"row {uid} was not updated"
        if expected.inserted or expected.updated or expected.deleted:
            assert None not in {row_id for row_id, _ in now.values()}, "a commit gives every row an id"
        self.lineage = now
        self.seen_ids |= set(ids)

    def teardown(self) -> None:
        """Nothing lies in the folder that no snapshot names."""
        if not self.lineage and not self.duck.values("SELECT 1 FROM duckdb_tables()"):
            return
        table = self.table()
        named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.metadata.snapshots:
            named.add(snapshot.manifest_list)
            for manifest in manifests_of(table.io, snapshot):
                named.add(manifest.manifest_path)
                named |= {entry.data_file.path for entry in entries_of(manifest, table.io)}
        left = {str(path) for path in self.files()} - {path.removeprefix("file://") for path in named}
        assert not left, "every file belongs to a snapshot"
