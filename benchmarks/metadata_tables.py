"""Metadata tables of a table with many files, timed: one JSON line a case.

    python -m benchmarks.metadata_tables [--files 100000] [--manifests 50] [--rounds 3]

Only metadata is written: nothing here reads data files. PyIceberg's `inspect.files()` is measured in the same run.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from benchmarks.runs import make_parser, run_benchmark
from dml.manifests.read import manifests_of
from dml.manifests.write import ManifestWriter, write_manifest_list
from dml.model.manifest import ContentFile, EntryStatus, FileContent, ManifestContent, ManifestEntry

INSPECT = "PyIceberg's inspect.files(), without passing its rows to Spark"
VALUES = (
    "SELECT count(*) FROM t.files",
    "SELECT sum(record_count) FROM t.files",
    "SELECT count(status) FROM t.entries WHERE status = 1",
    "SELECT count(*) FROM t.partitions",
)
SNAPSHOT_ID = 4_711
COLUMNS = 6
DAYS = 100


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, files=100_000, manifests=50, rounds=3)
    parser.add_argument("--no-pyiceberg", action="store_true")
    options = parser.parse_args(arguments)
    with run_benchmark(options) as bench:
        table = many_files(bench.lake, options.files, options.manifests)
        bench.lake.sql("SELECT sum(record_count) FROM bench.warm.files").collect()
        for name, run in cases(bench.lake, table, pyiceberg=not options.no_pyiceberg).items():
            seconds, outcome = [], None
            for _ in range(1 if name == INSPECT else options.rounds):
                started = time.perf_counter()
                outcome = run()
                seconds.append(round(time.perf_counter() - started, 3))
            line = {"op": name, "seconds": statistics.median(seconds), "runs": seconds, "check": outcome}
            bench.show({**line, "files": options.files, "manifests": options.manifests})
        bench.record("metadata-tables")


def cases(lake: Any, table: Table, *, pyiceberg: bool) -> dict[str, Callable[[], Any]]:
    """Return the cases by name."""

    def value(query: str) -> Any:
        return lake.sql(query).collect()[0][0]

    def all_rows(query: str) -> None:
        lake.sql(query).write.format("noop").mode("overwrite").save()

    def partitions(query: str) -> int:
        return int(lake.sql(query).rdd.getNumPartitions())

    found: dict[str, Callable[[], Any]] = {
        query: partial(value, query.replace(" t.", " bench.many.")) for query in VALUES
    }
    found["two columns of the files of one day"] = lambda: len(
        lake.sql(
            "SELECT file_path, record_count FROM bench.many.files f WHERE f.partition.day = DATE '1970-01-08'"
        ).collect()
    )
    found["SELECT * FROM t.files to nowhere"] = partial(all_rows, "SELECT * FROM bench.many.files")
    found["planning a scan of the table"] = partial(partitions, "SELECT c0 FROM bench.many")
    if pyiceberg:
        found[INSPECT] = lambda: table.inspect.files().num_rows
    return found


def many_files(lake: Any, files: int, manifests: int) -> Table:
    """Create a table whose data files exist only in its metadata."""
    columns = ", ".join(f"c{number} BIGINT" for number in range(COLUMNS - 1))
    lake.sql(f"CREATE TABLE bench.warm ({columns})")
    lake.sql("INSERT INTO bench.warm SELECT 1, 2, 3, 4, 5")
    lake.sql(f"CREATE TABLE bench.many (day DATE, {columns}) PARTITIONED BY (day)")
    catalog = lake.registry.catalogs[lake.registry.current_catalog]
    table: Table = catalog.load_table(("bench", "many"))
    writer = ManifestWriter(table.io, table.metadata, SNAPSHOT_ID)
    each = files // manifests
    written = [
        writer.write(
            f"{table.location()}/metadata/m{number}.avro",
            0,
            ManifestContent.DATA,
            [entry(table.location(), number * each + place, number) for place in range(each)],
        )
        for number in range(manifests)
    ]
    location = f"{table.location()}/metadata/snap-{SNAPSHOT_ID}.avro"
    write_manifest_list(
        table.io,
        location,
        version=table.format_version,
        manifests=written,
        snapshot_id=SNAPSHOT_ID,
        parent_snapshot_id=None,
        sequence_number=1,
        first_row_id=0,
    )
    snapshot = Snapshot(
        snapshot_id=SNAPSHOT_ID,
        parent_snapshot_id=None,
        sequence_number=1,
        timestamp_ms=int(time.time() * 1000),
        manifest_list=location,
        summary=Summary(Operation.APPEND, **{"total-data-files": str(files)}),
        schema_id=0,
    )
    updates = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=SNAPSHOT_ID),
    )
    catalog.commit_table(table, (), updates)
    loaded: Table = catalog.load_table(("bench", "many"))
    assert len(manifests_of(loaded.io, loaded.current_snapshot())) == manifests
    return loaded


def entry(folder: str, number: int, manifest: int) -> ManifestEntry:
    """Return the entry of a data file; each manifest has files of two days."""
    ids = range(1, COLUMNS + 1)
    bound = number.to_bytes(8, "little")
    file = ContentFile(
        content=FileContent.DATA,
        path=f"{folder}/data/day={number % 2}/00000-{number}-4f2c6f6e-54a1-4b7c-9a0a-000000000001-00001.parquet",
        file_format="parquet",
        spec_id=0,
        partition=(2 * manifest % DAYS + number % 2,),
        record_count=1000 + number % 7,
        file_size_in_bytes=123_456 + number,
        column_sizes=dict.fromkeys(ids, 4096),
        value_counts=dict.fromkeys(ids, 1000),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds={1: bound[:4], **dict.fromkeys(ids[1:], bound)},
        upper_bounds={1: bound[:4], **dict.fromkeys(ids[1:], bound)},
        split_offsets=(4,),
        sort_order_id=0,
    )
    return ManifestEntry(
        status=EntryStatus.ADDED,
        snapshot_id=None,
        data_sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


if __name__ == "__main__":
    main()
