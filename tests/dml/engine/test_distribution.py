"""How the rows of a statement come to tasks and files: what `write.distribution-mode` and the write order do."""

import itertools
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

from dml import limits
from dml.engine import insert, row_level
from dml.model.manifest import ContentFile
from tests.lake import COMMANDS, Lake

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
@pytest.mark.parametrize("version", ["2", pytest.param("3", marks=pytest.mark.nightly)])
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
@pytest.mark.parametrize("version", [pytest.param("2", marks=pytest.mark.nightly), "3"])
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


@pytest.mark.proves("F1", "F3")
def test_ranges_go_by_transforms_too(plain_lake: Lake) -> None:
    """Each task has some of the buckets, sorted; the tasks' own rows are of all."""
    files = inserted(plain_lake, order="ORDERED BY truncate(10, id) DESC, bucket(4, id)")
    assert len(files) > 1
    tens = [[i // 10 for i in ids] for ids in files]
    assert not overlap(tens) or len({ten for found in tens for ten in found}) == ROWS // 10
    assert all(found == sorted(found, reverse=True) for found in tens)
    assert sum(len(set(found)) for found in tens) < TASKS * ROWS // 10


def four_files(lake: Lake) -> str:
    """A table of four data files, three of which are of one partition."""
    name = lake.create("id BIGINT, k INT", BY_K, **{"format-version": "2"})
    for k in (0, 0, 0, 1):
        lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, {k} FROM range(10)")
    return name


@pytest.mark.proves("F1")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_mode_of_a_command_keeps_partitions_together_or_not(
    plain_lake: Lake, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Where one partition has most files, P partitions make P files by `hash` and `range`, as in the reference.

    The session counts before the table: `range` is given to it, and `none` to the table.
    """
    monkeypatch.setattr(limits, "MIN_TASK_BYTES", 1)
    monkeypatch.setattr(limits, "MAX_DRIVER_JOB_BYTES", -1)
    conf = plain_lake.session.spark.conf
    files = {}
    for mode in ("", "none", "hash", "range", "small"):
        modes = {f"write.{command}.distribution-mode": "none" if mode == "range" else mode} if mode else {}
        if mode == "small":
            modes = {f"write.{command}.distribution-mode": "hash", "write.spark.advisory-partition-size-bytes": "1"}
        name = plain_lake.copy_of(four_files, lambda: four_files(plain_lake), **modes)
        statement = {
            "delete": f"DELETE FROM {name} WHERE id % 2 = 0",
            "update": f"UPDATE {name} SET id = id + 100 WHERE id % 2 = 0",
            "merge": f"MERGE INTO {name} t USING (SELECT id * 2 AS id FROM range(10)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET id = t.id + 100",
        }[command]
        if mode == "range":
            conf.set("spark.sql.iceberg.distribution-mode", mode)
        try:
            result = plain_lake.session.sql(statement)
        finally:
            conf.unset("spark.sql.iceberg.distribution-mode")
        assert (result.data_files_removed, (result.rows_deleted or 0) + (result.rows_updated or 0)) == (4, 20)
        files[mode] = result.data_files_added
    assert files == {"": 3, "none": 3, "hash": 2, "range": 2, "small": 3}


@pytest.mark.proves("F1")
def test_new_rows_of_a_merge_go_by_partition_or_as_they_come(plain_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a few: by default one file for each partition; with `none` each task has some of each."""
    monkeypatch.setattr(limits, "MAX_UNSCATTERED_INSERTS", 0)
    monkeypatch.setattr(row_level, "most_sent", lambda *_: 0)
    found = {}
    for mode in ("", "none", "hash", "range"):
        modes = {"write.merge.distribution-mode": mode} if mode else {}
        name = plain_lake.create("id BIGINT, k INT", BY_K, **{"format-version": "2"}, **modes)
        result = plain_lake.session.sql(
            f"MERGE INTO {name} t USING ({SOURCE}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
        )
        assert result.rows_inserted == ROWS
        found[mode] = result.data_files_added
    assert found == {"": PARTITIONS, "none": 2 * PARTITIONS, "hash": PARTITIONS, "range": PARTITIONS}


@pytest.mark.proves("F1", "F3")
@pytest.mark.parametrize("clauses", ["", BY_K])
def test_new_rows_of_a_merge_go_by_range(plain_lake: Lake, monkeypatch: pytest.MonkeyPatch, clauses: str) -> None:
    """By partition and then by the write order, beside changes of files, each of which stays in one task."""
    monkeypatch.setattr(limits, "MAX_UNSCATTERED_INSERTS", 0)
    monkeypatch.setattr(row_level, "most_sent", lambda *_: 0)
    monkeypatch.setattr(limits, "MIN_TASK_BYTES", 1)
    monkeypatch.setattr(limits, "MAX_DRIVER_JOB_BYTES", -1)
    properties = {"format-version": "2", "write.merge.distribution-mode": "range"}
    name = plain_lake.create("id BIGINT, k INT", clauses, **properties)
    plain_lake.session.sql(f"ALTER TABLE {name} WRITE ORDERED BY id DESC")
    for k in range(2):
        rows = f"SELECT /*+ COALESCE(1) */ id + {1000 + 10 * k}, {k} AS k FROM range(10)"
        plain_lake.session.sql(f"INSERT INTO {name} WITH ('distribution-mode' = 'none') {rows}")
    result = plain_lake.session.sql(
        f"MERGE INTO {name} t USING ({SOURCE} UNION ALL SELECT id + 1000, 0 FROM range(0, 20, 2)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = t.id + 1000 WHEN NOT MATCHED THEN INSERT *"
    )
    assert (result.rows_inserted, result.rows_updated, result.data_files_rewritten) == (ROWS, 10, 2)
    files = [(file.partition, ids_of(file)) for file in plain_lake.data_files(name)]
    assert sorted(i for _, ids in files for i in ids if i < 1000) == list(range(ROWS))
    assert sorted(i for _, ids in files for i in ids if i >= 1000) == [
        *(i for i in range(1000, 1020) if i % 2),
        *range(2000, 2020, 2),
    ]
    assert all(ids == sorted(ids, reverse=True) for _, ids in files)
    new = [(partition, [i for i in ids if i < 1000]) for partition, ids in files]
    ranges = [[ids for partition, ids in new if ids and partition == other] for other in {p for p, _ in new}]
    assert sum(map(len, ranges)) > 1
    assert not any(map(overlap, ranges))


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


@pytest.mark.proves("F1")
@pytest.mark.parametrize("place", ["none", "property", "session", "option"])
@pytest.mark.parametrize("order", ["", "ORDERED BY id"])
def test_a_task_of_an_insert_gets_about_so_many_bytes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, place: str, order: str
) -> None:
    """Spark splits what would be one task of a large partition, or range, and else puts small ones together."""
    monkeypatch.setattr(insert, "scatters", lambda *_, **__: False)
    few = {"write.spark.advisory-partition-size-bytes": "1" if place == "property" else str(1 << 30)}
    name = lake.create("id BIGINT, k INT", BY_K, **(few if place != "none" else {}))
    if order:
        lake.session.sql(f"ALTER TABLE {name} WRITE {order}")
    conf, key = lake.session.spark.conf, "spark.sql.iceberg.advisory-partition-size"
    options = "WITH ('advisory-partition-size' = '1')" if place == "option" else ""
    if place == "session":
        conf.set(key, "1")
    try:
        lake.session.sql(f"INSERT INTO {name} {options} SELECT id, 1 AS k FROM ({SOURCE})")
    finally:
        conf.unset(key)
    files = [ids_of(file) for file in lake.data_files(name)]
    assert sorted(i for ids in files for i in ids) == list(range(ROWS))
    assert len(files) == 1 if place == "none" else len(files) >= TASKS
    assert not order or all(ids == sorted(ids) for ids in files)
