"""Which doors scripts go through, and how their statements are expressed in Python."""

from collections import Counter

import pytest

from dml.spark.versions import Feature
from tests.golden.doors import LOCAL_DOORS, REMOTE_DOORS, Door, fits
from tests.golden.turns import SCRIPTS, local_door, possible, remote_door, runs

EVERY_RUN = [(door, run) for door in Door for run in runs(door)]


def test_each_chosen_combination_runs_with_every_change() -> None:
    """A remote door takes a combination from the local one, or repeats the only one."""
    for number, script in enumerate(SCRIPTS):
        chosen = script.chosen_combinations(number)
        taken = [run.combination for _, run in EVERY_RUN if run.number == number and not run.nightly]
        repeated = 1 if len(chosen) == 1 and remote_door(number) is not None else 0
        assert Counter(taken) == Counter(dict.fromkeys(chosen, 1 + repeated)), script.path


def test_by_night_each_script_runs_in_all_combinations_and_through_all_doors() -> None:
    """Together with what every change runs."""
    for number, script in enumerate(SCRIPTS):
        found = [(door, run.combination) for door, run in EVERY_RUN if run.number == number]
        assert {combination for door, combination in found if door is local_door(number)} == set(script.combinations)
        assert len(set(found)) == len(found)
        assert {door for door, _ in found} == {door for door in Door if possible(door, script)}, script.path


@pytest.mark.needs(Feature.DATA_SOURCE_V2)
@pytest.mark.parametrize("doors", [LOCAL_DOORS, REMOTE_DOORS], ids=["local", "remote"])
def test_doors_have_fair_shares(doors: tuple[Door, ...]) -> None:
    """Of the scripts that run with every change."""
    count = Counter(door for door, run in EVERY_RUN if not run.nightly and door in doors)
    assert set(count) == set(doors)
    assert max(count.values()) <= 1.5 * min(count.values()), count


@pytest.mark.parametrize(
    ("sql", "fitting"),
    [
        ("SELECT * FROM db.t", True),
        ("SELECT * FROM db.t WHERE id > 1", True),
        ("SELECT * FROM db.t WHERE id > 1 ORDER BY id", False),
        ("SELECT id FROM db.t", False),
        ("DELETE FROM db.t WHERE id = 1", True),
        ("WITH s AS (SELECT 1 AS id) DELETE FROM db.t WHERE id IN (SELECT id FROM s)", False),
        ("UPDATE db.t SET id = 1", True),
        ("UPDATE db.t SET id = 1, id = 2", False),
        ("MERGE INTO db.t USING db.s s ON t.id = s.id WHEN MATCHED THEN DELETE", True),
        ("MERGE INTO db.t USING db.s ON t.id = db.s.id WHEN MATCHED THEN DELETE", False),
        ("INSERT INTO db.t VALUES (1)", True),
        ("INSERT INTO db.t VALUES (DEFAULT)", False),
        ("INSERT OVERWRITE db.t PARTITION (dep = 'a') SELECT 1", False),
        ("ALTER TABLE db.t ADD COLUMN n INT", False),
    ],
)
def test_statements_that_python_has_words_for(sql: str, fitting: bool) -> None:
    assert fits(Door.PYTHON, sql) is fitting


@pytest.mark.needs(Feature.DATA_SOURCE_V2)
def test_few_scripts_are_for_some_doors_alone() -> None:
    """Python has words for a statement of all but two scripts."""
    left_out = {script.path.name for script in SCRIPTS if not all(possible(door, script) for door in Door)}
    assert left_out == {"bare_targets.sql", "explain.sql", "overwrite_some_partition_columns.sql"}
