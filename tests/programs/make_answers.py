"""Runs the program with Iceberg's Java library under Spark, and writes down its answers.

    PYTHON -m tests.programs.make_answers --jars iceberg-spark-runtime-3.5_2.12-1.10.2.jar[,more.jar]

PYTHON is one that has PySpark 3.5, of a version that fits the jar; it is started in the root of the repository. No part
of RowDelta is used here. The answers are in `answers.json`.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ["TZ"] = "UTC"
time.tzset()

from pyspark.sql import SparkSession  # noqa: E402  Spark reads the time zone when it is imported

from tests.programs.all_calls import ANSWERS, CALLS  # noqa: E402
from tests.programs.program import Program, answer  # noqa: E402


def session(jars: str, warehouse: Path) -> SparkSession:
    """A session with Java's catalog `lake`, as users configure it."""
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(warehouse / "spark"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        # A catalog that knows its namespaces, as those on servers do; one of type `hadoop` takes any folder for one.
        "spark.sql.catalog.lake.catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.sql.catalog.lake.warehouse": (warehouse / "lake").as_uri(),
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    return started


def main() -> None:
    """Make the answers anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", required=True, help="Iceberg's runtime for Spark, and what it needs, with commas")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(chosen.jars, Path(folder))
        program = Program(spark)
        program.prepare()
        found = {}
        for call in CALLS:
            found[call.name] = answer(call, program)
            print(call.name, json.dumps(found[call.name])[:300], flush=True)
        spark.stop()
    for each in found.values():
        each.pop("text", None)
    lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(len(found), "calls")


if __name__ == "__main__":
    main()
