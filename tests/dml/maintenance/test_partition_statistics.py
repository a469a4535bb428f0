"""Partition statistics: counts of files and rows as manifests have them, whole and brought up to date."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from dml.commit import AppendFiles, CommittedSnapshot, DeleteFiles, RowDelta, commit
from dml.errors import NotFoundError, ValidationFailedError
from dml.maintenance import compute_partition_statistics
from dml.maintenance.partition_statistics import read_batches, statistics_schema
from dml.manifests.read import entries_of, manifests_of
from dml.metadata_tables.tables import unified_partition
from dml.model.manifest import ContentFile, FileContent
from dml.options import Command
from tests.dml.commit.builders import data_file, deletes, equality_deletes, new_table

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])
COUNTS = (
    "data_record_count",
    "data_file_count",
    "position_delete_record_count",
    "position_delete_file_count",
    "equality_delete_record_count",
    "equality_delete_file_count",
)


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def registered(table: Table) -> dict[int, PartitionStatisticsFile]:
    return {file.snapshot_id: file for file in table.refresh().metadata.partition_statistics}


def rows(location: str | None) -> list[dict[str, Any]]:
    """The rows of a Parquet file, in its order."""
    assert location is not None
    found: list[dict[str, Any]] = pq.read_table(local(location), partitioning=None).to_pylist()
    return found


def key_of(spec_id: int, partition: Iterable[Any]) -> tuple[Any, ...]:
    """A partition; a field that it lacks is NULL, and missing in a file that is older than the field."""
    return (spec_id, *(value for value in partition if value is not None))


def counted(location: str | None) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Counts by spec and partition; rows of partitions without files left out."""
    found = {
        key_of(row["spec_id"], row["partition"].values()): (*(row[name] for name in COUNTS), row.get("dv_count"))
        for row in ([] if location is None else rows(location))
    }
    return {key: counts for key, counts in found.items() if any(counts)}


def computed(catalog: Catalog, table: Table, snapshot_id: int | None = None) -> str | None:
    return compute_partition_statistics(catalog, table.refresh(), snapshot_id)


def mark(table: Table, *files: ContentFile) -> CommittedSnapshot:
    """Commit delete files."""
    start = table.refresh().metadata.current_snapshot_id
    return commit(table, RowDelta(command=Command.DELETE, delete_files=files, starting_snapshot_id=start))


def without_statistics(table: Table) -> Table:
    """The table as if nobody had computed statistics."""
    table = table.refresh()
    table.metadata = table.metadata.model_copy(update={"partition_statistics": []})
    return table


@VERSIONS
def test_counts_and_columns_are_those_of_the_specification(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version, partitioned=True)
    a, b, null = data_file(table, [1, 2, 3], "a"), data_file(table, [4], "b"), data_file(table, [5, 6], None)
    first = commit(table, AppendFiles(data_files=(b, null, a)))
    last = first
    if version > 1:
        last = mark(table, deletes(table, a, [0, 2]), equality_deletes(table, b, 4))
    location = computed(catalog, table)
    found = rows(location)
    assert [row["partition"] for row in found] == [{"p": None}, {"p": "a"}, {"p": "b"}]
    zeros, vector = (0, 0, 0, 0), {1: (), 2: (), 3: (0,)}[version]
    of_a = {1: zeros, 2: (2, 1, 0, 0), 3: (2, 0, 0, 0)}[version]
    of_b = zeros if version == 1 else (0, 0, 1, 1)
    times = {one.snapshot_id: one.timestamp_ms for one in table.refresh().metadata.snapshots}
    newest = (None, times[last.snapshot_id], last.snapshot_id)
    assert [tuple(row.values())[1:] for row in found] == [
        (0, 2, 1, null.file_size_in_bytes, *zeros, None, times[first.snapshot_id], first.snapshot_id, *vector),
        (0, 3, 1, a.file_size_in_bytes, *of_a, *newest, *((1,) if version == 3 else ())),
        (0, 1, 1, b.file_size_in_bytes, *of_b, *newest, *vector),
    ]
    schema = pq.read_schema(local(location or ""))
    ids = [int((field.metadata or {})[b"PARQUET:field_id"]) for field in schema]
    assert ids == [*range(1, 13), *((13,) if version == 3 else ())]
    assert [field.name for field in schema if field.nullable] == [
        *([] if version == 3 else schema.names[5:9]),
        "total_record_count",
        "last_updated_at",
        "last_updated_snapshot_id",
    ]
    assert schema.field("partition").type.field(0).metadata[b"PARQUET:field_id"] == b"1000"
    file = registered(table)[last.snapshot_id]
    assert (file.statistics_path, file.file_size_in_bytes) == (location, local(location or "").stat().st_size)
    assert local(location or "").parent == local(table.location()) / "metadata"
    assert local(location or "").name.startswith(f"partition-stats-{last.snapshot_id}-")
    before = table.refresh().metadata_location
    assert computed(catalog, table) == location
    assert table.refresh().metadata_location == before, "nothing is written for a snapshot that has statistics"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "mark", "drop", "evolve", "compute"]),
        st.sampled_from(["a", "b", None]),
        st.integers(1, 4),
    ),
    max_size=10,
)


