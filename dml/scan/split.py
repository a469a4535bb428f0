"""Group scan tasks into groups of about equal weight, one for each Spark task. Driver.

Input: tasks of whole files. Output: groups of tasks: for reading, big files are cut where row groups start; for
changing rows, files stay whole, and those of one partition stay together if the groups stay balanced.
Source: Iceberg documentation, "Read properties" (`read.split.*`); Java's `TableScanUtil` for a task's weight.
"""

import heapq
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from dml import limits
from dml.deletes.delete_file_index import partition_key
from dml.model.scan_task import ScanTask
from dml.options import DistributionMode

__all__ = [
    "MIN_PARALLEL_BYTES",
    "MIN_PARALLEL_QUERY_BYTES",
    "OPEN_FILE_COST",
    "TARGET_SIZE",
    "ChangeDistribution",
    "TaskGroups",
    "partition_groups",
    "split",
    "whole_file_groups",
]

TaskGroups = tuple[tuple[ScanTask, ...], ...]
"""The scan tasks of each Spark task."""

TARGET_SIZE = 128 * 1024 * 1024
"""The default of `read.split.target-size`."""

OPEN_FILE_COST = 4 * 1024 * 1024
"""The default of `read.split.open-file-cost`."""

MIN_PARALLEL_BYTES = 16 * 1024 * 1024
"""One task reads a scan of up to this size, regardless of the parallelism: Java's `MIN_SPLIT_SIZE`. Each file counts as
at least `open_file_cost`. Tasks may write files, and fewer tasks write fewer files."""

MIN_PARALLEL_QUERY_BYTES = 8 * 1024 * 1024
"""The same for queries, which write no files. Two tasks read four files of 1 to 2.5 MB in up to a quarter less time,
and smaller files in about the same time (decision 066)."""


SPLITTABLE = frozenset({"parquet"})
"""Formats whose readers find the position of a part's first row without reading the rows before it."""


