"""Partition routing: the tuples are those of PyIceberg's transforms, and every row is in its partition once."""

import math
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml import limits
from dml.errors import NotSupportedError
from dml.model.columns import DeltaLayout
from dml.write.file_layout import arrow_field, file_layout
from dml.write.output_files import OutputFile, OutputFileFactory
from dml.write.partition_values import PartitionRouter
from dml.write.partitioning import ClusteredDataWriter, FanoutDataWriter, RollingDataWriter
from dml.write.writer_spec import WriteJob
from tests.dml.write.builders import BY_NAME, SCHEMA, TASK, UNPARTITIONED, context, read_back, run, stored_files, table

MICROS = st.integers(-(2**52), 2**52)
STRINGS = st.text(max_size=6)
IDENTITY: Transform[Any, Any] = IdentityTransform()
BUCKET: Transform[Any, Any] = BucketTransform(7)
TRUNCATE: Transform[Any, Any] = TruncateTransform(10)
YEAR: Transform[Any, Any] = YearTransform()
MONTH: Transform[Any, Any] = MonthTransform()
DAY: Transform[Any, Any] = DayTransform()
HOUR: Transform[Any, Any] = HourTransform()
CASES = [
    # The least int of all cannot be truncated: -2147483648 would become less than it.
    (IntegerType(), st.integers(-(2**31) + 10, 2**31 - 1), [IDENTITY, BUCKET, TRUNCATE]),
    (LongType(), st.integers(-(2**62), 2**62), [IDENTITY, BUCKET, TRUNCATE]),
    (DateType(), st.integers(-200_000, 200_000), [IDENTITY, BUCKET, YEAR, MONTH, DAY]),
    (TimestampType(), MICROS, [IDENTITY, BUCKET, YEAR, MONTH, DAY, HOUR]),
    (TimestamptzType(), MICROS, [IDENTITY, BUCKET, DAY, HOUR]),
    (TimestampNanoType(), st.integers(-(2**62), 2**62), [IDENTITY, BUCKET, YEAR, MONTH, DAY, HOUR]),
    (TimeType(), st.integers(0, 86_399_999_999), [IDENTITY, BUCKET]),
    (StringType(), STRINGS, [IDENTITY, BUCKET, TruncateTransform(2)]),
    (BinaryType(), st.binary(max_size=5), [IDENTITY, BUCKET, TruncateTransform(2)]),
    (FixedType(3), st.binary(min_size=3, max_size=3), [IDENTITY, BUCKET]),
    (UUIDType(), st.uuids(), [IDENTITY, BUCKET]),
    (DecimalType(9, 2), st.decimals(-99999, 99999, places=2), [IDENTITY, BUCKET, TRUNCATE]),
    (BooleanType(), st.booleans(), [IDENTITY]),
]


def column(field_type, values: list) -> pa.Array:
    target = arrow_field(NestedField(1, "c", field_type, required=False)).type
    if isinstance(field_type, UUIDType):
        return pa.array([None if value is None else value.bytes for value in values], target)
    return pa.array(values, target)


def router(field_type, transform) -> PartitionRouter:
    return PartitionRouter(PartitionSpec(PartitionField(1, 1000, transform, "p")), (NestedField(1, "c", field_type),))


@pytest.mark.parametrize(
    ("field_type", "values", "transform"),
    [(kind, values, transform) for kind, values, transforms in CASES for transform in transforms],
    ids=str,
)
@given(data=st.data())
@settings(max_examples=10)
def test_tuples_are_what_pyiceberg_computes_row_by_row(field_type, values, transform, data) -> None:
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=8))
    batch = pa.RecordBatch.from_arrays([column(field_type, rows), pa.array(range(len(rows)))], names=["c", "n"])
    result = {}
    for key, part in router(field_type, transform).split(batch):
        for number in part.column("n").to_pylist():
            result[number] = key
    function = transform.transform(field_type)
    assert result == {number: (function(value),) for number, value in enumerate(rows)}


