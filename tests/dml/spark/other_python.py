"""A Python for workers without the packages of the tests."""

import os
import sys
from pathlib import Path

__all__ = ["python_without_packages", "with_python_first"]


def python_without_packages(folder: Path, **environment: str) -> Path:
    """Create a `python3` of the driver's version that imports only from its PYTHONPATH, not from site-packages."""
    program = folder / "python3"
    exports = "".join(f"export {key}={value}\n" for key, value in environment.items())
    # Python looks for modules in its working folder first, and tests run in a folder that has the package.
    program.write_text(f'#!/bin/sh\n{exports}cd {folder}\nexec {os.path.realpath(sys.executable)} -S "$@"\n')
    program.chmod(0o755)
    return program


def with_python_first(folder: Path) -> dict[str, str]:
    """Return an environment whose PATH has such a `python3` first, and that sets no other Python."""
    python_without_packages(folder)
    naming = ("PYSPARK", "PYTHONPATH", "PYTHONHOME")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(naming)}
    return {**environment, "PATH": f"{folder}:{environment['PATH']}"}
