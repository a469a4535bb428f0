"""Snapshots and filters to scan tasks, on real tables in a SQLite catalog; splitting them."""

import datetime as dt
import random
import struct
from dataclasses import replace
from itertools import pairwise, product
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotNull,
    Or,
    StartsWith,
)
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
    YearTransform,
)
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType, TimestampType, UUIDType
from pyiceberg.utils.lazydict import LazyDict

from dml.commit import RowDelta, commit
from dml.errors import CorruptFileError, NotFoundError
from dml.manifests.entries import PlannedFile
from dml.model.manifest import ContentFile, EntryStatus, FileContent, ManifestEntry, ManifestFile, PartitionSummary
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.options import Command
from dml.pruning.file_bounds import metric_columns
from dml.pruning.pruner import Pruner
from dml.read.reader import TaskReader
from dml.scan.planner import delete_index, plan_scan, scan_task
from dml.scan.split import MIN_PARALLEL_QUERY_BYTES, parts_of, split, weight
from tests.dml.commit.builders import equality_deletes

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "key", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
    NestedField(4, "ts", TimestampType(), required=False),
)
ARROW = pa.schema([("id", pa.int64()), ("key", pa.string()), ("amount", pa.float64()), ("ts", pa.timestamp("us"))])
STAMP = dt.datetime(2020, 1, 1)  # noqa: DTZ001


def rows(start, count, key="a"):
    return pa.Table.from_pylist(
        [
            {"id": i, "key": f"{key}{i % 3}", "amount": i / 2, "ts": STAMP + dt.timedelta(hours=i)}
            for i in range(start, start + count)
        ],
        schema=ARROW,
    )


@pytest.fixture
def table(catalog):
    table = catalog.create_table("db.t", SCHEMA)
    for start in (0, 100, 200):
        table.append(rows(start, 100))
    return table


def ids(table, plan, lake):
    context = lake.context(table.schema(), tuple(table.specs().values()), io_properties=dict(table.io.properties))
    reader = TaskReader(context)
    return sorted(i for task in plan.tasks for batch in reader.read(task) for i in batch.column("id").to_pylist())


def test_all_files_of_the_current_snapshot_are_planned_in_order(table, lake):
    plan = plan_scan(table, None)
    assert plan.snapshot_id == table.current_snapshot().snapshot_id
    assert [task.file_ordinal for task in plan.tasks] == [0, 1, 2]
    assert (plan.total_data_files, plan.skipped_data_files) == (3, 0)
    assert (plan.total_manifests, plan.manifests_read) == (3, 3)
    assert ids(table, plan, lake) == list(range(300))
    assert plan == plan_scan(table, None)


def test_a_task_says_what_the_manifest_says_of_its_file(table):
    (task,) = plan_scan(table, table.history()[0].snapshot_id).tasks
    assert task.path.startswith("file:")
    assert (task.file_format, task.record_count, task.data_sequence_number) == ("parquet", 100, 1)
    assert (task.start, task.length, task.first_row_id) == (0, task.file_size_in_bytes, None)
    assert not task.has_deletes
    assert task.split_offsets


def test_an_earlier_snapshot_can_be_read(table, lake):
    first = table.history()[0].snapshot_id
    assert ids(table, plan_scan(table, first), lake) == list(range(100))


def test_an_unknown_snapshot_is_an_error(table):
    with pytest.raises(NotFoundError, match=r"db\.t.* 42"):
        plan_scan(table, 42)


def test_a_table_without_snapshots_has_nothing_to_read(catalog):
    plan = plan_scan(catalog.create_table("db.empty", SCHEMA), None, EqualTo("id", 1))
    assert plan.snapshot_id is None
    assert plan.tasks == ()


@pytest.mark.parametrize(
    ("row_filter", "files"),
    [
        (EqualTo("id", 150), 1),
        (EqualTo("ID", 150), 1),
        (In("id", [50, 250]), 2),
        (GreaterThan("id", 99), 2),
        (LessThan("id", 0), 0),
        (Or(EqualTo("id", 1), EqualTo("id", 299)), 2),
        (Not(GreaterThan("id", 99)), 1),
        (IsNull("key"), 0),
        (StartsWith("key", "b"), 0),
        (IsNaN("amount"), 3),  # PyIceberg writes no counts of NaN
        (NotEqualTo("id", 5), 3),
    ],
)
def test_files_are_pruned_by_their_metrics(table, row_filter, files):
    plan = plan_scan(table, None, row_filter)
    assert len(plan.tasks) == files
    assert plan.skipped_data_files == 3 - files
    assert [task.file_ordinal for task in plan.tasks] == list(range(files))


