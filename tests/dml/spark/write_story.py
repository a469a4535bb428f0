"""Every way to write, one after the other, on one kind of table; with the rows that each leaves, counted in Python."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

import dml
from tests.dml.connector.streams import Stream
from tests.interop.readers import read_duckdb, read_pyiceberg

__all__ = ["CELLS", "Cell", "Story"]

BUCKETS: Final = 3
LAYOUTS: Final = {"plain": "", "by k": "PARTITIONED BY (k)", "buckets": f"PARTITIONED BY (bucket({BUCKETS}, id))"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A kind of table.

    Attributes:
        file_format: Of its data files and its position deletes.
        version: The format version.
        layout: How it is partitioned.
        mode: Of its row-level statements.
    """

    file_format: str
    version: int
    layout: str
    mode: str = "merge-on-read"

    def __str__(self) -> str:
        return f"{self.file_format}-v{self.version}-{self.layout}".replace(" ", "-")

    @property
    def readers(self) -> list[Any]:
        """Who of the others reads its files: DuckDB only Parquet, PyIceberg no Avro and no deletes in ORC."""
        match self.file_format:
            case "parquet":
                return [read_pyiceberg, read_duckdb]
            case "orc" if self.version > 2:
                return [read_pyiceberg]
            case _:
                return []


CELLS: Final = [
    Cell(file_format=file_format, version=version, layout=layout)
    for file_format, version, layout in itertools.product(("parquet", "orc", "avro"), (2, 3), LAYOUTS)
]


@dataclass
class Story:
    """A table that is written in every way.

    Attributes:
        lake: The session.
        spark: Spark's.
        cell: What kind of table it is.
        name: Its name, with its namespace.
        folder: For the files and checkpoints of streams; it is there.
    """

    lake: dml.Session
    spark: Any
    cell: Cell
    name: str
    folder: Path

    def tell(self) -> None:
        """Write, and look at the rows after each step, with our reader; after some with those of others."""
        properties = {
            "format-version": str(self.cell.version),
            "write.format.default": self.cell.file_format,
            **{f"write.{command}.mode": self.cell.mode for command in ("delete", "update", "merge")},
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        layout = LAYOUTS[self.cell.layout]
        self.lake.sql(f"CREATE TABLE {self.name} (id BIGINT, k STRING) {layout} TBLPROPERTIES ({listed})")
        rows: dict[int, str] = {}
        for number, after in enumerate((*self.additions(rows), *self.changes(rows))):
            assert self.ours() == sorted(after.items()), number
        self.read_by_others(rows)
        for number, after in enumerate(self.replacements(rows)):
            assert self.ours() == sorted(after.items()), number
            self.read_by_others(after)

    def additions(self, rows: dict[int, str]) -> Iterator[dict[int, str]]:
        """Everything that appends."""
        self.lake.sql(f"INSERT INTO {self.name} SELECT id, substr('abc', 1 + id % 3, 1) FROM range(0, 10)")
        yield add(rows, range(10))
        self.frame(range(10, 20)).writeTo(f"lake.{self.name}").append()
        yield add(rows, range(10, 20))
        self.frame(range(20, 30)).write.insertInto(f"lake.{self.name}")
        yield add(rows, range(20, 30))
        self.frame(range(30, 35)).write.mode("append").saveAsTable(f"lake.{self.name}")
        yield add(rows, range(30, 35))
        stream = self.stream("appended", range(35, 38), range(38, 40))
        stream.run(f"lake.{self.name}")
        yield add(rows, range(35, 40))

    def changes(self, rows: dict[int, str]) -> Iterator[dict[int, str]]:
        """Everything that changes rows."""
        self.lake.sql(f"UPDATE {self.name} SET k = 'u' WHERE id % 10 = 1")
        rows.update({key: "u" for key in rows if key % 10 == 1})
        yield rows
        self.lake.sql(f"DELETE FROM {self.name} WHERE id % 10 = 2")
        for key in [key for key in rows if key % 10 == 2]:
            del rows[key]
        yield rows
        self.lake.sql(
            f"MERGE INTO {self.name} t USING (SELECT id, 'm' AS k FROM range(38, 45)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        rows.update(dict.fromkeys(range(38, 45), "m"))
        yield rows
        stream = self.stream("merged", [0, 50], [0, 51], k="s")
        merging = self.lake.stream_merge(stream.frame(), self.name, on=["id"])
        merging = merging.whenMatched().updateAll().whenNotMatched().insertAll().trigger(availableNow=True)
        assert merging.start(str(stream.checkpoint)).awaitTermination(120)
        rows.update(dict.fromkeys((0, 50, 51), "s"))
        yield rows

    def replacements(self, rows: dict[int, str]) -> Iterator[dict[int, str]]:
        """Everything that overwrites."""
        self.frame([70, 71], k="p").writeTo(f"lake.{self.name}").overwritePartitions()
        touched = {self.partition(key, "p") for key in (70, 71)}
        kept = {key: k for key, k in rows.items() if self.partition(key, k) not in touched}
        yield {**kept, 70: "p", 71: "p"}
        self.lake.sql(f"INSERT OVERWRITE {self.name} SELECT id, 'o' FROM range(0, 4)")
        yield dict.fromkeys(range(4), "o")
        self.frame(range(6)).writeTo(f"lake.{self.name}").overwrite(lit(True))
        yield add({}, range(6))
        stream = self.stream("complete", range(3), [2])
        counts = stream.frame().groupBy("id", "k").count().selectExpr("id", "concat(k, count) AS k")
        stream.run(f"lake.{self.name}", counts, "complete")
        yield {0: "a1", 1: "b1", 2: "c2"}

    def partition(self, key: int, k: str) -> Any:
        """The partition of a row."""
        match self.cell.layout:
            case "by k":
                return k
            case "buckets":
                return BucketTransform(BUCKETS).transform(LongType())(key)
            case _:
                return None

    def frame(self, ids: Any, k: str | None = None) -> DataFrame:
        values = [(number, k or "abc"[number % 3]) for number in ids]
        frame: DataFrame = self.spark.createDataFrame(values, "id BIGINT, k STRING")
        return frame

    def stream(self, name: str, *batches: Any, k: str | None = None) -> Stream:
        """A stream of one file for each batch."""
        folder = self.folder / name
        folder.mkdir()
        stream = Stream(self.spark, folder)
        for ids in batches:
            stream.add(id=list(ids), k=[k or "abc"[number % 3] for number in ids])
        return stream

    def ours(self) -> list[tuple[int, str]]:
        return sorted(tuple(row) for row in self.spark.table(f"lake.{self.name}").collect())

    def read_by_others(self, rows: dict[int, str]) -> None:
        """PyIceberg and DuckDB find the rows, as far as they read such files."""
        location = self.lake.registry.catalogs["lake"].load_table(self.name).metadata_location
        for read in self.cell.readers:
            assert read(location) == sorted(repr(row) for row in rows.items()), read.__name__


def add(rows: dict[int, str], ids: Any) -> dict[int, str]:
    rows.update({number: "abc"[number % 3] for number in ids})
    return rows
