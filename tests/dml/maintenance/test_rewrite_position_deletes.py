"""rewrite_position_delete_files: fewer delete files that delete the same rows, whatever others commit meanwhile."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.table import Table

from dml.commit import AppendFiles, DeleteFiles, RowDelta, commit
from dml.engine.writes import write_context
from dml.errors import AnalysisError, CommitConflictError
from dml.maintenance.position_delete_groups import PositionDeleteOptions, position_delete_groups
from dml.maintenance.rewrite_position_deletes import (
    PositionDeleteRewrite,
    plan_position_delete_rewrite,
    rewrite_position_deletes,
)
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, EntryStatus, FileContent, ManifestContent, ManifestEntry
from dml.options import Command
from tests.dml.commit.builders import data_file, ids, ids_by_pyiceberg, new_table, position_deletes
from tests.other_writers import set_properties

TARGET = 64 * 2**20
BY_PARTITION = {"write.delete.granularity": "partition"}


class Deleted:
    """Partitions a and b with two files of five rows each; three delete files in a, one in b."""

    def __init__(self, catalog: Catalog, **properties: str) -> None:
        self.table = new_table(catalog, 2, partitioned=True, **properties)
        places = enumerate("aabb")
        self.files = tuple(data_file(self.table, range(10 * number, 10 * number + 5), p) for number, p in places)
        commit(self.table, AppendFiles(data_files=self.files))
        for number, positions in [(0, [0, 2]), (1, [1]), (0, [1]), (2, [4])]:
            self.delete(self.files[number], positions)
        self.table.refresh()

    def delete(self, file: ContentFile, positions: list[int]) -> ContentFile:
        """Commit a position delete file."""
        start = self.table.refresh().metadata.current_snapshot_id
        delete = position_deletes(self.table, file, positions)
        commit(self.table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))
        return delete

    def plan(self, **options: str) -> PositionDeleteRewrite:
        """Plan a rewrite with options in snake case."""
        given = {name.replace("_", "-"): value for name, value in options.items()}
        return plan_position_delete_rewrite(self.table.refresh(), PositionDeleteOptions.of(given, TARGET), AlwaysTrue())

    def run(self, plan: PositionDeleteRewrite) -> list[tuple[int, int, int, int]]:
        """Run a plan, and return the counts of its groups, the largest first."""
        context = write_context(self.table, "00000000-0000-0000-0000-000000000000")
        return sorted((done.counts for done in rewrite_position_deletes(plan, context)), reverse=True)

    def live(self) -> list[ManifestEntry]:
        """The live delete files."""
        return live_deletes(self.table)

    def rows(self) -> list[int]:
        """The ids that others read."""
        return ids(self.table.refresh().metadata_location)

    def stored(self) -> set[str]:
        """The names of all data and delete files."""
        folder = Path(f"{self.table.location()}/data".removeprefix("file://"))
        return {path.name for path in folder.rglob("*") if path.is_file()}


def live_deletes(table: Table) -> list[ManifestEntry]:
    return [
        entry
        for manifest in manifests_of(table.io, table.refresh().current_snapshot())
        if manifest.content is ManifestContent.DELETES
        for entry in entries_of(manifest, table.io, live_only=True)
    ]


ROWS = [3, 4, 10, 12, 13, 14, 20, 21, 22, 23, 30, 31, 32, 33, 34]


@pytest.mark.parametrize(("properties", "files"), [(BY_PARTITION, 1), ({"write.delete.granularity": "file"}, 2)])
def test_files_of_a_partition_are_merged(catalog: Catalog, properties: dict[str, str], files: int) -> None:
    deleted = Deleted(catalog, **properties)
    assert deleted.rows() == ROWS
    before = deleted.live()
    sizes = sum(entry.data_file.file_size_in_bytes for entry in before if entry.data_file.partition == ("a",))
    counts = deleted.run(deleted.plan(min_input_files="3"))
    assert [one[:3] for one in counts] == [(3, files, sizes)]
    after = [entry for entry in deleted.live() if entry.data_file.partition == ("a",)]
    assert len(after) == files
    assert counts[0][3] == sum(entry.data_file.file_size_in_bytes for entry in after)
    assert sum(entry.data_file.record_count for entry in after) == 4
    # The greatest number of the old files, of which the one in b is the last.
    newest = max(entry.data_sequence_number or 0 for entry in before if entry.data_file.partition == ("a",))
    assert {entry.data_sequence_number for entry in after} == {newest}
    assert {entry.file_sequence_number for entry in after} == {deleted.table.metadata.last_sequence_number}
    assert deleted.rows() == ROWS
    snapshot = deleted.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-position-deletes"] == "5"


def test_few_files_stay_unless_all_are_wanted(catalog: Catalog) -> None:
    deleted = Deleted(catalog, **BY_PARTITION)
    plan = deleted.plan()
    assert plan.groups == ()
    assert deleted.run(plan) == []
    assert all("fewer than min-input-files (5)" in reason for _, _, reason in plan.decisions())
    assert [one[:2] for one in deleted.run(deleted.plan(rewrite_all="true"))] == [(3, 1), (1, 1)]
    assert deleted.rows() == ROWS


def test_a_filter_selects_partitions(catalog: Catalog) -> None:
    deleted = Deleted(catalog, **BY_PARTITION)
    options = PositionDeleteOptions.of({"rewrite-all": "true"}, TARGET)
    plan = plan_position_delete_rewrite(deleted.table, options, EqualTo("p", "b"))
    assert [group.partition for group in plan.groups] == [(0, ("b",))]


def test_positions_of_removed_files_are_dropped(catalog: Catalog) -> None:
    deleted = Deleted(catalog, **BY_PARTITION)
    commit(deleted.table, DeleteFiles(paths=frozenset({deleted.files[0].path, deleted.files[2].path})))
    rows = deleted.rows()
    assert [one[:2] for one in deleted.run(deleted.plan(rewrite_all="true"))] == [(3, 1), (1, 0)]
    (left,) = deleted.live()
    assert left.data_file.record_count == 1
    assert left.data_file.referenced_data_file == deleted.files[1].path
    assert deleted.rows() == rows


def test_deletes_that_are_older_than_their_data_file_stay_without_effect(catalog: Catalog) -> None:
    """The merged file is newer than both: a position that deleted nothing must not delete a row now."""
    table = new_table(catalog, 2, partitioned=True, **BY_PARTITION)
    first, second = data_file(table, range(5), "a"), data_file(table, range(10, 15), "a")
    early = position_deletes(table, second, [0])
    commit(table, AppendFiles(data_files=(first,)))
    start = table.refresh().metadata.current_snapshot_id
    commit(table, RowDelta(command=Command.DELETE, delete_files=(early,), starting_snapshot_id=start))
    commit(table, AppendFiles(data_files=(second,)))
    late = position_deletes(table, second, [1])
    start = table.refresh().metadata.current_snapshot_id
    commit(table, RowDelta(command=Command.DELETE, delete_files=(late,), starting_snapshot_id=start))
    rows = ids_by_pyiceberg(table.refresh().metadata_location)  # DuckDB applies older position deletes, too
    assert 10 in rows
    plan = plan_position_delete_rewrite(table, PositionDeleteOptions.of({"rewrite-all": "true"}, TARGET), AlwaysTrue())
    rewrite_position_deletes(plan, write_context(table, "00000000-0000-0000-0000-000000000000"))
    assert ids(table.refresh().metadata_location) == rows
    assert [entry.data_file.record_count for entry in live_deletes(table)] == [1]


# ---- version 3 --------------------------------------------------------------------------------------------------


def upgraded(catalog: Catalog) -> Deleted:
    deleted = Deleted(catalog, **BY_PARTITION)
    set_properties(deleted.table, {"format-version": "3"})
    return deleted


def test_after_an_upgrade_they_become_deletion_vectors(catalog: Catalog) -> None:
    deleted = upgraded(catalog)
    assert [one[:2] for one in deleted.run(deleted.plan(rewrite_all="true"))] == [(3, 2), (1, 1)]
    found = {entry.data_file.referenced_data_file: entry.data_file.record_count for entry in deleted.live()}
    assert found == {deleted.files[0].path: 3, deleted.files[1].path: 1, deleted.files[2].path: 1}
    assert all(entry.data_file.is_deletion_vector for entry in deleted.live())
    assert deleted.rows() == ROWS
    again = deleted.plan(rewrite_all="true")
    assert again.files == ()
    assert deleted.run(again) == []


def test_a_vector_has_the_positions_of_files_that_are_not_rewritten(catalog: Catalog) -> None:
    """Readers ignore the position delete files of a data file that has a vector."""
    deleted = upgraded(catalog)
    plan = deleted.plan(rewrite_all="true")
    group = next(group for group in plan.groups if group.partition == (0, ("a",)))
    few = replace(group, files=group.files[:1])
    assert [one[:2] for one in deleted.run(replace(plan, groups=(few,)))] == [(1, 1)]
    assert deleted.rows() == ROWS
    (vector,) = [entry.data_file for entry in deleted.live() if entry.data_file.is_deletion_vector]
    assert vector.referenced_data_file == deleted.files[0].path
    assert vector.record_count == 3


# ---- other commits ----------------------------------------------------------------------------------------------


def test_deletes_and_rows_of_others_meanwhile_stay(catalog: Catalog) -> None:
    deleted = Deleted(catalog, **BY_PARTITION)
    plan = deleted.plan(min_input_files="3")
    deleted.delete(deleted.files[1], [0])
    commit(deleted.table, AppendFiles(data_files=(data_file(deleted.table, [99], "a"),)))
    deleted.run(plan)
    assert deleted.rows() == sorted({*ROWS, 99} - {10})


def test_a_file_that_another_commit_removed_is_a_conflict(catalog: Catalog) -> None:
    deleted = Deleted(catalog, **BY_PARTITION)
    plan = deleted.plan(min_input_files="3")
    deleted.run(deleted.plan(min_input_files="3"))
    before, stored = deleted.live(), deleted.stored()
    with pytest.raises(CommitConflictError, match="Missing required files to delete"):
        deleted.run(plan)
    assert deleted.live() == before
    assert deleted.stored() == stored


def test_partial_progress_commits_what_it_can(catalog: Catalog) -> None:
    deleted = Deleted(catalog, **BY_PARTITION)
    options = {"rewrite-all": "true", "partial-progress.enabled": "true", "partial-progress.max-commits": "2"}
    plan = plan_position_delete_rewrite(deleted.table, PositionDeleteOptions.of(options, TARGET), AlwaysTrue())
    only_a = PositionDeleteOptions.of({"rewrite-all": "true"}, TARGET)
    deleted.run(plan_position_delete_rewrite(deleted.table, only_a, EqualTo("p", "a")))
    stored = deleted.stored()
    assert [one[:2] for one in deleted.run(plan)] == [(1, 1)]
    assert len(deleted.stored() - stored) == 1
    assert deleted.rows() == ROWS


def test_a_failure_leaves_no_file(catalog: Catalog) -> None:
    deleted = Deleted(catalog, **BY_PARTITION)
    plan, stored = deleted.plan(rewrite_all="true"), deleted.stored()
    last = Path(plan.groups[-1].files[-1].data_file.path.removeprefix("file://"))
    last.write_bytes(last.read_bytes()[:-8])
    with pytest.raises(Exception, match=r"cannot be read|corrupt|bytes"):
        deleted.run(plan)
    assert deleted.stored() == stored


# ---- the choice of files ----------------------------------------------------------------------------------------


def entries(*sizes: int, partition: str = "a") -> list[ManifestEntry]:
    """Position delete files of these sizes."""
    return [
        ManifestEntry(
            status=EntryStatus.ADDED,
            snapshot_id=1,
            data_sequence_number=number,
            file_sequence_number=number,
            data_file=ContentFile(
                content=FileContent.POSITION_DELETES,
                path=f"{partition}-{number}",
                file_format="parquet",
                spec_id=0,
                partition=(partition,),
                record_count=1,
                file_size_in_bytes=size,
            ),
        )
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "options", "chosen"),
    [
        ((10, 10, 10, 10), {}, []),
        ((10, 10, 10, 10, 10), {}, [5]),
        ((70, 60), {}, [2]),
        ((74, 75, 180, 74), {}, [2]),
        ((181,), {}, [1]),
        ((100, 100), {"rewrite-all": "true"}, [2]),
        ((10, 10, 10, 10), {"min-input-files": "2", "max-file-group-size-bytes": "25"}, [2, 2]),
        ((10, 10, 10, 10, 10), {"min-input-files": "2", "max-file-group-input-files": "3"}, [3, 2]),
    ],
)
def test_the_choice_of_files_is_that_of_java(
    sizes: tuple[int, ...], options: dict[str, str], chosen: list[int]
) -> None:
    """With a target of 100: files below 75 and above 180 are candidates; five of them, or more than 100 bytes."""
    groups = position_delete_groups(entries(*sizes), PositionDeleteOptions.of(options, 100))
    assert [len(group.files) for group in groups] == chosen


def test_groups_are_ordered() -> None:
    files = [*entries(50, 60), *entries(1, 2, 3, partition="b")]
    for order, first in [("bytes-asc", "b"), ("bytes-desc", "a"), ("files-asc", "a"), ("files-desc", "b")]:
        options = PositionDeleteOptions.of({"rewrite-all": "true", "rewrite-job-order": order}, 100)
        assert position_delete_groups(files, options)[0].partition == (0, (first,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max-files-to-rewrite": "3"}, r"Cannot use options \[max-files-to-rewrite\]"),
        ({"min-input-files": "0"}, "'min-input-files' is set to 0 but must be"),
        ({"target-file-size-bytes": "x"}, "'target-file-size-bytes' is set to x but must be"),
        ({"min-file-size-bytes": "100"}, r"'target-file-size-bytes' \(100\) must be > 'min-file-size-bytes' \(100\)"),
        ({"rewrite-all": "yes"}, "'rewrite-all' is set to yes but must be true or false"),
        ({"rewrite-job-order": "x"}, "Invalid rewrite job order name: x"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        PositionDeleteOptions.of(options, 100)
