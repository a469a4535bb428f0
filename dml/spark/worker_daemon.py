"""Spark's daemon of Python workers, which preloads RowDelta's imports before it forks workers. Daemon.

A worker that starts with an empty interpreter spends up to a second of a core on imports, and Spark starts new workers
after every task that failed or was cut short. The daemon may only import modules that start no threads, because a fork
does not copy threads: NumPy and Arrow are preloaded where they start none. Preloaded objects are frozen, which excludes
them from the garbage collection that PySpark runs after each task, which took most of the time of small tasks.

A worker whose task was cut short (a LIMIT that has its rows, a cancelled task) exits quietly. PySpark's own would print
a traceback on the user's terminal.

Named by `spark.python.daemon.module` (see `dml.spark.launch`); Spark runs it as `python -m` with the worker's module.
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, ParamSpec
from zipimport import zipimporter

from pyspark import daemon

__all__ = ["PRELOADED", "WITH_ARROW", "exit_quietly", "forget_zip_files", "main", "preload", "starts_no_threads"]

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
WITH_ARROW: Final = (
    "numpy",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.orc",
    "pyarrow.parquet",
    "pyiceberg.io.pyarrow",
    "fastavro",
    "dml.read.reader",
    "dml.tasks.row_task",
    "dml.write.delta_writer",
)
"""Imports of RowDelta's tasks that load NumPy and Arrow."""

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


def starts_no_threads() -> bool:
    """Return True if NumPy starts no threads when it is imported.

    Spark sets `OMP_NUM_THREADS` to the number of CPUs of a task, which is 1 by default.
    """
    threads = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS")
    return sys.platform == "linux" and threads == "1"


def preload() -> None:
    """Import modules of workers, those with Arrow too if that starts no thread."""
    for module in PRELOADED:
        importlib.import_module(module)
    if starts_no_threads():
        given = os.environ.get("JE_ARROW_MALLOC_CONF")
        os.environ["JE_ARROW_MALLOC_CONF"] = ",".join(filter(None, (given, "background_thread:false")))
        for module in WITH_ARROW:
            with suppress(ImportError):  # a task that needs it raises the error
                importlib.import_module(module)
        # Python reseeds `random` in a forked process, but NumPy does not: all workers would draw the same numbers.
        if "numpy" in sys.modules:
            os.register_at_fork(after_in_child=sys.modules["numpy"].random.seed)


def forget_zip_files() -> None:
    """Remove the importers of `pyspark.zip`, one for each of its folders.

    PySpark calls `importlib.invalidate_caches` in a worker's first task, before 4.3 in every task. Each importer would
    read the list of 1,800 files again: a third of a second of a core for all. New importers share the list read first.
    """
    for path, importer in tuple(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


def main() -> None:
    """Preload modules, then serve until Spark ends."""
    daemon.worker = exit_quietly(daemon.worker)
    preload()
    forget_zip_files()
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