@pytest.mark.parametrize("transform", [YEAR, MONTH, DAY, HOUR], ids=str)
@pytest.mark.parametrize("field_type", [TimestampType(), TimestamptzType(), TimestampNanoType()], ids=str)
def test_the_last_second_of_a_day_before_1970_is_in_that_day(field_type, transform) -> None:
    """Readers skip partitions by it: a row in the next day is lost to them."""
    unit = 1000 if isinstance(field_type, TimestampNanoType) else 1
    second, day = 1_000_000 * unit, 86_400_000_000 * unit
    rows = [None, *(-days * day - part for days in (0, 1, 365) for part in (1, second // 2, second - 1, second))]
    batch = pa.RecordBatch.from_arrays([column(field_type, rows), pa.array(range(len(rows)))], names=["c", "n"])
    found = {
        number: key for key, part in router(field_type, transform).split(batch) for number in part["n"].to_pylist()
    }
    function = transform.transform(field_type)
    assert found == {number: (function(value),) for number, value in enumerate(rows)}


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2)), min_size=1, max_size=30))
def test_every_row_is_in_one_group_and_groups_keep_the_order(rows: list) -> None:
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "p"), PartitionField(2, 1001, BucketTransform(2), "b")
    )
    fields = (NestedField(1, "c", StringType()), NestedField(2, "d", LongType()), NestedField(3, "n", LongType()))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows]), pa.array(range(len(rows)))],
        names=["c", "d", "n"],
    )
    groups = list(PartitionRouter(spec, fields).split(batch))
    keys = [key for key, _ in groups]
    assert len(set(keys)) == len(keys)
    numbers = [part.column("n").to_pylist() for _, part in groups]
    assert sorted(number for part in numbers for number in part) == list(range(len(rows)))
    assert all(part == sorted(part) for part in numbers)
    assert [part[0] for part in numbers] == sorted(part[0] for part in numbers)


def test_a_group_does_not_keep_the_rows_of_others_in_memory() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a"] * 10_000 + ["b"])], names=["c"])
    sizes = {key[0]: part.get_total_buffer_size() for key, part in router(StringType(), IDENTITY).split(batch)}
    assert sizes["b"] < 1000 < sizes["a"]


def test_nan_is_one_partition_over_all_batches() -> None:
    chosen = router(DoubleType(), IdentityTransform())
    batches = [pa.RecordBatch.from_arrays([pa.array([math.nan, 1.0])], names=["c"]) for _ in range(2)]
    keys = {key for batch in batches for key, _ in chosen.split(batch)}
    assert len(keys) == 2


def test_zeros_of_both_signs_are_partitions_of_their_own(tmp_path: Path) -> None:
    """As in Java, which compares partition values by their bits: a reader takes the column from the partition."""
    column = NestedField(1, "d", DoubleType(), required=False)
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "d"))
    write = context(tmp_path, schema=Schema(column), specs=(spec,))
    batch = pa.record_batch([pa.array([-0.0, 0.0, math.nan])], names=["v0"])
    commit = run(WriteJob.ROWS, [batch, batch], write, DeltaLayout(value_ids=(1,)))
    signs = sorted((math.copysign(1, file.partition[0]), file.record_count) for file in commit.data_files[:2])
    assert signs == [(-1, 2), (1, 2)]
    assert [file.record_count for file in commit.data_files] == [2, 2, 2]


def test_decimals_at_odd_places_of_memory_have_buckets() -> None:
    values = pa.array([Decimal("-1.28"), Decimal("1.28"), None], pa.decimal128(9, 2))
    plain = values.buffers()[1].to_pybytes()
    room = pa.allocate_buffer(len(plain) + 16)  # starts at a multiple of 64
    shifted = room.slice(8, len(plain))
    memoryview(room).cast("B")[8 : 8 + len(plain)] = plain
    odd = pa.Array.from_buffers(values.type, 3, [values.buffers()[0], shifted])
    chosen = router(DecimalType(9, 2), BucketTransform(7))
    batch = pa.RecordBatch.from_arrays([odd], names=["c"])
    assert sum(part.num_rows for _, part in chosen.split(batch)) == 3


def test_sources_may_be_fields_of_structs_and_void_fields_have_no_value() -> None:
    struct = StructType(NestedField(5, "x", StringType(), required=False))
    spec = PartitionSpec(
        PartitionField(5, 1000, IdentityTransform(), "x"),
        PartitionField(99, 1001, VoidTransform(), "gone"),
    )
    chosen = PartitionRouter(spec, (NestedField(1, "s", struct, required=False),))
    values = pa.array([{"x": "a"}, None, {"x": None}], pa.struct([("x", pa.string())]))
    batch = pa.RecordBatch.from_arrays([values], names=["s"])
    assert [(key, part.num_rows) for key, part in chosen.split(batch)] == [(("a", None), 1), ((None, None), 2)]
    assert chosen.source_ids == {1}


