"""Which rows of the old data files the rows of a rewritten one are. Worker-safe.

Rows that lie next to each other in both files make a run. A rewritten file is a sequence of runs, most of them long;
rows that were in no file before make runs of their own.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["NEW_ROWS", "Numbers", "RowOrigins", "origins"]

NEW_ROWS: Final = -(2**62)
"""Origin of the first row that was in no file before; further ones count on from it."""

_POSITION_BITS: Final = 40
_CODEC: Final = "zstd"

Numbers = npt.NDArray[np.int64]


def origins(ordinal: int, start: int, rows: int) -> Numbers:
    """Neighbouring rows of a data file, as numbers: the file's ordinal above, the position below.

    Args:
        ordinal: The file's place in the statement's list of files.
        start: Position of the first row.
        rows: How many.
    """
    first = (ordinal << _POSITION_BITS) + start
    return np.arange(first, first + rows, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrigins:
    """The runs of one new data file.

    Attributes:
        data_file: Its location.
        runs: How many runs.
        encoded: Compressed: how far each run's first origin is from the end of the run before it, then all lengths.
    """

    data_file: str
    runs: int
    encoded: bytes = field(repr=False)

    @staticmethod
    def of(data_file: str, firsts: Numbers, lengths: Numbers) -> "RowOrigins":
        """Encode runs.

        Args:
            data_file: The new file.
            firsts: The origin of each run's first row.
            lengths: How many rows each run has; together they are the file.
        """
        ends = firsts + lengths
        gaps = firsts - np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        data = gaps.tobytes() + lengths.tobytes()
        encoded = pa.Codec(_CODEC).compress(data, asbytes=True)
        return RowOrigins(data_file=data_file, runs=len(firsts), encoded=encoded)

    def decoded(self) -> tuple[Numbers, Numbers]:
        """The origins of the runs' first rows, and the runs' lengths."""
        size = 2 * 8 * self.runs
        data: Any = pa.Codec(_CODEC).decompress(self.encoded, size, asbytes=True)
        gaps, lengths = np.frombuffer(data, np.int64).reshape(2, self.runs)
        return np.cumsum(gaps) + np.cumsum(lengths) - lengths, lengths

    def find(self, ordinal: int, positions: Numbers) -> tuple[npt.NDArray[np.bool_], Numbers]:
        """Where rows of an old file are in the new one.

        Args:
            ordinal: The old file's.
            positions: In the old file.

        Returns:
            Which of them are in this file; and for these their positions in it.
        """
        firsts, lengths = self.decoded()
        places = np.cumsum(lengths) - lengths
        mine = np.flatnonzero(firsts >> _POSITION_BITS == ordinal)
        mine = mine[np.argsort(firsts[mine])]
        wanted = positions + (ordinal << _POSITION_BITS)
        run = np.searchsorted(firsts[mine], wanted, side="right") - 1
        found = run >= 0
        run = mine[run[found]]
        offsets = wanted[found] - firsts[run]
        within = offsets < lengths[run]
        found[found] = within
        return found, (places[run] + offsets)[within]
