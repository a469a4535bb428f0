"""A storage or catalog that fails at any one call: the table is as before or as after, and the report is true."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.bench import CTAS, STATEMENTS, table_kinds
from tests.faults.injection import Action
from tests.faults.walk import Case, Tally, walk

pytestmark = pytest.mark.spark

SHOWN = 20
CASES = [
    Case(statement="update", version=2, mode="copy-on-write"),
    Case(statement="merge", version=3, mode="merge-on-read"),
    Case(statement="delete", version=3, mode="merge-on-read"),
    Case(statement="insert", version=2, mode="copy-on-write"),
]
ALL_CASES = [
    Case(statement=name, version=version, mode=mode)
    for name in STATEMENTS
    for version, mode in (table_kinds() if name != CTAS else table_kinds()[:1])
]
ACTIONS = ((Action.FAIL, Action.LOSE), (Action.CUT,), (Action.DELAY,))


def nothing_wrong(tally: Tally, count: list[str]) -> None:
    count.append(str(tally))
    assert not tally.problems, "\n".join([f"{len(tally.problems)} problems", *tally.problems[:SHOWN]])


def test_one_call_fails(faulty_spark: SparkSession, tmp_path: Path, count: list[str]) -> None:
    """Every call of each kind of statement; the other versions and modes of each are left to the soak."""
    nothing_wrong(walk(faulty_spark, tmp_path, CASES, (Action.FAIL, Action.LOSE)), count)


@pytest.mark.soak
@pytest.mark.parametrize("action", ACTIONS, ids=lambda actions: str(actions[0]))
@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_every_call_of_every_statement(
    faulty_spark: SparkSession, tmp_path: Path, count: list[str], case: Case, action: tuple[Action, ...]
) -> None:
    """The whole product: it fails, it is late, it is cut short, and a commit loses its race."""
    nothing_wrong(walk(faulty_spark, tmp_path, [case], action), count)
