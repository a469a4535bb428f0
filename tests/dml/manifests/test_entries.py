"""Manifests as arrays say what they say entry by entry, and pruning asks both the same."""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
)

from dml.errors import CorruptFileError
from dml.manifests.entries import EntryArrays, EntryList, PlannedFile
from dml.manifests.read import entries_of
from dml.manifests.write import ManifestWriter
from dml.model.manifest import ContentFile, EntryStatus, FileContent, ManifestContent, ManifestEntry, ManifestFile
from dml.pruning.pruner import Pruner
from tests.dml.manifests.array_files import read_arrays

TYPES: dict[int, PrimitiveType] = {
    1: LongType(),
    2: StringType(),
    3: DoubleType(),
    4: TimestampType(),
    5: DecimalType(9, 2),
    6: DateType(),
    7: IntegerType(),
    8: FloatType(),
    10: LongType(),
}
NAMES = {1: "id", 2: "key", 3: "amount", 4: "ts", 5: "price", 6: "day", 7: "number", 8: "ratio", 10: "s.x"}
SCHEMA = Schema(
    *(NestedField(field_id, NAMES[field_id], TYPES[field_id], required=False) for field_id in range(1, 9)),
    NestedField(9, "s", StructType(NestedField(10, "x", LongType(), required=False)), required=False),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "key"),
    PartitionField(3, 1001, IdentityTransform(), "amount"),
    PartitionField(1, 1002, BucketTransform(4), "bucket"),
)
LITERALS: dict[int, list[Any]] = {
    1: [-3, 0, 1, 5, 7],
    2: ["", "a", "ab", "b", "é"],
    3: [-1.5, -0.0, 0.0, 2.5, float("inf")],
    4: [0, 1_000_000, 2_000_000],
    5: [Decimal("-1.00"), Decimal("0.50"), Decimal("3.00")],
    6: [0, 10, 20],
    7: [-2, 0, 4],
    8: [-1.5, 0.0, 2.5],
    10: [1, 2, 3],
}
SHOWN = {4: ["1970-01-01T00:00:00", "1970-01-01T00:00:01", "1970-01-01T00:00:02"]}
SHOWN[6] = ["1970-01-01", "1970-01-11", "1970-01-21"]
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("packed")
    catalog: Catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    yield catalog.create_table("db.t", SCHEMA, partition_spec=SPEC, properties={"format-version": "2"})
    catalog.close()


def bound(draw: st.DrawFn, field_id: int) -> bytes | None:
    """A serialized bound, none, or one that is not of the column's type."""
    value = draw(st.sampled_from([None, *LITERALS[field_id], *LITERALS[field_id]]))
    odd = draw(st.integers(0, 19))
    if odd == 0:
        return b"\xff\xff"
    if odd == 1 and field_id in {1, 3}:  # as before the column was promoted
        return to_bytes({1: IntegerType(), 3: FloatType()}[field_id], value) if value is not None else None
    if odd == 2 and field_id in {3, 8}:
        return to_bytes(TYPES[field_id], float("nan"))
    return None if value is None else to_bytes(TYPES[field_id], value)


@st.composite
def files(draw: st.DrawFn) -> ContentFile:
    """A file whose metrics say anything."""
    ids = sorted(draw(st.sets(st.sampled_from(sorted(TYPES)))))
    counts = st.integers(0, 3)
    rows = draw(counts)

    def some(values: st.SearchStrategy[int]) -> dict[int, int]:
        return {field_id: draw(values) for field_id in ids if draw(st.integers(0, 4))}

    lower = {field_id: found for field_id in ids if (found := bound(draw, field_id)) is not None}
    upper = {field_id: found for field_id in ids if (found := bound(draw, field_id)) is not None}
    return ContentFile(
        content=FileContent.DATA,
        path=f"file:///{draw(st.integers(0, 10**6))}.parquet",
        file_format=draw(st.sampled_from(["parquet", "avro", "orc"])),
        spec_id=0,
        partition=(
            draw(st.sampled_from([None, "a", "ab", "b"])),
            draw(st.sampled_from([None, -0.0, 0.0, 2.5, float("nan")])),
            draw(st.sampled_from([None, 0, 1, 2, 3])),
        ),
        record_count=rows,
        file_size_in_bytes=draw(counts),
        column_sizes=some(counts),
        value_counts=some(counts),
        null_value_counts=some(counts),
        nan_value_counts=some(counts),
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=tuple(draw(st.lists(counts, max_size=2))),
        sort_order_id=draw(st.sampled_from([None, 0, 1])),
    )


@st.composite
def leaves(draw: st.DrawFn) -> BooleanExpression:
    """A predicate on a column."""
    field_id = draw(st.sampled_from(sorted(TYPES)))
    name, values = NAMES[field_id], SHOWN.get(field_id, LITERALS[field_id])
    compared = [EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]
    unary = [IsNull, NotNull, *([IsNaN, NotNaN] if field_id in {3, 8} else [])]
    kind = draw(st.sampled_from([*compared, *unary, In, NotIn, *([StartsWith] if field_id == 2 else [])]))
    if kind in unary:
        return kind(name)
    if kind in {In, NotIn}:
        return kind(name, draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))
    return kind(name, draw(st.sampled_from(values)))


