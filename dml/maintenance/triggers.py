"""Decide after a commit whether to compact the table, from the summaries of its snapshots. Pure; driver.

Input: the summary of a commit, the snapshots before it, and the options. Output: the reason to compact, or None. No
file is read. Each trigger fires when its value crosses a further multiple, so a compaction that found nothing to
rewrite is not repeated after the next commit.
"""

from collections.abc import Iterable, Mapping
from itertools import takewhile

from pyiceberg.table.snapshots import Operation, Snapshot

from dml.hook_options import HookOptions

__all__ = ["due_trigger"]


def due_trigger(
    added: Mapping[str, str], history: Iterable[Snapshot], options: HookOptions, min_file_size: int
) -> str | None:
    """Return the reason to compact a table after a commit; None if no trigger is due.

    Args:
        added: The summary of the commit.
        history: The snapshots before it, newest first. A rewrite of data files is a compaction.
        options: The options of the table.
        min_file_size: The size below which a data file is small, in bytes.
    """
    before = [one.summary for one in takewhile(lambda one: not is_compaction(one), history)]
    summaries = [{} if one is None else one.additional_properties for one in before]
    commits = len(before) + 1
    if options.trigger_commits is not None and commits % options.trigger_commits == 0:
        return f"{commits} commits since the last compaction"
    if options.trigger_small_files is not None:
        known = sum(small_files(one, min_file_size) for one in summaries)
        now = known + small_files(added, min_file_size)
        if now // options.trigger_small_files > known // options.trigger_small_files:
            return f"{now} small files since the last compaction"
    if options.trigger_deleted_ratio is not None:
        limit = options.trigger_deleted_ratio
        ratio, previous = deleted_ratio(added), deleted_ratio(summaries[0] if summaries else {})
        if ratio >= limit and half_steps(ratio, limit) > half_steps(previous, limit):
            return f"{ratio:.0%} of the rows are deleted"
    return None


def is_compaction(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    if summary is None or summary.operation is not Operation.REPLACE:
        return False
    return number(summary.additional_properties, "deleted-data-files") > 0


def small_files(summary: Mapping[str, str], min_file_size: int) -> int:
    """Return the number of small data files that a commit added: all of its files if their average size is small."""
    files = number(summary, "added-data-files")
    return files if files and number(summary, "added-files-size") / files < min_file_size else 0


def half_steps(ratio: float, limit: float) -> int:
    """Return how often half of the limit fits into a fraction, despite rounding errors as in 0.3 / 0.1."""
    return int(2 * ratio / limit + 1e-9)


def deleted_ratio(summary: Mapping[str, str]) -> float:
    """Return the fraction of rows that position deletes and deletion vectors delete."""
    rows = number(summary, "total-records")
    return number(summary, "total-position-deletes") / rows if rows else 0.0


def number(summary: Mapping[str, str], key: str) -> int:
    text = summary.get(key, "")
    return int(text) if text.isdecimal() else 0
