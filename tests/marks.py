"""Marks that several tests give to some of their parameters."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

__all__ = ["by_night"]


def by_night(values: Sequence[Any], always: Callable[[Any], bool]) -> list[Any]:
    """Parameters of which some are for the night.

    Args:
        values: All of them, as `pytest.mark.parametrize` takes them.
        always: Whether one of them is run with every change too.
    """
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=[] if always(value) else pytest.mark.nightly
        )
        for value in values
    ]
