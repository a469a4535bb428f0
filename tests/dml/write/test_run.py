"""Tasks as a whole: every job leaves its files or none, and failures reach the driver as what they are."""

import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from dml.errors import DataError, DmlError, ErrorKind, ExecutionError
from dml.files.file_io import delete_files
from dml.model.columns import DeltaLayout, RowOperation
from dml.model.write_task import REPORT_SCHEMA, TaskCommit, TaskFailure, report_from_bytes
from dml.write import output_files
from dml.write.delta_writer import WriteTask
from dml.write.output_files import DRIVER_PARTITION, TaskIdentity, current_task
from dml.write.writer_spec import WriteJob, WriterSpec
from tests.dml.write.builders import (
    BY_NAME,
    UNPARTITIONED,
    MemoryFiles,
    context,
    delta,
    read_back,
    run,
    stored_files,
    table,
)

DELETE, UPDATE, INSERT = RowOperation.DELETE, RowOperation.UPDATE, RowOperation.INSERT
MERGE = DeltaLayout(value_ids=(1, 2, 3), assigned_ids=(2,), insert_ids=(1, 2, 3))
ROWS = DeltaLayout(value_ids=(1, 2, 3))
TYPES = (pa.int64(), pa.string(), pa.float64())
SPECS = (UNPARTITIONED, BY_NAME)
JOBS = [
    pytest.param(WriteJob.ROWS, 2, id="rows"),
    pytest.param(WriteJob.COPY_ON_WRITE, 2, id="copy-on-write"),
    pytest.param(WriteJob.MERGE_ON_READ, 2, id="merge-on-read v2"),
    pytest.param(WriteJob.MERGE_ON_READ, 3, id="merge-on-read v3"),
]


class Case:
    """A job with enough rows for several files: inserts into three partitions, changes of two data files."""

    def __init__(self, job: WriteJob, version: int, folder: Path) -> None:
        self.job, self.layout = job, ROWS if job is WriteJob.ROWS else MERGE
        self.context = context(folder, specs=SPECS, version=version)
        self.files = MemoryFiles()
        for name in "ab":
            self.files.add(table([1, 2, 3], [name] * 3), spec_id=1, partition=(name,))

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.job is WriteJob.ROWS:
            for name in ["a", "b", None]:
                yield table([1, 2], [name, name]).to_batches()[0]
            return
        yield delta([(INSERT, None, None, 9, name, 1.0) for name in ["a", "b", None]], TYPES)
        yield delta([(UPDATE, 0, 0, None, "c", None), (DELETE, 0, 1, None, None, None)], TYPES)
        yield delta([(DELETE, 1, 2, None, None, None)], TYPES)

    def run(self, batches: Any = None, **more: Any) -> TaskCommit | TaskFailure:
        return run(self.job, batches or self.batches(), self.context, self.layout, self.files, **more)


@pytest.mark.parametrize(("job", "version"), JOBS)
def test_every_file_that_was_created_is_in_the_commit(tmp_path: Path, job: WriteJob, version: int) -> None:
    commit = Case(job, version, tmp_path).run()
    assert isinstance(commit, TaskCommit), commit
    assert {file.path for file in (*commit.data_files, *commit.delete_files)} == set(map(str, stored_files(tmp_path)))


@pytest.mark.parametrize(("job", "version"), JOBS)
def test_every_file_of_a_commit_says_what_it_is(tmp_path: Path, job: WriteJob, version: int) -> None:
    for file in Case(job, version, tmp_path).run().data_files:
        assert (file.file_format, file.spec_id, file.sort_order_id) == ("parquet", 1, 0)
        assert file.file_size_in_bytes == Path(file.path).stat().st_size
        assert file.record_count == file.value_counts[1]
        assert file.partition == (None,) or file.lower_bounds[2] == file.partition[0].encode()


@pytest.mark.proves("A2")
@pytest.mark.parametrize(("job", "version"), JOBS)
def test_a_task_without_rows_writes_nothing(tmp_path: Path, job: WriteJob, version: int) -> None:
    case = Case(job, version, tmp_path)
    commit = case.run(iter([next(case.batches()).slice(0, 0)]))
    assert isinstance(commit, TaskCommit), commit
    assert stored_files(tmp_path) == []
    assert (commit.data_files, commit.delete_files, commit.removed_data_files) == ((), (), ())


