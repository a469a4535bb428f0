"""Run as a program: every way to write on every kind of table of one file format, on Spark Connect.

python connect_matrix.py FORMAT
"""

import os
import sys
import tempfile
from pathlib import Path

from connect_port import PORT_SETTING, free_port
from pyspark.sql import SparkSession

import dml
from tests.dml.spark.write_story import CELLS, Story

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.remote("local[2]")
    .config(PORT_SETTING, free_port())
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", tempfile.mkdtemp())
    .getOrCreate()
)
with tempfile.TemporaryDirectory() as folder, dml.connect(f"{folder}/warehouse", spark=spark, progress=False) as lake:
    lake.sql("CREATE NAMESPACE db")
    for number, cell in enumerate(cell for cell in CELLS if cell.file_format == sys.argv[1]):
        place = Path(folder, str(number))
        place.mkdir()
        Story(lake=lake, spark=spark, cell=cell, name=f"db.t{number}", folder=place).tell()
spark.stop()
print("all statements ran")
