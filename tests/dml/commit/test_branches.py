"""Branches, staged snapshots and the totals that they start from."""

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue

from dml.catalog import load_table
from dml.commit import AppendFiles, DeleteFiles, commit
from dml.errors import AnalysisError, NotFoundError
from tests.dml.commit.builders import data_file, ids_by_pyiceberg, new_table

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


@VERSIONS
def test_a_commit_to_a_branch_leaves_main_alone(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    on_main = commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    on_branch = commit(table, AppendFiles(data_files=(data_file(table, [2]),)), branch="audit", create_branch=True)
    again = commit(table, AppendFiles(data_files=(data_file(table, [3]),)), branch="audit")
    assert (on_branch.parent_snapshot_id, again.parent_snapshot_id) == (on_main.snapshot_id, on_branch.snapshot_id)
    # The branch's totals go on from main's, where it began.
    assert on_branch.summary["total-records"] == "2"
    refs = table.refresh().metadata.refs
    assert (refs["main"].snapshot_id, refs["audit"].snapshot_id) == (on_main.snapshot_id, again.snapshot_id)
    assert ids_by_pyiceberg(again.metadata_location) == [1]


def test_a_branch_keeps_its_retention(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    first = commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    table.refresh().manage_snapshots().create_branch(
        first.snapshot_id, "kept", max_ref_age_ms=10_000_000, min_snapshots_to_keep=3
    ).commit()
    commit(table, AppendFiles(data_files=(data_file(table, [2]),)), branch="kept")
    ref = table.refresh().metadata.refs["kept"]
    assert (ref.max_ref_age_ms, ref.min_snapshots_to_keep) == (10_000_000, 3)


def test_a_branch_that_is_not_there_is_an_error(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    with pytest.raises(NotFoundError, match=r"Cannot use branch \(does not exist\): mian. Did you mean 'main'\?"):
        commit(table, AppendFiles(), branch="mian")


def test_a_tag_is_no_branch(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    first = commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    table.refresh().manage_snapshots().create_tag(first.snapshot_id, "v1").commit()
    with pytest.raises(AnalysisError, match="v1 is a tag, not a branch"):
        commit(table, AppendFiles(), branch="v1", create_branch=True)


@VERSIONS
def test_a_staged_snapshot_moves_no_branch(catalog: Catalog, version: int) -> None:
    """Write-audit-publish by id, for a metadata delete as for all else."""
    table = new_table(catalog, version)
    first = commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    staged = commit(table, DeleteFiles(row_filter=AlwaysTrue()), wap_id="w1", summary={"app-id": "tests"})
    metadata = load_table(catalog, ("db", "t")).metadata
    assert metadata.current_snapshot_id == first.snapshot_id
    snapshot = metadata.snapshot_by_id(staged.snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary["wap.id"], snapshot.summary["app-id"]) == ("w1", "tests")
    assert snapshot.parent_snapshot_id == first.snapshot_id
    assert ids_by_pyiceberg(staged.metadata_location) == [1]
    # The next commit goes on from main, with numbers above those that the staged one took.
    after = commit(table, AppendFiles(data_files=(data_file(table, [2]),)))
    assert after.parent_snapshot_id == first.snapshot_id
    assert after.sequence_number == (0 if version == 1 else 3)
    assert ids_by_pyiceberg(after.metadata_location) == [1, 2]


def test_a_first_snapshot_can_be_staged(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    staged = commit(table, AppendFiles(data_files=(data_file(table, [1]),)), stage_only=True)
    metadata = table.refresh().metadata
    assert metadata.current_snapshot_id is None
    assert [snapshot.snapshot_id for snapshot in metadata.snapshots] == [staged.snapshot_id]