@pytest.mark.proves("A1")
@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("method", ["create", "write", "close"])
@pytest.mark.parametrize(("job", "version"), JOBS)
def test_a_failure_at_any_step_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: WriteJob, version: int, method: str, step: int
) -> None:
    """The n-th creation, write or close of a file fails; with fewer such steps the task succeeds."""
    calls = 0

    def failing(action):
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step + 1:
                raise OSError("no space left on device")
            return action(*args, **kwargs)

        return call

    original = output_files.OutputFileFactory.open

    class Stream:
        """A Python file whose write or close may fail."""

        def __init__(self, native: pa.NativeFile) -> None:
            self.native, self.closed = native, False
            self.write = failing(native.write) if method == "write" else native.write
            self.tell, self.flush = native.tell, native.flush
            self.close = failing(native.close) if method == "close" else native.close

        def writable(self) -> bool:
            return True

        def readable(self) -> bool:
            return False

        def seekable(self) -> bool:
            return False

    def opened(self, *args: Any, **kwargs: Any) -> output_files.OutputFile:
        file = original(self, *args, **kwargs)
        if method == "create":
            return file
        wrapped = pa.PythonFile(Stream(file.stream), mode="w")
        self._streams[file.location] = wrapped
        return output_files.OutputFile(location=file.location, stream=wrapped)

    monkeypatch.setattr(output_files.OutputFileFactory, "open", failing(opened) if method == "create" else opened)
    case = Case(job, version, tmp_path)
    commit = case.run()
    if calls <= step:
        assert isinstance(commit, TaskCommit), commit
        return
    assert isinstance(commit.error, ExecutionError)
    assert "no space left" in commit.error.message
    assert stored_files(tmp_path) == []


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize(("job", "version"), JOBS)
def test_input_that_breaks_off_leaves_no_file_and_is_tried_again(
    tmp_path: Path, job: WriteJob, version: int, after: int
) -> None:
    case = Case(job, version, tmp_path)

    def broken() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(case.batches()):
            if number == after:
                raise EOFError("the JVM is gone")
            yield batch

    with pytest.raises(EOFError):
        case.run(broken(), max_failures=4)
    assert stored_files(tmp_path) == []
    last = TaskIdentity(partition_id=3, attempt_number=3)
    failure = case.run(broken(), max_failures=4, task=last).error
    assert isinstance(failure, ExecutionError)
    assert "EOFError: the JVM is gone" in failure.message
    assert failure.context["attempts"] == 4


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_task_that_is_told_to_stop_cleans_up_and_stops(tmp_path: Path, stop: type[BaseException]) -> None:
    def stopped() -> Iterator[pa.RecordBatch]:
        yield table([1]).to_batches()[0]
        raise stop

    with pytest.raises(stop):
        run(WriteJob.ROWS, stopped(), context(tmp_path), ROWS)
    assert stored_files(tmp_path) == []


@pytest.mark.parametrize(("job", "version"), JOBS)
def test_null_in_a_required_column_is_returned_at_the_first_attempt(
    tmp_path: Path, job: WriteJob, version: int
) -> None:
    case = Case(job, version, tmp_path)
    if job is WriteJob.ROWS:
        bad = pa.record_batch([pa.nulls(1, pa.int64()), pa.array(["x"]), pa.array([1.0])], names=["v0", "v1", "v2"])
    else:
        bad = delta([(INSERT, None, None, None, "x", 1.0)], TYPES)
    commit = case.run([next(case.batches()), bad], max_failures=4)
    assert isinstance(commit.error, DataError)
    assert (commit.error.kind, commit.error.context["column"]) == (ErrorKind.NOT_NULL_VIOLATION, "id")
    assert stored_files(tmp_path) == []


def test_abort_tries_again_and_takes_a_missing_file_as_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    calls: list[str] = []

    def delete(location: str) -> None:
        calls.append(location)
        if location == "gone":
            raise FileNotFoundError(location)
        if location == "slow" and calls.count("slow") < 3:
            raise OSError("try again")
        if location == "stuck":
            raise OSError("never")

    assert delete_files(SimpleNamespace(delete=delete), ["gone", "slow", "stuck", "fine"]) == ("stuck",)
    assert (calls.count("gone"), calls.count("slow"), calls.count("stuck"), calls.count("fine")) == (1, 3, 4, 1)
    assert waits == [0.1, 0.2, 0.1, 0.2, 0.4]


def test_the_first_failure_is_reported_also_when_nothing_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: PyArrowFileIO, location: str) -> None:
        raise OSError("read only")

    monkeypatch.setattr(PyArrowFileIO, "delete", refuse)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    batches = [table([1]).to_batches()[0], pa.record_batch([pa.nulls(1, pa.int64())] * 3, names=["a", "b", "c"])]
    properties = {"write.target-file-size-bytes": "1"}
    failure = run(WriteJob.ROWS, batches, context(tmp_path, properties=properties), ROWS).error
    assert failure is not None
    assert failure.kind is ErrorKind.NOT_NULL_VIOLATION


def test_a_job_travels_to_a_worker_and_its_commit_back(tmp_path: Path) -> None:
    spec = WriterSpec(job=WriteJob.ROWS, context=context(tmp_path), layout=ROWS, max_failures=4)
    task = pickle.loads(pickle.dumps(WriteTask(spec)))
    (batch,) = task(iter(table([1, 2, 3]).to_batches()))
    assert batch.schema == REPORT_SCHEMA
    commit = report_from_bytes(batch.column(0)[0].as_py())
    assert [row["id"] for row in read_back(commit)] == [1, 2, 3]


def test_a_failure_survives_the_way_to_the_driver(tmp_path: Path) -> None:
    spec = WriterSpec(job=WriteJob.ROWS, context=context(tmp_path), layout=ROWS)
    bad = pa.record_batch([pa.nulls(1, pa.int64())] * 3, names=["a", "b", "c"])
    (batch,) = WriteTask(spec)(iter([bad]))
    failure = report_from_bytes(batch.column(0)[0].as_py()).error
    assert isinstance(failure, DmlError)
    assert "requires a value" in str(failure)


def test_the_task_is_that_of_spark_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    task = SimpleNamespace(partitionId=lambda: 5, taskAttemptId=lambda: 77, attemptNumber=lambda: 2)
    fake = SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: task))
    monkeypatch.setitem(sys.modules, "pyspark", fake)
    assert current_task() == TaskIdentity(partition_id=5, task_attempt_id=77, attempt_number=2)
    monkeypatch.delitem(sys.modules, "pyspark")
    written = {current_task(), current_task()}
    assert len(written) == 2, "names of files differ"
    assert {task.partition_id for task in written} == {DRIVER_PARTITION}
