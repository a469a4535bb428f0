"""Conditions on buckets: decided by partition fields of as many buckets, and by nothing else."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, EqualTo, Not, Or
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform, YearTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField

from dml.model.manifest import ContentFile, FileContent
from dml.pruning.bucket_predicate import InBuckets
from dml.pruning.pruner import Pruner
from dml.pruning.row_tests import Bounds, all_match, any_match
from dml.read.row_predicates import RowSelection, select_rows
from dml.rows.evaluate import CompiledPredicate
from dml.rows.expressions import TRUE

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "n", IntegerType(), required=False),
    NestedField(3, "day", DateType(), required=False),
)
THIRD = InBuckets("id", count=16, buckets=frozenset({3}))


def spec(spec_id, *transforms, source=1):
    return PartitionSpec(
        *(PartitionField(source, 1000 + place, each, f"p{place}") for place, each in enumerate(transforms)),
        spec_id=spec_id,
    )


def answers(expression, partition, *transforms, source=1):
    """Whether files of a partition may match, and must."""
    pruner = Pruner({7: spec(7, *transforms, source=source)}, SCHEMA, expression, case_sensitive=False)
    file = a_file(7, partition)
    return pruner.may_match(file), pruner.must_match(file)


def a_file(spec_id, partition):
    return ContentFile(
        content=FileContent.DATA,
        path="f",
        file_format="parquet",
        spec_id=spec_id,
        partition=partition,
        record_count=5,
        file_size_in_bytes=1,
    )


B8: BucketTransform[Any] = BucketTransform(8)
B16: BucketTransform[Any] = BucketTransform(16)


@pytest.mark.parametrize(
    ("expression", "partition", "transforms", "expected"),
    [
        (THIRD, (3,), (B16,), (True, True)),
        (THIRD, (4,), (B16,), (False, False)),
        (THIRD, (None,), (B16,), (False, False)),
        (~THIRD, (3,), (B16,), (False, False)),
        (~THIRD, (4,), (B16,), (True, True)),
        (~THIRD, (None,), (B16,), (False, False)),
        (Not(THIRD), (4,), (B16,), (True, True)),
        (InBuckets("ID", count=16, buckets=frozenset({3, 5})), (5,), (B16,), (True, True)),
        (InBuckets("id", count=16, buckets=frozenset({3, 5})), (4,), (B16,), (False, False)),
        # Two fields of one column: that which is asked for decides.
        (THIRD, (4, 3), (B8, B16), (True, True)),
        (THIRD, (3, 4), (B8, B16), (False, False)),
        # Others decide nothing.
        (THIRD, (4,), (B8,), (True, False)),
        (THIRD, (3,), (B8,), (True, False)),
        (THIRD, (4,), (IdentityTransform(),), (True, False)),
        (THIRD, (4,), (TruncateTransform(16),), (True, False)),
        (THIRD, (None,), (VoidTransform(),), (True, False)),
        (THIRD, (), (), (True, False)),
        # AND and OR.
        (And(THIRD, EqualTo("n", 1)), (3,), (B16,), (True, False)),
        (And(THIRD, EqualTo("n", 1)), (4,), (B16,), (False, False)),
        (Or(THIRD, EqualTo("n", 1)), (4,), (B16,), (True, False)),
        (Or(THIRD, EqualTo("n", 1)), (3,), (B16,), (True, True)),
        (And(THIRD, ~THIRD), (3,), (B16,), (False, False)),
    ],
)
def test_partition_fields_of_as_many_buckets_decide(expression, partition, transforms, expected):
    assert answers(expression, partition, *transforms) == expected


def test_fields_of_other_columns_decide_nothing():
    assert answers(THIRD, (4,), B16, source=2) == (True, False)
    assert answers(InBuckets("day", count=16, buckets=frozenset({3})), (4,), YearTransform(), source=3) == (True, False)


def test_each_spec_decides_for_itself():
    specs = {0: spec(0), 1: spec(1, B8), 2: spec(2, B16)}
    pruner = Pruner(specs, SCHEMA, THIRD, case_sensitive=False)
    files = [a_file(0, ()), a_file(1, (4,)), a_file(2, (3,)), a_file(2, (4,))]
    assert [pruner.may_match(file) for file in files] == [True, True, True, False]
    assert [pruner.must_match(file) for file in files] == [False, False, True, False]


@pytest.mark.parametrize("expression", [THIRD, ~THIRD])
def test_values_of_the_column_decide_nothing(expression):
    """3 is not in bucket 3 because it is 3: neither metrics nor rows may be compared with the bucket."""
    bounds = Bounds(lower=3, upper=3, nulls=False, nans=False)
    assert any_match(expression, SCHEMA, case_sensitive=False)(lambda _: bounds)
    assert not all_match(expression, SCHEMA, case_sensitive=False)(lambda _: bounds)
    assert select_rows(expression, SCHEMA, case_sensitive=False) == RowSelection(predicate=TRUE, is_exact=False)
    both = select_rows(And(expression, EqualTo("n", 1)), SCHEMA, case_sensitive=False)
    assert not both.is_exact
    assert CompiledPredicate(both.predicate).mask({2: pa.array([1, 2])}, 2).tolist() == [True, False]
    assert select_rows(Or(expression, EqualTo("n", 1)), SCHEMA, case_sensitive=False).predicate == TRUE


def test_it_travels_to_workers_and_back():
    expression = Or(And(THIRD, EqualTo("n", 1)), ~THIRD)
    again = pickle.loads(pickle.dumps(expression))
    assert again == expression
    assert str(again) == str(expression)
    assert again != Or(And(~THIRD, EqualTo("n", 1)), ~THIRD)
    assert THIRD.bind(SCHEMA) == (~THIRD).bind(SCHEMA).__invert__()


def test_a_column_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="nope"):
        Pruner({0: spec(0)}, SCHEMA, InBuckets("nope", count=2, buckets=frozenset({1})), case_sensitive=False)
