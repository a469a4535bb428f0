"""Run as a program: a driver on classic Spark whose JVM is killed while a task writes; what comes of it is told."""

import json
import sys
from pathlib import Path

from dml.spark.launch import spark_session
from tests.class_archive import JVM_OPTIONS
from tests.conftest import LOGGING, part_settings
from tests.faults.bench import Bench
from tests.faults.injection import Action, Call, Fault

SETTINGS = {
    "spark.master": "local[1]",
    "spark.driver.memory": "800m",
    "spark.driver.extraJavaOptions": f"{LOGGING} {JVM_OPTIONS}",
}


def main() -> None:
    """Run one statement; the argument is a folder."""
    spark = spark_session(settings={**SETTINGS, **part_settings()})
    bench = Bench.of(spark, Path(sys.argv[1]), "update", 2, "copy-on-write")
    bench.victims = (spark.sparkContext._gateway.proc.pid,)
    run = bench.run(Fault(call=Call.WRITE, first=2, last=2, action=Action.KILL))
    sys.stdout.write(json.dumps({"outcome": run.outcome, "said": run.said, "problems": run.problems}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