def test_a_transform_that_is_not_known_is_refused() -> None:
    with pytest.raises(NotSupportedError, match="unsupported transforms"):
        router(StringType(), UnknownTransform("zorder"))


def test_internal_forms_are_integers_and_uuids(tmp_path: Path) -> None:
    cases = [
        (DateType(), pa.array([1], pa.date32()), 1),
        (
            TimestamptzType(),
            pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            1_000_000,
        ),
        (UUIDType(), pa.array([uuid.UUID(int=5).bytes], pa.uuid()), uuid.UUID(int=5)),
        (DecimalType(4, 2), pa.array([Decimal("1.20")], pa.decimal128(4, 2)), Decimal("1.20")),
    ]
    for field_type, values, expected in cases:
        batch = pa.RecordBatch.from_arrays([values], names=["c"])
        ((key, _),) = router(field_type, IdentityTransform()).split(batch)
        assert key == (expected,)


def writers(folder: Path, kind: type, properties: dict[str, str] | None = None, **limits: int) -> tuple:
    write = context(folder, specs=(UNPARTITIONED, BY_NAME), properties=properties or {})
    layout, output = file_layout(write, row_lineage=False), OutputFileFactory(write, TASK)

    def open_partition(partition: tuple) -> RollingDataWriter:
        return RollingDataWriter(layout, write.options, output, 1, partition)

    return kind(PartitionRouter(BY_NAME, layout.columns), open_partition, **limits), layout


@pytest.mark.parametrize("kind", [FanoutDataWriter, ClusteredDataWriter])
def test_rows_that_lie_together_give_a_file_for_each_partition(tmp_path: Path, kind: type) -> None:
    writer, layout = writers(tmp_path, kind)
    for names in (["a", "a"], ["a", None], [None, "c d"]):
        writer.write(layout.batch(table([1, 2], names).to_batches()[0].columns))
    files = writer.close()
    assert {file.partition: file.record_count for file in files} == {("a",): 3, (None,): 2, ("c d",): 1}
    assert {Path(file.path).parent.name for file in files} == {"name=a", "name=null", "name=c+d"}


def test_a_clustered_writer_opens_another_file_for_a_partition_that_comes_back(tmp_path: Path) -> None:
    """Rows come by the hash of their partition, which two partitions may share."""
    writer, layout = writers(tmp_path, ClusteredDataWriter)
    for name in "abba":
        writer.write(layout.batch(table([1], [name]).to_batches()[0].columns))
    files = writer.close()
    assert [(file.partition, file.record_count) for file in files] == [(("a",), 1), (("b",), 2), (("a",), 1)]


def test_fanout_keeps_its_limit_of_open_files_and_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_UNOPENED_FILE_BYTES", 0)
    writer, layout = writers(tmp_path, FanoutDataWriter, max_open_files=2, split_rows=1)
    for _ in range(2):
        for name in "abcd":
            writer.write(layout.batch(table([1, 2], [name, name]).to_batches()[0].columns))
    files = writer.close()
    assert sum(file.record_count for file in files) == 16
    assert len(files) == 8


@pytest.mark.proves("F4")
@pytest.mark.parametrize("fanout_limits", [{}, {"max_buffered_bytes": 2_000}], ids=["enough memory", "little memory"])
def test_more_partitions_than_files_may_be_open_get_one_file_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fanout_limits: dict[str, int]
) -> None:
    """Small ones wait for the end; where memory is short, the one with most rows does not."""
    opened: list[int] = []
    original = OutputFileFactory.open

    def counted(factory: OutputFileFactory, *args: Any, **more: Any) -> OutputFile:
        file = original(factory, *args, **more)
        opened.append(len(factory._streams))
        return file

    monkeypatch.setattr(OutputFileFactory, "open", counted)
    writer, layout = writers(tmp_path, FanoutDataWriter, max_open_files=2, split_rows=1, **fanout_limits)
    expected = dict.fromkeys([(name,) for name in "abcdefgh"], 3) | {("a",): 123}
    for number in range(3):
        for name in "abcdefgh":
            rows = [number] * (41 if name == "a" else 1)
            writer.write(layout.batch(table(rows, [name] * len(rows)).to_batches()[0].columns))
            assert writer.buffered_bytes <= 2_000 or not fanout_limits
    assert len(opened) == len(fanout_limits)
    files = writer.close()
    assert {file.partition: file.record_count for file in files} == expected
    assert len(files) == len(expected)
    assert max(opened) <= 2
    for file in files:
        ids = pq.read_table(file.path, partitioning=None)["id"].to_pylist()
        assert ids == sorted(ids)


