"""Files that others added, asked for rows of a statement: as little as possible is done to answer."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from dml import limits
from dml.engine import row_level_commit
from dml.engine.row_level import build_delta
from dml.engine.row_level_commit import statement_probe
from dml.engine.row_level_plan import plan_statement
from dml.model.manifest import ContentFile
from dml.model.scan_task import ScanContext
from dml.scan.split import TaskGroups
from dml.sqlparse import parse
from tests.dml.engine.conftest import Kind, in_turn

pytestmark = pytest.mark.spark

UPDATE = "UPDATE {t} SET s = 'mine' WHERE id = 20"
MERGE = "MERGE INTO {t} t USING (SELECT * FROM VALUES (3L), (20L) AS v(id)) s ON t.id = s.id WHEN MATCHED THEN DELETE"
IN_DRIVER = "MERGE INTO {t} t USING (VALUES (20L, 5)) AS s(id, k) ON t.id = s.id AND t.k < s.k WHEN MATCHED THEN DELETE"
BY_TEXT = "UPDATE {t} SET s = 'mine' WHERE upper(s) = 'MINE'"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files Spark was given to read, each time that it was."""
    original, numbers = row_level_commit.dataframe, []

    def dataframe(spark: SparkSession, groups: TaskGroups, context: ScanContext) -> DataFrame:
        numbers.append(sum(map(len, groups)))
        return original(spark, groups, context)

    monkeypatch.setattr(row_level_commit, "dataframe", dataframe)
    return numbers


def new_files(kind: Kind, name: str, rows: str, columns: str = "id, k, s") -> list[ContentFile]:
    """The files of rows that another statement inserts now."""
    before = {file.path for file in kind.lake.data_files(name)}
    kind.lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows} AS v({columns})")
    return [file for file in kind.lake.data_files(name) if file.path not in before]


def matches(kind: Kind, name: str, statement: str, files: list[ContentFile]) -> bool:
    """Whether a statement matches a row of the files, by its probe."""
    engine, text = kind.lake.engine, statement.replace("{t}", name)
    planned = plan_statement(engine, parse(text), text)
    try:
        keys = None if planned.source is None else planned.source.keys()
        probe = statement_probe(engine.lazy_session, planned, keys)
        table = kind.lake.table(name)
        assert probe is not None
        return probe(table.metadata, table.current_snapshot().snapshot_id, files)
    finally:
        if planned.source is not None:
            planned.source.release()


@pytest.mark.parametrize(("kind", "statement"), in_turn([UPDATE, MERGE]), indirect=["kind"])
def test_other_keys_are_ruled_out_without_spark(kind: Kind, statement: str, asked: list[int]) -> None:
    """The metrics of the first file let it pass, those of the second do not."""
    name = kind.filled()
    files = new_files(kind, name, "(-5L, 0, 'theirs'), (21L, 0, 'theirs')")
    files += new_files(kind, name, "(50L, 0, 'theirs')")
    assert not matches(kind, name, statement, files)
    assert asked == []


@pytest.mark.parametrize(("kind", "statement"), in_turn([UPDATE, MERGE]), indirect=["kind"])
def test_neither_a_scan_nor_a_probe_fills_in_the_views_of_a_plan(kind: Kind, statement: str) -> None:
    """The rows that the statement changes are those of its own snapshot, also after other files have been asked."""
    name = kind.filled()
    engine, text = kind.lake.engine, statement.replace("{t}", name)
    planned = plan_statement(engine, parse(text), text)
    try:
        planned_frames = set(planned.views.frames)
        rows = build_delta(engine, planned).frame().count()
        files, table = new_files(kind, name, "(20L, 0, 'theirs')"), kind.lake.table(name)
        probe = statement_probe(engine.lazy_session, planned)
        assert probe is not None
        assert probe(table.metadata, table.current_snapshot().snapshot_id, files)
        assert set(planned.views.frames) == planned_frames
        assert planned.target_view not in planned_frames
        assert build_delta(engine, planned).frame().count() == rows
    finally:
        if planned.source is not None:
            planned.source.release()


