"""DELETE and UPDATE whose rows Spark does not see: they change what Spark would have changed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dml.engine import row_level
from dml.errors import CorruptFileError, DataError, ErrorKind
from dml.model.write_task import WriteContext
from dml.plan.row_delta_plan import ThroughSpark
from dml.rows.evaluate import UncomputableValueError
from dml.scan.table_scan import TableScan
from tests.dml.engine.conftest import Kind, in_turn
from tests.lake import Lake

pytestmark = pytest.mark.spark

PAST_SPARK = "do not go through Spark"
COLUMNS = "id BIGINT, k INT, d DOUBLE, s STRING, later INT"
ROWS = """
    SELECT id, int(id % 3), CASE id % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN NULL ELSE id / 3 END,
      nullif(concat('n', id % 7), 'n3')
    FROM range({start}, {end})"""


def explained(lake: Lake, statement: str) -> bool:
    """Whether the rows of a statement do not go through Spark."""
    return PAST_SPARK in lake.session.sql(f"EXPLAIN {statement}").collect()[0][0]


def filled(kind: Kind) -> str:
    """Three files, one of which has a column that the others lack; some rows are deleted.

    Other tables read the same files.
    """
    return kind.copy_of(new_table)


def new_table(kind: Kind) -> str:
    """Create the table that `filled` copies."""
    sql, name = kind.lake.session.sql, kind.create("id BIGINT, k INT, d DOUBLE, n STRING")
    for start in (0, 40):
        sql(f"INSERT INTO {name} {ROWS.format(start=start, end=start + 40)}")
    sql(f"DELETE FROM {name} WHERE substring(n, 2, 1) = '6' AND id < 20")
    sql(f"ALTER TABLE {name} RENAME COLUMN n TO s")
    sql(f"ALTER TABLE {name} ADD COLUMN later INT")
    sql(f"INSERT INTO {name} SELECT *, id FROM ({ROWS.format(start=80, end=100)})")
    return name


CONDITIONS = (
    "id % 7 = 2",
    "NOT (id % 7 = 2 OR d > 20)",
    "later + 1 > id % 50 OR s LIKE 'n1%' AND k * 2 = id % 5",
    "d * 1.5 >= id / 2",
    "id IN (1, 50, 90, 1000)",
)
VALUES = {"s": "'new'", "d": "d * 2 + 1", "later": "k", "id": "id - 1000"}


@pytest.mark.parametrize(("kind", "condition"), in_turn(CONDITIONS), indirect=["kind"])
def test_updated_rows_are_those_that_spark_computes(kind: Kind, condition: str) -> None:
    lake, name = kind.lake, filled(kind)
    new = ", ".join(
        f"CASE WHEN {condition} THEN {VALUES[column]} ELSE {column} END" if column in VALUES else column
        for column in (part.split()[0] for part in COLUMNS.split(", "))
    )
    expected = lake.rows(f"SELECT {new} FROM {name}")
    (count,) = lake.rows(f"SELECT count(*) FROM {name} WHERE {condition}")[0]
    statement = f"UPDATE {name} SET {', '.join(f'{key} = {value}' for key, value in VALUES.items())} WHERE {condition}"
    assert explained(lake, statement)
    result = lake.session.sql(statement)
    assert result.rows_updated == count > 0
    assert repr(lake.rows(name)) == repr(expected)
    assert lake.session.verify(name, every_file=True).ok


def test_deleted_rows_are_those_that_spark_finds(kind: Kind) -> None:
    lake, name = kind.lake, filled(kind)
    for condition in CONDITIONS:
        expected = lake.rows(f"SELECT * FROM {name} WHERE NOT coalesce({condition}, false)")
        statement = f"DELETE FROM {name} WHERE {condition}"
        assert explained(lake, statement)
        lake.session.sql(statement)
        assert repr(lake.rows(name)) == repr(expected)
    assert lake.session.verify(name, every_file=True).ok


STORED = {
    "i": ["later", "7", "later - 1", "NULL"],
    "l": ["later", "id * 2 - 5", "2147483648", "i"],
    "d": ["id", "f", "1.5", "-0.0", "9007199254740993", "later * 2L"],
    "n": ["later", "-12.5", "0", "n", "NULL"],
    "f": ["id", "later", "f", "NULL"],
}


@contextmanager
def through_spark() -> Iterator[None]:
    """Let Spark compute all changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_level, "select_computation", lambda *_: ThroughSpark(reason="a twin is compared"))
        yield


