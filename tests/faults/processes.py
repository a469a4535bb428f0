"""The processes that a program started, found when it is gone itself. Linux."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.conftest import importable_tests

__all__ = ["all_ended", "program", "running"]

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


@contextmanager
def program(
    module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """Run a program of the tests, without anything of the Spark of the tests, in a session of its own.

    Whatever of it lives at the end of the block is killed.

    Args:
        module: The program.
        arguments: Its arguments.
        folder: A folder of its own; its standard error is in the file `log`.
        environment: Further variables.
        **options: Of `Popen`.
    """
    path = importable_tests(folder)
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    paths = [path, *filter(None, [os.environ.get("PYTHONPATH")])]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stderr=log,
            text=True,
            env={**mine, "PYTHONPATH": os.pathsep.join(paths), **environment},
            cwd=path,
            start_new_session=True,
            **options,
        )
    try:
        yield process
    finally:
        for member in members(process.pid):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(member, signal.SIGKILL)
        process.wait()


@contextmanager
def running(module: str, arguments: Sequence[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The same; what it writes to standard output is in the file `out` of the folder."""
    with (
        (folder / "out").open("w") as out,
        program(module, arguments, folder, environment, stdin=subprocess.DEVNULL, stdout=out) as process,
    ):
        yield process
