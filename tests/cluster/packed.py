"""Build a virtual environment with the package and its dependencies from that of the tests, without downloads.

Files are linked, not copied. `spark.archives` takes an archive of the environment.
"""

import os
import shutil
import tarfile
import venv
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path

import pyspark

import dml
import dml.deletes
import dml.sqlparse
from tests.serve.environment import requirements_of

__all__ = ["new_environment", "packed_environment"]

SPARK = {"pyspark", "py4j"}
NOT_COPIED = shutil.ignore_patterns("__pycache__", "tests")


def packed_environment(folder: Path) -> Path:
    """Build an uncompressed archive of an environment without PySpark, because executors have their own."""
    made = new_environment(folder / "environment", spark=False)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        for path in made.iterdir():
            tar.add(path, arcname=path.name)
    return archive


def new_environment(folder: Path, *, spark: bool, tools: tuple[str, ...] = ()) -> Path:
    """Build an environment.

    Args:
        folder: Where to build it; the folder must not exist.
        spark: Whether to include PySpark.
        tools: More distributions to include, each with a program of the same name.

    Returns:
        The folder.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name, path in contents(tools):
        if spark or name not in SPARK:
            linked(path, packages / name)
    programs = {"dml": "from dml.cli import main"}
    for tool in tools:
        (entry,) = distribution(tool).entry_points.select(group="console_scripts", name=tool)
        programs[tool] = f"from {entry.module} import {entry.attr} as main"
    for name, line in programs.items():
        program = folder / "bin" / name
        program.write_text(f"#!{folder}/bin/python\nimport sys\n{line}\nsys.exit(main())\n")
        program.chmod(0o755)
    if spark:
        for script in ("spark-submit", "spark-class", "find-spark-home", "load-spark-env.sh"):
            shutil.copy2(Path(pyspark.__file__).parent / "bin" / script, folder / "bin" / script)
        shutil.copy2(Path(pyspark.__file__).parent / "find_spark_home.py", folder / "bin" / "find_spark_home.py")
    return folder


def contents(tools: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Yield the files and folders for site-packages, by their names there.

    The package comes from where it is imported: an editable installation has it in three places.
    """
    root = Path(str(dml.__file__)).parent
    for module, name in ((dml, "dml"), (dml.sqlparse, "dml/sqlparse"), (dml.deletes, "dml/deletes")):
        path = Path(str(module.__file__)).parent
        if path == root or not path.is_relative_to(root):
            yield name, path
    found = requirements_of("rowdelta", frozenset(), {})
    for tool in tools:
        requirements_of(tool, frozenset(), found)
    for key, one in found.items():
        for name in {file.parts[0] for file in one.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if key != "rowdelta" or name.endswith(".dist-info"):
                yield name, Path(str(one.locate_file(name)))


def linked(source: Path, target: Path) -> None:
    """Link a file, or all files of a folder; copy them if they are on another file system."""

    def link(one: str, other: str) -> None:
        with suppress(FileExistsError):
            try:
                os.link(one, other)
            except OSError:
                shutil.copy2(one, other)

    if source.is_dir():
        shutil.copytree(source, target, copy_function=link, ignore=NOT_COPIED, dirs_exist_ok=True)
    else:
        link(str(source), str(target))