FILTERS = st.recursive(
    leaves(), lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner))
)


def written(table: Table, entries: Sequence[ManifestEntry]) -> ManifestFile:
    """A manifest, as a manifest list names it after a commit."""
    folder = Path(table.location().removeprefix("file://"))
    manifest = ManifestWriter(table.io, table.metadata, 7).write(
        f"file://{folder}/{next(NUMBERS)}.avro", 0, ManifestContent.DATA, entries
    )
    return replace(manifest, sequence_number=3, min_sequence_number=3)


def entry(file: ContentFile, status: EntryStatus = EntryStatus.ADDED) -> ManifestEntry:
    return ManifestEntry(
        status=status,
        snapshot_id=7,
        data_sequence_number=None if status is EntryStatus.ADDED else 2,
        file_sequence_number=None if status is EntryStatus.ADDED else 2,
        data_file=file,
    )


def plain_file(file: ContentFile) -> ContentFile:
    """A file whose metrics are dicts, and whose values can be compared by their text: NaN and -0.0 too."""
    metrics = {
        name: dict(value)
        for name in ContentFile.__dataclass_fields__
        if isinstance(value := getattr(file, name), Mapping)
    }
    return replace(file, **metrics)


def plain(entry: ManifestEntry) -> ManifestEntry:
    return replace(entry, data_file=plain_file(entry.data_file))


def with_plain_metrics(file: PlannedFile) -> PlannedFile:
    return file if file.metrics is None else replace(file, metrics=plain_file(file.metrics))


def all_of(packed: EntryArrays) -> list[ManifestEntry]:
    return [packed.entry(place) for place in range(packed.size)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(files(), st.sampled_from(list(EntryStatus))), min_size=1, max_size=8),
    st.lists(FILTERS, min_size=1, max_size=6),
)
def test_lists_and_arrays_of_entries_answer_alike(table, found, filters) -> None:  # type: ignore[no-untyped-def]
    manifest = written(table, [entry(file, status) for file, status in found])
    one_by_one = tuple(entries_of(manifest, table.io))
    arrays, objects = read_arrays(manifest, table.io), EntryList(one_by_one, 0)
    everything = list(range(len(one_by_one)))
    assert repr(all_of(arrays)) == repr(list(map(plain, one_by_one)))
    assert arrays.live_count == objects.live_count == sum(one.is_live for one in one_by_one)
    for places in (everything, everything[::2], everything[:0]):
        assert list(arrays.delete_targets(places)) == list(objects.delete_targets(places))
        for with_metrics in (False, True):
            found_here = arrays.planned_files(places, with_metrics=with_metrics)
            expected_files = objects.planned_files(places, with_metrics=with_metrics)
            assert repr(list(map(with_plain_metrics, found_here))) == repr(
                list(map(with_plain_metrics, expected_files))
            )
    for row_filter in (AlwaysTrue(), *filters):
        pruner = Pruner(table.specs(), table.schema(), row_filter, case_sensitive=True)
        live = [place for place, one in enumerate(one_by_one) if one.is_live]
        expected = [place for place in live if pruner.may_match(one_by_one[place].data_file)]
        assert pruner.select_matching(arrays) == pruner.select_matching(objects) == expected, row_filter
        expected = [place for place in live if pruner.may_match_partition(0, one_by_one[place].data_file.partition)]
        assert pruner.in_partitions(arrays) == pruner.in_partitions(objects) == expected, row_filter


def test_a_damaged_manifest_is_damaged_as_arrays_too(table: Table) -> None:
    """Cut anywhere, or with any bit turned: what one reader refuses the other does, and what is read is the same."""
    chance = random.Random(4)
    file = ContentFile(
        content=FileContent.DATA,
        path="file:///x.parquet",
        file_format="parquet",
        spec_id=0,
        partition=("a", 0.5, 1),
        record_count=9,
        file_size_in_bytes=99,
        value_counts={1: 9},
        lower_bounds={1: to_bytes(LongType(), 1)},
        split_offsets=(4,),
    )
    manifest = written(table, [entry(replace(file, path=f"file:///{number}.parquet")) for number in range(3)])
    path = Path(manifest.manifest_path.removeprefix("file://"))
    content = path.read_bytes()
    outcomes = {"read": 0, "refused": 0}
    for number in range(600):
        damaged = bytearray(content)
        if number % 4 == 0:
            del damaged[chance.randrange(len(content)) :]
        else:
            place = chance.randrange(content.find(content[-16:]), len(content))
            damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        line = replace(manifest, manifest_length=len(damaged))
        try:
            expected = repr(list(map(plain, entries_of(line, table.io))))
        except CorruptFileError:
            with pytest.raises(CorruptFileError, match=r"\.avro"):
                read_arrays(line, table.io)
            outcomes["refused"] += 1
        else:
            try:
                assert repr(all_of(read_arrays(line, table.io))) == expected
                outcomes["read"] += 1
            except CorruptFileError:  # a number that no file has: 2 ** 63 rows
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, outcomes
