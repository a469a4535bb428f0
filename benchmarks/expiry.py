"""Expiring all snapshots of a table but the last, timed: one JSON line for each engine.

    python -m benchmarks.expiry [--sizes 125 250 500 1000] [--rounds 3] [--java COMMAND]

Each snapshot replaces one of ten small data files, so that the call deletes one data file, at least one manifest and
one manifest list for each. A call changes its table, so every engine and round has a table of its own.
"""

import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from benchmarks.named import OURS
from benchmarks.peers import add_peer_options, start_programs
from benchmarks.processes import PeakMemory
from benchmarks.runs import make_parser, run_benchmark, seconds_of
from dml.commit import AppendFiles, OverwriteFiles, commit
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile

LIVE_FILES = 10
PREFIXES = {OURS: "ours", "Iceberg Java": "theirs"}
CALL = (
    "CALL {catalog}.system.expire_snapshots(table => 'bench.{name}', older_than => TIMESTAMP '2100-01-01 00:00:00', "
    "retain_last => 1, max_concurrent_deletes => 8)"
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[125, 250, 500, 1000], help="numbers of snapshots")
    add_peer_options(parser, ["Iceberg Java"])
    options = parser.parse_args(arguments)
    with run_benchmark(options) as bench:
        lake = bench.lake
        engines = [OURS, "Iceberg Java"] if options.java else [OURS]
        names = {
            (engine, size): [f"{PREFIXES[engine]}_{size}_{number}" for number in range(options.rounds)]
            for engine in engines
            for size in options.sizes
        }
        fill(lake, "warm", 10)
        for (_, size), tables in names.items():
            for name in tables:
                fill(lake, name, size)
        measure(lake.sql, "lake", ["warm"])
        memory = PeakMemory()
        found = {size: measure(lake.sql, "lake", names[OURS, size]) for size in options.sizes}
        for size, (seconds, deleted) in found.items():
            bench.show(line(OURS, size, seconds, deleted) | {"peak_rss_mb": round(memory.peak)})
        locations = {
            name: urlsplit(table_of(lake, name).metadata_location).path for tables in names.values() for name in tables
        }
        lake.spark.stop()
        with start_programs(options, bench) as programs:
            for engine, program in programs.items():
                program.sql("CREATE TABLE c.bench.warm USING iceberg AS SELECT id FROM range(10)")
                measure(program.sql, "c", ["warm"])
                for size in options.sizes:
                    for name in names[engine, size]:
                        copy = program.folder / "bench" / name / "metadata"
                        copy.mkdir(parents=True)
                        shutil.copyfile(locations[name], copy / "v1.metadata.json")
                        (copy / "version-hint.text").write_text("1")
                    slower, _ = measure(program.sql, "c", names[engine, size])
                    seconds, deleted = found[size]
                    ratio = {"ratio": round(statistics.median(slower) / statistics.median(seconds), 2)}
                    bench.show(line(engine, size, slower, deleted) | ratio)
        bench.record("expiry")


def fill(lake: Any, name: str, snapshots: int) -> None:
    """Create a table with a number of snapshots."""
    lake.sql(f"CREATE TABLE bench.{name} (id BIGINT)")
    lake.sql(f"INSERT INTO bench.{name} SELECT id FROM range(100)")
    table = table_of(lake, name)
    start = table.current_snapshot().snapshot_id
    (manifest,) = manifests_of(table.io, table.current_snapshot())
    (entry,) = entries_of(manifest, table.io)
    source, files = entry.data_file, [entry.data_file]
    for _ in range(snapshots - 1):
        files.append(copied(source))
        if len(files) <= LIVE_FILES:
            start = commit(table, AppendFiles(data_files=(files[-1],))).snapshot_id
        else:
            action = OverwriteFiles(
                data_files=(files[-1],), removed_data_files=frozenset({files.pop(0).path}), starting_snapshot_id=start
            )
            start = commit(table, action).snapshot_id


def copied(file: ContentFile) -> ContentFile:
    """Copy a data file beside itself."""
    location = f"{file.path.rpartition('/')[0]}/{uuid4()}.parquet"
    source, target = Path(urlsplit(file.path).path), Path(urlsplit(location).path)
    target.write_bytes(source.read_bytes())
    return replace(file, path=location)


def table_of(lake: Any, name: str) -> Any:
    return lake.registry.catalogs["lake"].load_table(("bench", name))


def measure(run: Callable[[str], Any], catalog: str, names: Sequence[str]) -> tuple[list[float], int]:
    """Expire the snapshots of tables; return the seconds of each call, and the files that the last one deleted."""
    deleted = 0

    def call(name: str) -> None:
        nonlocal deleted
        found = run(CALL.format(catalog=catalog, name=name))
        if hasattr(found, "collect"):
            deleted = sum(found.collect()[0])

    return [seconds_of(partial(call, name)) for name in names], deleted


def line(engine: str, snapshots: int, seconds: Sequence[float], deleted: int) -> dict[str, Any]:
    """Return the line of an engine."""
    found = {"case": "expiry", "engine": engine, "axis": "snapshots of the table", "size": snapshots}
    return found | {"deleted_files": deleted, "seconds": round(statistics.median(seconds), 3)}


if __name__ == "__main__":
    main()
