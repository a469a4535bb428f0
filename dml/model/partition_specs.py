"""Which partition specs partition nothing. Driver and worker.

Input: partition specs. Output: yes or no, or their ids. Source: Iceberg specification, "Partitioning";
`PartitionSpec.isUnpartitioned`. Format version 1 keeps a dropped field as one of transform `void`, so that a table that
is not partitioned any more still has fields in its spec, and a NULL for each in its partition tuples.
"""

from collections.abc import Mapping

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

__all__ = ["is_unpartitioned", "unpartitioned_specs"]


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether all rows are of one partition: the spec has no fields, or void ones alone."""
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def unpartitioned_specs(specs: Mapping[int, PartitionSpec]) -> frozenset[int]:
    """The ids of those specs that partition nothing: their equality deletes apply to the whole table."""
    return frozenset(spec_id for spec_id, spec in specs.items() if is_unpartitioned(spec))