def live_files(table: Table) -> Iterator[ContentFile]:
    for manifest in manifests_of(table.io, table.refresh().current_snapshot()):
        yield from (entry.data_file for entry in entries_of(manifest, table.io, live_only=True))


def recounted(table: Table) -> dict[tuple[Any, ...], list[int]]:
    """Data rows and files, delete rows and files by spec and the value of `p`, from the entries one by one."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for file in live_files(table):
        place = 0 if file.content is FileContent.DATA else 2
        counts = found[key_of(file.spec_id, file.partition)]
        counts[place] += file.record_count
        counts[place + 1] += 1
    return dict(found)


@pytest.mark.parametrize("version", [2, 3])
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=12, deadline=None
)
@given(steps=STEPS)
def test_statistics_brought_up_to_date_are_those_of_all_manifests(
    catalog: Catalog, version: int, steps: list[tuple[str, str | None, int]]
) -> None:
    """After any appends, deletes and changes of the spec, with statistics computed at any of them."""
    table = new_table(catalog, version, name=f"t{len(catalog.list_tables('db'))}", partitioned=True)
    marked: set[str] = set()
    for action, p, count in steps:
        table = table.refresh()
        files = [file for file in live_files(table) if file.content is FileContent.DATA and file.partition[0] == p]
        fresh = [file for file in files if file.path not in marked]
        if action == "append":
            new = data_file(table, list(range(count)), p)
            fields = table.spec().fields
            if len(fields) > 1:
                new = replace(new, partition=(p, BucketTransform(4).transform(StringType())(p) if p else None))
            commit(table, AppendFiles(data_files=(new,)))
        elif action == "mark" and fresh:
            marked.add(fresh[0].path)
            mark(table, deletes(table, fresh[0], [0]))
        elif action == "drop" and p is not None:
            commit(table, DeleteFiles(row_filter=EqualTo("p", p)))
        elif action == "evolve" and len(table.spec().fields) == 1:
            with table.update_spec() as update:
                update.add_field("p", BucketTransform(4), "p_bucket")
        elif action == "compute":
            computed(catalog, table)
    current = computed(catalog, table)
    if current is None:
        assert recounted(table) == {}
        return
    kept = registered(table)
    known = counted(current)
    whole = compute_partition_statistics(catalog, without_statistics(table))
    assert counted(whole) == known
    assert {key: [*counts[:3], counts[3] + (counts[6] or 0)] for key, counts in known.items()} == recounted(table)
    order = [(row["partition"]["p"] is not None, row["partition"]["p"] or "") for row in rows(current)]
    assert order == sorted(order)
    assert set(kept) <= set(registered(table))


def test_a_partition_without_files_keeps_its_row_and_its_last_change(catalog: Catalog) -> None:
    """As in Java, whether the statistics are new or brought up to date."""
    table = new_table(catalog, 2, partitioned=True)
    commit(table, AppendFiles(data_files=(data_file(table, [1], "a"), data_file(table, [2], "b"))))
    before = computed(catalog, table)
    made = commit(table, DeleteFiles(row_filter=EqualTo("p", "a")))
    updated = computed(catalog, table)
    whole = compute_partition_statistics(catalog, without_statistics(table))
    assert rows(updated) == rows(whole)
    gone = rows(updated)[0]
    assert (gone["partition"], gone["data_file_count"], gone["total_data_file_size_in_bytes"]) == ({"p": "a"}, 0, 0)
    assert gone["last_updated_snapshot_id"] == made.snapshot_id
    assert rows(before)[0]["data_file_count"] == 1


@pytest.mark.parametrize("damage", ["missing", "truncated", "foreign", "wrong"])
def test_damaged_statistics_are_computed_again_from_all_manifests(catalog: Catalog, damage: str) -> None:
    table = new_table(catalog, 3, partitioned=True)
    made = commit(table, AppendFiles(data_files=(data_file(table, [1, 2], "a"),)))
    location = computed(catalog, table)
    path = local(location or "")
    match damage:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(path.read_bytes()[:-9])
        case "foreign":
            path.write_bytes(b"x" * path.stat().st_size)
        case "wrong":  # more files are deleted than it has counted
            other = new_table(catalog, 3, name="other", partitioned=True)
            commit(other, AppendFiles(data_files=(data_file(other, [1], "a"),)))
            commit(other, AppendFiles(data_files=(data_file(other, [7], "b"),)))
            commit(other, DeleteFiles(row_filter=EqualTo("p", "a")))
            content = local(computed(catalog, other) or "").read_bytes()
            path.write_bytes(content)
            files = [
                file.model_copy(update={"file_size_in_bytes": len(content)}) for file in registered(table).values()
            ]
            commit(table, DeleteFiles(row_filter=EqualTo("p", "a")))
            table.refresh()
            table.metadata = table.metadata.model_copy(update={"partition_statistics": files})
            found = rows(compute_partition_statistics(catalog, table))
            assert [(row["partition"]["p"], row["data_file_count"]) for row in found] == [("a", 0)]
            return
    again = computed(catalog, table)
    assert again != location
    assert [row["data_record_count"] for row in rows(again)] == [2]
    assert registered(table)[made.snapshot_id].statistics_path == again
    path.write_bytes(b"")
    commit(table, AppendFiles(data_files=(data_file(table, [3], "a"),)))
    local(again or "").write_bytes(b"")
    assert [row["data_record_count"] for row in rows(computed(catalog, table))] == [3]


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_other_formats_are_written_and_read(catalog: Catalog, file_format: str) -> None:
    """The file has the format of the table's data files; the next one continues it."""
    table = new_table(catalog, 3, partitioned=True, **{"write.format.default": file_format})
    commit(table, AppendFiles(data_files=(data_file(table, [1, 2], "a"), data_file(table, [3], None))))
    first = computed(catalog, table)
    assert (first or "").endswith(f".{file_format}")
    commit(table, AppendFiles(data_files=(data_file(table, [4], "a"),)))
    computed(catalog, table)
    files = list(registered(table).values())
    schema = statistics_schema(unified_partition(table.metadata), 3)
    found = [batch.to_pylist() for file in files for batch in read_batches(table.io, file, schema)]
    assert [[(row["partition"]["p"], row["data_record_count"], row["dv_count"]) for row in part] for part in found] == [
        [(None, 1, 0), ("a", 2, 0)],
        [(None, 1, 0), ("a", 3, 0)],
    ]


