"""The maximum resident memory of a process and its descendants (JVM, Python workers), sampled from /proc."""

import os
import threading
import time
from collections.abc import Collection
from pathlib import Path

__all__ = ["PeakMemory"]


class PeakMemory:
    """Samples in the background.

    Args:
        every: Seconds between samples.
    """

    def __init__(self, every: float = 0.05) -> None:
        self.peak = 0.0
        self._every = every
        self._root, self._without = os.getpid(), frozenset[int]()
        self._lock = threading.Lock()  # a sample that began before a reset must not end after it
        threading.Thread(target=self._watch, daemon=True).start()

    def reset(self, root: int | None = None, without: Collection[int] = ()) -> None:
        """Start over.

        Args:
            root: The process to measure; without it this one.
            without: Descendants that do not count, nor do theirs.
        """
        with self._lock:
            self._root, self._without = root or os.getpid(), frozenset(without)
            self.peak = resident_mb(self._root, self._without)

    def _watch(self) -> None:
        while True:
            with self._lock:
                self.peak = max(self.peak, resident_mb(self._root, self._without))
            time.sleep(self._every)


def resident_mb(root: int, without: Collection[int]) -> float:
    """Return the resident memory of the process tree in MB.

    Processes that were just forked do not count, because they still share their parent's pages.
    """
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    young = (float(Path("/proc/uptime").read_text().split()[0]) - 0.25) * os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) in without:
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[19]) < young:
            parents[int(folder.name)], pages[int(folder.name)] = int(fields[1]), int(fields[21])
    tree = {root}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(pages.get(pid, 0) for pid in tree) * os.sysconf("SC_PAGE_SIZE") / 1e6
