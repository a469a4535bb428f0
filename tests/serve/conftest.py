"""A server as users start it, and clients in an environment of their own."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dml.spark.launch import LOG_SETTINGS
from tests.class_archive import JVM_OPTIONS
from tests.conftest import part_settings
from tests.serve.environment import client_environment
from tests.services.server import free_ports, serving

CLIENT = Path(__file__).with_name("client.py")
CLIENT_SECONDS = 300
START_SECONDS = 180
QUIET = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} {JVM_OPTIONS}"


def without_java(text: str) -> str:
    """An error without the calls that Java was in."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("at "))


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server.

    Attributes:
        url: For Spark Connect.
        jdbc_url: For JDBC.
        log: Its output.
        lake: The folder of its catalog.
        python: A Python that has PySpark and no RowDelta.
    """

    url: str
    jdbc_url: str
    log: Path
    lake: Path
    python: Path

    def run(self, *parts: str, **environment: str) -> str:
        """Run parts of the client's program in one process; what it printed."""
        outcome = subprocess.run(
            [str(self.python), str(CLIENT), self.url, *parts],
            capture_output=True,
            text=True,
            check=False,
            timeout=CLIENT_SECONDS,
            env={"PATH": "/usr/bin:/bin", **environment},
        )
        assert outcome.returncode == 0, (
            without_java(outcome.stderr)[-4000:] + self.log.read_text(errors="replace")[-4000:]
        )
        return outcome.stdout.strip()


def command(warehouse: Path, *options: str) -> list[str]:
    """`dml serve`, small and quiet."""
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1500m",
        "spark.driver.extraJavaOptions": QUIET,
        "spark.local.dir": str(warehouse / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse / "spark"),
        **part_settings(),
    }
    confs = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    return [sys.executable, "-P", "-m", "dml", "--warehouse", str(warehouse / "lake"), "serve", *confs, *options]


def said(log: Path, pattern: str) -> Callable[[], str]:
    """What a server has said, as soon as it has."""

    def look() -> str:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is None:
            raise LookupError(f"it has not said {pattern}")
        return found[1]

    return look


@pytest.fixture(scope="session")
def client_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of the clients."""
    return client_environment(tmp_path_factory.mktemp("client") / "venv")


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, client_python: Path) -> Iterator[Served]:
    """A server of both kinds."""
    folder = tmp_path_factory.mktemp("served")
    (thrift,) = free_ports(1)
    log = folder / "serve.log"
    url, jdbc_url = said(log, r"\"(sc://[^\"]+)\""), said(log, r"\"(jdbc:[^\"]+)\"")
    started = command(folder, "--port", "0", "--thrift", str(thrift))
    with serving(started, jdbc_url, log, seconds=START_SECONDS):
        yield Served(url=url(), jdbc_url=jdbc_url(), log=log, lake=folder / "lake", python=client_python)
