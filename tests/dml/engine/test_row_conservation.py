"""A statement whose rows do not add up is not committed; what it wrote is kept and named."""

from dataclasses import replace
from pathlib import Path

import pytest

import dml
from dml.engine import by_tasks, writes
from dml.model.write_task import TaskCommit
from tests.dml.engine.conftest import Kind

pytestmark = pytest.mark.spark

STATEMENTS = (
    "UPDATE {t} SET s = 'x' WHERE id IN (1, 6)",
    "DELETE FROM {t} WHERE id IN (1, 6)",
    "INSERT INTO {t} VALUES (20, 1, 'new')",
)


def test_a_task_that_loses_a_row_is_found_out(balanced_kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer says that it wrote one row more than its files hold, or changed one fewer."""
    name, lake = balanced_kind.filled(), balanced_kind.lake
    before, rows = lake.state(name), lake.rows(name)
    original = writes.report_from_bytes

    def altered(data: bytes) -> TaskCommit:
        commit = original(data)
        assert isinstance(commit, TaskCommit)
        metrics = commit.metrics
        return replace(commit, metrics=replace(metrics, rows_inserted=metrics.rows_inserted + 1))

    for statement in STATEMENTS:
        with monkeypatch.context() as patched:
            patched.setattr(writes, "report_from_bytes", altered)
            patched.setattr(by_tasks, "report_from_bytes", altered)
            with pytest.raises(dml.RowConservationError, match="do not add up") as raised:
                lake.session.sql(statement.replace("{t}", name))
        staged = {Path(path.removeprefix("file://")) for path in raised.value.context["staged_files"]}
        location, files = lake.state(name)
        assert location == before[0], "nothing is published"
        assert staged == files - before[1], "what was written is kept and named"
        for path in staged:
            path.unlink()
    assert lake.rows(name) == rows


def test_the_counts_of_every_statement_stand_in_its_snapshot(balanced_kind: Kind) -> None:
    name, lake = balanced_kind.filled(), balanced_kind.lake
    updated = lake.session.sql(f"UPDATE {name} SET s = 'x' WHERE id IN (1, 6)")
    carried = "6" if balanced_kind.copy_on_write else "0"
    assert {key: value for key, value in updated.summary.items() if key.startswith("rowdelta.")} == {
        "rowdelta.rows-deleted": "0",
        "rowdelta.rows-updated": "2",
        "rowdelta.rows-inserted": "0",
        "rowdelta.rows-carried": carried,
    }
