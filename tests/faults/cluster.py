"""Run as a program: statements on a cluster of two executors whose tasks fail, whose workers and executors are killed.

A line of standard output for each run tells what came of it. At last the driver itself is killed. With the argument
`all`, by night, each statement meets each death in each mode; without it, some do, and each death comes.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from dml import limits
from dml.spark.launch import spark_session
from tests.class_archive import JVM_OPTIONS
from tests.conftest import LOGGING, part_settings
from tests.faults.bench import LARGE_INSERT, Bench
from tests.faults.injection import Action, Call, Fault

SETTINGS = {
    "spark.master": "local-cluster[2,1,640]",
    "spark.executor.memory": "640m",
    "spark.driver.memory": "800m",
    "spark.driver.extraJavaOptions": f"{LOGGING} {JVM_OPTIONS}",
    "spark.executor.extraJavaOptions": f"{LOGGING} {JVM_OPTIONS}",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.sql.shuffle.partitions": "2",
    # A task that takes longer than this is run a second time, beside the first.
    "spark.speculation": "true",
    "spark.speculation.task.duration.threshold": "3s",
    "spark.speculation.interval": "200ms",
}
STATEMENTS = ("delete", "update", "merge", LARGE_INSERT)
MODES = ((2, "copy-on-write"), (3, "merge-on-read"))
DEATHS = {
    "a task fails twice": Fault(call=Call.CREATE, first=1, last=2),
    "a worker is killed in a write": Fault(call=Call.WRITE, first=2, last=2, action=Action.KILL_WORKER),
    "an executor is killed in a write": Fault(call=Call.WRITE, first=2, last=2, action=Action.KILL_EXECUTOR),
    "a task stalls in a write": Fault(call=Call.WRITE, first=2, last=2, action=Action.STALL),
}
RARE = {"an executor is killed in a write": {"update"}, "a task stalls in a write": {"merge"}}
"""Deaths that take seconds, and the statements that they are for."""
ALWAYS = (("update", 2, "copy-on-write"), ("merge", 3, "merge-on-read"))
"""What is run with every change: a table without properties, and one that differs from it in everything."""


def kinds(*, all_of_them: bool) -> Sequence[tuple[str, int, str]]:
    """Statements, versions and modes."""
    return [(name, *mode) for name in STATEMENTS for mode in MODES] if all_of_them else ALWAYS


def main() -> None:
    """Run them; the arguments are a folder, and `all` or nothing."""
    folder = Path(sys.argv[1])
    vars(limits)["MAX_DRIVER_JOB_BYTES"] = -1  # workers run all tasks
    settings = {**SETTINGS, **part_settings(), "spark.local.dir": str(folder / "local")}
    spark: SparkSession = spark_session(settings=settings)
    for statement, version, mode in kinds(all_of_them="all" in sys.argv[2:]):
        bench = Bench.of(spark, folder / f"{statement}-{version}", statement, version, mode)
        for name, fault in DEATHS.items():
            if statement not in RARE.get(name, STATEMENTS):
                continue
            run = bench.run(fault)
            told = {
                "what": f"{statement} v{version} {mode}: {name}",
                "outcome": run.outcome,
                "injected": len(run.injected),
                "problems": run.problems,
            }
            tell(told)
    tell({"what": "killed", "folder": str(bench.folder)})
    bench.victims = (os.getpid(),)
    bench.run(Fault(call=Call.WRITE, first=2, last=2, action=Action.KILL))


def tell(line: dict[str, object]) -> None:
    """To whoever started this."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
