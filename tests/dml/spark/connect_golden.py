"""Run as a program: the golden scripts that are run on Spark Connect by night alone."""

import tempfile

from connect_port import connect_session

import dml
from tests.golden import connect_scripts

spark = connect_session({"spark.sql.session.timeZone": "UTC"})
with tempfile.TemporaryDirectory() as warehouse, dml.connect(warehouse, spark=spark) as lake:
    connect_scripts.run(lake, nightly=True)
spark.stop()
print("all statements ran")
