"""The installed package and all that it needs but PySpark, in an archive as `spark.archives` takes it.

What venv-pack makes of a virtual environment, from the environment of the tests: nothing is downloaded.
"""

import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import dml
import dml.deletes
import dml.sqlparse
from tests.serve.environment import requirements_of

__all__ = ["packed_environment"]

LEFT_OUT = {"pyspark", "py4j", "rowdelta"}
"""Spark brings PySpark along; the package is taken from where it is imported, which an editable installation needs."""


def packed_environment(folder: Path) -> Path:
    """Pack the environment.

    Args:
        folder: An empty folder.

    Returns:
        The archive, not compressed.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder / "environment")
    (packages,) = (folder / "environment").glob("lib/python*/site-packages")
    inside = packages.relative_to(folder / "environment")
    archive = folder / "environment.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(folder / "environment", arcname=".")
        for name, path in contents():
            tar.add(path, arcname=str(inside / name), filter=without_caches)
    return archive


def contents() -> Iterator[tuple[str, Path]]:
    """What belongs into site-packages, by its name there."""
    for module, name in ((dml, "dml"), (dml.sqlparse, "dml/sqlparse"), (dml.deletes, "dml/deletes")):
        path = Path(str(module.__file__)).parent
        if name == "dml" or not path.is_relative_to(Path(str(dml.__file__)).parent):
            yield name, path
    for key, found in requirements_of("rowdelta", frozenset(), {}).items():
        if key not in LEFT_OUT:
            for name in {file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}}:
                yield name, Path(str(found.locate_file(name)))


def without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name or "/tests/" in entry.name else entry