@pytest.mark.parametrize("merges", [False, True], ids=["UPDATE", "MERGE"])
def test_assigned_values_are_converted_as_spark_stores_them(lake: Lake, merges: bool) -> None:
    columns = "id BIGINT, later INT, i INT, l BIGINT, d DOUBLE, n DECIMAL(12, 2), f FLOAT"
    rows = """
        SELECT id, nullif(int(id) % 9 - 4, 3), int(id % 5), -id, id / 7, id / 10, float(id) / 7
        FROM range(-20, 40) UNION ALL SELECT 9007199254740993 - 2 * id, 2147483647, 0, 0, 0, 0, 0 FROM range(2)"""
    modes = {f"write.{command}.mode": "merge-on-read" for command in ("update", "merge")}
    twins = [lake.create(columns, **modes) for _ in range(2)]
    for name in twins:
        lake.session.sql(f"INSERT INTO {name} {rows}")
    for number in range(max(map(len, STORED.values()))):
        assigned = ", ".join(f"{column} = {texts[number % len(texts)]}" for column, texts in STORED.items())
        if merges:
            statement = f"""
                MERGE INTO {{name}} t USING (SELECT id * 2 AS key FROM range(-12, 12)) ON id = key
                WHEN MATCHED THEN UPDATE SET {assigned}"""
        else:
            statement = f"UPDATE {{name}} SET {assigned} WHERE id % 7 <> 2"
        assert explained(lake, statement.format(name=twins[0])), assigned
        result = lake.session.sql(statement.format(name=twins[0]))
        with through_spark():
            expected = lake.session.sql(statement.format(name=twins[1]))
        assert result.rows_updated == expected.rows_updated > 0
        assert repr(lake.rows(twins[0])) == repr(lake.rows(twins[1])), assigned


