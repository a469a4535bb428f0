"""Streaming queries for tests: files as a source, a checkpoint that can be set back."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

__all__ = ["Stream"]

BEGINNING = int(time.time()) - 100_000
"""The time of the first file."""


@dataclass
class Stream:
    """A folder of files that is read as a stream, a file for each micro-batch, and the checkpoint of its query.

    Attributes:
        spark: The session.
        folder: Where both are.
        schema: The columns of the files.
    """

    spark: SparkSession
    folder: Path
    schema: str = "id bigint, k string"
    files: list[Path] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def add(self, **columns: list[Any]) -> None:
        """A file, and so a micro-batch, of the next run."""
        source = self.folder / "in"
        source.mkdir(exist_ok=True)
        path = source / f"{len(self.files):04}.parquet"
        pq.write_table(pa.table(columns), path.with_suffix(".new"))
        # Spark reads files in the order of their times, which may be the same for two that are written in a row.
        written = BEGINNING + len(self.files)
        os.utime(path.with_suffix(".new"), (written, written))
        path.with_suffix(".new").rename(path)
        self.files.append(path)

    def frame(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", "1")
        return reader.option("pathGlobFilter", "*.parquet").parquet(str(self.folder / "in"))

    def writer(self, frame: DataFrame | None = None, **options: str) -> Any:
        stream = self.frame() if frame is None else frame
        return stream.writeStream.options(checkpointLocation=str(self.checkpoint), **options)

    def run(self, table: str, frame: DataFrame | None = None, mode: str = "append", **options: str) -> Any:
        """All that there is, into a table; the query, which has ended."""
        query = self.writer(frame, **options).outputMode(mode).trigger(availableNow=True).toTable(table)
        assert query.awaitTermination(120)
        return query

    def forget(self, *numbers: int) -> None:
        """As after a kill between the commit of a micro-batch and that of the checkpoint."""
        for number in numbers:
            (self.checkpoint / "commits" / str(number)).unlink()
            (self.checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
