"""Walks a fault through the calls that a statement makes: through all, or one of each kind of call and file."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from tests.faults.bench import AFTER_FAULT, CTAS, EXPIRE, Bench, Run
from tests.faults.injection import Action, Call, Fault

__all__ = ["Case", "Tally", "hit", "walk"]

WRITES = frozenset({Call.NEW_OUTPUT, Call.CREATE, Call.WRITE, Call.CLOSE})
READS = frozenset({Call.NEW_INPUT, Call.LENGTH, Call.EXISTS, Call.OPEN, Call.READ})
CUT = frozenset({Call.LENGTH, Call.OPEN, Call.READ, Call.WRITE})
FOR_EVER = 1 << 30
ATTEMPTS = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """A statement on a table of a kind."""

    statement: str
    version: int
    mode: str

    def __str__(self) -> str:
        return f"{self.statement} v{self.version} {self.mode}"


@dataclass
class Tally:
    """What a walk saw.

    Attributes:
        injected: Calls that were hit.
        outcomes: How often the table was as before, as after, or the statement did not know.
        problems: What should not be so.
    """

    injected: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        listed = ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.outcomes.items()))
        return f"{self.injected} faults injected: {listed}; {len(self.problems)} problems"

    def add(self, other: "Tally") -> None:
        self.injected += other.injected
        self.outcomes += other.outcomes
        self.problems += other.problems


def walk(
    spark: SparkSession,
    folder: Path,
    cases: Sequence[Case],
    actions: Collection[Action],
    *,
    every_call: bool,
    threads: int = 2,
) -> Tally:
    """Run each case once for each call that it makes and each action, several cases at a time.

    Args:
        spark: The session.
        folder: For the tables.
        cases: What is run.
        actions: What happens to a call.
        every_call: Whether every call is hit, or of each kind of call on a kind of file the first and the last.
        threads: How many cases run at a time.
    """

    def walked(case: Case) -> Tally:
        place = folder / str(case).replace(" ", "-")
        bench = Bench.of(spark, place, case.statement, case.version, case.mode)
        return walk_one(bench, actions, every_call=every_call)

    total = Tally()
    with ThreadPoolExecutor(threads) as pool:
        for tally in pool.map(walked, cases):
            total.add(tally)
    return total


def walk_one(bench: Bench, actions: Collection[Action], *, every_call: bool) -> Tally:
    """Walk one statement."""
    tally = Tally()
    undisturbed = bench.run()
    assert (undisturbed.outcome, undisturbed.problems) == ("after", ()), undisturbed.problems
    refused = Fault(call=Call.COMMIT, first=1, last=FOR_EVER, action=Action.LOSE)
    faults: list[tuple[Fault, ...]] = [
        (fault,) for fault in faults_of(bench.statement, undisturbed.calls, actions, every_call=every_call)
    ]
    if Action.FAIL in actions and bench.statement != CTAS:  # nobody races for a table that is not there
        lost = bench.run(refused)
        assert lost.outcome == "before", lost.problems
        tally.problems += lost.problems
        faults += [
            (refused, Fault(call=Call.DELETE, first=number, last=number))
            for number in hit(lost.calls.get(Call.DELETE, ()), every_call=every_call)
        ]
    for injected in faults:
        run = hit_by(bench, injected)
        tally.problems += run.problems
        if not run.injected:
            if still_calls(bench, injected[-1]):
                tally.problems.append(f"{bench.statement}: nothing was hit by {injected}")
            continue
        tally.injected += 1
        tally.outcomes[run.outcome] += 1
        expected = AFTER_FAULT.get((injected[-1].call, injected[-1].action)) if len(injected) == 1 else "before"
        if bench.statement == EXPIRE and expected == "unknown":
            expected = "before"  # deletes no file, so a commit that lands later does no harm
        if expected is not None and run.outcome != expected:
            tally.problems.append(f"{bench.statement}: {run.outcome} instead of {expected} after {injected}")
    return tally


def hit_by(bench: Bench, injected: Sequence[Fault]) -> Run:
    """A run with faults, again where none of them came to its call: not every run makes as many as the first."""
    run = bench.run(*injected)
    for _ in range(ATTEMPTS - 1):
        if run.injected or run.problems:
            break
        run = bench.run(*injected)
    return run


def still_calls(bench: Bench, fault: Fault) -> bool:
    """Whether an undisturbed run makes the call: one that had to try its commit again has made more than others."""
    return len(bench.run().calls.get(fault.call, ())) >= fault.first


def faults_of(
    statement: str, calls: Mapping[Call, Sequence[str]], actions: Collection[Action], *, every_call: bool
) -> Iterator[Fault]:
    """One fault for each action and call that is to be hit."""
    for action in actions:
        for call, locations in calls.items():
            if action is Action.CUT and call not in CUT:
                continue
            if action is Action.LOSE and (call is not Call.COMMIT or statement == CTAS):
                continue
            for place in hit(locations, every_call=every_call):
                yield Fault(call=call, first=place, last=place, action=action)
            if action is Action.FAIL and call in WRITES | READS:
                half = len(locations) // 2 + 1
                yield Fault(call=call, first=half, last=FOR_EVER, action=action)  # it stays broken


def hit(locations: Sequence[str], *, every_call: bool) -> list[int]:
    """The numbers of the calls to hit, from 1: all, or the first and the last on each kind of file.

    The first and the last: a manifest, for one, is read to plan the statement and again to commit it.
    """
    if every_call:
        return list(range(1, len(locations) + 1))
    ends: dict[str, tuple[int, int]] = {}
    for number, location in enumerate(locations, 1):
        first, _ = ends.get(kind_of(location), (number, number))
        ends[kind_of(location)] = (first, number)
    return sorted({number for both in ends.values() for number in both})


def kind_of(location: str) -> str:
    """The kind of a file, by its name; a table's own name, as the catalog's calls have it, is a kind too."""
    name = location.rpartition("/")[2]
    known = {".metadata.json": "metadata", ".puffin": "vectors", "-deletes.parquet": "deletes", ".parquet": "data"}
    if name.endswith(".avro"):
        return "manifest list" if name.startswith("snap-") else "manifest"
    return next((kind for suffix, kind in known.items() if name.endswith(suffix)), "table")
