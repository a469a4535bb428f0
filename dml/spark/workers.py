"""Which Python the workers run, and whether it has this package. Driver; classic Spark and Spark Connect.

A session that somebody else made may run its workers with another Python than the driver: PySpark takes `python3` from
PATH where `PYSPARK_PYTHON` is not set, and a driver that was started as `venv/bin/python job.py` is not in PATH. What a
user would see is a `ModuleNotFoundError` from a task of a job that they did not write.

With a local master workers take the driver's own Python. Elsewhere a tiny job, once for each session, asks a worker.
"""

import importlib.metadata
import importlib.util
import os
import sys
import threading
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any, Final, cast

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from dml.errors import SetupError
from dml.files import scratch as files
from dml.spark.handlers import is_classic, session_key
from dml.spark.internals import FAILURES, warn_degraded
from dml.spark.jvm import jvm_view
from dml.spark.master import is_local

__all__ = ["check_workers", "run_here", "scratch_folder", "shares_files"]

DISTRIBUTION: Final = "rowdelta"
UNKNOWN: Final = "?"
HINT: Final = (
    "Before Spark starts, set PYSPARK_PYTHON (with spark-submit also spark.pyspark.python) to a Python that has the "
    "driver's version of RowDelta on every machine, or ship one with spark.archives"
)
UNSTARTABLE: Final = ("PYTHON_VERSION_MISMATCH", "Cannot run program", "No module named")

CHECKED: Final[set[str]] = set()
LOCK: Final = threading.Lock()


def check_workers(spark: SparkSession) -> None:
    """Let the workers of a session be able to run our tasks; asked once for each session, before its first job of ours.

    Args:
        spark: The session.

    Raises:
        SetupError: their Python lacks the package, or has it in another version.
    """
    key = session_key(spark)
    with LOCK:
        if key in CHECKED:
            return
        context = getattr(spark, "_sc", None)
        if context is None or not runs_own_python(context):
            check(*python_of_workers(spark))
        CHECKED.add(key)


def run_here(context: SparkContext) -> bool:
    """Return whether the workers run on the driver's machine, as its child processes."""
    return is_local(context.master)


def shares_files(spark: SparkSession) -> bool:
    """Return whether tasks and driver may exchange rows in files: one machine, and no encryption of Spark's files."""
    if not is_classic(spark) or not run_here(spark.sparkContext):
        return False
    encrypts: bool = spark.sparkContext._encryption_enabled  # noqa: SLF001  `getConf` copies all settings, one by one
    return not encrypts


def scratch_folder(context: SparkContext) -> "TemporaryDirectory[str]":
    """Make a temporary folder for the driver, on one of Spark's disks (`spark.local.dir`); the block removes it."""
    try:
        utils = getattr(getattr(jvm_view(), "org.apache.spark.util.Utils$"), "MODULE$")
        settings = cast("Any", context)._jsc.sc().conf()  # noqa: SLF001  no public name
        folders = [str(folder) for folder in utils.getOrCreateLocalRootDirs(settings)]
    except FAILURES as error:
        warn_degraded("the list of local directories", error, "the driver keeps temporary files on one disk")
        folders = [str(cast("Any", context)._temp_dir)]  # noqa: SLF001  no public name
    return files.scratch_folder(folders)


def runs_own_python(context: SparkContext) -> bool:
    """Whether the workers run the driver's own Python, on the driver's machine; they do where nobody chose another."""
    if not run_here(context):
        return False
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen:
        # Python functions take it from here when they are made, so a session that is there takes it too.
        context.pythonExec = sys.executable
    return context.pythonExec == sys.executable


def python_of_workers(spark: SparkSession) -> tuple[str, str]:
    """The Python program of a worker, and its version of the package: empty for none, `?` for an unknown one.

    Raises:
        SetupError: Spark cannot start the program, or it is another version of Python.
    """
    # A type as text would be parsed by the server of Spark Connect, with a parser that may be another's.
    asked = udf(by_value(cast("FunctionType", describe_worker)), StringType(), useArrow=False)
    try:
        row = spark.range(0, 1, 1, 1).select(asked("id")).first()
    except (PySparkException, Py4JJavaError) as error:
        if not any(sign in str(error) for sign in UNSTARTABLE):
            raise
        raise SetupError(
            f"Spark's workers cannot run RowDelta's tasks: {first_line(error)}; the driver's Python is "
            f"{sys.executable} ({'.'.join(map(str, sys.version_info[:2]))})",
            hint=HINT,
        ) from error
    assert row is not None
    program, _, version = str(row[0]).partition("\n")
    return program, version


def describe_worker(_: int) -> str:
    """The program and the version of the package, on two lines. Worker, where the package may be missing."""
    try:
        found = importlib.util.find_spec("dml.write") is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        return sys.executable + "\n"
    try:
        return sys.executable + "\n" + importlib.metadata.version("rowdelta")
    except importlib.metadata.PackageNotFoundError:  # shipped as files, without what an installation notes
        return sys.executable + "\n?"


def by_value(function: FunctionType) -> FunctionType:
    """A copy of a function that is pickled with its code: workers without this package cannot look it up by name."""
    copy = FunctionType(function.__code__, function.__globals__, function.__name__)
    copy.__module__ = "__main__"
    return copy


def check(program: str, version: str) -> None:
    """Refuse a Python without the package, or with another version of it.

    Raises:
        SetupError: it is one.
    """
    ours = importlib.metadata.version(DISTRIBUTION)
    if not version:
        raise SetupError(
            f"Spark's workers run {program}, and RowDelta is not installed there; the driver runs {sys.executable}",
            hint=HINT,
        )
    if version not in {ours, UNKNOWN}:
        raise SetupError(
            f"Spark's workers run {program} with RowDelta {version}, and the driver runs {sys.executable} with {ours}",
            hint=HINT,
        )


def first_line(error: Exception) -> str:
    """What Spark says, without its traces."""
    lines = [line.strip() for line in str(error).splitlines() if any(sign in line for sign in UNSTARTABLE)]
    return lines[-1] if lines else str(error).splitlines()[0]
