"""RowDelta: row-level DML for Apache Iceberg tables on PySpark.

The life of a MERGE, stage by stage::

    text ── dml.sqlparse ──> MergeStatement              the parsed text, with the position of every name
         ── dml.plan ──────> RowDeltaPlan                a delta query, and the columns and files that it needs
         ── dml.scan ──────> scan tasks, a DataFrame     files pruned, read as Arrow in Spark's Python workers
         ── Spark ─────────> row delta                   one row for each change: operation, file, position, new values
         ── dml.write ─────> TaskCommit                  files rewritten, or delete files and new data files beside them
         ── dml.commit ────> snapshot                    validated against concurrent commits, then published

Only `dml.engine` imports all stages; `dml.session` is the user's handle. Modules that run in Spark's workers import
neither PySpark nor the session, so this module loads the rest of the package lazily.
"""

import atexit
import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dml.errors import (
    AlreadyExistsError,
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptFileError,
    DataError,
    DmlError,
    ErrorKind,
    ExecutionError,
    NotFoundError,
    NotSupportedError,
    RowConservationError,
    SetupError,
    SqlError,
    ValidationFailedError,
)
from dml.status_line import status_line

if TYPE_CHECKING:  # type checkers see the lazy names; at run time `__getattr__` loads them
    from dml.active_session import (
        after_commit,
        connect,
        delete,
        disable,
        enable,
        health,
        insert,
        merge_into,
        remove_orphan_files,
        sql,
        stream_merge,
        table,
        update,
        upsert,
        verify,
    )
    from dml.engine.target import commit_properties
    from dml.result import Result
    from dml.session import Session
    from dml.spark.extension import extend
    from dml.table_health import TableHealth
    from dml.verification import Verification

    __version__: str

__all__ = [
    "AlreadyExistsError",
    "AnalysisError",
    "CommitConflictError",
    "CommitStateUnknownError",
    "CorruptFileError",
    "DataError",
    "DmlError",
    "ErrorKind",
    "ExecutionError",
    "NotFoundError",
    "NotSupportedError",
    "Result",
    "RowConservationError",
    "Session",
    "SetupError",
    "SqlError",
    "TableHealth",
    "ValidationFailedError",
    "Verification",
    "after_commit",
    "commit_properties",
    "connect",
    "delete",
    "disable",
    "enable",
    "extend",
    "health",
    "insert",
    "merge_into",
    "remove_orphan_files",
    "sql",
    "stream_merge",
    "table",
    "update",
    "upsert",
    "verify",
]

LAZY = {
    "Result": "dml.result",
    "Session": "dml.session",
    "TableHealth": "dml.table_health",
    "Verification": "dml.verification",
    "after_commit": "dml.active_session",
    "commit_properties": "dml.engine.target",
    "connect": "dml.active_session",
    "delete": "dml.active_session",
    "disable": "dml.active_session",
    "enable": "dml.active_session",
    "extend": "dml.spark.extension",
    "health": "dml.active_session",
    "insert": "dml.active_session",
    "merge_into": "dml.active_session",
    "remove_orphan_files": "dml.active_session",
    "sql": "dml.active_session",
    "stream_merge": "dml.active_session",
    "table": "dml.active_session",
    "update": "dml.active_session",
    "upsert": "dml.active_session",
    "verify": "dml.active_session",
}
COMMANDS = ("demo", "prompt", "serve", "shell")  # modules that the command line runs


def __getattr__(name: str) -> Any:
    """Load a public name on first access, because it may need Spark."""
    if name == "__version__":
        return import_module("importlib.metadata").version("rowdelta")
    if name in LAZY:
        return getattr(load(LAZY[name]), name)
    if name in COMMANDS:
        return load_command(f"dml.{name}")
    raise AttributeError(f"module 'dml' has no attribute {name!r}")


def load(module: str) -> ModuleType:
    """Import a module, which takes seconds if it is the first one that needs Spark.

    Garbage collections meanwhile would take a quarter of the time, and imports produce no garbage.
    """
    if module in sys.modules:
        return sys.modules[module]
    collects = gc.isenabled()
    gc.disable()
    try:
        with status_line("Loading RowDelta ..."):
            return import_module(module)
    finally:
        if collects:
            gc.enable()


def load_command(module: str) -> ModuleType:
    """Import a module of the command line, whose process serves one command: it loads and collects less."""
    # The collections of an ending process examine all that was ever imported, which takes half a second.
    atexit.register(gc.freeze)
    sys.meta_path.insert(0, PandasBlocker)
    try:
        return load(module)
    finally:
        sys.meta_path.remove(PandasBlocker)
        gc.freeze()


class PandasBlocker:
    """An import hook that reports pandas as missing.

    PyArrow imports pandas, if it is installed, with its first value, to recognize pandas objects. Commands have none,
    and code that needs pandas imports it again afterwards.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG004 - the protocol of hooks
        """Raise ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("PyArrow does not need pandas here", name=name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
