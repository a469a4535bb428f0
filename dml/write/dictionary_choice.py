"""Which columns of a Parquet file are worth a dictionary. Worker.

Input: the first rows of a file. Output: names of physical columns. A dictionary makes columns that repeat their values
small and fast to read; for others it costs a hash of each value, only to be given up when it grows too large.
"""

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["dictionary_columns"]

SAMPLES = 8
SAMPLE_ROWS = 2048
DISTINCT_SHARE = 0.4


def dictionary_columns(table: pa.Table) -> list[str]:
    """The dotted names of the physical columns that repeat their values.

    Args:
        table: The first row group.
    """
    sample = _sample(table)
    names: list[str] = []
    for field, column in zip(table.schema, sample.columns, strict=True):
        names.extend(_names(field, field.name, column.combine_chunks()))
    return names


def _sample(table: pa.Table) -> pa.Table:
    if table.num_rows <= SAMPLES * SAMPLE_ROWS:
        return table
    step = table.num_rows // SAMPLES
    return pa.concat_tables([table.slice(start * step, SAMPLE_ROWS) for start in range(SAMPLES)])


def _names(field: pa.Field, name: str, values: pa.Array) -> list[str]:
    kind = field.type
    if pa.types.is_struct(kind):
        return [
            inner
            for place in range(kind.num_fields)
            for inner in _names(kind.field(place), f"{name}.{kind.field(place).name}", values.field(place))
        ]
    if pa.types.is_map(kind):
        return [
            *_names(kind.key_field, f"{name}.key_value.key", values.keys),
            *_names(kind.item_field, f"{name}.key_value.value", values.items),
        ]
    if pa.types.is_list(kind):
        return _names(kind.value_field, f"{name}.list.element", values.values)
    return [name] if _repeats(values) else []


def _repeats(values: pa.Array) -> bool:
    if pa.types.is_boolean(values.type):
        return False
    storage = values.storage if isinstance(values, pa.ExtensionArray) else values
    filled = len(storage) - storage.null_count
    return bool(filled == 0 or pc.count_distinct(storage).as_py() <= max(1, filled * DISTINCT_SHARE))
