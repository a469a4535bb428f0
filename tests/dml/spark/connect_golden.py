"""Run as a program: the golden scripts that are run on Spark Connect by night alone."""

import os
import sys
import tempfile

from connect_port import PORT_SETTING, free_port
from pyspark.sql import SparkSession

import dml
from tests.golden import connect_scripts

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.remote("local[2]")
    .config(PORT_SETTING, free_port())
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.warehouse.dir", tempfile.mkdtemp())
    .getOrCreate()
)
with tempfile.TemporaryDirectory() as warehouse, dml.connect(warehouse, spark=spark) as lake:
    connect_scripts.run(lake, nightly=True)
spark.stop()
print("all statements ran")
