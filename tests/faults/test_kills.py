"""A driver that is killed, at every phase of a statement: nothing is half done, and what it leaves is found."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import StatusTracker
from pyspark.sql import SparkSession

from tests.faults.bench import AFTER, BEFORE, CONVERT, EXPIRE, Bench, Place, wrong_rows
from tests.faults.injection import Action, Call, Fault, Faults
from tests.faults.processes import all_ended, program, running
from tests.services.server import HOST, free_ports

pytestmark = pytest.mark.spark

DAY_SECONDS = 86_400
PATIENCE_SECONDS = 60
LOOK_SECONDS = 0.05
IDLE_LOOKS = 16
LOST_ONCE = Fault(call=Call.COMMIT, first=1, last=1, action=Action.LOSE)

Calls = dict[Call, list[str]]


@dataclass(frozen=True)
class Phase:
    """Where a driver dies.

    Attributes:
        call: At a call of this kind,
        place: on a file of whose location this is a part,
        which: the first, or the last.
        before: Another fault before it.
    """

    call: Call
    place: str = ""
    which: int = 0
    before: tuple[Fault, ...] = ()

    def faults(self, calls: Calls) -> tuple[Fault, ...]:
        """The faults that kill the driver there, told by the calls of a run without faults."""
        made = calls.get(self.call, [self.place])  # a run that loses no race deletes nothing
        numbers = [number for number, location in enumerate(made, 1) if self.place in location]
        number = numbers[self.which]
        return (*self.before, Fault(call=self.call, first=number, last=number, action=Action.KILL))


PHASES = {
    "planning": Phase(Call.READ, "/metadata/snap-"),
    "scan": Phase(Call.READ, "/data/"),
    "a new file": Phase(Call.CREATE, "/data/"),
    "write": Phase(Call.WRITE, "/data/", -1),
    "before the commit": Phase(Call.CREATE, "/metadata/"),
    "manifest list": Phase(Call.WRITE, "/metadata/snap-", -1),
    "commit": Phase(Call.COMMIT),
    "commit, before the swap": Phase(Call.CLOSE, ".metadata.json", -1),
    "commit, after the swap": Phase(Call.ANSWER),
    "clean-up": Phase(Call.DELETE, before=(LOST_ONCE,)),
}
OF_EXPIRY = {"deletion": Phase(Call.LOAD_TABLE, which=-1)}
"""The newest metadata is loaded before files are deleted, which is done past the FileIO."""
AFTER_THE_SWAP = ("commit, after the swap", "clean-up", *OF_EXPIRY)


@dataclass(frozen=True)
class Drivers:
    """A process that forks drivers, and the server that they use."""

    process: subprocess.Popen[str]
    remote: str

    def killed(self, bench: Bench, faults: Faults) -> bool:
        """Run the bench's statement in a driver of its own; whether that was killed."""
        job = {
            "remote": self.remote,
            "folder": str(bench.folder),
            "faults": faults.folder,
            "statement": bench.statement,
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return bool(self.answer()["killed"])

    def answer(self) -> dict[str, bool]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the program of the drivers ended"
        return dict(json.loads(line))


@pytest.fixture(scope="module")
def drivers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Drivers on a Spark Connect server in the JVM of the tests."""
    context = spark.sparkContext._jsc.sc()
    (port,) = free_ports(1)
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    server = spark.sparkContext._jvm.org.apache.spark.sql.connect.SparkConnectPlugin().driverPlugin()
    server.init(context, None)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with program("tests.faults.driver", (), tmp_path_factory.mktemp("drivers"), {}, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            assert process.stdout.readline() == "ready\n"
            yield Drivers(process, f"sc://{HOST}:{port}")
    server.shutdown()


def wait_until_idle(tracker: StatusTracker) -> None:
    """Wait until Spark works at nothing: it goes on with the query of a driver that is gone, job after job."""
    end, idle = time.monotonic() + PATIENCE_SECONDS, 0
    while idle < IDLE_LOOKS:
        assert time.monotonic() < end
        time.sleep(LOOK_SECONDS)
        idle = 0 if tracker.getActiveJobsIds() else idle + 1


def survived(bench: Bench) -> tuple[str, int]:
    """After its driver was killed: the state of the table, and how many files were left and found.

    The files are removed, and the next statement succeeds.
    """
    location = bench.metadata_location
    assert location is not None
    state = "before" if location == bench.before[0] else "after"
    if state == "after" or bench.statement != CONVERT:  # others do not read equality deletes
        assert not wrong_rows(location, BEFORE if state == "before" else AFTER[bench.statement])
    left = bench.left()
    old = time.time() - 10 * DAY_SECONDS
    for path in bench.files():
        os.utime(path, (old, old))
    assert bench.remove_orphans(dry_run=True) == left
    assert bench.left() == left
    assert bench.remove_orphans() == left
    assert not bench.left()
    bench.session.sql("UPDATE db.t SET s = 'next' WHERE id = 1")
    assert bench.metadata_location is not None
    is_converted = bench.statement == CONVERT
    if is_converted and state == "before":
        bench.session.convert_equality_deletes("db.t")
    rows = {**(AFTER[bench.statement] if is_converted or state == "after" else BEFORE), 1: "next"}
    assert not wrong_rows(bench.metadata_location, rows)
    assert not bench.left()
    return state, len(left)


@pytest.mark.parametrize(
    ("statement", "version", "mode", "phases"),
    [
        ("update", 2, "copy-on-write", list(PHASES)[::2]),
        ("merge", 3, "merge-on-read", list(PHASES)[1::2]),
        ("rewrite", 3, "merge-on-read", ["write", "commit, after the swap"]),
        (EXPIRE, 2, "copy-on-write", ["commit, before the swap", "deletion"]),
        *(
            pytest.param(*kind, list(PHASES), marks=pytest.mark.soak)
            for kind in (
                ("update", 2, "copy-on-write"),
                ("merge", 3, "merge-on-read"),
                ("delete", 2, "merge-on-read"),
                ("rewrite", 3, "merge-on-read"),
                ("rewrite", 2, "copy-on-write"),
                (CONVERT, 3, "merge-on-read"),
                (CONVERT, 2, "merge-on-read"),
            )
        ),
        pytest.param(
            EXPIRE,
            3,
            "copy-on-write",
            ["planning", "commit", "commit, before the swap", "commit, after the swap", "deletion"],
            marks=pytest.mark.soak,
        ),
    ],
    ids=lambda given: f"{len(given)} phases" if isinstance(given, list) else None,
)
def test_a_killed_driver_leaves_the_table_whole(
    faulty_spark: SparkSession,
    tmp_path: Path,
    drivers: Drivers,
    count: list[str],
    statement: str,
    version: int,
    mode: str,
    phases: list[str],
) -> None:
    """On Spark Connect, where a driver is a Python process alone; its tasks go on without it.

    Each phase once, in two statements; all phases in each of three by night.
    """
    bench = Bench.of(faulty_spark, tmp_path / "bench", statement, version, mode)
    tracker = faulty_spark.sparkContext.statusTracker()
    undisturbed = bench.new_faults()
    assert not drivers.killed(bench, undisturbed)
    assert bench.metadata_location is not None
    assert not wrong_rows(bench.metadata_location, AFTER[statement])
    calls, states, files = undisturbed.calls(), [], 0
    for name in phases:
        bench.reset()
        assert drivers.killed(bench, bench.new_faults(*{**PHASES, **OF_EXPIRY}[name].faults(calls))), name
        wait_until_idle(tracker)
        state, left = survived(bench)
        states.append(state)
        files += left
    assert states == ["after" if name in AFTER_THE_SWAP else "before" for name in phases]
    ends = f"{states.count('before')} before, {states.count('after')} after"
    count.append(f"{len(states)} kills: {ends}; {files} files left and found")


def test_a_driver_whose_jvm_dies_says_so_and_cleans_up(tmp_path: Path, count: list[str]) -> None:
    """Classic Spark: the Python process is left alone, with a connection to nobody."""
    place = Place(tmp_path / "bench")
    with running("tests.faults.classic", [str(place.folder)], tmp_path) as process:
        assert process.wait(PATIENCE_SECONDS * 2) == 0, (tmp_path / "log").read_text()[-4000:]
        told = json.loads((tmp_path / "out").read_text())
        assert told["outcome"] == "before"
        assert told["problems"] == []
        assert "JVM ended" in told["said"]
        assert all_ended(process.pid, PATIENCE_SECONDS)
    assert place.metadata_location is not None
    assert not wrong_rows(place.metadata_location, BEFORE)
    count.append("1 JVM killed: before, 0 files left")
