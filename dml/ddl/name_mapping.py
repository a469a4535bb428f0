"""The name mapping of a table whose schema changes. Pure; driver.

Input: the table's metadata and its next schema. Output: the update of `schema.name-mapping.default`. Files without
field ids are read by names: the mapping keeps the old names of a column, and learns new ones. Source: Iceberg
specification, "Column Projection"; `MappingUtil.update`.
"""

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json, update_mapping
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate
from pyiceberg.types import NestedField

from dml.ddl.schema_change import children_of

__all__ = ["name_mapping_updates"]

NAME_MAPPING = "schema.name-mapping.default"
ROOT = -1
"""What PyIceberg takes for the parent of a top-level column."""


def name_mapping_updates(metadata: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    """Keep the name mapping in step with a new schema; nothing where the table has none."""
    text = metadata.properties.get(NAME_MAPPING)
    if text is None:
        return ()
    old, new = _with_parents(metadata.schema().fields), _with_parents(schema.fields)
    renamed = {
        field_id: field
        for field_id, (field, _) in new.items()
        if field_id in old and old[field_id][0].name != field.name
    }
    added: dict[int, list[NestedField]] = {}
    for field_id, (field, parent) in new.items():
        if field_id not in old and (parent == ROOT or parent in old):
            added.setdefault(parent, []).append(field)
    mapping = update_mapping(parse_mapping_from_json(text), renamed, added)
    return (SetPropertiesUpdate(updates={NAME_MAPPING: mapping.model_dump_json()}),)


def _with_parents(fields: tuple[NestedField, ...], parent: int = ROOT) -> dict[int, tuple[NestedField, int]]:
    found: dict[int, tuple[NestedField, int]] = {}
    for field in fields:
        found[field.field_id] = (field, parent)
        found.update(_with_parents(children_of(field.field_type), field.field_id))
    return found