def test_what_cannot_be_computed(catalog: Catalog) -> None:
    plain = new_table(catalog, 2, name="plain")
    assert computed(catalog, plain) is None, "no snapshot"
    commit(plain, AppendFiles(data_files=(data_file(plain, [1]),)))
    with pytest.raises(ValidationFailedError, match=r"Table must be partitioned: 'db.plain'"):
        computed(catalog, plain)
    table = new_table(catalog, 2, partitioned=True)
    commit(table, AppendFiles())
    assert computed(catalog, table) is None, "no files"
    with pytest.raises(NotFoundError, match="Snapshot not found: 5"):
        computed(catalog, table, 5)


def test_older_snapshots_have_their_own_statistics(catalog: Catalog) -> None:
    table = new_table(catalog, 2, partitioned=True)
    first = commit(table, AppendFiles(data_files=(data_file(table, [1], "a"),)))
    second = commit(table, AppendFiles(data_files=(data_file(table, [2], "b"),)))
    newest, oldest = computed(catalog, table), computed(catalog, table, first.snapshot_id)
    assert [row["partition"]["p"] for row in rows(oldest)] == ["a"]
    assert [row["partition"]["p"] for row in rows(newest)] == ["a", "b"]
    assert {key: file.statistics_path for key, file in registered(table).items()} == {
        first.snapshot_id: oldest,
        second.snapshot_id: newest,
    }


def test_commits_that_land_meanwhile_stay(catalog: Catalog) -> None:
    """The statistics are those of the snapshot that was read; only its removal makes them useless."""
    table = new_table(catalog, 2, partitioned=True)
    first = commit(table, AppendFiles(data_files=(data_file(table, [1], "a"),)))
    stale = catalog.load_table(("db", "t"))
    second = commit(table, AppendFiles(data_files=(data_file(table, [2], "b"),)))
    location = compute_partition_statistics(catalog, stale)
    assert registered(table)[first.snapshot_id].statistics_path == location
    assert table.metadata.current_snapshot_id == second.snapshot_id
    folder = local(table.location()) / "metadata"
    before = {path.name for path in folder.iterdir() if path.name.startswith("partition-stats")}
    stale.metadata = stale.metadata.model_copy(update={"partition_statistics": []})
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    with pytest.raises(NotFoundError, match=f"Snapshot not found: {first.snapshot_id}"):
        compute_partition_statistics(catalog, stale)
    assert {path.name for path in folder.iterdir() if path.name.startswith("partition-stats")} == before
