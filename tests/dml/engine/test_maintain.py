"""Maintenance does what a table needs, says why, and has nothing left to do when it runs again."""

import logging
import threading
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace

import pytest

from dml import limits
from dml.commit import AppendFiles, commit
from dml.engine import maintain as module
from dml.engine.engine import Engine
from dml.engine.maintain import MaintenanceStep, parse_budget, plan_maintenance
from dml.errors import AnalysisError, CommitConflictError, DataError, ExecutionError
from dml.maintenance import remove_orphan_files
from dml.result import MaintenanceReport
from dml.shell import run_maintenance, tables_in
from tests.dml.commit.builders import data_file
from tests.lake import Lake

pytestmark = pytest.mark.spark

NO_ORPHANS = {"maintenance.orphans.interval-ms": "0"}
EXPIRES = {"history.expire.max-snapshot-age-ms": "0"}
"""What is not current expires at once."""


def steps(report: MaintenanceReport, decision: str) -> list[str]:
    return list(dict.fromkeys(one.step for one in report.decisions if one.decision == decision))


def reason(report: MaintenanceReport, step: str, decision: str = "keep") -> str:
    return next(one.reason for one in report.decisions if (one.step, one.decision) == (step, decision))


def insert(lake: Lake, name: str, query: str) -> None:
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ {query}")


def assert_converges(lake: Lake, name: str, *wanted: str) -> MaintenanceReport:
    """The table keeps its rows, the steps run, and a second run changes neither metadata nor files."""
    rows = lake.rows(name)
    planned = lake.session.maintain(name, plan=True)
    first = lake.session.maintain(name)
    assert set(wanted) <= set(steps(first, "done"))
    assert set(steps(planned, "run")) <= set(steps(first, "done"))
    after = lake.state(name)
    second = lake.session.maintain(name)
    assert lake.state(name) == after
    assert steps(second, "done") == steps(lake.session.maintain(name, plan=True), "run") == []
    assert lake.rows(name) == rows
    assert lake.session.verify(name).ok
    return first


@pytest.mark.parametrize(
    ("version", "mode", "partitioned", "granularity", "wanted"),
    [
        (2, "merge-on-read", True, "file", ("remove_dangling_deletes",)),
        pytest.param(2, "merge-on-read", False, "partition", (), marks=pytest.mark.nightly),
        (3, "merge-on-read", True, "file", ()),
        pytest.param(2, "copy-on-write", True, "file", (), marks=pytest.mark.nightly),
        pytest.param(3, "copy-on-write", False, "file", (), marks=pytest.mark.nightly),
        pytest.param(1, "copy-on-write", True, "file", (), marks=pytest.mark.nightly),
    ],
)
def test_a_second_run_changes_nothing(lake, version, mode, partitioned, granularity, wanted):
    """Small files, deletes, a branch, a tag that is too old, statistics, orphans and snapshots that expire."""
    name = lake.create(
        "id BIGINT, k INT",
        "PARTITIONED BY (k)" if partitioned else "",
        **{"format-version": str(version), "write.delete.mode": mode, "write.delete.granularity": granularity},
        **EXPIRES,
    )
    for start in range(0, 50, 10):
        insert(lake, name, f"id, CAST(id % 2 AS INT) FROM range({start}, {start + 10})")
    lake.session.sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    lake.session.sql(f"INSERT INTO {name}.branch_audit VALUES (100, 0)")
    lake.session.sql(f"ALTER TABLE {name} CREATE TAG old RETAIN 1 MINUTES")
    lake.session.compute_table_stats(name, columns=["id"])
    for number in (3, 4):
        lake.session.sql(f"DELETE FROM {name} WHERE id % {number} = 0")
    audit = lake.rows(f"{name}.branch_audit")
    # Copy-on-write joins small files itself.
    compaction = ("rewrite_data_files",) if mode == "merge-on-read" else ()
    expected = ("expire_snapshots", *compaction, "compute_table_stats", "remove_orphan_files", *wanted)
    assert_converges(lake, name, *expected)
    assert lake.rows(f"{name}.branch_audit") == audit
    assert len(lake.data_files(name)) == (2 if partitioned else 1)


