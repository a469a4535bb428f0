"""The engines of named cases: RowDelta, delta-rs, and engines behind a program: Iceberg's JAR and Sail."""

import argparse
import json
import os
import shlex
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import deltalake

from benchmarks.cases import Size, Variant
from benchmarks.datasets import properties_clause
from benchmarks.runs import Bench, run_sql
from dml import Result

__all__ = ["DeltaRs", "PeerError", "Program", "RowDelta", "SqlEngine", "add_peer_options", "start_programs"]

PROGRAMS = {"Iceberg Java": "java", "Sail": "sail"}
"""The option that has the command, by engine."""


class PeerError(RuntimeError):
    """A peer failed to run a statement."""


class SqlEngine(ABC):
    """Runs the statements of a case on its table. `prepare` and `drop` are not timed."""

    namespace: str
    system = "system"
    name = "t"
    variant = Variant()

    @property
    def table(self) -> str:
        return f"{self.namespace}.{self.name}"

    @abstractmethod
    def sql(self, text: str) -> Result | None:
        """Run a statement."""

    def prepare(self, size: Size) -> None:
        properties = properties_clause({**size.properties, **self.variant.properties})
        self.sql(f"CREATE TABLE {self.table} USING iceberg {properties} AS {size.rows}")
        for statement in size.before:
            self.sql(statement.format(table=self.table))

    def run(self, size: Size) -> Result | None:
        statement = self.variant.statement or size.statement
        return self.sql(statement.format(table=self.table, system=self.system))

    def drop(self) -> None:
        self.sql(f"DROP TABLE {self.table} PURGE")


class RowDelta(SqlEngine):
    """RowDelta, in this process."""

    namespace = "bench"

    def __init__(self, lake: Any, variant: Variant | None = None) -> None:
        self._lake = lake
        self.variant = variant or Variant()

    def sql(self, text: str) -> Result | None:
        return run_sql(self._lake, text)


class Program(SqlEngine):
    """An engine behind a program that reads JSON lines `{"sql": "..."}` and answers each with one.

    The first line that the program prints has its versions in `hello`. Its catalog is `c`, and stores tables in the
    warehouse like a Hadoop catalog.

    Args:
        command: The program; the folder of the warehouse is appended.
        folder: The warehouse.
    """

    namespace = "c.bench"
    system = "c.system"

    def __init__(self, command: str, folder: Path) -> None:
        self.folder = folder
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
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"sql": text}) + "\n")
        self._process.stdin.flush()
        self._answer()

    def metadata_location(self) -> str:
        """Return the current metadata file of the table."""
        metadata = self.folder / "bench" / self.name / "metadata"
        return str(metadata / f"v{(metadata / 'version-hint.text').read_text().strip()}.metadata.json")

    def drop(self) -> None:
        super().drop()
        shutil.rmtree(self.folder / "bench" / self.name, ignore_errors=True)  # Sail keeps the files of a dropped table

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
            if command := getattr(options, option, None):
                found[engine] = Program(command, bench.folder / option)
                stack.callback(found[engine].close)
                hello = found[engine].hello.items()
                bench.versions[engine] = ", ".join(f"{name} {what}" for name, what in hello if isinstance(what, str))
        yield found


class DeltaRs:
    """delta-rs, in this process.

    Args:
        lake: Computes the rows.
        folder: The folder of the table.
    """

    def __init__(self, lake: Any, folder: Path) -> None:
        self._lake = lake
        self._folder = folder

    def prepare(self, size: Size) -> None:
        rows = self._lake.spark.sql(size.rows).toArrow()
        step = -(-rows.num_rows // size.files)
        for start in range(0, rows.num_rows, step):
            deltalake.write_deltalake(str(self._folder), rows.slice(start, step), mode="append")

    def run(self, size: Size) -> None:
        assert size.peer is not None
        size.peer(deltalake.DeltaTable(str(self._folder)))

    def drop(self) -> None:
        shutil.rmtree(self._folder)
