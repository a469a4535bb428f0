"""SQLMesh in one process with RowDelta: a project that is planned, changed and planned again."""

import shutil
import subprocess
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dml.catalog import list_views, load
from tests.tools.conftest import TOOL_SECONDS, block
from tests.tools.environment import beside, tools_environment

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PROJECT = Path(__file__).with_name("sqlmesh_project")
SQLMESH = "sqlmesh==0.236.4"
LATER = """\
id,customer,amount,day
1,ann,11.5,2024-01-01
2,bob,20.0,2024-01-02
4,cat,7.0,2024-01-03
"""


@pytest.fixture
def run(tmp_path: Path, spark_conf: Path) -> Callable[..., str]:
    """Runs a command of SQLMesh in a copy of the project."""
    python = beside(tmp_path / "both", tools_environment(tmp_path / "venv", SQLMESH))
    folder = tmp_path / "project"
    shutil.copytree(PROJECT, folder)
    (folder / "config.py").write_text(block('"""config.py: SQLMesh'))
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "SPARK_CONF_DIR": str(spark_conf),
        "SQLMESH__DISABLE_ANONYMIZED_ANALYTICS": "true",
    }

    def command(*arguments: str) -> str:
        outcome = subprocess.run(
            [str(python), "-c", "from sqlmesh.cli.main import cli; cli()", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_SECONDS,
        )
        assert outcome.returncode == 0, outcome.stdout[-4000:] + outcome.stderr[-4000:]
        return outcome.stdout

    return command


def rows(warehouse: Path, model: str, *columns: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each of a model's tables, which have its name and a fingerprint."""
    catalog = load("lake", str(warehouse))
    tables = [name for name in catalog.list_tables("sqlmesh__shop") if name[-1].startswith(f"shop__{model}__")]
    found = (catalog.load_table(name).scan().to_arrow().to_pylist() for name in tables)
    return [sorted((tuple(row[column] for column in columns) for row in one), key=repr) for one in found]


def test_a_project_is_planned_twice(run: Callable[..., str], tmp_path: Path) -> None:
    """Each kind of model has the rows that it should, after the first plan and after changes of the seed."""
    warehouse = tmp_path / "project" / "warehouse"
    run("plan", "--auto-apply", "--no-prompts")
    first, second, third = (date(2024, 1, day) for day in (1, 2, 3))
    assert rows(warehouse, "orders_by_day", "id", "day") == [[(1, first), (2, second), (3, second)]]
    assert rows(warehouse, "latest_orders", "customer", "last_day", "orders") == [
        [("ann", second, 2), ("bob", second, 1)]
    ]
    assert rows(warehouse, "totals", "customer", "total") == [[("ann", 15.75), ("bob", 20.0)]]
    assert rows(warehouse, "order_history", "id", "amount", "valid_to") == [
        [(1, 10.5, None), (2, 20.0, None), (3, 5.25, None)]
    ]
    assert ("shop", "customers") in list_views(load("lake", str(warehouse)), ("shop",))
    (tmp_path / "project" / "seeds" / "raw_orders.csv").write_text(LATER)
    run("plan", "--auto-apply", "--no-prompts")
    assert [(1, first), (2, second), (4, third)] in rows(warehouse, "orders_by_day", "id", "day")
    assert [("ann", 11.5), ("bob", 20.0), ("cat", 7.0)] in rows(warehouse, "totals", "customer", "total")
    shown = run("fetchdf", "SELECT customer FROM shop.customers ORDER BY customer")
    assert [name for name in ("ann", "bob", "cat") if name in shown] == ["ann", "bob", "cat"]
