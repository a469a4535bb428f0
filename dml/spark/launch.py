"""Find or start the Spark session of `dml.connect`, with good default settings. Driver.

Input: the user's settings. Output: a session. If Java is missing, or Java or Python is too old, a one-line error names
what to install, before Spark would fail with a stack trace.
"""

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml import limits
from dml.errors import SetupError
from dml.spark.bridge.sessions import start_gateway, start_jvm
from dml.spark.errors import failure_of
from dml.spark.extension import extend, is_remote
from dml.spark.master import is_local_master, usable_cores
from dml.spark.versions import MINIMUM_JAVA, Feature, query_loggers, require
from dml.status_line import status_line

__all__ = ["active_session", "check_java", "check_python", "default_settings", "spark_session"]

MINIMUM_PYTHON: Final = (3, 11)
JAVA_HINT: Final = (
    "Install Java 17 or later (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: "
    "brew install openjdk@17; conda: conda install openjdk=17), or point JAVA_HOME at one"
)
STANDARD_ERROR: Final = 2
WAREHOUSE: Final = "spark.sql.warehouse.dir"
CATALOG_IMPLEMENTATION: Final = "spark.sql.catalogImplementation"
HIVE: Final = "hive"
SPARK_FOLDERS: Final = ("SPARK_HOME", "SPARK_CONF_DIR")
"""Environment variables of folders that may hold Spark's settings."""

LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
GIB: Final = 1024**3

