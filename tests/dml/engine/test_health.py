"""`health` on tables of a session: its figures are those of metadata tables, its advice the plan of `maintain`."""

import re
from collections.abc import Callable

import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

import dml
from dml import limits
from dml.catalog import create_table
from dml.commit import RewriteFiles, commit
from dml.engine import maintain as module
from dml.engine.maintain import MaintenanceStep
from dml.table_health import TableHealth
from tests.dml.commit.builders import BY_P, SCHEMA
from tests.dml.table_health.test_health import BY_ID, TARGET, append, delete, deletes, listed
from tests.lake import Lake

pytestmark = pytest.mark.spark


def test_figures_are_those_of_metadata_tables(lake: Lake) -> None:
    small = {"format-version": "3", "write.delete.mode": "merge-on-read", "write.target-file-size-bytes": "300"}
    name = lake.create("id BIGINT, k BIGINT", "PARTITIONED BY (k)", **small)
    for start in (0, 9, 18):
        query = f"SELECT /*+ REPARTITION(3) */ id, id % 2 AS k FROM range({start}, {start + 9})"
        lake.session.sql(f"INSERT INTO {name} {query}")
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (1, 4)")
    found = lake.session.health(name)

    def of_metadata(text: str) -> tuple[int, ...]:
        return tuple(lake.session.sql(text.replace("{t}", name)).collect()[0])

    assert (found.files.files, found.files.rows, found.files.bytes) == of_metadata(
        "SELECT count(*), sum(record_count), sum(file_size_in_bytes) FROM {t}.data_files"
    )
    deleted = of_metadata("SELECT count(*), coalesce(sum(record_count), 0) FROM {t}.delete_files")
    assert (found.deletes.files, found.deletes.deleted_rows) == deleted == (2, 2)
    manifests = of_metadata("SELECT count(*), sum(length) FROM {t}.manifests")
    assert (found.manifests.manifests, found.manifests.bytes) == manifests
    assert (found.snapshots.snapshots,) == of_metadata("SELECT count(*) FROM {t}.snapshots")
    assert (found.metadata.old_files + 1,) == of_metadata("SELECT count(*) FROM {t}.metadata_log_entries")
    assert (found.partitions.partitions,) == of_metadata("SELECT count(*) FROM {t}.partitions")
    rows = lake.session.call("health", table=name).collect()
    assert [(row.part, row.name) for row in rows[: len(found.advice)]] == [
        ("advice", one.action) for one in found.advice
    ]
    assert ("Data files", "Data files", f"{found.files.files}") in {(row.part, row.name, row.value) for row in rows}


