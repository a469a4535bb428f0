"""Named measurements: statements on tables of growing size, and the other modules of this folder by name.

Every engine runs a `SqlCase`, on a fresh table in each round. A `ModuleCase` runs another module of this folder, which
has options of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from benchmarks.datasets import ROWS, in_mode

__all__ = ["CASES", "ModuleCase", "Size", "SqlCase", "Variant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One table of a case.

    Attributes:
        at: Its position on the axis.
        rows: The query for its rows.
        statement: The measured statement, with `{table}` for the table and `{system}` for the namespace of procedures.
        before: Statements that change the table first. Not timed.
        files: The approximate number of its files.
        properties: Table properties, for engines that have them.
        peer: The same statement in delta-rs, or None if delta-rs has no equivalent.
    """

    at: int
    rows: str
    statement: str
    files: int
    before: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    peer: Callable[[DeltaTable], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """RowDelta under other conditions, measured beside RowDelta.

    Attributes:
        properties: Further table properties.
        statement: Replaces the statement of each size.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    statement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCase:
    """A statement on tables of growing size.

    Attributes:
        title: The title of the picture.
        axis: What grows.
        sizes: Returns the tables, by the number of rows of the largest.
        logarithmic: Whether the axis is logarithmic.
        variants: Variants by name.
    """

    title: str
    axis: str
    sizes: Callable[[int], list[Size]]
    logarithmic: bool = False
    variants: Mapping[str, Variant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCase:
    """A module of this folder.

    Attributes:
        module: Its name.
        arguments: Its options for this case.
        options: Options of `python -m benchmarks` that it has as well, beside those of all benchmarks.
        title: The title of its picture, if it has one.
    """

    module: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    title: str = ""


REWRITTEN = {"rewritten": Variant(properties={"write.splice.enabled": "false"})}
COMPACT = "CALL {system}.rewrite_data_files(table => '{table}', options => map('min-input-files', '2'))"
COPY = "INSERT INTO {table} SELECT * FROM {table}"
UPDATE = "UPDATE {table} SET amt = amt * 2 WHERE id % 100 = 7"


def wide(rows: int) -> list[Size]:
    """One column of a growing number; a quarter of the rows of other cases."""

    def query(columns: int) -> str:
        numbers = ", ".join(f"CAST(rand({place}) * 100000 AS INT) AS c{place}" for place in range(columns - 2))
        return f"SELECT id, rand(7) AS amt, {numbers} FROM range(0, {rows // 4}, 1, 2)"

    return [
        Size(
            at=columns,
            rows=query(columns),
            files=2,
            statement=UPDATE,
            peer=update_rows,
        )
        for columns in (6, 25, 50, 100)
    ]


def growing(statement: str, peer: Callable[[DeltaTable], Any] | None = None) -> Callable[[int], list[Size]]:
    """One statement on tables of 6 columns and a growing number of rows."""
    return lambda rows: [
        Size(at=count, rows=ROWS.format(rows=count, files=4), files=4, statement=statement, peer=peer)
        for count in (rows // 8, rows // 4, rows // 2, rows)
    ]


def with_deleted_rows(statement: str) -> Callable[[int], list[Size]]:
    """Return the sizes of `growing`, each after a merge-on-read DELETE of 1 % of the rows."""
    return lambda rows: [
        replace(size, before=("DELETE FROM {table} WHERE id % 100 = 7",), properties=in_mode("merge-on-read"))
        for size in growing(statement)(rows)
    ]


def update_rows(table: DeltaTable) -> None:
    table.update(updates={"amt": "amt * 2"}, predicate="id % 100 = 7")


def copy_rows(table: DeltaTable) -> None:
    write_deltalake(table, table.to_pyarrow_table(), mode="append")


def compute_rows(table: DeltaTable) -> None:
    rows: pa.Table = table.to_pyarrow_table()
    write_deltalake(table, rows.set_column(0, "id", pc.add(rows["id"], 0)), mode="append")


def merged(rows: int) -> list[Size]:
    """One column of six, in a growing share of the rows."""

    def size(changed: int) -> Size:
        step = rows // changed
        return Size(
            at=changed,
            rows=ROWS.format(rows=rows, files=4),
            files=4,
            statement=(
                f"MERGE INTO {{table}} t USING (SELECT id * {step} AS id, CAST(id AS DOUBLE) AS amt "
                f"FROM range({changed})) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET amt = s.amt"
            ),
        )

    return [size(rows // part) for part in (10_000, 1_000, 100, 50, 10)]


GROUPS = 8

STRINGS = "SELECT max(note), max(grp) FROM {table}"
GROUPED = "SELECT grp, count(*), sum(amt) FROM {table} GROUP BY grp"
FILTERED = "SELECT id, k, grp, amt, note, ts FROM {table} WHERE k < 5"
ALL = "SELECT sum(id), sum(k), sum(length(grp)), sum(amt), sum(length(note)), max(ts) FROM {table}"


def row_groups(rows: int) -> list[Size]:
    """A few rows in each of some row groups of one file of eight."""
    each = rows // GROUPS

    def size(groups: int) -> Size:
        condition = " OR ".join(f"(id >= {place * each} AND id < {place * each + 100})" for place in range(groups))
        return Size(
            at=groups,
            rows=ROWS.format(rows=rows, files=1),
            files=1,
            statement=f"DELETE FROM {{table}} WHERE {condition}",
            properties={"write.parquet.row-group-limit": str(each)},
            peer=lambda table: table.delete(condition),
        )

    return [size(groups) for groups in (1, 2, 4, 8)]


def many_files(rows: int) -> list[Size]:
    """Ten rows of a table with a growing number of files."""
    return [
        Size(
            at=files,
            rows=ROWS.format(rows=rows // 4, files=files),
            files=files,
            statement=f"DELETE FROM {{table}} WHERE id BETWEEN {rows // 8} AND {rows // 8 + 9}",
            peer=lambda table: table.delete(f"id >= {rows // 8} AND id <= {rows // 8 + 9}"),
        )
        for files in (10, 30, 100, 300)
    ]


def from_spark(rows: int) -> list[Size]:
    """Rows that Spark generates, appended to a table of one row."""
    return [
        Size(
            at=rows // part,
            rows=ROWS.format(rows=1, files=1),
            files=1,
            statement=f"INSERT INTO {{table}} {ROWS.format(rows=rows // part, files=4)}",
        )
        for part in (8, 4, 2, 1)
    ]


def half_new(rows: int) -> list[Size]:
    """A source of half as many rows as the table, half of them new."""

    def size(target: int) -> Size:
        count, first = target // 2, target - target // 4
        source = (
            ROWS.format(rows=count, files=4)
            .replace("range(0,", f"range({first},")
            .replace(f"({first}, {count},", f"({first}, {first + count},")
        )
        return Size(
            at=target,
            rows=ROWS.format(rows=target, files=4),
            files=4,
            statement=f"MERGE INTO {{table}} t USING ({source}) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        )

    return [size(rows // part) for part in (8, 4, 2, 1)]


def compacted(share: int, *numbers: int) -> Callable[[int], list[Size]]:
    """Files that become one, each with a share of the rows: an eighth of 6 million is enough to be copied."""
    return lambda rows: [
        Size(
            at=files,
            rows=ROWS.format(rows=rows * files // share, files=files),
            files=files,
            statement=COMPACT,
            peer=lambda table: table.optimize.compact(),
        )
        for files in numbers
    ]


def deleted_rows(rows: int) -> list[Size]:
    """Eight files, with deletion vectors for a growing share of the rows."""
    return [
        Size(
            at=percent,
            rows=ROWS.format(rows=rows, files=8),
            files=8,
            properties={"format-version": "3"} | in_mode("merge-on-read"),
            before=[f"DELETE FROM {{table}} WHERE id % 100 < {percent}"] if percent else [],
            statement=COMPACT,
        )
        for percent in (0, 1, 5, 10, 30)
    ]


CASES: dict[str, SqlCase | ModuleCase] = {
    "update-wide": SqlCase(
        title="UPDATE of one column, 1 % of the rows", axis="columns of the table", sizes=wide, variants=REWRITTEN
    ),
    "update-narrow": SqlCase(
        title="UPDATE of one column of six, 1 % of the rows",
        axis="rows of the table",
        sizes=growing(UPDATE, update_rows),
        variants=REWRITTEN,
    ),
    "merge-update": SqlCase(
        title="MERGE that updates one column of six",
        axis="rows changed",
        sizes=merged,
        logarithmic=True,
        variants={**REWRITTEN, "merge-on-read": Variant(properties={"write.merge.mode": "merge-on-read"})},
    ),
    "delete-groups": SqlCase(
        title="DELETE of 100 rows in each of some row groups",
        axis="row groups of 8 that lose rows",
        sizes=row_groups,
        variants=REWRITTEN,
    ),
    "delete-files": SqlCase(
        title="DELETE of 10 rows",
        axis="files of the table",
        sizes=many_files,
        logarithmic=True,
        variants={"merge-on-read": Variant(properties={"write.delete.mode": "merge-on-read"})},
    ),
    "insert-scanned": SqlCase(title="INSERT of a table's rows", axis="rows", sizes=growing(COPY, copy_rows)),
    "insert-computed": SqlCase(
        title="INSERT of a table's rows, one column computed",
        axis="rows",
        sizes=growing(COPY.replace("*", "id + 0, k, grp, amt, note, ts"), compute_rows),
        variants={"copied": Variant(statement=COPY)},
    ),
    "insert-spark": SqlCase(title="INSERT of rows that Spark makes", axis="rows", sizes=from_spark),
    "merge-half-new": SqlCase(
        title="MERGE of half as many rows, half of them new",
        axis="rows of the table",
        sizes=half_new,
        variants={"merge-on-read": Variant(properties={"write.merge.mode": "merge-on-read"})},
    ),
    "compact-small-files": SqlCase(
        title="Compaction of small files", axis="files of the table", sizes=compacted(200, 25, 50, 100, 200)
    ),
    "compact-large-files": SqlCase(
        title="Compaction of large files", axis="files of the table", sizes=compacted(8, 2, 4, 8)
    ),
    "compact-deleted-rows": SqlCase(
        title="Compaction of files with deleted rows", axis="percent of the rows deleted", sizes=deleted_rows
    ),
    "scan-strings": SqlCase(title="The greatest of two strings", axis="rows", sizes=growing(STRINGS)),
    "scan-groups": SqlCase(title="Rows by a string", axis="rows", sizes=growing(GROUPED)),
    "scan-all": SqlCase(title="A sum over all columns", axis="rows", sizes=growing(ALL)),
    "scan-filter": SqlCase(title="A filter that keeps 0.5 % of the rows", axis="rows", sizes=growing(FILTERED)),
    "scan-all-deleted": SqlCase(
        title="A sum over all columns, 1 % of the rows deleted", axis="rows", sizes=with_deleted_rows(ALL)
    ),
    "scan-groups-deleted": SqlCase(
        title="Rows by a string, 1 % of the rows deleted", axis="rows", sizes=with_deleted_rows(GROUPED)
    ),
    "scan-strings-deleted": SqlCase(
        title="The greatest of two strings, 1 % of the rows deleted", axis="rows", sizes=with_deleted_rows(STRINGS)
    ),
    "scan-filter-deleted": SqlCase(
        title="A filter that keeps 0.5 % of the rows, 1 % deleted", axis="rows", sizes=with_deleted_rows(FILTERED)
    ),
    "scan-count": SqlCase(title="count(*)", axis="rows", sizes=growing("SELECT count(*) FROM {table}")),
    "scan-bounds": SqlCase(title="min and max", axis="rows", sizes=growing("SELECT min(id), max(ts) FROM {table}")),
    "partitions": ModuleCase(module="partitions", options=("--rows", "--rounds")),
    "streams": ModuleCase(module="streams"),
    "ways-in": ModuleCase(module="ways_in", options=("--rows", "--rounds")),
    "modes": ModuleCase(module="modes", options=("--rows",)),
    "expiry": ModuleCase(module="expiry", options=("--rounds", "--java"), title="Expiry of all snapshots but one"),
    "planning": ModuleCase(module="planning", options=("--rounds", "--java")),
    "many-manifests": ModuleCase(
        module="planning",
        arguments=("--files", "10000", "--manifests", "10000", "--changes"),
        options=("--rounds", "--java"),
    ),
    "metadata-tables": ModuleCase(module="metadata_tables", options=("--rounds",)),
    "statements": ModuleCase(module="statements", options=("--rounds",)),
    "walks": ModuleCase(module="walks", options=("--rounds",)),
}
