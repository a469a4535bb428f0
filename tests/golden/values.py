"""Rows of an Arrow table as text: one form, whichever engine they come from. Pure.

NULL, true, 12, 1.5, NaN, 2020-01-31, 2020-01-31 00:00:00 (in UTC), X'00ff', {a: 1, b: x}, [1, 2], {k -> 1}; text as it
is, in quotes where it is empty or reads as NULL.
"""

import datetime
import math
import uuid
from typing import Any

import pyarrow as pa

__all__ = ["rendered_rows"]


def rendered_rows(table: pa.Table) -> list[str]:
    """Every row as one line, sorted."""
    columns = [[rendered(value) for value in column] for column in table.columns]
    return sorted(" | ".join(row) for row in zip(*columns, strict=True)) if columns else []


def rendered(scalar: Any) -> str:
    """One value of Arrow."""
    kind = scalar.type
    if not scalar.is_valid:
        return "NULL"
    if isinstance(kind, pa.BaseExtensionType):
        value = scalar.value
        return str(uuid.UUID(bytes=value.as_py())) if kind.extension_name == "arrow.uuid" else rendered(value)
    if pa.types.is_dictionary(kind):
        return rendered(scalar.value)
    if pa.types.is_struct(kind):
        pairs = (f"{kind.field(i).name}: {rendered(scalar[i])}" for i in range(kind.num_fields))
        return "{" + ", ".join(pairs) + "}"
    if pa.types.is_map(kind):
        entries = sorted(f"{rendered(entry[0])} -> {rendered(entry[1])}" for entry in scalar.values)
        return "{" + ", ".join(entries) + "}"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "[" + ", ".join(rendered(element) for element in scalar) + "]"
    return plain(scalar.as_py())


def plain(value: Any) -> str:
    """One value of Python."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return "NaN" if math.isnan(value) else repr(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime.datetime():
            if value.tzinfo is not None:
                value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            return str(value.isoformat(sep=" "))
        case str():
            return f"'{value}'" if value in {"", "NULL"} else value
        case _:
            return str(value)
