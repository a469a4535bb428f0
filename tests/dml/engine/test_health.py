"""`health` on tables of a session: its figures are those of metadata tables, its advice that of dry runs."""

import pytest

import dml
from tests.dml.engine.conftest import Lake

pytestmark = pytest.mark.spark


def test_figures_are_those_of_metadata_tables_and_dry_runs(lake: Lake) -> None:
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
    planned = lake.session.rewrite_data_files(name, dry_run=True)
    assert planned.rewritten_data_files_count > 0
    assert (found.gain.rewritten_files, found.gain.new_files, found.gain.rewritten_bytes) == (
        planned.rewritten_data_files_count,
        planned.added_data_files_count,
        planned.rewritten_bytes_count,
    )
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
