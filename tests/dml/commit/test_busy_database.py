"""A catalog's database that is busy with another transaction: a lost race, and no riddle."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import URL
from sqlalchemy.exc import OperationalError

from dml.catalog import create_namespace, load
from dml.commit import AppendFiles, commit
from dml.errors import CommitConflictError, CommitStateUnknownError
from tests.dml.commit.builders import data_file, ids, new_table

RETRIES = 3
WAITS = {"commit.retry.num-retries": str(RETRIES), "commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "2"}
UNANSWERED = {"commit.status-check.num-retries": "1", "commit.status-check.min-wait-ms": "1"}


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that waits for its database for a hundredth of a second."""
    uri = URL.create("sqlite", database=str(tmp_path / "catalog.db"), query={"timeout": "0.01"})
    catalog = load("lake", uri=uri.render_as_string(), warehouse=f"file://{tmp_path / 'warehouse'}")
    create_namespace(catalog, ("db",))
    yield catalog
    catalog.close()


@contextmanager
def another_writer(folder: Path) -> Iterator[None]:
    """A transaction that keeps all others from writing."""
    with closing(sqlite3.connect(folder / "catalog.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def metadata_files(folder: Path) -> set[Path]:
    return set((folder / "warehouse").rglob("metadata/*"))


def test_it_is_tried_again_and_leaves_nothing_when_given_up(impatient: Catalog, tmp_path: Path) -> None:
    table = new_table(impatient, 2, **WAITS)
    before = metadata_files(tmp_path)
    with another_writer(tmp_path), pytest.raises(CommitConflictError, match="database is locked") as raised:
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert raised.value.context["attempts"] == RETRIES + 1
    assert metadata_files(tmp_path) == before


@pytest.mark.proves("R2")
def test_it_succeeds_when_the_other_writer_is_done(
    impatient: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(impatient, 3, **WAITS)
    real, busy = impatient.commit_table, [True, True]

    def commit_table(*arguments: Any) -> Any:
        if busy:
            busy.pop()
            with another_writer(tmp_path):
                return real(*arguments)
        return real(*arguments)

    monkeypatch.setattr(impatient, "commit_table", commit_table)
    made = commit(table, AppendFiles(data_files=(data_file(table, [1]),)))
    assert made.attempts == 3
    assert ids(made.metadata_location) == [1]


class RefusalError(Exception):
    """What a driver raises."""

    def __init__(self, **facts: str) -> None:
        super().__init__("could not serialize access due to concurrent update")
        self.__dict__.update(facts)


@pytest.mark.parametrize("facts", [{"pgcode": "40001"}, {"pgcode": "40P01"}, {"sqlstate": "55P03"}])
def test_a_transaction_that_postgresql_rolled_back_is_a_lost_race(
    impatient: Catalog, facts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(impatient, 2, **WAITS)
    refused = refuse_once(impatient, OperationalError("UPDATE", {}, RefusalError(**facts)), monkeypatch)
    assert commit(table, AppendFiles(data_files=(data_file(table, [1]),))).attempts == 2
    assert refused == []


def test_a_connection_that_broke_says_nothing(impatient: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(impatient, 2, **UNANSWERED)
    refuse_once(impatient, OperationalError("UPDATE", {}, RefusalError(pgcode="08006")), monkeypatch)
    with pytest.raises(CommitStateUnknownError):
        commit(table, AppendFiles(data_files=(data_file(table, [1]),)))


def refuse_once(catalog: Catalog, error: Exception, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Let the next commit end with an error of the database."""
    assert isinstance(catalog, SqlCatalog)
    real, waiting = catalog.commit_table, [error]

    def commit_table(*arguments: Any) -> Any:
        if waiting:
            raise waiting.pop()
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    return waiting
