"""The greatest resident memory of this process and its descendants (JVM, Python workers), sampled from /proc."""

import os
import threading
import time
from pathlib import Path

__all__ = ["PeakMemory"]


class PeakMemory:
    """Samples in the background.

    Args:
        every: Seconds between two looks.
    """

    def __init__(self, every: float = 0.05) -> None:
        self.peak = 0.0
        self._every = every
        threading.Thread(target=self._watch, daemon=True).start()

    def reset(self) -> None:
        """Forget what was seen."""
        self.peak = resident_mb()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, resident_mb())
            time.sleep(self._every)


def resident_mb() -> float:
    """Resident memory of the process tree in MB, without children just forked: they still show their parent's pages."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    young = (float(Path("/proc/uptime").read_text().split()[0]) - 0.25) * os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[19]) < young:
            parents[int(folder.name)], pages[int(folder.name)] = int(fields[1]), int(fields[21])
    mine = {os.getpid()}
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in mine} - mine
        grew = bool(more)
        mine |= more
    return sum(pages.get(pid, 0) for pid in mine) * os.sysconf("SC_PAGE_SIZE") / 1e6
