"""The rules of maintenance: what overlaps, what pays, and which trigger is due."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from dml import limits
from dml.hook_options import HookOptions
from dml.maintenance import (
    PositionDeleteOptions,
    RewriteOptions,
    average_depth,
    due_trigger,
    manifest_reason,
    merges_delete_files,
    plan_rewrite,
    worthwhile_groups,
)
from dml.maintenance.position_delete_groups import PositionDeleteGroup
from dml.model.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    PartitionSummary,
)
from dml.model.scan_task import DeleteFileRef, ScanTask

# ---- overlap


@pytest.mark.parametrize(
    ("ranges", "depth"),
    [
        ([], 0),
        ([(1, 5)], 1),
        ([(1, 2), (3, 4), (5, 6)], 1),
        ([(1, 3), (3, 3), (3, 3), (3, 5)], 1),  # a value that fills whole files of a sorted table
        ([(1, 9)] * 4, (1 + 2 + 3 + 4) / 4),
        ([(1, 9), (2, 3), (4, 5)], (1 + 2 + 2) / 3),
        ([(5, 5), (1, 9), (5, 5)], (1 + 2 + 2) / 3),
    ],
)
def test_the_depth_counts_the_ranges_that_are_open_where_one_begins(ranges, depth):
    assert average_depth(ranges) == depth
    assert average_depth(reversed(ranges)) == depth


# ---- data files


def task(place: int, size: int, deleted: int = 0) -> ScanTask:
    vector = DeleteFileRef(
        path="d",
        file_format="puffin",
        content_offset=4,
        content_size_in_bytes=8,
        record_count=deleted,
        file_size_in_bytes=100,
        referenced_data_file=str(place),
        data_sequence_number=2,
    )
    return ScanTask(
        file_ordinal=place,
        path=str(place),
        file_format="parquet",
        record_count=100,
        file_size_in_bytes=size,
        start=0,
        length=size,
        spec_id=0,
        partition=(),
        data_sequence_number=1,
        deletion_vector=vector if deleted else None,
    )


def groups_that_pay(sizes: Sequence[int], deleted: Mapping[int, int] | None = None, **further: str) -> tuple[int, int]:
    """The number of groups of the plan, and of those that pay."""
    given = {name.replace("_", "-"): value for name, value in further.items()}
    options = RewriteOptions.of({"target-file-size-bytes": "1000", **given}, {}, 0, (0,))
    tasks = [task(place, size, (deleted or {}).get(place, 0)) for place, size in enumerate(sizes)]
    plan = plan_rewrite(tasks, options, 0)
    found = worthwhile_groups(plan.groups, options)
    assert len(found.groups) + len(found.left) == len(plan.groups)
    return len(plan.groups), len(found.groups)


def test_a_rewrite_that_leaves_more_than_half_of_the_files_does_not_pay():
    """Iceberg rewrites two files of 70 % into two of 70 %, each time it is called."""
    assert groups_that_pay([700, 700]) == (1, 0)
    assert groups_that_pay([700] * 5) == (1, 0)
    assert groups_that_pay([400] * 5) == (1, 1)
    assert groups_that_pay([10] * 5) == (1, 1)


def test_deletes_and_files_that_are_too_large_pay():
    assert groups_that_pay([1000, 1000], {0: 30}) == (1, 1)
    assert groups_that_pay([1000, 1000], {0: 29}) == (0, 0)
    assert groups_that_pay([2000]) == (1, 1)


def test_files_without_deletes_do_not_pay_whatever_the_threshold():
    assert groups_that_pay([1000, 1000], delete_file_threshold="0") == (1, 0)
    assert groups_that_pay([1000, 1000], {1: 1}, delete_file_threshold="0") == (1, 1)


def test_groups_with_deletes_are_first_and_then_those_that_lose_most_files_for_their_bytes():
    options = RewriteOptions.of({"target-file-size-bytes": "1000", "max-file-group-size-bytes": "1000"}, {}, 0, (0,))
    sizes = [200] * 5 + [100] * 10 + [1000]
    tasks = [task(place, size, 50 if place == 15 else 0) for place, size in enumerate(sizes)]
    found = worthwhile_groups(plan_rewrite(tasks, options, 0).groups, options)
    assert [len(group.tasks) for group in found.groups] == [1, 10, 5]


# ---- position delete files


def delete_file(place: int, data_file: str | None) -> ManifestEntry:
    file = ContentFile(
        content=FileContent.POSITION_DELETES,
        path=f"d{place}",
        file_format="parquet",
        spec_id=0,
        partition=(),
        record_count=1,
        file_size_in_bytes=100,
        referenced_data_file=data_file,
    )
    return ManifestEntry(
        status=EntryStatus.ADDED, snapshot_id=1, data_sequence_number=1, file_sequence_number=1, data_file=file
    )


@pytest.mark.parametrize(
    ("data_files", "by_file", "pays"),
    [
        (["a"] * 5, True, True),
        (["a", "b", "c", "d", "e"], True, False),  # would become as many
        (["a", "a", "b", "b"], True, True),
        (["a", None, "a", "a", "a"], True, False),  # the file of several data files would be split
        (["a", "b", "c", "d", "e"], False, True),
        (["a"], False, False),
    ],
)
def test_delete_files_are_merged_if_that_halves_them(data_files, by_file, pays):
    group = PositionDeleteGroup(
        partition=(0, ()), files=tuple(delete_file(place, one) for place, one in enumerate(data_files))
    )
    assert merges_delete_files(group, PositionDeleteOptions.of({}, 1000), by_file=by_file) is pays


# ---- manifests

SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"), spec_id=0)
METADATA = new_table_metadata(
    Schema(NestedField(1, "day", LongType(), required=False)), SPEC, UNSORTED_SORT_ORDER, "file:///t"
)


def manifests(
    number: int, size: int, days: int, *, content: ManifestContent = ManifestContent.DATA
) -> list[ManifestFile]:
    """Manifests of some bytes, each of its own days; all of the same days if `days` is 0."""
    return [
        ManifestFile(
            manifest_path=f"m{place}",
            manifest_length=size,
            partition_spec_id=0,
            content=content,
            added_snapshot_id=1,
            partitions=(
                PartitionSummary(
                    contains_null=False,
                    lower_bound=to_bytes(LongType(), place * days),
                    upper_bound=to_bytes(LongType(), place * days + max(days, 100) - 1),
                ),
            ),
        )
        for place in range(number)
    ]


def test_manifests_are_rewritten_if_there_are_many_small_ones_or_if_they_list_the_same_partitions():
    least = limits.MAINTENANCE_MIN_MANIFESTS

    def reason(found: list[ManifestFile]) -> str:
        return manifest_reason(found, SPEC, METADATA.model_copy(update={"partition_specs": [SPEC]}), 1000)

    assert reason(manifests(least - 1, 1, 100)) == ""
    assert reason(manifests(least, 1, 100)) == f"{least} data manifests, where 1 of the target size would do"
    assert reason(manifests(least, 1, 100, content=ManifestContent.DELETES)).startswith(f"{least} delete manifests")
    assert reason(manifests(least, 1000, 100)) == ""
    assert (
        reason(manifests(least, 1000, 0))
        == f"{least} data manifests, of which 10.5 on average list the same value of day"
    )
    # Two kinds are not added up: a reader of one does not open the other for its own sake.
    mixed = manifests(least // 2, 1, 100) + manifests(least // 2, 1, 100, content=ManifestContent.DELETES)
    assert reason(mixed) == ""


# ---- triggers


def summary(files: int = 1, size: int = 10, **totals: int) -> dict[str, str]:
    texts = {f"total-{key.replace('_', '-')}": str(value) for key, value in totals.items()}
    return {"added-data-files": str(files), "added-files-size": str(size), **texts}


def history(*summaries: dict[str, str] | None) -> list[Snapshot]:
    """Snapshots, newest first; None for a compaction, and a summary without new files for a rewrite of manifests."""
    return [
        Snapshot(
            snapshot_id=number,
            timestamp_ms=number,
            manifest_list="",
            summary=Summary(
                operation=Operation.APPEND if one and "added-data-files" in one else Operation.REPLACE,
                **({"deleted-data-files": "4"} if one is None else one),
            ),
        )
        for number, one in enumerate(summaries)
    ]


def due(options: dict[str, Any], added: dict[str, str], *before: dict[str, str] | None) -> str | None:
    return due_trigger(added, history(*before), HookOptions(**options), 100)


def test_a_trigger_by_commits_counts_those_since_the_last_compaction():
    one = summary()
    assert due({"trigger_commits": 3}, one, one) is None
    assert due({"trigger_commits": 3}, one, one, one) == "3 commits since the last compaction"
    assert due({"trigger_commits": 3}, one, one, one, one) is None
    assert due({"trigger_commits": 3}, one, one, one, one, one, one) == "6 commits since the last compaction"
    assert due({"trigger_commits": 3}, one, one, None, one) is None
    assert due({"trigger_commits": 3}, one, one, {"manifests-replaced": "2"}) is not None


def test_a_trigger_by_small_files_fires_each_time_as_many_came():
    few, large = summary(4, 40), summary(4, 4000)
    assert due({"trigger_small_files": 10}, few, few) is None
    assert due({"trigger_small_files": 10}, few, few, few) == "12 small files since the last compaction"
    assert due({"trigger_small_files": 10}, few, few, few, few) is None
    assert due({"trigger_small_files": 10}, few, large, few, few) == "12 small files since the last compaction"
    assert due({"trigger_small_files": 10}, large, few, few, few) is None
    assert due({"trigger_small_files": 10}, few, few, None, few) is None


def test_a_trigger_by_deleted_rows_fires_when_the_fraction_rises():
    def rows(deleted: int) -> dict[str, str]:
        return summary(records=100, position_deletes=deleted)

    options = {"trigger_deleted_ratio": 0.2}
    assert due(options, rows(19), rows(10)) is None
    assert due(options, rows(20), rows(19)) == "20% of the rows are deleted"
    assert due(options, rows(25), rows(20)) is None
    assert due(options, rows(30), rows(25)) == "30% of the rows are deleted"
    assert due(options, rows(20)) == "20% of the rows are deleted"


def test_numbers_of_other_writers_that_are_none_count_as_0():
    assert due({"trigger_small_files": 1, "trigger_deleted_ratio": 0.1}, {"added-data-files": "-1"}, {}) is None
    assert due({"trigger_deleted_ratio": 0.1}, {"total-records": "x", "total-position-deletes": "5"}) is None
