"""dbt-spark, by its `session` and its `thrift` method: a project that is built twice in a row, and its documentation.

The profiles and the program are those of the page.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dml.catalog import list_views, load
from tests.tools.conftest import TOOL_SECONDS, Thrift, block

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).with_name("project")
LATER = """\
id,customer,state,amount,day
2,bob,paid,20.0,2024-01-01
3,cat,paid,5.25,2024-01-02
4,dan,new,7.0,2024-01-03
"""


@dataclass(frozen=True, kw_only=True)
class Dbt:
    """dbt in a copy of the project.

    Attributes:
        folder: The copy.
        program: What runs dbt.
        environment: Its environment variables.
        warehouse: Where the tables are.
    """

    folder: Path
    program: Sequence[str]
    environment: dict[str, str]
    warehouse: Path

    def run(self, *arguments: str) -> None:
        """Run a command of dbt; every node of it has to succeed."""
        environment = {"PATH": "/usr/bin:/bin", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", **self.environment}
        outcome = subprocess.run(
            [*self.program, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_SECONDS,
        )
        assert outcome.returncode == 0, outcome.stdout[-6000:] + outcome.stderr[-3000:]
        results = json.loads((self.folder / "target" / "run_results.json").read_text())["results"]
        failed = [one["unique_id"] for one in results if one["status"] not in {"success", "pass"}]
        assert results, outcome.stdout
        assert not failed, outcome.stdout[-6000:]

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows of a table, by an Iceberg client that is none of ours."""
        found = load("lake", str(self.warehouse)).load_table(("analytics", name)).scan().to_arrow().to_pylist()
        return sorted((tuple(row[column] for column in columns) for row in found), key=repr)


def project(folder: Path, profile: str) -> Path:
    """A copy of the project, with a profile."""
    shutil.copytree(PROJECT, folder)
    (folder / "profiles.yml").write_text(profile)
    return folder


@pytest.fixture
def session_dbt(dbt_session_python: Path, spark_conf: Path, tmp_path: Path) -> Dbt:
    """The tool in the process that has RowDelta."""
    folder = project(tmp_path / "project", block("# profiles.yml: dbt and Spark in one process"))
    (folder / "run_dbt.py").write_text(block('"""Run dbt on RowDelta'))
    return Dbt(
        folder=folder,
        program=[str(dbt_session_python), "run_dbt.py"],
        environment={"SPARK_CONF_DIR": str(spark_conf)},
        warehouse=folder / "warehouse",
    )


@pytest.fixture
def thrift_dbt(dbt_python: Path, thrift: Thrift, tmp_path: Path) -> Dbt:
    """The tool as a client of the server."""
    profile = block("# profiles.yml: dbt as a client of dml serve").replace("10000", str(thrift.port))
    folder = project(tmp_path / "project", profile.replace("poll_interval: 1", "poll_interval: 0"))
    return Dbt(folder=folder, program=[str(dbt_python.with_name("dbt"))], environment={}, warehouse=thrift.warehouse)


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["session", "thrift"])
def test_a_project_is_built_twice_in_a_row(method: str, request: pytest.FixtureRequest) -> None:
    """Each materialization and strategy has the rows that it should, after the first run and after changes."""
    dbt: Dbt = request.getfixturevalue(f"{method}_dbt")
    dbt.run("build")
    assert dbt.rows("order_log", "id", "state") == [(1, "new"), (2, "new"), (3, "paid")]
    assert dbt.rows("totals", "state", "orders", "amount") == [("new", 2, 30.5), ("paid", 1, 5.25)]
    assert dbt.rows("order_history", "id", "state", "dbt_valid_to") == [
        (1, "new", None),
        (2, "new", None),
        (3, "paid", None),
    ]
    (dbt.folder / "seeds" / "raw_orders.csv").write_text(LATER)
    dbt.run("build", "--vars", "{with_day: true}")
    first, second, third = (date(2024, 1, day) for day in (1, 2, 3))
    assert dbt.rows("raw_orders", "id") == [(2,), (3,), (4,)]
    assert dbt.rows("order_log", "id", "state") == [(1, "new"), (2, "new"), (3, "paid"), (4, "new")]
    assert dbt.rows("orders", "id", "state", "day") == [
        (1, "new", None),
        (2, "paid", first),
        (3, "paid", second),
        (4, "new", third),
    ]
    assert dbt.rows("orders_by_day", "id", "day") == [(2, first), (3, second), (4, third)]
    assert dbt.rows("totals", "state", "orders", "amount") == [("new", 2, 17.5), ("paid", 2, 25.25)]
    history = dbt.rows("order_history", "id", "state", "dbt_valid_to")
    assert [(number, state, ended is None) for number, state, ended in history] == [
        (1, "new", False),
        (2, "new", False),
        (2, "paid", True),
        (3, "paid", True),
        (4, "new", True),
    ]
    assert list_views(load("lake", str(dbt.warehouse)), ("analytics",)) == [("analytics", "paid_orders")]
    assert list_views(load("lake", str(dbt.warehouse)), ("default",)) == []
    dbt.run("docs", "generate")
    documented = json.loads((dbt.folder / "target" / "catalog.json").read_text())
    assert documented["errors"] is None
    nodes = documented["nodes"]
    tables = {"raw_orders", "order_log", "orders", "orders_by_day", "totals", "order_history"}
    assert {name.rpartition(".")[2] for name in nodes} == tables | {"paid_orders"}
    assert list(nodes["model.shop.totals"]["columns"]) == ["state", "orders", "amount"]
    assert nodes["model.shop.paid_orders"]["metadata"]["type"] == "view"
    totals = load("lake", str(dbt.warehouse)).load_table(("analytics", "totals"))
    assert totals.properties["comment"].endswith("what they're worth")
    assert totals.schema().find_field("state").doc == "Of the orders, as it's now"