def test_a_sorted_table_whose_files_overlap_is_sorted_once(lake):
    name = lake.create("id BIGINT, s STRING", **{"maintenance.rewrite.target-file-size-bytes": "4000", **NO_ORPHANS})
    # No file is small, so the compaction by size leaves them.
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('maintenance.rewrite.min-file-size-bytes' = '1')")
    lake.session.sql(f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY id")
    for start in range(8):
        insert(lake, name, f"8 * id + {start}, md5(CAST(id AS STRING)) FROM range(40)")
    planned = lake.session.maintain(name, plan=True)
    assert "overlap depth 4.5" in reason(planned, "sort_data_files", "rewrite")
    assert_converges(lake, name, "sort_data_files")
    assert "at most 1.0 on average" in reason(lake.session.maintain(name, plan=True), "sort_data_files")
    bounds = sorted((one.lower_bounds[1], one.upper_bounds[1]) for one in lake.data_files(name))
    ends = [(int.from_bytes(low, "little"), int.from_bytes(high, "little")) for low, high in bounds]
    assert len(ends) < 8
    ends.sort()
    assert all(before[1] < after[0] for before, after in pairwise(ends))


def test_files_without_rows_do_not_stop_the_sorting(lake):
    name = lake.create("id BIGINT, p STRING", **NO_ORPHANS)
    lake.session.sql(f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY id")
    insert(lake, name, "1, 'a'")
    table = lake.table(name)
    assert commit(table, AppendFiles(data_files=(replace(data_file(table, [1]), record_count=0),)))
    assert "at most 1.0 on average" in reason(lake.session.maintain(name, plan=True), "sort_data_files")


def test_options_that_do_not_fit_maintenance_are_ignored(lake):
    rewrite = "maintenance.rewrite."
    limited = {f"{rewrite}partial-progress.enabled": "true", f"{rewrite}max-files-to-rewrite": "2"}
    name = small_files(lake, files=1, **limited)
    state = module.MaintainedTable(lake.engine, ("lake", *name.split(".")), commit_bytes=7)
    options = module.compaction_options(state)
    assert options == {"max-files-to-rewrite": "2", "max-file-group-size-bytes": "7"}


def test_many_small_manifests_are_rewritten_also_those_that_the_run_itself_leaves(lake, monkeypatch):
    monkeypatch.setattr(limits, "MAINTENANCE_MIN_MANIFESTS", 4)
    monkeypatch.setattr(limits, "MAINTENANCE_MANIFEST_RATIO", 2)
    name = lake.create("id BIGINT, k INT", "PARTITIONED BY (k)", **NO_ORPHANS)
    for start in range(6):
        insert(lake, name, f"id, CAST(id % 3 AS INT) FROM range({3 * start}, {3 * start + 3})")
    assert_converges(lake, name, "rewrite_manifests", "rewrite_data_files")


def test_a_table_without_snapshots_and_one_without_files_need_nothing(lake):
    for name in (lake.create("id BIGINT", **NO_ORPHANS), lake.create("id BIGINT", "PARTITIONED BY (id)", **NO_ORPHANS)):
        before = lake.state(name)
        report = lake.session.maintain(name)
        assert {one.decision for one in report.decisions} == {"keep"}
        assert [one.step for one in report.decisions] == list(MaintenanceStep)
        assert lake.state(name) == before


def test_only_the_branch_in_the_name_is_compacted(lake):
    name = lake.create("id BIGINT", **NO_ORPHANS)
    for number in range(5):
        insert(lake, name, f"{number}")
    lake.session.sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    lake.session.maintain(f"{name}.branch_audit")
    assert len(lake.data_files(name)) == 5
    assert lake.session.sql(f"SELECT * FROM {name}.files.branch_audit").count() == 1


def small_files(lake: Lake, *, files: int = 5, partitions: int = 1, clauses: str = "", **properties: str) -> str:
    """A table of small files: `files` in each partition `k`."""
    name = lake.create("id BIGINT, k INT", clauses or "PARTITIONED BY (k)", **{**NO_ORPHANS, **properties})
    for number in range(files):
        insert(lake, name, f"{number}, CAST(id AS INT) FROM range({partitions})")
    return name


def test_partitions_with_new_files_are_left_and_say_so(lake):
    name = small_files(lake, **{"maintenance.partition-idle-ms": "3600000"})
    report = lake.session.maintain(name)
    assert steps(report, "done") == []
    hot = next(one for one in report.decisions if one.object == "partition k=0")
    assert hot.step == "rewrite_data_files"
    assert hot.reason.endswith("ago, idle after 1.0 hours")
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('maintenance.partition-idle-ms' = '1')")
    assert steps(lake.session.maintain(name), "done") == ["rewrite_data_files"]


def test_the_budget_leaves_groups_that_the_next_run_rewrites(lake, monkeypatch):
    name = small_files(lake, partitions=3)
    monkeypatch.setattr(limits, "MAINTENANCE_COMMIT_BYTES", 1)
    ended = iter([False, True])
    monkeypatch.setattr(module.MaintenanceRun, "is_over", lambda _: next(ended, True))
    report = lake.session.maintain(name, budget="1h")
    assert reason(report, "rewrite_data_files", "done").startswith("5 data files of")
    assert reason(report, "rewrite_data_files", "left").startswith("the budget ended before: 2 of 3 groups")
    monkeypatch.undo()
    assert len(report.left) == 1
    assert len(lake.data_files(name)) == 1 + 2 * 5
    assert lake.session.maintain(name).left == ()
    assert len(lake.data_files(name)) == 3


def test_without_budget_left_nothing_is_committed(lake):
    name = small_files(lake)
    before = lake.state(name)
    report = lake.session.maintain(name, budget="0s")
    assert steps(report, "left") == ["rewrite_data_files"]
    assert lake.state(name) == before


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("5m", 300), ("1.5h", 5400), (" 20 MS ", 0.02)])
def test_a_budget_has_a_unit(text, seconds):
    assert parse_budget(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["5", "", "-1s", "m", "5 days"])
