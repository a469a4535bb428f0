"""`expire_snapshots` by CALL, as a method and in the shell; `tests/dml/maintenance` has what it does to files."""

from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest

from dml.errors import AnalysisError, CorruptFileError, NotFoundError, NotSupportedError
from dml.result import ExpiredSnapshots

COUNTERS = [
    "deleted_data_files_count",
    "deleted_position_delete_files_count",
    "deleted_equality_delete_files_count",
    "deleted_manifest_files_count",
    "deleted_manifest_lists_count",
    "deleted_statistics_files_count",
]


def filled(lake, overwrites: int = 3) -> str:
    name = lake.create("id BIGINT")
    for number in range(overwrites):
        lake.session.sql(f"INSERT OVERWRITE {name} VALUES ({number})")
    return name


def test_call_and_method(lake):
    """Iceberg's columns; with dry_run the decisions; Spark's cached plans follow."""
    session, name = lake.session, filled(lake)
    first, second, _ = (snapshot.snapshot_id for snapshot in lake.table(name).metadata.snapshots)
    cached = session.spark.table(f"lake.{name}").cache()
    assert cached.count() == 1
    tried = session.sql(
        f"CALL lake.system.expire_snapshots('{name}', TIMESTAMP '2020-01-01', 1, 2, true, array({first}), true, true)"
    )
    assert tried.columns == [*COUNTERS, "decision", "object", "reason"]
    counts, *decisions = tried.collect()
    assert tuple(counts) == (1, 0, 0, 1, 1, 0, None, None, None)
    assert all(tuple(row)[:6] == (None,) * 6 for row in decisions)
    assert (decisions[1].decision, decisions[1].object) == ("expire", f"snapshot {first}")
    done = session.sql(f"CALL system.expire_snapshots(table => '{name}', snapshot_ids => array({first}))")
    assert (done.columns, [tuple(row) for row in done.collect()]) == (COUNTERS, [(1, 0, 0, 1, 1, 0)])
    time = datetime.now(UTC) + timedelta(hours=1)
    plan = session.expire_snapshots(name, older_than=time, snapshot_ids=[second], dry_run=True)
    assert plan.decisions[1].reason == "snapshot_ids names it"
    assert session.expire_snapshots(name, time, 1) == ExpiredSnapshots(
        deleted_data_files_count=1,
        deleted_position_delete_files_count=0,
        deleted_equality_delete_files_count=0,
        deleted_manifest_files_count=2,
        deleted_manifest_lists_count=1,
        deleted_statistics_files_count=0,
    )
    assert lake.rows(f"SELECT * FROM {name}") == [(2,)]
    assert session.verify(name, every_file=True).ok


def test_what_is_refused(lake):
    """With the reason."""
    session, name = lake.session, filled(lake, 1)
    for arguments, error, message in (
        ("retain_last => 0", AnalysisError, "must be at least 1, cannot be: 0"),
        ("max_concurrent_deletes => 0", AnalysisError, "should have value > 0, value: 0"),
        ("snapshot_ids => array(1, NULL)", AnalysisError, "an array of whole numbers"),
        ("snapshot_ids => 1", AnalysisError, "an array of whole numbers"),
    ):
        with pytest.raises(error, match=message):
            session.sql(f"CALL system.expire_snapshots(table => '{name}', {arguments})")
    with pytest.raises(NotSupportedError, match="snapshots belong to the whole table"):
        session.expire_snapshots(f"{name}.branch_main")
    with pytest.raises(NotFoundError):
        session.expire_snapshots("db.missing")


@pytest.mark.parametrize("lands", [True, False])
def test_an_answer_that_cannot_be_read_is_looked_up_in_the_table(lake, monkeypatch, lands):
    """If the commit landed, its files are deleted; otherwise the error is raised, and nothing is changed."""
    session, name, module = lake.session, filled(lake), import_module("dml.maintenance.expire_snapshots")
    commit = module.commit_change

    def commit_and_fail(*arguments):
        if lands:
            commit(*arguments)
        raise CorruptFileError("The answer is cut")

    monkeypatch.setattr(module, "commit_change", commit_and_fail)
    later = datetime.now(UTC) + timedelta(hours=1)
    if lands:
        assert session.expire_snapshots(name, later, 1).deleted_data_files_count == 2
    else:
        with pytest.raises(CorruptFileError, match="is cut"):
            session.expire_snapshots(name, later, 1)
    assert len(lake.table(name).metadata.snapshots) == (1 if lands else 3)
    assert lake.rows(f"SELECT * FROM {name}") == [(2,)]
    assert session.verify(name, every_file=True).ok
