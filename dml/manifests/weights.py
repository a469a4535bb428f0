"""How much memory lines of manifest lists and entries take, and lines that are kept up to so much. Worker-safe.

Input: what was read, or is to be written. Output: about how many bytes it takes; lines that were kept.

Whoever may write where a table lies decides what its metadata files hold, and a few bytes of a file may become much
memory. So everything is weighed by what it holds, down to each summary and each metric: neither the length of a file
bounds that, nor what a manifest list says of a manifest. The constants are what CPython 3.11 takes (`tracemalloc`).
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

from dml.manifests.avro_decoder import CheckedDecoder
from dml.model.manifest import ManifestEntry, ManifestFile

__all__ = [
    "NUMBER_BYTES",
    "KeptLines",
    "bytes_of_encoded",
    "bytes_of_entries",
    "bytes_of_line",
    "bytes_of_lines",
    "bytes_of_values",
]

LINE_BYTES: Final = 700
"""So much takes a line beside its path, its key metadata and its summaries."""

SUMMARY_BYTES: Final = 150
"""So much takes a summary beside what stands in its bounds: 72 and, for each bound that there is, some 40 more."""

ENTRY_BYTES: Final = 2_000
"""So much takes an entry beside what may be of any length."""

VALUE_BYTES: Final = 110
"""So much takes a value of a partition tuple; a decimal takes most."""

LETTER_BYTES: Final = 8
"""So much takes a letter of a text that is not of ASCII alone: up to four, and as many again once somebody asked for
the text's UTF-8."""

NUMBER_BYTES: Final = 60
"""So much takes a number of a list or of a map, once it was looked at: a count of a column are two, with its id."""

BOUND_BYTES: Final = 100
"""So much takes a bound of a column beside what stands in it."""


Line = TypeVar("Line", bound=Hashable)
Kept = TypeVar("Kept")


def bytes_of_lines(lines: Iterable[ManifestFile]) -> int:
    """About how many bytes of memory the lines of a manifest list take."""
    return sum(map(bytes_of_line, lines))


def bytes_of_line(line: ManifestFile) -> int:
    """About how many bytes of memory a line takes."""
    nbytes = LINE_BYTES + bytes_of_path(line.manifest_path) + len(line.key_metadata or b"")
    for summary in line.partitions or ():
        nbytes += SUMMARY_BYTES + len(summary.lower_bound or b"") + len(summary.upper_bound or b"")
    return nbytes


def bytes_of_encoded(line: ManifestFile, encoded: bytes) -> int:
    """The same of a line and of its bytes. Its bounds and its key metadata are no longer than these."""
    summaries = SUMMARY_BYTES * len(line.partitions or ())
    return LINE_BYTES + bytes_of_path(line.manifest_path) + summaries + 2 * len(encoded)


def bytes_of_path(path: str) -> int:
    """The same of the letters of a path."""
    return len(path) if path.isascii() else LETTER_BYTES * len(path)


def bytes_of_entries(entries: Sequence[ManifestEntry], decoders: Iterable[CheckedDecoder]) -> int:
    """About how many bytes of memory entries take, once their metrics were looked at.

    Args:
        entries: All entries of a manifest.
        decoders: What decoded them, and counted: to ask each entry takes time, and makes dicts of its metrics.
    """
    nbytes = sum(ENTRY_BYTES + VALUE_BYTES * len(entry.data_file.partition) for entry in entries)
    for decoder in decoders:
        counted = NUMBER_BYTES * decoder.numbers + BOUND_BYTES * decoder.pairs + LETTER_BYTES * decoder.letters
        nbytes += decoder.tell() + counted
    return nbytes


def bytes_of_values(values: Iterable[Any]) -> int:
    """The same of values that are no collections, such as those of partition tuples."""
    return sum(map(getsizeof, values))


class KeptLines(Generic[Line, Kept]):
    """What was found out of lines, up to a number of bytes. Threads may share it.

    What was kept first goes first: to note at each look what is used least would take longer than the look.

    Args:
        max_bytes: So much is kept at most.
        weigh: How many bytes a line and what was found out of it take; it always says the same of the same.
    """

    def __init__(self, max_bytes: int, weigh: Callable[[Line, Kept], int]) -> None:
        self._max_bytes = max_bytes
        self._weigh = weigh
        self._nbytes = 0
        self._kept: OrderedDict[Line, Kept] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """How many bytes what is kept takes, about."""
        return self._nbytes

    def get(self, line: Line) -> Kept | None:
        """What was kept of a line; None where nothing is."""
        return self._kept.get(line)

    def keep(self, line: Line, found: Kept) -> None:
        """Keep what was found out of a line."""
        nbytes = self._weigh(line, found)
        with self._lock:
            if line not in self._kept:
                self._kept[line] = found
                self._nbytes += nbytes
            while self._nbytes > self._max_bytes:
                self._nbytes -= self._weigh(*self._kept.popitem(last=False))
