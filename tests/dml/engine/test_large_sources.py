"""MERGE by tasks that receive the source in a file, with many new rows and a source that cannot be read again."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from dml import limits
from dml.engine import merge_source, publish, row_level, sent_source
from dml.errors import CommitConflictError, DataError, ErrorKind
from dml.plan.row_delta_plan import ThroughSpark
from dml.rows.evaluate import UncomputableValueError
from dml.write.sent_rows import MappedBatch, StreamedBatch
from tests.dml.engine.conftest import Kind, in_turn
from tests.dml.engine.test_merge_in_tasks import (
    BROADCAST,
    CLAUSES,
    PLACES,
    ROW,
    counts,
    filled,
    joined_by_spark,
    merge,
)
from tests.lake import Lake

pytestmark = pytest.mark.spark

UPSERT = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
RANDOM = "SELECT int(50 * rand()) AS id, 'x' AS v FROM range(1)"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every source is large, and each new row is; whether tasks got the source, of each statement."""
    monkeypatch.setattr(merge_source, "literal_row_limit", lambda _: None)
    monkeypatch.setattr(limits, "MAX_INLINE_SOURCE_BYTES", -1)
    monkeypatch.setattr(limits, "MAX_CACHED_SOURCE_BYTES", -1)
    monkeypatch.setattr(limits, "MAX_DRIVER_INSERT_BYTES", 1)
    monkeypatch.setattr(limits, "MIN_INSERTS_PER_TASK", 3)
    original, found = row_level.send_source, []

    def noted(*args: Any) -> Any:
        source = original(*args)
        found.append(not isinstance(source, ThroughSpark) and not source.is_repeatable)
        return source

    monkeypatch.setattr(row_level, "send_source", noted)
    return found


@pytest.mark.parametrize(("kind", "place"), in_turn(PLACES), indirect=["kind"])
def test_tasks_make_what_sparks_join_makes(kind: Kind, place: int, large: list[bool]) -> None:
    lake, name = kind.lake, filled(kind)
    result = lake.session.sql(merge(lake, name, CLAUSES[place]))
    assert large == [True]
    expected, rows = joined_by_spark(kind, CLAUSES[place])
    assert counts(result) == counts(expected)
    assert any(counts(result))
    assert repr(lake.rows(name)) == rows
    assert lake.session.verify(name, every_file=True).ok


@pytest.mark.parametrize("partitioned", [True, False])
def test_many_new_rows_are_spread_over_tasks(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, large: list[bool], partitioned: bool
) -> None:
    """Each partition comes to one task, or, without partitions, a part of the rows to each."""
    monkeypatch.setattr(limits, "MIN_TASK_BYTES", 1)
    monkeypatch.setattr(limits, "MAX_DRIVER_JOB_BYTES", -1)
    kind = Kind(lake=lake, version=3, mode="merge-on-read", partitioned=partitioned)
    name = kind.create("id BIGINT, k INT, d DOUBLE, s STRING, at TIMESTAMP")
    lake.session.sql(f"INSERT INTO {name} {ROW} FROM range(1)")
    lake.session.sql(f"INSERT INTO {name} {ROW} FROM range(1, 2)")
    before = {file.path for file in lake.data_files(name)}
    # A task leaves few rows to the driver, which would write them into one file.
    monkeypatch.setattr("dml.limits.MAX_TASK_HELD_BYTES", 0)
    result = lake.session.sql(merge(lake, name, UPSERT, f"{ROW} FROM range(2, 14)"))
    assert (result.rows_inserted, result.rows_matched) == (12, 0)
    new = [file for file in lake.data_files(name) if file.path not in before]
    assert sorted(file.partition for file in new) == ([(0,), (1,), (2,)] if partitioned else [(), ()])
    assert [file.record_count for file in new] == ([4, 4, 4] if partitioned else [6, 6])
    assert lake.rows(f"SELECT count(*), count(DISTINCT id), min(id), max(id) FROM {name}") == [(14, 14, 0, 13)]


def test_an_empty_table_and_a_source_without_rows(lake: Lake, large: list[bool]) -> None:
    name = lake.create("id BIGINT, k INT, d DOUBLE, s STRING, at TIMESTAMP")
    assert lake.session.sql(merge(lake, name, UPSERT, f"{ROW} FROM range(20)")).rows_inserted == 20
    state = lake.state(name)
    assert lake.session.sql(merge(lake, name, UPSERT, f"{ROW} FROM range(5, 5)")).snapshot_id is None
    inserts = "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    assert lake.session.sql(merge(lake, name, inserts, f"{ROW} FROM range(20)")).rows_inserted == 0
    assert lake.state(name) == state
    assert lake.session.sql(merge(lake, name, inserts, f"{ROW} FROM range(15, 30)")).rows_inserted == 10
    assert lake.rows(f"SELECT count(*), count(DISTINCT id) FROM {name}") == [(30, 30)]