def test_other_budgets_are_refused(text):
    with pytest.raises(AnalysisError, match="The budget is"):
        parse_budget(text)


# ---- the lease


def test_a_second_maintainer_ends_and_names_the_first(lake, monkeypatch):
    name = small_files(lake)
    found: list[CommitConflictError] = []
    run = module.run_rewrite

    def rewrite_while_another_begins(*arguments):
        def second() -> None:
            try:
                module.maintain(lake.engine, ("lake", *name.split(".")))
            except CommitConflictError as error:
                found.append(error)

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        return run(*arguments)

    monkeypatch.setattr(module, "run_rewrite", rewrite_while_another_begins)
    assert steps(lake.session.maintain(name), "done") == ["rewrite_data_files"]
    assert f"'{name}' is being maintained by" in found[0].message
    assert len(lake.data_files(name)) == 1
    assert not any("lease" in key for key in lake.table(name).properties)


# ---- time to live


@pytest.mark.parametrize(
    "kind", ["DATE", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("TIMESTAMP", "TIMESTAMP_NTZ"))]
)
def test_rows_above_their_age_are_deleted_once(lake, kind):
    days = 24 * 3600 * 1000
    name = lake.create("id BIGINT, at " + kind, **NO_ORPHANS)
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('maintenance.ttl.column' = 'at')")
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('maintenance.ttl.max-age-ms' = '{10 * days}')")
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    today = datetime.now(UTC).date()
    values = [f"({age}, {kind} '{today - timedelta(days=age)}')" for age in (0, 9, 11, 12)]
    insert(lake, name, f"* FROM VALUES {', '.join(values)}, (99, NULL)")
    report = lake.session.maintain(name, plan=True)
    bound = f"{today - timedelta(days=10)}"
    assert reason(report, "delete_expired_rows", "run").startswith(f"2 rows with at < {kind} '{bound}")
    report = lake.session.maintain(name)
    assert reason(report, "delete_expired_rows", "done").startswith("deleted 2 rows")
    assert [row[0] for row in lake.rows(name)] == [0, 9, 99]
    after = lake.state(name)
    lake.session.maintain(name)
    assert lake.state(name) == after


