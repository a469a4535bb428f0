"""How rows come to tasks: all changes of a file to one, few to few; files are counted as the reference adds them."""

import pytest
from pyspark.sql import DataFrame

import dml
from dml import limits
from dml.engine import row_level
from tests.dml.engine.conftest import Kind
from tests.lake import COMMANDS, Lake

pytestmark = pytest.mark.spark

LAYOUTS = [
    pytest.param(
        command,
        partitioned,
        id=f"{command}-{'partitioned' if partitioned else 'unpartitioned'}",
        marks=[] if partitioned is (command != "update") else [pytest.mark.nightly],
    )
    for command in COMMANDS
    for partitioned in (True, False)
]
"""Each statement on one layout, and by night on both."""


def files_of(lake: Lake, version: int, *, partitioned: bool, mode: str = "merge-on-read", **properties: str) -> str:
    """A table of four data files; in pairs of one partition, which lie between those of the other.

    Other tables read the same files.
    """
    modes = {f"write.{command}.mode": mode for command in COMMANDS}
    key = (files_of, version, partitioned)
    name = lake.copy_of(key, lambda: new_table(lake, version, partitioned=partitioned), **modes, **properties)
    assert len(lake.data_files(name)) == 4
    return name


def new_table(lake: Lake, version: int, *, partitioned: bool) -> str:
    """Create the table that `files_of` copies."""
    clause = "PARTITIONED BY (k)" if partitioned else ""
    name = lake.create("id BIGINT, k INT, s STRING", clause, **{"format-version": str(version)})
    for start in (0, 20):
        for k in (0, 1):
            rows = f"SELECT /*+ COALESCE(1) */ id, CAST(id % 2 AS INT), 's' FROM range({start}, {start + 20})"
            lake.session.sql(f"INSERT INTO {name} {rows} WHERE id % 2 = {k}")
    return name


@pytest.mark.proves("P7")
@pytest.mark.parametrize(
    ("version", "granularity", "partitioned_deletes", "unpartitioned_deletes"),
    [(2, "partition", 2, 1), (2, "file", 4, 4), (3, "file", 4, 4)],
    ids=["v2 partition", "v2 file", "v3"],
)
@pytest.mark.parametrize(("command", "partitioned"), LAYOUTS)
def test_a_small_change_adds_as_few_files_as_the_reference(
    lake: Lake,
    command: str,
    version: int,
    granularity: str,
    partitioned_deletes: int,
    unpartitioned_deletes: int,
    *,
    partitioned: bool,
) -> None:
    """One delete file for each partition, or for each data file; one data file for each partition."""
    name = files_of(lake, version, partitioned=partitioned, **{"write.delete.granularity": granularity})
    match command:
        case "delete":
            result, data = lake.session.sql(f"DELETE FROM {name} WHERE id % 10 < 2"), 0
        case "update":
            result, data = lake.session.sql(f"UPDATE {name} SET s = 'u' WHERE id % 10 < 2"), 1
        case _:
            result, data = (
                lake.session.sql(
                    f"MERGE INTO {name} t USING (SELECT id, CAST(id % 2 AS INT) AS k FROM range(60)) s ON t.id = s.id "
                    "WHEN MATCHED AND t.id % 10 < 2 THEN UPDATE SET s = 'm' "
                    "WHEN NOT MATCHED THEN INSERT (id, k, s) VALUES (s.id, s.k, 'n')"
                ),
                1,
            )
    assert result.data_files_added == data * (2 if partitioned else 1)
    assert result.delete_files_added == (partitioned_deletes if partitioned else unpartitioned_deletes)
    assert result.data_files_removed == 0
    assert lake.rows(f"SELECT count(*) FROM {name}") == [({"delete": 32, "update": 40, "merge": 60}[command],)]


@pytest.mark.proves("P7", "F6")
@pytest.mark.parametrize(
    ("version", "granularity", "of_files", "is_one"),
    [(2, "partition", False, True), (2, "file", True, False), (3, "file", True, True)],
    ids=["v2 partition", "v2 file", "v3"],
)
def test_a_small_change_of_files_that_several_tasks_read_adds_as_few(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int, granularity: str, *, of_files: bool, is_one: bool
) -> None:
    """As if the files were large. The reference adds one data file too, and as many delete files or vectors.

    With granularity `partition`, and of Puffin files, it adds one for each of its tasks.
    """
    monkeypatch.setattr(limits, "MIN_TASK_BYTES", 1)
    monkeypatch.setattr(limits, "MAX_DRIVER_JOB_BYTES", -1)
    name = files_of(lake, version, partitioned=False, **{"write.delete.granularity": granularity})
    rows = dict(lake.rows(f"SELECT id, s FROM {name}"))
    merge = (
        f"MERGE INTO {name} t USING (SELECT id * 3 AS id FROM range(20)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = 'm' WHEN NOT MATCHED THEN INSERT (id, k, s) VALUES (s.id, 0, 'n')"
    )
    for statement, added, changed, change in (
        (f"UPDATE {name} SET s = 'u' WHERE id % 10 < 2", 1, 4, {i: "u" for i in rows if i % 10 < 2}),
        (merge, 1, 5, {i: "m" if i < 40 else "n" for i in range(0, 60, 3)}),
        (f"DELETE FROM {name} WHERE id % 10 IN (4, 5) AND id < 40", 0, 5, {i: None for i in rows if i % 10 in {4, 5}}),
    ):
        _, before = lake.state(name)
        result = lake.session.sql(statement)
        _, after = lake.state(name)
        assert (result.data_files_added, result.delete_files_added) == (added, changed if of_files else 1)
        assert len([path for path in after - before if "-deletes" in path.name]) == (1 if is_one else changed)
        rows = {i: s for i, s in {**rows, **change}.items() if s is not None}
        assert dict(lake.rows(f"SELECT id, s FROM {name}")) == rows
    assert lake.session.verify(name).ok


