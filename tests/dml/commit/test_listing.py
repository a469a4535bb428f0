"""Files removed by name: only manifests that list them are opened; they are found wherever other commits put them."""

from collections.abc import Collection
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysFalse
from pyiceberg.table import Table

from dml.commit import AppendFiles, DeleteFiles, OverwriteFiles, RowDelta, commit
from dml.errors import CommitConflictError
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, Listing, ManifestContent, ManifestFile
from dml.options import Command
from dml.scan.planner import plan_scan
from tests.dml.commit.builders import data_file, deletes, ids, new_table
from tests.other_writers import set_properties

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])
PARTITIONED = pytest.mark.parametrize("partitioned", [False, True], ids=["unpartitioned", "partitioned"])


def manifests(table: Table, content: ManifestContent = ManifestContent.DATA) -> list[ManifestFile]:
    found = manifests_of(table.io, table.refresh().current_snapshot())
    return [manifest for manifest in found if manifest.content is content]


def append_each(table: Table, count: int) -> list[ContentFile]:
    """Data files of ids 10 n and 10 n + 1, each in a manifest and a partition of its own."""
    files = [data_file(table, [10 * number, 10 * number + 1], "abcdef"[number]) for number in range(count)]
    for file in files:
        commit(table, AppendFiles(data_files=(file,)))
    return files


def listing(table: Table, removed: Collection[ContentFile], rewritten: Collection[ContentFile] = ()) -> Listing:
    """What a statement that reads the table now knows."""
    plan = plan_scan(table.refresh(), None)
    return plan.listing({file.path for file in removed}, {file.key for file in rewritten})


def replacing(table: Table, file: ContentFile, by: ContentFile, **fields: Any) -> OverwriteFiles:
    return OverwriteFiles(
        data_files=(by,),
        removed_data_files=frozenset({file.path}),
        starting_snapshot_id=table.refresh().metadata.current_snapshot_id,
        **{"listing": listing(table, [file]), **fields},
    )


