"""Check the workers of a session: their Python, and whether they see local files. Driver.

A session that RowDelta did not start may run its workers with another Python than the driver. PySpark runs `python3`
from PATH if `PYSPARK_PYTHON` is not set, and a driver started as `venv/bin/python job.py` is not in PATH. The user
would see a `ModuleNotFoundError` from a task of a job that they did not write. With a local master, workers use the
driver's Python. Otherwise a tiny job on a worker checks its Python, once per session.

With a `file:` location on a cluster, each task writes to its own machine's disk. The driver would commit paths that no
other machine can read, and the rows would be lost. A shared mount (NFS, EFS, Lustre ...) is fine, and only a test
with files tells the two apart. So one or two tiny jobs run before the first job on a location. They check that workers
see what the driver wrote, that the driver sees what each worker wrote, and that workers see what other workers wrote.
Reads check only for the table's metadata file, because a mount may be read-only. The result is kept for each session
and location, until executors start on hosts that it does not cover. With a local master, where tasks run in the
driver's JVM, nothing is checked.
"""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from types import FunctionType
from typing import Final, cast

from pyiceberg.table import Table
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from dml import limits
from dml.errors import SetupError
from dml.files import scratch as files
from dml.files.schemes import local_path
from dml.files.scratch import Sighting, look_for
from dml.model.write_task import WriteContext
from dml.spark.bridge.gateway import Py4JJavaError
from dml.spark.bridge.internals import FAILURES, warn_degraded
from dml.spark.bridge.names import CONTEXT, ONE_DISK, UTILS
from dml.spark.bridge.sessions import classic_session
from dml.spark.handlers import session_key
from dml.spark.runtime import Runtime

__all__ = [
    "check_files",
    "check_reads",
    "check_workers",
    "check_writes",
    "scratch_folder",
]

DISTRIBUTION: Final = "rowdelta"
UNKNOWN: Final = "?"
PYTHON_HINT: Final = (
    "Before Spark starts, set PYSPARK_PYTHON (with spark-submit also spark.pyspark.python) to a Python that has the "
    "driver's version of RowDelta on every machine, or ship one with spark.archives"
)
UNSTARTABLE: Final = ("PYTHON_VERSION_MISMATCH", "Cannot run program", "No module named")

CHECKED: Final[set[str]] = set()
LOCK: Final = threading.Lock()


def check_workers(spark: SparkSession) -> None:
    """Check once per session, before RowDelta's first job, that workers can run RowDelta's tasks.

    Raises:
        SetupError: their Python lacks the package, or has another version of it.
    """
    key = session_key(spark)
    with LOCK:
        if key in CHECKED:
            return
        if not (Runtime.of(spark).is_local and runs_own_python(spark.sparkContext)):
            check(*python_of_workers(spark))
        CHECKED.add(key)


def scratch_folder(context: SparkContext) -> "TemporaryDirectory[str]":
    """Create a temporary folder for the driver on one of Spark's disks (`spark.local.dir`), for a `with` block."""
    try:
        settings = CONTEXT.of(context).sc().conf()
        folders = [str(folder) for folder in UTILS.call_object("getOrCreateLocalRootDirs", settings)]
    except FAILURES as error:
        warn_degraded("the list of local directories", error, ONE_DISK)
        folders = [gettempdir()]
    return files.scratch_folder(folders)


def runs_own_python(context: SparkContext) -> bool:
    """Use the driver's Python for local workers unless another is configured. Return True if they run it."""
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen:
        # Python functions read it when they are created, so it applies to an existing session too.
        context.pythonExec = sys.executable
    return context.pythonExec == sys.executable


def python_of_workers(spark: SparkSession) -> tuple[str, str]:
    """Return a worker's Python program and its RowDelta version: empty if not installed, `?` if unknown.

    Raises:
        SetupError: Spark cannot start the program, or its Python version differs from the driver's.
    """
    # A Spark Connect server would parse a type given as text, possibly with a third-party parser.
    describe = udf(copy_by_value(cast("FunctionType", describe_worker)), StringType(), useArrow=False)
    try:
        row = spark.range(0, 1, 1, 1).select(describe("id")).first()
    except (PySparkException, Py4JJavaError) as error:
        if not any(sign in str(error) for sign in UNSTARTABLE):
            raise
        raise SetupError(
            f"Spark's workers cannot run RowDelta's tasks: {find_cause(error)}; the driver's Python is "
            f"{sys.executable} ({'.'.join(map(str, sys.version_info[:2]))})",
            hint=PYTHON_HINT,
        ) from error
    assert row is not None
    program, _, version = str(row[0]).partition("\n")
    return program, version