def test_whole_partitions_above_their_age_are_deleted_without_being_read(lake):
    properties = {"maintenance.ttl.column": "day", "maintenance.ttl.max-age-ms": "86400000", **NO_ORPHANS}
    name = lake.create("id BIGINT, day DATE", "PARTITIONED BY (day)", **properties)
    insert(lake, name, f"id, DATE '{date(2020, 1, 1)}' FROM range(3)")
    assert reason(lake.session.maintain(name, plan=True), "delete_expired_rows", "run").startswith("3 rows")
    report = lake.session.maintain(name)
    assert reason(report, "delete_expired_rows", "done").startswith("deleted 3 rows in 1 removed data file (metadata)")
    assert lake.rows(name) == []


@pytest.mark.parametrize("setting", ["spark.wap.branch", "spark.wap.id"])
def test_settings_of_write_audit_publish_do_not_redirect_the_deletion_of_expired_rows(lake, setting):
    properties = {"maintenance.ttl.column": "day", "maintenance.ttl.max-age-ms": "86400000", **NO_ORPHANS}
    name = lake.create("id BIGINT, day DATE", **properties, **{"write.wap.enabled": "true"})
    insert(lake, name, "* FROM VALUES (1, DATE '2020-01-01'), (2, DATE '2990-01-01')")
    lake.session.spark.conf.set(setting, "audit")
    try:
        report = lake.session.maintain(name)
    finally:
        lake.session.spark.conf.unset(setting)
    assert reason(report, "delete_expired_rows", "done").startswith("deleted 1 row in")
    metadata = lake.table(name).metadata
    assert list(metadata.refs) == ["main"]
    assert len(metadata.snapshots) == 2
    assert lake.rows(f"SELECT id FROM {name}") == [(2,)]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"maintenance.ttl.column": "id"}, "without 'maintenance.ttl.max-age-ms'"),
        ({"maintenance.ttl.max-age-ms": "5"}, "without 'maintenance.ttl.column'"),
        ({"maintenance.ttl.column": "id", "maintenance.ttl.max-age-ms": "5"}, "which is of type long"),
        ({"maintenance.ttl.column": "nope", "maintenance.ttl.max-age-ms": "5"}, "which is no column"),
        ({"maintenance.ttl.column": "days.element", "maintenance.ttl.max-age-ms": "5"}, "which is no column"),
    ],
)
def test_a_time_to_live_that_is_not_clear_is_refused(lake, properties, message):
    name = lake.create("id BIGINT, days ARRAY<DATE>", **properties)
    with pytest.raises(AnalysisError, match=message):
        lake.session.maintain(name, plan=True)


# ---- statistics and orphans


def test_statistics_are_computed_where_a_property_asks_and_again_when_enough_changed(lake):
    name = lake.create("id BIGINT, k INT", "PARTITIONED BY (k)", **NO_ORPHANS)
    insert(lake, name, "id, CAST(id % 2 AS INT) FROM range(100)")
    assert steps(lake.session.maintain(name), "done") == []
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('maintenance.statistics' = 'all')")
    kinds = ["compute_table_stats", "compute_partition_stats"]
    assert steps(lake.session.maintain(name), "done") == kinds
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('maintenance.statistics' = 'existing')")
    insert(lake, name, "id, 1 FROM range(5)")
    assert reason(lake.session.maintain(name), "compute_table_stats") == "4.8% of the rows changed since"
    insert(lake, name, "id, 1 FROM range(15)")
    assert steps(lake.session.maintain(name), "done") == kinds
    blobs = next(one for one in lake.table(name).metadata.statistics[-1:]).blob_metadata
    assert [blob.fields for blob in blobs] == [[1], [2]]


