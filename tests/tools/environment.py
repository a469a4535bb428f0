"""Virtual environments with tools as they come from PyPI."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

__all__ = ["beside", "tools_environment"]


def tools_environment(folder: Path, *requirements: str) -> Path:
    """Make one that has tools, and nothing of RowDelta.

    Args:
        folder: Where.
        *requirements: What pip installs.

    Returns:
        Its Python.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-P", "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    installed = subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", *requirements], capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr[-4000:]
    return python


def beside(folder: Path, tools: Path) -> Path:
    """Make one that has the tools of another, and RowDelta with PySpark as the tests have them.

    Args:
        folder: Where.
        tools: The other's Python. What both have is taken from there, as pip would choose it for the tools.

    Returns:
        Its Python.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (theirs,) = tools.parents[1].glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (packages / "both.pth").write_text(
        "".join(f"import site; site.addsitedir({str(one)!r})\n" for one in (theirs, ours))
    )
    return folder / "bin" / "python"
