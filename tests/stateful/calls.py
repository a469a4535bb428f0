"""A table in Spark's catalog under random calls of PySpark, and the rows that it must have.

The rows are Python's, and Spark evaluates conditions on them as on a list of values, without files. After each write:
the table has the model's rows, however it is read; a refused write left the metadata and every folder as they were.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast, col, expr, lit

from dml import limits
from dml.errors import DmlError, NotSupportedError, ValidationFailedError
from dml.session import Session
from tests.stateful.plain_rows import PARTITIONS, Row, frame_of, partition_of, shown
from tests.stateful.values import BASE_COLUMNS, STRUCT, conditions, literals, row_literals

__all__ = ["CallMachine"]

MORE_COLUMNS = {"f": "FLOAT", "flag": "BOOLEAN", "at": "TIMESTAMP", "raw": "BINARY"}
CATALOG = "lake"
ALWAYS = ("uid", "id", "k")


class CallMachine(RuleBasedStateMachine):
    """One table under random calls; a subclass sets the session and the format version."""

    lake: Session
    version: int
    tables = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).tables += 1
        self.short = f"c{self.version}x{type(self).tables}"
        self.name = f"{CATALOG}.db.{self.short}"
        self.spark = self.lake.spark
        self.columns: dict[str, str] = {}
        self.rows: list[Row] = []
        self.partitions = ""
        self.uids = 0
        self.names = 0
        self.states: list[tuple[int, dict[str, str], list[Row]]] = []
        self.followers: list[tuple[DataFrame, dict[str, str]]] = []
        self.fixed: list[tuple[DataFrame, dict[str, str], list[Row]]] = []
        self.patched = pytest.MonkeyPatch()

    # ---- means

    @property
    def model(self) -> DataFrame:
        """The rows as Spark's, without a table."""
        return frame_of(self.spark, self.columns, self.rows)

    @property
    def by_partition(self) -> bool:
        return bool(self.partitions)

    def snapshots(self) -> list[int]:
        table = self.lake.registry.catalogs[CATALOG].load_table(("db", self.short))
        return [snapshot.snapshot_id for snapshot in table.metadata.snapshots]

    def metadata_location(self) -> str:
        return self.lake.registry.catalogs[CATALOG].load_table(("db", self.short)).metadata_location

    def new_rows(self, draw: Any, least: int = 0, most: int = 4) -> list[Row]:
        """Rows that nobody has yet, as Spark makes them of literals."""
        texts = []
        for _ in range(draw(st.integers(least, most))):
            self.uids += 1
            texts.append(draw(row_literals(self.columns, self.uids)))
        if not texts:
            return []
        named = ", ".join(self.columns)
        return [
            tuple(row) for row in self.spark.sql(f"SELECT * FROM VALUES {', '.join(texts)} AS v({named})").collect()
        ]

    def given(self, draw: Any, rows: list[Row], *, by_name: bool = True) -> DataFrame:
        """Rows as a DataFrame that a user could have: in other orders, in more tasks."""
        frame = frame_of(self.spark, self.columns, rows)
        if by_name:
            frame = frame.select(*draw(st.permutations(list(self.columns)), "order of columns"))
        tasks = draw(st.integers(0, 3), "tasks")
        return frame.repartition(tasks) if tasks else frame

    def where(self, draw: Any, qualifier: str = "") -> str:
        return draw(conditions(self.columns, qualifier))

    def rows_where(self, condition: str, *, found: bool) -> list[Row]:
        """The rows for which a condition is true, or those for which it is not."""
        test = f"({condition})" if found else f"NOT coalesce({condition}, FALSE)"
        return [tuple(row) for row in self.model.where(test).collect()]

    def as_they_were(self, write: Callable[[], Any], *allowed: type[DmlError]) -> bool:
        """Run a write that may be refused; True if it was, and then nothing has changed."""
        before = self.metadata_location()
        try:
            write()
        except allowed as error:
            note(f"refused: {error}")
            assert self.metadata_location() == before
            return True
        return False

    def changed(self, rows: list[Row]) -> None:
        """The rows that the table must have now; all that reads it is asked."""
        self.rows = rows
        self.check(self.spark.table(self.name), self.model)
        for identifier in self.snapshots()[-1:]:
            if not self.states or self.states[-1][0] != identifier:
                self.states.append((identifier, dict(self.columns), list(rows)))
        self.check_kept()

    def check(self, ours: DataFrame, model: DataFrame) -> None:
        """Two DataFrames have the same columns and rows."""
        assert ours.columns == model.columns
        expected, found = shown(model), shown(ours)
        assert found == expected, f"too many: {set(found) - set(expected)}; too few: {set(expected) - set(found)}"

    def check_kept(self) -> None:
        """DataFrames of before: some follow the table, some do not."""
        for frame, columns in self.followers:
            if columns == self.columns:
                self.check(frame.select("*"), self.model)  # Spark plans one DataFrame once
        for frame, columns, rows in self.fixed:
            self.check(frame, frame_of(self.spark, columns, rows))

    # ---- the table

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        """By a statement or by a writer, with some rows."""
        draw = data.draw
        optional = [name for name in (*BASE_COLUMNS, *MORE_COLUMNS) if name not in ALWAYS]
        chosen = draw(st.lists(st.sampled_from(optional), min_size=2, max_size=5, unique=True), "columns")
        self.columns = {name: (BASE_COLUMNS | MORE_COLUMNS)[name] for name in (*ALWAYS, *chosen)}
        if draw(st.booleans(), "Spark's own reader"):
            self.patched.setattr(limits, "MIN_SPARK_READER_BYTES", 0)
        self.partitions = self.some_partitions(draw)
        properties = {
            "format-version": str(self.version),
            "write.parquet.row-group-limit": draw(st.sampled_from(("2", "1000")), "rows in a row group"),
            "write.distribution-mode": draw(st.sampled_from(("none", "hash", "range")), "distribution"),
            **{
                f"write.{command}.mode": draw(st.sampled_from(("copy-on-write", "merge-on-read")), command)
                for command in ("delete", "update", "merge")
            },
        }
        rows = self.new_rows(draw, 3, 8)
        if not self.by_partition and draw(st.booleans(), "by a writer"):
            writer = frame_of(self.spark, self.columns, rows).writeTo(self.name).using("iceberg")
            for key, value in properties.items():
                writer = writer.tableProperty(key, value)
            writer.create()
            self.changed(rows)
            return
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        clause = f"PARTITIONED BY ({self.partitions})" if self.by_partition else ""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        note(f"CREATE TABLE {self.name} ({columns}) {clause} TBLPROPERTIES ({listed})")
        self.spark.sql(f"CREATE TABLE {self.name} ({columns}) USING iceberg {clause} TBLPROPERTIES ({listed})")
        self.given(draw, rows).writeTo(self.name).append()
        self.changed(rows)

    def some_partitions(self, draw: Any) -> str:
        fitting = [text for text, fields in PARTITIONS.items() if all(one.column in self.columns for one in fields)]
        return draw(st.sampled_from(fitting), "partitioned by")

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        """The table anew, with other partitions; its history stays."""
        draw = data.draw
        rows = self.new_rows(draw, 1, 4)
        frame = self.given(draw, rows, by_name=False)
        way = draw(st.sampled_from(("createOrReplace", "replace", "saveAsTable")), "replaced by")
        by = draw(st.sampled_from(("", "k")), "partitioned by")
        if way == "saveAsTable":
            writer = frame.write.mode("overwrite").format("iceberg")
            (writer.partitionBy(by) if by else writer).saveAsTable(self.name)
        else:
            creator = frame.writeTo(self.name).using("iceberg")
            getattr(creator.partitionedBy(by) if by else creator, way)()
        self.partitions = by
        self.changed(rows)

    @rule(data=st.data())
    def add_column(self, data: st.DataObject) -> None:
        self.names += 1
        name, kind = f"n{self.names}", data.draw(st.sampled_from(("INT", "STRING", "DOUBLE", "DATE")), "type")
        default = ""
        if self.version >= 3 and kind in {"INT", "STRING"} and data.draw(st.booleans(), "with a default"):
            default = " DEFAULT " + {"INT": "7", "STRING": "'seven'"}[kind]
        self.spark.sql(f"ALTER TABLE {self.name} ADD COLUMN {name} {kind}{default}")
        value = {"INT": 7, "STRING": "seven"}[kind] if default else None
        self.columns = {**self.columns, name: kind}
        self.changed([(*row, value) for row in self.rows])

    @rule(data=st.data())
    def rename_column(self, data: st.DataObject) -> None:
        free = self.free_columns()
        if free:
            old = data.draw(st.sampled_from(free), "renamed")
            self.names += 1
            new = f"r{self.names}"
            self.spark.sql(f"ALTER TABLE {self.name} RENAME COLUMN {old} TO {new}")
            self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}
            self.changed(self.rows)

    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        free = self.free_columns()
        if free:
            gone = data.draw(st.sampled_from(free), "dropped")
            place = list(self.columns).index(gone)
            self.spark.sql(f"ALTER TABLE {self.name} DROP COLUMN {gone}")
            self.columns = {name: kind for name, kind in self.columns.items() if name != gone}
            self.changed([(*row[:place], *row[place + 1 :]) for row in self.rows])

    def free_columns(self) -> list[str]:
        """Columns by which no partitions were ever made."""
        sources = {one.column for fields in PARTITIONS.values() for one in fields}
        return [name for name in self.columns if name not in {*ALWAYS, *sources}]

    # ---- writes

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        """Rows of literals, by every writer that appends."""
        draw = data.draw
        way = draw(st.sampled_from(("writeTo", "saveAsTable", "save", "insertInto", "view")), "appended by")
        rows = self.new_rows(draw)
        frame = self.given(draw, rows, by_name=way in {"writeTo", "saveAsTable", "save"})
        match way:
            case "writeTo":
                frame.writeTo(self.name).append()
            case "saveAsTable":
                frame.write.mode("append").format("iceberg").saveAsTable(self.name)
            case "save":
                frame.write.mode("append").format("iceberg").save(self.name)
            case "insertInto":
                frame.write.insertInto(self.name)
            case _:
                frame.createOrReplaceTempView("given_rows")
                self.spark.sql(f"INSERT INTO {self.name} SELECT * FROM given_rows")
        self.changed([*self.rows, *rows])

    @rule(data=st.data())
    def append_from_itself(self, data: st.DataObject) -> None:
        condition = self.where(data.draw)
        note(f"WHERE {condition}")
        added = 2**20 * (1 + len(self.states))
        frame = self.spark.table(self.name).where(condition).withColumn("uid", col("uid") + added)
        frame.writeTo(self.name).append()
        self.changed([*self.rows, *((row[0] + added, *row[1:]) for row in self.rows_where(condition, found=True))])

    @rule(data=st.data())
    def overwrite(self, data: st.DataObject) -> None:
        """By a condition; what holds for a part of a file, and what Iceberg cannot say exactly, is refused."""
        draw = data.draw
        certain = ["TRUE", "k = 1", "k IN (0, 2) OR k IS NULL"] if self.partitions == "k" else ["TRUE"]
        sure = draw(st.booleans(), "sure")
        condition = draw(st.sampled_from(certain)) if sure else self.where(draw)
        itself = draw(st.booleans(), "by its own rows")
        note(f"overwrite {condition}")
        rows = self.rows_where(self.where(draw), found=True) if itself else self.new_rows(draw)
        kept = self.rows_where(condition, found=False)
        if itself:
            # The same rows, read of the table while it is overwritten.
            listed = ", ".join(str(row[0]) for row in rows) or "-1"
            frame = self.spark.table(self.name).where(f"uid IN ({listed})")
        else:
            frame = self.given(draw, rows)
        chosen = lit(True) if condition == "TRUE" else expr(condition)
        refusals = () if sure else (NotSupportedError, ValidationFailedError)
        if not self.as_they_were(lambda: frame.writeTo(self.name).overwrite(chosen), *refusals):
            self.changed([*kept, *rows])

    @rule(data=st.data())
    def overwrite_partitions(self, data: st.DataObject) -> None:
        """Those of the rows, by all writers that can; of the table's own rows too."""
        draw = data.draw
        way = draw(st.sampled_from(("writeTo", "insertInto", "option", "sql", "itself")), "partitions overwritten by")
        rows = self.rows_where(self.where(draw), found=True) if way == "itself" else self.new_rows(draw)
        gone = {partition_of(row, self.columns, self.partitions) for row in rows}
        kept = [row for row in self.rows if partition_of(row, self.columns, self.partitions) not in gone]
        match way:
            case "writeTo":
                self.given(draw, rows).writeTo(self.name).overwritePartitions()
            case "itself":
                listed = ", ".join(str(row[0]) for row in rows) or "-1"
                self.spark.table(self.name).where(f"uid IN ({listed})").writeTo(self.name).overwritePartitions()
            case "option":
                frame = self.given(draw, rows, by_name=False)
                frame.write.option("overwrite-mode", "dynamic").insertInto(self.name, overwrite=True)
            case _:
                frame = self.given(draw, rows, by_name=False)
                frame.createOrReplaceTempView("given_rows")
                self.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
                try:
                    if way == "sql":
                        self.spark.sql(f"INSERT OVERWRITE {self.name} SELECT * FROM given_rows")
                    else:
                        frame.write.insertInto(self.name, overwrite=True)
                finally:
                    self.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
        self.changed([*kept, *rows])

    @rule(data=st.data())
    def overwrite_all(self, data: st.DataObject) -> None:
        """Without a condition; the rows may be the table's own."""
        draw = data.draw
        way = draw(st.sampled_from(("insertInto", "sql", "save", "itself")), "overwritten by")
        if way == "itself":
            condition = self.where(draw)
            rows = self.rows_where(condition, found=True)
            self.spark.sql(f"INSERT OVERWRITE {self.name} SELECT * FROM {self.name} WHERE {condition}")
            self.changed(rows)
            return
        rows = self.new_rows(draw, 1)
        frame = self.given(draw, rows, by_name=way == "save")
        match way:
            case "insertInto":
                frame.write.insertInto(self.name, overwrite=True)
            case "save":
                frame.write.mode("overwrite").format("iceberg").save(self.name)
            case _:
                frame.createOrReplaceTempView("given_rows")
                self.spark.sql(f"INSERT OVERWRITE {self.name} SELECT * FROM given_rows")
        self.changed(rows)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        condition = self.where(data.draw)
        note(f"DELETE WHERE {condition}")
        kept = self.rows_where(condition, found=False)
        self.spark.sql(f"DELETE FROM {self.name} WHERE {condition}")
        self.changed(kept)

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        condition = self.where(data.draw)
        name = data.draw(st.sampled_from([name for name in self.columns if name != "uid"]), "updated")
        value = data.draw(literals(self.columns[name]))
        note(f"UPDATE SET {name} = {value} WHERE {condition}")
        chosen = f"CASE WHEN {condition} THEN {value} ELSE {name} END"
        after = self.model.withColumn(name, expr(chosen).cast(self.columns[name])).collect()
        self.spark.sql(f"UPDATE {self.name} SET {name} = {value} WHERE {condition}")
        self.changed([tuple(row) for row in after])

    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        """PySpark's own chain, by `uid`, with conditions of both sides."""
        draw = data.draw
        known = (
            draw(st.lists(st.sampled_from(self.rows), max_size=4, unique_by=lambda row: row[0])) if self.rows else []
        )
        new = self.new_rows(draw, 0, 3)
        others = self.new_rows(draw, len(known), len(known))
        source = [(row[0], *other[1:]) for row, other in zip(known, others, strict=True)] + new
        frame = self.given(draw, source).alias("s")
        update = draw(st.sampled_from(("all", "some", "none")), "when matched")
        on_matched = draw(st.one_of(st.none(), conditions(self.columns, "s."), conditions(self.columns, "t.")))
        deleted = draw(st.one_of(st.none(), conditions(self.columns, "t.")), "matched rows deleted where")
        on_new = draw(st.one_of(st.none(), conditions(self.columns, "s.")), "inserted where")
        alone = draw(st.one_of(st.none(), conditions(self.columns, "t.")), "rows without a match deleted where")
        note(f"MERGE: update {update} if {on_matched}, delete if {deleted}, insert if {on_new}, alone {alone}")

        expected = self.merged(source, update, on_matched, deleted, on_new, alone)

        def ours(text: str) -> Any:
            return expr(re.sub(r"\bt\.", f"{self.short}.", text))

        writer = frame.mergeInto(self.name, ours("t.uid = s.uid"))
        if deleted is not None:
            writer = writer.whenMatched(ours(deleted)).delete()
        if update != "none":
            matched = writer.whenMatched(*([] if on_matched is None else [ours(on_matched)]))
            writer = matched.updateAll() if update == "all" else matched.update({"k": expr("s.k")})
        writer = writer.whenNotMatched(*([] if on_new is None else [ours(on_new)])).insertAll()
        if alone is not None:
            writer = writer.whenNotMatchedBySource(ours(alone)).delete()
        writer.merge()
        self.changed(expected)

    def merged(
        self,
        source: list[Row],
        update: str,
        on_matched: str | None,
        deleted: str | None,
        on_new: str | None,
        alone: str | None,
    ) -> list[Row]:
        """What a MERGE leaves, by an outer join."""
        target, given = self.model.alias("t"), frame_of(self.spark, self.columns, source).alias("s")
        action = (
            f"CASE WHEN t.uid IS NULL THEN if({on_new or 'TRUE'}, 'insert', 'leave') "
            f"WHEN s.uid IS NULL THEN if({alone or 'FALSE'}, 'delete', 'keep') "
            f"WHEN {deleted or 'FALSE'} THEN 'delete' WHEN {on_matched or 'TRUE'} THEN 'update' ELSE 'keep' END"
        )
        pairs = target.join(given, expr("t.uid = s.uid"), "full_outer")
        found = pairs.select("t.uid", "s.uid", expr(action)).collect()
        old, new = {row[0]: row for row in self.rows}, {row[0]: row for row in source}
        k = list(self.columns).index("k")
        result = []
        for mine, theirs, what in found:
            if what == "insert" or (what == "update" and update == "all"):
                result.append(new[theirs])
            elif what == "update" and update == "some":
                result.append((*old[mine][:k], new[theirs][k], *old[mine][k + 1 :]))
            elif what in {"update", "keep"}:
                result.append(old[mine])
        return result

    @rule(data=st.data())
    def refused_modes(self, data: st.DataObject) -> None:
        """Modes of a table that is there: `ignore` does nothing, `error` says so."""
        frame = self.given(data.draw, self.new_rows(data.draw, 1))
        before = self.metadata_location()
        frame.write.mode("ignore").format("iceberg").saveAsTable(self.name)
        try:
            frame.write.mode("error").format("iceberg").saveAsTable(self.name)
        except (DmlError, PySparkException) as error:
            note(f"refused: {error}")
        else:
            raise AssertionError("the table was there")
        assert self.metadata_location() == before

    # ---- reads

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """A random query of the table and of the model, by every way to the table."""
        draw = data.draw
        way = draw(st.sampled_from(sorted(WAYS)), "read by")
        query = self.query(draw)
        self.check(query(WAYS[way](self)), query(self.model))

    @rule(data=st.data())
    def read_an_old_state(self, data: st.DataObject) -> None:
        """By the number of its snapshot: the rows and columns of that time."""
        number, columns, rows = data.draw(st.sampled_from(self.states), "state")
        frames = (
            self.spark.read.option("snapshot-id", number).table(self.name),
            self.spark.sql(f"SELECT * FROM {self.name} VERSION AS OF {number}"),
        )
        frame = data.draw(st.sampled_from(frames))
        if set(columns) <= set(frame.columns):
            self.check(frame.select(*columns), frame_of(self.spark, columns, rows))

    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        """DataFrames that are asked again after later writes."""
        condition = self.where(data.draw)
        if data.draw(st.booleans(), "fixed"):
            rows = self.rows_where(condition, found=True)
            self.fixed = [(self.lake.table(f"db.{self.short}").where(condition), dict(self.columns), rows)]
        else:
            self.followers = [(self.spark.table(self.name), dict(self.columns))]

    def query(self, draw: Any) -> Callable[[DataFrame], DataFrame]:
        """Filters, columns, aggregates and joins; each result has one order of columns."""
        first, second = self.where(draw), self.where(draw)
        names = list(self.columns)
        some = draw(st.lists(st.sampled_from(names), min_size=1, unique=True), "columns read")
        expressions = [*some, "k + 1 AS k1", *(f"{name}.a" for name, kind in self.columns.items() if kind == STRUCT)]
        how = draw(st.sampled_from(("inner", "left", "left_semi", "left_anti", "full")), "join")
        key = draw(st.sampled_from(("k", "id")), "key")
        form = draw(st.integers(0, 10), "query")
        limit = draw(st.integers(0, 5), "limit")
        note(f"query {form}: {first} / {second} / {expressions} / {how} {key} / {limit}")

        def joined(frame: DataFrame) -> DataFrame:
            left, right = frame.where(first).alias("l"), frame.where(second).alias("r")
            found = left.join(right, expr(f"l.{key} = r.{key}"), how)
            return found.select("l.uid") if how in {"left_semi", "left_anti"} else found.select("l.uid", "r.uid", "r.k")

        forms: dict[int, Callable[[DataFrame], DataFrame]] = {
            0: lambda frame: frame.where(first),
            1: lambda frame: frame.where(first).selectExpr(*expressions),
            2: lambda frame: frame.where(first).where(second).selectExpr(*expressions),
            3: lambda frame: frame.selectExpr("count(*) AS rows"),
            4: lambda frame: frame.where(first).selectExpr("count(*) AS rows", "sum(uid) AS uids", "max(k) AS k"),
            5: lambda frame: frame.groupBy("k").agg(expr("count(*) AS rows"), expr("min(id) AS id")),
            6: joined,
            7: lambda frame: frame.where(first).orderBy("uid").limit(limit),
            8: lambda frame: frame.select("k", "id").where("k IS NOT NULL OR id > 0").distinct(),
            9: lambda frame: frame.join(broadcast(frame.where(first).select("k").distinct()), "k").select(*names),
            10: lambda frame: frame.where(first).select("uid").union(frame.where(f"NOT ({second})").select("uid")),
        }
        return forms[form]

    def teardown(self) -> None:
        self.patched.undo()
        if self.columns:
            self.spark.sql(f"DROP TABLE {self.name} PURGE")


WAYS: dict[str, Callable[[CallMachine], Any]] = {
    "spark.table": lambda it: it.spark.table(it.name),
    "spark.read.table": lambda it: it.spark.read.table(it.name),
    "load": lambda it: it.spark.read.format("iceberg").load(it.name),
    "spark.sql": lambda it: it.spark.sql(f"SELECT * FROM {it.name}"),
    "lake.table": lambda it: it.lake.table(f"db.{it.short}"),
    "lake.sql": lambda it: it.lake.sql(f"SELECT * FROM db.{it.short}"),
    "VERSION AS OF": lambda it: it.spark.sql(f"SELECT * FROM {it.name} VERSION AS OF {it.states[-1][0]}"),
}
"""Ways to the newest state of a table."""
