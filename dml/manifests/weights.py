"""Estimate the memory of manifest list lines and entries, and cache lines up to a limit. Worker-safe.

Input: lines and entries, read or about to be written. Output: approximate bytes of memory; cached values of lines.

Anyone with write access to a table's storage controls its metadata files, and a few bytes of a file may become much
memory. So the estimates count every summary and every metric: neither the length of a file nor the counts in a manifest
list bound the memory. The constants were measured with CPython 3.11 (`tracemalloc`).
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
    "LineCache",
    "bytes_of_encoded",
    "bytes_of_entries",
    "bytes_of_line",
    "bytes_of_lines",
    "bytes_of_values",
]

LINE_BYTES: Final = 700
"""Memory of a line without its path, key metadata and summaries."""

SUMMARY_BYTES: Final = 150
"""Memory of a summary without the content of its bounds: 72, and about 40 for each bound."""

ENTRY_BYTES: Final = 2_000
"""Memory of an entry without its parts of variable length."""

VALUE_BYTES: Final = 110
"""Memory of a value of a partition tuple; a decimal takes most."""

LETTER_BYTES: Final = 8
"""Memory of a letter of a non-ASCII text: up to four bytes, and four more once CPython caches the text's UTF-8."""

NUMBER_BYTES: Final = 60
"""Memory of a number in a list or map after its first access. The count of a column is two numbers, with its id."""

BOUND_BYTES: Final = 100
"""Memory of a bound of a column without its content."""


Line = TypeVar("Line", bound=Hashable)
Kept = TypeVar("Kept")


def bytes_of_lines(lines: Iterable[ManifestFile]) -> int:
    """Return the approximate memory of the lines of a manifest list."""
    return sum(map(bytes_of_line, lines))


def bytes_of_line(line: ManifestFile) -> int:
    """Return the approximate memory of a line."""
    nbytes = LINE_BYTES + bytes_of_path(line.manifest_path) + len(line.key_metadata or b"")
    for summary in line.partitions or ():
        nbytes += SUMMARY_BYTES + len(summary.lower_bound or b"") + len(summary.upper_bound or b"")
    return nbytes


def bytes_of_encoded(line: ManifestFile, encoded: bytes) -> int:
    """Return the approximate memory of a line and its encoding, which limits that of its bounds and key metadata."""
    summaries = SUMMARY_BYTES * len(line.partitions or ())
    return LINE_BYTES + bytes_of_path(line.manifest_path) + summaries + 2 * len(encoded)


def bytes_of_path(path: str) -> int:
    """Return the approximate memory of the letters of a path."""
    return len(path) if path.isascii() else LETTER_BYTES * len(path)


def bytes_of_entries(entries: Sequence[ManifestEntry], decoders: Iterable[CheckedDecoder]) -> int:
    """Return the approximate memory of entries after the first access to their metrics.

    Args:
        entries: All entries of a manifest.
        decoders: Their decoders, which counted the metrics. Counting them in the entries would be slow, and would
            convert them to dicts.
    """
    nbytes = sum(ENTRY_BYTES + VALUE_BYTES * len(entry.data_file.partition) for entry in entries)
    for decoder in decoders:
        counted = NUMBER_BYTES * decoder.numbers + BOUND_BYTES * decoder.pairs + LETTER_BYTES * decoder.letters
        nbytes += decoder.tell() + counted
    return nbytes


def bytes_of_values(values: Iterable[Any]) -> int:
    """Return the memory of values other than collections, such as those of partition tuples."""
    return sum(map(getsizeof, values))


class LineCache(Generic[Line, Kept]):
    """A cache of values derived from lines, limited by memory. Thread-safe.

    The oldest value is evicted first: tracking recent use at each access would take longer than the access.

    Args:
        max_bytes: The limit.
        weigh: Returns the approximate memory of a line and its value; must be deterministic.
    """

    def __init__(self, max_bytes: int, weigh: Callable[[Line, Kept], int]) -> None:
        self._max_bytes = max_bytes
        self._weigh = weigh
        self._nbytes = 0
        self._kept: OrderedDict[Line, Kept] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The approximate memory of the cached values, in bytes."""
        return self._nbytes

    def get(self, line: Line) -> Kept | None:
        """Return the cached value of a line, or None."""
        return self._kept.get(line)

    def keep(self, line: Line, found: Kept) -> None:
        """Cache the value of a line."""
        nbytes = self._weigh(line, found)
        with self._lock:
            if line not in self._kept:
                self._kept[line] = found
                self._nbytes += nbytes
            while self._nbytes > self._max_bytes:
                self._nbytes -= self._weigh(*self._kept.popitem(last=False))
