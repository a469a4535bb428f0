"""Measure statements of growing size across the thresholds that select how they run: time must grow without jumps.

    python -m benchmarks.walks                                     # all walks
    python -m benchmarks.walks --walk merge-source --results benchmarks/results
    python -m benchmarks.walks --walk merge-source --sizes 90000 99000 101000 110000

Prints a JSON line for each size, and two for each walk with its steepest step. `seconds` and `cpu` (of the driver, the
JVM and the workers together) are the minimum of `--rounds`. `step` is the ratio of the seconds to a prediction from the
time and the slope of the sizes before. A step above 1.3 is a cliff. On a busy machine `cpu_step`, the same ratio for
CPU time, is more reliable.

Each table is created once, and rolled back after each statement. `merge-source` takes about 6 minutes on two idle
cores, all walks 15.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.datasets import ROWS, properties_clause
from benchmarks.processes import tree_cpu
from benchmarks.runs import make_parser, run_benchmark, run_sql, seconds_of

TARGET = 2_000_000
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
MODES = {
    "RowDelta": {"write.merge.mode": "copy-on-write"},
    "RowDelta, merge-on-read": {"write.merge.mode": "merge-on-read"},
}
NO_MODES: Mapping[str, Mapping[str, str]] = {"RowDelta": {}}
BEFORE = 4
"""The number of earlier sizes from which the time of a size is predicted."""


def growing_sizes(first: int, last: int, factor: float) -> tuple[int, ...]:
    """Return sizes from first to last, each the factor times the one before; the last step may be smaller."""
    found, size = [], float(first)
    while size < last:
        found.append(round(size))
        size *= factor
    return (*found, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """A statement of growing size.

    Attributes:
        crosses: The thresholds that the sizes cross, as names in `dml/limits.py` or of properties.
        axis: What the sizes count.
        sizes: The sizes, ascending.
        statement: Returns the statement for a size, with `{table}` for the table.
        rows: Returns the query for the rows of the table for a size.
        is_one_table: Whether all sizes use the same table.
        variants: Table properties, by the name of the line in the picture.
    """

    crosses: str
    axis: str
    sizes: Sequence[int]
    statement: Callable[[int], str]
    rows: Callable[[int], str]
    is_one_table: bool = False
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: NO_MODES)


def target(_: int) -> str:
    """Return the query for the target of a MERGE, the same for all sizes."""
    return ROWS.format(rows=TARGET, files=4)


def merge_of(key: str, on: str) -> Callable[[int], str]:
    """Return a MERGE by source size; half of the rows are new, the others match rows across the whole table.

    Args:
        key: SQL for the source's columns up to the note, from the number `id`.
        on: The ON condition.
    """

    def statement(rows: int) -> str:
        number = f"IF(id % 2 = 0, id DIV 2 * {TARGET // max(1, rows // 2)}, {TARGET} + id) AS id"
        columns = f"{key}, 0.5D AS amt, timestamp_seconds(id) AS ts"
        source = f"SELECT {columns} FROM (SELECT {number} FROM range(0, {rows}, 1, 2))"
        return f"MERGE INTO {{table}} t USING ({source}) s ON {on} {UPSERT}"

    return statement


NUMBER = "id, 1 AS k, 'x' AS grp, concat('merged-', id) AS note"
NOTE = "concat('note-', id, '-', substring(md5(CAST(id AS STRING)), 1, 24)) AS note"
TEXT = f"id, 1 AS k, 'x' AS grp, {NOTE}"
TWO = f"id, CAST(id % 1000 AS INT) AS k, 'x' AS grp, {NOTE}"


def merge_of_new_rows(rows: int) -> str:
    """Return a MERGE whose source rows are all new."""
    source = ROWS.format(rows=rows, files=2).replace("SELECT id,", f"SELECT {TARGET} + id AS id,")
    return f"MERGE INTO {{table}} t USING ({source}) s ON t.id = s.id {UPSERT}"


def of_rows(files: int) -> Callable[[int], str]:
    """Return queries, by the number of rows, for a table of a number of files."""
    return lambda rows: ROWS.format(rows=rows, files=files)


def same_statement(statement: str) -> Callable[[int], str]:
    """Use one statement for all sizes."""
    return lambda _: statement


READ_BY_SPARK = "SELECT count(DISTINCT k), max(reverse(note)) FROM {table}"
UPDATE = "UPDATE {table} SET amt = amt * 2 WHERE id % 100 = 7"

WALKS: dict[str, Walk] = {
    "merge-source": Walk(
        crosses="limits: MAX_INLINE_SOURCE_BYTES, MAX_CACHED_SOURCE_BYTES, MAX_TRIED_SOURCE_BYTES, "
        "MAX_DRIVER_INSERT_BYTES, MIN_INSERTS_PER_TASK; write.merge.max-sent-source-bytes",
        axis="rows of the source",
        sizes=growing_sizes(1_000, 4_000_000, 4 / 3),
        statement=merge_of(NUMBER, "t.id = s.id"),
        rows=target,
        is_one_table=True,
        variants=MODES,
    ),
    "merge-texts": Walk(
        crosses="the same, with string keys",
        axis="rows of the source",
        sizes=growing_sizes(10_000, 1_000_000, 4 / 3),
        statement=merge_of(TEXT, "t.note = s.note"),
        rows=target,
        is_one_table=True,
        variants=MODES,
    ),
    "merge-two-keys": Walk(
        crosses="the same, with keys of two columns",
        axis="rows of the source",
        sizes=growing_sizes(10_000, 1_000_000, 4 / 3),
        statement=merge_of(TWO, "t.id = s.id AND t.k = s.k"),
        rows=target,
        is_one_table=True,
        variants=MODES,
    ),
    "merge-new": Walk(
        crosses="limits.MAX_DRIVER_INSERT_BYTES: new rows that the driver inserts; limits.MAX_CACHED_SOURCE_BYTES",
        axis="rows of the source, all new",
        sizes=growing_sizes(20_000, 160_000, 1.2),
        statement=merge_of_new_rows,
        rows=target,
        is_one_table=True,
        variants=MODES,
    ),
    "update-spliced": Walk(
        crosses="write.splice.min-file-size-bytes: a file of 4 MiB",
        axis="rows of a table of one file",
        sizes=growing_sizes(80_000, 250_000, 1.15),
        statement=same_statement(UPDATE),
        rows=of_rows(1),
    ),
    "update-tasks": Walk(
        crosses="limits.MIN_TASK_BYTES: files of 8 MiB for one task that writes",
        axis="rows of a table of two files",
        sizes=growing_sizes(150_000, 500_000, 1.15),
        statement=same_statement(UPDATE),
        rows=of_rows(2),
    ),
    "scan-tasks": Walk(
        crosses="scan.split.MIN_PARALLEL_QUERY_BYTES: files of 8 MiB for one task of a query",
        axis="rows of a table of two files",
        sizes=growing_sizes(300_000, 1_000_000, 1.15),
        statement=same_statement("SELECT max(note), max(grp) FROM {table}"),
        rows=of_rows(2),
    ),
    "scan-vectorized": Walk(
        crosses="limits.MIN_SPARK_READER_BYTES: files of 6 MiB for Spark's reader",
        axis="rows of a table of two files",
        sizes=growing_sizes(400_000, 1_600_000, 1.15),
        statement=same_statement(READ_BY_SPARK),
        rows=of_rows(2),
    ),
    "scan-files": Walk(
        crosses="limits.MAX_SPARK_READER_FILES: 512 files for Spark's reader",
        axis="files of a table",
        sizes=(400, 450, 500, 512, 513, 550, 600),
        statement=same_statement(READ_BY_SPARK),
        rows=lambda files: ROWS.format(rows=1_000_000, files=files),
    ),
    "scan-groups": Walk(
        crosses="limits: GROUP_BATCH_ROWS, MAX_GROUP_SHARE: rows that a task puts together",
        axis="groups of a table of 1 million rows",
        sizes=growing_sizes(100, 1_000_000, 2),
        statement=same_statement("SELECT grp, count(*), sum(amt) FROM {table} GROUP BY grp"),
        rows=lambda groups: ROWS.format(rows=1_000_000, files=4).replace("id % 97", f"id % {groups}"),
    ),
    "insert-held": Walk(
        crosses="limits.MAX_TASK_HELD_BYTES: 1 MiB of a task's rows that the driver writes",
        axis="rows of two tasks",
        sizes=growing_sizes(8_000, 50_000, 1.15),
        statement=lambda rows: f"INSERT INTO {{table}} {ROWS.format(rows=rows, files=2)}",
        rows=of_rows(1),
        is_one_table=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The measurement of a size."""

    size: int
    seconds: float
    cpu: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the walks that the options name."""
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--walk", action="append", choices=list(WALKS))
    parser.add_argument("--sizes", type=int, nargs="+", help="sizes to use instead of the walk's")
    options = parser.parse_args(arguments)
    with run_benchmark(options, {"spark.sql.shuffle.partitions": str(2 * options.cores)}) as bench:
        for name in options.walk or WALKS:
            walk = WALKS[name]
            sizes = options.sizes or walk.sizes
            for variant, properties in walk.variants.items():
                about = {"walk": name, "engine": variant, "axis": walk.axis}
                points: list[Point] = []
                for point in measure_sizes(bench.lake, walk, properties, sizes, options.rounds):
                    points.append(point)
                    bench.show({**about, "size": point.size, **measures(points)})
                steps = [(measures(points[: place + 1]), points[place].size) for place in range(1, len(points))]
                for step in ("step", "cpu_step") if steps else ():
                    most, size = max((found[step], size) for found, size in steps)
                    bench.show({**about, f"greatest {step}": most, "at": size, "from": sizes[0], "to": sizes[-1]})
            bench.record(f"walk-{name}")


def measure_sizes(
    lake: Any, walk: Walk, properties: Mapping[str, str], sizes: Sequence[int], rounds: int
) -> Iterator[Point]:
    """Measure all sizes. Rounds on one table cover all sizes, so that a busy minute does not affect just one size."""
    if not walk.is_one_table:
        for size in sizes:
            create_table(lake, walk.rows(size), properties)
            run(lake, walk.statement(size))
            yield fastest(size, [run(lake, walk.statement(size)) for _ in range(rounds)])
        return
    create_table(lake, walk.rows(sizes[0]), properties)
    for size in (sizes[0], sizes[len(sizes) // 2], sizes[0]):  # warm
        run(lake, walk.statement(size))
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            found[size].append(run(lake, walk.statement(size)))
    yield from (fastest(size, runs) for size, runs in found.items())


def create_table(lake: Any, rows: str, properties: Mapping[str, str]) -> None:
    lake.sql("DROP TABLE IF EXISTS bench.t PURGE")
    lake.sql(f"CREATE TABLE bench.t {properties_clause({'format-version': '3', **properties})} AS {rows}")


def run(lake: Any, statement: str) -> tuple[float, float]:
    """Run a statement, roll the table back, and return the seconds and the CPU seconds that it took."""
    catalog = lake.registry.catalog(lake.registry.current_catalog)
    before = catalog.load_table("bench.t").metadata.current_snapshot_id
    cpu = tree_cpu()
    seconds = seconds_of(partial(run_sql, lake, statement.format(table="bench.t")))
    spent = seconds, tree_cpu() - cpu
    table = catalog.load_table("bench.t")
    if table.metadata.current_snapshot_id != before:
        table.manage_snapshots().rollback_to_snapshot(before).commit()
    return spent


def fastest(size: int, runs: Sequence[tuple[float, float]]) -> Point:
    """Return the minimum seconds and the minimum CPU seconds of several runs."""
    return Point(size=size, seconds=min(seconds for seconds, _ in runs), cpu=min(cpu for _, cpu in runs))


def measures(points: Sequence[Point]) -> dict[str, float]:
    """Return what the last size took, and its ratio to the prediction from the sizes before it."""
    last, earlier = points[-1], points[-1 - BEFORE : -1]
    found = {"seconds": round(last.seconds, 3), "cpu": round(last.cpu, 2)}
    if earlier:
        found["step"] = round(last.seconds / expected([(p.size, p.seconds) for p in earlier], last.size), 2)
        found["cpu_step"] = round(last.cpu / expected([(p.size, p.cpu) for p in earlier], last.size), 2)
    return found


def expected(earlier: Sequence[tuple[int, float]], size: int) -> float:
    """Predict a size from earlier ones: a line through the nearest, with the slope from the first to the nearest.

    With a single earlier size the slope is unknown, and taken as 0.
    """
    (first, start), (nearest, seconds) = earlier[0], earlier[-1]
    slope = max(0.0, (seconds - start) / (nearest - first)) if nearest > first else 0.0
    return seconds + slope * (size - nearest)


if __name__ == "__main__":
    main()
