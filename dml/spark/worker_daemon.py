"""Spark's daemon of Python workers, which preloads RowDelta's imports before it forks workers. Daemon.

A worker that starts with an empty interpreter spends half a second of a core on imports, and Spark starts new workers
after every task that failed or was cut short. The daemon may only import modules that start no threads (NumPy and Arrow
do), because a fork does not copy threads. Preloaded objects are frozen, which excludes them from the garbage collection
that PySpark runs after each task.

A worker whose task was cut short (a LIMIT that has its rows, a cancelled task) exits quietly. PySpark's own would print
a traceback on the user's terminal.

Named by `spark.python.daemon.module` (see `dml.spark.launch`); Spark runs it as `python -m` with the worker's module.
"""

import gc
import importlib
from collections.abc import Callable
from typing import Final, ParamSpec

from pyspark import daemon

__all__ = ["PRELOADED", "exit_quietly", "main"]

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


def exit_quietly(serve: Callable[P, int]) -> Callable[P, int]:
    """Wrap a worker's loop, so that it exits quietly when Spark has closed the connection.

    Args:
        serve: PySpark's loop, which returns an exit code.
    """

    def serve_quietly(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return serve(*args, **kwargs)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return serve_quietly


def main() -> None:
    """Preload modules, then serve until Spark ends."""
    daemon.worker = exit_quietly(daemon.worker)
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
