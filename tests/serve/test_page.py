"""The examples of the page about the server, from the clients that they are for."""

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.examples import examples_of, matches
from tests.serve.conftest import CLIENT_SECONDS, Served
from tests.serve.test_clients import beeline

PAGE = Path(__file__).parents[2] / "docs" / "server.md"

pytestmark = pytest.mark.spark


def test_the_examples_of_the_page_do_what_it_says(served: Served, tmp_path: Path) -> None:
    """Python's in the client's environment, SQL's by beeline, in their order."""
    examples = examples_of(PAGE)
    assert [example.language for example in examples] == ["python", "sql"]
    assert all(first.line < second.line for first, second in pairwise(examples))
    for example in examples:
        if example.language == "python":
            program = tmp_path / "example.py"
            program.write_text(example.text.replace("sc://localhost:15002", served.url))
            outcome = subprocess.run(
                [str(served.python), str(program)],
                capture_output=True,
                text=True,
                check=False,
                timeout=CLIENT_SECONDS,
                env={"PATH": "/usr/bin:/bin"},
            )
            assert outcome.returncode == 0, outcome.stderr[-3000:]
            found = outcome.stdout
        else:
            rows, errors = beeline(served, example.text.replace("\n", " "))
            found = "\n".join(" ".join(row) for row in rows)
            assert found, errors
        assert example.shown is not None
        assert matches(example.shown, found), found
