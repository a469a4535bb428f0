"""The table of CREATE TABLE ... AS SELECT comes, or is replaced, with the snapshot of its rows: one commit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from dml.catalog import LoadState, load
from dml.commit import AppendFiles, commit
from dml.commit.publish import CommittedSnapshot
from dml.ddl import stage_table
from dml.errors import AlreadyExistsError, CommitConflictError, CommitStateUnknownError, NotFoundError
from dml.sqlparse import parse
from dml.sqlparse.statements import CreateTable
from tests.dml.commit.builders import data_file, ids
from tests.dml.ddl.conftest import DdlCatalog
from tests.other_writers import set_properties

NAME = ("db", "t")
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))


def staged(lake: DdlCatalog, clauses: str = "", verb: str = "CREATE", version: int = 2) -> LoadState:
    """The table of a statement, not yet committed."""
    quick = "'commit.status-check.min-wait-ms' = '1', 'commit.status-check.max-wait-ms' = '5'"
    properties = f"'format-version' = '{version}', {quick}"
    statement = parse(f"{verb} TABLE db.t {clauses} TBLPROPERTIES ({properties}) AS SELECT 1")
    assert isinstance(statement, CreateTable)
    found = stage_table(statement, lake.catalog, NAME, SCHEMA)
    assert found is not None
    return found


def committed(load_state: LoadState, *numbers: int) -> CommittedSnapshot:
    """The staged table with a file of these ids."""
    table = load_state().table
    return commit(table, AppendFiles(data_files=(data_file(table, numbers),)), load_state=load_state)


def metadata_files(table: Table) -> list[Path]:
    """All files of the metadata folder."""
    return sorted(Path(table.location().removeprefix("file://"), "metadata").iterdir())


def test_a_new_table_is_first_seen_with_its_rows(lake: DdlCatalog, version: int) -> None:
    """One metadata file, with the snapshot in it."""
    load_state = staged(lake, "PARTITIONED BY (p)", version=version)
    assert not lake.catalog.table_exists(NAME)
    made = committed(load_state, 1, 2)
    table = lake.table()
    assert (table.metadata.format_version, len(table.metadata.snapshots)) == (version, 1)
    assert [str(field) for field in table.spec().fields] == ["1000: p: identity(2)"]
    assert table.metadata_location == made.metadata_location
    assert ids(made.metadata_location) == [1, 2]
    assert [path.name[:5] for path in metadata_files(table) if path.name.endswith(".json")] == ["00000"]
    committed_again = commit(table, AppendFiles(data_files=(data_file(table, [3]),)))
    assert ids(committed_again.metadata_location) == [1, 2, 3]


def test_of_two_that_create_one_table_the_second_leaves_nothing(lake: DdlCatalog) -> None:
    """Neither rows in the other's table, nor files in its metadata folder."""
    first, second = staged(lake), staged(lake)
    made = committed(first, 1)
    before = metadata_files(lake.table())
    with pytest.raises(AlreadyExistsError):
        committed(second, 2)
    assert ids(made.metadata_location) == [1]
    assert metadata_files(lake.table()) == before


def test_a_creation_that_is_sent_twice_has_succeeded(lake: DdlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that repeats a request is told that the table is there: it is its own, and no file may be deleted."""
    real = lake.catalog.commit_table

    def twice(*arguments: Any) -> Any:
        real(*arguments)
        return real(*arguments)

    monkeypatch.setattr(lake.catalog, "commit_table", twice)
    assert ids(committed(staged(lake), 1).metadata_location) == [1]
    assert ids(lake.table().metadata_location) == [1]


def test_a_creation_without_an_answer_deletes_nothing(lake: DdlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table may come into being later."""

    def lost(*_: Any) -> Any:
        raise ConnectionError("no answer")

    load_state = staged(lake)
    monkeypatch.setattr(lake.catalog, "commit_table", lost)
    with pytest.raises(CommitStateUnknownError):
        committed(load_state, 1)
    assert any(path.name.startswith("snap-") for path in metadata_files(load_state().table))


def test_a_replaced_table_keeps_its_rows_until_the_new_ones_are_there(lake: DdlCatalog, version: int) -> None:
    """And its history afterwards; also where the replacement upgrades it."""
    committed(staged(lake, version=version), 1)
    old = lake.table().metadata
    load_state = staged(lake, "PARTITIONED BY (p)", "CREATE OR REPLACE", version=max(version, 3))
    assert ids(lake.table().metadata_location) == [1]
    made = committed(load_state, 2)
    new = lake.table().metadata
    assert ids(made.metadata_location) == [2]
    assert (new.table_uuid, len(new.snapshots), made.parent_snapshot_id) == (old.table_uuid, 2, None)
    assert new.snapshot_by_id(old.current_snapshot_id) == old.current_snapshot()
    assert len(new.metadata_log) == 1


def test_rows_that_come_before_a_replacement_are_replaced_too(
    lake: DdlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost race is tried again on the new state."""
    committed(staged(lake), 1)
    load_state = staged(lake, verb="REPLACE")
    before_the_next_commit(monkeypatch, lake.catalog, lambda: committed_to(lake.table(), 5))
    made = committed(load_state, 2)
    assert (made.attempts, ids(made.metadata_location), len(lake.table().metadata.snapshots)) == (2, [2], 3)


def test_a_replacement_whose_columns_would_get_other_ids_fails(
    lake: DdlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are written already."""
    lake.run("CREATE TABLE db.t (other INT)")
    load_state = staged(lake, verb="REPLACE")
    before_the_next_commit(monkeypatch, lake.catalog, lambda: lake.run("ALTER TABLE db.t ADD COLUMN p STRING"))
    with pytest.raises(CommitConflictError, match="were changed while it was being replaced"):
        committed(load_state, 2)
    assert lake.columns() == ["1: other: optional int", "2: p: optional string"]


def test_what_cannot_be_staged_is_refused_before_anything_is_written(lake: DdlCatalog) -> None:
    """The table is there, or is not, or there is no namespace."""
    with pytest.raises(NotFoundError):
        staged(lake, verb="REPLACE")
    committed(staged(lake), 1)
    with pytest.raises(AlreadyExistsError):
        staged(lake)
    lake.run("DROP TABLE db.t")
    lake.catalog.drop_namespace("db")
    with pytest.raises(NotFoundError):
        staged(lake)


def test_the_metadata_file_of_a_lost_race_is_deleted(
    lake: DdlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written before the catalog decides."""
    committed(staged(lake), 1)
    other = load("lake", str(tmp_path / "warehouse"))
    real = lake.catalog._write_metadata
    raced: list[Any] = []

    def race(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        if not raced:
            raced.append(True)
            set_properties(other.load_table(NAME), {"a": "b"})

    monkeypatch.setattr(lake.catalog, "_write_metadata", race)
    made = committed_to(lake.table(), 2)
    metadata = lake.table().metadata
    used = {made.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    assert made.attempts == 2
    assert {f"file://{path}" for path in metadata_files(lake.table()) if path.name.endswith(".json")} == used


def committed_to(table: Table, *numbers: int) -> CommittedSnapshot:
    """A file of these ids, appended."""
    return commit(table, AppendFiles(data_files=(data_file(table, numbers),)))


def before_the_next_commit(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, step: Callable[[], Any]) -> None:
    """Let another writer be faster, once."""
    real = catalog.commit_table

    def commit_table(*arguments: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        step()
        return real(*arguments)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