def test_a_key_that_comes_twice_is_a_matter_of_sparks_join(lake: Lake, large: list[bool]) -> None:
    name = lake.create("id BIGINT, v STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    before = lake.state(name)
    twice = f"MERGE INTO {name} t USING (VALUES (1, 'x'), (1, 'y') AS s(id, v)) s ON t.id = s.id WHEN MATCHED"
    with pytest.raises(DataError) as caught:
        lake.session.sql(f"{twice} THEN UPDATE SET v = s.v")
    assert caught.value.kind is ErrorKind.CARDINALITY_VIOLATION
    assert lake.state(name) == before
    assert lake.session.sql(f"{twice} THEN DELETE").rows_deleted == 1
    assert large == [False, False]


def test_a_number_too_large_for_its_type_is_an_error_of_sparks(lake: Lake, large: list[bool]) -> None:
    """The tasks' files are gone, and Spark says what is wrong with which statement."""
    name = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 2147483640 + int(id) FROM range(8)")
    before = lake.state(name)
    with pytest.raises(DataError) as caught:
        lake.session.sql(
            f"MERGE INTO {name} t USING (SELECT id FROM range(4, 20)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET k = t.k + 5 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )
    assert caught.value.kind is ErrorKind.OVERFLOW
    assert lake.state(name) == before
    assert large == [True]


def test_a_source_that_is_another_each_time_is_one_for_all_of_a_statement(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, large: list[bool]
) -> None:
    """Every key is in the table, so nothing is inserted: also where tasks fail, and Spark has to read it again."""
    name = lake.create("id INT, v STRING")
    lake.session.sql(f"INSERT INTO {name} SELECT int(id), 'a' FROM range(50)")
    clauses = "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    for _ in range(2):
        assert lake.session.sql(merge(lake, name, clauses, RANDOM)).rows_updated == 1
    overflow = UncomputableValueError("too large")
    monkeypatch.setattr(row_level, "write_merge_by_tasks", mock.Mock(side_effect=overflow))
    for _ in range(3):
        result = lake.session.sql(merge(lake, name, clauses, RANDOM))
        assert (result.rows_updated, result.rows_inserted) == (1, 0)
    assert large == [True] * 5


def scratch(spark: SparkSession) -> list[Path]:
    """Our folders where Spark keeps what it needs for a while."""
    return list(Path(spark.sparkContext._temp_dir).parent.rglob("rowdelta-*"))


def test_the_files_of_a_source_are_gone_afterwards(lake: Lake, spark: SparkSession, large: list[bool]) -> None:
    """Whatever becomes of the statement; EXPLAIN leaves none either. Nor is anything of it kept by Spark."""
    name = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 2147483640 + int(id) FROM range(8)")
    statement = f"MERGE INTO {name} t USING (SELECT id FROM range(4, 20)) s ON t.id = s.id WHEN MATCHED"
    seen: list[list[Path]] = []
    original = row_level.write_merge_by_tasks

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.append([path for folder in scratch(spark) for path in folder.iterdir()])
        return original(*args, **kwargs)

    with mock.patch.object(row_level, "write_merge_by_tasks", noted):
        assert lake.session.sql(f"{statement} THEN UPDATE SET k = 0").rows_updated == 4
        with pytest.raises(DataError):
            lake.session.sql(f"{statement} THEN UPDATE SET k = t.k + 2147483647 + 5")
    assert [[path.name for path in paths] for paths in seen] == [["source.arrow"]] * 2
    assert BROADCAST in lake.session.sql(f"EXPLAIN {statement} THEN DELETE").collect()[0][0]
    assert large == [True] * 3
    assert scratch(spark) == []


def test_a_cache_of_somebody_else_stays(lake: Lake, spark: SparkSession, large: list[bool]) -> None:
    """Somebody caches what the source reads while tasks run: it was not ours to let go of."""
    name = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 0 FROM range(8)")
    source = "SELECT id FROM range(4, 20)"
    cached = spark.sql(f"SELECT * FROM ({source})")
    original = row_level.write_merge_by_tasks

    def caching(*args: Any, **kwargs: Any) -> Any:
        cached.cache().count()
        return original(*args, **kwargs)

    with mock.patch.object(row_level, "write_merge_by_tasks", caching):
        lake.session.sql(f"MERGE INTO {name} t USING ({source}) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert large == [True]
    assert cached.storageLevel.useMemory
    cached.unpersist()


def test_a_disk_that_is_full(lake: Lake, monkeypatch: pytest.MonkeyPatch, large: list[bool]) -> None:
    """What was written of the source is gone, and Spark joins."""
    name = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 0 FROM range(8)")
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(sent_source, "scratch_folder", full)
    statement = f"MERGE INTO {name} t USING (SELECT id FROM range(4, 20)) s ON t.id = s.id WHEN MATCHED"
    assert lake.session.sql(f"{statement} THEN UPDATE SET k = 1").rows_updated == 4
    assert full.called
    assert large == [False]
    assert lake.rows(f"SELECT sum(k) FROM {name}") == [(4,)]


def test_a_source_that_is_larger_than_spark_takes_it_for(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, large: list[bool]
) -> None:
    """Tasks stop writing, and Spark joins. Each row is short; Spark takes a text that is computed for 20 bytes."""
    name = lake.create("id BIGINT, v STRING", **{"write.merge.max-sent-source-bytes": "3000000"})
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    mapped = mock.Mock(side_effect=sent_source.part_columns)
    monkeypatch.setattr(sent_source, "part_columns", mapped)
    source = "SELECT id, repeat('x', int(900 + id % 9)) AS v FROM range(0, 30000, 1, 3)"
    statement = f"MERGE INTO {name} t USING ({source}) s ON t.id = s.id"
    result = lake.session.sql(f"{statement} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert (result.rows_updated, result.rows_inserted) == (1, 29_999)
    assert large == [False]
    assert not mapped.called
    assert scratch(spark) == []


@pytest.mark.parametrize(
    ("kind", "ours", "read_here"), in_turn([(19, True), (19, False), (20, False), (20, True)]), indirect=["kind"]
)
def test_rows_of_others_conflict_by_their_keys(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, large: list[bool], ours: int, read_here: bool
) -> None:
    """Another commit inserts the key 20 meanwhile: other keys can be merged, and this one cannot.

    Its files are read by the driver, or, if they are large, by tasks.
    """
    if not read_here:
        monkeypatch.setattr(limits, "MAX_DRIVER_PROBE_BYTES", 0)
    lake, name = kind.lake, kind.filled()
    original: Callable[..., Any] = publish.commit
    waiting = [f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0, 'theirs' FROM VALUES (-5L), (20L) AS v(id)"]

    def commit(*args: object, **kwargs: object) -> object:
        while waiting:
            lake.session.sql(waiting.pop(0))
        return original(*args, **kwargs)

    monkeypatch.setattr(publish, "commit", commit)
    source = f"SELECT id, 'mine' AS s FROM VALUES (3L), ({ours}L) AS v(id)"
    statement = merge(
        lake,
        name,
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, s.s)",
        source,
    )
    found = {row[0]: row[2] for row in lake.rows(name)} | {-5: "theirs", 20: "theirs"}
    if ours == 20:
        with pytest.raises(CommitConflictError, match="conflicting files"):
            lake.session.sql(statement)
    else:
        lake.session.sql(statement)
        found |= {3: "mine", 19: "mine"}
    assert large[0]
    assert {row[0]: row[2] for row in lake.rows(name)} == found


def test_what_a_source_may_have(lake: Lake, large: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's property limits the bytes; above a small size Spark makes the ranges."""
    columns, ranges = "id BIGINT, k INT, d DOUBLE, s STRING, at TIMESTAMP", {"write.merge.distribution-mode": "range"}
    for properties in ({"write.merge.max-sent-source-bytes": "0"}, ranges):
        name = lake.create(columns, **properties)
        assert lake.session.sql(merge(lake, name, UPSERT, f"{ROW} FROM range(9)")).rows_inserted == 9
        assert len(lake.data_files(name)) == 1 or properties is not ranges
    monkeypatch.setattr(limits, "MAX_RANGE_SOURCE_BYTES", 10)
    assert lake.session.sql(merge(lake, name, UPSERT, f"{ROW} FROM range(9, 18)")).rows_inserted == 9
    assert large == [False, True, False]


def size_of_source(lake: Lake, name: str, source: str) -> int:
    """Return the bytes of a source in the form that tasks receive."""
    sizes: list[int] = []
    original = sent_source.sent_batch

    def noted(frame: Any, batch: Any, lazy_session: Any) -> Any:
        sizes.append(batch.nbytes)
        return original(frame, batch, lazy_session)

    with mock.patch.object(sent_source, "sent_batch", noted):
        lake.session.sql(f"EXPLAIN {merge(lake, name, UPSERT, source)}")
    return sizes[0]


LIMITS = (
    "MAX_INLINE_SOURCE_BYTES",
    "MAX_CACHED_SOURCE_BYTES",
    "limit",
    "MAX_DRIVER_INSERT_BYTES",
    "MIN_INSERTS_PER_TASK",
)


@pytest.mark.parametrize(
    ("kind", "limit", "more"),
    in_turn(product(LIMITS, (0, -1)), lambda case: case[1] == 0 or case[0] in {"MAX_INLINE_SOURCE_BYTES", "limit"}),
    indirect=["kind"],
)
def test_sources_just_below_and_above_each_limit(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, limit: str, more: int
) -> None:
    """Tasks produce the same rows as Spark's join, with a limit that the source just meets, and one just below it."""
    lake, name = kind.lake, filled(kind)
    source = f"{ROW} FROM range(17, 60)"
    size: int = lake.once((size_of_source, kind.key, source), lambda: size_of_source(lake, name, source))
    expected, rows = joined_by_spark(kind, UPSERT, source)
    sent: list[Any] = []
    original = row_level.send_source

    def noted(*args: Any) -> Any:
        sent.append(original(*args))
        return sent[-1]

    with monkeypatch.context() as patched:
        patched.setattr(merge_source, "literal_row_limit", lambda _: None)
        patched.setattr(row_level, "send_source", noted)
        match limit:
            case "MAX_INLINE_SOURCE_BYTES":
                patched.setattr(limits, limit, size + more)
            case "MAX_CACHED_SOURCE_BYTES":
                patched.setattr(sent_source, "estimated_bytes", lambda _: 1_000)
                patched.setattr(limits, limit, 1_000 + more)
            case "limit":
                patched.setattr(row_level, "most_sent", lambda *_: 4 * size if more == 0 else size - 1)
            case "MAX_DRIVER_INSERT_BYTES":
                patched.setattr(limits, limit, expected.rows_inserted * (size / 43) + more)
            case _:
                patched.setattr(limits, limit, 20 + more)
        result = lake.session.sql(merge(lake, name, UPSERT, source))
    assert isinstance(sent[0], ThroughSpark) is (limit == "limit" and more == -1)
    if limit == "MAX_INLINE_SOURCE_BYTES":
        assert isinstance(sent[0].rows, StreamedBatch if more == 0 else MappedBatch)
    if limit == "MAX_CACHED_SOURCE_BYTES":
        assert sent[0].is_repeatable is (more == 0)
    assert counts(result) == counts(expected)
    assert repr(lake.rows(name)) == rows
    assert lake.session.verify(name, every_file=True).ok


def many_keys(lake: Lake) -> str:
    """A table of 90,000 keys, numbers and texts."""
    name = lake.create("id BIGINT, s STRING", **{"write.merge.mode": "merge-on-read", "format-version": "2"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('key-', id) FROM range(0, 90000, 1, 2)")
    return name


@pytest.mark.parametrize("rows", [pytest.param(99_999, marks=pytest.mark.nightly), 100_001])
@pytest.mark.parametrize(
    "on", ["t.id = s.id", pytest.param("t.s = s.s", marks=pytest.mark.nightly), "t.id = s.id AND t.s = s.s"]
)
def test_the_number_of_rows_makes_no_difference(lake: Lake, rows: int, on: str) -> None:
    """Above the former limit of 100,000 rows, for keys of numbers and texts; below it by night."""
    name = lake.copy_of(many_keys, lambda: many_keys(lake))
    source = f"SELECT id + 40000 AS id, concat('key-', id + 40000) AS s FROM range({rows})"
    statement = merge(lake, name, f"ON {on} {UPSERT.removeprefix('ON t.id = s.id ')}", source)
    assert BROADCAST in lake.session.sql(f"EXPLAIN {statement}").collect()[0][0]
    result = lake.session.sql(statement)
    assert (result.rows_updated, result.rows_inserted) == (50_000, rows - 50_000)
    assert lake.rows(f"SELECT count(*), count(DISTINCT id), max(id) FROM {name}") == [
        (40_000 + rows, 40_000 + rows, 39_999 + rows)
    ]


def test_a_second_job_that_inserts_and_fails_leaves_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, large: list[bool]
) -> None:
    """In merge-on-read the rows that match are written when the job for new rows starts."""
    name = lake.create("id BIGINT, k INT NOT NULL", **{"write.merge.mode": "merge-on-read", "format-version": "2"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, 0 FROM range(0, 20, 1, 2)")
    monkeypatch.setattr(limits, "MIN_TASK_BYTES", 1)
    monkeypatch.setattr(limits, "MAX_DRIVER_JOB_BYTES", -1)
    monkeypatch.setattr("dml.limits.MAX_TASK_HELD_BYTES", 0)
    before = lake.state(name)
    source = "SELECT id, IF(id = 28, NULL, 1) AS k FROM range(10, 30)"
    statement = merge(
        lake, name, "ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = 1 WHEN NOT MATCHED THEN INSERT *", source
    )
    with pytest.raises(DataError) as caught:
        lake.session.sql(statement)
    assert caught.value.kind is ErrorKind.NOT_NULL_VIOLATION
    assert lake.state(name) == before
