"""A long series of statements of mixed sizes on one table, in each mode: what they cost, and what is left to scan.

Every statement is run on one table for each mode before the next one is, in an order that turns, so that what else the
machine does meets all of them alike. At the end the tables have to hold the same rows.
"""

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.datasets import COLUMNS, ROWS
from benchmarks.runs import make_parser, run_benchmark

__all__ = ["main", "statements"]

FILES = 8
WARM_ROWS = 20_000
PLAIN = ("copy-on-write", "merge-on-read")
COMMANDS = ("delete", "update", "merge")
SIZES = {"few": 35, "file": 20, "percent": 25, "tenth": 12, "half": 8}
"""What a statement changes, and how often of 100: ten rows, rows of one file, 1 %, 10 % and 50 % of the table."""
CONDITIONS = {
    "delete": {"percent": "id % 100 = {r}", "tenth": "id % 40 = {r} % 40", "half": "id % 40 = {r} % 40"},
    "update": {"percent": "id % 100 = {r}", "tenth": "id % 10 = {r} % 10", "half": "id % 2 = {r} % 2"},
}
"""Of large DELETEs only 2.5 %: else no rows would be left after a while."""

MERGE = (
    "MERGE INTO {{table}} t USING (SELECT DISTINCT CAST(id AS BIGINT) AS id FROM ({ids})) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET amt = t.amt + 1 WHEN NOT MATCHED THEN INSERT (id, k, grp, amt, note, ts) VALUES "
    "(s.id, CAST(s.id % 1000 AS INT), 'new', 0.5D, concat('new-', s.id), timestamp_seconds(s.id))"
)


def statements(rows: int, number: int, seed: int = 10) -> Iterator[tuple[str, str]]:
    """Statements, `{table}` in the place of the table's name, and what each is called.

    Args:
        rows: Of the table.
        number: How many.
        seed: Other numbers give other statements.
    """
    chance = random.Random(seed)
    each = rows // FILES
    for _ in range(number):
        command = chance.choice(COMMANDS)
        size = chance.choices(list(SIZES), weights=list(SIZES.values()))[0]
        r, start = chance.randrange(100), chance.randrange(FILES) * each
        few = ", ".join(str(chance.randrange(rows)) for _ in range(10))
        part = start + chance.randrange(each // 2)
        if command == "merge":
            ids = {
                "few": f"SELECT explode(array({few})) AS id",
                "file": f"SELECT id FROM range({part}, {part + each // 3})",
                "percent": f"SELECT id FROM range({r}, {rows}, 100)",
                "tenth": f"SELECT id FROM range({r % 10}, {rows}, 10)",
                "half": f"SELECT id FROM range({r % 2}, {rows}, 2)",
            }[size]
            yield f"merge {size}", MERGE.format(ids=ids)
            continue
        shared = {"few": f"id IN ({few})", "file": f"id >= {part} AND id < {part + each // 3}"}
        condition = shared[size] if size in shared else CONDITIONS[command][size].format(r=r)
        wide = "note = concat(note, '+'), grp = 'u', k = k + 1, amt = amt * 2, ts = timestamp_seconds(id)"
        assigned = wide if chance.random() < 0.3 else "amt = amt * 2"
        change = "DELETE FROM {table}" if command == "delete" else f"UPDATE {{table}} SET {assigned}"
        yield f"{command} {size}", f"{change} WHERE {condition}"


def modes(ratios: list[float]) -> dict[str, dict[str, str]]:
    """Table properties by mode; auto once for each ratio."""
    found = {
        mode: {f"write.{command}.mode": mode for command in COMMANDS} for mode in ("copy-on-write", "merge-on-read")
    }
    for ratio in ratios:
        name = "auto" if len(ratios) == 1 else f"auto {ratio}"
        found[name] = {"write.auto.enabled": "true", "write.auto.max-deleted-ratio": str(ratio)}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the series."""
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--statements", type=int, default=200)
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--format-version", type=int, default=3)
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.1], help="of write.auto.max-deleted-ratio")
    parser.add_argument("--details", action="store_true", help="also the seconds of each kind of statement")
    parser.set_defaults(driver_memory="3g")
    options = parser.parse_args(arguments)
    with run_benchmark(options, {"spark.sql.shuffle.partitions": str(2 * options.cores)}) as bench:
        for line in measured(bench.lake, options):
            bench.show(line)
        bench.record("modes")


def warm(lake: Any, properties: dict[str, str]) -> None:
    """Each command once, on a table that nobody measures."""
    made = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    lake.sql(f"CREATE TABLE bench.warm ({COLUMNS}) TBLPROPERTIES ({made})")
    lake.sql("INSERT INTO bench.warm " + ROWS.format(rows=WARM_ROWS, files=2))
    for _, statement in statements(WARM_ROWS, 12):
        lake.sql(statement.format(table="bench.warm"))
    lake.sql("DROP TABLE bench.warm PURGE")


def measured(lake: Any, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A line for each mode."""
    tables = {}
    for place, (mode, properties) in enumerate(modes(options.ratios).items()):
        tables[mode] = f"bench.t{place}"
        made = {"format-version": str(options.format_version), "write.distribution-mode": "none", **properties}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in made.items())
        lake.sql(f"CREATE TABLE {tables[mode]} ({COLUMNS}) TBLPROPERTIES ({listed})")
        lake.sql(f"INSERT INTO {tables[mode]} " + ROWS.format(rows=options.rows, files=FILES))
    for properties in modes(options.ratios).values():
        warm(lake, properties)
    spent: dict[str, dict[str, float]] = {mode: {} for mode in tables}
    for place, (name, statement) in enumerate(statements(options.rows, options.statements, options.seed)):
        turned = list(tables)[place % len(tables) :] + list(tables)[: place % len(tables)]
        for mode in turned:
            started = time.perf_counter()
            lake.sql(statement.format(table=tables[mode]))
            seconds = time.perf_counter() - started
            spent[mode][name] = spent[mode].get(name, 0.0) + seconds
    said = {
        mode: lake.sql(f"SELECT count(*), sum(k), sum(crc32(note)) FROM {of}").collect() for mode, of in tables.items()
    }
    assert len({str(rows) for rows in said.values()}) == 1, said
    scans: dict[str, list[float]] = {mode: [] for mode in tables}
    for _ in range(5):
        for mode, table in tables.items():
            started = time.perf_counter()
            lake.sql(f"SELECT sum(k), max(note), sum(amt), max(ts), max(grp) FROM {table}").collect()
            scans[mode].append(time.perf_counter() - started)
    writes = {mode: sum(parts.values()) for mode, parts in spent.items()}
    reads = {mode: statistics.median(found) for mode, found in scans.items()}
    best = [min(kind[mode] for mode in PLAIN) for kind in (writes, reads)]
    for mode, table in tables.items():
        summary = dict(
            lake.sql(f"SELECT summary FROM {table}.snapshots ORDER BY committed_at DESC LIMIT 1").collect()[0][0]
        )
        line = {
            "case": "modes",
            "mode": mode,
            "statements": options.statements,
            "write_seconds": round(writes[mode], 1),
            "scan_seconds": round(reads[mode], 3),
            "bytes": int(summary["total-files-size"]),
            "data_files": int(summary["total-data-files"]),
            "delete_files": int(summary["total-delete-files"]),
            "writes_to_best": round(writes[mode] / best[0], 2),
            "scan_to_best": round(reads[mode] / best[1], 2),
        }
        if options.details:
            line["seconds_by_kind"] = {kind: round(seconds, 2) for kind, seconds in sorted(spent[mode].items())}
        yield line


if __name__ == "__main__":
    main()
