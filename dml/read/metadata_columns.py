"""The columns that a file does not hold: `_file`, `_pos`, `_spec_id`, `_partition`, row lineage. Worker-safe.

Input: a scan task, the positions of rows, stored lineage. Output: Arrow arrays.
Spec: "Reserved Field IDs", "Row Lineage"; the type of `_partition` is that of Java's `Partitioning.partitionType`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField

from dml.model import columns
from dml.model.scan_task import ScanTask
from dml.read.projection import arrow_field, constant_array

__all__ = ["LINEAGE_IDS", "MetadataColumns", "partition_fields"]

Positions = npt.NDArray[np.int64]

LINEAGE_IDS = {
    columns.ROW_ID: columns.ROW_ID_ID,
    columns.LAST_UPDATED_SEQUENCE_NUMBER: columns.LAST_UPDATED_SEQUENCE_NUMBER_ID,
}
"""The lineage columns, which files may hold, with their field ids."""

PLAIN_TYPES = {
    columns.FILE: pa.string(),
    columns.POS: pa.int64(),
    columns.SPEC_ID: pa.int32(),
    columns.ROW_ID: pa.int64(),
    columns.LAST_UPDATED_SEQUENCE_NUMBER: pa.int64(),
    columns.FILE_ORDINAL: pa.int32(),
}


def partition_fields(specs: Mapping[int, PartitionSpec], schema: Schema) -> tuple[NestedField, ...]:
    """The fields of `_partition`: those of all specs, by id, under their latest names.

    A field whose source column was dropped is left out: its type is not known any more.
    """
    fields: dict[int, NestedField] = {}
    voids: set[int] = set()
    sources = (schema.find_field(field_id) for field_id in schema.field_ids)
    known = {
        field.field_id
        for field in sources
        if field.field_type.is_primitive and not field.name.startswith(columns.DROPPED_PREFIX)
    }
    for spec_id in sorted(specs, reverse=True):
        types = specs[spec_id].partition_type(schema).fields
        for field, typed in zip(specs[spec_id].fields, types, strict=True):
            if field.source_id not in known:
                continue
            void = isinstance(field.transform, VoidTransform)
            if field.field_id not in fields:
                fields[field.field_id] = NestedField(field.field_id, field.name, typed.field_type, required=False)
                if void:
                    voids.add(field.field_id)
            elif field.field_id in voids and not void:
                name = fields[field.field_id].name
                fields[field.field_id] = NestedField(field.field_id, name, typed.field_type, required=False)
                voids.discard(field.field_id)
    return tuple(fields[field_id] for field_id in sorted(fields))


class MetadataColumns:
    """Makes the metadata columns of a scan.

    Args:
        names: The wanted ones, in output order.
        schema: The table's schema.
        specs: Its partition specs.
        spark: The form of partition values; see `arrow_type`.
    """

    def __init__(
        self, names: tuple[str, ...], schema: Schema, specs: Mapping[int, PartitionSpec], *, spark: bool
    ) -> None:
        self.names = names
        self.specs = specs
        self.spark = spark
        self.partition = partition_fields(specs, schema) if columns.PARTITION in names else ()

    def fields(self) -> list[pa.Field]:
        """Their Arrow fields."""
        return [pa.field(name, self._type(name)) for name in self.names]

    def _type(self, name: str) -> pa.DataType:
        if name == columns.PARTITION:
            return pa.struct([arrow_field(field, spark=self.spark) for field in self.partition])
        return PLAIN_TYPES[name]

    def arrays(self, task: ScanTask, positions: Positions, stored: Mapping[str, pa.Array]) -> list[pa.Array]:
        """The columns of some rows.

        Args:
            task: Where the rows are.
            positions: Their positions in the file.
            stored: Lineage columns as the file holds them.
        """
        return [self._array(name, task, positions, stored.get(name)) for name in self.names]

    def _array(self, name: str, task: ScanTask, positions: Positions, stored: pa.Array | None) -> pa.Array:
        rows = len(positions)
        match name:
            case columns.POS:
                return pa.array(positions, pa.int64())
            case columns.ROW_ID:
                return row_ids(task, positions, stored)
            case columns.LAST_UPDATED_SEQUENCE_NUMBER:
                return sequence_numbers(task, rows, stored)
            case columns.PARTITION:
                return self._partition(task, rows)
            case columns.FILE:
                return pa.repeat(pa.scalar(task.path), rows)
        value = task.spec_id if name == columns.SPEC_ID else task.file_ordinal
        return pa.repeat(pa.scalar(value, pa.int32()), rows)

    def _partition(self, task: ScanTask, rows: int) -> pa.Array:
        values: dict[int, Any] = {
            field.field_id: value for field, value in zip(self.specs[task.spec_id].fields, task.partition, strict=True)
        }
        target = self._type(columns.PARTITION)
        if not self.partition:
            return pa.array([{}] * rows, target)
        children = [
            constant_array(values.get(field.field_id), field.field_type, rows, spark=self.spark)
            for field in self.partition
        ]
        return pa.StructArray.from_arrays(children, fields=[target.field(place) for place in range(len(children))])


def row_ids(task: ScanTask, positions: Positions, stored: pa.Array | None) -> pa.Array:
    """`_row_id`: what is stored, else the file's first row id plus the position; NULL in a file without ids."""
    if task.first_row_id is None:
        return pa.nulls(len(positions), pa.int64())
    if stored is not None and not stored.null_count:
        return stored
    assigned = pa.array(positions + np.int64(task.first_row_id), pa.int64())
    return assigned if stored is None else pc.coalesce(stored, assigned)


def sequence_numbers(task: ScanTask, rows: int, stored: pa.Array | None) -> pa.Array:
    """`_last_updated_sequence_number`: what is stored, else that of the file; NULL in a file without row ids."""
    if task.first_row_id is None:
        return pa.nulls(rows, pa.int64())
    if stored is not None and not stored.null_count:
        return stored
    inherited = pa.repeat(pa.scalar(task.data_sequence_number, pa.int64()), rows)
    return inherited if stored is None else pc.coalesce(stored, inherited)
