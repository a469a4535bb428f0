"""Every golden script, in its combinations of format version, mode and partitioning, through the doors of one process.

With every change each script runs in two combinations, and in those that its expectations need besides, through one
door. `tests.golden.turns` chooses it, and gives some of the combinations to the doors of other processes. By night
a script runs in all combinations, and in one combination through each other door. `make test` runs each script in one
combination. On the oldest PySpark every fourth script runs in one with every change, and by night all scripts run in
all combinations, as on each other PySpark.

The tables are small, so the driver runs the tasks of statements itself; in every second combination, workers do.
"""

import pytest

from tests.golden.doors import LOCAL_DOORS, Door
from tests.golden.runner import GoldenRunner
from tests.golden.turns import Run, in_turn, local_door, runs


def marks(run: Run, door: Door) -> list[pytest.MarkDecorator]:
    """Return when a script is run in a combination through a door."""
    script, number = run.script, run.number
    found = [pytest.mark.nightly] if run.nightly else []
    if run.combination != in_turn(script.chosen_combinations(number), number // 2) or door is not local_door(number):
        found.append(pytest.mark.thorough)
    if door is local_door(number) and number % 4 == 0 and run.combination == in_turn(script.combinations, number // 4):
        found.append(pytest.mark.oldest)
    return found


CASES = [
    pytest.param(run, door, id=f"{run}-{door}", marks=marks(run, door)) for door in LOCAL_DOORS for run in runs(door)
]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("run", "door"), CASES)
def test_the_script_gives_what_it_says(
    golden: GoldenRunner, run: Run, door: Door, request: pytest.FixtureRequest
) -> None:
    if (run.number + run.script.combinations.index(run.combination)) % 2:
        request.getfixturevalue("in_workers")
    golden.run(run.script, run.combination, door)