def test_rows_that_wait_for_a_file_are_given_up_with_it(tmp_path: Path) -> None:
    writer, layout = writers(tmp_path, FanoutDataWriter, split_rows=1)
    for name in "aba":
        writer.write(layout.batch(table([1], [name]).to_batches()[0].columns))
    writer.abort()
    assert not stored_files(tmp_path)


def test_fanout_frees_memory_without_closing_files(tmp_path: Path) -> None:
    writer, layout = writers(tmp_path, FanoutDataWriter, max_buffered_bytes=100, split_rows=1)
    for _ in range(5):
        for name in "ab":
            writer.write(layout.batch(table([1, 2], [name, name]).to_batches()[0].columns))
    files = writer.close()
    assert [file.record_count for file in files] == [10, 10]
    assert all(len(file.split_offsets) > 1 for file in files)


def test_fanout_finishes_files_of_orc_to_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of an open stripe stay in memory."""
    monkeypatch.setattr(limits, "MAX_UNOPENED_FILE_BYTES", 0)
    orc = {"write.format.default": "orc"}
    writer, layout = writers(tmp_path, FanoutDataWriter, orc, max_buffered_bytes=100, split_rows=1)
    for _ in range(5):
        for name in "abc":
            writer.write(layout.batch(table([1, 2], [name, name]).to_batches()[0].columns))
            held = sum(partition.buffered_bytes for partition in writer._writers.values())
            assert writer.buffered_bytes == held <= 100
    files = writer.close()
    assert sum(file.record_count for file in files) == 30


def test_fanout_splits_the_rows_of_many_batches_at_once_and_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that the caller names comes in its turn; of what waits there are never more rows than the limit."""
    writer, layout = writers(tmp_path, FanoutDataWriter, split_rows=6)
    split, sizes = PartitionRouter.split, []

    def counted(router: PartitionRouter, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        sizes.append(batch.num_rows)
        return split(router, batch)

    monkeypatch.setattr(PartitionRouter, "split", counted)
    for start in range(0, 20, 2):
        rows = layout.batch(table([start, start + 1], ["a", "b"]).to_batches()[0].columns)
        if start == 8:
            writer.write(rows.slice(0, 1), ("a",))
            rows = rows.slice(1)
        writer.write(rows)
    files = {file.partition: pq.read_table(file.path, partitioning=None)["id"].to_pylist() for file in writer.close()}
    assert files == {("a",): list(range(0, 20, 2)), ("b",): list(range(1, 20, 2))}
    assert sizes == [6, 2, 5, 6]


@pytest.mark.parametrize("values", [3, 255, 256, 300], ids=str)
def test_partitions_come_as_they_first_appear_however_many_there_could_be(values: int) -> None:
    """Two fields of 256 values have as many combinations as 16 bits have numbers."""
    spec = PartitionSpec(*(PartitionField(place, 1000 + place, IDENTITY, f"p{place}") for place in (1, 2)))
    chosen = PartitionRouter(spec, tuple(NestedField(place, f"c{place}", LongType()) for place in (1, 2)))
    rng = np.random.default_rng(7)
    first, second = rng.permutation(values).repeat(2), rng.permutation(values).repeat(2)
    found: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        found.setdefault(key, []).append(place)
    first, second, places = (np.concatenate([part, part[::-1]]) for part in (first, second, np.arange(len(first))))
    batch = pa.record_batch([first, second, places], names=["c1", "c2", "place"])
    groups = [(key, rows["place"].to_pylist()) for key, rows in chosen.split(batch)]
    assert groups == [(key, [*rows, *rows[::-1]]) for key, rows in found.items()]


ROWS = DeltaLayout(value_ids=(1, 2, 3))


@pytest.mark.parametrize("fanout", [None, "true", "false"])
def test_inserts_are_clustered_only_where_fanout_is_switched_off(tmp_path: Path, fanout: str | None) -> None:
    properties = {} if fanout is None else {"write.spark.fanout.enabled": fanout}
    write = context(tmp_path, specs=(UNPARTITIONED, BY_NAME), properties=properties)
    batches = [table([1], [name]).to_batches()[0] for name in "aba"]
    commit = run(WriteJob.ROWS, batches, write, ROWS)
    assert len(read_back(commit)) == 3
    assert len(commit.data_files) == (3 if fanout == "false" else 2)
    assert SCHEMA.fields[1].name == "name"
