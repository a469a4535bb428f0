"""Commits of micro-batches: what the history of a branch knows of a streaming query."""

from dataclasses import replace
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml.commit import AlreadyAppliedError, AppendFiles, CommittedSnapshot, StreamEpoch, commit
from dml.commit.idempotency import refuse_second_run
from dml.errors import AnalysisError, CommitConflictError, CorruptFileError, ErrorKind
from dml.model.summary_keys import EPOCH_ID, QUERY_ID
from tests.dml.commit.builders import data_file, ids, new_table
from tests.dml.commit.test_publish import QUICK, before_commits, metadata_files, used_files

QUERY = "5f2b0f3c-0d33-4c24-8f2f-3f8f4d1b7a10"


def epoch(number: int, query: str = QUERY, **settings: object) -> StreamEpoch:
    return StreamEpoch(query_id=query, epoch_id=number, **settings)


def append(table: Table, row: int, key: StreamEpoch | None, branch: str = "main") -> CommittedSnapshot:
    action = AppendFiles(data_files=(data_file(table, [row]),), is_fast=key is not None)
    return commit(table, action, branch=branch, idempotency_key=key)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_micro_batch_is_committed_once(catalog: Catalog, version: int) -> None:
    """Whoever commits in between; one that is older than the newest is there as well."""
    table = new_table(catalog, version)
    first = append(table, 0, epoch(0))
    assert (first.summary[QUERY_ID], first.summary[EPOCH_ID]) == (QUERY, "0")
    append(table, 1, epoch(1))
    append(table, 10, None)
    append(table, 11, epoch(0, "another query"))
    for number in (0, 1):
        with pytest.raises(AlreadyAppliedError):
            append(table, number, epoch(number))
    append(table, 3, epoch(3))  # the one before was empty
    assert ids(table.refresh().metadata_location) == [0, 1, 3, 10, 11]
    assert metadata_files(table) == used_files(table)


def test_a_micro_batch_that_meets_its_twin_gives_way(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers on one checkpoint."""
    table = new_table(catalog, 2, **QUICK)
    append(table, 0, epoch(0))
    before_commits(monkeypatch, catalog, lambda: append(table, 1, epoch(1)))
    with pytest.raises(AlreadyAppliedError):
        append(table, 1, epoch(1))
    assert ids(table.refresh().metadata_location) == [0, 1]


def test_each_branch_has_its_own_history(catalog: Catalog) -> None:
    """What is in a branch alone is not in main, and what main had is in a branch that was made of it."""
    table = new_table(catalog, 2)
    append(table, 0, epoch(0))
    table.refresh().manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    append(table, 1, epoch(1), branch="audit")
    append(table, 1, epoch(1))
    for branch in ("main", "audit"):
        with pytest.raises(AlreadyAppliedError):
            append(table, 1, epoch(1), branch=branch)


def test_a_checkpoint_of_another_stream_is_refused(catalog: Catalog) -> None:
    """A whole history that knows nothing of the query's earlier micro-batches; unless that is wanted."""
    table = new_table(catalog, 2)
    with pytest.raises(AnalysisError, match="belongs to a stream into another table") as caught:
        append(table, 7, epoch(7))
    assert caught.value.kind is ErrorKind.CHECKPOINT
    append(table, 0, None)
    with pytest.raises(AnalysisError, match="was replaced or rolled back"):
        append(table, 7, epoch(7))
    append(table, 7, epoch(7, adopts_checkpoint=True))
    append(table, 8, epoch(8))
    assert ids(table.refresh().metadata_location) == [0, 7, 8]


def test_a_history_that_has_expired_in_part_says_nothing(catalog: Catalog) -> None:
    """The micro-batches before may have been in what is gone."""
    table = new_table(catalog, 2)
    append(table, 0, None)
    second = append(table, 1, None)
    metadata = table.refresh().metadata
    head = metadata.snapshot_by_id(second.snapshot_id)
    with pytest.raises(AnalysisError):
        refuse_second_run(metadata, head, epoch(7))
    expired = metadata.model_copy(update={"snapshots": [head]})
    refuse_second_run(expired, head, epoch(7))


def test_a_table_that_was_created_anew_is_another_one(catalog: Catalog) -> None:
    """Under a stream that runs."""
    table = new_table(catalog, 2)
    append(table, 0, epoch(0, table_uuid=table.metadata.table_uuid))
    with pytest.raises(CommitConflictError, match="is not the one that the stream was started on"):
        append(table, 1, epoch(1, table_uuid=uuid4()))


def test_a_number_that_is_none_is_an_error(catalog: Catalog) -> None:
    """Nobody guesses what was written."""
    table = new_table(catalog, 2)
    commit(table, AppendFiles(), summary={QUERY_ID: QUERY, EPOCH_ID: "first"})
    with pytest.raises(CorruptFileError, match="is 'first'"):
        append(table, 0, replace(epoch(0)))


def test_appends_of_micro_batches_leave_manifests_alone(catalog: Catalog) -> None:
    """A batch's INSERT merges them."""
    table = new_table(catalog, 2, **{"commit.manifest.min-count-to-merge": "2"})
    for number in range(4):
        append(table, number, epoch(number))
    assert len(table.refresh().current_snapshot().manifests(table.io)) == 4
    append(table, 9, None)
    assert len(table.refresh().current_snapshot().manifests(table.io)) == 1
