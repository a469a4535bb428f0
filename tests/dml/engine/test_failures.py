"""A statement that fails changes nothing and leaves no file; one whose outcome is unknown leaves all."""

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyspark import TaskContext
from pyspark.errors import PySparkException

from dml.engine import row_level
from dml.engine.writes import run_writer, write_context
from dml.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataError,
    DmlError,
    ErrorKind,
    SqlError,
)
from dml.model.columns import DeltaLayout
from dml.write.writer_spec import WriteJob, WriterSpec
from tests.dml.engine.conftest import Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark

TWICE = "(SELECT * FROM VALUES (CAST(1 AS BIGINT), 'a'), (1, 'b') AS v(id, s)) AS s"
IN_TASKS = {
    "an error raised by a row": "UPDATE {t} SET s = raise_error('no') WHERE id > 2",
    "an overflow of the column": "UPDATE {t} SET k = CAST(id AS BIGINT) * 3000000000 WHERE id IN (0, 1, 5)",
    "an overflow in the condition": "DELETE FROM {t} WHERE id IN (0, 6) AND CAST(id * 3000000000 AS INT) = 0",
    "a division by zero": "DELETE FROM {t} WHERE id / (id - 6) > 1",
    "two source rows for one target row": f"MERGE INTO {{t}} t USING {TWICE} ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT (id, s, must) VALUES (s.id, s.s, 0)",
    "a subquery of two rows": "UPDATE {t} SET s = (SELECT x.s FROM {t} x WHERE x.k = 1)",
    "a null in a required column": "UPDATE {t} SET must = nullif(id, 6) WHERE id > 3",
    "an inserted null in a required column": "INSERT INTO {t} SELECT id, 1, 's', nullif(id, 20) FROM range(15, 22)",
    "an insert that overflows": "INSERT INTO {t} SELECT id, id * 1000000000, 's', 1 FROM range(15, 22)",
}


def filled(kind: Kind) -> str:
    """A table with a required column and ids 0 to 11, whose files other tables read too."""
    return kind.copy_of(new_table)


def new_table(kind: Kind) -> str:
    """Create the table that `filled` copies."""
    name = kind.create("id BIGINT, k INT, s STRING, must BIGINT NOT NULL")
    kind.lake.session.sql(f"INSERT INTO {name} SELECT id, CAST(id DIV 4 AS INT), concat('s', id), id FROM range(12)")
    return name


@pytest.mark.proves("A1", "A3")
def test_what_fails_in_a_task_leaves_nothing(kind: Kind) -> None:
    """Other tasks had written files by then. Each statement runs in one version: in one mode, and by night in both."""
    name, lake = filled(kind), kind.lake
    before, rows = lake.state(name), lake.rows(name)
    for what, statement in list(IN_TASKS.items())[kind.version - 2 :: 2]:
        with pytest.raises(DmlError) as caught:
            lake.session.sql(statement.replace("{t}", name))
        assert lake.state(name) == before, (what, caught.value)
    assert lake.rows(name) == rows


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(1.5, id="finishes its file"),
        pytest.param(8.0, id="is killed by Spark", marks=pytest.mark.nightly),
    ],
)
def test_a_worker_that_goes_on_after_the_failure_leaves_nothing(lake: Lake, seconds: float) -> None:
    """Spark does not wait for the workers of the other tasks; the statement does, and deletes what they wrote."""
    name = lake.create("id BIGINT")
    table = lake.table(name)
    context = write_context(table, str(uuid.uuid4()))
    spec = WriterSpec(job=WriteJob.ROWS, context=context, layout=DeltaLayout(value_ids=(1,)))
    folder = lake.folder(name) / "data"
    folder.mkdir(exist_ok=True)
    started = folder / "started"

    def stubborn(batches):
        task = TaskContext.get().partitionId()
        rows = sum(batch.num_rows for batch in batches)
        if task == 0:
            while not started.exists():
                time.sleep(0.05)
            raise ValueError("no")
        (folder / f"00001-{rows}-{context.query_id}-00001.parquet").write_bytes(b"PAR1")
        started.touch()
        time.sleep(seconds)
        (folder / f"00001-{rows}-{context.query_id}-00002.parquet").write_bytes(b"PAR1")
        yield from ()

    with pytest.raises(PySparkException, match="no"):
        run_writer(lake.session.spark.range(0, 10, 1, 2), stubborn, table, spec)
    assert list(folder.iterdir()) == [started]
    time.sleep(seconds)
    assert list(folder.iterdir()) == [started]


