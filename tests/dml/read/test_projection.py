"""Files of older schemas and of other writers, read through the table's current schema."""

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.expressions import GreaterThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.errors import NotSupportedError
from dml.model import columns
from dml.read.reader import TaskReader


def optional(field_id, name, kind, **more):
    return NestedField(field_id, name, kind, required=False, **more)


def test_columns_are_found_by_id_through_renames_reorders_adds_and_drops(lake, field):
    written = pa.schema([field(1, "a", pa.int64()), field(2, "b", pa.string()), field(3, "gone", pa.int64())])
    path = lake.parquet(pa.table([[1, 2], ["x", None], [8, 9]], schema=written))
    schema = Schema(optional(2, "a", StringType()), optional(4, "new", LongType()), optional(1, "renamed", LongType()))
    assert lake.read(lake.task(path), lake.context(schema)).to_pylist() == [
        {"a": "x", "new": None, "renamed": 1},
        {"a": None, "new": None, "renamed": 2},
    ]


def test_a_dropped_and_added_name_is_another_column(lake, field):
    path = lake.parquet(pa.table([[1]], schema=pa.schema([field(1, "a", pa.int64())])))
    assert lake.read(lake.task(path), lake.context(Schema(optional(2, "a", LongType())))).to_pylist() == [{"a": None}]


@pytest.mark.parametrize(
    ("written", "values", "kind", "expected"),
    [
        (pa.int32(), [1, None], LongType(), [1, None]),
        (pa.float32(), [0.5, None], DoubleType(), [0.5, None]),
        (pa.decimal128(4, 2), [Decimal("1.50")], DecimalType(20, 2), [Decimal("1.50")]),
        (pa.int8(), [-3], IntegerType(), [-3]),
        (pa.large_string(), ["x", None], StringType(), ["x", None]),
        (pa.dictionary(pa.int32(), pa.string()), ["x", None, "x"], StringType(), ["x", None, "x"]),
        (pa.large_binary(), [b"x"], BinaryType(), [b"x"]),
        (pa.timestamp("ms"), [dt.datetime(2020, 1, 1)], TimestampType(), [dt.datetime(2020, 1, 1)]),  # noqa: DTZ001
        (pa.timestamp("ns"), [dt.datetime(2020, 1, 1)], TimestampType(), [dt.datetime(2020, 1, 1)]),  # noqa: DTZ001
        (
            pa.timestamp("us", tz="America/New_York"),
            [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
            TimestamptzType(),
            [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
        ),
        (pa.date32(), [dt.date(1969, 1, 1)], DateType(), [dt.date(1969, 1, 1)]),
    ],
)
def test_promotions_and_other_writers_types(lake, field, written, values, kind, expected):
    path = lake.parquet(pa.table([pa.array(values, written)], schema=pa.schema([field(1, "c", written)])))
    for spark in (True, False):
        found = lake.read(lake.task(path), lake.context(Schema(optional(1, "c", kind))), spark_types=spark)
        assert found.column("c").to_pylist() == expected


def test_dates_promoted_to_timestamps_are_not_pruned_by_their_statistics(lake, field):
    """Statistics count days, the filter microseconds."""
    days = [dt.date(2020, 1, 1), dt.date(2021, 1, 1)]
    path = lake.parquet(pa.table([days], schema=pa.schema([field(1, "c", pa.date32())])))
    context = lake.context(
        Schema(optional(1, "c", TimestampType())), row_filter=GreaterThan("c", "2020-06-01T00:00:00")
    )
    found = lake.read(lake.task(path), context)
    assert dt.datetime(2021, 1, 1) in found.column("c").to_pylist()  # noqa: DTZ001


def test_int96_timestamps_of_spark_are_read_in_microseconds(lake):
    """Nanoseconds since 1970 in 64 bits would end in 2262."""
    table = pa.table({"c": pa.array([dt.datetime(2020, 1, 1, 12)])})  # noqa: DTZ001
    path = lake.parquet(table, use_deprecated_int96_timestamps=True)
    schema = Schema(optional(1, "c", TimestamptzType()))
    found = lake.read(lake.task(path), lake.context(schema))
    assert found.column("c").to_pylist() == [dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)]


def test_types_that_spark_lacks_have_a_form_for_it_and_their_own(lake, field):
    key = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    kinds = [pa.uuid(), pa.binary(2), pa.time64("us")]
    names = [field(place, name, kind) for place, (name, kind) in enumerate(zip("uft", kinds, strict=True), start=1)]
    arrays = [
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([key.bytes, None, key.bytes], pa.binary(16))),
        pa.array([b"ab", None, b"cd"], kinds[1]),
        pa.array([dt.time(1, 2, 3, 4), None, dt.time(0)], kinds[2]),
    ]
    path = lake.parquet(pa.Table.from_arrays(arrays, schema=pa.schema(names)))
    schema = Schema(optional(1, "u", UUIDType()), optional(2, "f", FixedType(2)), optional(3, "t", TimeType()))
    for_spark = lake.read(lake.task(path), lake.context(schema))
    assert for_spark.column("u").to_pylist() == [str(key), None, str(key)]
    assert for_spark.column("f").to_pylist() == [b"ab", None, b"cd"]
    assert for_spark.schema.types == [pa.string(), pa.binary(), pa.time64("ns")]
    native = lake.read(lake.task(path), lake.context(schema), spark_types=False)
    assert native.schema.types == kinds
    assert native.column("u").combine_chunks().storage.to_pylist() == [key.bytes, None, key.bytes]
    assert native.column("t").to_pylist() == [dt.time(1, 2, 3, 4), None, dt.time(0)]


