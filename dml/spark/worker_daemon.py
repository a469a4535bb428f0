"""Spark's daemon of Python workers, with what our workers import imported once, before it forks them. Daemon.

A worker that starts with an empty interpreter spends half a second of a core on imports, and Spark starts new workers
after every task that failed or was cut short. The parent may load only what starts no thread (NumPy and Arrow do):
a fork copies no threads. What is loaded is kept out of the collections that PySpark runs after each task.

Named by `spark.python.daemon.module` (see `dml.spark.launch`); Spark runs it as `python -m` with the worker's module.
"""

import gc
import importlib
from typing import Final

from pyspark import daemon

__all__ = ["PRELOADED", "main"]

PRELOADED: Final = (
    "pyspark.worker",
    "pyroaring",
    "pyiceberg.conversions",
    "pyiceberg.expressions.visitors",
    "pyiceberg.io",
    "pyiceberg.partitioning",
    "pyiceberg.table.name_mapping",
    "pyiceberg.transforms",
)


def main() -> None:
    """Import, then serve until Spark ends."""
    for module in PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
