"""Statements that run at once: another one commits between this one's writing and its commit."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dml
from dml.engine import publish
from tests.dml.engine.conftest import Kind, in_turn
from tests.lake import Lake

pytestmark = pytest.mark.spark

Meanwhile = Callable[..., None]


@pytest.fixture
def meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Meanwhile]:
    """Runs statements right before the next commit of a row-level statement."""
    original: Callable[..., Any] = publish.commit
    waiting: list[Any] = []

    def commit(*args: object, **kwargs: object) -> object:
        while waiting:
            lake.session.sql(waiting.pop(0))
        return original(*args, **kwargs)

    monkeypatch.setattr(publish, "commit", commit)
    yield lambda *statements: waiting.extend(statements)
    assert not waiting, "the statements were not run"


@pytest.fixture(params=[2, 3])
def merge_on_read(request: pytest.FixtureRequest, lake: Lake) -> Kind:
    """Tables whose deletes are delete files."""
    return Kind(lake=lake, version=request.param, mode="merge-on-read", partitioned=False)


@pytest.fixture(
    params=[
        pytest.param((2, False), id="v2"),
        pytest.param((2, True), id="v2-partitioned", marks=pytest.mark.nightly),
        pytest.param((3, False), id="v3", marks=pytest.mark.nightly),
        pytest.param((3, True), id="v3-partitioned"),
    ]
)
def rewriting(request: pytest.FixtureRequest, lake: Lake) -> Kind:
    """Tables whose UPDATE and MERGE rewrite files, and whose DELETE marks rows."""
    version, partitioned = request.param
    return Kind(lake=lake, version=version, mode="copy-on-write", partitioned=partitioned)


def one_file(kind: Kind, **properties: str) -> str:
    """A table with the ids 0 to 11 in one file, which other tables read too."""
    return kind.copy_of(new_table, **properties)


def new_table(kind: Kind) -> str:
    """Create the table that `one_file` copies."""
    name = kind.create()
    kind.lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0, concat('s', id) FROM range(12)")
    return name


def values(kind: Kind, name: str) -> dict[int, str]:
    return {row[0]: row[2] for row in kind.lake.rows(name)}


def test_statements_on_other_rows_of_one_file_both_succeed(merge_on_read: Kind, meanwhile: Meanwhile) -> None:
    name, lake = one_file(merge_on_read), merge_on_read.lake
    lake.session.sql(f"DELETE FROM {name} WHERE id = 0")
    meanwhile(f"UPDATE {name} SET s = 'theirs' WHERE id = 1", f"DELETE FROM {name} WHERE id = 2")
    lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id = 5")
    meanwhile(f"UPDATE {name} SET s = 'theirs' WHERE id = 6")
    lake.session.sql(f"DELETE FROM {name} WHERE id = 7")
    expected = {id_: f"s{id_}" for id_ in range(12) if id_ not in {0, 2, 7}}
    assert values(merge_on_read, name) == expected | {1: "theirs", 5: "mine", 6: "theirs"}
    if merge_on_read.version == 3:
        summary = lake.table(name).current_snapshot().summary
        assert summary is not None
        assert summary["total-delete-files"] == "1", "one vector for the one file that has deletes"


def test_statements_on_one_row_conflict_and_the_error_names_it(merge_on_read: Kind, meanwhile: Meanwhile) -> None:
    name, lake = one_file(merge_on_read), merge_on_read.lake
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.update.isolation-level' = 'snapshot')")
    meanwhile(f"DELETE FROM {name} WHERE id IN (3, 5)")
    with pytest.raises(dml.CommitConflictError, match=r"\.parquet, rows 5"):
        lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id IN (5, 6)")
    assert values(merge_on_read, name) == {id_: f"s{id_}" for id_ in range(12) if id_ not in {3, 5}}


def test_a_statement_that_reads_its_own_table_again_is_judged_by_files(
    merge_on_read: Kind, meanwhile: Meanwhile
) -> None:
    """What the subquery found may have changed with the other commit."""
    name, lake = one_file(merge_on_read), merge_on_read.lake
    meanwhile(f"DELETE FROM {name} WHERE id = 11")
    with pytest.raises(dml.CommitConflictError, match="delete"):
        lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id < (SELECT max(x.id) - 9 FROM {name} x)")


def test_the_property_switches_it_off(merge_on_read: Kind, meanwhile: Meanwhile) -> None:
    name = one_file(merge_on_read, **{"write.row-level-concurrency.enabled": "false"})
    meanwhile(f"DELETE FROM {name} WHERE id = 1")
    with pytest.raises(dml.CommitConflictError, match="conflicting delete files"):
        merge_on_read.lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id = 5")


def test_a_lost_statement_leaves_no_file(merge_on_read: Kind, meanwhile: Meanwhile) -> None:
    name, lake = new_table(merge_on_read), merge_on_read.lake
    meanwhile(f"DELETE FROM {name} WHERE id = 5")
    with pytest.raises(dml.CommitConflictError):
        lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id = 5")
    _, files = lake.state(name)
    table = lake.table(name)
    entries = {row["file_path"] for row in table.inspect.all_files().to_pylist()}
    data = {f"file://{path}" for path in files if path.parent.name == "data" and not path.name.startswith(".")}
    assert data == entries


MERGE = (
    "MERGE INTO {t} t USING (SELECT * FROM VALUES (CAST(3 AS BIGINT)), (20) AS v(id)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, k, s) VALUES (s.id, 0, 'merged')"
)
INSERT_ONLY = MERGE.replace("WHEN MATCHED THEN UPDATE SET s = 'merged' ", "")


@pytest.mark.parametrize(("kind", "statement"), in_turn([MERGE, INSERT_ONLY]), indirect=["kind"])
def test_a_merge_and_new_rows_of_other_keys(kind: Kind, meanwhile: Meanwhile, statement: str) -> None:
    """By their metrics the new files may hold the keys; row by row they do not."""
    name, lake = one_file(kind), kind.lake
    meanwhile(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0, 'theirs' FROM VALUES (-5L), (19L), (21L) AS v(id)")
    lake.session.sql(statement.replace("{t}", name))
    expected = {id_: f"s{id_}" for id_ in range(12)} | {-5: "theirs", 19: "theirs", 21: "theirs", 20: "merged"}
    assert values(kind, name) == expected | ({3: "merged"} if statement == MERGE else {})


@pytest.mark.parametrize(("kind", "statement"), in_turn([MERGE, INSERT_ONLY], first=1), indirect=["kind"])
def test_a_merge_does_not_insert_a_key_that_another_commit_inserted(
    kind: Kind, meanwhile: Meanwhile, statement: str
) -> None:
    name, lake = one_file(kind), kind.lake
    meanwhile(f"INSERT INTO {name} VALUES (20, 0, 'theirs')")
    with pytest.raises(dml.CommitConflictError, match="conflicting files"):
        lake.session.sql(statement.replace("{t}", name))
    assert values(kind, name) == {id_: f"s{id_}" for id_ in range(12)} | {20: "theirs"}


def test_the_same_merge_twice_at_once_inserts_its_key_once(kind: Kind, meanwhile: Meanwhile) -> None:
    """Iceberg issue 12653: as appends, both would have gone through."""
    name, lake = one_file(kind), kind.lake
    statement = INSERT_ONLY.replace("{t}", name)
    meanwhile(statement)
    with pytest.raises(dml.CommitConflictError, match="conflicting files"):
        lake.session.sql(statement)
    assert values(kind, name) == {id_: f"s{id_}" for id_ in range(12)} | {20: "merged"}
    assert lake.session.sql(statement).rows_inserted == 0


def test_new_rows_that_satisfy_the_condition_are_a_conflict(kind: Kind, meanwhile: Meanwhile) -> None:
    name, lake = one_file(kind), kind.lake
    meanwhile(f"INSERT INTO {name} VALUES (30, 0, 'new')")
    lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE length(s) = 2 AND id % 2 = 1")
    meanwhile(f"INSERT INTO {name} VALUES (32, 0, 'ab')")
    with pytest.raises(dml.CommitConflictError, match="conflicting files"):
        lake.session.sql(f"DELETE FROM {name} WHERE length(s) = 2 AND id % 2 = 0")
    assert values(kind, name)[30] == "new"


@pytest.mark.parametrize(
    "condition", ["ts < now() - INTERVAL 1 DAY", "CAST(ts AS DATE) < current_date", "ts < TIMESTAMP 'now'"]
)
def test_a_condition_that_asks_the_clock_is_not_asked_again(lake: Lake, meanwhile: Meanwhile, condition: str) -> None:
    """Its answer about a new row may be another one by then."""
    name = lake.create("id BIGINT, ts TIMESTAMP")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, TIMESTAMP '2020-01-01 00:00:00')")
    meanwhile(f"INSERT INTO {name} VALUES (2, TIMESTAMP '2999-01-01 00:00:00')")
    with pytest.raises(dml.CommitConflictError, match="conflicting files"):
        lake.session.sql(f"UPDATE {name} SET id = 5 WHERE {condition} AND id < 10")


def test_more_bytes_than_are_to_be_read_are_judged_by_metrics(merge_on_read: Kind, meanwhile: Meanwhile) -> None:
    name = one_file(merge_on_read, **{"write.row-level-concurrency.max-checked-bytes": "10"})
    meanwhile(f"INSERT INTO {name} VALUES (-5, 0, 'theirs'), (30, 0, 'theirs')")
    with pytest.raises(dml.CommitConflictError, match="conflicting files"):
        merge_on_read.lake.session.sql(MERGE.replace("{t}", name))


def test_a_row_left_alone_in_another_file_counts_too(merge_on_read: Kind, meanwhile: Meanwhile) -> None:
    """Had it been gone, the MERGE would have inserted its key."""
    name, lake = one_file(merge_on_read), merge_on_read.lake
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0, 'alone' FROM range(50, 52)")
    meanwhile(f"DELETE FROM {name} WHERE id = 50")
    with pytest.raises(dml.CommitConflictError, match="delet"):
        lake.session.sql(
            f"MERGE INTO {name} t USING (SELECT * FROM VALUES (3L), (50L) AS v(id)) x ON t.id = x.id "
            "WHEN MATCHED AND t.id < 40 THEN UPDATE SET s = 'mine' WHEN NOT MATCHED THEN INSERT (id) VALUES (x.id)"
        )
    assert values(merge_on_read, name)[3] == "s3"


def test_a_metadata_delete_that_another_was_faster_with_changes_nothing(
    merge_on_read: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No snapshot, no row counted twice."""
    name, lake = one_file(merge_on_read), merge_on_read.lake
    original: Callable[..., Any] = publish.commit
    waiting = [f"DELETE FROM {name} WHERE id >= 0"]

    def commit(*args: object, **kwargs: object) -> object:
        while waiting:
            assert lake.session.sql(waiting.pop()).rows_deleted == 12
        return original(*args, **kwargs)

    monkeypatch.setattr(publish, "commit", commit)
    result = lake.session.sql(f"DELETE FROM {name} WHERE id >= 0")
    assert (result.rows_deleted, result.changed) == (0, False)
    assert lake.rows(name) == []


