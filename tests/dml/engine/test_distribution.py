"""How the rows of a statement come to tasks and files: what `write.distribution-mode` and the write order do."""

import itertools
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from dml.engine import insert
from dml.model.manifest import ContentFile
from tests.dml.engine.conftest import COMMANDS, Lake

pytestmark = pytest.mark.spark

TASKS, ROWS, PARTITIONS = 4, 40, 3
SOURCE = f"SELECT (id * 7) % {ROWS} AS id, CAST(id % {PARTITIONS} AS INT) AS k FROM range(0, {ROWS}, 1, {TASKS})"
"""Each of its tasks has rows of every partition and of the whole range of ids."""

BY_K = "PARTITIONED BY (k)"


@pytest.fixture
def plain_lake(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A lake whose Spark does not put small shuffled partitions together, nor the driver the few rows of tasks."""
    monkeypatch.setattr(insert, "scatters", lambda *_, **__: False)
    conf = lake.session.spark.conf
    before = conf.get("spark.sql.adaptive.enabled")
    conf.set("spark.sql.adaptive.enabled", "false")
    yield lake
    conf.set("spark.sql.adaptive.enabled", before)


def inserted(lake: Lake, clauses: str = "", order: str = "", **properties: str) -> list[list[int]]:
    """The ids of each new file, in their order in it."""
    name = lake.create("id BIGINT, k INT", clauses, **properties)
    if order:
        lake.session.sql(f"ALTER TABLE {name} WRITE {order}")
    lake.session.sql(f"INSERT INTO {name} {SOURCE}")
    files = [ids_of(file) for file in lake.data_files(name)]
    assert sorted(i for ids in files for i in ids) == list(range(ROWS))
    return files


def ids_of(file: ContentFile) -> list[int]:
    ids: list[int] = pq.read_table(file.path.removeprefix("file://"), partitioning=None)["id"].to_pylist()
    return ids


def overlap(files: list[list[int]]) -> bool:
    """Whether the ranges of some files overlap."""
    ranges = sorted((min(ids), max(ids)) for ids in files)
    return any(one[1] >= other[0] for one, other in itertools.pairwise(ranges))


@pytest.mark.proves("F1", "F2")
@pytest.mark.parametrize("version", ["2", "3"])
def test_rows_of_an_insert_are_distributed_as_the_table_says(plain_lake: Lake, version: str) -> None:
    """By default of a partitioned table each partition's rows come to one task, else rows stay where they are."""
    settings = {"format-version": version}
    assert len(inserted(plain_lake, **settings)) == TASKS
    assert len(inserted(plain_lake, BY_K, **settings)) == PARTITIONS
    hashed = inserted(plain_lake, BY_K, **settings, **{"write.distribution-mode": "hash"})
    assert len(hashed) == PARTITIONS
    scattered = inserted(plain_lake, BY_K, **settings, **{"write.distribution-mode": "none"})
    assert len(scattered) == TASKS * PARTITIONS


@pytest.mark.proves("F1", "F3", "F6")
@pytest.mark.parametrize(
    ("clauses", "order", "mode", "files"),
    [
        ("", "", "none", 1),
        (BY_K, "", "none", PARTITIONS),
        ("PARTITIONED BY (bucket(2, id))", "ORDERED BY id DESC", "none", 2),
        ("", "ORDERED BY id DESC", "range", 1),
    ],
)
def test_few_rows_of_several_tasks_are_one_file_for_each_partition(
    lake: Lake, clauses: str, order: str, mode: str, files: int
) -> None:
    """Also without a shuffle, and sorted as the table says. The reference adds a file for each task and partition."""
    name = lake.create("id BIGINT, k INT", clauses)
    if order:
        lake.session.sql(f"ALTER TABLE {name} WRITE {order}")
    result = lake.session.sql(f"INSERT INTO {name} WITH ('distribution-mode' = '{mode}') {SOURCE}")
    found = [ids_of(file) for file in lake.data_files(name)]
    assert (result.rows_inserted, result.data_files_added, len(found)) == (ROWS, files, files)
    assert sorted(i for ids in found for i in ids) == list(range(ROWS))
    assert not order or all(ids == sorted(ids, reverse=True) for ids in found)


@pytest.mark.proves("F1", "F2", "F3")
@pytest.mark.parametrize("version", ["2", "3"])
def test_with_a_write_order_each_task_has_a_range_of_it(plain_lake: Lake, version: str) -> None:
    """By default; with `none` each task sorts the rows that it has."""
    settings = {"format-version": version}
    ranges = inserted(plain_lake, order="ORDERED BY id", **settings)
    assert len(ranges) > 1
    assert not overlap(ranges)
    assert all(ids == sorted(ids) for ids in ranges)
    name = plain_lake.create("id BIGINT, k INT", **settings)
    plain_lake.session.sql(f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY id DESC")
    plain_lake.session.sql(f"INSERT INTO {name} WITH ('distribution-mode' = 'none') {SOURCE}")
    local = [ids_of(file) for file in plain_lake.data_files(name)]
    assert len(local) == TASKS
    assert overlap(local)
    assert all(ids == sorted(ids, reverse=True) for ids in local)


@pytest.mark.proves("F1")
@pytest.mark.parametrize("mode", ["none", "hash", "range"])
def test_the_changes_of_a_data_file_come_to_one_task_whatever_the_mode(plain_lake: Lake, mode: str) -> None:
    """A file of which many rows change is rewritten once; new rows of a MERGE are one file for each partition."""
    modes = {f"write.{command}.distribution-mode": mode for command in COMMANDS}
    name = plain_lake.create("id BIGINT, k INT", BY_K, **{"format-version": "2"}, **modes)
    plain_lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, CAST(id % 2 AS INT) FROM range(20)")
    result = plain_lake.session.sql(
        f"MERGE INTO {name} t USING ({SOURCE}) s ON t.id = s.id AND t.k = 0 "
        "WHEN MATCHED THEN UPDATE SET id = t.id + 100"
    )
    assert (result.data_files_removed, result.data_files_added, result.rows_updated) == (1, 1, 10)
    result = plain_lake.session.sql(
        f"MERGE INTO {name} t USING (SELECT id + 500 AS id, k FROM ({SOURCE})) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert (result.data_files_added, result.rows_inserted) == (PARTITIONS, ROWS)


@pytest.mark.proves("F4")
@pytest.mark.parametrize("properties", [{}, {"write.spark.fanout.enabled": "true"}], ids=["default", "true"])
def test_a_task_keeps_a_file_of_each_partition_open(plain_lake: Lake, properties: dict[str, str]) -> None:
    """Partitions come in turn, and again in each of many Arrow batches."""
    conf = plain_lake.session.spark.conf
    conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    name = plain_lake.create("id BIGINT, k INT", BY_K, **{"write.distribution-mode": "none"}, **properties)
    try:
        plain_lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM ({SOURCE})")
    finally:
        conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    files = plain_lake.data_files(name)
    assert sorted(file.partition for file in files) == [(k,) for k in range(PARTITIONS)]
    assert sum(file.record_count for file in files) == ROWS
