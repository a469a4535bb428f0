"""Position delete files as Arrow tables."""

import io
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml import limits
from dml.deletes.position_delete_file import SCHEMA, bounds, positions_by_file, table_of
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CorruptFileError

PATHS = st.sampled_from(
    ["s3://b/a.parquet", "s3://b/b.parquet", "s3://b/ü.parquet", "s3://b/𝄞.parquet", "s3://b/\uffff"]
)
ROWS = st.lists(st.tuples(PATHS, st.integers(0, 2**40)), max_size=40)


def by_file(rows):
    expected: dict[str, list[int]] = {}
    for path, position in rows:
        expected.setdefault(path, []).append(position)
    return expected


def batch_of(rows, path_type=None, position_type=None):
    paths, positions = [row[0] for row in rows], [row[1] for row in rows]
    return pa.record_batch(
        [pa.array(paths, path_type or pa.string()), pa.array(positions, position_type or pa.int64())],
        ["file_path", "pos"],
    )


def read(batch):
    return [(path, positions.tolist()) for path, positions in positions_by_file(batch, file="pd.parquet")]


@pytest.mark.parametrize("path_type", [pa.string(), pa.large_string(), pa.string_view()])
@given(rows=ROWS)
def test_positions_come_by_file_in_the_order_of_the_rows(path_type, rows):
    batch = batch_of(rows, path_type)
    assert read(batch) == list(by_file(rows).items())
    half = len(rows) // 2
    assert read(pa.Table.from_batches([batch.slice(0, half), batch.slice(half)])) == list(by_file(rows).items())


@given(ROWS)
def test_dictionary_encoded_paths_are_read(rows):
    batch = batch_of(rows)
    encoded = pa.record_batch([batch.column(0).dictionary_encode(), batch.column(1)], batch.schema.names)
    assert read(encoded) == list(by_file(rows).items())


def test_foreign_dictionary_may_repeat_paths_and_hold_unused_ones():
    paths = pa.DictionaryArray.from_arrays(pa.array([3, 0, 1, 3], pa.int8()), pa.array(["a", "a", None, "b"]))
    batch = pa.record_batch([paths, pa.array([4, 3, 2, 1])], ["file_path", "pos"])
    assert read(batch) == [("b", [4, 1]), ("a", [3, 2])]


def test_columns_are_found_by_field_id_before_name():
    schema = pa.schema([SCHEMA.field("pos").with_name("p"), SCHEMA.field("file_path").with_name("pos")])
    batch = pa.record_batch([pa.array([7]), pa.array(["a"])], schema=schema)
    assert read(batch) == [("a", [7])]


def test_slices_and_tables_are_read():
    batch = batch_of([("a", 1), ("b", 2), ("b", 3), ("c", 4)])
    assert read(batch.slice(1, 2)) == [("b", [2, 3])]
    assert read(pa.Table.from_batches([batch.slice(0, 2), batch.slice(2)])) == [("a", [1]), ("b", [2, 3]), ("c", [4])]
    assert read(batch_of([("a", 1)], position_type=pa.int32())) == [("a", [1])]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (batch_of([("a", -1)]), "position -1"),
        (batch_of([(None, 1)]), "'file_path' has 1 nulls"),
        (batch_of([("a", None)]), "'pos' has 1 nulls"),
        (batch_of([("a", "1")], position_type=pa.string()), "positions are string"),
        (batch_of([(b"a", 1)], path_type=pa.binary()), "paths are binary"),
        (pa.record_batch([pa.array(["a"])], ["file_path"]), "no column 'pos'"),
        (pa.record_batch([pa.array([1])], ["pos"]), "no column 'file_path'"),
        (
            pa.record_batch(
                [pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([None], pa.string())), pa.array([1])],
                ["file_path", "pos"],
            ),
            "1 null",
        ),
        (
            pa.record_batch(
                [pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers()), pa.array([1])],
                ["file_path", "pos"],
            ),
            "not UTF-8",
        ),
    ],
)
def test_rows_that_break_the_format_are_refused(batch, message):
    with pytest.raises(CorruptFileError, match=message) as refusal:
        list(positions_by_file(batch, file="pd.parquet"))
    assert refusal.value.context["file"] == "pd.parquet"


@pytest.mark.proves("P2")
@given(ROWS)
def test_table_holds_each_row_once_in_the_order_of_the_specification(rows):
    indexes = {path: PositionDeleteIndex.from_positions(positions) for path, positions in by_file(rows).items()}
    table = table_of(indexes)
    table.validate(full=True)
    assert table.schema.equals(SCHEMA, check_metadata=True)
    expected = sorted(set(rows), key=lambda row: (row[0].encode(), row[1]))
    assert list(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True)) == expected
    assert {path: PositionDeleteIndex.from_positions(part) for path, part in positions_by_file(table)} == indexes


def test_long_tables_are_cut_into_batches_that_hold_their_text(monkeypatch):
    monkeypatch.setattr(limits, "MAX_CHUNK_BYTES", 1000)
    indexes = {path * 100: PositionDeleteIndex.from_positions(np.arange(57)) for path in ("a", "b")}
    table = table_of(indexes)
    assert {len(chunk) for chunk in table["pos"].chunks} == {10, 4}
    assert table["file_path"].to_pylist() == ["a" * 100] * 57 + ["b" * 100] * 57
    assert table["pos"].to_pylist() == [*range(57), *range(57)]


def test_empty_indexes_give_no_rows():
    assert table_of({}).num_rows == 0
    assert table_of({"a": PositionDeleteIndex()}).equals(SCHEMA.empty_table())


@pytest.mark.proves("P1")
def test_parquet_file_has_the_field_ids_and_required_columns():
    stream = io.BytesIO()
    pq.write_table(table_of({"a": PositionDeleteIndex.from_positions([3])}), stream)
    columns = pq.ParquetFile(stream).schema_arrow
    assert [(field.name, field.nullable, field.metadata[b"PARQUET:field_id"]) for field in columns] == [
        ("file_path", False, b"2147483546"),
        ("pos", False, b"2147483545"),
    ]


@pytest.mark.proves("P4")
def test_bounds_of_one_data_file_are_whole_and_exact():
    path = "s3://bucket/" + "x" * 200 + "/ü.parquet"
    lower, upper = bounds({path: PositionDeleteIndex.from_positions([9, 4, 2**33]), "other": PositionDeleteIndex()})
    assert lower == {2147483546: path.encode(), 2147483545: struct.pack("<q", 4)}
    assert upper == {2147483546: path.encode(), 2147483545: struct.pack("<q", 2**33)}


@pytest.mark.proves("P4")
def test_bounds_of_several_data_files_are_left_out():
    index = PositionDeleteIndex.from_positions([1])
    assert bounds({"a": index, "b": index}) == ({}, {})
    assert bounds({}) == ({}, {})
