"""What tasks with few rows leave to the driver: one file for each partition, as if one task had written them all."""

import decimal
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DecimalType, ListType, LongType, MapType, NestedField, StringType, StructType, UUIDType

from dml import limits
from dml.deletes.deletion_vector import decode
from dml.errors import DataError, ExecutionError
from dml.model.columns import DeltaLayout, RowOperation
from dml.model.write_task import TaskCommit, WriteContext, report_batch, report_from_bytes
from dml.options import WriteOptions
from dml.write import held_rows, output_files
from dml.write.held_rows import threads_for, write_joined_files
from dml.write.output_files import TaskIdentity
from dml.write.run import write_task
from dml.write.writer_spec import WriteJob, WriterSpec
from tests.dml.write.builders import BY_NAME, UNPARTITIONED, MemoryFiles, context, delta, read_back, stored_files, table

DELETE, UPDATE, INSERT = RowOperation.DELETE, RowOperation.UPDATE, RowOperation.INSERT
MERGE = DeltaLayout(value_ids=(1, 2, 3), assigned_ids=(2,), insert_ids=(1, 2, 3))
ROWS = DeltaLayout(value_ids=(1, 2, 3))
TYPES = (pa.int64(), pa.string(), pa.float64())
SPECS = (UNPARTITIONED, BY_NAME)
TASKS = 3


def job(write_context: WriteContext, kind: WriteJob = WriteJob.ROWS, **more: Any) -> WriterSpec:
    """A job whose tasks leave few rows to the driver."""
    layout = ROWS if kind is WriteJob.ROWS else MERGE
    return WriterSpec(**{"job": kind, "context": write_context, "layout": layout, "joins_tasks": True, **more})


def reports(spec: WriterSpec, batches: list[list[pa.RecordBatch]]) -> list[Any]:
    """What the tasks of a job report, as it reaches the driver."""
    return [
        report_from_bytes(report_batch(write_task(rows, spec, TaskIdentity(partition_id=number))).column(0)[0].as_py())
        for number, rows in enumerate(batches)
    ]


