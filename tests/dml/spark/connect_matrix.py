"""Run as a program: every way to write on every kind of table of one file format, on Spark Connect.

python connect_matrix.py FORMAT
"""

import sys
import tempfile
from pathlib import Path

from connect_port import connect_session

import dml
from tests.dml.spark.write_story import CELLS, Story

spark = connect_session()
with tempfile.TemporaryDirectory() as folder, dml.connect(f"{folder}/warehouse", spark=spark, progress=False) as lake:
    lake.sql("CREATE NAMESPACE db")
    for number, cell in enumerate(cell for cell in CELLS if cell.file_format == sys.argv[1]):
        place = Path(folder, str(number))
        place.mkdir()
        Story(lake=lake, spark=spark, cell=cell, name=f"db.t{number}", folder=place).tell()
spark.stop()
print("all statements ran")
