"""Start the writers of a soak test together: each waits for a file that appears when all of them are ready."""

import os
import sys
import time
from pathlib import Path

__all__ = ["wait_for_go"]

LOOK_SECONDS = 0.02


def wait_for_go(file: str) -> None:
    """Return when the file exists; exit if the process that started this one has ended.

    `run_writers` limits the time: on a busy machine eight JVMs may take minutes to start.
    """
    starter = os.getppid()
    while not Path(file).exists():
        if os.getppid() != starter:
            sys.exit("the process that started this writer has ended")
        time.sleep(LOOK_SECONDS)
