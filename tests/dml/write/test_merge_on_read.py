"""`RowMarker` and the writers of deletes: position delete files (v2) and deletion vectors (v3)."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.types import GeometryType, LongType, NestedField

from dml.deletes.deletion_vector import decode
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import ErrorKind, NotSupportedError
from dml.model.columns import DeltaLayout, RowOperation
from dml.model.manifest import FileContent
from dml.model.scan_task import DeleteFileRef
from dml.model.write_task import TaskCommit, TaskFailure
from dml.write.delta_rows import RowChanges
from dml.write.delta_writer import concat_changes
from dml.write.writer_spec import WriteJob, WriterSpec, check_writable
from tests.dml.write.builders import (
    BY_NAME,
    ROW_ID,
    SEQUENCE,
    UNPARTITIONED,
    MemoryFiles,
    context,
    delta,
    read_back,
    run,
    stored_files,
    table,
)

MATCHED, DELETE, UPDATE, INSERT = RowOperation.MATCHED, RowOperation.DELETE, RowOperation.UPDATE, RowOperation.INSERT
READ = WriteJob.MERGE_ON_READ
DELETES = DeltaLayout()
NAMES = DeltaLayout(value_ids=(2,), assigned_ids=(2,))
MERGE = DeltaLayout(value_ids=(1, 2, 3), assigned_ids=(2,), insert_ids=(1, 2, 3), check_cardinality=True)
ALL = DeltaLayout(value_ids=(1, 2, 3), assigned_ids=(1, 2, 3))
MERGE_TYPES = (pa.int64(), pa.string(), pa.float64())
PARTITION_GRANULARITY = {"write.delete.granularity": "partition"}


def positions(commit: TaskCommit) -> dict[str, list[int]]:
    """The deleted positions by data file, whatever holds them."""
    assert isinstance(commit, TaskCommit), commit
    result: dict[str, list[int]] = {}
    for file in commit.delete_files:
        if file.file_format == "puffin":
            data = Path(file.path).read_bytes()
            start, length, name = file.content_offset, file.content_size_in_bytes, file.referenced_data_file
            assert start is not None
            assert length is not None
            assert name is not None
            index = decode(data[start : start + length], file=file.path, cardinality=file.record_count)
            result[name] = index.to_numpy().tolist()
            continue
        for row in pq.read_table(file.path, partitioning=None).to_pylist():
            result.setdefault(row["file_path"], []).append(row["pos"])
    return result


def deletion_vector(path: str = "old.puffin", data_file: str | None = None) -> DeleteFileRef:
    return DeleteFileRef(
        path=path,
        file_format="puffin",
        content_offset=4,
        content_size_in_bytes=40,
        record_count=1,
        file_size_in_bytes=100,
        referenced_data_file=data_file,
        data_sequence_number=1,
    )


def position_deletes(path: str, data_file: str | None) -> DeleteFileRef:
    return DeleteFileRef(
        path=path,
        file_format="parquet",
        record_count=1,
        file_size_in_bytes=100,
        referenced_data_file=data_file,
        data_sequence_number=1,
    )


@pytest.mark.parametrize("version", [2, 3])
def test_deleted_and_updated_rows_are_marked_and_new_values_written(tmp_path: Path, version: int) -> None:
    files = MemoryFiles()
    first, second = files.add(table([1, 2, 3])), files.add(table([4, 5]))
    rows = [
        (INSERT, None, None, 9, "nine", 9.0),
        (UPDATE, 0, 0, None, "x", None),
        (MATCHED, 0, 1, None, None, None),
        (DELETE, 0, 2, None, None, None),
        (DELETE, 1, 1, None, None, None),
    ]
    commit = run(READ, [delta(rows, MERGE_TYPES)], context(tmp_path, version=version), MERGE, files)
    assert positions(commit) == {first: [0, 2], second: [1]}
    assert sorted((row["id"], row["name"], row["amount"]) for row in read_back(commit)) == [
        (1, "x", 0.5),
        (9, "nine", 9.0),
    ]
    assert set(commit.referenced_data_files) == {first, second}
    assert commit.removed_data_files == ()
    assert commit.rewritten_delete_files == ()
    metrics = commit.metrics
    assert (metrics.rows_matched, metrics.rows_deleted, metrics.rows_updated, metrics.rows_inserted) == (4, 2, 1, 1)


@pytest.mark.parametrize("version", [2, 3])
def test_only_touched_parts_of_a_file_and_unassigned_columns_are_read(tmp_path: Path, version: int) -> None:
    files = MemoryFiles(batch_rows=4)
    files.add(table(list(range(40))))
    batch = delta([(UPDATE, 0, 1, "a"), (DELETE, 0, 20, None), (UPDATE, 0, 39, "b")], (pa.string(),))
    commit = run(READ, [batch], context(tmp_path, version=version), NAMES, files)
    assert [(row["id"], row["name"]) for row in read_back(commit)] == [(1, "a"), (39, "b")]
    assert (files.batches_read, files.columns_read) == (2, [(1, 3)])


def test_a_file_is_not_read_when_every_column_is_assigned(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2]))
    commit = run(READ, [delta([(UPDATE, 0, 1, 8, "x", 1.0)], MERGE_TYPES)], context(tmp_path), ALL, files)
    assert read_back(commit) == [{"id": 8, "name": "x", "amount": 1.0}]
    assert files.columns_read == []


def test_with_row_lineage_only_the_ids_are_read_when_every_column_is_assigned(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2]).append_column(ROW_ID, pa.array([70, 71])))
    batch = delta([(UPDATE, 0, 1, 8, "x", 1.0)], MERGE_TYPES)
    commit = run(READ, [batch], context(tmp_path, version=3, row_lineage=True), ALL, files)
    assert read_back(commit) == [{"id": 8, "name": "x", "amount": 1.0, ROW_ID: 71, SEQUENCE: None}]
    assert files.columns_read == [()]


def test_many_updates_of_a_file_are_read_in_pieces() -> None:
    """Memory is bounded: updates are gathered up to a number of rows."""

    def change(start: int) -> RowChanges:
        numbers = np.arange(start, start + 10)
        values = pa.record_batch([pa.array(numbers)], names=["v0"])
        return RowChanges(positions=numbers, operations=np.full(10, UPDATE, np.int32), values=values)

    parts = list(concat_changes((change(start) for start in range(0, 100, 10)), 30))
    assert [len(part) for part in parts] == [30, 30, 30, 10]
    assert np.concatenate([part.positions for part in parts]).tolist() == list(range(100))


@pytest.mark.parametrize("version", [2, 3])
def test_two_source_rows_for_one_target_row_fail_and_leave_no_file(tmp_path: Path, version: int) -> None:
    files = MemoryFiles()
    files.add(table([1]))
    files.add(table([2]))
    rows = [(DELETE, 0, 0, None, None, None), (MATCHED, 1, 0, None, None, None), (DELETE, 1, 0, None, None, None)]
    commit = run(READ, [delta(rows, MERGE_TYPES)], context(tmp_path, version=version), MERGE, files)
    assert isinstance(commit, TaskFailure)
    assert commit.error.kind is ErrorKind.CARDINALITY_VIOLATION
    assert stored_files(tmp_path) == []


@pytest.mark.proves("P2")
@pytest.mark.parametrize("version", [2, 3])
def test_a_position_is_deleted_once_however_many_source_rows_say_so(tmp_path: Path, version: int) -> None:
    files = MemoryFiles()
    path = files.add(table([1, 2]))
    batches = [delta([(DELETE, 0, 1), (DELETE, 0, 1)]), delta([(DELETE, 0, 1)])]
    commit = run(READ, batches, context(tmp_path, version=version), DELETES, files)
    assert positions(commit) == {path: [1]}
    assert commit.delete_files[0].record_count == commit.metrics.rows_deleted == 1


@pytest.mark.proves("A2", "DV8")
@pytest.mark.parametrize("version", [2, 3])
def test_a_delta_that_only_matches_writes_nothing(tmp_path: Path, version: int) -> None:
    files = MemoryFiles()
    files.add(table([1, 2]))
    commit = run(READ, [delta([(MATCHED, 0, 1)])], context(tmp_path, version=version), DELETES, files)
    assert (commit.delete_files, commit.data_files, stored_files(tmp_path)) == ((), (), [])


@pytest.mark.proves("P1", "P2", "P3", "P4", "P6")
def test_position_delete_files_are_as_the_specification_has_them(tmp_path: Path) -> None:
    """Field ids, requiredness, whole bounds, the spec and partition of the data file."""
    files = MemoryFiles()
    path = files.add(table([1, 2, 3]), spec_id=1, partition=("a b",))
    specs = (UNPARTITIONED, BY_NAME, UNPARTITIONED.model_copy(update={"spec_id": 2}))
    commit = run(READ, [delta([(DELETE, 0, 0), (DELETE, 0, 2)])], context(tmp_path, specs=specs), DELETES, files)
    (file,) = commit.delete_files
    assert (file.content, file.spec_id, file.partition) == (FileContent.POSITION_DELETES, 1, ("a b",))
    assert file.path.endswith("-deletes.parquet")
    assert "/name=a+b/" in file.path
    assert (file.record_count, file.sort_order_id, file.referenced_data_file) == (2, None, path)
    assert file.lower_bounds == {2147483546: path.encode(), 2147483545: struct.pack("<q", 0)}
    assert file.upper_bounds == {2147483546: path.encode(), 2147483545: struct.pack("<q", 2)}
    assert file.file_size_in_bytes == Path(file.path).stat().st_size
    fields = [(f.name, f.nullable, f.metadata[b"PARQUET:field_id"]) for f in pq.read_schema(file.path)]
    assert fields == [("file_path", False, b"2147483546"), ("pos", False, b"2147483545")]
    assert pq.read_metadata(file.path).metadata[b"delete-type"] == b"position"


def test_delete_files_may_have_a_codec_of_their_own(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2]))
    write = context(tmp_path, properties={"write.delete.parquet.compression-codec": "snappy"})
    commit = run(READ, [delta([(DELETE, 0, 0)])], write, DELETES, files)
    assert pq.read_metadata(commit.delete_files[0].path).row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.proves("P8")
def test_file_granularity_takes_over_older_deletes_of_the_file_alone(tmp_path: Path) -> None:
    files = MemoryFiles()
    path = files.add(
        table([1, 2, 3, 4]),
        deleted=[0, 3],
        position_deletes=(
            position_deletes("mine.parquet", "file:/old/0.parquet"),
            position_deletes("all.parquet", None),
        ),
    )
    files.files[0].existing["mine.parquet"] = PositionDeleteIndex.from_positions([3])
    commit = run(READ, [delta([(DELETE, 0, 1)])], context(tmp_path), DELETES, files)
    assert positions(commit) == {path: [1, 3]}
    assert commit.rewritten_delete_files == (("mine.parquet", None, None),)


@pytest.mark.proves("P2", "P4", "P6", "P7")
def test_partition_granularity_writes_one_sorted_file_for_a_partition(tmp_path: Path) -> None:
    files = MemoryFiles()
    paths = [files.add(table([1, 2, 3]), spec_id=1, partition=(name,)) for name in "aba"]
    rows = [(DELETE, 0, 0), (DELETE, 0, 2), (DELETE, 1, 1), (DELETE, 2, 1)]
    write = context(tmp_path, specs=(UNPARTITIONED, BY_NAME), properties=PARTITION_GRANULARITY)
    commit = run(READ, [delta(rows)], write, DELETES, files)
    by_partition = {file.partition: file for file in commit.delete_files}
    assert set(by_partition) == {("a",), ("b",)}
    both = by_partition["a",]
    assert (both.record_count, both.lower_bounds, both.upper_bounds, both.referenced_data_file) == (3, {}, {}, None)
    assert [tuple(row.values()) for row in pq.read_table(both.path, partitioning=None).to_pylist()] == [
        (paths[0], 0),
        (paths[0], 2),
        (paths[2], 1),
    ]
    assert by_partition["b",].referenced_data_file == paths[1]


@pytest.mark.proves("P9")
def test_partition_granularity_leaves_older_delete_files_alone(tmp_path: Path) -> None:
    """Those of the file alone as well as those of the partition: what they delete is not written again."""
    files = MemoryFiles()
    path = files.add(
        table([1, 2, 3, 4]),
        deleted=[0, 3],
        position_deletes=(
            position_deletes("mine.parquet", "file:/old/0.parquet"),
            position_deletes("all.parquet", None),
        ),
    )
    files.files[0].existing["mine.parquet"] = PositionDeleteIndex.from_positions([3])
    write = context(tmp_path, properties=PARTITION_GRANULARITY)
    commit = run(READ, [delta([(DELETE, 0, 1)])], write, DELETES, files)
    assert positions(commit) == {path: [1]}
    assert commit.rewritten_delete_files == ()


@pytest.mark.proves("F5", "P3")
def test_position_delete_files_roll_at_their_target_size(tmp_path: Path) -> None:
    files = MemoryFiles()
    path = files.add(table(list(range(2500))))
    write = context(tmp_path, properties={"write.delete.target-file-size-bytes": "1"})
    commit = run(READ, [delta([(DELETE, 0, position) for position in range(2500)])], write, DELETES, files)
    assert [file.record_count for file in commit.delete_files] == [1000, 1000, 500]
    assert positions(commit) == {path: list(range(2500))}


@pytest.mark.proves("DV4", "DV8")
def test_deletion_vectors_of_a_task_share_one_puffin_in_the_data_root(tmp_path: Path) -> None:
    files = MemoryFiles()
    paths = [files.add(table([1, 2]), spec_id=1, partition=(name,)) for name in "ab"]
    write = context(tmp_path, specs=(UNPARTITIONED, BY_NAME), version=3)
    commit = run(READ, [delta([(DELETE, 0, 0), (DELETE, 1, 1)])], write, DELETES, files)
    (puffin,) = stored_files(tmp_path)
    assert {file.path for file in commit.delete_files} == {str(puffin)}
    assert puffin.parent == tmp_path / "data"
    assert puffin.name.endswith("-00001-deletes.puffin")
    footer = PuffinFile(puffin.read_bytes()).footer
    for path, name, file, blob in zip(paths, "ab", commit.delete_files, footer.blobs, strict=True):
        assert (file.referenced_data_file, file.partition, file.spec_id) == (path, (name,), 1)
        assert (file.content_offset, file.content_size_in_bytes) == (blob.offset, blob.length)
        assert file.file_size_in_bytes == puffin.stat().st_size
        assert blob.properties == {"referenced-data-file": path, "cardinality": "1"}
        assert file.lower_bounds == file.value_counts == {}
        assert file.sort_order_id is None


@pytest.mark.proves("DV2")
def test_a_new_deletion_vector_holds_and_replaces_the_old_one(tmp_path: Path) -> None:
    files = MemoryFiles()
    path = files.add(table([1, 2, 3]), deleted=[2], deletion_vector=deletion_vector())
    files.files[0].existing["old.puffin"] = PositionDeleteIndex.from_positions([2])
    commit = run(READ, [delta([(DELETE, 0, 0)])], context(tmp_path, version=3), DELETES, files)
    assert positions(commit) == {path: [0, 2]}
    assert commit.rewritten_delete_files == (("old.puffin", 4, 40),)


@pytest.mark.proves("DV2", "DV3")
def test_the_first_deletion_vector_after_an_upgrade_holds_all_older_deletes(tmp_path: Path) -> None:
    """Files for this data file alone are replaced; those for several stay, as others need them."""
    files = MemoryFiles()
    path = files.add(
        table([1, 2, 3, 4]),
        deleted=[0, 3],
        position_deletes=(
            position_deletes("mine.parquet", "file:/old/0.parquet"),
            position_deletes("all.parquet", None),
        ),
    )
    files.files[0].existing["mine.parquet"] = PositionDeleteIndex.from_positions([3])
    files.files[0].existing["all.parquet"] = PositionDeleteIndex.from_positions([0])
    commit = run(READ, [delta([(DELETE, 0, 1)])], context(tmp_path, version=3), DELETES, files)
    assert positions(commit) == {path: [0, 1, 3]}
    assert commit.rewritten_delete_files == (("mine.parquet", None, None),)


@pytest.mark.proves("P6")
def test_updated_rows_go_to_the_current_partition_and_their_deletes_to_the_old_one(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2], ["a", "a"]), spec_id=1, partition=("a",))
    specs = (UNPARTITIONED, BY_NAME)
    commit = run(READ, [delta([(UPDATE, 0, 0, "b")], (pa.string(),))], context(tmp_path, specs=specs), NAMES, files)
    assert [file.partition for file in commit.data_files] == [("b",)]
    assert [file.partition for file in commit.delete_files] == [("a",)]


def test_a_table_with_a_column_that_cannot_be_written_can_be_deleted_from(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "g", GeometryType(), required=False)
    )
    files = MemoryFiles()
    path = files.add(table([1, 2]))
    write = context(tmp_path, schema=schema, version=3, properties={"write.format.default": "orc"})
    check_writable(WriterSpec(job=READ, context=write, layout=DELETES))
    assert positions(run(READ, [delta([(DELETE, 0, 1)])], write, DELETES, files)) == {path: [1]}
    with pytest.raises(NotSupportedError, match="geometries are written into Parquet files only, not into ORC"):
        check_writable(WriterSpec(job=READ, context=write, layout=DeltaLayout(value_ids=(1,), assigned_ids=(1,))))
