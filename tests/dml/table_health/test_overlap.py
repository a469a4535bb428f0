"""The sweep over bounds against counting file by file."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.table_health.overlap import overlap_depths, rank_values

File = tuple[int, Any, Any]
"""Partition, lower and upper bound."""


def sweep(files: Sequence[File], kind: Any) -> tuple[dict[int, list[int]], float, int, list[int]]:
    """The depths at the bounds of each partition, their mean and maximum, and the maximum of partitions 0 to 2."""
    lower, upper = (np.array([file[place] for file in files], kind) for place in (1, 2))
    ranks = rank_values(lower, upper)
    found = overlap_depths(np.array([file[0] for file in files], np.int64), *ranks)
    depths: dict[int, list[int]] = {}
    for partition, depth in zip(found.partitions.tolist(), found.depths.tolist(), strict=True):
        depths.setdefault(partition, []).append(depth)
    return depths, found.mean, found.max, found.max_by_partition(3).tolist()


def count(files: Sequence[File]) -> tuple[dict[int, list[int]], float, int, list[int]]:
    """The same by brute force: at each bound, count the files that contain it; on average, those open at its begin."""
    depths = {}
    for partition in sorted({file[0] for file in files}):
        own = [file for file in files if file[0] == partition]
        bounds = sorted({bound for _, *both in own for bound in both})
        depths[partition] = [sum(low <= bound <= high for _, low, high in own) for bound in bounds]
    begins = [
        1 + sum(other[0] == file[0] and other[2] > file[1] for other in ordered[:place])
        for ordered in [sorted(files)]
        for place, file in enumerate(ordered)
    ]
    mean = sum(begins) / len(begins) if begins else 0.0
    most = max((depth for some in depths.values() for depth in some), default=0)
    return depths, mean, most, [max(depths.get(place, [0])) for place in range(3)]


def files_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[File]]:
    bounds = st.tuples(values, values).map(sorted)
    return st.lists(st.tuples(st.integers(0, 2), bounds).map(lambda file: (file[0], *file[1])), max_size=12)


@given(files_of(st.integers(-4, 4)))
def test_depths_of_numbers_are_those_of_brute_force(files: list[File]) -> None:
    found, expected = sweep(files, np.int64), count(files)
    assert found[0] == expected[0]
    assert found[1] == pytest.approx(expected[1])
    assert found[2:] == expected[2:]


@given(files_of(st.text("ab\u00e9\U0001f600", max_size=2)))
def test_depths_of_text_are_those_of_brute_force(files: list[File]) -> None:
    found, expected = sweep(files, object), count(files)
    assert found[0] == expected[0]
    assert found[2:] == expected[2:]


@pytest.mark.parametrize(
    ("files", "mean", "most"),
    [
        ([], 0.0, 0),
        ([(0, 1, 1)], 1.0, 1),
        ([(0, 1, 2), (0, 3, 4)], 1.0, 1),
        ([(0, 1, 2), (0, 2, 3)], 1.0, 2),  # they meet in one value
        ([(0, 1, 9), (0, 4, 5)], 1.5, 2),
        ([(0, 1, 9), (1, 1, 9)], 1.0, 1),  # partitions do not overlap
    ],
)
def test_depths_by_hand(files: list[File], mean: float, most: int) -> None:
    _, found, greatest, _ = sweep(files, np.int64)
    assert (found, greatest) == (pytest.approx(mean), most)