def describe_worker(_: int) -> str:
    """Return Python's path and RowDelta's version, on two lines. Runs in a worker that may lack the package."""
    try:
        found = importlib.util.find_spec("dml.write") is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        return sys.executable + "\n"
    try:
        return sys.executable + "\n" + importlib.metadata.version("rowdelta")
    except importlib.metadata.PackageNotFoundError:  # shipped as files, without package metadata
        return sys.executable + "\n?"


def copy_by_value(function: FunctionType) -> FunctionType:
    """Copy a function so that it is pickled by value: workers without this package cannot import it by name."""
    copy = FunctionType(function.__code__, function.__globals__, function.__name__)
    copy.__module__ = "__main__"
    return copy


def check(program: str, version: str) -> None:
    """Check that a worker's Python has the driver's version of RowDelta.

    Raises:
        SetupError: the package is missing, or has another version.
    """
    own = importlib.metadata.version(DISTRIBUTION)
    if not version:
        raise SetupError(
            f"Spark's workers run {program}, and RowDelta is not installed there; the driver runs {sys.executable}",
            hint=PYTHON_HINT,
        )
    if version not in {own, UNKNOWN}:
        raise SetupError(
            f"Spark's workers run {program} with RowDelta {version}, and the driver runs {sys.executable} with {own}",
            hint=PYTHON_HINT,
        )


def find_cause(error: Exception) -> str:
    """Return the line of Spark's message that names the cause, without stack traces."""
    lines = [line.strip() for line in str(error).splitlines() if any(sign in line for sign in UNSTARTABLE)]
    return lines[-1] if lines else str(error).splitlines()[0]


LOCATION_HINT: Final = (
    "Keep the tables of a cluster in object storage or HDFS (s3://, gs://, abfss://, hdfs://), or mount one shared "
    "file system at this path on the driver and on every worker"
)
WAREHOUSE: Final = "warehouse"

FILES_LOCK: Final = threading.Lock()
"""Held while locations are checked; acquired before `LOCK`."""

COVERED: Final[dict[tuple[str, str, bool], frozenset[str]]] = {}
"""The hosts that had executors when a location was checked, by session, location, and whether for writes."""


def check_reads(spark: SparkSession, table: Table) -> None:
    """Check that workers can run RowDelta's tasks and see a table's files, once per session and location.

    Raises:
        SetupError: workers cannot run RowDelta's tasks, or the files are local and a worker does not see the driver's.
    """
    check_workers(spark)
    check_files(spark, table)


def check_files(spark: SparkSession, table: Table) -> None:
    """Check that executors see a table's files, for Spark's own reader, which needs no Python worker.

    Raises:
        SetupError: the files are local and a worker does not see the driver's, or the check cannot run there.
    """
    metadata = local_path(table.metadata_location or "")
    if metadata is not None and Path(metadata).exists():  # an old metadata file may have been removed since
        check_once(spark, root_of(table, metadata), lambda tasks: check_visible(spark, metadata, tasks), writes=False)


def check_writes(spark: SparkSession, table: Table, context: WriteContext) -> None:
    """Check that workers can run RowDelta's tasks, and that the driver and all workers see what a worker writes.

    Args:
        spark: The session.
        table: The table.
        context: The write, whose data location is checked.

    Raises:
        SetupError: workers cannot run RowDelta's tasks, or the location is local and not shared by all machines.
    """
    check_workers(spark)
    folder = local_path(context.data_location)
    if folder is not None:
        check_once(spark, root_of(table, folder), lambda tasks: check_shared(spark, folder, tasks), writes=True)


def root_of(table: Table, path: str) -> str:
    """Return the folder whose check covers a path: the catalog's warehouse, or the path's parent if it is outside."""
    warehouse = local_path(str(table.catalog.properties.get(WAREHOUSE) or ""))
    inside = warehouse is not None and Path(path).is_relative_to(warehouse)
    return str(warehouse) if inside else str(Path(path).parent)