def split(
    tasks: Sequence[ScanTask],
    target_size: int = TARGET_SIZE,
    parallelism: int = 1,
    *,
    open_file_cost: int = OPEN_FILE_COST,
    min_parallel_bytes: int = MIN_PARALLEL_BYTES,
) -> TaskGroups:
    """Group tasks for Spark's tasks to read.

    Args:
        tasks: Tasks of whole files.
        target_size: Maximum bytes of a group, as far as row groups allow; `read.split.target-size`.
        parallelism: The number of concurrent tasks: groups get smaller than `target_size` to keep all of them busy.
        open_file_cost: The weight of opening a file, in bytes; `read.split.open-file-cost`.
        min_parallel_bytes: One group holds all tasks of a scan up to this size, in bytes.

    Returns:
        The groups, heaviest first; in each, tasks in the order of the files. Every row is in one task.
    """
    if not tasks:
        return ()
    total = sum(weight(task, open_file_cost) for task in tasks)
    if total <= min(min_parallel_bytes, target_size):
        return pack_groups([[task] for task in tasks], 1, open_file_cost)
    share = -(-total // max(1, parallelism))
    size = max(1, open_file_cost, min(target_size, share))
    parts = [part for task in tasks for part in parts_of(task, size)]
    return pack_groups(
        [[part] for part in parts], max(min(parallelism, len(parts)), -(-total // target_size)), open_file_cost
    )


def weight(task: ScanTask, open_file_cost: int) -> int:
    """Return the cost of a task in bytes: its size plus that of its deletes, at least the cost of opening each file."""
    deletes = (*task.position_deletes, *task.equality_deletes, *filter(None, (task.deletion_vector,)))
    size = task.length + sum(ref.content_size_in_bytes or ref.file_size_in_bytes for ref in deletes)
    return max(size, (1 + len(deletes)) * open_file_cost)


def parts_of(task: ScanTask, size: int) -> Iterator[ScanTask]:
    """Cut a file into parts of about a size, where row groups start."""
    end = task.start + task.length
    offsets = task.split_offsets
    usable = all(left < right for left, right in pairwise(offsets)) and offsets[-1:] < (end,)
    if task.file_format not in SPLITTABLE or task.length <= size * 3 // 2 or not usable or len(offsets) < 2:
        yield task
        return
    start = task.start
    for offset, following in pairwise((*offsets[1:], end)):
        if following - start > size and offset > start:
            yield replace(task, start=start, length=offset - start, split_offsets=())
            start = offset
    yield replace(task, start=start, length=end - start, split_offsets=())


Units = Sequence[Sequence[ScanTask]]
"""Tasks that stay together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDistribution:
    """How data files are assigned to the tasks of a DELETE, UPDATE or MERGE.

    Attributes:
        mode: `hash` and `range` keep partitions together, even in uneven groups; `none` ignores partitions; None
            keeps them together only if the groups stay balanced.
        advisory_size: Approximate maximum bytes of a partition that are kept together.
    """

    mode: DistributionMode | None = None
    advisory_size: int = TARGET_SIZE


ANY_DISTRIBUTION: Final = ChangeDistribution()


def whole_file_groups(
    tasks: Sequence[ScanTask],
    target_size: int = TARGET_SIZE,
    parallelism: int = 1,
    *,
    open_file_cost: int = OPEN_FILE_COST,
    distribution: ChangeDistribution = ANY_DISTRIBUTION,
) -> TaskGroups:
    """Group whole files for the tasks that change their rows.

    Each task writes separate files for every partition that it changes, so the files of a partition share a group as
    long as the groups stay balanced, and a few small files share one.

    Args:
        tasks: Tasks of whole files.
        target_size: Approximate maximum bytes of a group; `read.split.target-size`.
        parallelism: The number of concurrent tasks.
        open_file_cost: The weight of opening a file, in bytes; `read.split.open-file-cost`.
        distribution: The setting of the session or the table.

    Returns:
        The groups, heaviest first; in each, tasks in the order of the files.
    """
    if not tasks:
        return ()
    size = sum(task.length for task in tasks)
    # Starting a task with a Python worker costs tens of milliseconds, so start only as many as keep all cores busy.
    useful = min(parallelism, max(-(-size // limits.MIN_TASK_BYTES), -(-len(tasks) // limits.MIN_TASK_FILES)))
    count = min(len(tasks), max(-(-size // target_size), useful, 1))
    files: Units = [[task] for task in tasks]
    apart = pack_groups(files, count, open_file_cost)
    if count == 1 or distribution.mode is DistributionMode.NONE:
        return apart
    if distribution.mode is not None:
        return pack_groups(whole_partitions(tasks, distribution.advisory_size), count, open_file_cost)
    together = pack_groups(partition_units(tasks, count, open_file_cost), count, open_file_cost)
    heaviest, least = (sum(weight(task, open_file_cost) for task in groups[0]) for groups in (together, apart))
    return together if heaviest <= least * limits.MAX_TASK_IMBALANCE else apart


def partition_groups(
    tasks: Sequence[ScanTask],
    partition: Callable[[ScanTask], Hashable],
    target_size: int = TARGET_SIZE,
    parallelism: int = 1,
    *,
    open_file_cost: int = OPEN_FILE_COST,
) -> TaskGroups:
    """Group whole files so that each task writes all rows of its partitions.

    Args:
        tasks: Tasks of whole files.
        partition: Returns the partition to which the rows of a file are written.
        target_size: Approximate maximum bytes of a group of several partitions; `read.split.target-size`.
        parallelism: The number of concurrent tasks.
        open_file_cost: The weight of opening a file, in bytes; `read.split.open-file-cost`.

    Returns:
        The groups, heaviest first; in each, the files of a partition next to each other, in their order.
    """
    partitions: dict[Hashable, list[ScanTask]] = {}
    for task in tasks:
        partitions.setdefault(partition(task), []).append(task)
    total = sum(task.length for task in tasks)
    useful = min(parallelism, -(-total // limits.MIN_TASK_BYTES))
    count = min(len(partitions), max(useful, -(-total // target_size), 1))
    order = {key: number for number, key in enumerate(partitions)}
    groups = pack_groups(list(partitions.values()), count, open_file_cost)
    return tuple(tuple(sorted(group, key=lambda task: order[partition(task)])) for group in groups)


def partition_units(tasks: Sequence[ScanTask], groups: int, open_file_cost: int) -> Units:
    """Put the files of each partition together, unless they are much heavier than the average group."""
    share = sum(weight(task, open_file_cost) for task in tasks) / groups
    partitions: dict[Hashable, list[ScanTask]] = {}
    for task in tasks:
        partitions.setdefault(partition_key(task.spec_id, task.partition), []).append(task)
    units: list[list[ScanTask]] = []
    for files in partitions.values():
        fits = sum(weight(task, open_file_cost) for task in files) <= share * limits.MAX_TASK_IMBALANCE
        units.extend([files] if fits else ([task] for task in files))
    return units


def whole_partitions(tasks: Sequence[ScanTask], size: int) -> Units:
    """Put the files of each partition together, in pieces of about a size; unpartitioned files stay separate."""
    units: list[list[ScanTask]] = []
    latest: dict[Hashable, list[ScanTask]] = {}
    for task in tasks:
        key = partition_key(task.spec_id, task.partition) if task.partition else task.file_ordinal
        unit = latest.get(key)
        if unit is None or sum(part.length for part in unit) + task.length > size:
            latest[key] = unit = []
            units.append(unit)
        unit.append(task)
    return units


def pack_groups(units: Units, groups: int, open_file_cost: int) -> TaskGroups:
    """Pack units into groups: the heaviest unit first, each into the group that is lightest so far."""
    weighed = sorted(
        ((sum(weight(part, open_file_cost) for part in unit), unit) for unit in units),
        key=lambda entry: (-entry[0], entry[1][0].file_ordinal, entry[1][0].start),
    )
    heap = [(0, number) for number in range(max(1, groups))]
    members: list[list[ScanTask]] = [[] for _ in heap]
    for cost, unit in weighed:
        total, number = heapq.heappop(heap)
        members[number].extend(unit)
        heapq.heappush(heap, (total + cost, number))
    loads = {number: total for total, number in heap}
    order = sorted((number for number in loads if members[number]), key=lambda number: (-loads[number], number))
    return tuple(tuple(sorted(members[number], key=lambda part: (part.file_ordinal, part.start))) for number in order)