def row_delta(table: Table, *delete_files: ContentFile, command: Command = Command.DELETE, **fields: Any) -> RowDelta:
    return RowDelta(
        command=command,
        delete_files=delete_files,
        starting_snapshot_id=table.refresh().metadata.current_snapshot_id,
        **fields,
    )


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The manifests that commits open from now on."""
    found: list[str] = []

    def record(manifest: ManifestFile, *arguments: Any, **options: Any) -> Any:
        found.append(manifest.manifest_path)
        return entries_of(manifest, *arguments, **options)

    monkeypatch.setattr("dml.commit.window.entries_of", record)
    return found


@VERSIONS
@PARTITIONED
def test_a_commit_opens_only_the_manifests_that_list_the_files_it_removes(
    catalog: Catalog, version: int, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, version, partitioned=partitioned)
    first, *_ = append_each(table, 3)
    *_, oldest = manifests(table)
    action = replacing(table, first, data_file(table, [9], "a"))
    read = opened(monkeypatch)
    made = commit(table, action)
    assert read == [oldest.manifest_path]
    assert ids(made.metadata_location) == [9, 10, 11, 20, 21]


@VERSIONS
@PARTITIONED
def test_files_are_found_after_another_commit_merged_their_manifests(
    catalog: Catalog, version: int, partitioned: bool
) -> None:
    table = new_table(catalog, version, partitioned=partitioned)
    first, *_ = append_each(table, 3)
    action = replacing(table, first, data_file(table, [9], "a"), conflict_detection_filter=AlwaysFalse())
    set_properties(table, {"commit.manifest.min-count-to-merge": "2"})
    commit(catalog.load_table(("db", "t")), AppendFiles(data_files=(data_file(table, [30], "d"),)))
    assert len(manifests(table)) == 1
    made = commit(table, action)
    assert ids(made.metadata_location) == [9, 10, 11, 20, 21, 30]
    assert made.summary["deleted-data-files"] == "1"


def test_the_partitions_tell_where_files_went_whose_manifest_was_rewritten(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, 2, partitioned=True)
    first, neighbour = data_file(table, [1], "a"), data_file(table, [2], "a")
    commit(table, AppendFiles(data_files=(first, neighbour)))
    commit(table, AppendFiles(data_files=(data_file(table, [3], "b"),)))
    action = replacing(table, first, data_file(table, [9], "a"))
    commit(catalog.load_table(("db", "t")), DeleteFiles(paths=frozenset({neighbour.path})))
    of_b, rewritten = sorted(manifests(table), key=lambda manifest: manifest.deleted_files_count or 0)
    read = opened(monkeypatch)
    made = commit(table, action)
    assert rewritten.manifest_path in read
    assert of_b.manifest_path not in read
    assert ids(made.metadata_location) == [3, 9]


@VERSIONS
@PARTITIONED
def test_a_file_that_vanished_is_a_conflict(catalog: Catalog, version: int, partitioned: bool) -> None:
    table = new_table(catalog, version, partitioned=partitioned)
    first, *_ = append_each(table, 3)
    action = replacing(table, first, data_file(table, [9], "a"))
    other = commit(catalog.load_table(("db", "t")), DeleteFiles(paths=frozenset({first.path})))
    with pytest.raises(CommitConflictError, match="Missing required files to delete") as raised:
        commit(table, action)
    assert first.path in raised.value.message
    assert ids(table.refresh().metadata_location) == ids(other.metadata_location) == [10, 11, 20, 21]


@pytest.mark.proves("DV5")
@PARTITIONED
def test_the_deletion_vector_of_a_removed_file_goes_with_it(
    catalog: Catalog, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, 3, partitioned=partitioned)
    files = append_each(table, 3)
    for file in files:
        commit(table, row_delta(table, deletes(table, file, [0])))
    *_, oldest = manifests(table, ManifestContent.DELETES)
    action = replacing(table, files[0], data_file(table, [9], "a"))
    read = opened(monkeypatch)
    made = commit(table, action)
    assert [path for path in read if path == oldest.manifest_path] == [oldest.manifest_path]
    assert len(read) == 2, "one of data, one of deletes"
    assert made.summary["removed-dvs"] == "1"
    assert made.summary["total-delete-files"] == "2"
    assert ids(made.metadata_location) == [9, 11, 21]


@PARTITIONED
def test_the_vector_goes_also_after_another_commit_moved_it(catalog: Catalog, partitioned: bool) -> None:
    table = new_table(catalog, 3, partitioned=partitioned)
    first, second, _ = append_each(table, 3)
    old = [deletes(table, file, [0]) for file in (first, second)]
    commit(table, row_delta(table, *old))
    action = replacing(table, first, data_file(table, [9], "a"))
    replaced = row_delta(table, deletes(table, second, [0, 1]), rewritten_delete_files=frozenset({old[1].key}))
    commit(catalog.load_table(("db", "t")), replaced)
    made = commit(table, action)
    assert made.summary["removed-dvs"] == "1"
    assert ids(made.metadata_location) == [9, 20, 21]


@pytest.mark.parametrize("version", [2, 3])
def test_rewritten_delete_files_are_looked_for_where_they_were(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, version)
    files = append_each(table, 3)
    old = [deletes(table, file, [0]) for file in files]
    for delete in old:
        commit(table, row_delta(table, delete))
    *_, oldest = manifests(table, ManifestContent.DELETES)
    action = row_delta(
        table,
        deletes(table, files[0], [0, 1]),
        command=Command.UPDATE,
        rewritten_delete_files=frozenset({old[0].key}),
        listing=listing(table, [], [old[0]]),
    )
    read = opened(monkeypatch)
    made = commit(table, action)
    assert read == [oldest.manifest_path]
    assert ids(made.metadata_location) == [11, 21]
