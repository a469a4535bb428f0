"""The commands of docs/deploy.md, run in one shell, as a reader would paste them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.packed import new_environment
from tests.docs.examples import commands_of, matches

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
MARK = "== the end of a block"
SECONDS = 1200


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    """`job` stands for the environment that the page installs; the ports are those of the page."""
    new_environment(tmp_path / "job", spark=True, tools=("venv-pack",))
    commands = commands_of(PAGE)
    assert len(commands) > 4
    script = tmp_path / "page.sh"
    ends = "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"  # also if a command of the page fails
    script.write_text(ends + "".join(f"{command.text}\necho '{MARK}'\n" for command in commands))
    java = shutil.which("java")
    assert java is not None
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    outcome = subprocess.run(
        ["bash", "-eu", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        cwd=tmp_path,
        env={**kept, "PATH": f"{Path(java).parent}:/usr/bin:/bin"},
    )
    logs = "".join(f"\n{log.name}: {log.read_text()[-2000:]}" for log in tmp_path.glob("*.log"))
    assert outcome.returncode == 0, f"{outcome.stdout[-2000:]}\n{outcome.stderr[-4000:]}{logs}"
    for command, printed in zip(commands, outcome.stdout.split(MARK), strict=False):
        if command.shown is not None:
            assert matches(command.shown, printed), f"line {command.line} shows\n{printed}"
