"""ORC and Avro files, and Avro's ways to write a schema."""

import datetime as dt
import io
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.errors import CorruptFileError
from dml.model import columns
from dml.read.avro_file import avro_fields
from dml.read.reader import scan_file


def optional(field_id, name, kind):
    return NestedField(field_id, name, kind, required=False)


# ---- ORC ------------------------------------------------------------------------------------------------------


def orc_file(lake, table, name="data.orc", **options):
    path = str(lake.folder / name)
    orc.write_table(table, path, **options)
    return path


def orc_id(field_id, name, kind):
    return pa.field(name, kind, metadata={b"iceberg.id": str(field_id).encode()})


def test_orc_files_are_read_by_id_over_several_stripes(lake):
    schema = pa.schema([orc_id(2, "old", pa.string()), orc_id(1, "id", pa.int32())])
    rows = 50_000
    table = pa.table([[f"v{i}" for i in range(rows)], pa.array(range(rows), pa.int32())], schema=schema)
    path = orc_file(lake, table, stripe_size=64 * 1024, compression="zstd")
    assert orc.ORCFile(path).nstripes > 1
    deleted = [0, 1024, 30_000, rows - 1]
    task = lake.task(path, deletion_vector=lake.deletion_vector(path, deleted))
    context = lake.context(
        Schema(optional(1, "id", LongType()), optional(2, "new", StringType())), metadata_columns=(columns.POS,)
    )
    found = lake.read(task, context)
    expected = sorted(set(range(rows)) - set(deleted))
    assert found.column("id").to_pylist() == expected
    assert found.column(columns.POS).to_pylist() == expected
    assert found.column("new").to_pylist() == [f"v{i}" for i in expected]


def test_orc_files_are_filtered_too(lake):
    path = orc_file(lake, pa.table([[1, 2, 3]], schema=pa.schema([orc_id(1, "id", pa.int64())])))
    schema = Schema(optional(1, "id", LongType()))
    assert lake.read(lake.task(path), lake.context(schema, row_filter=EqualTo("id", 2))).num_rows == 1


def test_orc_files_without_ids_use_the_name_mapping(lake):
    schema = Schema(optional(7, "id", LongType()), optional(8, "ts", TimestampType()))
    stamp = dt.datetime(2020, 1, 1, 2, 3, 4, 5)  # noqa: DTZ001
    path = orc_file(lake, pa.table({"ts": pa.array([stamp]), "id": [1]}))
    mapping = create_mapping_from_schema(schema).model_dump_json()
    assert lake.read(lake.task(path), lake.context(schema, name_mapping_json=mapping)).to_pylist() == [
        {"id": 1, "ts": stamp}
    ]


def test_an_orc_file_of_no_rows_gives_nothing(lake):
    path = orc_file(lake, pa.table([pa.array([], pa.int64())], schema=pa.schema([orc_id(1, "id", pa.int64())])))
    assert lake.read(lake.task(path), lake.context(Schema(optional(1, "id", LongType())))).num_rows == 0


# ---- Avro -----------------------------------------------------------------------------------------------------

ALL_TYPES = Schema(
    NestedField(1, "b", BooleanType(), required=True),
    optional(2, "i", IntegerType()),
    optional(3, "l", LongType()),
    optional(4, "f", FloatType()),
    optional(5, "d", DoubleType()),
    optional(6, "day", DateType()),
    optional(7, "t", TimeType()),
    optional(8, "ts", TimestampType()),
    optional(9, "tz", TimestamptzType()),
    optional(10, "s", StringType()),
    optional(11, "u", UUIDType()),
    optional(12, "x", FixedType(3)),
    optional(13, "bin", BinaryType()),
    optional(14, "n", DecimalType(20, 3)),
    optional(15, "list", ListType(16, LongType(), element_required=True)),
    optional(17, "map", MapType(18, StringType(), 19, LongType(), value_required=True)),
    optional(20, "imap", MapType(21, IntegerType(), 22, StringType(), value_required=True)),
    optional(23, "st", StructType(optional(24, "a", LongType()), optional(25, "b", StringType()))),
)
KEY = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
FULL = [
    True, 1, 2, 0.5, 0.1, 18_000, 3_600_000_000, 5, 6, "é", KEY, b"abc", b"\x00\x01", Decimal("-12.345"),
    [1, 3], {"k": 1, "z": 2}, {1: "one"}, Record(7, None),
]  # fmt: skip
EMPTY = [False, *[None] * 17]


