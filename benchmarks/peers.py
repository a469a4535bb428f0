"""The engines of named cases: RowDelta, delta-rs, and Iceberg's Java library where somebody has it. One table each."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Protocol

import deltalake

from benchmarks.cases import Size
from dml import Result

__all__ = ["DeltaRs", "Engine", "Java", "RowDelta"]


class Engine(Protocol):
    """Runs the statement of a case; preparing and dropping its table are not timed."""

    def prepare(self, size: Size) -> None:
        """Makes the table."""

    def run(self, size: Size) -> Any:
        """Runs the statement; gives what there is to say of it."""

    def drop(self) -> None:
        """Takes the table away."""


class RowDelta:
    """RowDelta, with some table properties.

    Args:
        lake: The session.
        properties: Of every table.
    """

    def __init__(self, lake: Any, properties: dict[str, str]) -> None:
        self._lake = lake
        self._properties = properties

    def prepare(self, size: Size) -> None:
        """Makes the table."""
        self._lake.sql(create("bench.t", size, self._properties))

    def run(self, size: Size) -> Any:
        """Runs the statement; gives how many files were spliced."""
        found = self._lake.sql(size.statement.format(table="bench.t"))
        if not isinstance(found, Result):
            found.collect()
            return None
        return found.data_files_spliced

    def drop(self) -> None:
        """Takes the table away."""
        self._lake.sql("DROP TABLE bench.t PURGE")


def create(table: str, size: Size, properties: dict[str, str]) -> str:
    """A statement that makes a table with its rows."""
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in {**size.properties, **properties}.items())
    tail = f"TBLPROPERTIES ({listed}) " if listed else ""
    return f"CREATE TABLE {table} USING iceberg {tail}AS {size.rows}"


class Java:
    """Iceberg's JAR, behind a program that reads JSON lines `{"sql": "..."}` and answers each with one.

    Args:
        command: The program; the folder of its warehouse is added. Its catalog is `c`.
        folder: For the warehouse.
    """

    def __init__(self, command: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [*shlex.split(command), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()
        self.sql("CREATE NAMESPACE IF NOT EXISTS c.bench")

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the program has ended"}
        if "error" in answer:
            raise RuntimeError(f"{answer['error']}: {answer.get('message', '')}")
        return answer

    def sql(self, text: str) -> None:
        """Runs a statement."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"sql": text}) + "\n")
        self._process.stdin.flush()
        self._answer()

    def prepare(self, size: Size) -> None:
        """Makes the table."""
        self.sql(create("c.bench.t", size, {}))

    def run(self, size: Size) -> Any:
        """Runs the statement."""
        self.sql(size.statement.format(table="c.bench.t"))

    def drop(self) -> None:
        """Takes the table away."""
        self.sql("DROP TABLE c.bench.t PURGE")

    def close(self) -> None:
        """Ends the program."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class DeltaRs:
    """delta-rs, in process.

    Args:
        lake: Makes the rows.
        folder: For the table.
    """

    def __init__(self, lake: Any, folder: Path) -> None:
        self._lake = lake
        self._folder = folder

    def prepare(self, size: Size) -> None:
        """Makes the table."""
        rows = self._lake.spark.sql(size.rows).toArrow()
        step = -(-rows.num_rows // size.files)
        for start in range(0, rows.num_rows, step):
            deltalake.write_deltalake(str(self._folder), rows.slice(start, step), mode="append")

    def run(self, size: Size) -> Any:
        """Runs the statement."""
        assert size.peer is not None
        size.peer(deltalake.DeltaTable(str(self._folder)))

    def drop(self) -> None:
        """Takes the table away."""
        shutil.rmtree(self._folder)
