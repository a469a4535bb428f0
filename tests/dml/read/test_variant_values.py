"""Variants that DuckDB shredded, put together again: what PySpark's decoder reads is what DuckDB reads."""

import json
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField

from dml.errors import CorruptFileError
from dml.model.arrow_types import METADATA, TYPED_VALUE, VALUE, is_variant
from dml.pyiceberg_patch import VariantType
from dml.read.variant_values import Dictionary, whole_variants
from tests.dml.read.files import FileFolder, with_id

variants = pytest.importorskip("pyspark.sql.variant_utils").VariantUtils

ANY = """
{"a": 1, "b": "x", "c": [1, 2.5, null, "y", {"d": true}], "e": {"f": {"g": "deep"}, "h": []}}
{"a": "no number", "b": null, "z": 9, "e": {"f": 1, "i": [[1], [], [2, 3]]}}
{"b": "x", "e": {"f": {"g": "deep", "k": -7}}, "c": []}
{"metadata": 1, "value": 2, "typed_value": {"value": 3}}
{"c": [{"d": 1, "o": 2}, {"d": "two"}, null, [], {}], "é": "ü", "Y": 1, "zz": 0.1}
{}
[]
[1, 2, 3]
[{"a": 1}, {"a": 2, "b": [true, false]}]
"text"
17
-1.5
true
null
{"a": 123456789012, "b": "%s"}
""".replace("%s", "long " * 60)
SHREDDINGS = (
    None,
    "VARCHAR",
    "DOUBLE[]",
    "STRUCT(a INTEGER, b VARCHAR)",
    "STRUCT(a BIGINT, c STRUCT(d BOOLEAN)[], e STRUCT(f STRUCT(g VARCHAR), h INTEGER[]))",
    "STRUCT(metadata INTEGER, value INTEGER, typed_value STRUCT(value BIGINT))",
    "STRUCT(e STRUCT(i INTEGER[][]), é VARCHAR)",
)
TYPED = (
    "1::TINYINT",
    "-300::SMALLINT",
    "70000::INTEGER",
    "-5000000000::BIGINT",
    "1.5::DOUBLE",
    "1.25::FLOAT",
    "true",
    "false",
    "'x'",
    "repeat('long', 40)",
    "12.34::DECIMAL(9, 2)",
    "-12345678901.5::DECIMAL(18, 1)",
    "-1234567890123456789012345678901234567.8::DECIMAL(38, 1)",
    "DATE '1969-02-03'",
    "TIMESTAMP '2024-02-03 04:05:06.789012'",
    "TIMESTAMPTZ '1969-02-03 04:05:06.789012+00'",
    "'\\x00ab'::BLOB",
)
"""Of types that PySpark's decoder knows."""

ENCODED = {
    "TIME '12:34:56.789012'": b"\x44" + (45_296_789_012).to_bytes(8, "little"),
    "TIMESTAMP_NS '2024-02-03 04:05:06.123456789'": b"\x4c" + (1_706_933_106_123_456_789).to_bytes(8, "little"),
    "'00112233-4455-6677-8899-aabbccddeeff'::UUID": b"\x50" + bytes.fromhex("00112233445566778899aabbccddeeff"),
}
"""Of types that it does not: what `VariantEncoding.md` says."""


def written(folder: Path, query: str, options: str = "") -> pa.StructArray:
    """The column `v` of a query as DuckDB writes it."""
    path = folder / "v.parquet"
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet{options})")
    return pq.read_table(path)["v"].combine_chunks()