@pytest.mark.parametrize(
    ("nans", "kept"),
    [({3: 1}, True), ({3: 0}, False), ({}, True), ({3: 10}, True)],
    ids=["one", "none", "unknown", "all"],
)
def test_a_file_that_may_hold_nan_is_kept_for_greater_than(nans, kept):
    """NaN is greater than any value, but bounds do not know it."""
    bounds = {3: struct.pack("<d", 1.0)}
    entry = data_entry(lower_bounds=bounds, upper_bounds=bounds, nan_value_counts=nans, value_counts={3: 10})
    for row_filter in (GreaterThan("amount", 5.0), GreaterThanOrEqual("amount", 5.0), IsNaN("amount")):
        assert Pruner({}, SCHEMA, row_filter, case_sensitive=True).may_match(entry.data_file) is kept
    assert not Pruner({}, SCHEMA, LessThan("amount", 1.0), case_sensitive=True).may_match(entry.data_file)


NESTED = Schema(
    NestedField(1, "s", StructType(NestedField(2, "x", DoubleType(), required=False)), required=False),
)


@pytest.mark.parametrize(
    ("counted", "nulls", "all_told"), [(7, 0, False), (10, 0, True), (None, 0, False), (10, None, False)]
)
def test_rows_in_which_a_struct_is_null_are_not_forgotten_where_its_fields_do_not_count_them(counted, nulls, all_told):
    """So does Iceberg's Java library with floats in Parquet files, and with all fields of structs in ORC files."""
    low, high = (struct.pack("<d", value) for value in (6.0, 9.0))
    file = data_entry(**metrics(2, low, high, values=counted, nulls=nulls, nans=0)).data_file
    for row_filter in (GreaterThan("s.x", 5.0), NotNull("s.x"), NotEqualTo("s.x", 5.0)):
        pruner = Pruner({}, NESTED, row_filter, case_sensitive=True)
        assert pruner.may_match(file)
        assert pruner.must_match(file) is all_told
    assert Pruner({}, NESTED, IsNull("s.x"), case_sensitive=True).may_match(file) is not all_told
    key = data_entry("e.parquet", 6, content=FileContent.EQUALITY_DELETES, equality_ids=(2,), **metrics(2, nulls=10))
    task = scan_task(
        0,
        PlannedFile.of(data_entry(**metrics(2, low, high, values=counted, nulls=nulls, nans=0)), with_metrics=True),
        delete_index([key], {}),
        metric_columns(NESTED),
    )
    assert bool(task.equality_deletes) is not all_told


def test_partitions_prune_manifests_and_files(catalog, lake):
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "key"), PartitionField(4, 1001, DayTransform(), "day")
    )
    table = catalog.create_table("db.p", SCHEMA, partition_spec=spec)
    table.append(rows(0, 48, "a"))
    table.append(rows(100, 48, "b"))
    everything = plan_scan(table, None)
    assert len(everything.tasks) == 12 + 3
    only = plan_scan(table, None, EqualTo("key", "a1"))
    assert only.manifests_read == 1
    assert [task.partition[0] for task in only.tasks] == ["a1", "a1"]
    assert only.total_data_files == len(everything.tasks)
    early = plan_scan(table, None, LessThan("ts", "2020-01-02T00:00:00"))
    assert ids(table, early, lake) == list(range(24))


def test_files_of_other_partitions_are_left_out_before_their_metrics_are_decoded(catalog, monkeypatch):
    """PyIceberg makes a dict of metrics when they are looked at."""
    table = catalog.create_table(
        "db.p", SCHEMA, partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "key"))
    )
    table.append(rows(0, 9))
    decoded = []
    build = LazyDict._build_dict

    def counted(lazy):
        decoded.append(lazy)
        return build(lazy)

    monkeypatch.setattr(LazyDict, "_build_dict", counted)
    plan = plan_scan(table, None, And(LessThan("id", 0), EqualTo("key", "a1")))
    assert (len(plan.tasks), plan.skipped_data_files) == (0, 3)
    assert not decoded, "the bounds of one column tell enough"
    assert len(plan_scan(table, None, And(EqualTo("key", "a1"), LessThan("id", 5))).tasks) == 1
    assert len(decoded) == 2, "the counts of the one file of the partition"


