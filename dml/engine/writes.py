"""Writers as Spark jobs: run, collect what the tasks wrote, and clean up after a failure. Driver."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from dml.catalog.credentials import storage_properties
from dml.engine.abort import delete_late, delete_others, delete_uncommitted
from dml.engine.results import WriteOutcome
from dml.errors import CommitStateUnknownError, DmlError, ExecutionError
from dml.model.write_task import TaskCommit, WriteContext
from dml.options import WriteOptions
from dml.spark.interrupts import cancelled_on_interrupt

__all__ = ["run_writer", "write_context"]

TASK_COMMIT_SCHEMA = "task_commit binary"

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def write_context(
    table: Table,
    query_id: str,
    *,
    sorted_by_table_order: bool = False,
    overriding: Mapping[str, str] = MappingProxyType({}),
) -> WriteContext:
    """The target of a write, for its tasks.

    Args:
        table: The table.
        query_id: A UUID.
        sorted_by_table_order: Whether rows arrive in the table's sort order.
        overriding: Table properties for this write alone.

    Raises:
        AnalysisError: a property of the table has a value that it cannot have.
    """
    location = table.location().rstrip("/")
    properties = {str(key): str(value) for key, value in table.properties.items()} | dict(overriding)
    return WriteContext(
        query_id=query_id,
        format_version=table.format_version,
        schema_json=table.schema().model_dump_json(),
        specs_json=tuple((spec_id, spec.model_dump_json()) for spec_id, spec in table.specs().items()),
        default_spec_id=table.spec().spec_id,
        sort_order_json=table.sort_order().model_dump_json(),
        data_location=properties.get("write.data.path", f"{location}/data").rstrip("/"),
        table_location=location,
        properties=properties,
        io_properties=storage_properties(table.io.properties),
        options=WriteOptions.from_properties(properties),
        row_lineage=table.format_version >= 3,
        sorted_by_table_order=sorted_by_table_order,
    )


def run_writer(frame: DataFrame, function: ArrowFunction, table: Table, context: WriteContext) -> WriteOutcome:
    """Run the writers over the rows of a DataFrame.

    Args:
        frame: The rows, distributed and ordered as the writers want them.
        function: What each task runs: rows in, one `TaskCommit` out.
        table: The table.
        context: The write.

    Returns:
        What all tasks wrote.

    Raises:
        DmlError: the first failure that a task reported; the files of all tasks are deleted.
        PySparkException: Spark failed; the files of all tasks are deleted.
    """
    try:
        with cancelled_on_interrupt(frame.sparkSession):
            rows = frame.mapInArrow(function, TASK_COMMIT_SCHEMA).collect()
    except BaseException:  # a failure, or an interrupt: the job's other tasks are told to stop
        delete_uncommitted(table, context)
        delete_late(table, context)
        raise
    commits = [TaskCommit.from_bytes(bytes(row[0])) for row in rows]
    retried = any(commit.attempt_number for commit in commits)
    failure = next((commit.failure for commit in commits if commit.failure is not None), None)
    if failure is not None:
        delete_uncommitted(table, context, None if retried else new_paths(commits))
        raise failure
    if retried:
        delete_others(table, context, new_paths(commits))
    try:
        return WriteOutcome.of(commits)
    except ExecutionError:
        delete_uncommitted(table, context, new_paths(commits))
        raise


def new_paths(commits: Sequence[TaskCommit]) -> frozenset[str]:
    """All files that tasks wrote."""
    return frozenset(file.path for commit in commits for file in (*commit.data_files, *commit.delete_files))


class UncommittedFiles:
    """Deletes a write's files when the block is left by an error that says that nothing was committed.

    Only errors of ours say that. After an interrupt, or anything unforeseen, the commit may be live: files that nobody
    needs cost little, files that a snapshot needs are lost rows.

    Args:
        table: The table.
        context: The write.
        outcome: What was written.
    """

    def __init__(self, table: Table, context: WriteContext, outcome: WriteOutcome) -> None:
        self.table, self.context, self.outcome = table, context, outcome

    def __enter__(self) -> "UncommittedFiles":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, DmlError) and not isinstance(error, CommitStateUnknownError):
            delete_uncommitted(self.table, self.context, self.outcome.paths)