def test_nanoseconds_are_copied_but_spark_is_refused(lake, field):
    path = lake.parquet(
        pa.table([pa.array([5], pa.timestamp("ns"))], schema=pa.schema([field(1, "c", pa.timestamp("ns"))]))
    )
    context = lake.context(Schema(optional(1, "c", TimestampNanoType())))
    assert lake.read(lake.task(path), context, spark_types=False).column("c").cast(pa.int64()).to_pylist() == [5]
    with pytest.raises(NotSupportedError, match="timestamp_ns"):
        TaskReader(context)


NESTED = Schema(
    optional(
        1,
        "s",
        StructType(
            optional(3, "b2", LongType()),
            optional(9, "added", IntegerType()),
            optional(4, "inner", StructType(optional(10, "x", StringType()), optional(5, "y", LongType()))),
        ),
    ),
    optional(6, "l", ListType(7, StructType(optional(8, "z", LongType())), element_required=False)),
    optional(11, "m", MapType(12, StringType(), 13, StructType(optional(14, "v", LongType())), value_required=False)),
)


def nested_file(lake, field):
    inner = pa.struct([field(5, "old_y", pa.int32())])
    struct = pa.struct([field(2, "dropped", pa.int32()), field(3, "b", pa.int32()), field(4, "inner", inner)])
    element = pa.field("element", pa.struct([field(8, "z", pa.int32())]), metadata={b"PARQUET:field_id": b"7"})
    key = pa.field("key", pa.string(), nullable=False, metadata={b"PARQUET:field_id": b"12"})
    value = pa.field("value", pa.struct([field(14, "v", pa.int32())]), metadata={b"PARQUET:field_id": b"13"})
    kinds = [field(1, "s", struct), field(6, "l", pa.list_(element)), field(11, "m", pa.map_(key, value))]
    rows = [
        {
            "s": {"dropped": 1, "b": 2, "inner": {"old_y": 3}},
            "l": [{"z": 4}, None, {"z": None}],
            "m": [("k", {"v": 1})],
        },
        {"s": None, "l": None, "m": None},
        {"s": {"dropped": 1, "b": None, "inner": None}, "l": [], "m": [("a", None), ("b", {"v": 2})]},
        {"s": {"dropped": None, "b": 7, "inner": {"old_y": None}}, "l": [{"z": 5}], "m": []},
    ]
    return lake.parquet(pa.Table.from_pylist(rows, schema=pa.schema(kinds)))


EXPECTED_NESTED = [
    {
        "s": {"b2": 2, "added": None, "inner": {"x": None, "y": 3}},
        "l": [{"z": 4}, None, {"z": None}],
        "m": [("k", {"v": 1})],
    },
    {"s": None, "l": None, "m": None},
    {"s": {"b2": None, "added": None, "inner": None}, "l": [], "m": [("a", None), ("b", {"v": 2})]},
    {"s": {"b2": 7, "added": None, "inner": {"x": None, "y": None}}, "l": [{"z": 5}], "m": []},
]


@pytest.mark.parametrize("spark", [True, False])
@pytest.mark.parametrize("deleted", [[], [0], [1], [0, 1, 3]])
def test_nested_fields_evolve_like_columns(lake, field, spark, deleted):
    """Also after rows were dropped, when arrays are no longer what the file gave."""
    path = nested_file(lake, field)
    vector = lake.deletion_vector(path, deleted) if deleted else None
    found = lake.read(lake.task(path, deletion_vector=vector), lake.context(NESTED), spark_types=spark)
    assert found.to_pylist() == [row for place, row in enumerate(EXPECTED_NESTED) if place not in deleted]


