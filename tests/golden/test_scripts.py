"""Every golden script, in the combinations of format version, mode and partitioning that it is for.

With every change in two of them, and in what its expectations are about besides; by night in all of them. `make test`
runs each script in one, in turn. On the oldest PySpark every second script is run so with every change, and by night
all of them are in all, as on each other PySpark.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.golden.runner import GoldenRunner
from tests.golden.script import Combination, Script, parse_script

FOLDER = Path(__file__).parent


def marks(script: Script, combination: Combination, number: int) -> list[pytest.MarkDecorator]:
    """When a script is run in a combination.

    Args:
        script: The script.
        combination: One of its combinations.
        number: Of the script.
    """
    chosen = script.chosen_combinations(number)
    found = [] if combination in chosen else [pytest.mark.nightly]
    if combination != in_turn(chosen, number // 2):
        found.append(pytest.mark.thorough)
    if number % 2 == 0 and combination == in_turn(script.combinations, number // 2):
        found.append(pytest.mark.oldest)
    return found


def in_turn(combinations: Sequence[Combination], number: int) -> Combination:
    """The one of a script's combinations that is run where one has to do: another in each script."""
    return combinations[number % len(combinations)]


SCRIPTS = [parse_script(path) for path in sorted(FOLDER.rglob("*.sql"))]
CASES = [
    pytest.param(
        script,
        combination,
        id=f"{script.path.relative_to(FOLDER).with_suffix('')}-{combination}",
        marks=marks(script, combination, number),
    )
    for number, script in enumerate(SCRIPTS)
    for combination in script.combinations
]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("script", "combination"), CASES)
def test_the_script_gives_what_it_says(golden: GoldenRunner, script: Script, combination: Combination) -> None:
    golden.run(script, combination)
