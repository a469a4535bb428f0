"""Measure how much files overlap on a sort key, from their bounds. Pure; driver.

Source: Iceberg's proposal `compute_sort_order_stats` (pull request 17504), for the meaning of depth.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

__all__ = ["average_depth"]


def average_depth(ranges: Iterable[tuple[Any, Any]]) -> float:
    """Return the average overlap depth of ranges: the average number of ranges that contain a value.

    Ranges that only share an end do not overlap: a value may fill several files of a perfectly sorted table. The depth
    is measured where each range begins; 1 is perfectly clustered.

    Args:
        ranges: The lower and upper bounds, in an order that Python compares.

    Returns:
        1 or more; 0 without ranges.
    """
    open_ends: list[Any] = []
    count = total = 0
    for lower, upper in sorted(ranges):
        while open_ends and open_ends[0] <= lower:
            heappop(open_ends)
        heappush(open_ends, upper)
        total += len(open_ends)
        count += 1
    return total / count if count else 0.0
