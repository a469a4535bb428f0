"""The environments of the tools, and a server for those that have no Spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.examples import FENCE
from tests.serve.conftest import QUIET, START_SECONDS, command, said
from tests.services.server import free_ports, serving
from tests.tools.environment import beside, tools_environment

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
# From 1.12 on dbt-core needs a package that PyPI has without its binary, which is fetched from elsewhere.
DBT = ("dbt-core==1.11.16", "dbt-spark[PyHive]==1.11.0")
NOTEBOOK = ("ipykernel==7.4.0", "nbclient==0.11.0")
TOOL_SECONDS = 400


@dataclass(frozen=True, kw_only=True)
class Thrift:
    """A server whose clients are in the catalog from the beginning.

    Attributes:
        port: Where it listens.
        warehouse: Where its tables are.
        log: Its output.
    """

    port: int
    warehouse: Path
    log: Path


def block(beginning: str) -> str:
    """The block of the page that begins so."""
    found = [found["body"] for found in FENCE.finditer(PAGE.read_text()) if found["body"].startswith(beginning)]
    assert len(found) == 1, beginning
    return found[0]


@pytest.fixture(scope="session")
def dbt_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of dbt, which has no RowDelta and no Spark."""
    return tools_environment(tmp_path_factory.mktemp("dbt") / "venv", *DBT)


@pytest.fixture(scope="session")
def dbt_session_python(dbt_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of dbt with RowDelta in it."""
    return beside(tmp_path_factory.mktemp("session") / "venv", dbt_python)


@pytest.fixture(scope="session")
def notebook_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of notebooks, with RowDelta in it."""
    folder = tmp_path_factory.mktemp("notebook")
    return beside(folder / "both", tools_environment(folder / "venv", *NOTEBOOK))


@pytest.fixture(scope="session")
def spark_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of settings for programs that start a Spark as users do: small and quiet."""
    folder = tmp_path_factory.mktemp("conf")
    settings = {
        "spark.driver.memory": "1500m",
        "spark.driver.extraJavaOptions": QUIET,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return folder


@pytest.fixture(scope="session")
def thrift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Thrift]:
    """The server, started as the page says."""
    folder = tmp_path_factory.mktemp("thrift")
    (port,) = free_ports(1)
    log = folder / "serve.log"
    started = command(folder, "--port", "0", "--thrift", str(port))
    with serving(started, said(log, r"\"(jdbc:[^\"]+)\""), log, seconds=START_SECONDS):
        yield Thrift(port=port, warehouse=folder / "lake", log=log)
