"""Encode and decode row maps: the origin of each row of a compacted data file, in the file's footer. Worker-safe.

Input: the row origins that a task reported, and the paths of the old files. Output: text for the footer, and the map
decoded from such text. With it, a statement that marked rows of an old file finds them in the new file.

The map names its own file, because another writer may copy the keys of a footer into its own file. A map that does not
fit its file is ignored.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dml.deletes.position_index import PositionDeleteIndex
from dml.model.write_task import POSITION_BITS, RowOrigins

__all__ = ["ROW_MAP_KEY", "RowMap"]

ROW_MAP_KEY: Final = "rowdelta.row-map"
"""The key in the footer."""

FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMap:
    """The origins of the rows of one data file.

    Attributes:
        sources: The paths of the old data files, by ordinal.
        origins: The origins of the rows; their ordinals are those of `sources`.
    """

    sources: tuple[str, ...]
    origins: RowOrigins

    @staticmethod
    def of(origins: RowOrigins, paths: Mapping[int, str]) -> "RowMap":
        """Create a map from the origins that a task reported.

        Args:
            origins: The origins of a file without new rows.
            paths: The path of each old file, by its ordinal there.
        """
        firsts, lengths = origins.decode()
        used, ordinals = np.unique(firsts >> POSITION_BITS, return_inverse=True)
        positions = firsts & ((1 << POSITION_BITS) - 1)
        renumbered = RowOrigins.of(origins.data_file, (ordinals << POSITION_BITS) + positions, lengths)
        return RowMap(sources=tuple(paths[ordinal] for ordinal in used.tolist()), origins=renumbered)

    def to_text(self) -> str:
        """Return the value of the key in the footer."""
        return json.dumps(
            {
                "format": FORMAT,
                "data-file": self.origins.data_file,
                "sources": list(self.sources),
                "runs": self.origins.runs,
                "origins": base64.b64encode(self.origins.encoded).decode(),
            }
        )

    @staticmethod
    def from_text(text: bytes, path: str, record_count: int) -> "RowMap | None":
        """Read the map of a data file.

        Args:
            text: The value of the key in its footer.
            path: The data file.
            record_count: Its row count.

        Returns:
            The map; None if the value is not a map of this file that covers all its rows.
        """
        try:
            found = json.loads(text)
            if found["format"] != FORMAT or found["data-file"] != path or not 0 <= found["runs"] <= record_count:
                return None
            encoded = base64.b64decode(found["origins"], validate=True)
            origins = RowOrigins(data_file=path, runs=found["runs"], encoded=encoded)
            row_map = RowMap(sources=tuple(map(str, found["sources"])), origins=origins)
            return row_map if row_map._fits(record_count) else None
        # Arrow reports damaged bytes as an OSError.
        except (KeyError, RecursionError, TypeError, ValueError, OSError, pa.ArrowException):
            return None

    def _fits(self, record_count: int) -> bool:
        firsts, lengths = self.origins.decode()
        ends = (firsts & ((1 << POSITION_BITS) - 1)) + lengths
        ordered = np.sort(firsts)
        by_origin = lengths[np.argsort(firsts)]
        return bool(
            ((lengths > 0) & (lengths <= record_count)).all()
            and int(lengths.sum()) == record_count
            and (firsts >= 0).all()
            and (firsts >> POSITION_BITS < len(self.sources)).all()
            and (ends < 1 << POSITION_BITS).all()
            and (ordered[:-1] + by_origin[:-1] <= ordered[1:]).all()
        )

    def find(self, path: str, positions: PositionDeleteIndex) -> tuple[PositionDeleteIndex, PositionDeleteIndex]:
        """Find rows of an old file in this file.

        Args:
            path: The old file.
            positions: Positions in it.

        Returns:
            The positions in this file of the rows that are in it, and the old positions of the others.
        """
        if path not in self.sources:
            return PositionDeleteIndex(), positions
        wanted = positions.to_numpy()
        found, there = self.origins.find(self.sources.index(path), wanted)
        return PositionDeleteIndex.from_positions(there), PositionDeleteIndex.from_positions(wanted[~found])
