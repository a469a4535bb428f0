"""Select the data files to rewrite, pack them into groups, and give the reasons. Pure; driver.

Input: the scan tasks of a snapshot's live data files and the options. Output: a `RewritePlan`: groups of files to
rewrite, the files to leave, and a decision about each. Source: Iceberg's `BinPackRewriteFilePlanner`.

A file is a candidate if its size is outside the limits or it has many deletes. Candidates of one partition are packed
into groups, and a group is rewritten if the result is fewer or better files. Files of a sorted table are packed in the
order of their bounds: neighbours share a new file, so new files overlap no more than the old ones.

Files with large row groups and few deletes become new files without decoding them, if rows keep their order. The plan
decides it for each new file from the manifests; the task may decide otherwise once it has read the footers.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from dml import limits
from dml.deletes.delete_file_index import partition_key
from dml.maintenance.rewrite_options import JobOrder, RewriteOptions
from dml.model.scan_task import ScanTask
from dml.result import Decision
from dml.write.carried_rows import RewriteRun
from dml.write.copied_row_groups import CopyRule

__all__ = [
    "FileGroup",
    "RewritePlan",
    "copied_text",
    "deletes_of",
    "has_high_ratio",
    "known_deleted",
    "plan_rewrite",
]

SPLITTABLE = frozenset({"parquet"})
"""File formats in which several tasks can each read a part of one file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Data files that are rewritten together.

    Attributes:
        number: Its number in the plan, from 1.
        tasks: The scan tasks of whole files, in the order in which they are read.
        partition: The partition of all its rows under the output spec; None if it is computed for each row.
        copies: True if row groups may be copied without decoding them.
    """

    number: int
    tasks: tuple[ScanTask, ...]
    partition: tuple[Any, ...] | None = None
    copies: bool = False

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(task.file_size_in_bytes for task in self.tasks)

    @property
    def paths(self) -> frozenset[str]:
        """The paths of its files."""
        return frozenset(task.path for task in self.tasks)

    @property
    def deletion_vectors(self) -> int:
        """The number of its files' deletion vectors, which are removed with the files."""
        return sum(task.deletion_vector is not None for task in self.tasks)

    def sorted_run(self, options: RewriteOptions) -> RewriteRun:
        """Return all files as one run, whose rows are sorted together and fill one file after another."""
        return RewriteRun(tasks=self.tasks, partition=self.partition, target_file_size=options.split_size(self.size))

    def sampled(self, ranges: int) -> tuple[ScanTask, ...]:
        """Return row groups at regular distances, to sample the keys of the rows.

        Args:
            ranges: The number of ranges of keys.
        """
        pieces = [piece for task in self.tasks for piece in row_groups(task)]
        ends = list(accumulate(piece.length for piece in pieces))
        count = min(len(pieces), ranges * limits.SAMPLED_ROW_GROUPS_PER_RANGE)
        places = {bisect_right(ends, ends[-1] * (2 * step + 1) // (2 * count)) for step in range(count)}
        return tuple(pieces[place] for place in sorted(places))

    def runs(self, options: RewriteOptions, parallelism: int) -> tuple[RewriteRun, ...]:
        """Cut the files at row groups into as many runs as new files are expected.

        A run becomes one file. ORC and Avro files cannot be cut: if they do not fill new files well, fewer tasks write
        several files each.

        Args:
            options: The options of the rewrite.
            parallelism: The number of concurrent tasks.
        """
        size, files = self.size, options.expected_files(self.size)
        limit = options.split_size(size)
        pieces = [piece for task in self.tasks for piece in row_groups(task)]
        packed = pack(pieces, limit)
        if len(packed) == files + 1 and length(packed[-1]) < options.min_file_size_bytes:
            *packed, last = packed
            packed[-1] += last
        close_at = options.close_at_size
        if len(packed) > files:
            tasks, close_at = max(1, min(parallelism, files // limits.MIN_UNEVEN_FILES_PER_TASK)), limit
            packed = pack(pieces, -(-size // tasks))
        return tuple(self._run(tuple(joined(run)), run, options, close_at) for run in packed)

    def _run(
        self, tasks: tuple[ScanTask, ...], pieces: Sequence[ScanTask], options: RewriteOptions, close_at: int
    ) -> RewriteRun:
        copies = self.copies and self.partition is not None and are_copied(pieces, options)
        return RewriteRun(
            tasks=tasks,
            partition=self.partition,
            target_file_size=close_at,
            copies=CopyRule(
                min_row_group_bytes=limits.MIN_COPIED_ROW_GROUP_BYTES,
                max_row_group_bytes=options.max_file_size_bytes,
                max_deleted=options.delete_ratio_threshold,
            )
            if copies
            else None,
        )


def length(pieces: Iterable[ScanTask]) -> int:
    return sum(piece.length for piece in pieces)


def row_groups(task: ScanTask) -> Iterator[ScanTask]:
    """Yield the parts of a file that tasks can read: its row groups, or the whole file."""
    offsets, end = task.split_offsets, task.file_size_in_bytes
    ordered = all(left < right for left, right in pairwise(offsets)) and offsets[-1:] < (end,)
    if task.file_format not in SPLITTABLE or len(offsets) < 2 or not ordered:
        yield task
        return
    for start, stop in pairwise((0, *offsets[1:], end)):
        yield replace(task, start=start, length=stop - start)


def are_copied(pieces: Sequence[ScanTask], options: RewriteOptions) -> bool:
    """Return True if the row groups of a new file are large, but not too large, and no old file loses deleted rows."""
    # `rewrite-all` applies the table's properties to all files, and removes all deleted rows.
    if options.rewrite_all or row_group_size(pieces) < limits.MIN_COPIED_ROW_GROUP_BYTES:
        return False
    return not any(
        piece.file_format not in SPLITTABLE
        or piece.length > options.max_file_size_bytes
        or piece.equality_deletes
        or has_many_deletes(piece, options)
        or has_high_ratio(piece, options)
        for piece in pieces
    )


def row_group_size(pieces: Sequence[ScanTask]) -> int:
    """Return the average compressed size of the row groups of some files or parts of files."""
    ends = ((piece, piece.start + piece.length) for piece in pieces)
    counts = (sum(piece.start <= offset < end for offset in piece.split_offsets) for piece, end in ends)
    return length(pieces) // max(1, sum(max(1, number) for number in counts))


def joined(pieces: Iterable[ScanTask]) -> Iterator[ScanTask]:
    """Join adjacent parts of a file."""
    last: ScanTask | None = None
    for piece in pieces:
        if last is not None and last.file_ordinal == piece.file_ordinal:
            last = replace(last, length=last.length + piece.length)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def pack(tasks: Iterable[ScanTask], limit: int, most: int | None = None) -> list[list[ScanTask]]:
    """Pack tasks, in order, into lists of at most `limit` bytes and `most` tasks; a larger task is alone."""
    packed: list[list[ScanTask]] = []
    size = 0
    for task in tasks:
        fits = bool(packed) and size + task.length <= limit and (most is None or len(packed[-1]) < most)
        if not fits:
            packed.append([])
            size = 0
        packed[-1].append(task)
        size += task.length
    return packed


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePlan:
    """The groups to rewrite, and the files to leave.

    Attributes:
        options: The options.
        groups: The groups to rewrite, in the order of the jobs.
        small_groups: Candidates whose groups are not worth a rewrite.
        beyond_limit: Candidates beyond `max-files-to-rewrite`.
        fitting: Files that are not candidates.
    """

    options: RewriteOptions
    groups: tuple[FileGroup, ...] = ()
    small_groups: tuple[tuple[ScanTask, ...], ...] = ()
    beyond_limit: tuple[ScanTask, ...] = ()
    fitting: tuple[ScanTask, ...] = ()

    def decisions(
        self, partition_text: Callable[[tuple[Any, ...]], str], way_text: Callable[[FileGroup], str] = lambda _: ""
    ) -> Iterator[Decision]:
        """Yield a decision, `rewrite` or `keep`, for each group to rewrite and for each file.

        Args:
            partition_text: Returns the name of a partition of the output spec; empty if it is unpartitioned.
            way_text: Returns how the files of a group are rewritten; empty if their rows are just encoded again.
        """
        options = self.options
        for group in self.groups:
            size, files = group.size, options.expected_files(group.size)
            reason = f"{group_reason(group.tasks, options)}: {count(len(group.tasks), 'file')} of {size} bytes"
            way = way_text(group)
            text = f"{reason} become {files}" + (f", {way}" if way else "")
            partition = "" if group.partition is None else partition_text(group.partition)
            name = f"group {group.number} of {partition}" if partition else f"group {group.number}"
            yield Decision(decision="rewrite", object=name, reason=text)
            for task in group.tasks:
                why = candidate_reason(task, options)
                yield Decision(decision="rewrite", object=task.path, reason=f"{why}: in group {group.number}")
        for tasks in self.small_groups:
            less = f"only {count(len(tasks), 'such file')} of {length(tasks)} bytes in the group, below"
            text = f"{less} min-input-files {options.min_input_files} and the size of one new file"
            for task in tasks:
                why = candidate_reason(task, options)
                yield Decision(decision="keep", object=task.path, reason=f"{why}, but {text}")
        for task in self.beyond_limit:
            why = f"max-files-to-rewrite {options.max_files_to_rewrite} is reached"
            reason = f"{candidate_reason(task, options)}, but {why}"
            yield Decision(decision="keep", object=task.path, reason=reason)
        for task in self.fitting:
            yield Decision(decision="keep", object=task.path, reason=f"{fitting_reason(task, options)}")


def copied_text(runs: Sequence[RewriteRun]) -> str:
    """Return a text about the runs whose row groups are copied; empty without them."""
    copied = [run for run in runs if run.copies is not None]
    if not copied:
        return ""
    mib = row_group_size([task for run in copied for task in run.tasks]) / 2**20
    files = "" if len(copied) == len(runs) else f" into {len(copied)} of them"
    return f"row groups of {mib:.0f} MiB copied{files}"


def plan_rewrite(
    tasks: Sequence[ScanTask],
    options: RewriteOptions,
    spec_id: int,
    places: Sequence[float] | None = None,
    *,
    copies: bool = False,
) -> RewritePlan:
    """Plan a rewrite.

    Args:
        tasks: The scan tasks of the live data files.
        options: The options.
        spec_id: The table's partition spec. Files of other specs are packed together, because their rows may belong to
            any partition.
        places: For a sorted table, the rank of each file, by which the files of a partition are ordered.
        copies: True if rows keep their order and new files are Parquet files, so that row groups may be copied.
    """
    chosen = [task for task in tasks if options.rewrite_all or is_candidate(task, options)]
    fitting = () if len(chosen) == len(tasks) else tuple(task for task in tasks if not is_candidate(task, options))
    if places is not None:
        chosen.sort(key=lambda task: places[task.file_ordinal])  # stable
    pools: dict[Hashable, list[ScanTask]] = {}
    for task in chosen:
        pools.setdefault(pool_key(task, spec_id), []).append(task)
    packed = [
        group
        for pool in pools.values()
        for group in pack(pool, options.max_file_group_size_bytes, options.max_file_group_input_files)
    ]
    worth = [group for group in packed if is_worthwhile(group, options)]
    selected, beyond = cut(worth, options.max_files_to_rewrite)
    groups = [
        FileGroup(
            number=number,
            tasks=tuple(group),
            partition=common_partition(group, options.output_spec_id),
            copies=copies,
        )
        for number, group in enumerate(selected, start=1)
    ]
    return RewritePlan(
        options=options,
        groups=tuple(in_job_order(groups, options.rewrite_job_order)),
        small_groups=tuple(tuple(group) for group in packed if not is_worthwhile(group, options)),
        beyond_limit=tuple(beyond),
        fitting=fitting,
    )


def pool_key(task: ScanTask, spec_id: int) -> Hashable:
    """Return the key of files that may share a group. As in the reference, files of other specs share that of NULLs."""
    partition = task.partition if task.spec_id == spec_id else ()
    return None if all(value is None for value in partition) else partition_key(0, partition)


def common_partition(tasks: Sequence[ScanTask], spec_id: int) -> tuple[Any, ...] | None:
    """Return the partition that all files have under a spec, or None."""
    partitions = {partition_key(task.spec_id, task.partition) for task in tasks}
    is_common = len(partitions) == 1 and tasks[0].spec_id == spec_id
    return tasks[0].partition if is_common else None


def cut(groups: Sequence[list[ScanTask]], most: int | None) -> tuple[list[list[ScanTask]], list[ScanTask]]:
    """Take groups until they have `most` files, and cut the last one. Return these groups and the remaining files."""
    if most is None:
        return list(groups), []
    taken: list[list[ScanTask]] = []
    left: list[ScanTask] = []
    for group in groups:
        if most:
            taken.append(group[:most])
        left.extend(group[most:])
        most -= min(most, len(group))
    return taken, left


def in_job_order(groups: list[FileGroup], order: JobOrder) -> list[FileGroup]:
    match order:
        case JobOrder.NONE:
            return groups
        case JobOrder.BYTES_ASC | JobOrder.BYTES_DESC:
            return sorted(groups, key=lambda group: group.size, reverse=order is JobOrder.BYTES_DESC)
        case JobOrder.FILES_ASC | JobOrder.FILES_DESC:
            return sorted(groups, key=lambda group: len(group.tasks), reverse=order is JobOrder.FILES_DESC)


# ---- rules --------------------------------------------------------------------------------------------------------


def deletes_of(task: ScanTask) -> int:
    """Return the number of delete files that apply to a file."""
    vectors = task.deletion_vector is not None
    return vectors + len(task.position_deletes) + len(task.equality_deletes)


def known_deleted(task: ScanTask) -> int:
    """Return the deleted rows that metadata attributes to a file: those of delete files for this file only."""
    if task.deletion_vector is not None:
        return min(task.deletion_vector.record_count, task.record_count)
    own = (ref.record_count for ref in task.position_deletes if ref.referenced_data_file is not None)
    return min(sum(own), task.record_count)


def has_wrong_size(task: ScanTask, options: RewriteOptions) -> bool:
    return not options.min_file_size_bytes <= task.length <= options.max_file_size_bytes


def has_many_deletes(task: ScanTask, options: RewriteOptions) -> bool:
    # Also without deletes: a threshold of 0 selects every file.
    return deletes_of(task) >= options.delete_file_threshold


def has_high_ratio(task: ScanTask, options: RewriteOptions) -> bool:
    """Return True if the fraction of deleted rows alone is a reason to rewrite a file, whatever its size."""
    if not deletes_of(task) or not task.record_count:
        return False
    return known_deleted(task) / task.record_count >= options.delete_ratio_threshold


def is_candidate(task: ScanTask, options: RewriteOptions) -> bool:
    return has_wrong_size(task, options) or has_many_deletes(task, options) or has_high_ratio(task, options)


def is_worthwhile(tasks: Sequence[ScanTask], options: RewriteOptions) -> bool:
    return bool(options.rewrite_all or group_reason(tasks, options))


def group_reason(tasks: Sequence[ScanTask], options: RewriteOptions) -> str:
    """Return why a group is rewritten; empty if it is not."""
    size = length(tasks)
    if options.rewrite_all:
        return "rewrite-all"
    if len(tasks) > 1 and len(tasks) >= options.min_input_files:
        return f"at least min-input-files {options.min_input_files}"
    if len(tasks) > 1 and size > options.target_file_size_bytes:
        return f"more than target-file-size-bytes {options.target_file_size_bytes}"
    if size > options.max_file_size_bytes:
        return f"more than max-file-size-bytes {options.max_file_size_bytes}"
    if any(has_many_deletes(task, options) or has_high_ratio(task, options) for task in tasks):
        return "deletes"
    return ""


def candidate_reason(task: ScanTask, options: RewriteOptions) -> str:
    if has_high_ratio(task, options):
        return f"{deleted_text(task)}, at least ratio {options.delete_ratio_threshold}"
    if has_many_deletes(task, options):
        return f"{count(deletes_of(task), 'delete file')}, at least {options.delete_file_threshold}"
    if task.length < options.min_file_size_bytes:
        return f"{task.length} bytes, below min-file-size-bytes {options.min_file_size_bytes}"
    if task.length > options.max_file_size_bytes:
        return f"{task.length} bytes, above max-file-size-bytes {options.max_file_size_bytes}"
    return "rewrite-all"


def fitting_reason(task: ScanTask, options: RewriteOptions) -> str:
    size = f"{task.length} bytes, a size from {options.min_file_size_bytes} to {options.max_file_size_bytes}"
    if not deletes_of(task):
        return size
    return f"{size}; {deleted_text(task)}, below ratio {options.delete_ratio_threshold}"


def deleted_text(task: ScanTask) -> str:
    known, others = known_deleted(task), deletes_of(task) - counted_deletes(task)
    text = f"{known} of {task.record_count} rows deleted"
    return f"{text}, and {count(others, 'delete file')} that may delete more" if others else text


def counted_deletes(task: ScanTask) -> int:
    if task.deletion_vector is not None:
        return 1
    return sum(ref.referenced_data_file is not None for ref in task.position_deletes)


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
