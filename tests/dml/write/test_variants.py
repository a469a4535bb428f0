"""Variants in Parquet files: groups that are called so, with parts that are never NULL, as DuckDB reads them."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from dml.errors import DataError, NotSupportedError
from dml.model.arrow_types import VARIANT_ARROW, VARIANT_FOR_SPARK
from dml.model.columns import DeltaLayout
from dml.pyiceberg_patch import VariantType
from dml.splice.footer import TRAILER_BYTES, Footer, annotate_tail, footer_length
from dml.write.file_layout import convert_array
from dml.write.writer_spec import WriteJob, WriterSpec, check_writable
from tests.dml.write.builders import context, run

INSIDE = StructType(NestedField(4, "x", VariantType(), required=True), NestedField(5, "n", LongType(), required=False))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", VariantType(), required=False),
    NestedField(3, "s", INSIDE, required=False),
    NestedField(6, "l", ListType(7, VariantType(), element_required=False), required=False),
    NestedField(8, "m", MapType(9, StringType(), 10, VariantType(), value_required=False), required=False),
)
LAYOUT = DeltaLayout(value_ids=(1, 2, 3, 6, 8))
SPARK_TYPES = (
    pa.int64(),
    VARIANT_FOR_SPARK,
    pa.struct([("x", VARIANT_FOR_SPARK), ("n", pa.int64())]),
    pa.list_(VARIANT_FOR_SPARK),
    pa.map_(pa.string(), VARIANT_FOR_SPARK),
)


def variant(number: int) -> dict[str, bytes]:
    """`{"a": number}`."""
    return {"value": b"\x02\x01\x00\x00\x02\x0c" + bytes([number]), "metadata": b"\x01\x01\x00\x01a"}


ROWS = [
    (1, variant(1), {"x": variant(2), "n": 5}, [variant(3), None], [("k", variant(4)), ("j", None)]),
    (2, None, None, None, None),
    (3, variant(6), {"x": variant(7), "n": None}, [], []),
    (4, None, {"x": variant(8), "n": 1}, [None], [("i", variant(9))]),
]
READ = [
    (1, {"a": 1}, {"x": {"a": 2}, "n": 5}, [{"a": 3}, None], {"k": {"a": 4}, "j": None}),
    (2, None, None, None, None),
    (3, {"a": 6}, {"x": {"a": 7}, "n": None}, [], {}),
    (4, None, {"x": {"a": 8}, "n": 1}, [None], {"i": {"a": 9}}),
]


def from_spark(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows as Spark sends them."""
    arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), SPARK_TYPES, strict=True)]
    return pa.record_batch(arrays, names=[f"v{place}" for place in range(len(arrays))])


def read_duckdb(path: str) -> list[tuple[Any, ...]]:
    return duckdb.connect().execute(f"SELECT * FROM read_parquet('{path}') ORDER BY id").fetchall()


def local(path: str) -> str:
    return path.removeprefix("file://")


@pytest.mark.parametrize("properties", [{}, {"write.parquet.row-group-limit": "2"}], ids=["one", "two"])
def test_they_are_called_variants_wherever_they_stand(tmp_path: Path, properties: dict[str, str]) -> None:
    write = context(tmp_path, schema=SCHEMA, version=3, properties=properties)
    (file,) = run(WriteJob.ROWS, [from_spark(ROWS[:1]), from_spark(ROWS[1:])], write, LAYOUT).data_files
    path = local(file.path)
    assert Path(path).stat().st_size == file.file_size_in_bytes
    assert read_duckdb(path) == READ
    schema = pq.ParquetFile(path).schema
    assert str(schema).count("(Variant(1))") == 4
    parts = {schema.column(place).path: schema.column(place) for place in range(len(schema))}
    assert parts["v.metadata"].max_definition_level == parts["v.value"].max_definition_level == 1, "parts are required"
    assert parts["s.x.metadata"].max_definition_level == 1, "a required variant is"
    kinds = [str(kind) for (kind,) in duckdb.sql(f"SELECT column_type FROM (DESCRIBE FROM '{path}')").fetchall()]
    assert kinds == ["BIGINT", "VARIANT", "STRUCT(x VARIANT, n BIGINT)", "VARIANT[]", "MAP(VARCHAR, VARIANT)"]


