"""Run as a program: `client.py TASK` is one of the writers of a soak; TASK is the JSON file that a `ClientTask` makes.

It says in its log what it begins and what came of it, a line each, so that this is known also if it is killed. Started
again, it goes on where the log ends: first with the statement that it had begun, under the same idempotency key.
"""

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dml
from dml.commit import publish
from tests.soak.start import wait_for_go
from tests.soak.transfers import Transfer, mode_change

__all__ = ["UPGRADED", "Client", "ClientTask"]

UPGRADED = "upgraded"
"""A table whose name ends so is made one of version 3 while statements run."""
UPGRADE = "ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')"
MODE_CHANGES = 0.25
"""How often a transfer comes after a change of mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTask:
    """What one process does.

    Attributes:
        number: Which one it is.
        seed: Of all random choices.
        settings: Spark settings: of a server to use, or of an own one.
        catalogs: Properties of the catalogs, by name.
        create: Statements that make the tables, before anybody begins.
        tables: Full names of the tables, worked on one after the other.
        statements: How many transfers on each.
        log: Where it says what it does.
        go: A file; the first transfer begins when it is there.
    """

    number: int
    seed: int
    settings: dict[str, str]
    catalogs: dict[str, dict[str, str]]
    create: list[str]
    tables: list[str]
    statements: int
    log: str
    go: str

    def write(self, path: Path) -> None:
        """Write it for the program to read."""
        path.write_text(json.dumps(asdict(self)))


class Client:
    """A session, and the log.

    Args:
        task: What to do.
    """

    def __init__(self, task: ClientTask) -> None:
        self.task = task
        self.log = Path(task.log)
        self.commits = 0
        (name, properties), *others = task.catalogs.items()
        self.lake = dml.connect(catalog=name, progress=False, settings=task.settings, **properties)
        for other, of_other in others:
            self.lake.add_catalog(other, **of_other)
        self.count_commits()

    def count_commits(self) -> None:
        """Count how often the catalog is asked to commit a snapshot."""
        original = publish.commit_table

        def commit_table(*args: Any, **kwargs: Any) -> Any:
            self.commits += 1
            return original(*args, **kwargs)

        publish.commit_table = commit_table

    def say(self, event: str, **facts: Any) -> None:
        """Add a line to the log."""
        with self.log.open("a") as lines:
            lines.write(json.dumps({"event": event, "client": self.task.number, "at": time.time(), **facts}) + "\n")

    def ended(self) -> set[str]:
        """Keys of the statements that the log has an end of."""
        lines = (json.loads(line) for line in self.log.read_text().splitlines()) if self.log.exists() else ()
        return {line["key"] for line in lines if line["event"] == "end"}

    def run(self) -> None:
        """All that is left to do."""
        ended = self.ended()
        for statement in self.task.create:
            self.lake.sql(statement)
        self.say("ready")
        wait_for_go(self.task.go)
        for table, key, draw in self.plan():
            change = mode_change(table, draw) if draw.random() < MODE_CHANGES else None
            if self.upgrades(table, key):
                change = UPGRADE.format(table=table)
            transfer = Transfer.chosen(key, draw)
            if key not in ended:
                if change is not None:
                    self.change_table(change)
                self.transfer(table, transfer)
        self.say("finished")

    def plan(self) -> Iterator[tuple[str, str, random.Random]]:
        """Table, key and random numbers of each transfer: the same after a restart."""
        task = self.task
        for table in task.tables:
            for number in range(task.statements):
                key = f"{table}-{task.seed}-{task.number}-{number}"
                yield table, key, random.Random(key)

    def upgrades(self, table: str, key: str) -> bool:
        """Whether the table is to be upgraded before a transfer: by the first writer, half way."""
        half = self.task.statements // 2
        return table.endswith(UPGRADED) and self.task.number == 0 and key.endswith(f"-{half}")

    def change_table(self, statement: str) -> None:
        """Others change the table's metadata at the same time: a lost race is no fault."""
        try:
            self.lake.sql(statement)
        except dml.CommitConflictError as error:
            self.say("table not changed", error=str(error))

    def transfer(self, table: str, transfer: Transfer) -> None:
        """Run one, and say what came of it."""
        self.say("begin", table=table, key=transfer.key, transfer=transfer.facts())
        self.commits = 0
        started = time.perf_counter()
        facts: dict[str, Any] = {}
        try:
            result = self.lake.sql(transfer.statement(table), idempotency_key=transfer.key)
            outcome = "done"
            facts = {"snapshot_id": result.snapshot_id, "mode": result.mode, "replayed": result.replayed}
        except (dml.CommitConflictError, dml.ValidationFailedError) as error:
            outcome, facts = "conflict", {"error": f"{type(error).__name__}: {error}"}
        except dml.CommitStateUnknownError as error:
            outcome, facts = "unknown", {"error": str(error)}
        except dml.DmlError as error:
            outcome, facts = "error", {"error": f"{type(error).__name__}: {error}"}
        seconds = time.perf_counter() - started
        self.say("end", table=table, key=transfer.key, outcome=outcome, commits=self.commits, seconds=seconds, **facts)


if __name__ == "__main__":
    Client(ClientTask(**json.loads(Path(sys.argv[1]).read_text()))).run()
