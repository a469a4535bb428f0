"""Run as a program: the calls on Spark Connect, on a server that is not ours; prints their answers as JSON.

python -m tests.programs.on_connect FOLDER
"""

import json
import os
import sys

from pyspark.sql import SparkSession

import dml
from tests.dml.spark.connect_port import PORT_SETTING, free_port
from tests.programs.all_calls import CALLS
from tests.programs.program import Program, answer

__all__ = ["main"]


def main(folder: str) -> None:
    """Run the calls.

    Args:
        folder: Where the tables are made.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.remote("local[2]")
        .config(PORT_SETTING, free_port())
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/spark")
        .getOrCreate()
    )
    dml.connect(f"{folder}/lake", spark=spark, progress=False)
    program = Program(spark)
    program.prepare()
    print(json.dumps({call.name: answer(call, program) for call in CALLS}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
