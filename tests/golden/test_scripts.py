"""Every golden script, in the combinations of format version, mode and partitioning that it is for.

By default in half of them, so chosen that every pair (version and mode, version and layout, mode and layout) is run;
in all of them with the environment variable `GOLDEN_COMBINATIONS=all`.
"""

import os
from pathlib import Path

import pytest

from tests.golden.runner import GoldenRunner
from tests.golden.script import Combination, Script, parse_script

FOLDER = Path(__file__).parent
SCRIPTS = [parse_script(path) for path in sorted(FOLDER.rglob("*.sql"))]
ALL_COMBINATIONS = os.environ.get("GOLDEN_COMBINATIONS") == "all"
CASES = [
    pytest.param(script, combination, id=f"{script.path.relative_to(FOLDER).with_suffix('')}-{combination}")
    for script in SCRIPTS
    for combination in (script.combinations if ALL_COMBINATIONS else script.balanced_combinations)
]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("script", "combination"), CASES)
def test_the_script_gives_what_it_says(golden: GoldenRunner, script: Script, combination: Combination) -> None:
    golden.run(script, combination)
