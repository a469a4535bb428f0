"""The CPU time and the peak memory of a process and its descendants (JVM, Python workers), from /proc."""

import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

__all__ = ["PeakMemory", "tree_cpu"]

# Places in /proc/PID/stat after the name of the program.
PARENT, CPU, START, PAGES = 1, slice(11, 15), 19, 21


def tree_cpu() -> float:
    """Return the CPU seconds of this process and its descendants, including those that have ended."""
    return sum(sum(map(int, stat[CPU])) for stat in read_tree(os.getpid())) / os.sysconf("SC_CLK_TCK")


class PeakMemory:
    """The maximum resident memory since the last reset, sampled by a thread.

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
            without: Descendants to leave out, with their own descendants.
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
    young = (float(Path("/proc/uptime").read_text().split()[0]) - 0.25) * os.sysconf("SC_CLK_TCK")
    pages = sum(int(stat[PAGES]) for stat in read_tree(root, without) if int(stat[START]) < young)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def read_tree(root: int, without: Collection[int] = ()) -> list[list[str]]:
    """Return the fields of /proc/PID/stat for a process and its descendants."""
    stats: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) not in without:
            with suppress(OSError):  # it has ended
                stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
    tree = {root}
    while more := {pid for pid, stat in stats.items() if int(stat[PARENT]) in tree} - tree:
        tree |= more
    return [stats[pid] for pid in tree if pid in stats]
