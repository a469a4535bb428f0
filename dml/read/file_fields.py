"""The columns of a data file with their field ids, whichever way the file tells them. Worker-safe.

Input: the Arrow schema of a Parquet or ORC file, and the table's name mapping. Output: a tree of `FileField`.
Spec: "Column Projection", "Name Mapping", and the appendices on Parquet and ORC for where ids are kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.table.name_mapping import MappedField, NameMapping

from dml.model.arrow_types import PARQUET_FIELD_ID

__all__ = ["FileField", "file_fields", "leaf_columns", "mapped", "walk"]

ID_KEYS = (PARQUET_FIELD_ID, b"iceberg.id")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileField:
    """A column of a file, or a field inside one.

    Attributes:
        name: Its name in the file.
        field_id: Its Iceberg field id; None where the file has none.
        type: Its Arrow type.
        children: Fields of a struct; the element of a list; key and value of a map.
    """

    name: str
    field_id: int | None
    type: pa.DataType
    children: tuple["FileField", ...] = ()


def file_fields(schema: pa.Schema, name_mapping: NameMapping | None) -> tuple[FileField, ...]:
    """The columns of a file.

    Ids come from the file. A file without any takes them from the name mapping; without a mapping, its columns count
    from 1 in their order, as Java's `ParquetSchemaUtil.addFallbackIds` does.
    """
    fields = tuple(from_arrow(field) for field in schema)
    if any(field.field_id is not None for field in walk(fields)):
        return fields
    if name_mapping is not None:
        return mapped(fields, name_mapping.root)
    return tuple(replace(field, field_id=place) for place, field in enumerate(fields, start=1))


def from_arrow(field: pa.Field) -> FileField:
    """One field of an Arrow schema, with those inside it."""
    return FileField(
        name=field.name,
        field_id=arrow_field_id(field),
        type=field.type,
        children=tuple(from_arrow(child) for child in arrow_children(field.type)),
    )


def arrow_field_id(field: pa.Field) -> int | None:
    """The id that Arrow's readers leave in a field's metadata."""
    metadata = field.metadata or {}
    for key in ID_KEYS:
        text = metadata.get(key)
        if text is not None and text.lstrip(b"-").isdigit() and int(text) >= 0:
            return int(text)
    return None


def arrow_children(arrow_type: pa.DataType) -> Iterable[pa.Field]:
    """The fields inside a nested type."""
    if pa.types.is_struct(arrow_type):
        return tuple(arrow_type.field(place) for place in range(arrow_type.num_fields))
    if pa.types.is_map(arrow_type):
        return arrow_type.key_field, arrow_type.item_field
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return (arrow_type.value_field,)
    return ()


def mapped(fields: tuple[FileField, ...], mapping: Sequence[MappedField]) -> tuple[FileField, ...]:
    """The fields with the ids of a name mapping."""
    by_name = {name: entry for entry in mapping for name in entry.names}
    result = []
    for field in fields:
        entry = by_name.get(field.name)
        inner = entry.fields if entry is not None else ()
        result.append(
            replace(field, field_id=None if entry is None else entry.field_id, children=mapped_children(field, inner))
        )
    return tuple(result)


def mapped_children(field: FileField, mapping: Sequence[MappedField]) -> tuple[FileField, ...]:
    """The fields inside one; writers name elements, keys and values as they like, the mapping always the same."""
    if pa.types.is_struct(field.type):
        return mapped(field.children, mapping)
    standard = ("key", "value") if pa.types.is_map(field.type) else ("element",)
    renamed = tuple(replace(child, name=name) for child, name in zip(field.children, standard, strict=False))
    return mapped(renamed, mapping)


def walk(fields: Iterable[FileField]) -> Iterator[FileField]:
    """All fields, parents before what they hold."""
    for field in fields:
        yield field
        yield from walk(field.children)


def leaf_columns(fields: tuple[FileField, ...]) -> tuple[range, ...]:
    """For each column, the range of its leaves among the physical columns of a Parquet file."""
    result, start = [], 0
    for field in fields:
        end = start + leaves(field)
        result.append(range(start, end))
        start = end
    return tuple(result)


def leaves(field: FileField) -> int:
    """How many physical columns a field has."""
    return sum(leaves(child) for child in field.children) if field.children else 1
