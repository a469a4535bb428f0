"""Run as a program: the calls on Spark Connect, on a server that is not ours; prints their answers as JSON.

python -m tests.programs.on_connect FOLDER
"""

import json
import sys

import dml
from tests.connect.sessions import connect_session
from tests.programs.all_calls import CALLS
from tests.programs.program import Program, answer

__all__ = ["main"]


def main(folder: str) -> None:
    """Run the calls.

    Args:
        folder: Where the tables are made.
    """
    spark = connect_session({"spark.sql.session.timeZone": "UTC", "spark.sql.warehouse.dir": f"{folder}/spark"})
    dml.connect(f"{folder}/lake", spark=spark, progress=False)
    program = Program(spark)
    program.prepare()
    print(json.dumps({call.name: answer(call, program) for call in CALLS}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
