"""Idempotency keys: a statement is applied once, whoever runs it again, and the second run tells what the first did."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import col, lit

import dml
from dml.catalog import load
from dml.catalog.registry import CatalogRegistry
from dml.commit import IdempotencyKey, publish
from dml.engine import publish as engine_publish
from dml.manifests.read import entries_of, manifests_of
from dml.result import Result
from dml.session import Session
from dml.sqlparse import canonical_text
from tests.dml.engine.conftest import Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark

Twin = Callable[[str], list[Result]]

KINDS = ((2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read"))
COUNTS = [
    *("command", "mode", "rows_matched", "rows_deleted", "rows_updated", "rows_inserted", "snapshot_id", "branch"),
    *("data_files_added", "data_files_removed", "data_files_rewritten", "delete_files_added", "delete_files_removed"),
    *("bytes_added", "bytes_removed", "summary"),
]

MERGE = (
    "MERGE INTO {t} t USING (SELECT * FROM VALUES (CAST(2 AS BIGINT)), (20) AS v(id)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, k, s) VALUES (s.id, 0, 'merged')"
)
STATEMENTS = {
    "delete": "DELETE FROM {t} WHERE id IN (1, 5)",
    "metadata delete": "DELETE FROM {t} WHERE k = 1",
    "update": "UPDATE {t} SET s = concat(s, '!') WHERE id < 6",
    "merge": MERGE,
    "insert": "INSERT INTO {t} SELECT id, 0, 'new' FROM range(30, 33)",
    "overwrite": "INSERT OVERWRITE {t} SELECT id, 0, 'all' FROM range(3)",
    "truncate": "TRUNCATE TABLE {t}",
    "nothing to delete": "DELETE FROM {t} WHERE id = 500",
    "never": "UPDATE {t} SET s = 'x' WHERE false",
    "nothing to insert": "INSERT INTO {t} SELECT id, 0, 'new' FROM range(0)",
}


def counts(result: Result) -> dict[str, object]:
    """All that a second run has to return of the first."""
    return {name: getattr(result, name) for name in COUNTS}


def once(lake: Lake, text: str, key: str) -> Result:
    result = lake.session.sql(text, idempotency_key=key)
    assert isinstance(result, Result)
    assert result.idempotency_key == key
    return result


def leftover_files(lake: Lake, name: str) -> set[str]:
    """Files of the table's folders that no snapshot needs."""
    table = lake.table(name)
    used: set[str] = set()
    for snapshot in table.metadata.snapshots:
        manifests = manifests_of(table.io, snapshot)
        used |= {snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)}
        used |= {entry.data_file.path for manifest in manifests for entry in entries_of(manifest, table.io)}
    _, files = lake.state(name)
    return {f"file://{path}" for path in files if path.suffix not in {".json", ".crc"}} - used


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_without_a_snapshot_gets_an_empty_one_as_record(lake: Lake, version: int) -> None:
    name = lake.create("id BIGINT", **{"format-version": str(version)})
    first = once(lake, f"DELETE FROM {name} WHERE id = 1", "k")
    assert (first.mode, first.rows_deleted, first.summary["operation"]) == ("none", 0, "append")
    assert "nothing changed" in repr(first)
    lake.session.sql(f"INSERT INTO {name} VALUES (1), (2)")
    assert once(lake, f"DELETE FROM {name} WHERE id = 1", "k").replayed
    assert lake.rows(name) == [(1,), (2,)]
    assert lake.table(name).scan().to_arrow()["id"].to_pylist() == [1, 2]


