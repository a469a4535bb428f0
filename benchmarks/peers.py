"""The engines of named cases: RowDelta, delta-rs, and engines behind a program: Iceberg's JAR and Sail."""

import argparse
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import deltalake

from benchmarks.cases import Size
from benchmarks.runs import Bench
from dml import Result

__all__ = ["DeltaRs", "Engine", "PeerError", "Program", "RowDelta", "add_peer_options", "start_programs"]

PROGRAMS = {"Iceberg Java": "java", "Sail": "sail"}
"""The option that has the command, by engine."""


class PeerError(RuntimeError):
    """A peer failed to run a statement."""


class Engine(Protocol):
    """Runs the statement of a case. `prepare` and `drop` are not timed."""

    def prepare(self, size: Size) -> None:
        """Create the table."""

    def run(self, size: Size) -> Any:
        """Run the statement; return the number of spliced files, or None."""

    def drop(self) -> None:
        """Drop the table."""


class RowDelta:
    """RowDelta, with some table properties."""

    def __init__(self, lake: Any, properties: dict[str, str]) -> None:
        self._lake = lake
        self._properties = properties

    def prepare(self, size: Size) -> None:
        self._lake.sql(create("bench.t", size, self._properties))

    def run(self, size: Size) -> Any:
        found = self._lake.sql(size.statement.format(table="bench.t"))
        if not isinstance(found, Result):
            found.collect()
            return None
        return found.data_files_spliced

    def drop(self) -> None:
        self._lake.sql("DROP TABLE bench.t PURGE")


def create(table: str, size: Size, properties: dict[str, str]) -> str:
    """Return a statement that creates a table with its rows."""
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in {**size.properties, **properties}.items())
    tail = f"TBLPROPERTIES ({listed}) " if listed else ""
    return f"CREATE TABLE {table} USING iceberg {tail}AS {size.rows}"


class Program:
    """An engine behind a program that reads JSON lines `{"sql": "..."}` and answers each with one.

    The first line that the program prints has its versions in `hello`. Its catalog is `c`. Its tables lie in the
    warehouse as those of a Hadoop catalog do.

    Args:
        command: The program; the folder of the warehouse is appended.
        folder: The warehouse.
    """

    def __init__(self, command: str, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [*shlex.split(command), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.hello: dict[str, Any] = self._answer().get("hello", {})
        self.sql("CREATE NAMESPACE IF NOT EXISTS c.bench")

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the program has ended"}
        if "error" in answer:
            raise PeerError(f"{answer['error']}: {answer.get('message', '')}")
        return answer

    def sql(self, text: str) -> None:
        """Run a statement."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"sql": text}) + "\n")
        self._process.stdin.flush()
        self._answer()

    def metadata_location(self, table: str) -> str:
        """Return the current metadata file of a table in `c.bench`."""
        metadata = self._folder / "bench" / table / "metadata"
        return str(metadata / f"v{(metadata / 'version-hint.text').read_text().strip()}.metadata.json")

    def prepare(self, size: Size) -> None:
        self.sql(create("c.bench.t", size, {}))

    def run(self, size: Size) -> Any:
        self.sql(size.statement.format(table="c.bench.t"))

    def drop(self, table: str = "t") -> None:
        """Drop a table. Sail keeps the files of a table that it drops."""
        self.sql(f"DROP TABLE c.bench.{table} PURGE")
        shutil.rmtree(self._folder / "bench" / table, ignore_errors=True)

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def add_peer_options(parser: argparse.ArgumentParser, engines: Iterable[str] = PROGRAMS) -> None:
    """Add an option for the command of each engine's program; its default is an environment variable."""
    for engine in engines:
        option = PROGRAMS[engine]
        variable = f"ROWDELTA_BENCHMARK_{option.upper()}"
        described = f"command of a program that runs {engine}; default: ${variable}"
        parser.add_argument(f"--{option}", default=os.environ.get(variable), help=described)


@contextmanager
def start_programs(options: argparse.Namespace, bench: Bench) -> Iterator[dict[str, Program]]:
    """Start the programs that the options name, and end them afterwards."""
    with ExitStack() as stack:
        found: dict[str, Program] = {}
        for engine, option in PROGRAMS.items():
            if command := getattr(options, option):
                found[engine] = Program(command, bench.folder / option)
                stack.callback(found[engine].close)
                hello = found[engine].hello.items()
                bench.versions[engine] = ", ".join(f"{name} {what}" for name, what in hello if isinstance(what, str))
        yield found


class DeltaRs:
    """delta-rs, in process.

    Args:
        lake: Computes the rows.
        folder: For the table.
    """

    def __init__(self, lake: Any, folder: Path) -> None:
        self._lake = lake
        self._folder = folder

    def prepare(self, size: Size) -> None:
        rows = self._lake.spark.sql(size.rows).toArrow()
        step = -(-rows.num_rows // size.files)
        for start in range(0, rows.num_rows, step):
            deltalake.write_deltalake(str(self._folder), rows.slice(start, step), mode="append")

    def run(self, size: Size) -> Any:
        assert size.peer is not None
        size.peer(deltalake.DeltaTable(str(self._folder)))

    def drop(self) -> None:
        shutil.rmtree(self._folder)