def test_a_cardinality_violation_says_what_matched_twice(any_kind: Kind) -> None:
    kind, name = any_kind, filled(any_kind)
    with pytest.raises(DataError, match=r"t\.id = s\.id") as caught:
        kind.lake.session.sql(IN_TASKS["two source rows for one target row"].replace("{t}", name))
    assert caught.value.kind is ErrorKind.CARDINALITY_VIOLATION


CHANGES = {
    "delete": "DELETE FROM {t} WHERE id % 2 = 1",
    "update": "UPDATE {t} SET s = 'x', k = 9 WHERE id % 2 = 1",
    "merge": "MERGE INTO {t} t USING (SELECT id * 2 AS id FROM range(9)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET s = 'm' WHEN NOT MATCHED THEN INSERT (id, must) VALUES (s.id, 1)",
    "insert": "INSERT INTO {t} VALUES (100, 1, 's', 1)",
    "overwrite": "INSERT OVERWRITE {t} VALUES (100, 1, 's', 1)",
    "whole files": "DELETE FROM {t}",
}


@pytest.mark.proves("A4")
def test_a_commit_that_the_catalog_refuses_leaves_nothing(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """All retries used up: data files, delete files, manifests and lists are gone again."""
    name, lake = filled(kind), kind.lake
    lake.session.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.retry.num-retries' = '1', 'commit.retry.min-wait-ms' = '1')"
    )
    before, rows = lake.state(name), lake.rows(name)

    def refuse(*_: object, **__: object) -> None:
        raise CommitFailedException("somebody was faster")

    for what, statement in CHANGES.items():
        with monkeypatch.context() as patched:
            patched.setattr(lake.session.registry.catalogs["lake"], "commit_table", refuse)
            with pytest.raises(CommitConflictError):
                lake.session.sql(statement.replace("{t}", name))
        assert lake.state(name) == before, what
    assert lake.rows(name) == rows


