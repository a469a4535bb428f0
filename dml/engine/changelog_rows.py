"""Compute the changes of rows from the rows that snapshots added and removed. Driver.

Input: a DataFrame of a table's columns, named `v0`, `v1`, ..., and `CHANGE`. Output: a DataFrame of the same columns,
`_change_type` and `_change_ordinal`.

Equal rows are counted: a snapshot's change is the number that it added minus the number that it removed. It is 0 for a
carry-over, a row that copy-on-write rewrote without a change. Spark groups rows by hash and does not sort them by all
columns. Rows are equal if all values are: NULL equals NULL, NaN equals NaN, and 0.0 differs from -0.0.

Source: Iceberg's `ChangelogIterator` and its subclasses; decision 050 has the differences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.types import NestedField
from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from dml.model.columns import INTERNAL_PREFIX, value_name
from dml.spark.types import spark_type, type_text
from dml.sqlparse.quoting import quote_string, quoted

__all__ = ["CHANGE", "CHANGE_ORDINAL", "CHANGE_TYPE", "ChangelogRows", "ColumnPath", "has_type"]

CHANGE_TYPE: Final = "_change_type"
CHANGE_ORDINAL: Final = "_change_ordinal"

CHANGE: Final = f"{INTERNAL_PREFIX}change"
"""int32: twice the ordinal of the snapshot, plus 1 for rows that it added."""
COUNT: Final = f"{INTERNAL_PREFIX}count"
"""bigint: the number of equal rows that a snapshot added; negative if it removed them."""

ColumnPath = tuple[str, ...]
"""The names of a column, or of a field of a struct, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRows:
    """How rows become changes.

    Attributes:
        fields: The columns.
        identifiers: The columns that identify a row; empty if there are none.
        computes_updates: Whether a removed and an added row of one snapshot with the same identifiers become the images
            of an update.
        nets_changes: Whether changes that later snapshots undo are left out.
    """

    fields: Sequence[NestedField]
    identifiers: tuple[ColumnPath, ...] = ()
    computes_updates: bool = False
    nets_changes: bool = False

    @property
    def values(self) -> list[str]:
        """The names of the value columns."""
        return [value_name(number) for number in range(len(self.fields))]

    def direct(self, rows: DataFrame) -> DataFrame:
        """Return changes of snapshots that only added or only removed rows."""
        return rows.selectExpr(
            *self.values,
            f"IF({CHANGE} % 2 = 1, 'INSERT', 'DELETE') AS {CHANGE_TYPE}",
            f"CAST({CHANGE} DIV 2 AS INT) AS {CHANGE_ORDINAL}",
        )

    def compared(self, rows: DataFrame) -> DataFrame:
        """Return changes without carry-overs, as updates or net changes if they are requested."""
        kinds = [spark_type(field.field_type) for field in self.fields]
        values = self.values
        paths = {name: index for index, name in enumerate(field.name for field in self.fields)}
        keys: dict[str, str] = {}
        if self.computes_updates:
            for number, path in enumerate(self.identifiers):
                column = ".".join((value_name(paths[path[0]]), *map(quoted, path[1:])))
                kind = path_type(kinds[paths[path[0]]], path[1:])
                keys[f"i{number}"] = row_key(column, kind)
        keyed = rows.selectExpr(
            *(f"{row_key(name, kind)} AS {name}" for name, kind in zip(values, kinds, strict=True)),
            *(f"{key} AS {name}" for name, key in keys.items()),
            f"CAST({CHANGE} DIV 2 AS INT) AS {CHANGE_ORDINAL}",
            f"IF({CHANGE} % 2 = 1, 1L, -1L) AS {COUNT}",
        )
        # One shuffle brings together all rows that are compared later: grouping by more columns needs no other.
        if self.computes_updates:
            keyed = keyed.repartition(*keys, CHANGE_ORDINAL)
        elif self.nets_changes:
            keyed = keyed.repartition(*values)
        counted = keyed.groupBy(*values, *keys, CHANGE_ORDINAL).agg({COUNT: "sum"})
        counted = counted.withColumnRenamed(f"sum({COUNT})", COUNT).where(f"{COUNT} <> 0")
        change_type = f"IF({COUNT} > 0, 'INSERT', 'DELETE')"
        if self.nets_changes:
            counted = self._net_changes(counted)
        elif self.computes_updates:
            change_type = self._with_images(list(keys))
        restored = (f"{row_value(name, kind)} AS {name}" for name, kind in zip(values, kinds, strict=True))
        typed = counted.selectExpr(*values, f"{change_type} AS {CHANGE_TYPE}", CHANGE_ORDINAL, COUNT)
        repeated = typed.selectExpr("*", f"explode(sequence(1, CAST(abs({COUNT}) AS INT)))")
        return repeated.selectExpr(*restored, CHANGE_TYPE, CHANGE_ORDINAL)

    def _net_changes(self, counted: DataFrame) -> DataFrame:
        """Return the changes that no later one undoes. A change undoes the newest opposite changes of equal rows.

        `before` and `total` are the numbers of equal rows before and after a change, relative to the start of the
        range. Of the rows that a change adds, those from max(`before`, 0) up to the lowest later total are net changes.
        Likewise for removed rows.
        """
        rows = f"PARTITION BY {', '.join(self.values)} ORDER BY {CHANGE_ORDINAL} ROWS BETWEEN"
        so_far = f"{rows} UNBOUNDED PRECEDING AND CURRENT ROW"
        summed = counted.selectExpr("*", f"sum({COUNT}) OVER ({so_far}) AS total")
        later = f"OVER ({rows} CURRENT ROW AND UNBOUNDED FOLLOWING)"
        bounded = summed.selectExpr(
            *self.values,
            CHANGE_ORDINAL,
            f"total - {COUNT} AS before",
            f"min(total) {later} AS lowest",
            f"max(total) {later} AS highest",
        )
        left = "greatest(lowest - greatest(before, 0L), 0L) - greatest(least(before, 0L) - highest, 0L)"
        return bounded.selectExpr(*self.values, CHANGE_ORDINAL, f"{left} AS {COUNT}").where(f"{COUNT} <> 0")

    def _with_images(self, keys: list[str]) -> str:
        """Return SQL for the change type, with a removed and an added row as the images of an update."""
        same = f"OVER (PARTITION BY {', '.join((*keys, CHANGE_ORDINAL))})"
        added, removed = (f"sum(greatest({sign}{COUNT}, 0L)) {same}" for sign in ("", "-"))
        return (
            f"CASE WHEN {removed} = 0 THEN 'INSERT' WHEN {added} = 0 THEN 'DELETE' "
            f"WHEN {removed} > 1 OR {added} > 1 THEN raise_error({quote_string(self._ambiguity)}) "
            f"WHEN {COUNT} < 0 THEN 'UPDATE_BEFORE' ELSE 'UPDATE_AFTER' END"
        )

    @property
    def _ambiguity(self) -> str:
        names = ",".join(".".join(path) for path in self.identifiers)
        return (
            "Cannot compute updates because there are multiple rows with the same identifier "
            f"fields([{names}]). Please make sure the rows are unique."
        )


