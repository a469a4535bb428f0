"""`FileRewriter` through whole tasks: rows dropped, patched and carried, against a model in plain Python."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType, UUIDType

from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import ErrorKind
from dml.model.columns import DeltaLayout, RowOperation
from dml.model.write_task import TaskCommit, TaskFailure
from dml.write.delta_rows import ChangeCursor, DeltaCounts, FileDelta, RowBuilder, delta_runs
from dml.write.file_layout import file_layout
from dml.write.writer_spec import WriteJob
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
COPY = WriteJob.COPY_ON_WRITE
DELETES = DeltaLayout()
NAMES = DeltaLayout(value_ids=(2,), assigned_ids=(2,))
MERGE = DeltaLayout(value_ids=(1, 2, 3), assigned_ids=(2,), insert_ids=(1, 2, 3), check_cardinality=True)
MERGE_TYPES = (pa.int64(), pa.string(), pa.float64())


def test_deleted_rows_are_dropped_and_the_rest_is_carried(tmp_path: Path) -> None:
    files = MemoryFiles()
    path = files.add(table(list(range(10))))
    commit = run(COPY, [delta([(DELETE, 0, 3), (DELETE, 0, 8)])], context(tmp_path), DELETES, files)
    assert [row["id"] for row in read_back(commit)] == [0, 1, 2, 4, 5, 6, 7, 9]
    assert commit.removed_data_files == (path,)
    assert (commit.metrics.rows_deleted, commit.metrics.rows_carried) == (2, 8)


def test_updated_rows_take_assigned_columns_from_the_delta_and_others_from_the_file(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([10, 11, 12]))
    commit = run(COPY, [delta([(UPDATE, 0, 1, "new")], (pa.large_string(),))], context(tmp_path), NAMES, files)
    assert read_back(commit) == [
        {"id": 10, "name": "n10", "amount": 5.0},
        {"id": 11, "name": "new", "amount": 5.5},
        {"id": 12, "name": "n12", "amount": 6.0},
    ]


def test_a_file_that_loses_every_row_is_removed_and_nothing_is_written(tmp_path: Path) -> None:
    files = MemoryFiles()
    path = files.add(table([1, 2]))
    commit = run(COPY, [delta([(DELETE, 0, 0), (DELETE, 0, 1)])], context(tmp_path), DELETES, files)
    assert (commit.removed_data_files, commit.data_files, stored_files(tmp_path)) == ((path,), (), [])


def test_a_file_whose_rows_are_only_matched_is_not_even_read(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2]))
    commit = run(COPY, [delta([(MATCHED, 0, 0), (MATCHED, 0, 1)])], context(tmp_path), DELETES, files)
    assert (commit.removed_data_files, commit.data_files, files.batches_read) == ((), (), 0)
    assert commit.metrics.rows_matched == 2


def test_rows_deleted_before_do_not_come_back(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table(list(range(9))), deleted=[0, 5, 8])
    commit = run(COPY, [delta([(UPDATE, 0, 4, "x")], (pa.string(),))], context(tmp_path), NAMES, files)
    assert [row["id"] for row in read_back(commit)] == [1, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("inserts_first", [True, False])
def test_inserted_rows_come_with_the_rewritten_ones(tmp_path: Path, inserts_first: bool) -> None:
    files = MemoryFiles()
    files.add(table([1]))
    inserts, changes = [(INSERT, None, None, 7, "seven", None)], [(UPDATE, 0, 0, None, "one", None)]
    rows = [*inserts, *changes] if inserts_first else [*changes, *inserts]
    commit = run(COPY, [delta(rows, MERGE_TYPES)], context(tmp_path), MERGE, files)
    assert sorted((row["id"], row["name"], row["amount"]) for row in read_back(commit)) == [
        (1, "one", 0.5),
        (7, "seven", None),
    ]


@pytest.mark.parametrize("rows", [[(MATCHED, 0, 1), (UPDATE, 0, 1)], [(UPDATE, 0, 1), (UPDATE, 0, 1)]])
@pytest.mark.parametrize("split", [False, True], ids=["one batch", "two batches"])
def test_two_source_rows_for_one_target_row_fail_and_leave_no_file(tmp_path: Path, rows: list, split: bool) -> None:
    files = MemoryFiles()
    files.add(table([1, 2, 3]))
    files.add(table([4]))
    full = [(INSERT, None, None, 9, "n", 1.0), *((*row, None, "x", None) for row in rows)]
    batches = [delta([row], MERGE_TYPES) for row in full] if split else [delta(full, MERGE_TYPES)]
    commit = run(COPY, batches, context(tmp_path), MERGE, files)
    assert isinstance(commit, TaskFailure)
    assert commit.error.kind is ErrorKind.CARDINALITY_VIOLATION
    assert stored_files(tmp_path) == []


def test_without_the_check_a_position_is_changed_once_by_its_first_change(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2, 3]))
    rows = [(MATCHED, 0, 0, "m"), (UPDATE, 0, 0, "first"), (UPDATE, 0, 0, "second"), (DELETE, 0, 2, None)]
    batches = [delta([row], (pa.string(),)) for row in [*rows, (DELETE, 0, 2, None)]]
    commit = run(COPY, batches, context(tmp_path), NAMES, files)
    assert [(row["id"], row["name"]) for row in read_back(commit)] == [(1, "first"), (2, "n2")]
    assert (commit.metrics.rows_matched, commit.metrics.rows_updated, commit.metrics.rows_deleted) == (2, 1, 1)


@pytest.mark.proves("L3", "L4")
def test_carried_rows_keep_both_lineage_values_and_updated_rows_their_id(tmp_path: Path) -> None:
    """Specification, "Row Lineage": the sequence number of an updated row is inherited from the new file."""
    files = MemoryFiles()
    rows = table([1, 2, 3])
    files.add(rows.append_column(ROW_ID, pa.array([100, 55, 102])).append_column(SEQUENCE, pa.array([7, 3, 7])))
    batch = delta([(UPDATE, 0, 1, None, "x", None), (INSERT, None, None, 9, "y", None)], MERGE_TYPES)
    commit = run(COPY, [batch], context(tmp_path, version=3, row_lineage=True), MERGE, files)
    assert len(commit.data_files) == 1, "rows with stored ids and rows without are in one file"
    lineage = {row["id"]: (row[ROW_ID], row[SEQUENCE]) for row in read_back(commit)}
    assert lineage == {1: (100, 7), 2: (55, None), 3: (102, 7), 9: (None, None)}


def test_survivors_of_an_older_spec_go_into_partitions_of_the_current_one(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2, 3], ["a", "b", "a"]))
    commit = run(COPY, [delta([(DELETE, 0, 0)])], context(tmp_path, specs=(UNPARTITIONED, BY_NAME)), DELETES, files)
    assert {(file.spec_id, file.partition, file.record_count) for file in commit.data_files} == {
        (1, ("b",), 1),
        (1, ("a",), 1),
    }


def test_an_update_of_the_partition_column_moves_the_row(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2, 3], ["a", "a", "a"]), spec_id=1, partition=("a",))
    batch = delta([(UPDATE, 0, 1, "b")], (pa.string(),))
    commit = run(COPY, [batch], context(tmp_path, specs=(UNPARTITIONED, BY_NAME)), NAMES, files)
    assert {file.partition: file.record_count for file in commit.data_files} == {("a",): 2, ("b",): 1}


def test_rows_of_a_file_of_the_current_spec_stay_in_its_partition_unseen(tmp_path: Path) -> None:
    """Its partition is known, so no transform is computed: here the metadata differs from the rows on purpose."""
    files = MemoryFiles()
    files.add(table([1, 2], ["x", "y"]), spec_id=1, partition=("a",))
    commit = run(COPY, [delta([(DELETE, 0, 0)])], context(tmp_path, specs=(UNPARTITIONED, BY_NAME)), DELETES, files)
    assert [file.partition for file in commit.data_files] == [("a",)]
    assert "/name=a/" in commit.data_files[0].path


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([(DELETE, 0, 2), (DELETE, 0, 1)], "not sorted by position"),
        ([(DELETE, 0, 0), (DELETE, 1, 0), (DELETE, 0, 1)], "not contiguous"),
        ([(DELETE, 0, 99)], "no such row"),
        ([(DELETE, 0, 1)], "deleted before"),
        ([(INSERT, 0, 2)], "inserted delta row"),
        ([(DELETE, None, None)], "no data file"),
        ([(DELETE, 0, None)], "not sorted by position"),
    ],
)
def test_a_delta_that_does_not_fit_the_files_is_an_error_and_never_wrong_rows(
    tmp_path: Path, rows: list, word: str
) -> None:
    files = MemoryFiles()
    files.add(table([1, 2, 3]), deleted=[1])
    files.add(table([4, 5]))
    commit = run(COPY, [delta(rows)], context(tmp_path), DELETES, files)
    assert isinstance(commit, TaskFailure)
    assert word in commit.error.message
    assert stored_files(tmp_path) == []


def test_batches_without_changes_share_their_buffers_with_the_writer(tmp_path: Path) -> None:
    """Nothing is copied on the way: the row builder gives back the very arrays."""
    layout = file_layout(context(tmp_path), row_lineage=False)
    batch = table(list(range(100))).to_batches()[0]
    built = RowBuilder(layout, DELETES).build_carried(batch.columns)
    for before, after in zip(batch.columns, built.columns, strict=True):
        assert [b and b.address for b in before.buffers()] == [b and b.address for b in after.buffers()]


def test_a_large_delta_is_consumed_as_the_file_is_read() -> None:
    """Asking for the changes of the first rows takes no more batches than these need."""
    taken = 0

    def batches():
        nonlocal taken
        for start in range(0, 1000, 10):
            taken += 1
            yield delta([(DELETE, 0, position) for position in range(start, start + 10)])

    for file_delta in delta_runs(batches(), DELETES, DeltaCounts()):
        assert isinstance(file_delta, FileDelta)
        cursor = ChangeCursor(file_delta.changes)
        changes = cursor.before(25)
        assert changes is not None
        assert changes.positions.tolist() == list(range(25))
        assert taken <= 4
        assert cursor.next_position == 25
        rest = cursor.before(10**9)
        assert rest is not None
        assert len(rest) == 975
        assert cursor.exhausted()


@st.composite
def statements(draw):
    """Some files with deleted rows, and a delta for them."""
    files = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(1, 12))
        dead = draw(st.sets(st.integers(0, rows - 1)))
        live = [position for position in range(rows) if position not in dead]
        operations = {position: draw(st.sampled_from([None, MATCHED, DELETE, UPDATE])) for position in live}
        files.append((rows, sorted(dead), operations))
    return files, draw(st.integers(0, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 7)), draw(st.booleans())


@given(statements())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_task_gives_the_rows_that_a_plain_model_gives(tmp_path_factory: pytest.TempPathFactory, case) -> None:
    """All mixtures of files, deleted rows, changes, inserts, batch sizes of the file and of the delta, partitions."""
    described, inserted, file_batch, delta_batch, partitioned = case
    folder = tmp_path_factory.mktemp("model")
    files, rows, expected, removed = MemoryFiles(batch_rows=file_batch), [], [], set()
    for ordinal, (count, dead, operations) in enumerate(described):
        ids = [ordinal * 100 + position for position in range(count)]
        names = [["a", "b", None][value % 3] for value in ids]
        path = files.add(table(ids, names), deleted=dead)
        changed = any(operation in {DELETE, UPDATE} for operation in operations.values())
        if changed:
            removed.add(path)
        for position, operation in operations.items():
            if operation is not None:
                rows.append((operation, ordinal, position, None, f"new{position % 2}", None))
            if changed and operation is not DELETE:
                name = f"new{position % 2}" if operation is UPDATE else names[position]
                expected.append((ids[position], name, ids[position] / 2))
    for number in range(inserted):
        rows.append((INSERT, None, None, 9000 + number, None, 1.0))
        expected.append((9000 + number, None, 1.0))
    batches = [delta(rows[start : start + delta_batch], MERGE_TYPES) for start in range(0, len(rows), delta_batch)]
    specs = (UNPARTITIONED, BY_NAME) if partitioned else (UNPARTITIONED,)
    commit = run(COPY, batches, context(folder, specs=specs), MERGE, files)
    assert isinstance(commit, TaskCommit)
    assert sorted(map(repr, ((r["id"], r["name"], r["amount"]) for r in read_back(commit)))) == sorted(
        map(repr, expected)
    )
    assert set(commit.removed_data_files) == removed
    assert sum(file.record_count for file in commit.data_files) == len(expected)
    assert {str(path) for path in stored_files(folder)} == {file.path for file in commit.data_files}


def test_nested_and_fixed_columns_are_patched(tmp_path: Path) -> None:
    """Types that Arrow cannot replace in place: structs, lists, UUIDs."""
    schema = Schema(
        NestedField(1, "u", UUIDType(), required=False),
        NestedField(2, "s", StructType(NestedField(4, "x", LongType(), required=True)), required=False),
        NestedField(3, "l", ListType(5, StringType(), element_required=False), required=False),
    )
    old, new = uuid.UUID(int=1), uuid.UUID(int=2**127)
    rows = pa.table(
        {
            "u": pa.array([old.bytes] * 3, pa.uuid()),
            "s": pa.array([{"x": 1}, None, {"x": 3}], pa.struct([("x", pa.int64())])),
            "l": pa.array([["a"], None, []], pa.list_(pa.string())),
        }
    )
    files = MemoryFiles()
    files.add(rows)
    layout = DeltaLayout(value_ids=(1, 2, 3), assigned_ids=(1, 2, 3))
    types = (pa.string(), pa.struct([("x", pa.int64())]), pa.list_(pa.string()))
    batch = delta([(UPDATE, 0, 1, str(new), {"x": 9}, ["z", None]), (UPDATE, 0, 2, None, None, None)], types)
    commit = run(COPY, [batch], context(tmp_path, schema=schema), layout, files)
    assert read_back(commit) == [
        {"u": old, "s": {"x": 1}, "l": ["a"]},
        {"u": new, "s": {"x": 9}, "l": ["z", None]},
        {"u": None, "s": None, "l": None},
    ]


def test_the_index_of_deleted_rows_is_that_of_the_reader() -> None:
    """A guard for the builder: its masks are those of `PositionDeleteIndex`."""
    assert PositionDeleteIndex.from_positions([1]).deleted_mask(0, 3).tolist() == [False, True, False]