def test_the_snapshot_is_that_of_the_branch_or_tag(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    assert lake.session.health(name).snapshot_id is None
    first = lake.session.sql(f"INSERT INTO {name} VALUES (1)").snapshot_id
    with lake.table(name).manage_snapshots() as change:
        change.create_tag(first, "one").create_branch(first, "audit")
    second = lake.session.sql(f"INSERT INTO {name} VALUES (2)").snapshot_id
    given = [(name, None), (name, "audit"), (f"{name}.branch_audit", None), (f"{name}.tag_one", None)]
    assert [lake.session.health(*one).snapshot_id for one in given] == [second, first, first, first]
    assert lake.session.health(name, "audit").files.rows == 1
    for wrong in ((f"{name}_none", None), (name, "none")):
        with pytest.raises(dml.NotFoundError, match="none"):
            lake.session.health(*wrong)
    with pytest.raises(dml.NotSupportedError, match="metadata table"):
        lake.session.health(f"{name}.files")


# ---- advice


def small_files_and_deletes(table: Table) -> None:
    full = listed(table, p="c")
    append(table, *(listed(table, 100, p="a") for _ in range(6)), *(listed(table, 700, p="b") for _ in range(5)), full)
    delete(table, deletes(table, full, 3))


def dangling_deletes(table: Table) -> None:
    old, other = listed(table), listed(table)
    append(table, old, other)
    delete(table, deletes(table, old, 1))
    start = table.refresh().current_snapshot()
    assert start is not None
    action = RewriteFiles(
        data_files=(listed(table, rows=9),),
        removed_data_files=frozenset({old.path}),
        starting_snapshot_id=start.snapshot_id,
    )
    commit(table, action)


def small_delete_files(table: Table) -> None:
    files = [listed(table) for _ in range(8)]
    append(table, *files)
    delete(table, *(deletes(table, file, 1) for file in files))


def stale_statistics(table: Table) -> None:
    snapshot_id = append(table, listed(table))
    blob = BlobMetadata(type="apache-datasketches-theta-v1", snapshot_id=snapshot_id, sequence_number=1, fields=[1])
    file = StatisticsFile(
        snapshot_id=snapshot_id,
        statistics_path=f"{table.location()}/metadata/{snapshot_id}.stats",
        file_size_in_bytes=9,
        file_footer_size_in_bytes=1,
        blob_metadata=[blob],
    )
    with table.refresh().update_statistics() as update:
        update.set_statistics(file)
    append(table, listed(table))


def many_commits(table: Table) -> None:
    for _ in range(4):
        append(table, listed(table))


def assert_planned(lake: Lake, name: str) -> TableHealth:
    """The advice is the plan of `maintain`, apart from rows and orphans."""
    found = lake.session.health(name)
    planned = lake.session.maintain(name, plan=True).decisions
    assert [(one.action, one.reason) for one in found.advice] == [
        (one.step, one.reason)
        for one in planned
        if one.decision == "run" and one.step not in {"delete_expired_rows", "remove_orphan_files"}
    ]
    gain = found.gain
    groups = [one for one in planned if (one.step, one.decision) == ("rewrite_data_files", "rewrite")]
    assert gain.groups == len(groups)
    text = f"{gain.rewritten_files} data file.* of {gain.rewritten_bytes} bytes .* become {gain.new_files};"
    reasons = [one.reason for one in found.advice if one.action == "rewrite_data_files"]
    assert all(re.match(text, reason) for reason in reasons)
    assert bool(reasons) == bool(gain.groups)
    return found


@pytest.mark.parametrize(
    ("make", "properties", "expected"),
    [
        (lambda _: None, {}, []),
        (small_files_and_deletes, {}, ["rewrite_data_files"]),
        (small_files_and_deletes, {"maintenance.rewrite.min-input-files": "9"}, ["rewrite_data_files"]),
        (small_files_and_deletes, {"maintenance.partition-idle-ms": "3600000"}, []),
        (dangling_deletes, {}, ["remove_dangling_deletes"]),
        (small_delete_files, {"write.delete.granularity": "partition"}, ["rewrite_position_delete_files"]),
        (lambda table: append(table, *(listed(table, ids=(0, 9)) for _ in range(8))), {}, ["sort_data_files"]),
        (stale_statistics, {}, ["compute_table_stats"]),
        (many_commits, {"history.expire.max-snapshot-age-ms": "0"}, ["expire_snapshots", "rewrite_manifests"]),
        (many_commits, {"history.expire.max-snapshot-age-ms": "0", "gc.enabled": "false"}, ["rewrite_manifests"]),
    ],
)
def test_the_advice_is_the_plan_of_maintain(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Table], object],
    properties: dict[str, str],
    expected: list[str],
) -> None:
    monkeypatch.setattr(limits, "MAINTENANCE_MIN_MANIFESTS", 4)
    name = lake.new_name()
    table = create_table(
        lake.session.registry.catalogs["lake"],
        tuple(name.split(".")),
        SCHEMA,
        partition_spec=BY_P,
        sort_order=BY_ID,
        properties={"format-version": "2", **TARGET, **properties},
    )
    make(table)
    found = assert_planned(lake, name)
    assert [one.action for one in found.advice] == expected
    if make is small_files_and_deletes:
        pays = {(): 7, ("maintenance.rewrite.min-input-files",): 1}.get(tuple(properties), 0)
        assert found.gain.rewritten_files == pays, "five files of 700 bytes are not worth a rewrite"


def test_only_heads_of_branches_have_advice_and_a_step_that_is_not_possible_is_not_advised(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lake.create("id BIGINT")
    table = lake.table(name)
    first = append(table, listed(table))
    with table.refresh().manage_snapshots() as change:
        change.create_tag(first, "one").create_branch(first, "audit")
    append(table, *(listed(table) for _ in range(5)), branch="audit")
    by_argument = lake.session.health(name, "audit")
    assert by_argument.advice == assert_planned(lake, f"{name}.branch_audit").advice
    assert [one.action for one in by_argument.advice] == ["rewrite_data_files"]
    assert assert_planned(lake, name).advice == ()
    for some in (f"{name}.tag_one", f"{name}.snapshot_id_{first}"):
        found = lake.session.health(some)
        assert (found.is_maintained, found.advice, found.files.files) == (False, (), 1)

    def fail(*_: object) -> None:
        raise dml.NotSupportedError("no")

    monkeypatch.setitem(module.PLANNERS, MaintenanceStep.REWRITE_DATA_FILES, fail)
    found = lake.session.health(name, "audit")
    assert (found.is_maintained, found.advice, found.gain.groups, found.files.files) == (True, (), 0, 6)
