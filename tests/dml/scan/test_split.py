"""Which whole files go to which task: even groups, and partitions together where that costs nothing."""

import pytest

from dml.model.scan_task import ScanTask
from dml.scan.split import whole_file_groups

MB = 1024 * 1024


def files(*partitions_and_sizes: tuple[int | None, int]) -> list[ScanTask]:
    return [
        ScanTask(
            file_ordinal=ordinal,
            path=f"file-{ordinal}",
            file_format="parquet",
            record_count=1,
            file_size_in_bytes=size,
            start=0,
            length=size,
            spec_id=0,
            partition=() if partition is None else (partition,),
            data_sequence_number=1,
        )
        for ordinal, (partition, size) in enumerate(partitions_and_sizes)
    ]


def ordinals(groups: tuple[tuple[ScanTask, ...], ...]) -> list[list[int]]:
    return sorted([task.file_ordinal for task in group] for group in groups)


def test_few_small_files_are_one_group():
    assert ordinals(whole_file_groups(files(*[(None, 1000)] * 8), parallelism=4)) == [[*range(8)]]
    assert len(whole_file_groups(files(*[(None, 1000)] * 9), parallelism=4)) == 2


def test_large_files_keep_all_tasks_busy():
    groups = whole_file_groups(files(*[(None, 100 * MB)] * 8), parallelism=4)
    assert [len(group) for group in groups] == [2, 1, 1, 1, 1, 1, 1]
    assert len(whole_file_groups(files(*[(1, 100 * MB)] * 2), parallelism=2)) == 2


def test_partitions_that_lie_in_turn_are_brought_together():
    tasks = files(*[(number % 2, 40 * MB) for number in range(4)])
    assert ordinals(whole_file_groups(tasks, parallelism=2)) == [[0, 2], [1, 3]]


def test_a_large_partition_is_spread_and_the_others_stay_together():
    tasks = files((9, 60 * MB), (9, 60 * MB), (1, 20 * MB), (2, 20 * MB), (1, 20 * MB), (2, 20 * MB))
    assert ordinals(whole_file_groups(tasks, parallelism=2)) == [[0, 2, 4], [1, 3, 5]]


def test_together_is_given_up_where_groups_would_be_uneven():
    """Three equal partitions on two tasks: one would have twice the work."""
    tasks = files(*[(number % 3, 20 * MB) for number in range(6)])
    assert [len(group) for group in whole_file_groups(tasks, parallelism=2)] == [3, 3]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_every_file_is_in_one_group(parallelism):
    tasks = files(*[(number % 3 or None, (number % 5) * 11 * MB) for number in range(40)])
    groups = whole_file_groups(tasks, parallelism=parallelism)
    assert sorted(task.file_ordinal for group in groups for task in group) == [*range(40)]
    assert all(list(group) == sorted(group, key=lambda task: task.file_ordinal) for group in groups)
    assert whole_file_groups([]) == ()