def check_once(spark: SparkSession, root: str, check: Callable[[int], None], *, writes: bool) -> None:
    """Run a check unless it has passed for all hosts that now have executors."""
    runtime = Runtime.of(spark)
    if runtime.is_local:
        return
    key = (session_key(spark), root, writes)
    hosts = frozenset() if runtime.is_connect else executor_hosts(spark)
    if is_covered(key, hosts):
        return  # without the lock: another session's check may wait for executors
    with FILES_LOCK:
        if not is_covered(key, hosts):
            check_workers(spark)
            check(max(limits.MIN_FILE_CHECKS, limits.FILE_CHECKS_PER_HOST * len(hosts)))
            COVERED[key] = hosts | COVERED.get(key, frozenset())


def is_covered(key: tuple[str, str, bool], hosts: frozenset[str]) -> bool:
    """Return True if these hosts had executors when a location was checked."""
    covered = COVERED.get(key)
    return covered is not None and hosts <= covered


def executor_hosts(spark: SparkSession) -> frozenset[str]:
    """Return the hosts of the registered executors, and the driver's."""
    tracker = classic_session(spark).sparkContext().statusTracker()  # Python's lacks executors
    return frozenset(str(info.host()) for info in tracker.getExecutorInfos())


def check_visible(spark: SparkSession, metadata: str, tasks: int) -> None:
    """Check that every worker sees the table's metadata file, which the driver has read.

    Raises:
        SetupError: a worker does not.
    """
    for seen in sightings(spark, [metadata], "", tasks):
        if seen.missing:
            raise not_shared(metadata, f"the worker on {seen.host} does not see the table's metadata file")


def check_shared(spark: SparkSession, folder: str, tasks: int) -> None:
    """Check that the driver and all workers see what each of them writes to a folder.

    Raises:
        SetupError: one of them does not, or cannot write there.
    """
    with probe_folder(folder) as probe:
        mark = f"{probe}/driver"
        Path(mark).touch()
        found = sightings(spark, [mark], probe, tasks)
        for seen in found:
            if seen.error:
                raise SetupError(
                    f"The worker on {seen.host} cannot write to '{folder}': {seen.error}",
                    hint="Give the user that runs the executors write access to the table's location",
                )
            if seen.missing:
                raise not_shared(folder, f"the worker on {seen.host} does not see a file that the driver wrote")
            if not Path(seen.mark).exists():
                raise not_shared(folder, f"the driver does not see a file that the worker on {seen.host} wrote")
        for seen in sightings(spark, [seen.mark for seen in found], "", tasks):
            if seen.missing:
                raise not_shared(folder, f"the worker on {seen.host} does not see a file that another worker wrote")


@contextmanager
def probe_folder(folder: str) -> Iterator[str]:
    """Create a folder for marks; remove it and the parents that were created for it at the end of the block.

    Raises:
        SetupError: the driver cannot write there.
    """
    made = [path for path in (Path(folder), *Path(folder).parents) if not path.exists()]
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        probe = mkdtemp(prefix=".rowdelta-probe-", dir=folder)
        Path(probe).chmod(Path(folder).stat().st_mode)  # executors may run as other users
    except OSError as error:
        raise SetupError(
            f"The driver cannot write to '{folder}': {error.strerror}",
            hint="Give the user that runs the driver write access to the table's location",
        ) from error
    try:
        yield probe
    finally:
        shutil.rmtree(probe, ignore_errors=True)
        for path in made:
            try:
                path.rmdir()
            except OSError:  # another statement has put files there
                break


def sightings(spark: SparkSession, files: Sequence[str], probe: str, tasks: int) -> list[Sighting]:
    """Return what workers see, one sighting per task.

    Args:
        spark: The session.
        files: Local paths that they look for.
        probe: The folder in which each task writes a mark; empty writes none.
        tasks: The number of tasks.
    """
    look = udf(partial(sighting_text, tuple(files), probe), StringType(), useArrow=False)
    rows = spark.range(0, tasks, 1, tasks).select(look("id")).collect()
    return [Sighting(**json.loads(row[0])) for row in rows]


def sighting_text(files: Sequence[str], probe: str, _: int) -> str:
    """Return what this worker sees, as JSON. Worker."""
    return json.dumps(asdict(look_for(files, f"{probe}/{uuid.uuid4().hex}" if probe else "")))


def not_shared(location: str, reason: str) -> SetupError:
    return SetupError(
        f"'{location}' is not shared by all machines of the cluster: {reason}",
        hint=LOCATION_HINT,
        location=location,
    )
