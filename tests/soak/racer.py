"""Run as a program: `racer.py TASK` deletes rows of one data file, one a commit, while others delete other rows of it.

There is no Spark here: what a statement does before its commit is left out, so that commits meet as often as they can.
"""

import json
import sys
import uuid
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from dml.catalog import load_table
from dml.catalog.loading import load
from dml.commit import RowDelta, commit
from dml.commit.changes import RowLevelChanges
from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.engine.writes import write_context
from dml.errors import CommitConflictError, CommitStateUnknownError
from dml.model.scan_task import FileDeletes
from dml.model.write_task import ChangedFile
from dml.options import Command
from dml.read.applied_deletes import DeleteLoader
from dml.scan.planner import plan_scan
from dml.write.delete_files import write_late_deletes
from tests.other_writers import set_properties
from tests.soak.start import wait_for_go

__all__ = ["KEY", "RaceTask"]

KEY = "soak.row"
IDENTIFIER = ("db", "race")
PROPERTY_CHANGE_EVERY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceTask:
    """What one process does.

    Attributes:
        number: Which one it is.
        catalog: The catalog's name.
        properties: The catalog's.
        rows: The rows to delete: their ids are their positions.
        log: Where it says what it does.
        go: A file; the first commit begins when it is there.
    """

    number: int
    catalog: str
    properties: dict[str, str]
    rows: list[int]
    log: str
    go: str

    def write(self, path: Path) -> None:
        """Write it for the program to read."""
        path.write_text(json.dumps(asdict(self)))


def run(task: RaceTask) -> None:
    """Delete all rows of a task."""
    catalog = load(task.catalog, **task.properties)

    def say(event: str, **facts: Any) -> None:
        with Path(task.log).open("a") as lines:
            lines.write(json.dumps({"event": event, **facts}) + "\n")

    say("ready")
    wait_for_go(task.go)
    for row in task.rows:
        if row % PROPERTY_CHANGE_EVERY == 0:
            try:
                set_properties(load_table(catalog, IDENTIFIER), {"soak.last": str(row)})
            except CommitConflictError as error:
                say("property not set", error=str(error))
        say("begin", row=row)
        outcome, facts = delete(load_table(catalog, IDENTIFIER), row)
        say("end", row=row, outcome=outcome, **facts)
    say("finished")


def delete(table: Table, row: int) -> tuple[str, dict[str, Any]]:
    """Delete a row as a merge-on-read DELETE does; what came of it."""
    action = row_delta(table, row)
    try:
        made = commit(table, action, summary={KEY: str(row)})
    except CommitStateUnknownError as error:
        return "unknown", {"error": str(error)}
    except CommitConflictError as error:
        for file in action.delete_files:
            table.io.delete(file.path)
        return "conflict", {"error": str(error), "attempts": error.context.get("attempts", 1)}
    return "done", {"attempts": made.attempts}


def row_delta(table: Table, row: int) -> RowDelta:
    """The commit of a DELETE that has read the table as it is now."""
    start = table.metadata.current_snapshot_id
    (file,) = plan_scan(table, start).tasks
    context = write_context(table, str(uuid.uuid4()))
    loader, write = DeleteLoader(table.schema(), context.io_properties), partial(write_late_deletes, context)
    old = file.position_deletes if file.deletion_vector is None else (file.deletion_vector,)
    mine = PositionDeleteIndex.from_positions([row])
    everything = loader.positions_in(file.path, old).union(mine) if old else mine
    none = encode(PositionDeleteIndex())
    changed = ChangedFile(
        path=file.path, rows_deleted=1, rows_updated=0, deleted=encode(mine), updated=none, observed=none
    )
    return RowDelta(
        command=Command.DELETE,
        delete_files=write(
            [FileDeletes(path=file.path, spec_id=file.spec_id, partition=file.partition, positions=everything)]
        ),
        rewritten_delete_files=frozenset(ref.key for ref in old),
        referenced_data_files=frozenset({file.path}),
        starting_snapshot_id=start,
        row_level=RowLevelChanges(
            changed={file.path: changed}, tasks={file.path: file}, loader=loader, write_deletes=write
        ),
    )


if __name__ == "__main__":
    run(RaceTask(**json.loads(Path(sys.argv[1]).read_text())))
