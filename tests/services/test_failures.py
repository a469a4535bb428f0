"""Statements that fail on real catalogs and storages: conflicts and broken tasks leave nothing behind."""

from collections.abc import Callable
from typing import Any

import pytest

import dml
from dml.errors import CommitConflictError, DmlError
from tests.services.lakes import ServerLake

pytestmark = pytest.mark.spark

KINDS = [
    ("sql_local", 3, "merge-on-read"),
    ("sql_s3_fsspec", 2, "merge-on-read"),
    ("rest_s3", 2, "copy-on-write"),
]


def another(lake: ServerLake) -> dml.Session:
    """A second session on the same catalog, with connections of its own."""
    session = dml.connect(catalog=lake.catalog, spark=lake.session.spark, progress=False, **lake.properties)
    session.disable()
    return session


def before_commit(lake: ServerLake, action: Callable[[], Any]) -> None:
    """Run an action once, when the lake's session is about to commit."""
    catalog = lake.session.registry.catalogs[lake.catalog]

    def commit_table(*arguments: Any) -> Any:
        del catalog.commit_table
        action()
        return catalog.commit_table(*arguments)

    setattr(catalog, "commit_table", commit_table)  # noqa: B010 - it is a method


@pytest.mark.parametrize(("place", "version", "mode"), KINDS)
def test_two_sessions_that_change_one_row_conflict(
    place: str, version: int, mode: str, lakes: dict[str, ServerLake]
) -> None:
    """The later one is told so, and leaves no file; the row has the first one's value."""
    lake = lakes[place]
    name = lake.create_keyed_table(version, mode)
    lake.session.sql(f"INSERT INTO {name} SELECT id, 's' FROM range(4)")
    with another(lake) as other:
        before_commit(lake, lambda: other.sql(f"UPDATE {name} SET s = 'first' WHERE id = 1"))
        with pytest.raises(CommitConflictError) as raised:
            lake.session.sql(f"UPDATE {name} SET s = 'second' WHERE id = 1")
    assert raised.value.retryable
    assert lake.rows_by_id(name) == {0: "s", 1: "first", 2: "s", 3: "s"}
    assert lake.leftovers(name) == set()


def test_two_sessions_that_change_different_files_both_land(lakes: dict[str, ServerLake]) -> None:
    """The later one's commit is tried again on what the first one left."""
    lake = lakes["rest_s3"]
    name = lake.create_keyed_table(2, "copy-on-write", **{"write.update.isolation-level": "snapshot"})
    for start in (0, 10):
        lake.session.sql(f"INSERT INTO {name} SELECT id, 's' FROM range({start}, {start + 2})")
    with another(lake) as other:
        before_commit(lake, lambda: other.sql(f"UPDATE {name} SET s = 'first' WHERE id = 0"))
        result = lake.session.sql(f"UPDATE {name} SET s = 'second' WHERE id = 10")
    assert result.rows_updated == 1
    assert lake.rows_by_id(name) == {0: "first", 1: "s", 10: "second", 11: "s"}
    assert lake.leftovers(name) == set()


@pytest.mark.parametrize("place", ["sql_s3_arrow", "sql_s3_fsspec"])
def test_a_statement_that_breaks_in_one_task_leaves_no_file_of_the_others(
    place: str, lakes: dict[str, ServerLake]
) -> None:
    """Tasks that had finished are not heard of: their files are found by listing."""
    lake = lakes[place]
    name = lake.create_keyed_table(2, "copy-on-write")
    for start in (0, 10):
        lake.session.sql(f"INSERT INTO {name} SELECT id, 's' FROM range({start}, {start + 2})")
    before = lake.table(name).metadata_location
    with pytest.raises(DmlError, match="no more"):
        lake.session.sql(f"UPDATE {name} SET s = IF(id = 11, raise_error('no more'), 'new')")
    assert lake.table(name).metadata_location == before
    assert lake.rows_by_id(name) == {0: "s", 1: "s", 10: "s", 11: "s"}
    assert lake.leftovers(name) == set()