@pytest.mark.parametrize(("command", "partitioned"), LAYOUTS)
def test_copy_on_write_joins_small_files_of_a_partition(lake: Lake, command: str, *, partitioned: bool) -> None:
    """All four files are rewritten, into one for each partition."""
    name = files_of(lake, 3, partitioned=partitioned, mode="copy-on-write")
    statement = {
        "delete": f"DELETE FROM {name} WHERE id % 10 < 2",
        "update": f"UPDATE {name} SET s = 'u' WHERE id % 10 < 2",
        "merge": f"MERGE INTO {name} t USING (SELECT id FROM range(0, 60)) s ON t.id = s.id AND t.id % 10 < 2 "
        "WHEN MATCHED THEN UPDATE SET s = 'm'",
    }[command]
    result = lake.session.sql(statement)
    assert (result.data_files_removed, result.data_files_added) == (4, 2 if partitioned else 1)


@pytest.mark.proves("I11")
@pytest.mark.parametrize(
    ("order", "version"),
    [
        ("", 2),
        ("WRITE ORDERED BY truncate(2, s)", 3),
        *(
            pytest.param(order, version, marks=pytest.mark.nightly)
            for order, version in (
                ("", 3),
                ("WRITE ORDERED BY id", 2),
                ("WRITE ORDERED BY id", 3),
                ("WRITE ORDERED BY truncate(2, s)", 2),
            )
        ),
    ],
)
def test_without_fanout_rows_are_written_partition_by_partition(lake: Lake, version: int, order: str) -> None:
    """More rows than an Arrow batch holds, their partitions in turn: INSERT, and what a MERGE inserts and updates."""
    name = lake.create(
        "id BIGINT, k INT, s STRING",
        "PARTITIONED BY (bucket(4, k))",
        **{
            "format-version": str(version),
            "write.spark.fanout.enabled": "false",
            "write.distribution-mode": "none",
            "write.merge.mode": "merge-on-read",
        },
    )
    if order:
        lake.session.sql(f"ALTER TABLE {name} {order}")
    rows = "SELECT id, CAST(id % 7 AS INT) AS k, concat('s', id) AS s FROM range({0}, {1}, 1, 1)"
    result = lake.session.sql(f"INSERT INTO {name} " + rows.format(0, 30_000))
    partitions = len({file.partition for file in lake.data_files(name)})
    assert (result.rows_inserted, result.data_files_added) == (30_000, partitions)
    result = lake.session.sql(
        f"MERGE INTO {name} t USING ({rows.format(20_000, 60_000)}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET k = t.k + 1 WHEN NOT MATCHED THEN INSERT *"
    )
    assert (result.rows_updated, result.rows_inserted) == (10_000, 30_000)
    assert lake.rows(f"SELECT count(*), sum(id), sum(k - id % 7) FROM {name}") == [(60_000, 1_799_970_000, 10_000)]


@pytest.mark.proves("DV6", "F6")
def test_changes_of_a_file_by_two_tasks_end_the_statement(balanced_kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """No distribution of ours makes that; if it ever happened, rows would be carried twice, or deletes be lost."""

    def torn(frame: DataFrame, *_: object, **__: object) -> DataFrame:
        return frame.repartitionByRange(2, "_pos").sortWithinPartitions("_pos")

    name, lake = balanced_kind.create(), balanced_kind.lake
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0, 's' FROM range(100)")
    before = lake.state(name)
    monkeypatch.setattr(row_level, "distribute_delta", torn)
    with pytest.raises(dml.ExecutionError, match="Two tasks changed the same data file"):
        lake.session.sql(
            f"MERGE INTO {name} t USING (SELECT id FROM range(100)) s "
            "ON t.id = s.id AND instr(t.s, 's') = 1 WHEN MATCHED THEN DELETE"
        )
    assert lake.state(name) == before
