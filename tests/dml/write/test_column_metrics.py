"""Column metrics and bounds: against plain Python, and through PyIceberg's own readers of bounds."""

import math
import struct
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.errors import AnalysisError
from dml.model.columns import DeltaLayout
from dml.model.manifest import ContentFile
from dml.model.write_task import TaskCommit
from dml.write.column_metrics import (
    BatchMetrics,
    Leaf,
    MetricsMode,
    metrics_modes,
    truncate_bytes_above,
    truncate_text_above,
)
from dml.write.file_layout import arrow_field
from dml.write.writer_spec import WriteJob
from tests.dml.write.builders import context, run


def written(folder: Path, schema: Schema, columns: list[pa.Array], **properties: str) -> ContentFile:
    """One file with these columns."""
    layout = DeltaLayout(value_ids=tuple(field.field_id for field in schema.fields))
    names = [f"v{place}" for place in range(len(columns))]
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    table_properties = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    commit = run(WriteJob.ROWS, [batch], context(folder, schema=schema, properties=table_properties), layout)
    assert isinstance(commit, TaskCommit), commit
    (file,) = commit.data_files
    return file


def one(field_type: IcebergType) -> Schema:
    return Schema(NestedField(1, "c", field_type, required=False))


def array(field_type: IcebergType, values: list) -> pa.Array:
    target = arrow_field(NestedField(1, "c", field_type, required=False)).type
    if isinstance(field_type, UUIDType):
        return pa.array([None if value is None else value.bytes for value in values], target)
    return pa.array(values, target)


TYPES = {
    "boolean": (BooleanType(), st.booleans()),
    "int": (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "long": (LongType(), st.integers(-(2**63), 2**63 - 1)),
    "date": (DateType(), st.integers(-(2**31), 2**31 - 1)),
    "time": (TimeType(), st.integers(0, 86_399_999_999)),
    "timestamptz": (TimestamptzType(), st.integers(-(2**62), 2**62)),
    "timestamp_ns": (TimestampNanoType(), st.integers(-(2**62), 2**62)),
    "small decimal": (DecimalType(9, 2), st.decimals(-9999999, 9999999, places=2)),
    "middle decimal": (DecimalType(18, 2), st.decimals(-(10**15), 10**15, places=2)),
    "large decimal": (DecimalType(38, 2), st.decimals(-(10**30), 10**30, places=2)),
    "uuid": (UUIDType(), st.uuids()),
    "fixed": (FixedType(3), st.binary(min_size=3, max_size=3)),
    "short binary": (BinaryType(), st.binary(max_size=8)),
    "short string": (StringType(), st.text(max_size=8)),
}


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bounds_are_the_least_and_greatest_value_for_readers(name: str, tmp_path_factory, data) -> None:
    """Also over several row groups: what compares is the value, not the bytes of the footer."""
    field_type, values = TYPES[name]
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    file = written(
        tmp_path_factory.mktemp("bounds"),
        one(field_type),
        [array(field_type, column)],
        write__parquet__row_group_limit="3",
    )
    present = [value for value in column if value is not None]
    assert (file.value_counts, file.null_value_counts) == ({1: len(column)}, {1: len(column) - len(present)})
    assert len(file.split_offsets) == -(-len(column) // 3)
    assert list(file.split_offsets) == sorted(set(file.split_offsets))
    if not present:
        assert file.lower_bounds == file.upper_bounds == {}
        return
    present = [value.bytes if isinstance(value, uuid.UUID) else value for value in present]
    low, high = from_bytes(field_type, file.lower_bounds[1]), from_bytes(field_type, file.upper_bounds[1])
    assert (low, high) == (min(present), max(present))


@given(values=st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=4), scale=st.integers(0, 38))
def test_bounds_of_decimals_of_all_digits_are_not_rounded(values: list[int], scale: int) -> None:
    """In ORC and Avro files; Python's decimals have 28 digits by default."""
    column = NestedField(1, "c", DecimalType(38, scale), required=False)
    metrics = BatchMetrics((Leaf(field=column, path=(0,)),), {1: MetricsMode()})
    decimals = [Decimal((value < 0, Decimal(abs(value)).as_tuple().digits, -scale)) for value in values]
    metrics.add(pa.record_batch([pa.array(decimals, pa.decimal128(38, scale))], names=["c"]))
    found = metrics.metrics()
    assert int.from_bytes(found.lower_bounds[1], "big", signed=True) == min(values)
    assert int.from_bytes(found.upper_bounds[1], "big", signed=True) == max(values)


@pytest.mark.parametrize(("field_type", "width"), [(FloatType(), 32), (DoubleType(), 64)])
@given(data=st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bounds_of_floats_leave_nan_out_and_zero_has_both_signs(field_type, width, tmp_path_factory, data) -> None:
    special = st.sampled_from([math.nan, 0.0, -0.0, math.inf, -math.inf, None])
    column = data.draw(st.lists(special | st.floats(width=width), min_size=1, max_size=8))
    folder = tmp_path_factory.mktemp("floats")
    file = written(folder, one(field_type), [array(field_type, column)], write__parquet__row_group_limit="2")
    nans = [value for value in column if value is not None and math.isnan(value)]
    numbers = [value for value in column if value is not None and not math.isnan(value)]
    assert file.nan_value_counts == {1: len(nans)}
    if not numbers:
        assert file.lower_bounds == file.upper_bounds == {}
        return
    code = "<f" if width == 32 else "<d"
    low, high = (struct.unpack(code, bounds[1])[0] for bounds in (file.lower_bounds, file.upper_bounds))
    assert (low, high) == (min(numbers), max(numbers))
    assert low != 0 or math.copysign(1, low) < 0
    assert high != 0 or math.copysign(1, high) > 0


@given(st.text(max_size=6), st.integers(1, 4))
def test_a_text_cut_above_is_not_less_not_longer_and_no_surrogate(text: str, length: int) -> None:
    cut = truncate_text_above(text, length)
    if cut is None:
        assert set(text[:length]) == {"\U0010ffff"}
        return
    assert len(cut) <= length
    assert cut.encode("utf-8") >= text.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc", "abc"),
        ("abcd", "abd"),
        ("ab\U0010ffffz", "ac"),
        ("a\ud7ff\ud7ffz", "a\ud7ff\ue000"),
        ("\U0010ffff" * 4, None),
    ],
)
def test_the_last_character_with_a_successor_is_raised(text: str, expected: str | None) -> None:
    assert truncate_text_above(text, 3) == expected


