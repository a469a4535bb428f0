"""Sail behind JSON lines, for `--sail`: `SAIL_PYTHON benchmarks/sail_server.py WAREHOUSE`.

Runs in an environment of its own that has `pysail` and `pyspark[connect]`, so it imports nothing of this repository.
The protocol is that of `benchmarks.peers.Program`. The tables of its catalog `c` are at WAREHOUSE/bench/NAME.
"""

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession


def main() -> None:
    warehouse = Path(sys.argv[1]).absolute()
    os.environ |= {
        "TZ": "UTC",
        "SAIL_CATALOG__LIST": '[{name="c", type="memory", initial_database=["default"]}]',
        "SAIL_CATALOG__DEFAULT_CATALOG": "c",
    }
    time.tzset()
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.sql(f"CREATE NAMESPACE c.bench LOCATION 'file://{warehouse}/bench'").collect()
    answer({"hello": {"sail": version("pysail"), "pyspark": version("pyspark")}})
    for line in sys.stdin:
        try:
            answer({"rows": [list(row) for row in spark.sql(json.loads(line)["sql"]).collect()]})
        except Exception as error:  # noqa: BLE001  the client decides
            answer({"error": type(error).__name__, "message": str(error)})
    spark.stop()
    server.stop()


def answer(message: dict[str, object]) -> None:
    print(json.dumps(message, default=str), flush=True)


if __name__ == "__main__":
    main()
