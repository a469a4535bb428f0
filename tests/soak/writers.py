"""Writers of a soak as processes: started together, killed now and then, ended within a limit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.soak.client import ClientTask
from tests.soak.racer import RaceTask

__all__ = ["Kills", "run_writers"]

ROOT = Path(__file__).parents[2]
# The checkout comes last: what is tested is the installed package.
PROGRAM = "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"
MODULES = {ClientTask: "tests.soak.client", RaceTask: "tests.soak.racer"}
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """Writers that are killed in the middle of a statement and started anew.

    Attributes:
        count: How many times.
        every_seconds: The mean time between two.
        draw: Chooses whom and when.
    """

    count: int
    every_seconds: float
    draw: random.Random

    def pause(self) -> float:
        """Seconds until the next one."""
        return self.draw.uniform(0.5, 1.5) * self.every_seconds


@dataclass(slots=True, kw_only=True)
class Writer:
    """A process of its own process group.

    Attributes:
        task: What it does.
        folder: For its task, its log and its output.
        process: The one that runs.
        starts: How often it was started.
    """

    task: ClientTask | RaceTask
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    written: list[Path] = field(default_factory=list)

    def start(self) -> None:
        """Start it, or start it anew: then the tables are there."""
        task = self.task
        if self.starts and isinstance(task, ClientTask):
            task = replace(task, create=[])
        place = self.folder / f"client-{task.number}.json"
        task.write(place)
        output = self.folder / f"client-{task.number}-{self.starts}.out"
        self.written.append(output)
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
        with output.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(ROOT), MODULES[type(task)], str(place)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )
        self.starts += 1

    def kill(self) -> None:
        """End the driver as a machine that dies does; its JVM notices."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Leave nothing running."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """Its log; the last line may have been cut off by a kill."""
        log = Path(self.task.log)
        found = []
        for line in log.read_text().splitlines() if log.exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def is_at_work(self) -> bool:
        """Whether it has begun a statement and not ended it: this process of it, not one that was killed."""
        events = [line["event"] for line in self.lines()]
        return events.count("ready") == self.starts and events[-1] == "begin"

    def output(self) -> str:
        """The end of what it printed."""
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.written)


def run_writers(
    tasks: Sequence[ClientTask] | Sequence[RaceTask], folder: Path, *, seconds: float, kills: Kills | None = None
) -> list[dict[str, Any]]:
    """Let writers work until all have finished.

    Args:
        tasks: One for each.
        folder: For their files.
        seconds: The longest that it may take.
        kills: Writers to kill on the way.

    Returns:
        The lines of all logs.
    """
    deadline = time.monotonic() + seconds
    with processes([Writer(task=task, folder=folder) for task in tasks]) as writers:
        for _ in watched(writers, deadline):
            if all(any(line["event"] == "ready" for line in writer.lines()) for writer in writers):
                break
        Path(tasks[0].go).touch()
        left = 0 if kills is None else kills.count
        next_kill = time.monotonic() + (0 if kills is None else kills.pause())
        for running in watched(writers, deadline):
            if not running:
                break
            at_work = [writer for writer in running if writer.is_at_work()]
            if kills is not None and left and at_work and time.monotonic() >= next_kill:
                victim = kills.draw.choice(at_work)
                victim.kill()
                victim.start()
                left -= 1
                next_kill = time.monotonic() + kills.pause()
        return [line for writer in writers for line in writer.lines()]


@contextmanager
def processes(writers: list[Writer]) -> Iterator[list[Writer]]:
    """Start them, and leave none behind."""
    try:
        for writer in writers:
            writer.start()
        yield writers
    finally:
        for writer in writers:
            writer.end()


def watched(writers: list[Writer], deadline: float) -> Iterator[list[Writer]]:
    """The writers that run, time and again; a writer that failed or hangs is an error."""
    while True:
        running = []
        for writer in writers:
            assert writer.process is not None
            code = writer.process.poll()
            assert code in {None, 0}, f"writer {writer.task.number} ended with {code}: {writer.output()}"
            if code is None:
                running.append(writer)
        yield running
        late = [(writer.task.number, writer.lines()[-1:], writer.output()) for writer in running]
        assert time.monotonic() < deadline, f"still at work: {late}"
        time.sleep(LOOK_SECONDS)
