"""The entries of a manifest, decoded in lockstep. Worker-safe.

Input: the type of the entries of a manifest, and its blocks. Output: its fields as arrays, or `UnsureError` where this
is not sure of the least thing: who asks then decodes entry by entry, which also says what is wrong.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import NestedField, StructType

from dml.manifests.entry_columns import (
    BOUND_MAPS,
    COUNT_MAPS,
    DATA_FILE,
    FILE_PATH,
    KNOWN,
    NUMBER_LISTS,
    PARTITION,
    check_type,
)
from dml.manifests.lockstep_decoder import Numbers, Pieces, RecordColumn, Step, UnsureError
from dml.manifests.lockstep_search import ReadFrom, Search, scalar, whole

__all__ = ["LockstepEntries", "lockstep_entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepEntries:
    """The entries of a manifest as they stand there: nothing is inherited yet.

    Attributes:
        rows: How many.
        columns: By field id, those that the manifest has and that are known.
        data: What the places in the columns are places in.
    """

    rows: int
    columns: dict[int, RecordColumn]
    data: pa.Buffer


def lockstep_entries(file_schema: StructType, blocks: Sequence[tuple[int, bytes]]) -> LockstepEntries:
    """The entries of a manifest.

    Args:
        file_schema: The type of its entries.
        blocks: For each block the number of entries, and their bytes.

    Raises:
        UnsureError: only to decode them one by one is sure.
        ValueError: a field is of another type than the specification gives it.
    """
    steps = tuple(steps_of(file_schema.fields))
    known = [step.field_id for step in steps if step.field_id in KNOWN]
    if len(known) != len(set(known)):
        raise UnsureError
    found = Search(steps, FILE_PATH, blocks).records()
    named = zip(steps, found.columns, strict=True)
    columns = {step.field_id: column for step, column in named if step.field_id in KNOWN}
    return LockstepEntries(rows=len(found.starts), columns=columns, data=pa.py_buffer(found.data))


def steps_of(fields: Iterable[NestedField]) -> Iterator[Step]:
    """The fields of an entry in the order of the file, those of its file among them.

    Raises:
        UnsureError: there is one of a kind that is not read here.
    """
    for found in fields:
        if found.field_id == DATA_FILE and found.required and isinstance(found.field_type, StructType):
            yield from steps_of(found.field_type.fields)
        else:
            check_type(found.field_id, found.field_type)
            yield Step(found.field_id, found.required, read_of(found))


def read_of(found: NestedField) -> ReadFrom:
    """How a field is read."""
    match found.field_id:
        case field_id if field_id in COUNT_MAPS:
            return lambda lanes, places: lanes.items(places, Numbers)
        case field_id if field_id in BOUND_MAPS:
            return lambda lanes, places: lanes.items(places, Pieces)
        case field_id if field_id in NUMBER_LISTS:
            return lambda lanes, places: lanes.items(places, None)
        case field_id if field_id == PARTITION and isinstance(found.field_type, StructType):
            return whole(
                tuple(Step(part.field_id, part.required, scalar(part.field_type)) for part in found.field_type.fields)
            )
        case _:
            return scalar(found.field_type)
