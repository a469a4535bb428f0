"""Which partition specs partition nothing."""

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform

from dml.model.manifest import is_unpartitioned, unpartitioned_specs

DROPPED = PartitionField(1, 1000, VoidTransform(), "a")
KEPT = PartitionField(2, 1001, IdentityTransform(), "b")


@pytest.mark.parametrize(
    ("fields", "unpartitioned"), [((), True), ((DROPPED,), True), ((DROPPED, KEPT), False), ((KEPT,), False)]
)
def test_void_fields_partition_nothing(fields: tuple[PartitionField, ...], unpartitioned: bool) -> None:
    """Format version 1 keeps dropped fields as void ones."""
    assert is_unpartitioned(PartitionSpec(*fields)) is unpartitioned


def test_the_specs_of_a_table_that_partition_nothing() -> None:
    """By their ids."""
    assert unpartitioned_specs({0: PartitionSpec(KEPT), 1: PartitionSpec(DROPPED), 2: PartitionSpec()}) == {1, 2}
