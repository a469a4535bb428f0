"""Rows in files that tasks leave to each other and to the driver."""

from pathlib import Path

import pyarrow as pa

from dml.write.source_parts import MappedBatch, PartWriter, mapped_columns


def batch(*numbers: int, fits: bool = True) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64()), "fits": pa.array([fits] * len(numbers))})


def written(folder: Path, *batches: pa.RecordBatch, most_bytes: int = 10_000, fits: str = "fits") -> tuple[str, bool]:
    (row,) = list(PartWriter(folder=str(folder), most_bytes=most_bytes, fits=fits)(iter(batches)))
    return row.column("path")[0].as_py(), row.column("fits")[0].as_py()


def test_parts_are_mapped_as_they_were_written_also_when_the_files_are_gone(tmp_path: Path) -> None:
    parts = [written(tmp_path, batch(1, 2), batch(3)), written(tmp_path), written(tmp_path, batch(4))]
    assert [fits for _, fits in parts] == [True, True, True]
    assert parts[1][0] == ""
    (numbers,) = mapped_columns(path for path, _ in parts if path)
    for path in tmp_path.iterdir():
        path.unlink()
    assert numbers.to_pylist() == [1, 2, 3, 4]
    assert mapped_columns([]) == []


def test_tasks_stop_where_one_of_them_has_found_too_much(tmp_path: Path) -> None:
    assert written(tmp_path, batch(1))[1]
    taken = iter([batch(2), batch(*range(10_000)), batch(3)])
    assert not written(tmp_path, *taken, most_bytes=5_000)[1]
    assert not written(tmp_path, batch(4))[1]


def test_a_row_that_is_too_long_ends_it(tmp_path: Path) -> None:
    assert not written(tmp_path, batch(1), batch(2, fits=False))[1]
    (tmp_path / "other").mkdir()
    assert written(tmp_path / "other", batch(2, fits=False), fits="")[1]


def test_a_batch_in_a_file(tmp_path: Path) -> None:
    sent = MappedBatch.write(str(tmp_path / "one.arrow"), batch(1, 2, 3))
    assert sent.batch().equals(batch(1, 2, 3))
    assert MappedBatch.write(str(tmp_path / "none.arrow"), batch()).batch().num_rows == 0
