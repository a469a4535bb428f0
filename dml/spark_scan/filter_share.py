"""Estimate the selectivity of a filter on Parquet files from the footers of a sample. Driver.

Input: a filter and the tasks of a scan. Output: whether Spark's own reader, which does not filter, is faster.
The estimate assumes uniform values between the bounds of a row group, and independent columns. It selects the reader
and never affects the result.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from pyiceberg.expressions import (
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
)
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from dml import limits
from dml.files.file_io import file_io
from dml.pruning.bound_expressions import bound_filter, fold_expression
from dml.pruning.row_tests import Bounds, BoundsOf, any_match
from dml.read.data_file import DataFile, Piece
from dml.read.open_data_file import open_data_file
from dml.scan.table_scan import Scan

__all__ = ["keeps_most_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimated effect of a filter on some rows.

    Attributes:
        rows: The number of rows.
        may_match: Rows in row groups that may have a match.
        match: Rows that match.
    """

    rows: int = 0
    may_match: int = 0
    match: float = 0.0

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            rows=self.rows + other.rows, may_match=self.may_match + other.may_match, match=self.match + other.match
        )


def keeps_most_rows(scan: Scan) -> bool:
    """Return whether Spark's own reader is faster: it ignores the filter, which keeps most rows.

    Raises:
        DmlError: A file cannot be read.
    """
    read, schema = scan.read, scan.read.schema
    files = list({task.path: task for task in scan.plan.tasks}.values())
    sample = files[:: -(-len(files) // limits.SAMPLED_FOOTERS)]
    bound = bound_filter(read.row_filter, schema, case_sensitive=read.case_sensitive)
    may_match = any_match(read.row_filter, schema, case_sensitive=read.case_sensitive)
    left = Estimate()
    for task in sample:
        io = file_io(read.table.io.properties, task.path)
        with open_data_file(io, task.path, "parquet", NameMapping([]), size=task.file_size_in_bytes) as file:
            for piece in file.pieces:
                known = partial(bounds_of, file, piece, schema)
                matches = may_match(known)
                left += Estimate(
                    rows=piece.rows,
                    may_match=piece.rows if matches else 0,
                    match=piece.rows * share(bound, known) if matches else 0.0,
                )
    return (
        left.may_match >= limits.MIN_SPARK_READER_ROW_GROUP_SHARE * left.rows
        and left.match >= limits.MIN_SPARK_READER_ROW_SHARE * left.rows
    )


def bounds_of(file: DataFile, piece: Piece, schema: Schema, field_id: int) -> Bounds:
    """Return the bounds of a column in a row group's statistics."""
    return file.bounds(piece, schema.find_field(field_id))


def share(expression: BooleanExpression, known: BoundsOf) -> float:
    """Estimate the share of a row group's rows that a bound expression keeps."""
    return fold_expression(
        expression,
        leaf=lambda predicate: share_of_values(predicate, known(predicate.term.ref().field.field_id)),
        both=lambda left, right: left * right,
        either=lambda left, right: min(left + right, 1.0),
        always=1.0,
        never=0.0,
    )


def share_of_values(predicate: BoundPredicate, bounds: Any) -> float:
    """Estimate the share of a column's values that a predicate keeps; 0 if unknown, since most filters keep few."""
    match predicate:
        case BoundNotNull() | BoundNotNaN() | BoundNotEqualTo() | BoundNotIn() | BoundNotStartsWith():
            return 1.0
        case BoundLessThan() | BoundLessThanOrEqual():
            return share_below(predicate.literal.value, bounds)
        case BoundGreaterThan() | BoundGreaterThanOrEqual():
            return 1.0 - share_below(predicate.literal.value, bounds, unknown=1.0)
        case BoundEqualTo():
            return share_of_one(bounds)
        case BoundIn():
            return min(share_of_one(bounds) * len(predicate.value_set), 1.0)
    return 0.0


def share_below(value: Any, bounds: Any, unknown: float = 0.0) -> float:
    """Estimate the share of values between two bounds that lies below a value, for numbers and times."""
    lower, upper = bounds.lower, bounds.upper
    if lower is None or upper is None:
        return unknown
    if value <= lower:
        return 0.0
    if value >= upper:
        return 1.0
    return float(value - lower) / float(upper - lower) if is_number(value) else unknown


def share_of_one(bounds: Any) -> float:
    """Estimate the share that a single value has between two bounds, for integers, dates and booleans."""
    lower, upper = bounds.lower, bounds.upper
    if lower is not None and lower == upper:
        return 1.0
    return 1.0 / (int(upper) - int(lower) + 1) if isinstance(lower, int) and isinstance(upper, int) else 0.0


def is_number(value: Any) -> bool:
    """Return whether values of this kind have a distance."""
    return not isinstance(value, str | bytes | bool)
