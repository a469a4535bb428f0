"""Every golden script, in the combinations of format version, mode and partitioning that it is for.

With every change in half of them, so chosen that every pair (version and mode, version and layout, mode and layout) is
run; by night in the others. On the oldest PySpark, and by `make test`, each script is run in one of them, in turn.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.golden.runner import GoldenRunner
from tests.golden.script import Combination, Script, parse_script

FOLDER = Path(__file__).parent


def in_turn(combinations: Sequence[Combination], number: int) -> Combination:
    """The one of a script's combinations that is run where one has to do: another in each script."""
    return combinations[number % len(combinations)]


SCRIPTS = [parse_script(path) for path in sorted(FOLDER.rglob("*.sql"))]
CASES = [
    pytest.param(
        script,
        combination,
        id=f"{script.path.relative_to(FOLDER).with_suffix('')}-{combination}",
        marks=[
            *([] if combination in script.balanced_combinations else [pytest.mark.nightly]),
            *([pytest.mark.oldest] if combination == in_turn(script.combinations, number) else []),
            *([] if combination == in_turn(script.balanced_combinations, number) else [pytest.mark.thorough]),
        ],
    )
    for number, script in enumerate(SCRIPTS)
    for combination in script.combinations
]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("script", "combination"), CASES)
def test_the_script_gives_what_it_says(golden: GoldenRunner, script: Script, combination: Combination) -> None:
    golden.run(script, combination)
