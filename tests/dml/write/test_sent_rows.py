"""Rows that tasks send to the driver, directly or in files, and batches that the driver sends to tasks."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dml.model.write_task import SourcePart, report_from_bytes
from dml.write import sent_rows
from dml.write.output_files import TaskIdentity
from dml.write.sent_rows import BroadcastBatch, MappedBatch, PartWriter, StreamedBatch, part_columns, stream_bytes


def batch(*numbers: int, fits: bool = True) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64()), "fits": pa.array([fits] * len(numbers))})


def written(
    folder: Path | None, *batches: pa.RecordBatch, most: int = 10_000, held: int = 0, fits: str = "fits"
) -> SourcePart:
    write = PartWriter(folder=str(folder or ""), most_bytes=most, held_bytes=held, fits=fits)
    (row,) = list(write(iter(batches)))
    part = report_from_bytes(row.column(0)[0].as_py())
    assert isinstance(part, SourcePart)
    return part


def test_parts_are_mapped_as_they_were_written_also_when_the_files_are_gone(tmp_path: Path) -> None:
    parts = [written(tmp_path, batch(1, 2), batch(3)), written(tmp_path), written(tmp_path, batch(4))]
    assert all(part.fits for part in parts)
    assert [bool(part.path) for part in parts] == [True, False, True]
    (numbers,) = part_columns(parts)
    for path in tmp_path.iterdir():
        path.unlink()
    assert numbers.to_pylist() == [1, 2, 3, 4]
    assert part_columns([]) == []


@pytest.mark.parametrize(("rows", "held", "is_file"), [(10, 100, False), (13, 100, True), (13, 1000, False)])
def test_few_rows_come_without_a_file(
    tmp_path: Path, numbered: Callable[[int], None], rows: int, held: int, is_file: bool
) -> None:
    """Rows of 8 bytes and a bit, just below and just above the limit, in one batch or in several."""
    numbered(0)
    for batches in ([batch(*range(rows))], [batch(number) for number in range(rows)]):
        part = written(tmp_path, *batches, held=held)
        assert bool(part.path) is is_file
        assert bool(part.rows) is not is_file
        assert part_columns([part])[0].to_pylist() == list(range(rows))


def test_tasks_stop_where_one_of_them_has_found_too_much(tmp_path: Path) -> None:
    assert written(tmp_path, batch(1)).fits
    taken = iter([batch(2), batch(*range(10_000)), batch(3)])
    assert not written(tmp_path, *taken, most=5_000).fits
    assert not written(tmp_path, batch(4)).fits


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A function that sets the number of the current task."""

    def number(partition_id: int) -> None:
        monkeypatch.setattr(sent_rows, "current_task", lambda: TaskIdentity(partition_id=partition_id))

    return number


def test_tasks_without_a_folder_return_their_share(numbered: Any) -> None:
    """Evenly distributed rows fit if all of them do together; the total for many tasks stays small."""
    for tasks in (1, 4, 16):
        rows = batch(*range(64 * 16 // tasks))
        for most, fits in ((tasks * rows.nbytes, True), (tasks * rows.nbytes - 1, False)):
            found = []
            for task in range(tasks):
                numbered(task)
                found.append(written(None, rows, most=most))
            assert all(part.fits for part in found) is fits
            assert not any(part.path for part in found)
            if fits:
                assert len(part_columns(found)[0]) == 64 * 16
    numbered(199)
    assert not written(None, batch(*range(10)), most=10_000).fits


def test_a_row_that_is_too_long_ends_it(tmp_path: Path) -> None:
    assert not written(tmp_path, batch(1), batch(2, fits=False)).fits
    assert not written(None, batch(1), batch(2, fits=False)).fits
    (tmp_path / "other").mkdir()
    assert written(tmp_path / "other", batch(2, fits=False), fits="").fits


class UnreadableVariable:
    """A variable that hangs when the driver reads it, as PySpark's does with encryption."""

    @property
    def value(self) -> bytes:
        raise AssertionError("the driver read the variable")

    def __reduce__(self) -> tuple[type["FetchedVariable"], tuple[()]]:
        return FetchedVariable, ()


class FetchedVariable:
    """The same variable on an executor."""

    value = stream_bytes([batch(1, 2, 3)], batch(1).schema)


def test_only_executors_read_a_broadcast_variable() -> None:
    sent = BroadcastBatch(UnreadableVariable(), batch(1, 2, 3))
    assert sent.batch().equals(batch(1, 2, 3))
    fetched = pickle.loads(pickle.dumps(sent))
    assert fetched.held is None
    assert fetched.batch().equals(batch(1, 2, 3))


def test_a_batch_on_each_way(tmp_path: Path) -> None:
    class Variable:
        value = stream_bytes([batch(1, 2, 3)], batch(1).schema)

    assert MappedBatch.write(str(tmp_path / "one.arrow"), batch(1, 2, 3)).batch().equals(batch(1, 2, 3))
    assert StreamedBatch.of(batch(1, 2, 3)).batch().equals(batch(1, 2, 3))
    assert BroadcastBatch(Variable()).batch().equals(batch(1, 2, 3))
    assert MappedBatch.write(str(tmp_path / "none.arrow"), batch()).batch().num_rows == 0
    assert StreamedBatch.of(batch()).batch().num_rows == 0
