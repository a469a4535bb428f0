"""Which golden script is run through which door, in which combination, and when. Pure.

With every change a script runs through one local door, in turn. Two scripts of five have a remote door too, which takes
all of their chosen combinations but one from the local door, so that `make test`, which starts no server, runs all
scripts. By night each script runs in all combinations through its local door, and in one combination through each of
the other doors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dml.spark.versions import INSTALLED_FEATURES, Feature
from tests.golden.doors import LOCAL_DOORS, Door, fits
from tests.golden.runner import leading_tables
from tests.golden.script import Combination, Script, parse_script

__all__ = ["FOLDER", "SCRIPTS", "Run", "in_turn", "local_door", "possible", "remote_door", "runs"]

FOLDER = Path(__file__).parent
SCRIPTS = [parse_script(path) for path in sorted(FOLDER.rglob("*.sql"))]
TURNS = (None, Door.SERVE, None, Door.CONNECT, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A script in a combination through a door.

    Attributes:
        script: The script.
        combination: One of its combinations.
        number: Of the script.
        nightly: Whether it is run by night alone.
    """

    script: Script
    combination: Combination
    number: int
    nightly: bool

    def __str__(self) -> str:
        return f"{self.script.path.relative_to(FOLDER).with_suffix('')}-{self.combination}"


def in_turn(combinations: Sequence[Combination], number: int) -> Combination:
    """Return the one of a script's combinations that is run where one has to do: another in each script."""
    return combinations[number % len(combinations)]


def possible(door: Door, script: Script) -> bool:
    """Return whether a script is for a door, and the door has words of its own for some of its statements."""
    if door is Door.PYTHON and Feature.DATA_SOURCE_V2 not in INSTALLED_FEATURES:
        return False
    tested = script.steps[len(leading_tables(script)) :]
    return (not script.doors or door in script.doors) and any(fits(door, step.sql) for step in tested)


def local_door(number: int) -> Door:
    """Return the door of a classic session that a script is run through with every change."""
    door = LOCAL_DOORS[number % len(LOCAL_DOORS)]
    return door if possible(door, SCRIPTS[number]) else Door.LAKE_SQL


def remote_door(number: int) -> Door | None:
    """Return the door of a Spark Connect session that a script is run through with every change, if it has one."""
    door = TURNS[number % len(TURNS)]
    return door if door is not None and possible(door, SCRIPTS[number]) else None


def remote_combinations(number: int) -> list[Combination]:
    """Return the combinations that a script's remote door has in place of the local one."""
    chosen = SCRIPTS[number].chosen_combinations(number)
    kept = in_turn(chosen, number // 2)
    return [one for one in chosen if one != kept] if remote_door(number) is not None else []


def runs(door: Door) -> Iterator[Run]:
    """Yield what is run through a door, with every change or by night."""
    for number, script in enumerate(SCRIPTS):
        if not possible(door, script):
            continue
        chosen = script.chosen_combinations(number)
        once = in_turn(script.combinations, number + 1)
        elsewhere = remote_combinations(number)
        for combination in script.combinations:
            if door is local_door(number):
                nightly = combination not in chosen or combination in elsewhere
            elif door is remote_door(number) and combination in (elsewhere or chosen):
                nightly = False
            elif combination == once:
                nightly = True
            else:
                continue
            yield Run(script=script, combination=combination, number=number, nightly=nightly)
