"""PyHive, a Thrift client in Python, in an environment of its own."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.examples import examples_of, matches
from tests.serve.conftest import CLIENT_SECONDS, Served
from tests.tools.environment import tools_environment

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
PYHIVE = ("PyHive[hive-pure-sasl]==0.7.0", "thrift<0.17")  # both as dbt-spark has them
ERRORS = """
from pyhive import exc, hive
cursor = hive.connect("localhost", port=10000).cursor()
for statement in (
    "DELETE FROM lake.shop.nothing",
    "SELECT * FROM lake.shop.nothing",
    "UPDATE lake.shop.refunds SET nothing = 1",
):
    try:
        cursor.execute(statement)
    except exc.OperationalError as error:
        print(" ".join(error.args[0].status.errorMessage.split()))
cursor.execute("SELECT 1")
print(cursor.fetchall())
"""


@pytest.fixture(scope="module")
def pyhive_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install PyHive alone: dbt includes it, but takes far longer to install."""
    return tools_environment(tmp_path_factory.mktemp("pyhive") / "venv", *PYHIVE)


def run(python: Path, served: Served, text: str) -> str:
    """Run a client program, and return its output."""
    outcome = subprocess.run(
        [str(python), "-c", text.replace("10000", served.jdbc_url.rpartition(":")[2])],
        capture_output=True,
        text=True,
        check=False,
        timeout=CLIENT_SECONDS,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    return outcome.stdout


def test_the_example_of_the_page_prints_its_output(pyhive_python: Path, served: Served) -> None:
    """It runs every kind of statement. Errors then name the problem, and the connection still works."""
    assert f"pip install '{PYHIVE[0].partition('==')[0]}'" in PAGE.read_text()
    (example,) = [example for example in examples_of(PAGE) if "pyhive" in example.text]
    assert example.shown is not None
    found = run(pyhive_python, served, example.text)
    assert matches(example.shown, found), found
    first, second, third, last = run(pyhive_python, served, ERRORS).splitlines()
    assert "There is no table 'lake.shop.nothing'" in first
    assert "lake.shop.nothing" in second
    assert "nothing" in third
    assert last == "[(1,)]"
