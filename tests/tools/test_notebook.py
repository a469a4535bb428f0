"""The notebook shows what it says that it shows: executed anew, its outputs are those that are in it."""

import itertools
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools.conftest import TOOL_SECONDS

pytestmark = pytest.mark.spark

JAVA = {"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}
NOTEBOOK = Path(__file__).parents[2] / "docs" / "tour.ipynb"
PROGRAM = Path(__file__).with_name("execute.py")
# What differs from run to run: times, ids, places.
VARIES = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|/tmp/[^\s'\"<]+|\d{10,}|"
    r"seconds: [^)]*\)|\d{1,3}(,\d{3})+"
)


def shown(path: Path) -> list[list[str]]:
    """The outputs of a notebook's cells. What a cell prints may come in several pieces, cut by time: they are one."""
    cells = json.loads(path.read_text())["cells"]
    return [
        [
            plain("".join(map(content, outputs)))
            for _, outputs in itertools.groupby(cell["outputs"], key=lambda output: output["output_type"])
        ]
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def content(output: dict[str, Any]) -> str:
    return "".join(output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue", ""))


def plain(text: str) -> str:
    """A text without what varies, and without the rulers whose width varies with it."""
    return " ".join(re.sub(r"[-+|]{2,}|\|", " ", VARIES.sub("*", text)).split())


def test_the_notebook_shows_what_it_shows(notebook_python: Path, spark_conf: Path, tmp_path: Path) -> None:
    """In a kernel of its own, in an empty folder."""
    executed = tmp_path / "tour.ipynb"
    outcome = subprocess.run(
        [str(notebook_python), str(PROGRAM), str(NOTEBOOK), str(executed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TOOL_SECONDS,
        env={"PATH": "/usr/bin:/bin", "SPARK_CONF_DIR": str(spark_conf), "HOME": str(tmp_path), **JAVA},
    )
    assert outcome.returncode == 0, outcome.stderr[-4000:]
    assert shown(executed) == shown(NOTEBOOK)