def avro_file(lake, schema, records, name="data.avro", codec="deflate"):
    path = str(lake.folder / name)
    with AvroOutputFile[Any](
        PyArrowFileIO().new_output(path), schema, "table", metadata={"avro.codec": codec}
    ) as output:
        for start in range(0, len(records), 100):
            output.write_block([Record(*record) for record in records[start : start + 100]])
    return path


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2"])
def test_avro_files_of_all_types_are_read(lake, codec):
    path = avro_file(lake, ALL_TYPES, [FULL, EMPTY], codec=codec)
    full, empty = lake.read(lake.task(path), lake.context(ALL_TYPES)).to_pylist()
    assert full == {
        "b": True,
        "i": 1,
        "l": 2,
        "f": 0.5,
        "d": 0.1,
        "day": dt.date(2019, 4, 14),
        "t": dt.time(1),
        "ts": dt.datetime(1970, 1, 1, 0, 0, 0, 5),  # noqa: DTZ001
        "tz": dt.datetime(1970, 1, 1, 0, 0, 0, 6, tzinfo=dt.UTC),
        "s": "é",
        "u": str(KEY),
        "x": b"abc",
        "bin": b"\x00\x01",
        "n": Decimal("-12.345"),
        "list": [1, 3],
        "map": [("k", 1), ("z", 2)],
        "imap": [(1, "one")],
        "st": {"a": 7, "b": None},
    }
    assert empty == {"b": False} | dict.fromkeys(list(full)[1:])


def test_avro_files_are_read_through_the_tables_schema_with_deletes(lake):
    path = avro_file(
        lake,
        Schema(optional(1, "a", IntegerType()), optional(2, "gone", StringType())),
        [[i, "x"] for i in range(1000)],
    )
    schema = Schema(optional(3, "new", StringType()), optional(1, "b", LongType()))
    task = lake.task(path, deletion_vector=lake.deletion_vector(path, [0, 150, 999]), first_row_id=50)
    context = lake.context(schema, batch_rows=70, metadata_columns=(columns.POS, columns.ROW_ID))
    found = lake.read(task, context)
    expected = [i for i in range(1000) if i not in {0, 150, 999}]
    assert found.column("b").to_pylist() == expected
    assert found.column(columns.POS).to_pylist() == expected
    assert found.column(columns.ROW_ID).to_pylist() == [50 + i for i in expected]
    assert found.column("new").null_count == len(expected)


def test_avro_files_are_filtered_and_keep_their_positions(lake):
    schema = Schema(optional(1, "a", IntegerType()), optional(2, "s", StringType()))
    path = avro_file(lake, schema, [[i % 50, f"s{i}"] for i in range(1000)])
    context = lake.context(schema, row_filter=EqualTo("a", 7), batch_rows=64, metadata_columns=(columns.POS,))
    found = lake.read(lake.task(path), context)
    assert found.column(columns.POS).to_pylist() == list(range(7, 1000, 50))
    assert found.column("s").to_pylist() == [f"s{i}" for i in range(7, 1000, 50)]


def test_rows_are_counted_where_no_column_of_a_file_is_wanted(lake):
    """As in `SELECT count(*)`, or where a file has none of the wanted columns."""
    schema = Schema(optional(1, "a", IntegerType()))
    avro = avro_file(lake, schema, [[i] for i in range(1000)])
    stripes = orc_file(lake, pa.table([list(range(1000))], schema=pa.schema([orc_id(1, "a", pa.int32())])))
    for path in (avro, stripes):
        task = lake.task(path, deletion_vector=lake.deletion_vector(path, [0, 998]))
        found = lake.read(task, lake.context(Schema(), batch_rows=64, metadata_columns=(columns.POS,)))
        assert found.column(columns.POS).to_pylist() == [*range(1, 998), 999]
        added = lake.read(task, lake.context(Schema(optional(2, "added", StringType())), batch_rows=64))
        assert added.column("added").to_pylist() == [None] * 998


@pytest.mark.parametrize("positions", [[0], [999], [3, 500]])
def test_rows_of_avro_and_orc_files_are_found_by_position(lake, positions):
    """An update in merge-on-read asks for the row groups of some positions; these formats have one piece."""
    avro = avro_file(lake, Schema(optional(1, "a", IntegerType())), [[i] for i in range(1000)])
    stripes = orc_file(lake, pa.table([list(range(1000))], schema=pa.schema([orc_id(1, "a", pa.int32())])))
    for path in (avro, stripes):
        context = lake.context(Schema(optional(1, "a", LongType())), batch_rows=64)
        found: dict[Any, Any] = {}
        for part in scan_file(lake.task(path), context, np.array(positions)):
            found |= dict(enumerate(part.batch.column("a").to_pylist(), part.start_position))
        assert [found[position] for position in positions] == positions


def test_position_deletes_may_be_avro_or_orc(lake):
    path = avro_file(lake, Schema(optional(1, "a", IntegerType())), [[i] for i in range(10)])
    kinds = Schema(
        NestedField(2147483546, "file_path", StringType(), required=True),
        NestedField(2147483545, "pos", LongType(), required=True),
    )
    avro = avro_file(lake, kinds, [[path, 3], ["other", 4]], "deletes.avro")
    stripes = orc_file(lake, pa.table({"file_path": [path], "pos": [5]}), "deletes.orc")
    task = lake.task(path, position_deletes=(lake.delete_ref(avro, 2), lake.delete_ref(stripes, 1)))
    found = lake.read(task, lake.context(Schema(optional(1, "a", IntegerType()))))
    assert found.column("a").to_pylist() == [0, 1, 2, 4, 6, 7, 8, 9]


