"""Removing snapshots and writing metadata files as Java does, in catalogs that write metadata themselves."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.statistics import PartitionStatisticsFile
from pyiceberg.table.update import (
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from dml.catalog import create_table
from dml.commit import AppendFiles, commit
from dml.iceberg import commit_table
from tests.dml.commit.builders import SCHEMA, data_file, new_table

NAME = ("db", "t")


def table_of(catalog: Catalog, appends: int, **properties: str) -> Table:
    table = new_table(catalog, 2, **properties)
    for number in range(appends):
        commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
    return catalog.load_table(NAME)


def change(catalog: Catalog, *updates: TableUpdate) -> Table:
    commit_table(catalog, catalog.load_table(NAME), (), updates)
    return catalog.load_table(NAME)


def test_snapshots_are_removed_as_by_java(catalog):
    """Parents stay named, the log begins after the gap, statistics of partitions go, and the metadata log goes on."""
    table = table_of(catalog, 4)
    first, second, third, fourth = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    for one in (second, third):
        statistics = PartitionStatisticsFile(snapshot_id=one, statistics_path=f"/s{one}", file_size_in_bytes=1)
        change(catalog, SetPartitionStatisticsUpdate(partition_statistics=statistics))
    table.manage_snapshots().create_tag(second, "old").commit()
    before = catalog.load_table(NAME)
    after = change(
        catalog,
        RemovePartitionStatisticsUpdate(snapshot_id=second),
        RemoveSnapshotsUpdate(snapshot_ids=[second, 99]),
        RemoveSnapshotRefUpdate(ref_name="old"),
    )
    assert [(one.snapshot_id, one.parent_snapshot_id) for one in after.metadata.snapshots] == [
        (first, None),
        (third, second),
        (fourth, third),
    ]
    assert [entry.snapshot_id for entry in after.metadata.snapshot_log] == [third, fourth]
    assert [one.snapshot_id for one in after.metadata.partition_statistics] == [third]
    assert list(after.metadata.refs) == ["main"]
    assert after.metadata.metadata_log[-1].metadata_file == before.metadata_location
    assert after.metadata.last_updated_ms > before.metadata.last_updated_ms


@pytest.mark.parametrize(
    "update",
    [
        lambda ids: (RemoveSnapshotsUpdate(snapshot_ids=[ids[-1]]),),
        lambda ids: (
            RemoveSnapshotsUpdate(snapshot_ids=[ids[0]]),
            SetSnapshotRefUpdate(ref_name="b", type="branch", snapshot_id=ids[0]),
        ),
        lambda _: (RemoveSchemasUpdate(schema_ids=[0]),),
        lambda _: (RemoveSchemasUpdate(schema_ids=[7]),),
        lambda _: (RemovePartitionSpecsUpdate(spec_ids=[0]),),
        lambda _: (RemovePartitionSpecsUpdate(spec_ids=[7]),),
        lambda ids: (RemoveStatisticsUpdate(snapshot_id=ids[0]),),
        lambda ids: (RemovePartitionStatisticsUpdate(snapshot_id=ids[0]),),
    ],
)
def test_what_another_commit_uses_or_has_removed_is_a_lost_race(
    catalog: Catalog, update: Callable[[list[int]], tuple[TableUpdate, ...]]
) -> None:
    """A commit that is lost is planned again; an invalid one would end the statement."""
    table = table_of(catalog, 2)
    with table.update_schema() as schema:
        schema.rename_column("p", "q")
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    before = catalog.load_table(NAME).metadata_location
    with pytest.raises(CommitFailedException):
        change(catalog, *update(ids))
    assert catalog.load_table(NAME).metadata_location == before


@pytest.mark.parametrize(
    ("codec", "ending"), [("gzip", ".gz.metadata.json"), ("GZIP", ".gz.metadata.json"), ("zstd", ".metadata.json")]
)
def test_metadata_files_are_compressed(catalog, codec, ending):
    """From the first one on; an unknown codec does not block commits. PyIceberg reads them by their names."""
    properties = {"write.metadata.compression-codec": codec}
    table = create_table(catalog, NAME, SCHEMA, properties=properties)
    for number in (1, 2):
        assert table.metadata_location.endswith(ending)
        assert table.metadata_location.count(".") == ending.count(".")
        assert Path(table.metadata_location.removeprefix("file://")).name.startswith(f"{number - 1:05}-")
        assert StaticTable.from_metadata(table.metadata_location).metadata == table.metadata
        commit(table, AppendFiles(data_files=(data_file(table, [number]),)))
        table = catalog.load_table(NAME)
    table.transaction().set_properties({"write.metadata.compression-codec": "none"}).commit_transaction()
    assert "gz" not in catalog.load_table(NAME).metadata_location


def test_metadata_files_that_leave_the_log_are_deleted_if_asked(catalog):
    """Only those that the log has listed; by default none."""
    table = table_of(catalog, 3, **{"write.metadata.previous-versions-max": "2"})
    folder = Path(table.location().removeprefix("file://")) / "metadata"

    def files() -> set[str]:
        return {path.name for path in folder.glob("*.metadata.json")}

    def listed() -> set[str]:
        found = catalog.load_table(NAME)
        log = [entry.metadata_file for entry in found.metadata.metadata_log]
        return {location.rpartition("/")[2] for location in (*log, found.metadata_location)}

    assert len(files()) == 4
    assert len(listed()) == 3
    untracked = files() - listed()
    table.transaction().set_properties({"write.metadata.delete-after-commit.enabled": "true"}).commit_transaction()
    commit(table, AppendFiles(data_files=(data_file(table, [9]),)))
    assert files() == listed() | untracked