def test_nested_values_survive_small_batches(lake, field):
    path = nested_file(lake, field)
    assert lake.read(lake.task(path), lake.context(NESTED, batch_rows=3)).to_pylist() == EXPECTED_NESTED


def test_absent_columns_have_their_initial_default(lake, field):
    path = lake.parquet(pa.table([[1, 2]], schema=pa.schema([field(1, "a", pa.int64())])))
    schema = Schema(
        optional(1, "a", LongType()),
        NestedField(2, "i", IntegerType(), required=True, initial_default=7),
        optional(3, "s", StringType(), initial_default="x"),
        optional(4, "d", DateType(), initial_default="2020-01-31"),
        optional(5, "n", DecimalType(9, 2), initial_default="1.50"),
    )
    assert lake.read(lake.task(path), lake.context(schema)).to_pylist() == [
        {"a": a, "i": 7, "s": "x", "d": dt.date(2020, 1, 31), "n": Decimal("1.50")} for a in (1, 2)
    ]


def test_an_absent_nested_field_has_its_initial_default_but_not_in_a_null_struct(lake, field):
    struct = pa.struct([field(2, "a", pa.int64())])
    path = lake.parquet(pa.table([pa.array([{"a": 1}, None], struct)], schema=pa.schema([field(1, "s", struct)])))
    new = StructType(optional(2, "a", LongType()), optional(3, "b", LongType(), initial_default=9))
    found = lake.read(lake.task(path), lake.context(Schema(optional(1, "s", new))))
    assert found.column("s").to_pylist() == [{"a": 1, "b": 9}, None]


PARTITIONED = Schema(
    optional(1, "id", LongType()),
    optional(2, "day", DateType()),
    optional(3, "key", StringType()),
    optional(4, "u", UUIDType()),
)
SPECS = (
    PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "day"),
        PartitionField(1, 1001, BucketTransform(4), "id_bucket"),
        spec_id=0,
    ),
    PartitionSpec(
        PartitionField(2, 1000, VoidTransform(), "day_old"),
        PartitionField(3, 1002, IdentityTransform(), "key"),
        spec_id=1,
    ),
)


def test_absent_identity_columns_are_filled_from_the_partition(lake, field):
    path = lake.parquet(pa.table([[1, 2]], schema=pa.schema([field(1, "id", pa.int64())])))
    found = lake.read(lake.task(path, partition=(18_000, 3)), lake.context(PARTITIONED, SPECS))
    assert found.column("day").to_pylist() == [dt.date(2019, 4, 14)] * 2
    assert found.column("key").to_pylist() == [None, None]


def test_identity_columns_in_the_file_come_from_the_file(lake, field):
    written = pa.schema([field(2, "day", pa.date32())])
    path = lake.parquet(pa.table([[dt.date(2000, 1, 1)]], schema=written))
    found = lake.read(lake.task(path, partition=(18_000, 3)), lake.context(PARTITIONED, SPECS))
    assert found.column("day").to_pylist() == [dt.date(2000, 1, 1)]


def test_partition_is_a_struct_of_the_fields_of_all_specs(lake, field):
    path = lake.parquet(pa.table([[1]], schema=pa.schema([field(1, "id", pa.int64())])))
    context = lake.context(PARTITIONED, SPECS, projected_ids=(), metadata_columns=(columns.PARTITION, columns.SPEC_ID))
    old = lake.read(lake.task(path, partition=(18_000, 3)), context)
    new = lake.read(lake.task(path, partition=(None, "k"), spec_id=1), context)
    assert old.to_pylist() == [
        {"_partition": {"day_old": dt.date(2019, 4, 14), "id_bucket": 3, "key": None}, "_spec_id": 0}
    ]
    assert new.to_pylist() == [{"_partition": {"day_old": None, "id_bucket": None, "key": "k"}, "_spec_id": 1}]


def test_day_partitions_are_dates(lake, field):
    spec = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"), spec_id=0)
    schema = Schema(optional(1, "ts", TimestampType()))
    path = lake.parquet(
        pa.table([pa.array([0], pa.timestamp("us"))], schema=pa.schema([field(1, "ts", pa.timestamp("us"))]))
    )
    context = lake.context(schema, (spec,), projected_ids=(), metadata_columns=(columns.PARTITION,))
    found = lake.read(lake.task(path, partition=(0,)), context)
    assert found.column("_partition").to_pylist() == [{"ts_day": dt.date(1970, 1, 1)}]


