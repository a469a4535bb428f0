"""`bucket(16, id) IN (3, 5)` as a leaf of Iceberg's expressions, and its projection to partitions. Worker-safe.

PyIceberg's predicates compare columns. This one compares the bucket of a column's value, in the same expression trees.
A partition field with the same number of buckets decides it, even for whole files. Tests on values of the column
(metrics, row groups, rows) treat it as an unknown predicate: any row may match and none must.
"""

from typing import Any, NoReturn

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    BoundTerm,
    In,
    NotIn,
    Or,
    Reference,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import InclusiveProjection, StrictProjection
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform

from dml.model.transforms import exact_spec

__all__ = ["InBuckets", "partitions_that_may_match", "partitions_that_must_match"]


class InBuckets(UnboundPredicate):
    """The predicate that a column's value is in one of some buckets. Never true for NULL, negated or not, as in SQL.

    Args:
        term: The column.
        count: The total number of buckets.
        buckets: The bucket numbers, from 0.
        negated: True for the values in the other buckets.
    """

    count: int
    buckets: frozenset[int]
    negated: bool

    def __init__(self, term: Any, *, count: int, buckets: frozenset[int], negated: bool = False) -> None:
        super().__init__(term=term, count=count, buckets=buckets, negated=negated)

    def __invert__(self) -> "InBuckets":
        """Return the predicate of the other buckets."""
        return InBuckets(self.term, count=self.count, buckets=self.buckets, negated=not self.negated)

    def __eq__(self, other: object) -> bool:
        """Return whether the predicates are equal."""
        return isinstance(other, InBuckets) and parts(self) == parts(other)

    __hash__ = None  # type: ignore[assignment]

    def bind(self, schema: Schema, case_sensitive: bool = True) -> "BoundInBuckets":
        """Bind the predicate to a field of the schema."""
        term = self.term.bind(schema, case_sensitive)
        return BoundInBuckets(term, count=self.count, buckets=self.buckets, negated=self.negated)

    @property
    def as_bound(self) -> type["BoundInBuckets"]:
        """The class of the bound predicate."""
        return BoundInBuckets


class BoundInBuckets(BoundPredicate):
    """`InBuckets`, bound to a field."""

    count: int
    buckets: frozenset[int]
    negated: bool

    def __init__(self, term: BoundTerm, *, count: int, buckets: frozenset[int], negated: bool) -> None:
        super().__init__(term=term, count=count, buckets=buckets, negated=negated)

    def __invert__(self) -> "BoundInBuckets":
        """Return the predicate of the other buckets."""
        return BoundInBuckets(self.term, count=self.count, buckets=self.buckets, negated=not self.negated)

    def __eq__(self, other: object) -> bool:
        """Return whether the predicates are equal."""
        return isinstance(other, BoundInBuckets) and parts(self) == parts(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def as_unbound(self) -> NoReturn:
        """Not supported. PyIceberg's transforms need it only for their own predicates."""
        raise TypeError("InBuckets is made from its parts")

    def project_to(self, field: PartitionField) -> BooleanExpression | None:
        """Project the predicate to a partition field; None if the field does not decide it."""
        transform = field.transform
        if not isinstance(transform, BucketTransform) or transform.num_buckets != self.count:
            return None
        # Like this predicate, NOT IN is never true for NULL in `row_tests`.
        term, buckets = Reference(field.name), set(self.buckets)
        return NotIn(term=term, literals=buckets) if self.negated else In(term=term, literals=buckets)


def parts(predicate: InBuckets | BoundInBuckets) -> tuple[Any, ...]:
    return predicate.term, predicate.count, predicate.buckets, predicate.negated


def partitions_that_may_match(
    row_filter: BooleanExpression, schema: Schema, spec: PartitionSpec, *, case_sensitive: bool
) -> BooleanExpression:
    """Return a filter of a spec's partitions that is true at least for those that hold a matching row.

    Raises:
        ValueError: the filter does not fit the schema.
    """
    return InclusiveWithBuckets(schema, exact_spec(spec), case_sensitive).project(row_filter)


def partitions_that_must_match(
    row_filter: BooleanExpression, schema: Schema, spec: PartitionSpec, *, case_sensitive: bool
) -> BooleanExpression:
    """Return a filter of a spec's partitions that is true only for those that hold nothing but matching rows.

    Raises:
        ValueError: the filter does not fit the schema.
    """
    return StrictWithBuckets(schema, exact_spec(spec), case_sensitive).project(row_filter)


class InclusiveWithBuckets(InclusiveProjection):
    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        if not isinstance(predicate, BoundInBuckets):
            return super().visit_bound_predicate(predicate)
        found: BooleanExpression = AlwaysTrue()
        for field in self.spec.fields_by_source_id(predicate.term.ref().field.field_id):
            found = And(found, predicate.project_to(field) or AlwaysTrue())
        return found


class StrictWithBuckets(StrictProjection):
    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        if not isinstance(predicate, BoundInBuckets):
            return super().visit_bound_predicate(predicate)
        found: BooleanExpression = AlwaysFalse()
        for field in self.spec.fields_by_source_id(predicate.term.ref().field.field_id):
            found = Or(found, predicate.project_to(field) or AlwaysFalse())
        return found