def test_orphans_are_removed_once_in_an_interval(lake, monkeypatch):
    calls = []

    def remove(*given):
        calls.append(given)
        return remove_orphan_files(*given)

    monkeypatch.setattr(module, "remove_orphan_files", remove)
    name = lake.create("id BIGINT")
    insert(lake, name, "1")
    for _ in range(2):
        lake.session.maintain(name)
    assert len(calls) == 1
    long_ago = int((time.time() - 8 * 24 * 3600) * 1000)
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('maintenance.orphans.last-run-ms' = '{long_ago}')")
    lake.session.maintain(name)
    assert len(calls) == 2


def test_files_of_a_table_that_others_share_are_not_deleted(lake):
    name = lake.create("id BIGINT", **{"gc.enabled": "false", **EXPIRES})
    for _ in range(2):
        insert(lake, name, "1")
    report = lake.session.maintain(name)
    assert steps(report, "done") == []
    assert reason(report, "expire_snapshots") == reason(report, "remove_orphan_files") == "gc.enabled is false"


def test_orphans_are_due_if_the_last_run_is_in_the_future_and_what_is_not_clear_is_left(lake, monkeypatch):
    name = lake.create("id BIGINT", **{"maintenance.orphans.last-run-ms": str(2**53)})
    insert(lake, name, "1")

    def refuse(*_):
        raise AnalysisError("Cannot determine if 2 files are orphans")

    monkeypatch.setattr(module, "remove_orphan_files", refuse)
    report = lake.session.maintain(name)
    assert reason(report, "remove_orphan_files", "done").startswith("not possible: Cannot determine")
    assert reason(lake.session.maintain(name), "remove_orphan_files").endswith(" ago, due after 7.0 days")


def test_statistics_are_computed_before_the_snapshot_that_has_them_expires(lake, monkeypatch):
    name = small_files(lake, files=1, **EXPIRES)
    lake.session.compute_table_stats(name, columns=["id"])
    insert(lake, name, "1, 0")
    ended = iter([False])
    monkeypatch.setattr(module.MaintenanceRun, "is_over", lambda _: next(ended, True))
    report = lake.session.maintain(name, budget="1h")
    assert (steps(report, "done"), steps(report, "left")) == (["compute_table_stats"], ["expire_snapshots"])
    monkeypatch.undo()
    assert steps(lake.session.maintain(name), "done") == ["expire_snapshots"]
    (file,) = lake.table(name).metadata.statistics
    assert [blob.fields for blob in file.blob_metadata] == [[1]]


def test_a_table_without_columns_of_primitive_types_has_no_statistics(lake):
    name = lake.create("tags ARRAY<STRING>", **{"maintenance.statistics": "all", **NO_ORPHANS})
    insert(lake, name, "array('a')")
    assert reason(lake.session.maintain(name), "compute_table_stats") == "no column of a primitive type"


# ---- failures


def test_a_step_that_fails_does_not_stop_the_others_and_the_run_says_so(lake, monkeypatch):
    name = small_files(lake, **EXPIRES)

    def fail(*_):
        raise ExecutionError("the storage is full")

    monkeypatch.setattr(module, "expire_snapshots", fail)
    with pytest.raises(ExecutionError, match="1 step failed: expire_snapshots: the storage is full") as failed:
        lake.session.maintain(name)
    assert failed.value.hint.startswith("Done: rewrite_data_files: 5 data files of")
    assert len(lake.data_files(name)) == 1
    assert not any("lease" in key for key in lake.table(name).properties)


def test_a_step_that_cannot_be_planned_does_not_stop_the_others(lake):
    name = small_files(lake, **{"maintenance.ttl.column": "id"})
    with pytest.raises(ExecutionError, match=r"1 step failed: delete_expired_rows: .* without 'maint") as failed:
        lake.session.maintain(name)
    assert "Done: rewrite_data_files: 5 data files of" in (failed.value.hint or "")
    assert len(lake.data_files(name)) == 1