def test_a_changed_spec_is_pruned_spec_by_spec(catalog, lake):
    table = catalog.create_table("db.e", SCHEMA)
    table.append(rows(0, 30))
    with table.update_spec() as update:
        update.add_field("key", TruncateTransform(1), "key_start")
    table.append(rows(100, 30, "b"))
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    table.append(rows(200, 30, "c"))
    assert ids(table, plan_scan(table, None), lake) == [*range(30), *range(100, 130), *range(200, 230)]
    assert ids(table, plan_scan(table, None, StartsWith("key", "b")), lake) == list(range(100, 130))
    found = plan_scan(table, None, EqualTo("id", 205))
    assert 205 in ids(table, found, lake)
    assert len(found.tasks) == 1


def test_a_dropped_partition_column_does_not_disturb_planning(catalog, lake):
    table = catalog.create_table(
        "db.d", SCHEMA, partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "key"))
    )
    table.append(rows(0, 9))
    with table.update_spec() as update:
        update.remove_field("key")
    with table.update_schema() as update:
        update.delete_column("key")
    assert ids(table, plan_scan(table, None, EqualTo("id", 8)), lake) == [2, 5, 8]


# ---- deletes, and what a manifest need not say ----------------------------------------------------------------


def data_entry(path="data.parquet", sequence_number=5, **changes):
    fields = {
        "content": FileContent.DATA,
        "path": path,
        "file_format": "parquet",
        "spec_id": 0,
        "partition": (),
        "record_count": 10,
        "file_size_in_bytes": 1000,
    }
    return ManifestEntry(
        status=EntryStatus.ADDED,
        snapshot_id=1,
        data_sequence_number=sequence_number,
        file_sequence_number=sequence_number,
        data_file=ContentFile(**(fields | changes)),
    )


