"""The processes that a program started, found when it is gone itself. Linux."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT

__all__ = ["all_ended", "module_environment", "running"]

LOOK_SECONDS = 0.1


def members(session: int) -> list[int]:
    """The living processes of a session, as systems call it: those that began under one `start_new_session`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()  # state, parent, group, session
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def all_ended(session: int, seconds: float) -> bool:
    """Whether all processes of a session end in time."""
    end = time.monotonic() + seconds
    while members(session):
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def module_environment(**further: str) -> dict[str, str]:
    """The environment of a program of the tests: nothing of the Spark of the tests, and where they are."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths), **further}


@contextmanager
def running(module: str, arguments: Sequence[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of the tests in a session of its own; what it writes is in the files `out` and `log`."""
    with (folder / "out").open("w") as out, (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            text=True,
            env=module_environment(**environment),
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for member in members(process.pid):
            os.kill(member, 9)
        process.wait()