WORKER_SETTINGS: Final = {
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "dml.spark.worker_daemon",
    # Over TCP a task waits about 40 ms for its first rows; over Unix sockets it does not.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Settings that make Python workers fast, for every master. Executors read them when they start, so an existing session
keeps its own."""


INTERACTIVE_SETTINGS: Final = {"spark.sql.repl.eagerEval.enabled": "true"}
"""Settings for interactive use: a DataFrame at the prompt shows its first rows, as text or in a notebook as HTML."""


def is_interactive() -> bool:
    """Return True in a REPL or a notebook. Elsewhere the repr of a DataFrame, in a log for example, runs no job."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def spark_session(spark: SparkSession | None = None, *, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the given session, the active one, or a new local one with RowDelta's SQL extension.

    Args:
        spark: A session to use unchanged.
        settings: Spark settings for a new session, which override `default_settings`; existing sessions ignore them.

    Returns:
        The session, classic or Connect.

    Raises:
        SetupError: there is no usable Java or Python, or Spark does not start.
    """
    found = spark if spark is not None else active_session()
    if found is not None:
        return found
    chosen = {**(INTERACTIVE_SETTINGS if is_interactive() else {}), **(settings or {})}
    with status_line("Connecting to Spark ..." if is_remote(chosen) else "Starting Spark ..."):
        return new_session(chosen)


def new_session(chosen: dict[str, str]) -> SparkSession:
    """Start a session; arguments and errors as for `spark_session`."""
    check_python(sys.version_info[:2])
    # PySpark takes the workers' Python from the environment alone; the setting is for spark-submit.
    os.environ.setdefault("PYSPARK_PYTHON", chosen.get("spark.pyspark.python") or sys.executable)
    if is_remote(chosen):
        require(Feature.CONNECT)
        return start_session(chosen)
    check_java(os.environ)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return start_session(unsubmitted_settings() | chosen)
    chosen = default_settings(os.environ, chosen) | chosen
    if is_local_master(chosen["spark.master"]) and not may_keep_tables(os.environ, chosen):
        chosen = {WAREHOUSE: temporary_warehouse()} | chosen
    with jvm_messages() as stderr:
        return start_session(chosen, stderr)


def active_session() -> SparkSession | None:
    """Return this thread's session, or the application's; None if Spark has not been started."""
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def may_keep_tables(environment: Mapping[str, str], chosen: Mapping[str, str]) -> bool:
    """Return True if Spark's own catalog may keep tables after the session: by Hive, or by files of settings."""
    return HIVE in chosen.get(CATALOG_IMPLEMENTATION, "") or not environment.keys().isdisjoint(SPARK_FOLDERS)


def temporary_warehouse() -> str:
    """Create a folder for tables of Spark's own catalog, which forgets them when the session ends.

    Without it Spark creates `spark-warehouse` in the current folder. It is removed at exit if it is empty, and never
    with files in it.
    """
    folder = Path(tempfile.mkdtemp(prefix="rowdelta-spark-"))
    atexit.register(remove_if_empty, folder)
    return folder.as_uri()


def remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


NOISE: Final = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""A line of each JVM that Spark starts; no option of Java's turns it off."""


@contextmanager
def jvm_messages() -> Iterator[int]:
    """Yield a file descriptor whose bytes a thread copies to standard error, without `NOISE`.

    The JVM keeps its copy of the descriptor, so the thread lives as long as the JVM. If the JVM ends in the block, all
    of its messages have been copied when the block ends.
    """
    reading, writing = os.pipe()
    copier = threading.Thread(target=copy_messages, args=(reading,), name="rowdelta-jvm-messages", daemon=True)
    copier.start()
    try:
        yield writing
    except BaseException:
        os.close(writing)
        copier.join(timeout=limits.JVM_END_SECONDS)
        raise
    os.close(writing)


def copy_messages(reading: int) -> None:
    """Copy bytes to standard error until the writers have closed their ends. The JVM writes each line at once."""
    while chunk := os.read(reading, 65536):
        with suppress(OSError):  # without standard error the bytes are still read: a full pipe would block the JVM
            os.write(STANDARD_ERROR, chunk.replace(NOISE, b""))
    os.close(reading)


def start_session(settings: Mapping[str, str], stderr: int | None = None) -> SparkSession:
    """Start a session; its JVM writes messages to the descriptor `stderr`, if there is one."""
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    for logger in query_loggers():
        logger.setLevel(logging.CRITICAL)  # they repeat the exception's message
    try:
        if stderr is not None:
            start_jvm(settings, stderr)
        session = extend(builder).getOrCreate()
        with stop_on_failure(session):
            _ = session.conf  # Spark validates settings when they are first read
    except PySparkException as error:
        raise SetupError(
            f"Spark does not start: {failure_of(error).message}",
            hint="Check the settings that you passed to it. Any lines above this one are Spark's own",
        ) from error
    return session


@contextmanager
def stop_on_failure(session: SparkSession) -> Iterator[None]:
    """Stop a new session if the block fails, so that the next call starts another one."""
    try:
        yield
    except Exception:
        session.stop()
        raise


def default_settings(environment: Mapping[str, str], chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return default settings for a new session; the user's settings override them.

    With a local master they fit Spark to this machine. On a cluster the executors may differ from this machine and must
    reach the driver by its network address, so address, memory and shuffle partitions are left to Spark.

    Args:
        environment: The process's environment variables; `MASTER` names a master.
        chosen: The user's settings. Only `spark.master` matters: it decides which defaults apply.

    Returns:
        Spark settings, including `spark.master`. The time zone is left to Spark and the user, because it decides what
        timestamps mean.
    """
    master = (chosen or {}).get("spark.master") or environment.get("MASTER", "local[*]")
    settings = {
        "spark.app.name": "rowdelta",
        "spark.master": master,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **WORKER_SETTINGS,
    }
    if not is_local_master(master):
        return settings
    settings |= {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(max(2, usable_cores())),
    }
    if "--driver-memory" not in environment.get("PYSPARK_SUBMIT_ARGS", ""):
        settings["spark.driver.memory"] = f"{driver_memory(usable_memory())}m"
    return settings


def unsubmitted_settings() -> dict[str, str]:
    """Return the worker settings that spark-submit, which has started the JVM, does not set."""
    start_gateway()
    submitted = SparkConf()
    return {key: value for key, value in WORKER_SETTINGS.items() if not submitted.contains(key)}


def usable_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or less in a container."""
    sizes = [4 * GIB]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if Path(path).is_file():
            text = Path(path).read_text(encoding="ascii").strip()
            sizes.extend([int(text)] if text.isdecimal() else [])
    return min(sizes)


def driver_memory(total: int) -> int:
    """Return the JVM's share of a machine's memory, in mebibytes."""
    share = total * limits.JVM_MEMORY_PERCENT // 100 // 1024**2
    return max(limits.MIN_JVM_MIB, min(limits.MAX_JVM_MIB, share))


def check_python(version: tuple[int, ...]) -> None:
    """Raise if Python is too old.

    Args:
        version: Major and minor version.

    Raises:
        SetupError: it is older than 3.11.
    """
    if version < MINIMUM_PYTHON:
        raise SetupError(
            f"Python {'.'.join(map(str, version))} is too old for RowDelta",
            hint=f"Install Python {'.'.join(map(str, MINIMUM_PYTHON))} or later",
        )


def check_java(environment: Mapping[str, str]) -> int:
    """Check the Java that Spark will start, found as Spark finds it, and return its major version.

    Args:
        environment: `JAVA_HOME` and `PATH`.

    Returns:
        `MINIMUM_JAVA` or later.

    Raises:
        SetupError: there is none, it does not run, or it is too old.
    """
    home = environment.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin") if home else environment.get("PATH", ""))
    if program is None and home:
        raise SetupError(f"JAVA_HOME is {home}, and there is no Java in it", hint=JAVA_HINT)
    if program is None:
        raise SetupError("Spark needs Java, and none was found: JAVA_HOME is not set, PATH has no java", hint=JAVA_HINT)
    try:
        version = java_version(program)
    except subprocess.TimeoutExpired:
        return MINIMUM_JAVA  # the machine is too busy to tell; Spark will report a Java that is too old
    if version is None:
        raise SetupError(f"{program} does not run, or does not show its version", hint=JAVA_HINT)
    if version < MINIMUM_JAVA:
        raise SetupError(f"Java {version} is too old for Spark: {program}", hint=JAVA_HINT)
    return version


def java_version(program: str) -> int | None:
    """Return the major version of a Java program; None if it does not show it.

    Raises:
        TimeoutExpired: it does not end in time.
    """
    try:
        outcome = subprocess.run(  # noqa: S603  the user's own Java
            [program, "-version"], capture_output=True, text=True, check=False, timeout=limits.JAVA_VERSION_SECONDS
        )
    except OSError:
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', outcome.stderr + outcome.stdout)
    if found is None or outcome.returncode != 0:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major
