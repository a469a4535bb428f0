"""Measure the overlap of files: the number of files of a partition whose bounds contain a value. Pure; driver.

Input: the partition, the lower and the upper bound of each file, as numbers. Output: the depth at each bound, and the
average depth, on which maintenance bases its decisions.

The depth at a value is the number of files whose lower bound is not above it and whose upper bound is not below it. It
only changes at bounds, so the depths at all bounds include the greatest one. A query for one value reads as many files.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dml.maintenance import average_depth

__all__ = ["OverlapDepths", "overlap_depths", "rank_values"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapDepths:
    """The depths at the distinct bounds of each partition.

    Attributes:
        partitions: The partition of each bound, ascending.
        depths: The number of files at the bound.
        files: The number of all files.
        mean: The `average_depth` of files within their partitions; 0 without files.
    """

    partitions: Integers
    depths: Integers
    files: int
    mean: float

    @property
    def max(self) -> int:
        """The greatest depth; 0 without files."""
        return int(self.depths.max(initial=0))

    def max_by_partition(self, partitions: int) -> Integers:
        """Return the greatest depth of each partition, 0 for one without bounds.

        Args:
            partitions: The number of partitions.
        """
        found = np.zeros(partitions, np.int64)
        np.maximum.at(found, self.partitions, self.depths)
        return found


def overlap_depths(partitions: Integers, lower: Integers, upper: Integers) -> OverlapDepths:
    """Sweep over the bounds of files. A file whose lower bound is above its upper bound is left out.

    Args:
        partitions: The partition of each file, from 0.
        lower: The rank of its lower bound, from 0.
        upper: The rank of its upper bound.
    """
    ordered = lower <= upper
    partitions, lower, upper = partitions[ordered], lower[ordered], upper[ordered]
    # The partitions are laid out one after the other on one axis: a range that begins in a partition also ends there.
    width = int(upper.max(initial=0)) + 1
    starts, ends = partitions * width + lower, partitions * width + upper
    bounds = np.unique(np.concatenate((starts, ends)))
    begun = np.searchsorted(np.sort(starts), bounds, side="right")
    ended = np.searchsorted(np.sort(ends), bounds, side="left")
    return OverlapDepths(
        partitions=bounds // width,
        depths=begun - ended,
        files=len(starts),
        mean=average_depth(zip(starts.tolist(), ends.tolist(), strict=True)),
    )


def rank_values(lower: npt.NDArray[Any], upper: npt.NDArray[Any]) -> tuple[Integers, Integers]:
    """Replace bounds by their ranks among all bounds.

    Args:
        lower: Lower bounds, as numbers or as objects that can be compared.
        upper: Upper bounds of the same files.
    """
    both = np.concatenate((lower, upper))
    if both.dtype == object:
        values = both.tolist()
        places = {value: place for place, value in enumerate(sorted(set(values)))}
        ranks = np.fromiter((places[value] for value in values), np.int64, len(values))
    else:
        _, ranks = np.unique(both, return_inverse=True)
    return ranks[: len(lower)], ranks[len(lower) :]
