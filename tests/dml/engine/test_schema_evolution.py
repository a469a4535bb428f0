"""MERGE WITH SCHEMA EVOLUTION: the new schema and the rows that have it come in one commit, or neither does."""

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, AssertLastAssignedFieldId

from dml.commit import publish
from dml.errors import AnalysisError, CommitConflictError, DataError
from tests.dml.engine.conftest import Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark

NEW_ROW = "SELECT 1L AS id, 5 AS k, 'n' AS s, 7 AS extra"


def merge(
    name: str, source: str, clauses: str = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
) -> str:
    return f"MERGE WITH SCHEMA EVOLUTION INTO {name} t USING ({source}) s ON t.id = s.id {clauses}"


def columns(lake: Lake, name: str) -> list[str]:
    return [f"{field.field_id} {field.name} {field.field_type}" for field in lake.table(name).schema().fields]


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[tuple]]:
    """Runs something right before the next commit; gives the requirements and updates of each request."""
    real = publish.commit_table
    requests: list[Any] = []
    waiting: list[Any] = []

    def commit_table(catalog: object, table: object, requirements: tuple, updates: tuple) -> object:
        requests.append((requirements, updates))
        if waiting:
            waiting.pop()()
        return real(catalog, table, requirements, updates)

    monkeypatch.setattr(publish, "commit_table", commit_table)

    def register(run: Callable[[], object]) -> list[tuple]:
        waiting.append(run)
        return requests

    return register


def test_the_schema_and_the_rows_are_one_commit(balanced_kind: Kind, before_commit: Callable) -> None:
    """Written with the ids of the new schema, which the catalog is asked to see unchanged."""
    lake, name = balanced_kind.lake, balanced_kind.filled()
    requests = before_commit(lambda: None)
    requests.clear()
    log = len(lake.table(name).metadata.metadata_log)
    lake.session.sql(merge(name, NEW_ROW))
    metadata = lake.table(name).metadata
    assert len(metadata.metadata_log) == log + 1
    ((requirements, updates),) = requests
    assert {AssertCurrentSchemaId, AssertLastAssignedFieldId} <= {type(one) for one in requirements}
    assert sum(isinstance(update, AddSchemaUpdate) for update in updates) == 1
    assert metadata.current_snapshot().schema_id == metadata.current_schema_id == 1
    assert lake.rows(f"SELECT * FROM {name} WHERE id < 3") == [(0, 0, "s0", None), (1, 5, "n", 7), (2, 0, "s2", None)]
    by_pyiceberg = lake.table(name).scan(row_filter="id < 3").to_arrow().sort_by("id")
    assert by_pyiceberg.column("extra").to_pylist() == [None, 7, None]


def test_a_type_is_widened_with_the_rows_that_need_it(lake: Lake) -> None:
    """In a table of the oldest format, too; the file of before keeps its type."""
    name = lake.create("id INT, v FLOAT, d DECIMAL(4, 2)", **{"format-version": "1"})
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 1.5, 2.25), (2, 2.5, 3.25)")
    lake.session.sql(merge(name, "SELECT 5000000000 AS id, 1e300D AS v, CAST(123456.75 AS DECIMAL(8, 2)) AS d"))
    assert columns(lake, name) == ["1 id long", "2 v double", "3 d decimal(8, 2)"]
    found = lake.table(name).scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["v"], str(row["d"])) for row in found] == [
        (1, 1.5, "2.25"),
        (2, 2.5, "3.25"),
        (5000000000, 1e300, "123456.75"),
    ]


def test_a_merge_that_fails_while_it_runs_leaves_the_schema(lake: Lake) -> None:
    name = lake.create("id BIGINT, k INT, s STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 1, 'a')")
    before = lake.state(name)
    with pytest.raises(DataError, match="more than one row"):
        lake.session.sql(merge(name, f"{NEW_ROW} UNION ALL {NEW_ROW}"))
    assert lake.state(name) == before


def test_a_merge_that_changes_no_row_changes_the_schema_all_the_same(lake: Lake) -> None:
    """As in the reference; there is no snapshot of it."""
    name = lake.create("id BIGINT, k INT, s STRING")
    result = lake.session.sql(merge(name, f"{NEW_ROW} LIMIT 0"))
    assert result.snapshot_id is None
    assert columns(lake, name)[-1] == "4 extra int"
    assert lake.table(name).current_snapshot() is None


def test_explain_changes_nothing(lake: Lake) -> None:
    name = lake.create("id BIGINT, k INT, s STRING")
    before = lake.state(name)
    lake.session.sql(f"EXPLAIN {merge(name, NEW_ROW)}").collect()
    assert lake.state(name) == before


OTHERS = {
    "the same column": ("ALTER TABLE {} ADD COLUMNS extra INT", True),
    "a snapshot alone": ("INSERT INTO {} VALUES (9, 9, 'z')", True),
    "another column": ("ALTER TABLE {} ADD COLUMNS other INT", False),
    "the same column of another type": ("ALTER TABLE {} ADD COLUMNS extra STRING", False),
    "a column renamed": ("ALTER TABLE {} RENAME COLUMN s TO r", False),
    "a column dropped": ("ALTER TABLE {} DROP COLUMN s", False),
    "a column widened": ("ALTER TABLE {} ALTER COLUMN k TYPE BIGINT", False),
}


BY_NIGHT = {"the same column of another type", "a column renamed", "a column dropped"}


@pytest.mark.parametrize(
    "other", [pytest.param(other, marks=pytest.mark.nightly) if other in BY_NIGHT else other for other in OTHERS]
)
def test_another_commit_that_changes_the_schema_meanwhile(lake: Lake, before_commit: Callable, other: str) -> None:
    """Rows are never published under ids that mean something else by now, and no file is left of what was not."""
    name = lake.create("id BIGINT, k INT, s STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 1, 'a')")
    text, fits = OTHERS[other]
    states: list[tuple] = []

    def change() -> None:
        lake.session.sql(text.format(name))
        states.append(lake.state(name))

    requests = before_commit(change)
    statement = merge(name, "SELECT 2L AS id, 5 AS k, 'n' AS s, 7 AS extra")
    if fits:
        lake.session.sql(statement)
        assert columns(lake, name)[-1] == "4 extra int"
        assert (2, 5, "n", 7) in lake.rows(name)
        assert len(lake.rows(name)) == (3 if "INSERT" in text else 2)
        assert len({type(update).__name__ for update in requests[-1][1]} & {"AddSchemaUpdate"}) == ("INSERT" in text)
    else:
        with pytest.raises(CommitConflictError, match="were changed by another commit"):
            lake.session.sql(statement)
        metadata, files = lake.state(name)
        assert metadata == states[0][0]
        assert {path for path in files - states[0][1] if path.suffix in {".parquet", ".avro"}} == set()
        assert [row[0] for row in lake.rows(name)] == [1]


def test_a_column_of_a_reserved_name_is_refused(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    before = lake.state(name)
    with pytest.raises(AnalysisError, match="'_file' is reserved for metadata"):
        lake.session.sql(merge(name, "SELECT 1L AS id, 'x' AS _file"))
    assert lake.state(name) == before
