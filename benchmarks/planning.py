"""Planning a scan of a table with many files, timed: one JSON line for each engine.

    python -m benchmarks.planning [--files 100000] [--manifests 50] [--rounds 5] [--changes] [--java COMMAND]

Only metadata is written: the bounds of the files rule all of them out, while partition values prune none. `first` is
the first query of the table, after queries of another one; `following` is the median of the others. `first_cpu` and
`following_cpu` are the CPU seconds of RowDelta's driver process. `--changes` adds INSERT, DELETE (merge-on-read) and
UPDATE of a few rows in one partition, without merging manifests: medians, and the number of metadata files that
RowDelta opened.
"""

import argparse
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import FileIO

from benchmarks.metadata_tables import many_files
from benchmarks.peers import Program, add_peer_options, start_programs
from benchmarks.processes import PeakMemory
from benchmarks.runs import make_parser, run_benchmark, seconds_of
from dml.manifests import read

QUERY = "SELECT count(*) FROM {table} WHERE c0 = {value}"
PROPERTIES = "'commit.manifest-merge.enabled' = 'false', 'write.delete.mode' = 'merge-on-read'"
PREPARED = (
    "ALTER TABLE {table} SET TBLPROPERTIES (" + PROPERTIES + ")",
    "INSERT INTO {table} SELECT DATE'1999-01-01', id, id, id, id, id FROM range(1000)",
)
CHANGES = {
    "insert": "INSERT INTO {table} SELECT DATE'1999-01-02', id, id, id, id, id FROM range(10)",
    "delete": "DELETE FROM {table} WHERE day = DATE'1999-01-01' AND c0 = {value}",
    "update": "UPDATE {table} SET c1 = 5 WHERE day = DATE'1999-01-01' AND c0 = {value} + 100",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, files=100_000, manifests=50, rounds=5)
    parser.add_argument("--changes", action="store_true")
    add_peer_options(parser, ["Iceberg Java"])
    options = parser.parse_args(arguments)
    with run_benchmark(options) as bench:
        lake = bench.lake
        table = many_files(lake, options.files, options.manifests)
        lake.sql("CREATE TABLE bench.warm_too AS SELECT id AS c0 FROM range(10)")
        for number in range(5):
            lake.sql(QUERY.format(table="bench.warm_too", value=number)).collect()
        memory = PeakMemory()
        ours = timed(lambda text: lake.sql(text).collect(), "bench.many", options.rounds)
        bench.show(planned("RowDelta", options, ours) | {"peak_rss_mb": round(memory.peak)})
        changed = changes(lake.sql, "bench.many", options)
        opened = opened_by_changes(lake.sql, "bench.many") if options.changes else {}
        lake.spark.stop()
        for name, seconds in changed.items():
            line = {"case": f"{name} beside many manifests", "engine": "RowDelta", "seconds": round(seconds, 3)}
            bench.show(line | {"manifests": options.manifests, "opened": opened[name]})
        with start_programs(options, bench) as programs:
            for engine, program in programs.items():
                copy_table(Path(urlsplit(table.metadata_location).path), program)
                theirs = timed(program.sql, "c.bench.many", options.rounds)
                ratios = [round(their[0] / our[0], 2) for our, their in zip(ours, theirs, strict=True)]
                bench.show(planned(engine, options, theirs) | {"ratio": ratios})
                for name, seconds in changes(program.sql, "c.bench.many", options).items():
                    line = {"case": f"{name} beside many manifests", "engine": engine, "seconds": round(seconds, 3)}
                    bench.show(line | {"ratio": round(seconds / changed[name], 2)})
        bench.record("many-manifests" if options.changes else "planning")


def changes(run: Callable[[str], Any], table: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the median seconds of each change without its first run, if the options ask for changes."""
    if not options.changes:
        return {}
    for statement in PREPARED:
        run(statement.format(table=table))
    found: dict[str, list[float]] = {name: [] for name in CHANGES}
    for number in range(options.rounds + 1):
        for name, statement in CHANGES.items():
            found[name].append(seconds_of(partial(run, statement.format(table=table, value=number))))
    return {name: statistics.median(seconds[1:]) for name, seconds in found.items()}


def opened_by_changes(run: Callable[[str], Any], table: str) -> dict[str, int]:
    """Return the number of manifest lists and manifests that each change opens."""
    real, found = read.content_of, {}
    for name, statement in CHANGES.items():
        opened: list[str] = []

        def content_of(io: FileIO, location: str, opened: list[str] = opened) -> bytes:
            opened.append(location)
            return real(io, location)

        read.content_of = content_of
        try:
            run(statement.format(table=table, value=50))
        finally:
            read.content_of = real
        found[name] = len(opened)
    return found


def copy_table(metadata: Path, program: Program) -> None:
    """Copy the table's metadata file to the catalog of a program, and warm the program up."""
    copy = program.folder / "bench" / "many" / "metadata"
    copy.mkdir(parents=True)
    shutil.copyfile(metadata, copy / ("v1" + (".gz" if ".gz." in metadata.name else "") + ".metadata.json"))
    (copy / "version-hint.text").write_text("1")
    program.sql("CREATE TABLE c.bench.warm USING iceberg AS SELECT id AS c0 FROM range(10)")
    for number in range(5):
        program.sql(QUERY.format(table="c.bench.warm", value=number))


def timed(run: Callable[[str], Any], table: str, rounds: int) -> list[tuple[float, float]]:
    """Return the wall time and this process's CPU time of the first query, and the medians of the following ones."""
    found = []
    for number in range(rounds + 1):
        cpu = time.process_time()
        seconds = seconds_of(partial(run, QUERY.format(table=table, value=-1 - number)))
        found.append((seconds, time.process_time() - cpu))
    following = [statistics.median(one) for one in zip(*found[1:], strict=True)]
    return [found[0], (following[0], following[1])]


def planned(engine: str, options: argparse.Namespace, times: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the line of an engine."""
    (first, first_cpu), (following, following_cpu) = times
    line: dict[str, Any] = {"case": "planning", "engine": engine, "files": options.files}
    line |= {"manifests": options.manifests, "first": round(first, 3), "following": round(following, 3)}
    if engine == "RowDelta":
        line |= {"first_cpu": round(first_cpu, 3), "following_cpu": round(following_cpu, 3)}
    return line


if __name__ == "__main__":
    main()