class Groups:
    """A rewrite whose batches with a bad group fail."""

    def __init__(self, engine: Engine, bad: int | None = None) -> None:
        self.engine, self.bad = engine, bad
        self.resolved = SimpleNamespace(name="t")
        self.batches: list[list[int]] = []

    def run(self, batch):
        self.batches.append([group.number for group in batch])
        if self.bad in self.batches[-1]:
            raise DataError("a file is damaged")
        return (), 0


GROUPS = [SimpleNamespace(number=number, size=10, partition=None) for number in range(5)]


def test_a_group_that_fails_is_tried_alone_and_does_not_stop_the_others(lake):
    rewrite = Groups(lake.engine, bad=1)
    with pytest.raises(ExecutionError, match="of 5 groups failed group 1: a file is damaged"):
        module.run_rewrite(rewrite, GROUPS, lambda: False, 30)
    assert rewrite.batches == [[0, 1, 2], [0], [1], [2], [3, 4]]


def test_a_lease_that_is_lost_between_two_commits_does_not_lose_what_was_done(lake):
    def lost() -> bool:
        raise CommitConflictError("another one")

    rewrite = Groups(lake.engine)
    with pytest.raises(ExecutionError, match=r"0 data files of 0 bytes .* failed the last 2 groups: another one"):
        module.run_rewrite(rewrite, GROUPS, lost, 30)
    assert rewrite.batches == [[0, 1, 2]]


def test_a_lease_that_is_lost_before_a_step_is_reported_with_what_was_done(lake, monkeypatch):
    name = small_files(lake, files=2, **EXPIRES)
    confirmed = iter([None])

    def confirm(_):
        if next(confirmed, "lost"):
            raise CommitConflictError("another one")

    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('maintenance.statistics' = 'all')")
    monkeypatch.setattr(module.Lease, "confirm", confirm)
    with pytest.raises(ExecutionError, match="compute_table_stats: another one") as failed:
        lake.session.maintain(name)
    assert failed.value.hint.startswith("Done: expire_snapshots: ")


# ---- triggers


def test_a_trigger_compacts_after_a_commit_and_its_own_commits_trigger_nothing(lake, caplog):
    caplog.set_level(logging.INFO, "dml.hooks")
    name = small_files(lake, files=4, **{"maintenance.trigger.commits": "5"})
    assert len(lake.data_files(name)) == 4
    insert(lake, name, "5, 0")
    assert len(lake.data_files(name)) == 1
    assert [row[0] for row in lake.rows(name)] == [0, 1, 2, 3, 5]
    assert [one.message for one in caplog.records] == [f"Compacting lake.{name}: 5 commits since the last compaction"]
    insert(lake, name, "6, 0")
    assert len(lake.data_files(name)) == 2


@pytest.mark.parametrize("threshold", [{}, {"maintenance.rewrite.delete-ratio-threshold": "0.9"}])
def test_a_trigger_by_deleted_rows_rewrites_files_below_the_usual_ratio(lake, threshold):
    properties = {"write.delete.mode": "merge-on-read", "maintenance.trigger.deleted-ratio": "0.1", **threshold}
    name = lake.create("id BIGINT", **properties, **NO_ORPHANS)
    insert(lake, name, "id FROM range(100)")
    lake.session.sql(f"DELETE FROM {name} WHERE id < 9")
    assert lake.data_files(name)[0].record_count == 100
    lake.session.sql(f"DELETE FROM {name} WHERE id = 10")
    assert lake.data_files(name)[0].record_count == 90


def test_a_trigger_by_deleted_rows_keeps_a_lower_ratio_of_the_table(lake):
    ratios = {"maintenance.trigger.deleted-ratio": "0.2", "maintenance.rewrite.delete-ratio-threshold": "0.05"}
    name = lake.create("id BIGINT", **{"write.delete.mode": "merge-on-read", **ratios, **NO_ORPHANS})
    insert(lake, name, "id FROM range(0, 100, 1, 1)")
    insert(lake, name, "id FROM range(100, 200, 1, 1)")
    lake.session.sql(f"DELETE FROM {name} WHERE id < 40 OR id BETWEEN 100 AND 109")
    assert sorted(file.record_count for file in lake.data_files(name)) == [150]


