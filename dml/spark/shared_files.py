"""Check that all machines of a cluster see the local files of a table. Driver; classic Spark and Spark Connect.

With a `file:` location on a cluster, each task writes to its own machine's disk. The driver would commit paths that no
other machine can read, and the rows would be lost. A shared mount (NFS, EFS, Lustre ...) is fine, and only a test
with files tells the two apart. So one or two tiny jobs run before the first job on a location. They check that workers
see what the driver wrote, that the driver sees what each worker wrote, and that workers see what other workers wrote.
Reads check only for the table's metadata file, because a mount may be read-only.

The result is kept for each session and location, until executors start on hosts that it does not cover. With a local
master, where tasks run in the driver's JVM, nothing is checked.
"""

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from pyiceberg.table import Table
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from dml import limits
from dml.errors import SetupError
from dml.files.schemes import local_path
from dml.files.shared_folder import Sighting, look_for
from dml.model.write_task import WriteContext
from dml.spark.handlers import is_classic, session_key
from dml.spark.jvm import classic_session
from dml.spark.master import is_local
from dml.spark.workers import check_workers

__all__ = ["check_files", "check_reads", "check_writes"]

HINT: Final = (
    "Keep the tables of a cluster in object storage or HDFS (s3://, gs://, abfss://, hdfs://), or mount one shared "
    "file system at this path on the driver and on every worker"
)
WAREHOUSE: Final = "warehouse"

COVERED: Final[dict[tuple[str, str, bool], frozenset[str]]] = {}
"""The hosts that had executors when a location was checked; by session, location, and whether it was checked for
writes."""
LOCK: Final = threading.Lock()


def check_reads(spark: SparkSession, table: Table) -> None:
    """Check that workers can run our tasks and see a table's files, once for each session and location.

    Raises:
        SetupError: workers cannot run our tasks, or the files are local and a worker does not see the driver's.
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
    """Check that workers can run our tasks, and that the driver and all workers see files that a worker writes.

    Args:
        spark: The session.
        table: The table.
        context: The write, whose data location is checked.

    Raises:
        SetupError: workers cannot run our tasks, or the location is local and not shared by all machines.
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
    """Run a check unless its result is known for all hosts that now have executors."""
    context = spark.sparkContext if is_classic(spark) else None
    if context is not None and is_local(context.master):
        return
    key = (session_key(spark), root, writes)
    hosts = frozenset() if context is None else executor_hosts(spark)
    if is_covered(key, hosts):
        return  # without the lock: another session's check may wait for executors
    with LOCK:
        if not is_covered(key, hosts):
            check_workers(spark)
            check(max(limits.MIN_FILE_CHECKS, limits.FILE_CHECKS_PER_HOST * len(hosts)))
            COVERED[key] = hosts | COVERED.get(key, frozenset())


def is_covered(key: tuple[str, str, bool], hosts: frozenset[str]) -> bool:
    """Return whether these hosts had executors when a location was checked."""
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
    """Make a folder for marks; the end of the block removes it and the parents that were created for it.

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
    """Return what workers see, one sighting for each task.

    Args:
        spark: The session.
        files: Local paths that they look for.
        probe: The folder in which each task writes a mark; empty writes none.
        tasks: The number of tasks.
    """
    ask = udf(partial(sighting_text, tuple(files), probe), StringType(), useArrow=False)
    rows = spark.range(0, tasks, 1, tasks).select(ask("id")).collect()
    return [Sighting(**json.loads(row[0])) for row in rows]


def sighting_text(files: Sequence[str], probe: str, _: int) -> str:
    """Return what this worker sees, as JSON. Worker."""
    return json.dumps(asdict(look_for(files, f"{probe}/{uuid.uuid4().hex}" if probe else "")))


def not_shared(location: str, reason: str) -> SetupError:
    return SetupError(
        f"'{location}' is not shared by all machines of the cluster: {reason}",
        hint=HINT,
        location=location,
    )
