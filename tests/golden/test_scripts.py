"""Every golden script, in the combinations of format version, mode and partitioning that it is for.

With every change in half of them, so chosen that every pair (version and mode, version and layout, mode and layout) is
run; by night in the others. On the oldest PySpark each script is run in one of them, one after the other in turn.
"""

from pathlib import Path

import pytest

from tests.golden.runner import GoldenRunner
from tests.golden.script import Combination, Script, parse_script

FOLDER = Path(__file__).parent
SCRIPTS = [parse_script(path) for path in sorted(FOLDER.rglob("*.sql"))]
CASES = [
    pytest.param(
        script,
        combination,
        id=f"{script.path.relative_to(FOLDER).with_suffix('')}-{combination}",
        marks=[
            *([] if combination in script.balanced_combinations else [pytest.mark.nightly]),
            *([pytest.mark.oldest] if combination == script.combinations[number % len(script.combinations)] else []),
        ],
    )
    for number, script in enumerate(SCRIPTS)
    for combination in script.combinations
]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("script", "combination"), CASES)
def test_the_script_gives_what_it_says(golden: GoldenRunner, script: Script, combination: Combination) -> None:
    golden.run(script, combination)
