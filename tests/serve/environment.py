"""A virtual environment that has PySpark and what its client needs, and nothing of RowDelta."""

import re
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

__all__ = ["client_environment"]


def client_environment(folder: Path) -> Path:
    """Make one.

    Args:
        folder: Where.

    Returns:
        Its Python.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for found in requirements_of("pyspark", frozenset({"connect"}), {}).values():
        for name in {file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            link = packages / name
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(name))))
    return folder / "bin" / "python"


def requirements_of(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    """A distribution and all that it needs, by normalized names."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return found
    found[key] = distribution(name)
    for text in found[key].requires or ():
        requirement = Requirement(text)
        needed = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in (*extras, "")
        )
        if needed:
            requirements_of(requirement.name, frozenset(requirement.extras), found)
    return found