KEYED: Final = (spark_types.FloatType, spark_types.DoubleType, spark_types.MapType)
"""Types that Spark cannot group, or groups inexactly."""


def has_type(kind: spark_types.DataType, types: tuple[type[spark_types.DataType], ...]) -> bool:
    """Return whether a type is one of the given types, or contains one."""
    match kind:
        case spark_types.StructType():
            inner = any(has_type(field.dataType, types) for field in kind.fields)
        case spark_types.ArrayType():
            inner = has_type(kind.elementType, types)
        case spark_types.MapType():
            inner = has_type(kind.keyType, types) or has_type(kind.valueType, types)
        case _:
            inner = False
    return inner or isinstance(kind, types)


def path_type(kind: spark_types.DataType, path: ColumnPath) -> spark_types.DataType:
    for name in path:
        assert isinstance(kind, spark_types.StructType)
        kind = kind[name].dataType
    return kind


def row_key(value: str, kind: spark_types.DataType, depth: int = 0) -> str:
    """Return SQL for a key that Spark groups exactly: by default Spark treats -0.0 as 0.0, and cannot group maps.

    Args:
        value: SQL of the value.
        kind: Its type.
        depth: The number of lambda functions around it.
    """
    if not has_type(kind, KEYED):
        return value
    one, inner = f"x{depth}", depth + 1
    match kind:
        case spark_types.StructType():
            fields = (
                f"'f{n}', {row_key(f'{value}.{quoted(field.name)}', field.dataType, depth)}"
                for n, field in enumerate(kind.fields)
            )
            return f"IF({value} IS NULL, NULL, named_struct({', '.join(fields)}))"
        case spark_types.ArrayType():
            return f"transform({value}, {one} -> {row_key(one, kind.elementType, inner)})"
        case spark_types.MapType():
            key, of_value = row_key(f"{one}.key", kind.keyType, inner), row_key(f"{one}.value", kind.valueType, inner)
            entries = f"transform(map_entries({value}), {one} -> named_struct('key', {key}, 'value', {of_value}))"
            return f"array_sort({entries})"
    return f"named_struct('value', {value}, 'is_negative_zero', {value} = 0 AND CAST({value} AS STRING) = '-0.0')"


def row_value(key: str, kind: spark_types.DataType) -> str:
    """Return SQL that converts a key of `row_key` back to its value."""
    return f"CAST({unkeyed(key, kind, 0)} AS {type_text(kind)})" if has_type(kind, KEYED) else key


def unkeyed(key: str, kind: spark_types.DataType, depth: int) -> str:
    if not has_type(kind, KEYED):
        return key
    one, inner = f"x{depth}", depth + 1
    match kind:
        case spark_types.StructType():
            fields = (f"'f{n}', {unkeyed(f'{key}.f{n}', field.dataType, depth)}" for n, field in enumerate(kind.fields))
            return f"IF({key} IS NULL, NULL, named_struct({', '.join(fields)}))"
        case spark_types.ArrayType():
            return f"transform({key}, {one} -> {unkeyed(one, kind.elementType, inner)})"
        case spark_types.MapType():
            parts = unkeyed(f"{one}.key", kind.keyType, inner), unkeyed(f"{one}.value", kind.valueType, inner)
            return f"map_from_entries(transform({key}, {one} -> named_struct('key', {parts[0]}, 'value', {parts[1]})))"
    return f"IF({key}.is_negative_zero, CAST('-0.0' AS {type_text(kind)}), {key}.value)"