@pytest.mark.proves("S2", "S3", "S4")
def test_deletes_are_attached_by_kind_and_age():
    vector = data_entry(
        "v.puffin", 6, content=FileContent.POSITION_DELETES, file_format="puffin", content_offset=4,
        content_size_in_bytes=42, referenced_data_file="a.parquet",
    )  # fmt: skip
    positions = data_entry("p.parquet", 5, content=FileContent.POSITION_DELETES)
    equality = data_entry("e.parquet", 6, content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
    index = delete_index([vector, positions, equality], {})
    with_vector = scan_task(0, PlannedFile.of(data_entry("a.parquet"), with_metrics=True), index, {})
    assert with_vector.deletion_vector.content_offset == 4
    assert with_vector.position_deletes == ()
    assert [ref.equality_ids for ref in with_vector.equality_deletes] == [(1,)]
    other = scan_task(1, PlannedFile.of(data_entry("b.parquet"), with_metrics=False), index, {})
    assert other.deletion_vector is None
    assert [ref.path for ref in other.position_deletes] == ["p.parquet"]
    newer = scan_task(2, PlannedFile.of(data_entry("c.parquet", 6), with_metrics=True), index, {})
    assert not newer.has_deletes


def metrics(field_id, lower=None, upper=None, *, values=10, nulls=0, nans=None):
    """The metrics of one column; None leaves one out."""
    told = {
        "lower_bounds": lower,
        "upper_bounds": upper,
        "value_counts": values,
        "null_value_counts": nulls,
        "nan_value_counts": nans,
    }
    return {name: {field_id: value} for name, value in told.items() if value is not None}


def long(value):
    return to_bytes(LongType(), value)


def double(value):
    return to_bytes(DoubleType(), value)


@pytest.mark.parametrize(
    ("field_id", "of_data", "of_deletes", "applies"),
    [
        (1, (long(0), long(9)), (long(9), long(12)), True),
        (1, (long(0), long(9)), (long(10), long(12)), False),
        (1, (long(20), long(29)), (long(10), long(12)), False),
        (1, (long(0), None), (long(10), long(12)), True),  # half of the bounds
        (1, (long(20), None), (long(10), long(12)), False),
        (1, (None, long(9)), (long(10), None), False),
        (1, (None, None), (None, None), True),
        (1, (b"\0\0\0\0", b"\1\0\0\0"), (long(10), long(12)), False),  # of when it was an int
        (1, (b"\0\0\0\0", b"\1\0\0\0"), (long(1), long(12)), True),
        (1, (b"", b"\xff" * 9), (long(10), long(12)), True),
        (2, (b"aaaa", b"aaab"), (b"aaaazz", b"aaaazz"), True),  # truncated
        (2, (b"aaaa", b"aaab"), (b"ab", b"ac"), False),
        (2, (b"\xff", b"\xff"), (b"ab", b"ac"), True),  # no text
        (3, (double(-0.0), double(-0.0)), (double(0.0), double(0.0)), True),
        (3, (double(0.0), double(1.0)), (double(2.0), double(3.0)), False),
        (3, (double(float("nan")), double(1.0)), (double(2.0), double(3.0)), False),
        (3, (double(0.0), double(float("nan"))), (double(2.0), double(3.0)), True),
    ],
)
def test_equality_deletes_apply_where_bounds_meet(field_id, of_data, of_deletes, applies):
    """Bounds that are missing, broken or of another type tell nothing."""
    nans = 0 if field_id == 3 else None
    data = data_entry("d.parquet", **metrics(field_id, *of_data, nans=nans))
    assert applied(data, (field_id,), metrics(field_id, *of_deletes, nans=nans)) is applies


def applied(data, equality_ids, of_deletes):
    """Whether an equality delete file with these metrics applies to a data file."""
    deletes = data_entry("e.parquet", 6, content=FileContent.EQUALITY_DELETES, equality_ids=equality_ids, **of_deletes)
    task = scan_task(0, PlannedFile.of(data, with_metrics=True), delete_index([deletes], {}), metric_columns(SCHEMA))
    return bool(task.equality_deletes)


@pytest.mark.parametrize(
    ("of_data", "of_deletes", "applies"),
    [
        ({"nulls": 1, "nans": 0}, {"nulls": 1, "nans": 0}, True),  # NULL equals NULL
        ({"nulls": None, "nans": 0}, {"nulls": 1, "nans": 0}, True),  # nobody counted
        ({"nulls": 0, "nans": 0}, {"nulls": 1, "nans": 0}, False),
        ({"nulls": 0, "nans": 2}, {"nulls": 0, "nans": 1}, True),  # NaN equals NaN
        ({"nulls": 0, "nans": None}, {"nulls": 0, "nans": 1}, True),
        ({"nulls": 1, "nans": 0}, {"nulls": 0, "nans": 1}, False),
    ],
)
def test_equality_deletes_of_nulls_and_nans_apply_to_their_like(of_data, of_deletes, applies):
    data = data_entry("d.parquet", **metrics(3, double(0.0), double(1.0), **of_data))
    assert applied(data, (3,), metrics(3, double(5.0), double(6.0), **of_deletes)) is applies


def test_equality_deletes_of_nothing_but_null_apply_where_null_may_be():
    deletes = metrics(1, values=1, nulls=1)
    assert not applied(data_entry(**metrics(1, long(0), long(9))), (1,), deletes)
    assert applied(data_entry(**metrics(1, long(0), long(9), nulls=1)), (1,), deletes)
    assert applied(data_entry(), (1,), deletes)


def test_equality_deletes_apply_where_all_their_columns_meet():
    data = data_entry(
        **{name: {**of, **metrics(2, b"a", b"b")[name]} for name, of in metrics(1, long(0), long(9)).items()}
    )
    keys = metrics(1, long(3), long(4))
    assert applied(data, (1, 2), {name: {**of, **metrics(2, b"b", b"c")[name]} for name, of in keys.items()})
    assert not applied(data, (1, 2), {name: {**of, **metrics(2, b"c", b"d")[name]} for name, of in keys.items()})
    assert applied(data, (1, 77), keys)  # a column that the table has dropped


def test_equality_deletes_by_no_column_are_an_error():
    """What they delete is not known: nothing, or every row."""
    with pytest.raises(CorruptFileError, match="lists no columns to compare"):
        applied(data_entry(), (), {})


@pytest.mark.proves("S6")
def test_a_scan_reads_no_equality_deletes_of_other_keys(catalog, lake):
    """They are in the plan of the one file that may hold their key, and their rows are gone."""
    table = catalog.create_table("db.e", SCHEMA, properties={"format-version": "2"})
    for start in (0, 100, 200):
        table.append(rows(start, 100))
    (first,) = [task for task in plan_scan(table, None).tasks if task.partition == ()][:1]
    deletes = equality_deletes(table, first, 150)
    commit(
        table,
        RowDelta(
            command=Command.DELETE, delete_files=(deletes,), starting_snapshot_id=table.current_snapshot().snapshot_id
        ),
    )
    table.refresh()
    plan = plan_scan(table, None)
    assert sorted(len(task.equality_deletes) for task in plan.tasks) == [0, 0, 1]
    assert ids(table, plan, lake) == [*range(150), *range(151, 300)]


def test_unknown_metrics_prune_nothing_and_broken_ones_neither():
    pruner = Pruner({}, SCHEMA, And(GreaterThan("id", 5), EqualTo("key", "x")), case_sensitive=True)
    assert pruner.may_match(data_entry().data_file)
    assert pruner.may_match(
        data_entry(lower_bounds={1: b"xx", 2: b"\xff"}, upper_bounds={1: b"", 2: b"\xff"}).data_file
    )
    assert not pruner.may_match(data_entry(upper_bounds={1: (5).to_bytes(8, "little")}).data_file)
    assert not pruner.may_match(data_entry(upper_bounds={1: (5).to_bytes(4, "little")}).data_file), (
        "bounds of an int column"
    )


HALVES = (0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
UUIDS = [UUID(int=(high << 64) + low) for high in HALVES for low in HALVES]


def signed_halves(value: UUID) -> tuple[int, int]:
    """How Iceberg's Java library orders UUIDs."""
    high, low = struct.unpack(">qq", value.bytes)
    return high, low


@pytest.mark.parametrize("order", [signed_halves, lambda value: value.bytes], ids=["java", "bytes"])
def test_bounds_of_uuids_hold_in_either_order_of_their_writer(order):
    """Java takes two signed numbers, others their bytes: no value between the bounds is missed in any."""
    schema = Schema(NestedField(1, "u", UUIDType(), required=False))
    missed = 0
    pruners = {value: Pruner({}, schema, EqualTo("u", str(value)), case_sensitive=True) for value in UUIDS}
    for least, greatest in product(UUIDS, UUIDS):
        if order(least) > order(greatest):
            continue
        file = data_entry(lower_bounds={1: least.bytes}, upper_bounds={1: greatest.bytes}).data_file
        for value in UUIDS:
            found = pruners[value].may_match(file)
            assert found or not order(least) <= order(value) <= order(greatest)
            missed += not found
    assert missed > 1_000
    one = data_entry(lower_bounds={1: UUIDS[7].bytes}, upper_bounds={1: UUIDS[7].bytes}).data_file
    assert not Pruner({}, schema, EqualTo("u", str(UUIDS[8])), case_sensitive=True).may_match(one)


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform()])
@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_years_and_months_at_the_ends_of_pythons_dates_are_no_error(transform, day):
    """Their neighbours are no dates of Python's any more: the partition says nothing then."""
    spec = PartitionSpec(PartitionField(4, 1000, transform, "part"), spec_id=0)
    bounds = {4: to_bytes(LongType(), 0)}
    file = data_entry(partition=(0,), lower_bounds=bounds, upper_bounds=bounds, null_value_counts={4: 0}).data_file
    for row_filter, matches in (
        (LessThan("ts", f"{day}T00:00:00"), day > "1970"),
        (GreaterThan("ts", f"{day}T23:59:59.999999"), day < "1970"),
    ):
        pruner = Pruner({0: spec}, SCHEMA, row_filter, case_sensitive=True)
        assert pruner.may_match(file) is matches
        assert pruner.must_match(file) is matches


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform(), HourTransform()])
def test_partitions_of_writers_that_round_up_before_1970(transform):
    """They put the last second of 1969 into 1970: it may not be skipped, nor be deleted with that partition."""
    spec = PartitionSpec(PartitionField(4, 1000, transform, "part"), spec_id=0)

    def answers(row_filter, partition):
        file = data_entry(partition=(partition,)).data_file
        pruner = Pruner({0: spec}, SCHEMA, row_filter, case_sensitive=True)
        bound = partition.to_bytes(4, "little", signed=True)
        summary = PartitionSummary(contains_null=False, lower_bound=bound, upper_bound=bound)
        manifest = ManifestFile(manifest_path="m", manifest_length=1, partition_spec_id=0, added_snapshot_id=1)
        may = pruner.may_match(file)
        assert pruner.may_list_matches(replace(manifest, partitions=(summary,))) is may
        return may, pruner.must_match(file)

    before, since = LessThan("ts", "1970-01-01T00:00:00"), GreaterThanOrEqual("ts", "1970-01-01T00:00:00")
    assert (answers(before, 0), answers(since, 0)) == ((True, False), (True, False))
    assert (answers(before, 1), answers(since, 1)) == ((False, False), (True, True))
    assert (answers(before, -1), answers(since, -1)) == ((True, True), (False, False))


