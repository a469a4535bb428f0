"""Named measurements: a statement on tables of growing size, and the other modules of this folder by name.

A `SqlCase` is run by every engine that is there, on a table fresh for each round; what it is measured over is one axis
of its picture. A `ModuleCase` is another module of this folder with its own options.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalake import write_deltalake

from benchmarks.datasets import ROWS

__all__ = ["CASES", "ModuleCase", "Size", "SqlCase"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One table of a case.

    Attributes:
        at: Its place on the axis.
        rows: A query for its rows.
        statement: What is timed; `{table}` is its name.
        files: About how many files it has.
        properties: Table properties, where the engine has them.
        peer: The statement by delta-rs; None where it has none like it.
    """

    at: int
    rows: str
    statement: str
    files: int
    properties: Mapping[str, str] = field(default_factory=dict)
    peer: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCase:
    """A statement on tables of growing size.

    Attributes:
        title: What its picture says.
        axis: What grows.
        sizes: The tables, for about so many rows in the largest.
        logarithmic: Whether the axis is.
        variants: Other table properties to compare with, by name.
    """

    title: str
    axis: str
    sizes: Callable[[int], list[Size]]
    logarithmic: bool = False
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCase:
    """A module of this folder.

    Attributes:
        module: Its name.
        arguments: Its options for this case.
        options: The options of `python -m benchmarks` that it takes too.
    """

    module: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


REWRITTEN = {"rewritten": {"write.splice.enabled": "false"}}
DOUBLED = {"amt": "amt * 2"}


def wide(rows: int) -> list[Size]:
    """One column of ever more; a quarter of the rows of the other cases."""

    def query(columns: int) -> str:
        numbers = ", ".join(f"CAST(rand({place}) * 100000 AS INT) AS c{place}" for place in range(columns - 2))
        return f"SELECT id, rand(7) AS amt, {numbers} FROM range(0, {rows // 4}, 1, 2)"

    return [
        Size(
            at=columns,
            rows=query(columns),
            files=2,
            statement="UPDATE {table} SET amt = amt * 2 WHERE id % 100 = 7",
            peer=lambda table: table.update(updates=DOUBLED, predicate="id % 100 = 7"),
        )
        for columns in (6, 25, 50, 100)
    ]


def narrow(rows: int) -> list[Size]:
    """One column of six, in ever more rows."""
    return [
        Size(
            at=rows // part,
            rows=ROWS.format(rows=rows // part, files=4),
            files=4,
            statement="UPDATE {table} SET amt = amt * 2 WHERE id % 100 = 7",
            peer=lambda table: table.update(updates=DOUBLED, predicate="id % 100 = 7"),
        )
        for part in (8, 4, 2, 1)
    ]


def merged(rows: int) -> list[Size]:
    """One column of six, in ever more of the rows."""

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
ALL = "SELECT sum(id), sum(k), sum(length(grp)), sum(amt), sum(length(note)), max(ts) FROM {table}"


def row_groups(rows: int) -> list[Size]:
    """A few rows of each of so many of the eight row groups of one file."""
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
    """Ten rows of a table of so many files."""
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


def inserted(columns: str) -> Callable[[int], list[Size]]:
    """A table's own rows, appended to it."""

    def sizes(rows: int) -> list[Size]:
        return [
            Size(
                at=rows // part,
                rows=ROWS.format(rows=rows // part, files=4),
                files=4,
                statement=f"INSERT INTO {{table}} SELECT {columns} FROM {{table}}",
                peer=lambda table: write_deltalake(table, table.to_pyarrow_table(), mode="append"),
            )
            for part in (8, 4, 2, 1)
        ]

    return sizes


def from_spark(rows: int) -> list[Size]:
    """Rows that Spark makes, appended to a table of one row."""
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
    """Half as many rows in the source as in the table, half of them new; twice the rows of other cases."""

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


def asked(query: str) -> Callable[[int], list[Size]]:
    """A query of the whole table."""

    def sizes(rows: int) -> list[Size]:
        return [
            Size(at=rows // part, rows=ROWS.format(rows=rows // part, files=4), files=4, statement=query)
            for part in (8, 4, 2, 1)
        ]

    return sizes


CASES: dict[str, SqlCase | ModuleCase] = {
    "update-wide": SqlCase(
        title="UPDATE of one column, 1 % of the rows", axis="columns of the table", sizes=wide, variants=REWRITTEN
    ),
    "update-narrow": SqlCase(
        title="UPDATE of one column of six, 1 % of the rows",
        axis="rows of the table",
        sizes=narrow,
        variants=REWRITTEN,
    ),
    "merge-update": SqlCase(
        title="MERGE that updates one column of six",
        axis="rows changed",
        sizes=merged,
        logarithmic=True,
        variants={**REWRITTEN, "merge-on-read": {"write.merge.mode": "merge-on-read"}},
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
        variants={"merge-on-read": {"write.delete.mode": "merge-on-read"}},
    ),
    "insert-scanned": SqlCase(title="INSERT of a table's rows", axis="rows", sizes=inserted("*")),
    "insert-computed": SqlCase(
        title="INSERT of a table's rows, one column computed",
        axis="rows",
        sizes=inserted("id + 0, k, grp, amt, note, ts"),
    ),
    "insert-spark": SqlCase(title="INSERT of rows that Spark makes", axis="rows", sizes=from_spark),
    "merge-half-new": SqlCase(
        title="MERGE of half as many rows, half of them new",
        axis="rows of the table",
        sizes=half_new,
        variants={"merge-on-read": {"write.merge.mode": "merge-on-read"}},
    ),
    "scan-strings": SqlCase(title="The greatest of two strings", axis="rows", sizes=asked(STRINGS)),
    "scan-groups": SqlCase(title="Rows by a string", axis="rows", sizes=asked(GROUPED)),
    "scan-all": SqlCase(title="A sum over all columns", axis="rows", sizes=asked(ALL)),
    "scan-count": SqlCase(title="count(*)", axis="rows", sizes=asked("SELECT count(*) FROM {table}")),
    "scan-bounds": SqlCase(title="min and max", axis="rows", sizes=asked("SELECT min(id), max(ts) FROM {table}")),
    "partitions": ModuleCase(module="partitions", options=("--rows",)),
    "streams": ModuleCase(module="streams"),
    "ways-in": ModuleCase(module="ways_in", options=("--rows",)),
    "modes": ModuleCase(module="modes", options=("--rows",)),
    "planning": ModuleCase(module="planning", options=("--java",)),
    "many-manifests": ModuleCase(
        module="planning",
        arguments=("--files", "10000", "--manifests", "10000", "--changes"),
        options=("--java",),
    ),
    "metadata-tables": ModuleCase(module="metadata_tables"),
    "statements": ModuleCase(module="statements"),
    "walks": ModuleCase(module="walks"),
}