def test_python_calls_take_a_key_and_mean_the_same_as_their_text(lake: Lake) -> None:
    name = lake.create("id BIGINT, s STRING")
    session, spark = lake.session, lake.session.spark
    session.sql(f"INSERT INTO {name} SELECT id, 'a' FROM range(10)")
    assert session.update(name, {"s": lit("b")}, col("id") > 7, idempotency_key="u").rows_updated == 2
    assert session.update(name, {"s": lit("b")}, col("id") > 7, idempotency_key="u").replayed
    assert session.delete(name, "id = 1", idempotency_key="d").rows_deleted == 1
    assert once(lake, f"DELETE FROM {name} WHERE id = 1", "d").replayed

    def merge(ids: list[int], kind: str = "BIGINT") -> Result:
        source = spark.createDataFrame([(number,) for number in ids], f"id {kind}")
        builder = session.merge_into(source, f"{name} t", "t.id = source.id").whenMatched().delete()
        return builder.merge(idempotency_key="m")

    first = merge([2, 3])
    again = merge([4, 5])  # a DataFrame counts by its columns: what a job reads a second time may differ
    assert (first.rows_deleted, first.replayed) == (2, False)
    assert again.replayed
    assert counts(again) == counts(first)
    with pytest.raises(dml.AnalysisError, match="another statement"):
        merge([2, 3], "INT")
    assert [row[0] for row in lake.rows(name)] == [0, 4, 5, 6, 7, 8, 9]


def test_a_key_is_for_one_statement(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    first = lake.session.sql(f"INSERT INTO {name} VALUES (:n)", {"n": 1}, idempotency_key="k")
    assert lake.session.sql(f"INSERT INTO {name} VALUES (:n)", {"n": 1}, idempotency_key="k").replayed
    before = lake.state(name)
    with pytest.raises(dml.AnalysisError, match="belongs to another statement") as caught:
        lake.session.sql(f"INSERT INTO {name} VALUES (:n)", {"n": 2}, idempotency_key="k")
    assert caught.value.kind is dml.ErrorKind.IDEMPOTENCY_KEY
    assert caught.value.context == {"idempotency_key": "k", "snapshot_id": first.snapshot_id}
    with pytest.raises(dml.AnalysisError, match="belongs to another statement"):
        once(lake, f"DELETE FROM {name}", "k")
    assert lake.state(name) == before


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT * FROM {t}",
        "CREATE TABLE {t}_2 AS SELECT 1 AS id",
        "CREATE TABLE {t}_2 (id INT)",
        "DROP TABLE {t}",
        "EXPLAIN DELETE FROM {t}",
        "CALL system.remove_orphan_files(table => '{t}')",
        "SET x = 1",
    ],
)
def test_other_statements_take_no_key(lake: Lake, text: str) -> None:
    name = lake.create("id BIGINT")
    before = lake.state(name)
    with pytest.raises(dml.NotSupportedError, match="DELETE, UPDATE, MERGE, INSERT or TRUNCATE"):
        lake.session.sql(text.replace("{t}", name), idempotency_key="k")
    assert lake.state(name) == before


def test_a_key_given_to_spark_is_not_ignored(lake: Lake) -> None:
    """PySpark takes it for a value of the text, and would run the statement without it."""
    name, spark = lake.create("id BIGINT"), lake.session.spark
    with pytest.raises(dml.NotSupportedError, match="takes no idempotency key"):
        spark.sql(f"INSERT INTO lake.{name} VALUES (1)", idempotency_key="k")
    spark.sql(f"INSERT INTO lake.{name} VALUES ({{idempotency_key}})", idempotency_key=2)
    assert lake.rows(name) == [(2,)]


