"""Run as a program: drivers that are there to be killed.

Each line of standard input is a job; a fork of this process runs its statement on Spark Connect, and the line that
answers tells whether it was killed. What takes long, the imports, is done once.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import pyspark.sql.connect.session
from pyspark.sql import SparkSession

import dml
from tests.faults.bench import STATEMENTS, lake_properties
from tests.faults.injection import Faults


def main() -> None:
    """Serve until standard input ends."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        job = json.loads(line)
        driver = os.fork()
        if driver == 0:
            serve(job)
        _, status = os.waitpid(driver, 0)
        sys.stdout.write(json.dumps({"killed": os.WIFSIGNALED(status)}) + "\n")
        sys.stdout.flush()


def serve(job: dict[str, Any]) -> None:
    """Run one statement, and end the process."""
    try:
        run(job)
    except BaseException:  # noqa: BLE001 - a fork must not go on where its parent would
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def run(job: dict[str, Any]) -> None:
    """Run one statement."""
    faults = Faults(job["faults"])
    faults.victims(os.getpid())
    spark = SparkSession.builder.remote(job["remote"]).getOrCreate()
    properties = lake_properties(Path(job["folder"]), faults)
    session = dml.connect(catalog="lake", spark=spark, progress=False, **properties)
    session.sql(STATEMENTS[job["statement"]])


if __name__ == "__main__":
    assert pyspark.sql.connect.session is not None
    main()
