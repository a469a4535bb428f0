"""Find the files that may hold rows of a filter, vectorized over all files of a manifest. Driver.

Input: an Iceberg expression, and the metrics of the files as arrays. Output: for each file exactly the result of
`row_tests.any_match`. Numbers are compared as arrays, other values by that test, file by file.
Spec: "Scan Planning"; "Manifests", on bounds and counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundNotNaN,
    BoundNotNull,
    BoundPredicate,
)
from pyiceberg.schema import Schema

from dml.manifests.entries import EntryArrays
from dml.manifests.entry_fields import (
    LOWER_BOUNDS,
    NAN_VALUE_COUNTS,
    NULL_VALUE_COUNTS,
    RECORD_COUNT,
    UPPER_BOUNDS,
    VALUE_COUNTS,
)
from dml.pruning.bound_expressions import bound_filter, fold_expression
from dml.pruning.file_bounds import MetricColumn, in_byte_order
from dml.pruning.row_tests import Bounds, ColumnBounds, may_match

__all__ = ["FilesTest", "any_match_of_files", "files_bounds"]

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The lower or the upper bounds of a column in some files.

    Attributes:
        values: The bounds, as numbers or objects. Values of files without a bound are undefined.
        known: True for files with a bound.
    """

    values: npt.NDArray[Any]
    known: Flags

    @property
    def is_numeric(self) -> bool:
        """True if the bounds can be compared as an array."""
        return self.values.dtype != object


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesBounds:
    """`ColumnBounds` of one column in some files, as arrays."""

    lower: Side
    upper: Side
    nulls: Flags
    nans: Flags
    values: Flags


FilesBoundsOf = Callable[[int], FilesBounds]
FilesTest = Callable[[FilesBoundsOf], Flags]
Leaf = Callable[[FilesBounds], Flags]


