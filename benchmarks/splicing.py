"""Copy-on-write that copies columns, against copy-on-write that rewrites: one JSON line a case.

    python -m benchmarks.splicing [--rows 2000000] [--rounds 3] [--columns 100] [--case update-wide]

Cases: `update` assigns one of 6 columns in 1 % of the rows, `update-wide` one of `--columns`, `merge` updates one of 6
columns in 2 % of the rows. Each is run on a fresh table with `write.splice.enabled` and without, in turns; `seconds`
are medians after a warm-up on a smaller table, `ratio` is what is gained.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dml
from benchmarks.datasets import ROWS

UPDATE = "UPDATE {table} SET amt = amt * 2 WHERE id % 100 = 7"
MERGE = (
    "MERGE INTO {table} t USING (SELECT id * 50 AS id, CAST(id AS DOUBLE) AS amt FROM range({rows} DIV 50)) s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET amt = s.amt"
)


def narrow(options: argparse.Namespace, rows: int) -> str:
    """The rows of the other benchmarks."""
    return ROWS.format(rows=rows, files=options.files)


def wide(options: argparse.Namespace, rows: int) -> str:
    """Rows with many columns of random numbers."""
    columns = ", ".join(f"CAST(rand({place}) * 100000 AS INT) AS c{place}" for place in range(options.columns - 2))
    return f"SELECT id, rand(7) AS amt, {columns} FROM range(0, {rows}, 1, {options.files})"


CASES: dict[str, tuple[Callable[[argparse.Namespace, int], str], str]] = {
    "update": (narrow, UPDATE),
    "update-wide": (wide, UPDATE),
    "merge": (narrow, MERGE),
}


def measured(lake: Any, options: argparse.Namespace, case: str, *, splices: bool, rows: int) -> tuple[float, int]:
    """Seconds of a statement on a fresh table, and how many files were spliced."""
    source, statement = CASES[case]
    lake.sql(f"CREATE TABLE bench.t TBLPROPERTIES ('write.splice.enabled' = '{splices}') AS {source(options, rows)}")
    started = time.perf_counter()
    result = lake.sql(statement.format(table="bench.t", rows=rows))
    seconds = time.perf_counter() - started
    lake.sql("DROP TABLE bench.t PURGE")
    return seconds, result.data_files_spliced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--case", choices=sorted(CASES))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rowdelta-benchmark-"))
    settings = {"spark.master": f"local[{options.cores}]", "spark.driver.memory": "2g"}
    lake = dml.connect(str(folder / "warehouse"), settings=settings, progress=False)
    try:
        lake.sql("CREATE NAMESPACE bench")
        for case in [options.case] if options.case else CASES:
            measured(lake, options, case, splices=True, rows=400_000)
            runs: dict[bool, list[float]] = {True: [], False: []}
            files = 0
            for _ in range(options.rounds):
                for splices, seconds in runs.items():
                    took, number = measured(lake, options, case, splices=splices, rows=options.rows)
                    seconds.append(took)
                    files = max(files, number)
            spliced, rewritten = (statistics.median(runs[splices]) for splices in (True, False))
            line = {"case": case, "rows": options.rows, "files_spliced": files, "seconds": round(spliced, 3)}
            print(
                json.dumps({**line, "rewritten": round(rewritten, 3), "ratio": round(rewritten / spliced, 2)}),
                flush=True,
            )
    finally:
        lake.spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
