"""Which metrics of which column go into manifests. Worker-safe.

Input: table properties and schema. Output: a `MetricsMode` by field id. Source: `write.metadata.metrics.*` in Iceberg's
documentation, and `MetricsConfig`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from dml.errors import AnalysisError, ErrorKind
from dml.options import integer

__all__ = ["MetricsMode", "metrics_modes"]

DEFAULT_KEY = "write.metadata.metrics.default"
COLUMN_PREFIX = "write.metadata.metrics.column."
MAX_COLUMNS_KEY = "write.metadata.metrics.max-inferred-column-defaults"
MAX_COLUMNS = 100
TRUNCATE = re.compile(r"truncate\((\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsMode:
    """How much is told of a column.

    Attributes:
        counts: Whether values, nulls and NaNs are counted.
        bounds: Whether there are bounds.
        length: To how many characters or bytes bounds are cut; None keeps them whole.
    """

    counts: bool = True
    bounds: bool = True
    length: int | None = 16


NONE = MetricsMode(counts=False, bounds=False)
COUNTS = MetricsMode(bounds=False)
FULL = MetricsMode(length=None)
TRUNCATE_16 = MetricsMode()


def parsed(key: str, text: str) -> MetricsMode:
    """The mode of a property's value.

    Raises:
        AnalysisError: it is none.
    """
    word = text.strip().lower()
    match word:
        case "none":
            return NONE
        case "counts":
            return COUNTS
        case "full":
            return FULL
    truncate = TRUNCATE.fullmatch(word)
    if truncate is None or int(truncate[1]) == 0:
        raise AnalysisError(
            f"The table property '{key}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be 'none', 'counts', 'truncate(n)' with n above 0, or 'full'",
            property=key,
        )
    return MetricsMode(length=int(truncate[1]))


def metrics_modes(
    schema: Schema, properties: Mapping[str, str], sorted_ids: Iterable[int] = ()
) -> dict[int, MetricsMode]:
    """The mode of every primitive field.

    Args:
        schema: The table's schema.
        properties: Its properties.
        sorted_ids: Fields of its sort order: they have bounds by default, as sorting is for pruning.

    Raises:
        AnalysisError: a property has a value that it cannot have.
    """
    ids = list(_primitive_ids(schema.as_struct()))
    if DEFAULT_KEY in properties:
        modes = dict.fromkeys(ids, parsed(DEFAULT_KEY, properties[DEFAULT_KEY]))
    else:
        limit = integer(properties, MAX_COLUMNS_KEY, MAX_COLUMNS)
        modes = {field_id: TRUNCATE_16 if place < limit else NONE for place, field_id in enumerate(ids)}
    for field_id in sorted_ids:
        if field_id in modes and not modes[field_id].bounds:
            modes[field_id] = TRUNCATE_16
    for key, text in properties.items():
        if key.startswith(COLUMN_PREFIX):
            mode = parsed(key, text)
            field = _find(schema, key.removeprefix(COLUMN_PREFIX))
            if field is not None and field.field_id in modes:
                modes[field.field_id] = mode
    return modes


def _find(schema: Schema, name: str) -> NestedField | None:
    try:
        return schema.find_field(name)
    except ValueError:
        return None  # the property outlived its column


def _primitive_ids(struct: StructType) -> Iterator[int]:
    """Primitive fields, level by level: a wide struct does not take the place of later columns."""
    level: list[NestedField] = list(struct.fields)
    while level:
        yield from (field.field_id for field in level if field.field_type.is_primitive)
        level = [child for field in level for child in _children(field.field_type)]


def _children(field_type: IcebergType) -> tuple[NestedField, ...]:
    match field_type:
        case StructType():
            return field_type.fields
        case ListType():
            return (field_type.element_field,)
        case MapType():
            return field_type.key_field, field_type.value_field
    return ()