def decoded(group: pa.StructArray) -> list[Any]:
    """The variants as Python values."""
    metadata, values = whole_variants(group)
    return [
        None if value is None else json.loads(variants.to_json(value, names), parse_float=str)
        for names, value in zip(metadata.to_pylist(), values.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("shredding", SHREDDINGS, ids=str)
def test_values_are_the_same_whatever_is_shredded(tmp_path: Path, shredding: str | None) -> None:
    texts = [text for text in ANY.splitlines() if text]
    rows = ", ".join(f"({place}, '{text}')" for place, text in enumerate(texts))
    query = f"SELECT j::JSON::VARIANT AS v FROM (VALUES {rows}) t(place, j) ORDER BY place"
    group = written(tmp_path, query, "" if shredding is None else f", SHREDDING {{v: '{shredding}'}}")
    if shredding is not None:
        assert group.field(TYPED_VALUE).null_count < len(group), "nothing is shredded"
    expected = [json.loads(text, parse_float=str) for text in texts]
    assert decoded(group) == expected
    assert decoded(group.slice(3, 4)) == expected[3:7]
    assert decoded(group.take(pa.array([5, 1]))) == [expected[5], expected[1]]


@pytest.mark.parametrize("value", TYPED)
def test_each_type_is_put_back(tmp_path: Path, value: str) -> None:
    """As the value of a variant, of a field and of an element."""
    group = written(tmp_path, f"SELECT x::VARIANT AS v FROM (SELECT ({value}) AS x)")
    plain = written(tmp_path, f"SELECT x::VARIANT AS v FROM (SELECT ({value}) AS x)", ", SHREDDING {v: 'INTEGER[][]'}")
    assert group.field(VALUE).null_count == 1, "it is not shredded"
    assert plain.field(VALUE).null_count == 0
    assert [array.to_pylist() for array in whole_variants(group)] == [a.to_pylist() for a in whole_variants(plain)]
    around = written(tmp_path, f"SELECT {{'f': x, 'l': [x, x]}}::VARIANT AS v FROM (SELECT ({value}) AS x)")
    (inner,) = decoded(group)
    assert decoded(around) == [{"f": inner, "l": [inner, inner]}]


@pytest.mark.parametrize("value", ENCODED)
def test_types_that_spark_lacks_are_put_back(tmp_path: Path, value: str) -> None:
    group = written(tmp_path, f"SELECT x::VARIANT AS v FROM (SELECT {value} AS x)")
    assert group.field(VALUE).null_count == 1
    assert whole_variants(group)[1].to_pylist() == [ENCODED[value]]


def test_many_fields_and_long_values_take_wider_numbers(tmp_path: Path) -> None:
    """More than 255 fields and elements, and more than 65,535 bytes."""
    expected = {"l": list(range(300)), **{f"f{number:03}": f"{number}" * 100 for number in range(400)}}
    names = ", ".join(f'"{name}" VARCHAR' for name in expected if name != "l")
    query = f"SELECT '{json.dumps(expected)}'::JSON::VARIANT AS v"
    for shredding in (f"STRUCT({names})", f"STRUCT({names}, l BIGINT[])", "STRUCT(f001 VARCHAR)"):
        assert decoded(written(tmp_path, query, f", SHREDDING {{v: '{shredding}'}}")) == [expected]


ONE_NAME = b"\x01\x01\x00\x01a"


def group_of(value: bytes | None, typed: Any, kind: pa.DataType, metadata: bytes = ONE_NAME) -> pa.StructArray:
    fields = [pa.field(METADATA, pa.binary()), pa.field(VALUE, pa.binary()), pa.field(TYPED_VALUE, kind)]
    return pa.array([{METADATA: metadata, VALUE: value, TYPED_VALUE: typed}], pa.struct(fields))


A_FIELD = pa.struct([pa.field("a", pa.struct([pa.field(VALUE, pa.binary()), pa.field(TYPED_VALUE, pa.int64())]))])
OBJECT = b"\x02\x01\x00\x00\x02\x0c\x05"


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (group_of(b"\x0c\x01", 1, pa.int64()), "two values"),
        (group_of(OBJECT, {"a": {VALUE: None, TYPED_VALUE: 1}}, A_FIELD), "a field twice"),
        (group_of(OBJECT, {"a": {VALUE: None, TYPED_VALUE: None}}, A_FIELD), "a field twice"),
        (group_of(None, {"a": {VALUE: b"\x00", TYPED_VALUE: 1}}, A_FIELD), "two values"),
        (group_of(b"\x0c\x01", {"a": {VALUE: None, TYPED_VALUE: 1}}, A_FIELD), "is not one"),
        (group_of(OBJECT[:-2], {"a": {VALUE: None, TYPED_VALUE: 1}}, A_FIELD), "breaks off"),
        (group_of(None, {"a": {VALUE: None, TYPED_VALUE: 1}}, A_FIELD, b"\x01\x00\x00"), "does not name"),
        (group_of(None, 1, pa.int64(), b""), "version"),
        (group_of(None, 1, pa.int64(), b"\x02\x00\x00"), "version"),
        (group_of(None, 1, pa.int64(), b"\x01\x05\x00"), "breaks off"),
        (group_of(None, 1, pa.int64(), b"\x01\x01\x00\x09a"), "breaks off"),
        (group_of(None, 1, pa.uint8()), "shredded as uint8"),
        (pa.array([{VALUE: b"\x00"}], pa.struct([pa.field(VALUE, pa.binary())])), "without metadata"),
    ],
)
def test_what_breaks_the_format_is_an_error(group: pa.StructArray, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        whole_variants(group)


def test_null_and_a_variant_s_null_differ() -> None:
    """A group that is there and has no value is a variant's null; one that is not there is NULL."""
    kind = group_of(None, None, pa.int64()).type
    rows = [
        {METADATA: ONE_NAME, VALUE: None, TYPED_VALUE: None},
        None,
        {METADATA: ONE_NAME, VALUE: None, TYPED_VALUE: 3},
    ]
    assert whole_variants(pa.array(rows, kind))[1].to_pylist() == [b"\x00", None, b"\x18" + (3).to_bytes(8, "little")]
    assert Dictionary(ONE_NAME).names == [b"a"]


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "v", VariantType(), required=False),
    NestedField(3, "l", ListType(4, VariantType(), element_required=False), required=False),
)
FIVE = {METADATA: b"\x01\x00\x00", VALUE: b"\x0c\x05"}
STORED = [{"id": 1, "v": FIVE, "l": [None, FIVE]}, {"id": 2, "v": None, "l": None}]


