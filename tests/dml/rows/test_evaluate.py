"""Every function of row programs has an implementation."""

from dml.rows.evaluate import FUNCTIONS
from dml.rows.program import RowFunction


def test_every_function_can_be_evaluated() -> None:
    assert FUNCTIONS.keys() | {RowFunction.COALESCE} == set(RowFunction)
