"""Run a standalone Spark cluster on this machine, with master and workers of the PySpark package as separate processes.

Workers share only the network with the driver: each has its own folder and host address, a nearly empty environment,
and, if a test asks for it, a private file system mounted over a folder (`unshare --mount`).
"""

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.services.server import HOST, free_ports, serving

__all__ = ["SPARK_HOME", "Standalone", "standalone"]

SPARK_HOME = Path(pyspark.__file__).parent
SPARK_CLASS = SPARK_HOME / "bin" / "spark-class"
START_SECONDS = 180
DAEMON_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True, kw_only=True)
class Standalone:
    """A running cluster.

    Attributes:
        url: The master's URL, for `spark.master`.
        web_port: The port of the master's web page.
        folder: The folder for everything that its processes write.
        private: For each worker, the folders over which it mounts a private file system.
        stack: Stops the processes when it closes.
    """

    url: str
    web_port: int
    folder: Path
    private: Sequence[Sequence[Path]]
    stack: ExitStack

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings for a small driver on this cluster."""
        return {
            "spark.master": self.url,
            "spark.driver.memory": "1g",
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self.folder / "driver"),
            "spark.sql.warehouse.dir": str(self.folder / "spark-warehouse"),
        }

    def start_worker(self, number: int, alive_then: int) -> None:
        """Start a worker, and wait until a number of workers have registered.

        Args:
            number: The index of the worker.
            alive_then: The number of workers to wait for.
        """
        # Different loopback addresses are different hosts to Spark.
        options = ["--cores", "2", "--memory", "2200m", "--host", f"127.0.0.{number + 2}", "--webui-port", "0"]
        command = [*environment(), str(SPARK_CLASS), "org.apache.spark.deploy.worker.Worker", *options]
        command += ["--work-dir", str(self.folder / f"work{number}"), self.url]
        self.stack.enter_context(
            serving(
                mounted(command, self.private[number]),
                lambda: self.check_workers(alive_then),
                self.folder / f"worker{number}.log",
                seconds=START_SECONDS,
            )
        )

    def restart_lost_workers(self) -> None:
        """Restart the workers that have stopped."""
        for number in range(len(self.private)):
            if not any(str(self.folder / f"work{number}") in words for words in command_lines()):
                self.start_worker(number, len(self.private))

    def check_workers(self, least: int) -> None:
        """Raise unless at least a number of workers have registered and are alive."""
        with urllib.request.urlopen(f"http://{HOST}:{self.web_port}/json/", timeout=5) as answer:
            found = json.load(answer)["aliveworkers"]
        assert found >= least, f"{found} workers of {least}"


@contextmanager
def standalone(folder: Path, private: Sequence[Sequence[Path]] = ((), ())) -> Iterator[Standalone]:
    """Run a cluster during the block.

    Args:
        folder: An empty folder for everything that its processes write.
        private: For each worker, the folders over which it mounts a private file system.
    """
    port, web_port = free_ports(2)
    with ExitStack() as stack:
        url = f"spark://{HOST}:{port}"
        cluster = Standalone(url=url, web_port=web_port, folder=folder, private=private, stack=stack)
        command = [*environment(), str(SPARK_CLASS), "org.apache.spark.deploy.master.Master"]
        command += ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
        stack.enter_context(
            serving(command, lambda: cluster.check_workers(0), folder / "master.log", seconds=START_SECONDS)
        )
        for number in range(len(private)):
            cluster.start_worker(number, number + 1)
        yield cluster


def environment() -> list[str]:
    """Return the start of a command line that runs a command without the driver's environment variables."""
    java = shutil.which("java")
    assert java is not None
    kept = {"PATH": f"{Path(java).parent}:/usr/bin:/bin", "SPARK_HOME": str(SPARK_HOME)}
    kept |= {name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ}
    kept["SPARK_DAEMON_MEMORY"], kept["SPARK_DAEMON_JAVA_OPTS"] = "256m", DAEMON_OPTIONS
    return ["env", "-i", *(f"{name}={value}" for name, value in kept.items())]


def mounted(command: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """Wrap a command so that it sees an empty private file system in place of each of these folders."""
    if not folders:
        return list(command)
    script = " && ".join([f"mount -t tmpfs tmpfs '{folder}'" for folder in folders] + ['exec "$@"'])
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *rights, "bash", "-c", script, "bash", *command]


def command_lines() -> Iterator[list[str]]:
    """Yield the arguments of the command line of each process on this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_text().split("\0")
        except OSError:
            continue  # the process has ended
