"""One number for each row's partition, so that Spark can bring the rows of a partition together. Worker.

Input: the source columns of a partition spec, as Spark gives them. Output: int32 hashes, equal for equal partitions.
"""

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from dml.write.arrow_schema import arrow_type
from dml.write.conversion import converted
from dml.write.partition_values import PartitionRouter

__all__ = ["PartitionHash", "partition_sources"]


def partition_sources(spec: PartitionSpec, schema: Schema) -> tuple[int, ...]:
    """Field ids of the top-level columns that a spec's partitions are made of, in the schema's order."""
    sources = PartitionRouter(spec, schema.fields).source_ids
    return tuple(column.field_id for column in schema.fields if column.field_id in sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHash:
    """Hashes partitions; it can be pickled and called in a worker.

    Attributes:
        schema_json: The table's schema.
        spec_json: The partition spec.
    """

    schema_json: str
    spec_json: str

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """The hash of each row's partition.

        Args:
            *columns: The columns of `partition_sources`, in its order.
        """
        router, fields = parsed(self.schema_json, self.spec_json)
        arrays = [
            converted(column, arrow_type(field.field_type, field.name), field.name)
            for column, field in zip(columns, fields, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
        return pa.array(router.hashes(batch), pa.int32())


@lru_cache(maxsize=8)
def parsed(schema_json: str, spec_json: str) -> tuple[PartitionRouter, tuple[NestedField, ...]]:
    """The router over the source columns alone."""
    schema, spec = Schema.model_validate_json(schema_json), PartitionSpec.model_validate_json(spec_json)
    ids = partition_sources(spec, schema)
    fields = tuple(schema.find_field(field_id) for field_id in ids)
    return PartitionRouter(spec, fields), fields
