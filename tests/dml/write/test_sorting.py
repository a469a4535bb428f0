"""Files in the table's sort order, whatever the order of the rows and however many there are."""

import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
)
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType

from dml import limits
from dml.files.scratch import scratch_folder
from dml.model.columns import DeltaLayout
from dml.write import sorting
from dml.write.delta_writer import DeltaWriter
from dml.write.file_layout import file_layout
from dml.write.output_files import OutputFileFactory
from dml.write.rolling import RollingDataWriter
from dml.write.sorting import SortingDataWriter, row_order
from dml.write.writer_spec import WriteJob, WriterSpec
from tests.dml.write.builders import TASK, context

INNER = StructType(NestedField(5, "x", LongType(), required=False))
SCHEMA = Schema(
    NestedField(1, "d", DoubleType(), required=False),
    NestedField(2, "s", StringType(), required=False),
    NestedField(3, "i", LongType(), required=False),
    NestedField(4, "c", INNER, required=False),
)
ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
ROWS = DeltaLayout(value_ids=(1, 2, 3, 4))

row = st.fixed_dictionaries(
    {
        "d": st.none() | st.sampled_from([math.nan, math.inf, -math.inf, -1.5, 0.0, 2.5]),
        "s": st.none() | st.sampled_from(["", "a", "ab", "\U0001f600", "z"]),
        "i": st.none() | st.integers(-3, 3),
        "c": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 2)}),
    }
)


def order(*fields: tuple[int, Any, SortDirection, NullOrder]) -> SortOrder:
    return SortOrder(*(SortField(source, transform, *how) for source, transform, *how in fields), order_id=3)


def key(value: Any, direction: SortDirection, nulls: NullOrder) -> tuple[int, Any, Any]:
    """Python's key of a value: NULLs, NaN above all numbers."""
    if value is None:
        return (-1 if nulls is FIRST else 1), 0, 0
    is_nan = isinstance(value, float) and math.isnan(value)
    number = 0 if is_nan else value
    if direction is DESC:
        return 0, -is_nan, Reversed(number)
    return 0, int(is_nan), number


@dataclass(frozen=True)
class Reversed:
    """A value that sorts the other way round."""

    value: Any

    def __lt__(self, other: "Reversed") -> bool:
        return other.value < self.value


def batches(rows: list[dict], size: int) -> list[pa.RecordBatch]:
    types = pa.schema(
        [("d", pa.float64()), ("s", pa.string()), ("i", pa.int64()), ("c", pa.struct([("x", pa.int64())]))]
    )
    return pa.Table.from_pylist(rows, schema=types).to_batches(max_chunksize=size)


def written(folder: Path, rows: list[dict], by: SortOrder, limit: int) -> list[dict]:
    write = context(folder, schema=SCHEMA)
    layout, output = file_layout(write, row_lineage=False), OutputFileFactory(write, TASK)
    found = row_order(by, layout.columns)
    assert found is not None
    rolling = RollingDataWriter(layout, write.options, output, 0, ())
    writer = SortingDataWriter(found, rolling, max_buffered_bytes=limit)
    for batch in batches(rows, 7):
        writer.write(layout.batch(batch.columns))
    return [row for file in writer.close() for row in pq.read_table(file.path).to_pylist()]


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=40), limit=st.sampled_from([1, 300, 10**6]), data=st.data())
def test_rows_are_sorted_as_the_order_says(rows: list[dict], limit: int, data: Any, tmp_path_factory: Any) -> None:
    how = data.draw(st.lists(st.tuples(st.sampled_from([ASC, DESC]), st.sampled_from([FIRST, LAST])), min_size=4))
    ids = data.draw(st.permutations([1, 2, 3, 5]))
    by = order(*((field_id, IdentityTransform(), *direction) for field_id, direction in zip(ids, how, strict=False)))
    found = written(tmp_path_factory.mktemp("sorted"), rows, by, limit)

    def keys(values: dict) -> tuple:
        inner = {1: values["d"], 2: values["s"], 3: values["i"], 5: (values["c"] or {}).get("x")}
        return tuple(key(inner[field_id], *direction) for field_id, direction in zip(ids, how, strict=False))

    assert [keys(values) for values in found] == [keys(values) for values in sorted(rows, key=keys)]
    shown = [repr(sorted(values.items())) for values in found]
    assert sorted(shown) == sorted(repr(sorted(values.items())) for values in rows), "no row is lost or doubled"


def test_pieces_of_many_runs_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SORTED_BATCH_ROWS", 5)
    rows = [{"d": None, "s": str(value), "i": value * 7919 % 101, "c": None} for value in range(101)]
    found = written(tmp_path, rows, order((3, IdentityTransform(), ASC, FIRST)), 1)
    assert [values["i"] for values in found] == list(range(101))
    assert all(values["i"] == int(values["s"]) * 7919 % 101 for values in found)


@pytest.mark.parametrize("transform", [BucketTransform(4), TruncateTransform(2)])
def test_rows_are_sorted_by_transforms(tmp_path: Path, transform: Any) -> None:
    rows = [{"d": None, "s": None, "i": value, "c": None} for value in (5, 2, 9, 4, 7, 0)]
    found = written(tmp_path, rows, order((3, transform, ASC, FIRST)), 1)
    of = transform.transform(LongType())
    assert [of(values["i"]) for values in found] == sorted(of(values["i"]) for values in rows)


def test_orders_that_cannot_be_followed_are_not() -> None:
    columns = SCHEMA.fields
    assert row_order(order((99, IdentityTransform(), ASC, FIRST)), columns) is None
    assert row_order(order((1, UnknownTransform("zorder"), ASC, FIRST)), columns) is None
    assert row_order(order((1, VoidTransform(), ASC, FIRST)), columns) is None


@pytest.mark.proves("F3", "F7")
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_job_writes_sorted_files_that_say_so_and_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, partitioned: bool
) -> None:
    monkeypatch.setattr(limits, "MAX_SORT_BUFFER_BYTES", 1)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))  # runs are on Spark's disks
    by = order((3, IdentityTransform(), DESC, LAST))
    specs = (PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s")),) if partitioned else (PartitionSpec(),)
    write = replace(
        context(tmp_path, schema=SCHEMA, specs=specs),
        sort_order_json=by.model_dump_json(),
        sorted_by_table_order=True,
    )
    spec = WriterSpec(job=WriteJob.ROWS, context=write, layout=ROWS, sorts_rows=True)
    rows = [{"d": None, "s": "ab"[value % 2], "i": value, "c": None} for value in (3, 8, 1, 6, 5, 2)]
    made = [batch.rename_columns(["v0", "v1", "v2", "v3"]) for batch in batches(rows, 2)]
    with mock.patch.object(sorting, "scratch_folder", side_effect=scratch_folder) as spilled:
        commit = DeltaWriter(spec, OutputFileFactory(write, TASK)).write(made)
    assert spilled.call_count == (2 if partitioned else 3)
    assert {file.sort_order_id for file in commit.data_files} == {3}
    found = sorted([values["i"] for values in pq.read_table(file.path).to_pylist()] for file in commit.data_files)
    assert found == ([[5, 3, 1], [8, 6, 2]] if partitioned else [[8, 6, 5, 3, 2, 1]])
    assert not list(temporary.iterdir())