# ---- files without ids ----------------------------------------------------------------------------------------


def test_a_file_without_ids_is_read_through_the_name_mapping(lake):
    mapping = create_mapping_from_schema(NESTED).model_dump_json()
    rows = [{"s": {"inner": {"y": 3}, "b2": 2}, "l": [{"z": 4}], "m": [("k", {"v": 1})]}]
    struct = pa.struct([("inner", pa.struct([("y", pa.int64())])), ("b2", pa.int64())])
    kinds = [
        ("l", pa.list_(pa.field("item", pa.struct([("z", pa.int64())])))),
        ("s", struct),
        ("m", pa.map_(pa.string(), pa.struct([("v", pa.int64())]))),
    ]
    path = lake.parquet(pa.Table.from_pylist(rows, schema=pa.schema(kinds)))
    found = lake.read(lake.task(path), lake.context(NESTED, name_mapping_json=mapping))
    assert found.to_pylist() == [
        {"s": {"b2": 2, "added": None, "inner": {"x": None, "y": 3}}, "l": [{"z": 4}], "m": [("k", {"v": 1})]}
    ]


def test_ids_of_the_file_win_over_the_name_mapping(lake, field):
    path = lake.parquet(pa.table([[1]], schema=pa.schema([field(2, "a", pa.int64())])))
    schema = Schema(optional(1, "a", LongType()), optional(2, "b", LongType()))
    mapping = create_mapping_from_schema(schema).model_dump_json()
    found = lake.read(lake.task(path), lake.context(schema, name_mapping_json=mapping))
    assert found.to_pylist() == [{"a": None, "b": 1}]


def test_without_ids_and_mapping_columns_count_from_one(lake):
    path = lake.parquet(pa.table({"x": [1], "y": ["a"]}))
    schema = Schema(optional(2, "second", StringType()), optional(1, "first", LongType()))
    assert lake.read(lake.task(path), lake.context(schema)).to_pylist() == [{"second": "a", "first": 1}]


# ---- row lineage ----------------------------------------------------------------------------------------------

LINEAGE = (columns.ROW_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER)


def lineage(lake, task):
    context = lake.context(Schema(optional(1, "id", LongType())), metadata_columns=LINEAGE)
    found = lake.read(task, context)
    return list(zip(*(found.column(name).to_pylist() for name in LINEAGE), strict=True))


@pytest.mark.proves("L2")
def test_a_file_without_lineage_columns_inherits_ids_by_position(lake, field):
    path = lake.parquet(pa.table([[1, 2, 3]], schema=pa.schema([field(1, "id", pa.int64())])))
    task = lake.task(path, first_row_id=100, deletion_vector=lake.deletion_vector(path, [1]))
    assert lineage(lake, task) == [(100, 5), (102, 5)]


@pytest.mark.proves("L2", "L4")
def test_stored_lineage_wins_and_nulls_inherit(lake, field):
    kinds = pa.schema(
        [
            field(1, "id", pa.int64()),
            field(columns.ROW_ID_ID, "_row_id", pa.int64()),
            field(columns.LAST_UPDATED_SEQUENCE_NUMBER_ID, "_last_updated_sequence_number", pa.int64()),
        ]
    )
    path = lake.parquet(pa.table([[1, 2, 3], [7, None, 9], [2, 3, None]], schema=kinds))
    assert lineage(lake, lake.task(path, first_row_id=100)) == [(7, 2), (101, 3), (9, 5)]
    assert lineage(lake, lake.task(path)) == [(None, None)] * 3


def test_native_output_carries_field_ids(lake, field):
    schema = TaskReader(lake.context(NESTED), spark_types=False).output_schema
    assert schema.field("s").metadata == {b"PARQUET:field_id": b"1"}
    assert schema.field("l").type.value_field.metadata == {b"PARQUET:field_id": b"7"}


def test_uuid_text_of_a_slice(lake, field):
    keys = [uuid.uuid5(uuid.NAMESPACE_DNS, str(number)) for number in range(10)]
    storage = pa.array([key.bytes for key in keys], pa.binary(16))
    table = pa.Table.from_arrays([storage], schema=pa.schema([field(1, "u", pa.binary(16))]))
    path = lake.parquet(table)
    found = lake.read(lake.task(path), lake.context(Schema(optional(1, "u", UUIDType())), batch_rows=3))
    assert found.column("u").to_pylist() == list(map(str, keys))
    assert pc.all(pc.equal(pc.utf8_length(found.column("u")), 36)).as_py()