class Written(io.BytesIO):
    """A file in memory that Avro's encoder writes to."""

    def tell(self):
        return super().tell()


def hand_made(lake, schema, encode, rows, sync=b"s" * 16, end=b""):
    """An Avro file with a schema as some other writer would have it."""
    out = Written()
    encoder = BinaryEncoder(out)
    out.write(b"Obj\x01")
    text = json.dumps(schema).encode()
    # A block of the header's map with its size in bytes, which a negative count announces.
    entry = Written()
    inner = BinaryEncoder(entry)
    inner.write_utf8("avro.schema")
    inner.write_bytes(text)
    encoder.write_int(-1)
    encoder.write_int(len(entry.getvalue()))
    out.write(entry.getvalue())
    encoder.write_int(0)
    out.write(b"s" * 16)
    data = Written()
    for row in rows:
        encode(BinaryEncoder(data), row)
    encoder.write_int(len(rows))
    encoder.write_int(len(data.getvalue()))
    out.write(data.getvalue() + sync + end)
    path = lake.folder / "hand.avro"
    Path(path).write_bytes(out.getvalue())
    return str(path)


UNION = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["long", "null"], "field-id": 1}]}


def write_union(encoder, value):
    encoder.write_int(1 if value is None else 0)
    if value is not None:
        encoder.write_int(value)


def test_null_may_be_the_second_branch_of_a_union(lake):
    path = hand_made(lake, UNION, write_union, [1, None, 3])
    found = lake.read(lake.task(path), lake.context(Schema(optional(1, "a", LongType()))))
    assert found.column("a").to_pylist() == [1, None, 3]


def test_avro_files_without_ids_use_the_name_mapping(lake):
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["long", "null"]}]}
    path = hand_made(lake, schema, write_union, [1, None])
    table = Schema(optional(9, "a", LongType()))
    mapping = create_mapping_from_schema(table).model_dump_json()
    assert lake.read(lake.task(path), lake.context(table, name_mapping_json=mapping)).column("a").to_pylist() == [
        1,
        None,
    ]


@pytest.mark.parametrize("options", [{"sync": b"x" * 16}, {"sync": b"s"}, {"end": b"\x02\xff\xff\xff\xff\x0f"}])
def test_a_damaged_avro_block_is_reported(lake, options):
    path = hand_made(lake, UNION, write_union, [1, None], **options)
    with pytest.raises(CorruptFileError, match=r"hand\.avro"):
        lake.read(lake.task(path), lake.context(Schema(optional(1, "a", LongType()))))


ENUM = {"type": "enum", "name": "e", "symbols": ["a", "b"]}


@pytest.mark.parametrize("index", [-1, 2])
def test_an_enum_without_such_a_symbol_is_reported(lake, index):
    """Python would take -1 for the last one."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": ENUM, "field-id": 1}]}
    context = lake.context(Schema(optional(1, "s", StringType())))
    path = hand_made(lake, schema, lambda encoder, value: encoder.write_int(value), [1, 0])
    assert lake.read(lake.task(path), context).column("s").to_pylist() == ["b", "a"]
    path = hand_made(lake, schema, lambda encoder, value: encoder.write_int(value), [1, index])
    with pytest.raises(CorruptFileError, match=r"hand\.avro"):
        lake.read(lake.task(path), context)


def test_a_boolean_that_is_neither_true_nor_false_is_reported(lake):
    schema = {"type": "record", "name": "r", "fields": [{"name": "b", "type": "boolean", "field-id": 1}]}
    context = lake.context(Schema(optional(1, "b", BooleanType())))
    path = hand_made(lake, schema, lambda encoder, value: encoder.write(bytes([value])), [1, 0])
    assert lake.read(lake.task(path), context).column("b").to_pylist() == [True, False]
    path = hand_made(lake, schema, lambda encoder, value: encoder.write(bytes([value])), [1, 7])
    with pytest.raises(CorruptFileError, match=r"hand\.avro"):
        lake.read(lake.task(path), context)


def test_named_types_are_found_again_and_a_type_in_itself_is_refused():
    point = {"type": "record", "name": "p", "fields": [{"name": "x", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "a", "type": point}, {"name": "b", "type": ["null", "p"]}],
    }
    assert [entry.field.type for entry in avro_fields(schema)] == [pa.struct([("x", pa.int32())])] * 2
    loop = {"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}
    with pytest.raises(ValueError, match="deep"):
        avro_fields(loop)


@pytest.mark.parametrize(
    "schema",
    [
        "long",
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "long"]}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "odd"}]},
    ],
)
def test_schemas_that_no_table_has_are_refused(schema):
    with pytest.raises(ValueError, match="schema"):
        avro_fields(schema)