@given(st.binary(max_size=6), st.integers(1, 4))
def test_bytes_cut_above_are_not_less(value: bytes, length: int) -> None:
    cut = truncate_bytes_above(value, length)
    if cut is None:
        assert set(value[:length]) == {255}
    else:
        assert cut >= value
        assert len(cut) <= length


def test_long_strings_have_cut_bounds_that_are_still_bounds(tmp_path: Path) -> None:
    values = ["b" * 30, "a" * 30, "é" * 30]
    file = written(tmp_path, one(StringType()), [pa.array(values)])
    assert file.lower_bounds[1].decode() == "a" * 16
    assert file.upper_bounds[1].decode() == "é" * 15 + "ê"


def test_values_too_long_for_the_footer_have_counts_and_no_bounds(tmp_path: Path) -> None:
    file = written(
        tmp_path, one(StringType()), [pa.array(["z" * 5000, "a", None])], write__parquet__row_group_limit="1"
    )
    assert (file.lower_bounds, file.upper_bounds, file.null_value_counts) == ({}, {}, {1: 1})


NESTED = Schema(
    NestedField(1, "s", StructType(NestedField(3, "x", DoubleType(), required=False)), required=False),
    NestedField(2, "l", ListType(4, LongType(), element_required=False), required=False),
    NestedField(5, "m", MapType(6, StringType(), 7, DoubleType(), value_required=False), required=False),
)


def test_fields_in_structs_have_metrics_and_fields_in_lists_and_maps_only_sizes(tmp_path: Path) -> None:
    columns = [
        pa.array([{"x": 1.5}, None, {"x": None}, {"x": math.nan}], pa.struct([("x", pa.float64())])),
        pa.array([[1, 2], None, [], [3]], pa.list_(pa.int64())),
        pa.array([[("k", 1.0)], None, [], []], pa.map_(pa.string(), pa.float64())),
    ]
    file = written(tmp_path, NESTED, columns)
    assert set(file.column_sizes) == {3, 4, 6, 7}
    assert (file.value_counts, file.null_value_counts, file.nan_value_counts) == ({3: 4}, {3: 2}, {3: 1})
    assert file.lower_bounds == file.upper_bounds == {3: struct.pack("<d", 1.5)}


def test_modes_follow_default_column_and_limit_properties() -> None:
    assert metrics_modes(NESTED, {})[3] == MetricsMode(length=16)
    modes = metrics_modes(
        NESTED,
        {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.s.x": "full"},
    )
    assert modes[3] == MetricsMode(length=None)
    assert modes[4] == MetricsMode(bounds=False)
    many = Schema(*(NestedField(place, f"c{place}", LongType()) for place in range(1, 104)))
    limited = metrics_modes(many, {})
    assert [field_id for field_id, mode in limited.items() if not mode.counts] == [101, 102, 103]
    assert metrics_modes(many, {}, sorted_ids=[103])[103] == MetricsMode()
    assert metrics_modes(many, {"write.metadata.metrics.default": "full"})[103] == MetricsMode(length=None)
    assert not metrics_modes(many, {"write.metadata.metrics.max-inferred-column-defaults": "1"})[2].counts


@pytest.mark.parametrize("text", ["truncate(0)", "trunc(3)", "all"])
def test_a_mode_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(AnalysisError, match="truncate"):
        metrics_modes(NESTED, {"write.metadata.metrics.default": text})


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("none", ({}, {}, {})), ("counts", ({1: 2}, {}, {})), ("truncate(2)", ({1: 2}, {1: b"ab"}, {1: b"ac"}))],
)
def test_a_file_has_the_metrics_that_its_table_asks_for(tmp_path: Path, mode: str, expected) -> None:
    file = written(tmp_path, one(StringType()), [pa.array(["abc", "abb"])], write__metadata__metrics__default=mode)
    assert (file.value_counts, file.lower_bounds, file.upper_bounds) == expected
    assert bool(file.column_sizes) == (mode != "none")


def test_bytes_that_are_no_text_have_no_bounds(tmp_path: Path) -> None:
    broken = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    file = written(tmp_path, one(StringType()), [broken])
    assert (file.lower_bounds, file.value_counts) == ({}, {1: 1})


def test_serialised_forms_are_those_of_the_specification(tmp_path: Path) -> None:
    value = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    schema = Schema(NestedField(1, "u", UUIDType()), NestedField(2, "d", DecimalType(9, 2)))
    file = written(tmp_path, schema, [pa.array([value.bytes], pa.uuid()), pa.array([Decimal("14.20")])])
    assert file.lower_bounds == {1: value.bytes, 2: b"\x05\x8c"}