MARKS = {"write.delete.mode": "merge-on-read"}


def test_a_rewritten_file_takes_over_what_others_deleted(rewriting: Kind, meanwhile: Meanwhile) -> None:
    name, lake = one_file(rewriting, **MARKS), rewriting.lake
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (0, 6)")
    meanwhile(f"DELETE FROM {name} WHERE id IN (2, 7)", f"DELETE FROM {name} WHERE id = 11")
    lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id IN (1, 8)")
    expected = {id_: f"s{id_}" for id_ in range(12) if id_ not in {0, 2, 6, 7, 11}} | {1: "mine", 8: "mine"}
    assert values(rewriting, name) == expected
    summary = lake.table(name).current_snapshot().summary
    assert summary is not None
    assert (summary["rowdelta.deletes-reapplied"], summary["added-position-deletes"]) == ("3", "3")
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    lake.session.sql(f"DELETE FROM {name} WHERE id = 1")
    assert values(rewriting, name) == {id_: value for id_, value in expected.items() if id_ != 1}


@pytest.mark.parametrize("version", [2, 3])
def test_a_spliced_file_takes_them_over_too(lake: Lake, meanwhile: Meanwhile, version: int) -> None:
    kind = Kind(lake=lake, version=version, mode="copy-on-write", partitioned=False)
    name = one_file(kind, **MARKS, **{"write.splice.min-file-size-bytes": "0"})
    meanwhile(f"DELETE FROM {name} WHERE id IN (2, 7)", f"DELETE FROM {name} WHERE id = 11")
    assert lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id IN (1, 8)").data_files_spliced == 1
    expected = {id_: f"s{id_}" for id_ in range(12) if id_ not in {2, 7, 11}} | {1: "mine", 8: "mine"}
    assert values(kind, name) == expected
    summary = lake.table(name).current_snapshot().summary
    assert summary is not None
    assert summary["rowdelta.deletes-reapplied"] == "3"
    assert lake.session.verify(name).ok