def test_a_lost_race_writes_no_data_file_again(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry is about metadata: what the tasks wrote is committed by the attempt that gets through."""
    name, lake = filled(kind), kind.lake
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.retry.min-wait-ms' = '1')")
    catalog = lake.session.registry.catalogs["lake"]
    runs: list[Any] = []
    lost: list[Any] = []
    commit_table = catalog.commit_table
    write_delta: Callable[..., Any] = row_level.write_delta

    def beaten(*args: object) -> object:
        if len(lost) < 2:
            lost.append(args)
            raise CommitFailedException("somebody was faster")
        return commit_table(*args)

    monkeypatch.setattr(catalog, "commit_table", beaten)

    def counted(*args: Any) -> Any:
        runs.append(args)
        return write_delta(*args)

    monkeypatch.setattr(row_level, "write_delta", counted)
    _, before = lake.state(name)
    result = lake.session.sql(f"UPDATE {name} SET s = 'once' WHERE id IN (1, 9)")
    _, after = lake.state(name)
    written = {path for path in after - before if path.suffix in {".parquet", ".puffin"}}
    vectors_share_a_file = kind.version == 3 and not kind.copy_on_write
    assert (len(lost), len(runs)) == (2, 1)
    live = {path for path in written if path.name in str(lake.table(name).inspect.all_files()["file_path"].to_pylist())}
    assert written == live
    assert vectors_share_a_file or len(written) == result.data_files_added + result.delete_files_added


@pytest.mark.proves("A8")
def test_a_commit_of_unknown_outcome_leaves_every_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be live, and here it is: its rows are there afterwards."""
    name = lake.create("id BIGINT, s STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    catalog = lake.session.registry.catalogs["lake"]
    original = catalog.commit_table

    def lose_the_answer(*args: object, **kwargs: object) -> None:
        original(*args, **kwargs)
        raise ConnectionError("connection reset by peer")

    with monkeypatch.context() as patched:
        patched.setattr(catalog, "commit_table", lose_the_answer)
        with suppress(CommitStateUnknownError):
            lake.session.sql(f"UPDATE {name} SET s = 'u' WHERE id = 1")
    assert lake.rows(name) == [(1, "u"), (2, "b")]


def test_a_wrong_statement_is_refused_before_anything_is_written(any_kind: Kind) -> None:
    """Names, types, missing values, clauses: found when the statement is planned."""
    name, lake = filled(any_kind), any_kind.lake
    before = lake.state(name)
    for statement in (
        "DELETE FROM {t} WHERE nope = 1",
        "DELETE FROM {t} WHERE rand() > 0.5",
        "DELETE FROM {t} WHERE max(id) = 1",
        "UPDATE {t} SET nope = 1",
        "UPDATE {t} SET k = 's'",
        "UPDATE {t} SET s = 'a', s = 'b'",
        "INSERT INTO {t} VALUES (1, 2)",
        "INSERT INTO {t} (id) VALUES (1)",
        f"MERGE INTO {{t}} t USING {TWICE} ON t.id = s.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET s = ''",
        f"MERGE INTO {{t}} t USING {TWICE} ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)",
    ):
        with pytest.raises(SqlError):
            lake.session.sql(statement.replace("{t}", name))
        assert lake.state(name) == before, statement


def test_a_query_that_fails_leaves_no_new_table_and_the_replaced_one_as_it_was(lake: Lake) -> None:
    """CREATE TABLE AS SELECT is one commit: nobody sees the table without its rows."""
    name, sql = lake.new_name(), lake.session.sql
    failing = "SELECT id, assert_true(id < 2) IS NULL AS fine FROM range(3)"
    with pytest.raises(DmlError):
        sql(f"CREATE TABLE {name} AS {failing}")
    catalog, identifier = lake.session.registry.catalogs["lake"], tuple(name.split("."))
    assert not catalog.table_exists(identifier)
    assert sql(f"CREATE TABLE {name} AS SELECT id FROM range(3)").rows_inserted == 3
    before = lake.state(name)
    with pytest.raises(DmlError):
        sql(f"CREATE OR REPLACE TABLE {name} AS {failing}")
    assert lake.state(name) == before
    sql(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT 7 AS other")
    assert lake.state(name) == before
    assert sql(f"REPLACE TABLE {name} PARTITIONED BY (id) AS SELECT id + 5 AS id FROM {name}").rows_inserted == 3
    assert lake.rows(name) == [(5,), (6,), (7,)]
    assert len(lake.table(name).metadata.metadata_log) == 1
    assert sql(f"CREATE OR REPLACE TABLE {name} AS SELECT 'x' AS s WHERE false").snapshot_id is None
    assert (lake.rows(name), lake.session.table(name).columns) == ([], ["s"])


def test_a_new_table_whose_query_fails_leaves_no_file(lake: Lake) -> None:
    """Its folder may be there, and has no file in it."""
    name = lake.new_name()
    with pytest.raises(DmlError):
        lake.session.sql(f"CREATE TABLE {name} AS SELECT id, assert_true(id < 2) IS NULL AS fine FROM range(3)")
    lake.session.sql(f"CREATE TABLE {name} (id INT)")
    files = [path for path in lake.folder(name).rglob("*") if path.is_file()]
    assert [path.name[:5] for path in files] == ["00000"]


def test_where_a_server_cannot_stage_tables_a_failing_query_drops_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created first there."""
    catalog, name, sql = lake.session.registry.catalogs["lake"], lake.new_name(), lake.session.sql

    def refused(*_: object) -> object:
        raise BadRequestError("stage-create is not supported")

    monkeypatch.setattr(catalog, "create_table_transaction", refused)
    assert sql(f"CREATE TABLE {name} AS SELECT id FROM range(3)").rows_inserted == 3
    folder = lake.folder(name)
    sql(f"DROP TABLE {name} PURGE")
    with pytest.raises(DmlError):
        sql(f"CREATE TABLE {name} AS SELECT id, assert_true(id < 2) IS NULL AS fine FROM range(3)")
    assert not catalog.table_exists(tuple(name.split(".")))
    assert [path for path in folder.rglob("*") if path.is_file()] == []
