"""Spark's daemon of Python workers, with what our workers import imported once, before it forks them. Daemon.

A worker that starts with an empty interpreter spends half a second of a core on imports, and Spark starts new workers
after every task that failed or was cut short. The parent may load only what starts no thread (NumPy and Arrow do):
a fork copies no threads. What is loaded is kept out of the collections that PySpark runs after each task.

A worker whose task was cut short (a LIMIT that has its rows, a task that was given up) ends quietly: PySpark's own ends
with a traceback on the user's terminal.

Named by `spark.python.daemon.module` (see `dml.spark.launch`); Spark runs it as `python -m` with the worker's module.
"""

import gc
import importlib
from collections.abc import Callable
from typing import Final, ParamSpec

from pyspark import daemon

__all__ = ["PRELOADED", "main", "quiet"]

PRELOADED: Final = (
    "pyspark.worker",
    "pyroaring",
    "pyiceberg.conversions",
    "pyiceberg.expressions.visitors",
    "pyiceberg.io",
    "pyiceberg.partitioning",
    "pyiceberg.table.name_mapping",
    "pyiceberg.transforms",
    "tenacity",
)


P = ParamSpec("P")


def quiet(serve: Callable[P, int]) -> Callable[P, int]:
    """A worker's loop that takes it as its end when Spark has closed the connection.

    Args:
        serve: PySpark's: serves one task, and gives an exit code.
    """

    def served(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return serve(*args, **kwargs)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return served


def main() -> None:
    """Import, then serve until Spark ends."""
    daemon.worker = quiet(daemon.worker)
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
