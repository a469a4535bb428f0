"""Keys that rows are looked up in: what a worker holds of them."""

import numpy as np
import pyarrow as pa

from dml.read.row_filter import IntegerSet


def test_keys_that_lie_close_are_held_as_a_table_alone():
    """A view of the keys, however short, would hold all of them."""
    close = IntegerSet(pa.array(range(0, 100_000, 2)))
    assert close.table is not None
    assert (close.keys.base, close.keys.nbytes) == (None, 0)
    found = close.contains(pa.array([0, 1, 2, None, -2, 99_998, 100_000]))
    assert found.tolist() == [True, False, True, False, False, True, False]
    far = IntegerSet(pa.array([0, 1 << 40]))
    assert far.table is None
    assert far.contains(pa.array([0, 1, 1 << 40])).tolist() == [True, False, True]
    assert close.keys.dtype == far.keys.dtype == np.int64