def test_every_row_and_no_row(kind: Kind) -> None:
    lake, name = kind.lake, filled(kind)
    before = lake.state(name)
    assert lake.session.sql(f"UPDATE {name} SET s = 'x' WHERE id % 2 = 2").rows_updated == 0
    assert lake.state(name) == before
    number = len(lake.rows(name))
    assert lake.session.sql(f"UPDATE {name} SET s = 'x'").rows_updated == number
    assert lake.rows(f"SELECT DISTINCT s FROM {name}") == [("x",)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {name} SET s = initcap(s) WHERE id % 7 = 2",
        "UPDATE {name} SET later = id WHERE id % 7 = 2",
        "UPDATE {name} SET s = (SELECT max(s) FROM {name}) WHERE id % 7 = 2",
        "UPDATE {name} SET s = 'x' WHERE id % 7 = (SELECT 2)",
        "DELETE FROM {name} WHERE id % 7 = 2 AND instr(s, 'n') = 1",
        "DELETE FROM {name} WHERE id % k = 0",
    ],
)
def test_what_only_spark_computes_goes_through_it(lake: Lake, statement: str) -> None:
    name = filled(Kind(lake=lake, version=2, mode="copy-on-write", partitioned=False))
    lake.session.sql(f"UPDATE {name} SET k = 5 WHERE k = 0")
    condition = statement.format(name=name).partition(" WHERE ")[2]
    (count,) = lake.rows(f"SELECT count(*) FROM {name} WHERE {condition}")[0]
    assert not explained(lake, statement.format(name=name))
    result = lake.session.sql(statement.format(name=name))
    assert result.rows_matched == count > 0


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and the errors that were being handled when it was raised."""
    while error is not None:
        yield error
        error = error.__context__


def test_numbers_that_do_not_fit_are_sparks_to_judge(lake: Lake, spark: SparkSession) -> None:
    name = lake.create("id BIGINT, k INT", **{"write.update.mode": "merge-on-read", "format-version": "2"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, 2147483640 + int(id) FROM range(8)")
    before = lake.state(name)
    for statement in (
        f"UPDATE {name} SET k = k + 1 WHERE id % 2 = 1",
        f"DELETE FROM {name} WHERE k + 1 > 0",
    ):
        assert explained(lake, statement)
        with pytest.raises(DataError) as caught:
            lake.session.sql(statement)
        assert caught.value.kind is ErrorKind.OVERFLOW
        assert caught.value.position == statement.index("k + 1")
        assert not any(isinstance(error, UncomputableValueError) for error in chain(caught.value)), "the first attempt"
        assert lake.state(name) == before
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        lake.session.sql(f"UPDATE {name} SET k = k + 1 WHERE id % 2 = 1")
        assert lake.rows(f"SELECT k FROM {name} WHERE id = 7") == [(-(2**31),)]
        assert lake.session.sql(f"DELETE FROM {name} WHERE k - 1 > 0 AND id > 5").rows_deleted == 2
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert lake.session.verify(name, every_file=True).ok


def test_a_statement_that_falls_back_to_spark_commits_under_the_id_of_its_files(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt writes under a new id, and everything after the write uses that id."""
    contexts: list[WriteContext] = []
    for name in ("with_copied_metrics", "UncommittedFiles", "row_level_action"):
        monkeypatch.setattr(row_level, name, noting_contexts(getattr(row_level, name), contexts))
    name = lake.create("id BIGINT, k INT", **{"write.update.mode": "merge-on-read", "format-version": "2"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, 2147483640 + int(id) FROM range(8)")
    before = {file.path for file in lake.data_files(name)}
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        lake.session.sql(f"UPDATE {name} SET k = k + 1 WHERE id % 2 = 1")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    written = [file.path for file in lake.data_files(name) if file.path not in before]
    assert written
    assert len(contexts) == 3
    assert [path for path in written for context in contexts if context.query_id not in path] == []


def noting_contexts(function: Callable[..., Any], contexts: list[WriteContext]) -> Callable[..., Any]:
    """Wrap a function to record the context of the write that it is called with."""

    def noting(*args: Any, **named: Any) -> Any:
        contexts.extend(value for value in args if isinstance(value, WriteContext))
        return function(*args, **named)

    return noting


def counting(function: Callable[..., object], counted: list[str]) -> Callable[..., object]:
    """The function, with recorded calls."""

    def noting(*args: object, **named: object) -> object:
        counted.append(function.__name__)
        return function(*args, **named)

    return noting


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_the_files_of_each_task_are_chosen_once(lake: Lake, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = filled(Kind(lake=lake, version=2, mode=mode, partitioned=False))
    counted: list[str] = []
    for owner in (row_level, TableScan):
        monkeypatch.setattr(owner, "whole_file_groups", counting(owner.whole_file_groups, counted))
    for statement in (
        f"UPDATE {name} SET d = 0 WHERE id % 7 = 2",
        f"DELETE FROM {name} WHERE id % 7 = 3",
        f"MERGE INTO {name} USING (SELECT 11 AS id) s ON {name}.id = s.id WHEN MATCHED THEN UPDATE SET s = 'one'",
        f"UPDATE {name} SET s = initcap(s) WHERE id % 7 = 4",
        f"MERGE INTO {name} t USING (SELECT 12 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = initcap(t.s)",
    ):
        counted.clear()
        assert lake.session.sql(statement).rows_matched
        assert len(counted) == 1, statement


def test_a_required_column_and_a_broken_file(lake: Lake) -> None:
    name = lake.create("id BIGINT, k INT NOT NULL, other INT")
    lake.session.sql(f"INSERT INTO {name} SELECT id, int(id), nullif(int(id), 5) FROM range(10)")
    before = lake.state(name)
    for value in ("NULL", "other"):
        with pytest.raises(DataError) as caught:
            lake.session.sql(f"UPDATE {name} SET k = {value} WHERE id % 5 = 0")
        assert caught.value.kind is ErrorKind.NOT_NULL_VIOLATION
    assert lake.state(name) == before
    Path(lake.data_files(name)[0].path.removeprefix("file://")).write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(CorruptFileError):
        lake.session.sql(f"UPDATE {name} SET other = 1 WHERE id % 5 = 0")
    assert lake.table(name).metadata_location == before[0]