def test_files_without_rows_are_left_out():
    assert not Pruner({}, SCHEMA, AlwaysTrue(), case_sensitive=True).may_match(data_entry(record_count=0).data_file)


def test_a_manifest_without_summaries_is_read():
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=0)
    pruner = Pruner({0: spec}, SCHEMA, EqualTo("id", 5), case_sensitive=True)
    manifest = ManifestFile(manifest_path="m", manifest_length=1, partition_spec_id=0, added_snapshot_id=1)
    assert pruner.may_list_matches(manifest)
    five, six = ((n).to_bytes(8, "little") for n in (5, 6))
    assert pruner.may_list_matches(
        replace(manifest, partitions=(PartitionSummary(contains_null=False, lower_bound=five, upper_bound=six),))
    )
    assert not pruner.may_list_matches(replace(manifest, partitions=(PartitionSummary(contains_null=True),)))
    assert not pruner.may_list_matches(
        replace(manifest, partitions=(PartitionSummary(contains_null=False, lower_bound=six, upper_bound=six),))
    )


def test_a_plan_says_whether_its_filter_covers_whole_files(catalog):
    """By partition or by metrics; asked for every file, in whichever manifest it is listed."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "key"))
    table = catalog.create_table("db.w", SCHEMA, partition_spec=spec)
    for start in (0, 10):
        table.append(rows(start, start + 9))

    def covers(row_filter):
        return plan_scan(table, None, row_filter, find_whole_files=True).covers_whole_files

    assert covers(None)
    assert covers(EqualTo("key", "a1"))
    assert covers(GreaterThanOrEqual("id", 10))
    assert not covers(GreaterThanOrEqual("id", 14))
    assert covers(Or(LessThan("id", 10), EqualTo("key", "a1")))
    assert not covers(Or(LessThan("id", 5), EqualTo("key", "a1")))
    assert not plan_scan(table, None).covers_whole_files, "nobody asked"


TRANSFORMS: dict[int, list[Transform[Any, Any]]] = {
    1: [IdentityTransform(), BucketTransform(3), TruncateTransform(5)],
    2: [IdentityTransform(), BucketTransform(3), TruncateTransform(1)],
    4: [DayTransform(), IdentityTransform()],
}
VALUES: dict[int, list[Any]] = {
    1: [-7, -1, 0, 1, 4, 5, 9],
    2: ["", "a", "ab", "b", "é"],
    4: [-1, 0, 1, 86_399_999_999, 86_400_000_000],
}
NAMES = {1: "id", 2: "key", 4: "ts"}
OPERATORS = [EqualTo, NotEqualTo, LessThan, GreaterThan, GreaterThanOrEqual]


def truth(operator, value, bound):
    if value is None:
        return False
    return {
        EqualTo: value == bound,
        NotEqualTo: value != bound,
        LessThan: value < bound,
        GreaterThan: value > bound,
        GreaterThanOrEqual: value >= bound,
    }[operator]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_partition_with_a_matching_value_is_never_pruned(data):
    """All transforms, all comparisons, against the value that the partition was made of."""
    column = data.draw(st.sampled_from(sorted(VALUES)))
    transform = data.draw(st.sampled_from(TRANSFORMS[column]))
    operator = data.draw(st.sampled_from(OPERATORS))
    value = data.draw(st.sampled_from([None, *VALUES[column]]))
    bound = data.draw(st.sampled_from(VALUES[column]))
    spec = PartitionSpec(PartitionField(column, 1000, transform, "part"), spec_id=0)
    pruner = Pruner({0: spec}, SCHEMA, operator(NAMES[column], bound), case_sensitive=True)
    partition = transform.transform(SCHEMA.find_type(column))(value)
    kept = pruner.may_match_partition(0, (partition,))
    assert kept or not truth(operator, value, bound)


# ---- splitting ------------------------------------------------------------------------------------------------

MB = 1024 * 1024


def task(ordinal, size, offsets=(), **changes):
    fields = {
        "file_ordinal": ordinal, "path": f"f{ordinal}", "file_format": "parquet", "record_count": 1,
        "file_size_in_bytes": size, "start": 0, "length": size, "spec_id": 0, "partition": (),
        "data_sequence_number": 1, "split_offsets": offsets,
    }  # fmt: skip
    return ScanTask(**(fields | changes))


def test_groups_are_balanced():
    tasks = [task(n, size * MB) for n, size in enumerate([90, 10, 50, 40, 60, 30, 20])]
    groups = split(tasks, 150 * MB, 2)
    assert sorted(sum(part.length for part in group) for group in groups) == [150 * MB, 150 * MB]
    assert sorted(part.file_ordinal for group in groups for part in group) == list(range(7))


def test_small_files_share_a_group_but_all_cores_are_busy_from_16_mb_on():
    groups = split([task(n, 1000) for n in range(100)], 128 * MB, 2, open_file_cost=4 * MB)
    assert [len(group) for group in groups] == [25, 25, 25, 25]
    assert len(split([task(n, 1000) for n in range(4)], parallelism=2)) == 1
    assert len(split([task(n, 1000) for n in range(5)], parallelism=2)) == 2
    assert len(split([task(n, 1000) for n in range(3)], 2 * MB, parallelism=2, open_file_cost=MB)) == 2
    assert split([]) == ()
    queried = split([task(n, 3 * MB) for n in range(3)], parallelism=2, min_parallel_bytes=MIN_PARALLEL_QUERY_BYTES)
    assert [len(group) for group in queried] == [2, 1]
    assert (
        len(split([task(n, 3 * MB) for n in range(2)], parallelism=2, min_parallel_bytes=MIN_PARALLEL_QUERY_BYTES)) == 1
    )


def test_big_files_are_cut_at_row_groups():
    offsets = tuple(4 + n * 10 * MB for n in range(10))
    parts = list(parts_of(task(0, 100 * MB, offsets), 31 * MB))
    assert [part.start for part in parts] == [0, offsets[3], offsets[6], offsets[9]]
    assert sum(part.length for part in parts) == 100 * MB
    assert all(part.split_offsets == () for part in parts)


@pytest.mark.parametrize(
    "changes",
    [
        {"file_format": "avro"},
        {"file_format": "orc"},
        {"split_offsets": ()},
        {"split_offsets": (4, 4)},
        {"split_offsets": (4, 10**12)},
    ],
)
def test_files_that_cannot_be_cut_stay_whole(changes):
    whole = replace(task(0, 100 * MB, (4, 50 * MB)), **changes)
    assert list(parts_of(whole, MB)) == [whole]


def test_deletes_weigh_too():
    ref = DeleteFileRef(
        path="d", file_format="parquet", record_count=1, file_size_in_bytes=8 * MB, data_sequence_number=1
    )
    assert weight(task(0, 8 * MB, position_deletes=(ref,)), 4 * MB) == 16 * MB
    assert weight(task(0, 1), 4 * MB) == 4 * MB


def test_any_files_are_covered_once():
    generator = random.Random(7)
    for _ in range(100):
        tasks = []
        for ordinal in range(generator.randrange(1, 6)):
            size = generator.randrange(1, 400 * MB)
            cuts = sorted({generator.randrange(4, size + 5) for _ in range(generator.randrange(6))})
            tasks.append(task(ordinal, size, tuple(cuts)))
        groups = split(tasks, generator.randrange(1, 200 * MB), generator.randrange(1, 9))
        for whole in tasks:
            spans = sorted((p.start, p.length) for g in groups for p in g if p.file_ordinal == whole.file_ordinal)
            assert spans[0][0] == 0
            assert all(a + n == b for (a, n), (b, _) in pairwise(spans))
            assert sum(spans[-1]) == whole.length