@pytest.mark.parametrize(("kind", "statement"), in_turn([UPDATE, MERGE], first=1), indirect=["kind"])
def test_a_row_with_such_a_key_is_found_while_it_is_there(kind: Kind, statement: str, asked: list[int]) -> None:
    name, lake = kind.filled(), kind.lake
    others = new_files(kind, name, "(-5L, 0, 'theirs'), (21L, 0, 'theirs')")
    files = new_files(kind, name, "(-5L, 0, 'theirs'), (20L, 0, 'theirs'), (21L, 0, 'theirs')")
    assert matches(kind, name, statement, others + files)
    assert asked == [1]
    lake.session.sql(f"DELETE FROM {name} WHERE id = 20")
    assert not matches(kind, name, statement, others + files)


def test_a_condition_that_only_spark_knows_is_asked_of_spark(any_kind: Kind, asked: list[int]) -> None:
    kind, name = any_kind, any_kind.filled()
    files = new_files(kind, name, "(50L, 0, 'theirs')")
    assert not matches(kind, name, BY_TEXT, files)
    files += new_files(kind, name, "(51L, 0, 'mine')")
    assert matches(kind, name, BY_TEXT, files)
    assert asked == [1, 2]


def test_large_files_are_left_to_spark(any_kind: Kind, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_DRIVER_PROBE_BYTES", 10)
    kind, name = any_kind, any_kind.filled()
    files = new_files(kind, name, "(-5L, 0, 'theirs'), (21L, 0, 'theirs')")
    assert not matches(kind, name, UPDATE, files)
    assert asked == [1]


def test_a_column_that_became_wider_meanwhile_is_judged_by_files_if_its_values_do_not_fit(kind: Kind) -> None:
    """The statement knows the type that the column had."""
    name, session = kind.create("id INT, k INT, s STRING"), kind.lake.session
    session.sql(f"INSERT INTO {name} VALUES (1, 0, 'old')")
    engine, text = kind.lake.engine, UPDATE.replace("{t}", name)
    planned = plan_statement(engine, parse(text), text)
    session.sql(f"ALTER TABLE {name} ALTER COLUMN id TYPE BIGINT")
    session.sql(f"ALTER TABLE {name} ADD COLUMN more INT")

    def answer(rows: str) -> bool:
        files, table = new_files(kind, name, rows, "id, k, s, more"), kind.lake.table(name)
        probe = statement_probe(engine.lazy_session, planned)
        assert probe is not None
        return probe(table.metadata, table.current_snapshot().snapshot_id, files)

    assert not answer("(-5L, 0, 'theirs', 1), (21L, 0, 'theirs', 1)")
    assert answer("(-5L, 0, 'theirs', 1), (20L, 0, 'theirs', 1)")
    assert answer("(-5L, 0, 'theirs', 1), (5000000000L, 0, 'theirs', 1)")


@pytest.mark.parametrize(("kind", "statement"), in_turn([IN_DRIVER]), indirect=["kind"])
def test_spark_reads_a_source_of_the_driver_where_keys_do_not_decide(
    kind: Kind, statement: str, asked: list[int]
) -> None:
    """A row with a key of the source is a match only if the rest of the condition is true for it."""
    name, engine = kind.filled(), kind.lake.engine
    text = statement.replace("{t}", name)
    planned = plan_statement(engine, parse(text), text)
    assert planned.source is not None
    assert planned.source.rows is None
    delta = build_delta(engine, planned)
    probe = statement_probe(engine.lazy_session, planned, delta.source_keys, keys_decide=not delta.source_is_repeatable)
    assert probe is not None
    for row, expected in (("(20L, 0, 'theirs')", True), ("(20L, 9, 'theirs')", False)):
        files, table = new_files(kind, name, row), kind.lake.table(name)
        assert probe(table.metadata, table.current_snapshot().snapshot_id, files) is expected
        assert asked.pop() == 1
