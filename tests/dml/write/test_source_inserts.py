"""How many new rows each task of a MERGE gets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.write.source_inserts import even_shares, pack_largest_first


@pytest.mark.parametrize(
    ("loads", "rows", "expected"),
    [
        ([0, 0], 7, [4, 3]),
        ([100, 0], 50, [0, 50]),
        ([100, 0], 300, [100, 200]),
        ([5, 0, 90], 15, [5, 10, 0]),
        ([3], 2, [2]),
    ],
)
def test_those_that_have_least_to_do_get_most(loads: list[int], rows: int, expected: list[int]) -> None:
    assert even_shares(loads, rows).tolist() == expected


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=8), st.integers(1, 2**31))
def test_every_row_has_a_task_and_no_task_does_much_more_than_another(loads: list[int], rows: int) -> None:
    share = even_shares(loads, rows)
    assert share.sum() == rows
    assert share.min() >= 0
    work = [load + part for load, part in zip(loads, share.tolist(), strict=True) if part]
    assert max(work) - min(work) <= len(loads)
    assert all(load >= min(work) - 1 for load, part in zip(loads, share.tolist(), strict=True) if not part)


def test_partitions_stay_whole() -> None:
    parts = [np.arange(5), np.arange(5, 7), np.arange(7, 10)]
    shares = pack_largest_first(parts, [4, 0])
    assert [sorted(share.tolist()) for share in shares] == [[7, 8, 9], [0, 1, 2, 3, 4, 5, 6]]