def any_match_of_files(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> FilesTest:
    """Return a test that is False only for files in which no row can satisfy the expression.

    Args:
        expression: An unbound expression.
        schema: The schema of its names.
        case_sensitive: Whether names match case-sensitively.

    Returns:
        The test. It returns one flag per file, or a single flag for all of them.
    """

    def on_column(predicate: BoundPredicate) -> FilesTest:
        field_id, test = predicate.term.ref().field.field_id, leaf(predicate)
        return lambda bounds_of: test(bounds_of(field_id))

    def both(left: FilesTest, right: FilesTest) -> FilesTest:
        return lambda bounds_of: left(bounds_of) & right(bounds_of)

    def either(left: FilesTest, right: FilesTest) -> FilesTest:
        return lambda bounds_of: left(bounds_of) | right(bounds_of)

    return fold_expression(
        bound_filter(expression, schema, case_sensitive=case_sensitive),
        leaf=on_column,
        both=both,
        either=either,
        always=lambda _: np.ones(1, np.bool_),
        never=lambda _: np.zeros(1, np.bool_),
    )


def leaf(predicate: BoundPredicate) -> Leaf:
    """Return the test of which files may have a row that satisfies a predicate."""
    one_by_one = file_by_file(predicate)
    match predicate:
        case BoundIsNull():
            return lambda b: b.nulls
        case BoundNotNull():
            return lambda b: b.values | b.nans
        case BoundIsNaN():
            return lambda b: b.nans
        case BoundNotNaN():
            return lambda b: b.values
        case BoundLessThan():
            value = predicate.literal.value
            return numeric_or(lambda b: (~b.lower.known | (b.lower.values < value)) & b.values, one_by_one)
        case BoundLessThanOrEqual():
            value = predicate.literal.value
            return numeric_or(lambda b: (~b.lower.known | (b.lower.values <= value)) & b.values, one_by_one)
        case BoundGreaterThan():
            value = predicate.literal.value
            return numeric_or(lambda b: ((~b.upper.known | (b.upper.values > value)) & b.values) | b.nans, one_by_one)
        case BoundGreaterThanOrEqual():
            value = predicate.literal.value
            return numeric_or(lambda b: ((~b.upper.known | (b.upper.values >= value)) & b.values) | b.nans, one_by_one)
        case BoundEqualTo():
            return numeric_or(equal_to([predicate.literal.value]), one_by_one)
        case BoundIn():
            return numeric_or(equal_to(sorted(predicate.value_set)), one_by_one)
    return one_by_one


def numeric_or(test: Leaf, otherwise: Leaf) -> Leaf:
    """Return a test that runs on arrays if the bounds are numbers, and otherwise the fallback."""
    return lambda b: test(b) if b.lower.is_numeric and b.upper.is_numeric else otherwise(b)


def equal_to(values: Sequence[Any]) -> Leaf:
    """Return the test of which files may have one of the values, which are in ascending order.

    A file may have one if the least value that is not below its lower bound is not above its upper bound.
    """

    def test(bounds: FilesBounds) -> Flags:
        wanted = np.array(values, bounds.lower.values.dtype)
        if len(wanted) == 0:
            return np.zeros(len(bounds.values), np.bool_)
        place = np.where(bounds.lower.known, np.searchsorted(wanted, bounds.lower.values), 0)
        there = place < len(wanted)
        least = wanted[np.minimum(place, len(wanted) - 1)]
        return np.asarray(there & (~bounds.upper.known | (least <= bounds.upper.values)) & bounds.values)

    return test


def file_by_file(predicate: BoundPredicate) -> Leaf:
    """Return a test that applies `may_match` to each file."""
    test = may_match(predicate)

    def ask(bounds: FilesBounds) -> Flags:
        answers = (
            test(Bounds(lower=lower, upper=upper, nulls=nulls, nans=nans, values=values))
            for lower, upper, nulls, nans, values in zip(
                as_objects(bounds.lower),
                as_objects(bounds.upper),
                bounds.nulls.tolist(),
                bounds.nans.tolist(),
                bounds.values.tolist(),
                strict=True,
            )
        )
        return np.fromiter(answers, np.bool_, len(bounds.values))

    return ask


def as_objects(side: Side) -> list[Any]:
    """Return bounds as objects, None for missing ones."""
    return [value if known else None for value, known in zip(side.values.tolist(), side.known.tolist(), strict=True)]


# ---- bounds from manifests ------------------------------------------------------------------------------------


def files_bounds(
    entries: EntryArrays,
    columns: Mapping[int, MetricColumn],
    identity: Mapping[int, Mapping[int, ColumnBounds]],
) -> FilesBoundsOf:
    """Return the bounds of the columns of a manifest's files, computed on demand.

    Args:
        entries: The files.
        columns: By field id.
        identity: The columns that each partition fixes to one value, by its index in `entries.partitions`; the same
            columns in all partitions. The result is undefined for files of other partitions.
    """
    known: dict[int, FilesBounds] = {}

    def bounds_of(field_id: int) -> FilesBounds:
        if field_id not in known:
            known[field_id] = found(field_id)
        return known[field_id]

    def found(field_id: int) -> FilesBounds:
        of_partitions = {code: better[field_id] for code, better in identity.items() if field_id in better}
        if of_partitions:
            return bounds_of_partitions(of_partitions, entries)
        column = columns.get(field_id)
        return unknown_bounds(entries.size) if column is None else metric_bounds(entries, field_id, column)

    return bounds_of


def bounds_of_partitions(bounds: Mapping[int, ColumnBounds], entries: EntryArrays) -> FilesBounds:
    """Return the bounds of a column that the partition of each file fixes to one value."""
    place = np.zeros(len(entries.partitions), np.int64)
    place[list(bounds)] = np.arange(len(bounds))
    place_of_file = place[entries.partition_of]
    each = list(bounds.values())

    def flags(of: Callable[[ColumnBounds], bool]) -> Flags:
        return np.array([of(one) for one in each], np.bool_)[place_of_file]

    def side(of: Callable[[ColumnBounds], Any]) -> Side:
        values = np.empty(len(each), object)
        for number, one in enumerate(each):
            values[number] = of(one)
        known = np.array([value is not None for value in values], np.bool_)
        return Side(values=values[place_of_file], known=known[place_of_file])

    return FilesBounds(
        lower=side(lambda one: one.lower),
        upper=side(lambda one: one.upper),
        nulls=flags(lambda one: one.nulls),
        nans=flags(lambda one: one.nans),
        values=flags(lambda one: one.values),
    )


def unknown_bounds(files: int) -> FilesBounds:
    """Return unknown bounds for all files."""
    side = Side(values=np.empty(files, object), known=np.zeros(files, np.bool_))
    anything = np.ones(files, np.bool_)
    return FilesBounds(lower=side, upper=side, nulls=anything, nans=anything, values=anything)


def metric_bounds(entries: EntryArrays, field_id: int, column: MetricColumn) -> FilesBounds:
    """Return the vectorized equivalent of `file_bounds.MetricBounds`."""
    counts, has_count = column_counts(entries, VALUE_COUNTS, field_id)
    nulls, has_nulls = column_counts(entries, NULL_VALUE_COUNTS, field_id)
    nans, has_nans = column_counts(entries, NAN_VALUE_COUNTS, field_id)
    if not column.is_floating:
        nans, has_nans = np.zeros(entries.size, np.int64), np.ones(entries.size, np.bool_)
    may_be_null = ~has_nulls | (nulls != 0)
    if column.is_nested:
        may_be_null |= ~has_count | (counts != entries.numbers(RECORD_COUNT))
    # A missing count is 0 here, and counts of 0 are not used below. Some writers store -1 for unknown counts.
    known = (counts > 0) & (nulls >= 0)
    only_nulls = known & (counts == nulls)
    only_nulls_and_nans = known & (counts == nulls + nans)
    may_be_nan = (~has_nans | (nans != 0)) & ~only_nulls if column.is_floating else np.zeros(entries.size, np.bool_)
    lower, upper = (decode_bounds(entries, metric, field_id, column) for metric in (LOWER_BOUNDS, UPPER_BOUNDS))
    if column.is_uuid:
        lower, upper = in_byte_order_of_files(lower, upper)
    return FilesBounds(
        lower=lower,
        upper=upper,
        nulls=may_be_null,
        nans=may_be_nan,
        values=~only_nulls_and_nans,
    )


def column_counts(entries: EntryArrays, metric: int, field_id: int) -> tuple[npt.NDArray[np.int64], Flags]:
    """Return a count of a column in each file, 0 if it is missing, and which files have it."""
    files, values = entries.maps[metric].of_column(field_id)
    counts, known = np.zeros(entries.size, np.int64), np.zeros(entries.size, np.bool_)
    counts[files] = values.to_numpy()
    known[files] = True
    return counts, known


def decode_bounds(entries: EntryArrays, metric: int, field_id: int, column: MetricColumn) -> Side:
    """Decode the lower or upper bounds of a column in each file."""
    files, serialized = entries.maps[metric].of_column(field_id)
    known = np.zeros(entries.size, np.bool_)
    if column.fixed is not None and have_size(serialized, column.fixed.itemsize):
        numbers = reinterpret(serialized, column.fixed)
        values = np.zeros(entries.size, WIDE[column.fixed.kind])
        values[files] = numbers
        known[files] = ~np.isnan(numbers) if column.is_floating else True
        return Side(values=values, known=known)
    objects = np.empty(entries.size, object)
    found = [column.decode(data) for data in serialized.to_pylist()]
    for place, value in zip(files.tolist(), found, strict=True):
        objects[place] = value
    known[files] = [value is not None for value in found]
    return Side(values=objects, known=known)


def in_byte_order_of_files(lower: Side, upper: Side) -> tuple[Side, Side]:
    """Apply `file_bounds.in_byte_order` to each file."""
    ends = [in_byte_order(*pair) for pair in zip(as_objects(lower), as_objects(upper), strict=True)]
    found = []
    for values in zip(*ends, strict=True) if ends else ((), ()):
        objects = np.empty(len(values), object)
        objects[:] = values
        found.append(Side(values=objects, known=np.array([value is not None for value in values], np.bool_)))
    return found[0], found[1]


def reinterpret(serialized: pa.LargeBinaryArray, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Reinterpret binary values as numbers. All have the number's size and none is null."""
    if not len(serialized):
        return np.empty(0, kind)
    _, offsets, data = serialized.buffers()
    start = int(np.frombuffer(offsets, np.int64)[serialized.offset])
    return np.frombuffer(data, kind, len(serialized), start)


WIDE: Final = {"i": np.int64, "f": np.float64}


def have_size(serialized: pa.Array, size: int) -> bool:
    """Return whether all bounds have the size of the column's type. Those of a promoted column may not."""
    return len(serialized) == 0 or bool(pc.all(pc.equal(pc.binary_length(serialized), size)).as_py())
