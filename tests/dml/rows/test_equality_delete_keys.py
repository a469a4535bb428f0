"""Keys of equality deletes: every type, NULL and NaN, and against a plain comparison of tuples."""

import math
import struct
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.rows.lookup import KeyLookup

NOW = datetime(2024, 2, 29, 12, 30, 59, 123456, tzinfo=UTC)


def decimals(*values):
    return [Decimal(value) for value in values]


# For each of Iceberg's types: values to delete, values to keep.
TYPES = {
    "boolean": (pa.bool_(), [True], [False]),
    "int": (pa.int32(), [1, -(2**31)], [0, 2**31 - 1]),
    "long": (pa.int64(), [1, -(2**63)], [0, 2**63 - 1]),
    "float": (pa.float32(), [1.5, math.nan, -0.0], [0.0, math.inf]),
    "double": (pa.float64(), [1.5, math.nan, -0.0, 5e-324], [0.0, math.inf, -5e-324]),
    "decimal(9,2)": (pa.decimal128(9, 2), decimals("1.20", "-9999999.99"), decimals("1.21", "0.00")),
    "decimal(38,0)": (pa.decimal128(38, 0), decimals(10**37, -1), decimals(10**37 + 2**64, 2**64 - 1)),
    "date": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29)], [date(1970, 1, 1), date(9999, 12, 31)]),
    "time": (pa.time64("us"), [time(0, 0), time(23, 59, 59, 999999)], [time(12, 0), time(12, 0, 0, 1)]),
    "timestamp": (pa.timestamp("us"), [0, -1, 10**15], [1, 10**15 + 1]),
    "timestamptz": (pa.timestamp("us", "UTC"), [NOW], [NOW.replace(microsecond=0)]),
    "timestamp_ns": (pa.timestamp("ns"), [1, 2**62], [0, 2**62 + 1]),
    "string": (pa.string(), ["", "ü", "a\0"], ["a", "u", "ü "]),
    "large string": (pa.large_string(), ["", "𝄞"], ["a"]),
    "string view": (pa.string_view(), ["", "longer than a view holds"], ["longer than a view", "a"]),
    "binary view": (pa.binary_view(), [b"", b"longer than a view holds"], [b"longer than a view", b"a"]),
    "binary": (pa.binary(), [b"", b"\xff\0"], [b"\xff", b"\0"]),
    "fixed[3]": (pa.binary(3), [b"abc", b"\0\0\0"], [b"abd", b"\0\0\1"]),
    "fixed[16]": (pa.binary(16), [bytes(16), b"\xff" * 16], [bytes(15) + b"\1", b"\1" + bytes(15)]),
    "uuid": (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes], [uuid.UUID(int=2**64).bytes]),
}  # fmt: skip


def array_of(values, kind):
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def deleted_keys(*columns):
    return KeyLookup(columns, range(len(columns)), signed_zeros=True)


@pytest.mark.parametrize("nulls", [False, True], ids=["values", "with NULL"])
@pytest.mark.parametrize("name", TYPES)
def test_deleted_values_of_each_type_are_found_and_no_others(name, nulls):
    kind, deleted, kept = TYPES[name]
    deletes = array_of([*deleted, None] if nulls else deleted, kind)
    rows = array_of([*kept, None, *deleted, None, *kept], kind)
    mask = deleted_keys(deletes).contains([rows])
    expected = [*[False] * len(kept), nulls, *[True] * len(deleted), nulls, *[False] * len(kept)]
    assert mask.dtype == np.bool_
    assert mask.tolist() == expected


@pytest.mark.parametrize("name", TYPES)
def test_slices_are_compared_by_their_own_rows(name):
    kind, deleted, kept = TYPES[name]
    deletes = array_of([*kept, *deleted, *kept], kind).slice(len(kept), len(deleted))
    rows = array_of([*deleted, None, *kept, *deleted], kind).slice(len(deleted), 1 + len(kept) + 1)
    assert deleted_keys(deletes).contains([rows]).tolist() == [False] * (1 + len(kept)) + [True]


@pytest.mark.proves("S4")
@pytest.mark.parametrize("name", TYPES)
def test_only_null_is_deleted_where_only_null_is_named(name):
    kind, deleted, _ = TYPES[name]
    mask = deleted_keys(array_of([None], kind)).contains([array_of([*deleted, None], kind)])
    assert mask.tolist() == [False] * len(deleted) + [True]


@pytest.mark.parametrize("name", TYPES)
def test_a_second_column_is_compared_too(name):
    kind, deleted, _ = TYPES[name]
    deletes = deleted_keys(array_of([*deleted, None], kind), pa.array(range(len(deleted) + 1)))
    rows = array_of([*deleted, None], kind)
    assert deletes.contains([rows, pa.array(range(len(rows)))]).all()
    assert not deletes.contains([rows, pa.array(range(1, len(rows) + 1))]).any()
    assert not deletes.contains([rows, pa.nulls(len(rows), pa.int64())]).any()


def test_nans_of_all_bit_patterns_are_equal():
    others = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8000000000001, 0xFFF8000000000000)]
    rows = pa.array(np.array([*others, math.inf]))
    assert deleted_keys(pa.array([math.nan])).contains([rows]).tolist() == [True, True, False]


VALUES = st.one_of(st.none(), st.integers(-2, 2))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b"]))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, 1.0]))
TUPLES = st.lists(st.tuples(VALUES, TEXTS, FLOATS), max_size=25)


def columns_of(rows):
    kinds = (pa.int64(), pa.string(), pa.float64())
    return [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]


@given(TUPLES, TUPLES)
def test_rows_of_several_columns_are_compared_whole(deleted, rows):
    known = {repr(row) for row in deleted}  # repr tells 0.0 from -0.0 and takes all NaN as one
    deletes = deleted_keys(*columns_of(deleted))
    assert deletes.contains(columns_of(rows)).tolist() == [repr(row) in known for row in rows]


def test_many_deleted_strings_are_found():
    deletes = deleted_keys(pa.array([str(n) for n in range(0, 50_000, 5)]))
    rows = [*map(str, range(50_000)), None]
    assert np.flatnonzero(deletes.contains([pa.array(rows)])).tolist() == list(range(0, 50_000, 5))
