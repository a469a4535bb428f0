"""Run as a program: a stream that is appended and one that is merged, killed on the way.

    python -m tests.dml.connector.killed_streams WAREHOUSE FOLDER [between]

With `between` both are killed when each has committed its second micro-batch, before Spark knows it; without, the
program goes on until it is killed from outside, or has no more to read.
"""

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dml
import dml.connector.write
import dml.merge_stream
from tests.conftest import part_settings
from tests.dml.connector.streams import Stream

APPENDED, MERGED = "db.appended", "db.merged"


def start(lake: dml.Session, folder: Path) -> list[Any]:
    """The two queries."""
    appended, merged = Stream(lake.spark, folder / "append"), Stream(lake.spark, folder / "merge")
    writer = appended.writer().trigger(availableNow=True)
    merging = (
        lake.stream_merge(merged.frame(), MERGED, on=["id"]).whenMatched().updateAll().whenNotMatched().insertAll()
    )
    queries = [writer.toTable(f"lake.{APPENDED}")]
    return [*queries, merging.trigger(availableNow=True).start(str(merged.checkpoint))]


def dying(function: Callable[..., Any], last: int, together: threading.Barrier) -> Callable[..., Any]:
    """A function after whose last call the process ends, when the others have come as far."""
    calls = itertools.count(1)

    def call(*arguments: Any, **named: Any) -> Any:
        outcome = function(*arguments, **named)
        if next(calls) == last:
            together.wait(120)
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome

    return call


def main() -> None:
    """Run both to their end, if nothing kills them."""
    warehouse, folder, *how = sys.argv[1:]
    if how:
        together = threading.Barrier(2)
        dml.connector.write.commit_epoch = dying(dml.connector.write.commit_epoch, 2, together)
        # The first time it is planned over no rows.
        dml.merge_stream.merge_rows = dying(dml.merge_stream.merge_rows, 3, together)
    settings = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    lake = dml.connect(warehouse, settings={**settings, **part_settings()}, progress=False)
    for query in start(lake, Path(folder)):
        query.awaitTermination()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