def test_they_have_counts_and_no_bounds(tmp_path: Path) -> None:
    write = context(tmp_path, schema=SCHEMA, version=3, properties={"write.metadata.metrics.default": "full"})
    (file,) = run(WriteJob.ROWS, [from_spark(ROWS)], write, LAYOUT).data_files
    assert dict(file.value_counts or {}) == {1: 4, 2: 4, 4: 4, 5: 4}
    assert dict(file.null_value_counts or {}) == {1: 0, 2: 2, 4: 1, 5: 2}
    assert {*(file.lower_bounds or {})} == {*(file.upper_bounds or {})} == {1, 5}
    metadata = pq.read_metadata(local(file.path)).row_group(0)
    sizes = [metadata.column(place).total_compressed_size for place in (1, 2)]
    assert (file.column_sizes or {})[2] == sum(sizes)


def test_nulls_without_a_type_are_null_variants(tmp_path: Path) -> None:
    """So they come from a Spark that lacks the type."""
    batch = from_spark(ROWS[:2]).set_column(1, "v1", pa.nulls(2))
    write = context(tmp_path, schema=SCHEMA, version=3)
    (file,) = run(WriteJob.ROWS, [batch], write, LAYOUT).data_files
    assert read_duckdb(local(file.path)) == [(row[0], None, *row[2:]) for row in READ[:2]]


def test_slices_and_chosen_rows_keep_their_values() -> None:
    array = from_spark(ROWS).column(1)
    for chosen in (array.slice(1, 3), array.take(pa.array([3, 2, None, 0]))):
        made = convert_array(chosen, VARIANT_ARROW, "v")
        made.validate(full=True)
        assert made.to_pylist() == chosen.to_pylist()
        assert made.field(0).null_count == made.field(1).null_count == 0


def test_a_required_one_must_be_there(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", VariantType(), required=True))
    batch = from_spark(ROWS[:2]).select([0, 1])
    commit = run(WriteJob.ROWS, [batch], context(tmp_path, schema=schema, version=3), DeltaLayout(value_ids=(1, 2)))
    assert isinstance(commit.error, DataError)
    assert "'v' requires a value" in commit.error.message


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_they_go_into_parquet_files_alone(tmp_path: Path, file_format: str) -> None:
    write = context(tmp_path, schema=SCHEMA, version=3, properties={"write.format.default": file_format})
    with pytest.raises(
        NotSupportedError, match=f"variants are written into Parquet files only, not into {file_format.upper()}"
    ):
        check_writable(WriterSpec(job=WriteJob.ROWS, context=write, layout=LAYOUT))


def test_a_struct_that_looks_like_one_stays_a_struct(tmp_path: Path) -> None:
    """Its fields have ids, and their own order."""
    kind = StructType(
        NestedField(3, "metadata", StringType(), required=True), NestedField(4, "value", StringType(), required=True)
    )
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", kind, required=False))
    values = pa.array([{"metadata": "m", "value": "v"}], pa.struct([("metadata", pa.string()), ("value", pa.string())]))
    batch = pa.record_batch([pa.array([1]), values], names=["v0", "v1"])
    (file,) = run(
        WriteJob.ROWS, [batch], context(tmp_path, schema=schema, version=3), DeltaLayout(value_ids=(1, 2))
    ).data_files
    assert "Variant" not in str(pq.ParquetFile(local(file.path)).schema)
    assert read_duckdb(local(file.path)) == [(1, {"metadata": "m", "value": "v"})]


def footer_of(path: Path) -> Footer:
    data = path.read_bytes()
    length = footer_length(data[-TRAILER_BYTES:], len(data))
    start = len(data) - TRAILER_BYTES - length
    return Footer.of(data[start:-TRAILER_BYTES], start)


def test_the_parts_of_a_shredded_one_are_known_by_its_id(tmp_path: Path) -> None:
    """And `metadata` alone says where it is NULL, whatever fields inside are called."""
    path = tmp_path / "v.parquet"
    duckdb.connect().execute(
        f"COPY (SELECT 1::BIGINT AS id, {{'metadata': 1, 'b': [2]}}::VARIANT AS v) TO '{path}' "
        "(FORMAT parquet, FIELD_IDS {id: 1, v: 2})"
    )
    (_, column) = footer_of(path).columns
    assert len(column.leaves) > 4
    assert set(column.leaf_ids) == {2}
    assert not all(column.repeated)


def test_a_tail_without_a_footer_is_an_error() -> None:
    with pytest.raises(ValueError, match="breaks off"):
        annotate_tail((100).to_bytes(4, "little") + b"PAR1", {1})