def test_two_statements_are_not_one(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    with pytest.raises(dml.SqlError, match="several statements in one text"):
        lake.session.sql(f"DELETE FROM {name}; DELETE FROM {name}", idempotency_key="k")


@pytest.mark.parametrize("key", ["", " ", "a b", "a\n", "k\x00", "ключ", "e\u0301", "\ud800", "x" * 256, 7, b"k"])
def test_what_is_no_key_is_refused(lake: Lake, key: object) -> None:
    name = lake.create("id BIGINT")
    before = lake.state(name)
    with pytest.raises(dml.AnalysisError, match="1 to 255 visible ASCII characters") as caught:
        lake.session.sql(f"INSERT INTO {name} VALUES (1)", idempotency_key=key)
    assert caught.value.kind is dml.ErrorKind.INVALID_VALUE
    assert len(str(caught.value)) < 300
    assert lake.state(name) == before


@pytest.mark.parametrize("key", ["x" * 255, "a';DROP--", '"[red]{}$%', "<b>&amp;"])
def test_strange_keys_are_keys(lake: Lake, key: str) -> None:
    name = lake.create("id BIGINT")
    assert not once(lake, f"INSERT INTO {name} VALUES (1)", key).replayed
    second = once(lake, f"INSERT INTO {name} VALUES (1)", key)
    assert second.replayed
    assert "<b>" not in second._repr_html_()
    assert lake.rows(name) == [(1,)]


def test_nobody_can_write_a_record_by_hand(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    with pytest.raises(dml.AnalysisError, match="is reserved"):
        lake.session.sql(f"INSERT INTO {name} WITH ('snapshot-property.rowdelta.idempotency-key' = 'k') VALUES (1)")


def test_a_key_is_judged_on_the_branch_that_is_written_to(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    lake.session.sql(f"INSERT INTO {name} VALUES (1), (2), (3)")
    table = lake.table(name)
    with table.manage_snapshots() as change:
        change.create_branch(table.current_snapshot().snapshot_id, "audit")
    on_main = once(lake, f"DELETE FROM {name} WHERE id = 1", "k")
    branch = f"{name}.branch_audit"
    on_branch = once(lake, f"DELETE FROM {branch} WHERE id = 2", "k")
    assert not on_branch.replayed
    assert (on_main.branch, on_branch.branch) == ("main", "audit")
    again = once(lake, f"DELETE FROM {branch} WHERE id = 2", "k")
    assert (again.replayed, again.snapshot_id, again.branch) == (True, on_branch.snapshot_id, "audit")
    assert lake.rows(name) == [(2,), (3,)]
    assert lake.rows(branch) == [(1,), (3,)]
    option = f"INSERT INTO {name} WITH ('branch' = 'audit') VALUES (4)"
    assert [once(lake, option, "i").replayed, once(lake, option, "i").replayed] == [False, True]
    assert lake.rows(branch) == [(1,), (3,), (4,)]


def test_after_a_rollback_the_statement_runs_again(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    lake.session.sql(f"INSERT INTO {name} VALUES (1), (2)")
    table = lake.table(name)
    start = table.current_snapshot().snapshot_id
    first = once(lake, f"DELETE FROM {name} WHERE id = 1", "k")
    with lake.table(name).manage_snapshots() as change:
        change.rollback_to_snapshot(start)
    again = once(lake, f"DELETE FROM {name} WHERE id = 1", "k")
    assert not again.replayed
    assert again.snapshot_id != first.snapshot_id
    assert lake.rows(name) == [(2,)]


def test_a_staged_commit_takes_no_key_and_an_audit_branch_does(lake: Lake) -> None:
    name, spark = lake.create("id BIGINT", **{"write.wap.enabled": "true"}), lake.session.spark
    lake.session.sql(f"INSERT INTO {name} VALUES (1), (2)")
    text = f"DELETE FROM {name} WHERE id = 1"
    spark.conf.set("spark.wap.id", "w1")
    try:
        with pytest.raises(dml.NotSupportedError, match=r"cannot be staged.*\n.*\n.*\n.*spark\.wap\.id"):
            once(lake, text, "k")
    finally:
        spark.conf.unset("spark.wap.id")
    spark.conf.set("spark.wap.branch", "nightly")
    try:
        assert [once(lake, text, "k").replayed, once(lake, text, "k").replayed] == [False, True]
    finally:
        spark.conf.unset("spark.wap.branch")
    assert lake.rows(f"{name}.branch_nightly") == [(2,)]
    assert lake.rows(name) == [(1,), (2,)]


def test_a_second_run_needs_nothing_that_the_first_did(lake: Lake) -> None:
    """Its columns may be gone, its source too: the table's history alone decides."""
    name, source = lake.create("id BIGINT, s STRING"), lake.create("id BIGINT")
    lake.session.sql(f"INSERT INTO {source} VALUES (1)")
    text = f"INSERT INTO {name} SELECT id, 'x' FROM {source}"
    once(lake, text, "k")
    lake.session.sql(f"DROP TABLE {source}")
    lake.session.sql(f"ALTER TABLE {name} DROP COLUMN s")
    assert once(lake, text, "k").replayed


def test_a_merge_that_evolves_the_schema_does_so_once(lake: Lake) -> None:
    name = lake.create("id BIGINT")
    text = (
        f"MERGE WITH SCHEMA EVOLUTION INTO {name} t USING (SELECT 1L AS id, 'x' AS s) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    once(lake, text, "k")
    lake.session.sql(f"ALTER TABLE {name} DROP COLUMN s")
    assert once(lake, text, "k").replayed
    assert [field.name for field in lake.table(name).schema().fields] == ["id"]


@pytest.fixture
def twin(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twin]:
    """Lets another session of the same catalog run a statement to its end right before the next commit.

    It gives a list that will hold the result.
    """
    name, catalog = next(iter(lake.session.registry.catalogs.items()))
    other = Session(
        lake.session.spark,
        CatalogRegistry(catalogs={name: load(name, **catalog.properties)}, current_catalog=name),
        progress=False,
    )
    real = publish.commit_table
    waiting: list[Any] = []

    def commit_table(*arguments: object) -> object:
        if waiting:
            waiting.pop()()
        return real(*arguments)

    monkeypatch.setattr(publish, "commit_table", commit_table)

    def run(text: str) -> list[Result]:
        results: list[Result] = []
        waiting.append(lambda: results.append(other.sql(text, idempotency_key="k")))
        return results

    yield run
    assert not waiting, "nothing was committed"
    other.close()


@pytest.mark.parametrize(("place", "statement"), list(enumerate(STATEMENTS)))
def test_a_second_run_changes_nothing_and_returns_the_first_result(
    lake: Lake, twin: Twin, place: int, statement: str
) -> None:
    """One that runs at the same time has written its files, and deletes them; a later one writes none."""
    version, mode = KINDS[place % len(KINDS)]
    kind = Kind(lake=lake, version=version, mode=mode, partitioned=place % 2 == 1)
    name = kind.filled()
    text = STATEMENTS[statement].replace("{t}", name)
    snapshots = len(lake.table(name).metadata.snapshots)
    first = twin(text)
    second = once(lake, text, "k")
    assert second.replayed
    assert not first[0].replayed
    assert first[0].changed, "a statement that changes nothing leaves its record too"
    assert counts(second) == counts(first[0])
    assert len(lake.table(name).metadata.snapshots) == snapshots + 1
    assert leftover_files(lake, name) == set()

    lake.session.sql(f"INSERT INTO {name} VALUES (500, 1, 'later'), (1, 1, 'later')")
    before = lake.state(name)
    third = once(lake, f"  {text} -- once more\n;", "k")
    assert counts(third) == counts(second)
    assert "first run" in repr(third)
    assert "first run" not in repr(first[0])
    assert lake.state(name) == before


def test_of_two_statements_at_once_with_one_key_one_is_refused(lake: Lake, twin: Twin) -> None:
    name = Kind(lake=lake, version=3, mode="merge-on-read", partitioned=False).filled()
    twin(f"DELETE FROM {name} WHERE id = 11")
    with pytest.raises(dml.AnalysisError, match="belongs to another statement"):
        once(lake, f"UPDATE {name} SET s = 'x' WHERE id = 0", "k")
    assert [row[2] for row in lake.rows(name) if row[0] == 0] == ["s0"]
    assert leftover_files(lake, name) == set()


def test_threads_and_sessions_that_run_one_statement_apply_it_once(lake: Lake) -> None:
    name = lake.create("id BIGINT, n BIGINT", **{"commit.retry.min-wait-ms": "5", "commit.retry.num-retries": "10"})
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0 FROM range(10)")
    catalog_name, catalog = next(iter(lake.session.registry.catalogs.items()))
    catalogs = [load(catalog_name, **catalog.properties) for _ in range(4)]
    sessions = [
        Session(
            lake.session.spark,
            CatalogRegistry(catalogs={catalog_name: loaded}, current_catalog=catalog_name),
            progress=False,
        )
        for loaded in catalogs
    ]
    text = f"UPDATE {name} SET n = n + 1"
    with ThreadPoolExecutor(len(sessions)) as pool:
        results = list(pool.map(lambda session: session.sql(text, idempotency_key="k"), sessions))
    assert sorted(result.replayed for result in results) == [False, True, True, True]
    assert len({result.snapshot_id for result in results}) == 1
    assert {result.rows_updated for result in results} == {10}
    assert lake.rows(name) == [(number, 1) for number in range(10)]
    assert leftover_files(lake, name) == set()
    for loaded in catalogs:
        loaded.close()


@pytest.mark.nightly
def test_of_two_processes_at_once_one_applies_the_statement(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process runs it from the command line, after this one has written its files and before it commits.

    With every change this is seen with sessions of one process, and with the processes of tests/soak.
    """
    name = lake.create("id BIGINT, n BIGINT")
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0 FROM range(10)")
    text = f"UPDATE {name} SET n = n + 1 WHERE id < 3"
    warehouse = lake.session.registry.catalogs["lake"].properties["warehouse"]
    arguments = ("--warehouse", warehouse, "sql", text, "--idempotency-key", "k", "--format", "json")
    real = publish.commit_table
    theirs: list[Any] = []

    def commit_table(*given: object) -> object:
        if not theirs:
            command = [sys.executable, "-P", "-m", "dml", *arguments]
            ended = subprocess.run(command, capture_output=True, check=True, cwd="/", timeout=180)
            theirs.append(json.loads(ended.stdout))
        return real(*given)

    monkeypatch.setattr(publish, "commit_table", commit_table)
    mine = once(lake, text, "k")
    assert (mine.replayed, theirs[0]["replayed"]) == (True, False)
    told = mine.as_dict()
    assert {key: told[key] for key in COUNTS} == {key: theirs[0][key] for key in COUNTS}
    assert lake.rows(name) == [(number, int(number < 3)) for number in range(10)]
    assert leftover_files(lake, name) == set()


def test_a_run_whose_answer_was_lost_can_be_run_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = lake.create("id BIGINT, n BIGINT", **{"commit.status-check.num-retries": "0"})
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 0)")
    catalog = lake.session.registry.catalogs["lake"]
    real_commit, real_load = publish.commit_table, catalog.load_table

    def lost(*arguments: object) -> object:
        real_commit(*arguments)
        monkeypatch.setattr(catalog, "load_table", refused)
        raise TimeoutError("no answer")

    def refused(*_: object) -> object:
        raise ConnectionError("the catalog is away")

    monkeypatch.setattr(publish, "commit_table", lost)
    text = f"UPDATE {name} SET n = n + 1"
    with pytest.raises(dml.CommitStateUnknownError) as caught:
        once(lake, text, "k")
    monkeypatch.setattr(publish, "commit_table", real_commit)
    monkeypatch.setattr(catalog, "load_table", real_load)
    again = once(lake, text, "k")
    assert (again.replayed, again.snapshot_id) == (True, caught.value.context["snapshot_id"])
    assert lake.rows(name) == [(1, 1)]


def test_a_run_that_failed_runs_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = lake.create("id BIGINT, n BIGINT")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 0)")

    def conflict(*_: object, **__: object) -> None:
        raise dml.CommitConflictError("another writer was first")

    with monkeypatch.context() as patched:
        patched.setattr(engine_publish, "commit", conflict)
        with pytest.raises(dml.CommitConflictError):
            once(lake, f"UPDATE {name} SET n = n + 1", "k")
    assert not once(lake, f"UPDATE {name} SET n = n + 1", "k").replayed
    assert lake.rows(name) == [(1, 1)]


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ({}, "does not record its command"),
        ({"rowdelta.mode": "append", "rowdelta.command": "INSERT", "rowdelta.rows-inserted": "many"}, "not a number"),
    ],
)
def test_a_record_that_others_forged_is_not_taken_for_a_result(
    lake: Lake, summary: dict[str, str], message: str
) -> None:
    name = lake.create("id BIGINT")
    text = f"INSERT INTO {name} VALUES (1)"
    key = IdempotencyKey.of("k", canonical_text(text))
    lake.table(name).append(pa.table({"id": [7]}), snapshot_properties={**key.summary(), **summary})
    with pytest.raises(dml.CorruptFileError, match=message):
        once(lake, text, "k")
    assert lake.rows(name) == [(7,)]
