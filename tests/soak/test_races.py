"""Processes delete rows of one data file, each its own, as fast as catalogs take commits: all of them succeed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from dml.catalog import create_namespace, create_table
from dml.commit import AppendFiles, commit
from dml.model.manifest import ContentFile, FileContent
from tests.services.lakes import leftovers
from tests.soak.conftest import Place
from tests.soak.history import ancestry
from tests.soak.racer import IDENTIFIER, KEY, RaceTask
from tests.soak.writers import run_writers

WRITERS, COMMITS = 3, 5
MORE_WRITERS = 8
LONG_COMMITS = 60
# Without Spark's part of a statement writers meet all the time: more often than the default of retries is for.
RETRIES = {"commit.retry.num-retries": "60", "commit.retry.min-wait-ms": "20", "commit.retry.max-wait-ms": "1000"}
ARROW = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])


def opened(place: Place, version: int, rows: int) -> Table:
    """A table with one data file of ids that are their positions."""
    catalog, schema = place.catalog(), Schema(NestedField(1, "id", LongType(), required=False))
    create_namespace(catalog, ("db",), exists_ok=True)
    name = IDENTIFIER[-1]
    elsewhere = {} if place.plain is None or version == 2 else {"write.data.path": f"{place.plain}/{name}"}
    properties = {"format-version": str(version), "write.metadata.previous-versions-max": "10000"}
    table = create_table(catalog, IDENTIFIER, schema, properties={**properties, **RETRIES, **elsewhere})
    path = f"{table.properties.get('write.data.path', table.location() + '/data')}/opening.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(pa.table({"id": list(range(rows))}, schema=ARROW), stream)
    file = ContentFile(
        content=FileContent.DATA,
        path=path,
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        value_counts={1: rows},
        null_value_counts={1: 0},
        lower_bounds={1: to_bytes(LongType(), 0)},
        upper_bounds={1: to_bytes(LongType(), rows - 1)},
    )
    commit(table, AppendFiles(data_files=(file,)))
    return catalog.load_table(IDENTIFIER)


@pytest.mark.parametrize(
    ("writers", "commits"), [(WRITERS, COMMITS), pytest.param(MORE_WRITERS, LONG_COMMITS, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize(
    ("name", "version"), [("sqlite", 3), ("postgres", 2), ("rest", 3)], ids=["sqlite", "postgres", "rest"]
)
def test_deletes_of_processes_in_one_file(
    name: str, version: int, writers: int, commits: int, places: dict[str, Place], tmp_path: Path
) -> None:
    """Three of them, and by night eight."""
    place, rows = places[name], writers * commits
    table = opened(place, version, 2 * rows)
    tasks = [
        RaceTask(
            number=number,
            catalog=place.name,
            properties=place.properties,
            rows=list(range(number, rows, writers)),
            log=str(tmp_path / f"log-{number}.jsonl"),
            go=str(tmp_path / "go"),
        )
        for number in range(writers)
    ]
    try:
        log = run_writers(tasks, tmp_path, seconds=60 + 10 * commits)
        table = table.refresh()
        check(place, table, log, rows)
    finally:
        place.catalog().drop_table(IDENTIFIER)


def check(place: Place, table: Table, log: list[dict[str, Any]], rows: int) -> None:
    """Every commit succeeded, is there once, and each snapshot has all rows but those of the commits up to it."""
    ends = [line for line in log if line["event"] == "end"]
    retries = sum(line.get("attempts", 1) - 1 for line in ends)
    outcomes = Counter(line["outcome"] for line in ends)
    print(f"{place.name}: {len(ends)} commits, {outcomes}, {retries} retries")
    assert outcomes == {"done": rows}, [line for line in ends if line["outcome"] != "done"]
    _opening, *snapshots = ancestry(table)
    gone = [int(snapshot.summary[KEY]) for snapshot in snapshots if snapshot.summary is not None]
    assert sorted(gone) == list(range(rows))
    for number, snapshot in enumerate(snapshots):
        left = set(range(2 * rows)).difference(gone[: number + 1])
        assert sorted(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist()) == sorted(left)
    location = table.metadata_location.removeprefix("file://")
    found = place.files.duckdb().execute("SELECT id FROM iceberg_scan(?) ORDER BY id", [location]).fetchall()
    assert [row for (row,) in found] == list(range(rows, 2 * rows))
    assert leftovers(table, place.files) == set()
