"""Commits with an idempotency key: what is found in the history, and what is left of the second one."""

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from dml.commit import AlreadyAppliedError, AppendFiles, CommittedSnapshot, IdempotencyKey, commit
from dml.commit.idempotency import refuse_second_run
from dml.commit.window import ancestors
from dml.errors import AnalysisError, CommitStateUnknownError, ErrorKind
from dml.sqlparse import canonical_text
from tests.dml.commit.builders import data_file, ids, new_table
from tests.dml.commit.test_publish import QUICK, before_commits, metadata_files, used_files

KEY = IdempotencyKey.of("k", "INSERT INTO t")


def append(table: Table, row: int, key: IdempotencyKey = KEY) -> CommittedSnapshot:
    return commit(table, AppendFiles(data_files=(data_file(table, [row]),)), idempotency_key=key)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_second_commit_is_not_made(catalog: Catalog, version: int) -> None:
    table = new_table(catalog, version)
    first = append(table, 1)
    append(table, 2, IdempotencyKey.of("other", "INSERT INTO t"))
    with pytest.raises(AlreadyAppliedError) as caught:
        append(table, 1)
    assert caught.value.snapshot.snapshot_id == first.snapshot_id
    assert ids(table.refresh().metadata_location) == [1, 2]
    assert metadata_files(table) == used_files(table)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_commit_that_meets_its_twin_gives_way(
    catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog, version, **QUICK)
    append(table, 0, IdempotencyKey.of("first", "x"))
    calls = before_commits(monkeypatch, catalog, lambda: append(table, 1))
    with pytest.raises(AlreadyAppliedError):
        append(table, 1)
    assert len(calls) == 1, "the second attempt finds the key before it asks the catalog"
    assert ids(table.refresh().metadata_location) == [0, 1]
    assert metadata_files(table) == used_files(table)


def test_a_commit_that_landed_and_was_called_lost_is_its_own_first_run(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy sends the request twice: the second answer is a refusal, and the table has the snapshot."""
    table = new_table(catalog, 2, **QUICK)
    append(table, 0, IdempotencyKey.of("first", "x"))
    real = catalog.commit_table

    def commit_table(*arguments: object) -> object:
        real(*arguments)
        monkeypatch.setattr(catalog, "commit_table", real)
        raise CommitFailedException("the branch has changed")

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    made = append(table, 1)
    assert made.snapshot_id == table.refresh().current_snapshot().snapshot_id
    assert ids(table.metadata_location) == [0, 1]


@pytest.mark.parametrize("landed", [False, True])
def test_after_a_lost_answer_the_commit_can_be_made_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """Whether it had arrived or not."""
    table = new_table(catalog, 2, **QUICK, **{"commit.status-check.num-retries": "0"})
    append(table, 0, IdempotencyKey.of("first", "x"))
    real_commit, real_load = catalog.commit_table, catalog.load_table

    def away(*_: object) -> object:
        raise ConnectionError("nobody answers")

    def commit_table(*arguments: object) -> object:
        if landed:
            real_commit(*arguments)
        monkeypatch.setattr(catalog, "load_table", away)
        raise TimeoutError("no answer")

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    with pytest.raises(CommitStateUnknownError) as caught:
        append(table, 1)
    monkeypatch.setattr(catalog, "commit_table", real_commit)
    monkeypatch.setattr(catalog, "load_table", real_load)
    if landed:
        with pytest.raises(AlreadyAppliedError) as found:
            append(table, 1)
        assert found.value.snapshot.snapshot_id == caught.value.context["snapshot_id"]
    else:
        append(table, 1)
    assert ids(table.refresh().metadata_location) == [0, 1]


def test_an_expired_snapshot_is_forgotten(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    first = append(table, 1)
    append(table, 2, IdempotencyKey.of("other", "x"))
    table.refresh().maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    append(table, 1)
    assert ids(table.refresh().metadata_location) == [1, 1, 2]


def test_another_statement_is_refused_and_leaves_nothing(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    append(table, 1)
    with pytest.raises(AnalysisError, match="belongs to another statement") as caught:
        append(table, 2, IdempotencyKey.of("k", "DELETE FROM t"))
    assert caught.value.kind is ErrorKind.IDEMPOTENCY_KEY
    assert metadata_files(table) == used_files(table)


def test_a_history_that_bites_its_own_tail_ends(catalog: Catalog) -> None:
    """Metadata comes from anybody who may write where the table lies."""
    table = new_table(catalog, 2)
    append(table, 1, IdempotencyKey.of("a", "x"))
    append(table, 2, IdempotencyKey.of("b", "x"))
    metadata = table.refresh().metadata
    first, second = metadata.snapshots
    looped = metadata.model_copy(
        update={"snapshots": [first.model_copy(update={"parent_snapshot_id": second.snapshot_id}), second]}
    )
    assert len(list(ancestors(looped, looped.snapshots[1].snapshot_id))) <= 3
    refuse_second_run(looped, looped.snapshots[1], KEY)


def test_the_same_statement_is_the_same_tokens() -> None:
    same = ("DELETE FROM db.t WHERE s = 'a  b'", "DELETE  FROM db . t -- all\n WHERE /* x */ s = 'a  b' ;")
    assert len({IdempotencyKey.of("k", canonical_text(text)).statement_sha256 for text in same}) == 1
    others = ("DELETE FROM db.t WHERE s = 'a b'", "DELETE FROM db.t WHERE S = 'a  b'", "DELETE FROM db.t")
    assert len({canonical_text(text) for text in (*same, *others)}) == 4
