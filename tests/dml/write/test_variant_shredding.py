"""Variants that are written shredded: DuckDB reads what was written, and they are put together as they were."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from dml.model.arrow_types import METADATA, TYPED_VALUE, VALUE, VARIANT_ARROW
from dml.model.columns import DeltaLayout
from dml.pyiceberg_patch import VariantType
from dml.read.variant_values import whole_variants
from dml.write.variant_shredding import group_type, infer_type, shred_group
from dml.write.writer_spec import WriteJob
from tests.dml.write.builders import context, run

variants = pytest.importorskip("pyspark.sql.variant_utils").VariantUtils

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", VariantType(), required=False),
    NestedField(3, "s", StringType(), required=False),
)
SHRED = {"write.parquet.shred-variants": "true"}


def group_of(values: list[Any]) -> pa.StructArray:
    """Variants of Python values; None is NULL."""
    rows: list[dict[str, bytes] | None] = []
    for value in values:
        if value is None:
            rows.append(None)
            continue
        encoded, metadata = variants.parse_json(json.dumps(value))
        rows.append({METADATA: bytes(metadata), VALUE: bytes(encoded)})
    return pa.array(rows, VARIANT_ARROW)


def decoded(group: pa.StructArray) -> list[Any]:
    metadata, values = whole_variants(group)
    return [
        None if value is None else variants.to_python(value, names)
        for names, value in zip(metadata.to_pylist(), values.to_pylist(), strict=True)
    ]


def shred(group: pa.StructArray) -> pa.StructArray:
    typed = infer_type(group)
    assert typed is not None
    return shred_group(group, typed)


def written(tmp_path: Path, values: list[Any], **properties: str) -> tuple[Any, list[tuple[Any, ...]]]:
    """The data file of some rows, and what DuckDB reads in it."""
    batch = pa.record_batch(
        [pa.array(range(len(values)), pa.int64()), group_of(values), pa.array(["s"] * len(values))],
        names=["v0", "v1", "v2"],
    )
    write = context(tmp_path, schema=SCHEMA, version=3, properties={**SHRED, **properties})
    (file,) = run(WriteJob.ROWS, [batch], write, DeltaLayout(value_ids=(1, 2, 3))).data_files
    path = file.path.removeprefix("file://")
    query = f"SELECT id, v::JSON::VARCHAR, s FROM read_parquet('{path}') ORDER BY id"
    return file, duckdb.connect().execute(query).fetchall()


EVENTS: list[Any] = [
    {"name": f"n{n}", "at": 1000 + n, "tags": ["a", "b"], "pos": {"lat": n + 1.5, "lon": 1.25}, "ok": n % 2 == 0}
    for n in range(40)
]
EVENTS[7] = {"name": 7, "at": None, "tags": "none", "pos": {"lat": "x", "alt": 3}, "rare": True}
EVENTS[8], EVENTS[9], EVENTS[10], EVENTS[11] = None, "text", [], {}


@pytest.mark.parametrize("limit", ["1000", "16"])
def test_what_is_alike_gets_columns_and_others_read_the_same(tmp_path: Path, limit: str) -> None:
    properties = {"write.parquet.row-group-limit": limit, "write.parquet.variant-inference-buffer-size": "7"}
    file, read = written(tmp_path, EVENTS[:9] + EVENTS[12:], **properties)
    events = EVENTS[:9] + EVENTS[12:]
    assert [None if text is None else json.loads(text) for _, text, _ in read] == events
    path = file.path.removeprefix("file://")
    table = pq.read_table(path)
    typed = table.schema.field("v").type.field(TYPED_VALUE).type
    assert {field.name for field in typed} == {"name", "at", "tags", "pos", "ok"}
    assert decoded(table["v"].combine_chunks()) == decoded(group_of(events))
    assert str(pq.ParquetFile(path).schema).count("(Variant(1))") == 1
    assert (file.value_counts, file.null_value_counts) == ({1: 37, 2: 37, 3: 37}, {1: 0, 2: 1, 3: 0})
    assert {*file.lower_bounds} == {1, 3}, "the columns behind a shredded one are its neighbours"
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    of_v = [
        part.total_compressed_size
        for group in groups
        for part in map(group.column, range(group.num_columns))
        if part.path_in_schema.startswith("v.")
    ]
    assert file.column_sizes[2] == sum(of_v)
    assert len(of_v) > 10 * len(groups)


def test_a_table_that_says_nothing_gets_whole_variants(tmp_path: Path) -> None:
    file, _ = written(tmp_path, EVENTS, **{"write.parquet.shred-variants": "false"})
    assert pq.read_schema(file.path.removeprefix("file://")).field("v").type.num_fields == 2


def test_the_first_rows_decide_and_the_others_keep_their_values(tmp_path: Path) -> None:
    values = [{"a": 1}, {"a": 2}, {"a": "x"}, {"b": [1]}, 5]
    file, read = written(tmp_path, values, **{"write.parquet.variant-inference-buffer-size": "2"})
    typed = pq.read_schema(file.path.removeprefix("file://")).field("v").type.field(TYPED_VALUE).type
    assert [(field.name, field.type.field(TYPED_VALUE).type) for field in typed] == [("a", pa.int8())]
    assert [json.loads(text) for _, text, _ in read] == values


@pytest.mark.parametrize(
    ("values", "typed"),
    [
        ([1, 2, 300], pa.int16()),
        ([1, "x"], None),
        ([None, None], None),
        (["x", None], pa.string()),
        ([1.5, 12.25], pa.decimal128(4, 2)),
        ([True, False], pa.bool_()),
        ([[], []], None),
        ([{}, {}], None),
        ([{"A": 1, "a": 2}] * 2, None),
        ([{"": 1}] * 2, None),
        ([{"a": 1}, *[{"b": 2}] * 10], pa.struct([("b", pa.int8())])),
    ],
    ids=str,
)
def test_columns_are_chosen_by_the_values(values: list[Any], typed: pa.DataType | None) -> None:
    found = infer_type(group_of(values))
    if found is not None and pa.types.is_struct(found):
        found = pa.struct([(field.name, field.type.field(TYPED_VALUE).type) for field in found])
    assert found == typed


def test_types_are_kept_exactly(tmp_path: Path) -> None:
    """Each as a value, a field and an element, and among numbers of other widths."""
    kinds = ["1::TINYINT", "-300::SMALLINT", "70000::INTEGER", "-5000000000::BIGINT", "1.5::DOUBLE", "1.25::FLOAT"]
    kinds += ["true", "'x'", f"'{'long' * 30}'", "DATE '1969-02-03'", "'\\x00ab'::BLOB", "12.34::DECIMAL(9, 2)"]
    kinds += ["-12345678901.5::DECIMAL(18, 1)", "-1234567890123456789012345678901234567.8::DECIMAL(38, 1)"]
    kinds += ["TIMESTAMP '2024-02-03 04:05:06.789012'", "TIMESTAMPTZ '1969-02-03 04:05:06.789012+00'"]
    left = ["TIME '12:34:56.789012'", "'00112233-4455-6677-8899-aabbccddeeff'::UUID", "NULL::INTEGER"]
    connection = duckdb.connect()
    path = tmp_path / "v.parquet"
    for place, kind in enumerate([*kinds, *left]):
        for around in ("x", "{'f': x, 'g': [x, x]}", "[x]"):
            connection.execute(
                f"COPY (SELECT ({around})::VARIANT AS v FROM (SELECT ({kind}) AS x)) TO '{path}' "
                "(FORMAT parquet, SHREDDING {v: 'INTEGER[][]'})"
            )
            metadata, values = whole_variants(pq.read_table(path)["v"].combine_chunks())
            whole = pa.StructArray.from_arrays([metadata, values], fields=list(VARIANT_ARROW))
            typed = infer_type(whole)
            assert (typed is not None) == (place < len(kinds)), kind
            if typed is not None:
                made = shred_group(whole, typed)
                made.validate(full=True)
                assert made.field(VALUE).null_count == 1, kind
                assert whole_variants(made)[1].to_pylist() == values.to_pylist(), kind
    mixed = group_of([1, 300, 70_000, 2**40, 1, None])
    made = shred_group(mixed, pa.int32())
    assert made.field(TYPED_VALUE).to_pylist() == [None, None, 70_000, None, None, None]
    assert [array.to_pylist() for array in whole_variants(made)][1] == [*mixed.field(VALUE).to_pylist()[:5], None]


def test_variants_that_break_the_format_stay_as_they_are() -> None:
    broken = pa.array(
        [{METADATA: b"\x01\x00\x00", VALUE: value} for value in (b"\x0c\x01", b"\x0c\x01\x02", b"\x02\x09", b"")],
        VARIANT_ARROW,
    )
    made = shred_group(broken, pa.int8())
    assert made.field(TYPED_VALUE).to_pylist() == [1, None, None, None]
    assert made.field(VALUE).to_pylist() == [None, b"\x0c\x01\x02", b"\x02\x09", b""]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | TEXTS | st.decimals(-9999, 9999, places=2).map(float)
)
ANY = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdé"), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | ANY, min_size=1, max_size=12), st.integers(0, 11))
def test_whatever_is_shredded_is_put_together_again(values: list[Any], rows: int) -> None:
    group = group_of(values)
    typed = infer_type(group.slice(0, rows + 1))
    if typed is None:
        return
    made = shred_group(group, typed)
    made.validate(full=True)
    assert made.type == group_type(typed)
    assert decoded(made) == decoded(group)
    names, whole = whole_variants(made)
    assert names.filter(group.is_valid()).to_pylist() == group.field(METADATA).filter(group.is_valid()).to_pylist()
    assert (
        whole_variants(
            shred_group(
                pa.StructArray.from_arrays(
                    [pc.fill_null(names, b"\x01\x00\x00"), pc.fill_null(whole, b"\x00")],
                    fields=list(VARIANT_ARROW),
                    mask=group.is_null(),
                ),
                typed,
            )
        )[1].to_pylist()
        == whole.to_pylist()
    )
