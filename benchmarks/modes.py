"""A series of 200 statements of mixed sizes in each mode: the time they take, and the time of a scan afterwards.

    python -m benchmarks.modes [--rows 1000000] [--statements 200] [--ratios 0.1 0.2] [--details]

Each mode has a table of its own. The modes take turns at each statement, in rotating order, so that other load on the
machine affects all of them. At the end all tables must hold the same rows.
"""

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.datasets import COLUMNS, ROWS, in_mode, properties_clause
from benchmarks.runs import make_parser, run_benchmark, run_sql, seconds_of

__all__ = ["main", "statements"]

RATIO = "write.auto.max-deleted-ratio"
FILES = 8
WARM_ROWS = 20_000
PLAIN = ("copy-on-write", "merge-on-read")
SIZES = {"few": 35, "file": 20, "percent": 25, "tenth": 12, "half": 8}
"""How many of 100 statements change ten rows, rows of one file, 1 %, 10 % and 50 % of the table."""
CONDITIONS = {
    "delete": {"percent": "id % 100 = {r}", "tenth": "id % 40 = {r} % 40", "half": "id % 40 = {r} % 40"},
    "update": {"percent": "id % 100 = {r}", "tenth": "id % 10 = {r} % 10", "half": "id % 2 = {r} % 2"},
}
"""The larger DELETEs remove only 2.5 %: otherwise the table would soon be empty."""

MERGE = (
    "MERGE INTO {{table}} t USING (SELECT DISTINCT CAST(id AS BIGINT) AS id FROM ({ids})) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET amt = t.amt + 1 WHEN NOT MATCHED THEN INSERT (id, k, grp, amt, note, ts) VALUES "
    "(s.id, CAST(s.id % 1000 AS INT), 'new', 0.5D, concat('new-', s.id), timestamp_seconds(s.id))"
)


def statements(rows: int, number: int, seed: int = 10) -> Iterator[tuple[str, str]]:
    """Yield statements, with `{table}` for the table, and the name of each one's kind.

    Args:
        rows: The rows of the table.
        number: The number of statements.
        seed: Determines the statements.
    """
    chance = random.Random(seed)
    each = rows // FILES
    for _ in range(number):
        command = chance.choice(("delete", "update", "merge"))
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
    """Return table properties by mode; `auto` once for each ratio."""
    found = {mode: in_mode(mode) for mode in PLAIN}
    for ratio in ratios:
        name = "auto" if len(ratios) == 1 else f"auto {ratio}"
        found[name] = {"write.auto.enabled": "true", RATIO: str(ratio)}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__, rows=1_000_000, statements=200, seed=10, format_version=3)
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.1], help="of write.auto.max-deleted-ratio")
    parser.add_argument("--details", action="store_true", help="also the seconds of each kind of statement")
    parser.set_defaults(driver_memory="3g")
    options = parser.parse_args(arguments)
    with run_benchmark(options, {"spark.sql.shuffle.partitions": str(2 * options.cores)}) as bench:
        for line in measured(bench.lake, options):
            bench.show(line)
        bench.record("modes" if len(options.ratios) == 1 else "modes-ratios")


def create(lake: Any, table: str, properties: dict[str, str], rows: str) -> None:
    """Create a table with rows."""
    lake.sql(f"CREATE TABLE {table} ({COLUMNS}) {properties_clause(properties)}")
    lake.sql(f"INSERT INTO {table} {rows}")


def warm(lake: Any, properties: dict[str, str]) -> None:
    """Run some statements on a small table."""
    create(lake, "bench.warm", properties, ROWS.format(rows=WARM_ROWS, files=2))
    for _, statement in statements(WARM_ROWS, 12):
        lake.sql(statement.format(table="bench.warm"))
    lake.sql("DROP TABLE bench.warm PURGE")


def measured(lake: Any, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure the series and yield a line for each mode."""
    tables = {}
    for place, (mode, properties) in enumerate(modes(options.ratios).items()):
        tables[mode] = f"bench.t{place}"
        made = {"format-version": str(options.format_version), "write.distribution-mode": "none", **properties}
        create(lake, tables[mode], made, ROWS.format(rows=options.rows, files=FILES))
    for properties in modes(options.ratios).values():
        warm(lake, properties)
    spent: dict[str, dict[str, float]] = {mode: {} for mode in tables}
    for place, (name, statement) in enumerate(statements(options.rows, options.statements, options.seed)):
        turned = list(tables)[place % len(tables) :] + list(tables)[: place % len(tables)]
        for mode in turned:
            seconds = seconds_of(partial(lake.sql, statement.format(table=tables[mode])))
            spent[mode][name] = spent[mode].get(name, 0.0) + seconds
    checksum = "SELECT count(*), sum(k), sum(crc32(note)) FROM {table}"
    sums = {mode: lake.sql(checksum.format(table=table)).collect() for mode, table in tables.items()}
    assert len(set(map(str, sums.values()))) == 1, sums
    scans: dict[str, list[float]] = {mode: [] for mode in tables}
    for _ in range(5):
        for mode, table in tables.items():
            query = f"SELECT sum(k), max(note), sum(amt), max(ts), max(grp) FROM {table}"
            scans[mode].append(seconds_of(partial(run_sql, lake, query)))
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
        if mode not in PLAIN:
            line[RATIO] = float(modes(options.ratios)[mode][RATIO])
        if options.details:
            line["seconds_by_kind"] = {kind: round(seconds, 2) for kind, seconds in sorted(spent[mode].items())}
        yield line


if __name__ == "__main__":
    main()
