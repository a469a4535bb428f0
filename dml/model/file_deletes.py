"""Deleted positions of one data file, on their way into a delete file. Worker-safe."""

from dataclasses import dataclass
from typing import Any

from dml.deletes.position_index import PositionDeleteIndex

__all__ = ["FileDeletes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDeletes:
    """Deleted positions of one data file.

    Attributes:
        path: The data file.
        spec_id: Its partition spec.
        partition: Its partition tuple.
        positions: The positions.
    """

    path: str
    spec_id: int
    partition: tuple[Any, ...]
    positions: PositionDeleteIndex