def test_a_rewritten_file_with_new_rows_in_the_tables_order_takes_them_over_too(
    rewriting: Kind, meanwhile: Meanwhile
) -> None:
    """The order puts the new rows first and turns the old ones around."""
    name, lake = one_file(rewriting, **MARKS), rewriting.lake
    lake.session.sql(f"ALTER TABLE {name} WRITE ORDERED BY id DESC")
    meanwhile(f"DELETE FROM {name} WHERE id IN (2, 11)")
    lake.session.sql(MERGE.replace("{t}", name))
    expected = {id_: f"s{id_}" for id_ in range(12) if id_ not in {2, 11}} | {3: "merged", 20: "merged"}
    assert values(rewriting, name) == expected


def test_a_rewritten_file_without_a_row_that_another_deleted_is_a_conflict(
    rewriting: Kind, meanwhile: Meanwhile
) -> None:
    name, lake = one_file(rewriting, **MARKS), rewriting.lake
    meanwhile(f"DELETE FROM {name} WHERE id IN (1, 2)")
    with pytest.raises(dml.CommitConflictError, match=r"\.parquet, rows 1"):
        lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id = 1")
    assert values(rewriting, name) == {id_: f"s{id_}" for id_ in range(12) if id_ not in {1, 2}}


def test_rows_that_an_update_moves_to_other_partitions_are_found(lake: Lake, meanwhile: Meanwhile) -> None:
    kind = Kind(lake=lake, version=3, mode="copy-on-write", partitioned=True)
    name = one_file(kind, **MARKS)
    meanwhile(f"DELETE FROM {name} WHERE id = 4")
    lake.session.sql(f"UPDATE {name} SET k = 1 WHERE id IN (3, 5)")
    assert {row[0]: row[1] for row in lake.rows(name)} == {row: int(row in {3, 5}) for row in range(12) if row != 4}


def test_the_property_switches_taking_over_off(rewriting: Kind, meanwhile: Meanwhile) -> None:
    name = one_file(rewriting, **MARKS, **{"write.row-level-concurrency.enabled": "false"})
    meanwhile(f"DELETE FROM {name} WHERE id = 2")
    with pytest.raises(dml.CommitConflictError, match="found new delete for replaced data file"):
        rewriting.lake.session.sql(f"UPDATE {name} SET s = 'mine' WHERE id = 1")


def test_many_statements_at_once_on_rows_of_one_file(merge_on_read: Kind) -> None:
    """None fails, and none is lost."""
    name, lake = one_file(merge_on_read), merge_on_read.lake

    def change(row: int) -> None:
        if row % 2:
            lake.session.sql(f"UPDATE {name} SET s = 'u{row}' WHERE id = {row}")
        else:
            lake.session.sql(f"DELETE FROM {name} WHERE id = {row}")

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(change, range(12)))
    assert values(merge_on_read, name) == {row: f"u{row}" for row in range(1, 12, 2)}
