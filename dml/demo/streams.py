"""The streams of the demo: flights and corrections by day, and a driver that is killed.

Input: the flights, a folder. Output: one table that two streaming queries write concurrently: one appends the flights
of each day, the other merges corrections. Their driver, a separate process, is killed. The demo's session then restarts
the queries from their checkpoints, and the table has every change once.

    python -m dml.demo.streams WAREHOUSE FOLDER

runs the driver that is killed.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table
from rich.console import Console

from dml.active_session import connect
from dml.demo.flights import COLUMNS, corrections, sql_columns
from dml.errors import ExecutionError
from dml.model.summary_keys import EPOCH_ID, QUERY_ID
from dml.session import Session

__all__ = ["MERGED", "TABLE", "stream_days"]

TABLE: Final = "demo.flights_streamed"
DAYS: Final = 3  # days to append before their corrections arrive; then the same number again
PATIENCE: Final = 300.0  # seconds
MERGED: Final = f"""MERGE INTO flights t USING corrections s ON t.flight_id = s.flight_id
    WHEN MATCHED AND s.never_left THEN DELETE
    WHEN MATCHED THEN UPDATE SET dep_delay = s.dep_delay, arr_delay = t.arr_delay + 7
    WHEN NOT MATCHED AND NOT s.never_left THEN
      INSERT ({", ".join(COLUMNS.names)}) VALUES ({", ".join(f"s.{name}" for name in COLUMNS.names)})"""
"""The second stream as one statement, with the clauses of `merging`."""


def stream_days(
    session: Session, warehouse: str, flights: pa.Table, folder: Path, console: Console
) -> tuple[pa.Table, pa.Table]:
    """Let a driver stream flights and corrections into a table, kill it, and finish its queries here.

    Args:
        session: The session with the table, which is empty.
        warehouse: The folder of its catalog.
        flights: All flights.
        folder: The folder for the files of the days, and for checkpoints.
        console: The console to print to.

    Returns:
        The flights and the corrections that were streamed.

    Raises:
        ExecutionError: The driver ended by itself, or made no progress.
    """
    days = [flights.filter((pc.field("month") == 1) & (pc.field("day") == day)) for day in range(1, 2 * DAYS + 1)]
    changes = [corrections(day) for day in days[:DAYS]]
    for name in ("flights", "corrections"):
        (folder / name).mkdir()
    for number, day in enumerate(days[:DAYS]):
        write_file(day, folder / "flights", number)
    with (folder / "driver.log").open("w") as log:
        driver = subprocess.Popen(  # noqa: S603  runs this module
            [sys.executable, "-P", "-m", "dml.demo.streams", warehouse, str(folder)],
            stdout=log,
            stderr=log,
            start_new_session=True,  # the JVM is killed with it
        )
        try:
            wait_for(session, driver, folder, [DAYS])
            for number in range(DAYS):
                write_file(days[DAYS + number], folder / "flights", DAYS + number)
                write_file(changes[number], folder / "corrections", number)
            seen = wait_for(session, driver, folder, [DAYS + 1, 1])
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    console.print(f"  killed the driver after {seen} of {len(days) + len(changes)} micro-batches")
    for query in start_queries(session, folder, at_once=True):
        query.awaitTermination()
    numbers = [len(found) for found in epochs_by_query(load_demo_table(session)).values()]
    console.print(f"  started again: {len(days)} days appended and {len(changes)} merged, in {sum(numbers)} snapshots")
    return pa.concat_tables(days), pa.concat_tables(changes)


def write_file(rows: pa.Table, folder: Path, number: int) -> None:
    """Write a file atomically, because Spark reads every file it finds."""
    unfinished = folder / f".{number:03}"
    pq.write_table(rows, unfinished)
    unfinished.rename(folder / f"{number:03}.parquet")


def start_queries(session: Session, folder: Path, *, at_once: bool) -> list[Any]:
    """Start both queries: a micro-batch for each day.

    Args:
        session: The session that runs them.
        folder: The folder of the days and the checkpoints.
        at_once: End the queries when all existing files are read.
    """
    catalog = session.registry.current_catalog
    when: dict[str, Any] = {"availableNow": True} if at_once else {"processingTime": "0 seconds"}
    read = {name: daily_stream(session, folder, name) for name in ("flights", "corrections")}
    appending = read["flights"].writeStream.option("checkpointLocation", str(folder / "appended"))
    merging = (
        session.stream_merge(read["corrections"], f"{TABLE} t", on=["flight_id"], source_alias="s")
        .whenMatched("s.never_left")
        .delete()
        .whenMatched()
        .update({"dep_delay": "s.dep_delay", "arr_delay": "t.arr_delay + 7"})
        .whenNotMatched("NOT s.never_left")
        .insert({name: f"s.{name}" for name in COLUMNS.names})
    )
    return [
        appending.trigger(**when).toTable(f"{catalog}.{TABLE}"),
        merging.trigger(**when).start(str(folder / "merged")),
    ]


def daily_stream(session: Session, folder: Path, name: str) -> Any:
    """Return the stream of a folder, one file per micro-batch."""
    columns = sql_columns() + (", never_left BOOLEAN" if name == "corrections" else "")
    return session.spark.readStream.schema(columns).option("maxFilesPerTrigger", "1").parquet(str(folder / name))


def load_demo_table(session: Session) -> Table:
    """Load the table."""
    return session.registry.catalogs[session.registry.current_catalog].load_table(TABLE)


def epochs_by_query(table: Table) -> dict[str, list[str]]:
    """Return the micro-batches of a table's snapshots, by query id."""
    found: dict[str, list[str]] = {}
    for snapshot in table.snapshots():
        properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if QUERY_ID in properties:
            found.setdefault(properties[QUERY_ID], []).append(properties[EPOCH_ID])
    return found


def wait_for(session: Session, driver: subprocess.Popen[bytes], folder: Path, counts: list[int]) -> int:
    """Wait until the queries have written the given numbers of micro-batches; return how many they wrote in all.

    Raises:
        ExecutionError: The driver ended, or the time limit passed.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and driver.poll() is None:
        found = sorted(map(len, epochs_by_query(load_demo_table(session)).values()), reverse=True)
        if len(found) >= len(counts) and all(have >= want for have, want in zip(found, counts, strict=False)):
            return sum(found)
        time.sleep(0.2)
    raise ExecutionError(
        "The driver of the demo's streams did not write what it should",
        hint=f"Its log: {(folder / 'driver.log').read_text()[-2_000:]}",
    )


def main() -> None:
    """Run both queries until the process is killed."""
    warehouse, folder = sys.argv[1:]
    session = connect(warehouse, progress=False)
    for query in start_queries(session, Path(folder), at_once=False):
        query.awaitTermination()


if __name__ == "__main__":
    main()