@pytest.mark.parametrize("parts", [(METADATA, VALUE), (VALUE, METADATA)], ids=str)
def test_avro_and_orc_files_have_them_in_any_order(lake: FileFolder, parts: tuple[str, str]) -> None:
    """As Iceberg's Java library writes them into Avro files, and as the specification has them in ORC files."""
    fields = [{"name": part, "type": "bytes"} for part in parts]

    def variant(name: str) -> list[Any]:
        return ["null", {"type": "record", "name": name, "logicalType": "variant", "fields": fields}]

    columns = [
        {"name": "id", "type": ["null", "long"], "field-id": 1},
        {"name": "v", "type": variant("r2"), "field-id": 2},
        {"name": "l", "type": ["null", {"type": "array", "element-id": 4, "items": variant("r4")}], "field-id": 3},
    ]
    avro = lake.folder / "v.avro"
    with avro.open("wb") as stream:
        fastavro.writer(stream, {"type": "record", "name": "table", "fields": columns}, STORED)
    kind = pa.struct([pa.field(part, pa.binary()) for part in parts])
    orc_schema = pa.schema(
        [
            with_id(1, "id", pa.int64(), key=b"iceberg.id"),
            with_id(2, "v", kind, key=b"iceberg.id"),
            with_id(3, "l", pa.list_(with_id(4, "element", kind, key=b"iceberg.id")), key=b"iceberg.id"),
        ]
    )
    orc_path = str(lake.folder / "v.orc")
    orc.write_table(pa.Table.from_pylist(STORED, orc_schema), orc_path)
    for path in (str(avro), orc_path):
        for spark in (True, False):
            found = lake.read(lake.task(path), lake.context(SCHEMA), spark_types=spark)
            assert found.to_pylist() == STORED, path
            assert is_variant(found.schema.field("v").type)


def test_a_file_with_another_type_in_the_place_of_one_is_named(lake: FileFolder) -> None:
    kinds = (
        pa.string(),
        pa.struct([pa.field(VALUE, pa.binary())]),
        pa.struct([(METADATA, pa.string()), (VALUE, pa.binary())]),
    )
    for place, kind in enumerate(kinds):
        schema = pa.schema([with_id(1, "id", pa.int64()), with_id(2, "v", kind)])
        path = lake.parquet(pa.table([[1], pa.nulls(1, kind)], schema=schema), f"{place}.parquet")
        assert lake.read(lake.task(path), lake.context(SCHEMA, projected_ids=(1,))).num_rows == 1
        with pytest.raises(CorruptFileError, match=r"variant"):
            lake.read(lake.task(path), lake.context(SCHEMA))