def test_a_triggered_compaction_that_fails_is_a_warning(lake, monkeypatch, caplog):
    name = small_files(lake, files=1, **{"maintenance.trigger.commits": "1"})

    def fail(*_):
        raise ExecutionError("the storage is full")

    monkeypatch.setattr(module, "run_rewrite", fail)
    for number in range(4):
        insert(lake, name, f"{number}, 0")
    assert "the hook 'maintenance' failed" in caplog.text
    assert "the storage is full" in caplog.text
    assert len(lake.rows(name)) == 5


def test_a_trigger_leaves_the_table_to_a_maintainer_that_is_at_work(lake, caplog):
    caplog.set_level(logging.INFO, "dml.engine.maintain")
    until = str(int(time.time() * 1000) + 60_000)
    held = {"maintenance.lease.holder": "other", "maintenance.lease.expires-at-ms": until}
    name = small_files(lake, files=5, **{"maintenance.trigger.commits": "5", **held})
    assert len(lake.data_files(name)) == 5
    assert "No compaction after the commit" in caplog.text
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


# ---- other ways in


def test_the_plan_is_a_value_for_other_tools(lake):
    name = small_files(lake)
    plan = plan_maintenance(lake.engine, ("lake", *name.split(".")))
    assert [one.step for one in plan.needed] == [MaintenanceStep.REWRITE_DATA_FILES]
    assert plan.decisions == lake.session.maintain(f"lake.{name}", plan=True).decisions


def test_with_a_budget_no_table_is_always_the_last(lake, monkeypatch):
    visited = []

    def maintain(_, table, **__):
        visited.append(table)
        return MaintenanceReport(table=table)

    monkeypatch.setattr(type(lake.session), "maintain", maintain)
    tables = [str(number) for number in range(30)]
    run_maintenance(lake.session, tables, plan=True, budget="1h", output="json", goes_on=True)
    assert visited != tables
    assert sorted(visited) == sorted(tables)


def test_the_shell_maintains_all_tables_of_a_namespace_and_its_exit_code_tells_how_it_ended(lake, capsys):
    lake.session.sql("CREATE NAMESPACE db.nested")
    lake.session.sql("CREATE TABLE db.nested.good (id BIGINT) TBLPROPERTIES ('maintenance.orphans.interval-ms' = '0')")
    tables = list(tables_in(lake.session, "db.nested"))
    assert tables == ["lake.db.nested.good"]
    assert set(tables) < set(tables_in(lake.session, None))
    assert run_maintenance(lake.session, tables, plan=False, budget=None, output="json", goes_on=True) == 0
    assert '"table": "lake.db.nested.good", "step": "expire_snapshots", "decision": "keep"' in capsys.readouterr().out
    for number in range(5):
        lake.session.sql(f"INSERT INTO db.nested.good VALUES ({number})")
    lake.session.sql("CREATE TABLE db.nested.bad (id BIGINT) TBLPROPERTIES ('maintenance.ttl.column' = 'id')")
    tables = list(tables_in(lake.session, "lake.db.nested"))
    assert run_maintenance(lake.session, tables[-1:], plan=False, budget="0s", output="table", goes_on=True) == 3
    assert "the budget ended before the table was planned" in capsys.readouterr().out
    assert run_maintenance(lake.session, tables, plan=False, budget=None, output="csv", goes_on=True) == 1
    out = capsys.readouterr().out
    assert "lake.db.nested.bad,,failed,lake.db.nested.bad," in out
    assert "lake.db.nested.good,rewrite_data_files,done" in out
    with pytest.raises(AnalysisError):
        run_maintenance(lake.session, tables, plan=True, budget=None, output="csv", goes_on=False)
    lake.session.sql("DROP NAMESPACE db.nested CASCADE")