def inserts(tasks: int = TASKS, rows: int = 4) -> list[list[pa.RecordBatch]]:
    """Rows of each task, of both partitions."""
    return [
        table([task * 100 + row for row in range(rows)], ["a", "b"] * (rows // 2)).to_batches() for task in range(tasks)
    ]


def joined(spec: WriterSpec, commits: list[TaskCommit]) -> TaskCommit:
    found = write_joined_files(spec, commits)
    assert found is not None
    return found


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(("specs", "files"), [((UNPARTITIONED,), 1), (SPECS, 2)], ids=["unpartitioned", "partitioned"])
def test_few_rows_of_several_tasks_are_one_file_for_each_partition(
    tmp_path: Path, specs: tuple[PartitionSpec, ...], files: int, file_format: str
) -> None:
    """The tasks write nothing; every row is in a file that says what it is."""
    spec = job(context(tmp_path, specs=specs, properties={"write.format.default": file_format}))
    commits = reports(spec, inserts())
    assert stored_files(tmp_path) == []
    commit = joined(spec, commits)
    assert {file.path for file in commit.data_files} == set(map(str, stored_files(tmp_path)))
    assert [file.record_count for file in commit.data_files] == [12 // files] * files
    assert {file.partition for file in commit.data_files} == ({("a",), ("b",)} if files == 2 else {()})
    assert {file.file_format for file in commit.data_files} == {file_format}
    assert commit.data_files[0].lower_bounds[1] == (0).to_bytes(8, "little")
    if file_format == "parquet":
        assert sorted(row["id"] for row in read_back(commit)) == [
            task * 100 + row for task in range(TASKS) for row in range(4)
        ]


def test_rows_of_several_tasks_are_in_the_order_of_the_table(tmp_path: Path) -> None:
    """Each task's own were, or were not; the file says that it is sorted."""
    order = SortOrder(
        SortField(1, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST),
        order_id=1,
    )
    write_context = replace(context(tmp_path), sort_order_json=order.model_dump_json(), sorted_by_table_order=True)
    spec = job(write_context)
    commit = joined(spec, reports(spec, inserts()))
    (file,) = commit.data_files
    ids = [row["id"] for row in read_back(commit)]
    assert ids == sorted(ids, reverse=True)
    assert (file.sort_order_id, len(ids)) == (1, 12)


def test_a_task_with_more_rows_writes_them_itself(tmp_path: Path) -> None:
    """All of them, those that it had held at first too; the others' few are joined."""
    spec = job(context(tmp_path))
    few = inserts()
    wide = table([7], ["x" * (limits.MAX_TASK_HELD_BYTES + 1)]).to_batches()[0]
    few[1].append(wide)
    commits = reports(spec, few)
    assert [file.record_count for commit in commits for file in commit.data_files] == [5]
    assert [bool(commit.held_rows) for commit in commits] == [True, False, True]
    assert [file.record_count for file in joined(spec, commits).data_files] == [8]
    assert len(stored_files(tmp_path)) == 2


def test_what_all_tasks_may_leave_is_bounded(tmp_path: Path) -> None:
    """However many there are, and whether or not somebody has counted them before."""
    spec = job(context(tmp_path))
    assert spec.max_held_bytes(0) == limits.MAX_TASK_HELD_BYTES
    assert sum(map(spec.max_held_bytes, range(100_000))) < 12 * limits.MAX_ALL_HELD_BYTES
    assert replace(spec, tasks=1000).max_held_bytes(0) == limits.MAX_ALL_HELD_BYTES // 1000
    assert replace(spec, joins_tasks=False).max_held_bytes(0) == 0


def merged(folder: Path, version: int, **properties: str) -> tuple[WriterSpec, list[TaskCommit]]:
    """Three tasks: each changes a data file, two of one partition, and inserts a row."""
    files = MemoryFiles()
    for name in "aab":
        files.add(table([1, 2, 3], [name] * 3), spec_id=1, partition=(name,))
    write_context = context(folder, specs=SPECS, version=version, properties=properties)
    spec = job(write_context, WriteJob.MERGE_ON_READ, files=files)
    changes = [
        [
            delta([(INSERT, None, None, 9, "a", 1.0)], TYPES),
            delta([(UPDATE, task, 0, None, "c", None), (DELETE, task, 1, None, None, None)], TYPES),
        ]
        for task in range(TASKS)
    ]
    return spec, reports(spec, changes)


@pytest.mark.proves("P7")
@pytest.mark.parametrize(
    ("version", "granularity", "of_tasks", "of_driver", "files"),
    [(2, "file", 3, 0, 3), (2, "partition", 0, 2, 2), (3, "file", 0, 3, 1)],
    ids=["v2 file", "v2 partition", "v3"],
)
def test_deleted_positions_of_several_tasks_share_files(
    tmp_path: Path, version: int, granularity: str, of_tasks: int, of_driver: int, files: int
) -> None:
    """One for each partition, or one Puffin file of all vectors; those of single data files gain nothing."""
    spec, commits = merged(tmp_path, version, **{"write.delete.granularity": granularity})
    commit = joined(spec, commits)
    written = [file for report in commits for file in report.delete_files]
    assert (len(written), len(commit.delete_files)) == (of_tasks, of_driver)
    assert len({file.path for file in (*written, *commit.delete_files)}) == files
    assert sum(file.record_count for file in (*written, *commit.delete_files)) == 6
    assert sorted(path for report in commits for path in report.referenced_data_files) == [
        f"file:/old/{number}.parquet" for number in range(TASKS)
    ]
    assert sorted((file.partition, file.record_count) for file in commit.data_files) == [(("a",), 3), (("c",), 3)]
    if version == 3:
        assert {file.referenced_data_file for file in commit.delete_files} == set(
            commits[0].referenced_data_files
        ).union(*(report.referenced_data_files for report in commits))
        for file in commit.delete_files:
            with Path(file.path).open("rb") as stream:
                stream.seek(file.content_offset)
                blob = stream.read(file.content_size_in_bytes)
            assert decode(blob, file=file.path, cardinality=2).to_numpy().tolist() == [0, 1]


def test_many_deleted_positions_are_written_by_their_task(tmp_path: Path) -> None:
    """Those that it had held at first too."""
    rows = limits.MAX_TASK_HELD_BYTES // 2
    files = MemoryFiles()
    files.add(table([1, 2, 3]))
    files.add(table(list(range(rows))))
    spec = job(
        context(tmp_path, version=3),
        WriteJob.MERGE_ON_READ,
        files=files,
        layout=DeltaLayout(value_ids=(), assigned_ids=(), insert_ids=()),
    )
    changes = delta([(DELETE, 0, 1)])
    many = pa.RecordBatch.from_arrays(
        [pa.array([int(DELETE)] * rows, pa.int32()), pa.array([1] * rows, pa.int32()), pa.array(range(rows))],
        names=changes.schema.names,
    )
    (report,) = reports(spec, [[changes, many]])
    assert [file.record_count for file in report.delete_files] == [1, rows]
    assert report.held_deletes == ()
    assert write_joined_files(spec, [report]) is None


SCHEMA = Schema(
    NestedField(1, "id", UUIDType(), required=True),
    NestedField(2, "amount", DecimalType(20, 3), required=False),
    NestedField(3, "tags", ListType(4, StringType(), element_required=False), required=False),
    NestedField(5, "of", MapType(6, StringType(), 7, LongType(), value_required=False), required=False),
    NestedField(8, "inner", StructType(NestedField(9, "x", LongType(), required=False)), required=False),
)
NESTED = PartitionSpec(
    PartitionField(1, 1000, BucketTransform(2), "id_bucket"),
    PartitionField(9, 1001, IdentityTransform(), "x"),
    PartitionField(2, 1002, IdentityTransform(), "amount"),
    spec_id=0,
)


def test_values_of_every_kind_reach_the_driver_as_they_are(tmp_path: Path) -> None:
    """Nested ones and NULLs too, in partitions of uuids, decimals and fields of structs; ids of rows stay."""
    keys = [uuid.UUID(int=number) for number in range(4)]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([key.bytes for key in keys], pa.binary(16)),
            pa.array([decimal.Decimal("1.500"), None, decimal.Decimal("-2.250"), None], pa.decimal128(20, 3)),
            pa.array([["a", None], [], None, ["b"]], pa.list_(pa.string())),
            pa.array([[("k", 1)], [("k", None)], [], None], pa.map_(pa.string(), pa.int64())),
            pa.array([{"x": 1}, {"x": None}, None, {"x": 1}], pa.struct([("x", pa.int64())])),
        ],
        names=["v0", "v1", "v2", "v3", "v4"],
    )
    tasks = [[batch.slice(1, 2)], [batch.slice(0, 1), batch.slice(3, 1)], [batch.slice(2, 1)]]
    rows = {}
    for joins in (True, False):
        folder = tmp_path / str(joins)
        write_context = context(folder, schema=SCHEMA, specs=(NESTED,), version=3, row_lineage=True)
        spec = job(write_context, layout=DeltaLayout(value_ids=(1, 2, 3, 5, 8)), joins_tasks=joins)
        commits = reports(spec, tasks)
        commit = write_joined_files(spec, commits) if joins else None
        commits = commits if commit is None else [commit]
        found = [row for each in commits for row in read_back(each)]
        rows[joins] = sorted(map(repr, found))
        partitions = [file.partition for each in commits for file in each.data_files]
        assert len(found) == 5
        assert not joins or len(partitions) == len({repr(partition) for partition in partitions})
    assert rows[True] == rows[False]


class Failing:
    """A storage that refuses some calls: `open` and `close` of files, counted over all files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: set[int]) -> None:
        self.calls = itertools.count(1)
        self.refused = refused
        for name in ("open", "close"):
            monkeypatch.setattr(output_files.OutputFileFactory, name, self.around(name))

    def around(self, name: str) -> Any:
        original = getattr(output_files.OutputFileFactory, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if next(self.calls) in self.refused:
                with output_files.write_errors("somewhere"):
                    raise OSError("no space left on device")
            return result

        return call


@pytest.mark.proves("A1")
@pytest.mark.parametrize("step", range(1, 9))
@pytest.mark.parametrize(("version", "granularity"), [(2, "partition"), (3, "file")])
def test_a_failure_of_the_driver_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, granularity: str, step: int
) -> None:
    """Whichever file it is; what was written beside it, by threads of their own, goes too."""
    monkeypatch.setattr(held_rows, "threads_for", lambda _: 8)
    spec, commits = merged(tmp_path, version, **{"write.delete.granularity": granularity})
    failing = Failing(monkeypatch, {step})
    steps = 2 * (2 + (2 if version == 2 else 1))
    if step > steps:
        joined(spec, commits)
        assert next(failing.calls) == steps + 1
        return
    with pytest.raises(ExecutionError, match="no space left"):
        write_joined_files(spec, commits)
    assert stored_files(tmp_path) == []


def test_the_driver_tries_as_often_as_spark_tries_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the storage refused leaves no file; another kind of failure is not tried again."""
    spec, commits = merged(tmp_path, 3)
    monkeypatch.setattr(held_rows, "threads_for", lambda _: 8)
    Failing(monkeypatch, {1, 3})
    commit = joined(replace(spec, max_failures=4), commits)
    paths = {file.path for file in (*commit.data_files, *commit.delete_files)}
    assert paths == set(map(str, stored_files(tmp_path)))
    assert sum(file.record_count for file in commit.data_files) == 6


def test_an_error_that_no_attempt_can_mend_is_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = job(context(tmp_path), max_failures=4)
    commits = reports(spec, inserts())
    calls = []

    def refuse(*args: Any) -> Iterator[None]:
        calls.append(args)
        raise DataError("no")

    monkeypatch.setattr("dml.write.rolling.ParquetFileWriter.write", refuse)
    monkeypatch.setattr("dml.write.parquet.ParquetFileWriter.write", refuse)
    with pytest.raises(DataError, match="no"):
        write_joined_files(spec, commits)
    assert len(calls) == 1
    assert stored_files(tmp_path) == []


def test_files_of_the_driver_are_of_the_target_size(tmp_path: Path) -> None:
    spec = job(context(tmp_path, properties={"write.target-file-size-bytes": "1000"}))
    assert WriteOptions.from_properties(spec.context.properties).target_file_size == 1000
    commits = reports(spec, [[table(list(range(4000))).to_batches()[0]] for _ in range(TASKS)])
    commit = joined(spec, commits)
    assert len(commit.data_files) > TASKS
    assert sum(file.record_count for file in commit.data_files) == 12_000


def test_files_on_an_object_store_are_written_side_by_side() -> None:
    """On a local disk threads would only cost time."""
    assert [threads_for(place) for place in ("file:///tmp/t/data", "/tmp/t/data", "s3://bucket/t/data")] == [1, 1, 16]
