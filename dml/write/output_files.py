"""Create new files: their names, locations and streams, and a record of them for an abort. Worker.

Input: the write's context and the task's identity. Output: open streams for new files. The specification does not name
files. The names follow Java's `OutputFileFactory`, so that tools that rely on its pattern find them.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider

from dml import limits
from dml.errors import storage_failure
from dml.files.file_io import delete_files, file_io
from dml.model.transforms import partition_path
from dml.model.write_task import WriteContext
from dml.options import WRITE_DATA_PATH

__all__ = ["DRIVER_PARTITION", "OutputFile", "OutputFileFactory", "TaskIdentity", "current_task", "write_errors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """One attempt of one task.

    Attributes:
        partition_id: The Spark partition.
        task_attempt_id: Unique among all attempts of all tasks of the application.
        attempt_number: The number of earlier attempts of the task.
    """

    partition_id: int = 0
    task_attempt_id: int = 0
    attempt_number: int = 0


DRIVER_PARTITION: Final = 2**31 - 1
"""The partition of what the driver writes. Spark has none with this number, so that names of files differ."""

DRIVER_WRITES: Final = itertools.count()


def current_task() -> TaskIdentity:
    """Return the task attempt that runs this code; outside Spark's tasks, a new one of the driver."""
    # Writers must not load PySpark: they run without it in tests and other engines. In a Spark worker, PySpark's main
    # loop is loaded before RowDelta, so that the module is already in `sys.modules`.
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    if context is None:
        return TaskIdentity(partition_id=DRIVER_PARTITION, task_attempt_id=next(DRIVER_WRITES))
    return TaskIdentity(
        partition_id=context.partitionId(),
        task_attempt_id=context.taskAttemptId(),
        attempt_number=context.attemptNumber(),
    )


EXTENSIONS = {"parquet": "parquet", "orc": "orc", "avro": "avro", "puffin": "puffin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """An open file.

    Attributes:
        location: The full location.
        stream: Receives the bytes; the writer closes it.
    """

    location: str
    stream: pa.NativeFile


@dataclass(frozen=True, slots=True)
class PartitionPath:
    """The part of a partition key that PyIceberg's location providers use."""

    path: str

    def to_path(self) -> str:
        """Return the folder of the partition."""
        return self.path


@contextmanager
def write_errors(location: str, io_properties: Mapping[str, str] | None = None) -> Iterator[None]:
    """Convert storage exceptions inside the block into an error that names the file.

    Args:
        location: The file.
        io_properties: The properties of the FileIO that writes it, if the block opens it.

    Raises:
        ExecutionError: The storage failed.
    """
    try:
        yield
    except OSError as error:
        raise storage_failure("Writing the file", location, error, io_properties) from error


class OutputFileFactory:
    """Open the files of one task, and record them for an abort.

    Args:
        context: The write.
        task: The attempt. It is part of each file name, so that the names of attempts differ.

    Attributes:
        task: The attempt.
    """

    def __init__(self, context: WriteContext, task: TaskIdentity) -> None:
        self.task = task
        self._context = context
        self._prefix = f"{task.partition_id:05d}-{task.task_attempt_id}-{context.query_id}"
        self._count = 0
        self._created: list[str] = []
        self._streams: dict[str, pa.NativeFile] = {}
        properties = {**context.properties, WRITE_DATA_PATH: context.data_location}
        self._locations = load_location_provider(context.table_location, properties)
        self._schema = Schema.model_validate_json(context.schema_json)
        self._specs = {spec_id: PartitionSpec.model_validate_json(text) for spec_id, text in context.specs_json}
        self.partition_path: Callable[[int, tuple[Any, ...]], str] = lru_cache(maxsize=limits.CACHED_PARTITION_PATHS)(
            self._partition_path
        )

    @property
    def created(self) -> tuple[str, ...]:
        """The locations of all files that were created."""
        return tuple(self._created)

    def open(
        self, file_format: str, spec_id: int = 0, partition: tuple[Any, ...] = (), *, deletes: bool = False
    ) -> OutputFile:
        """Create a new file.

        Args:
            file_format: The format in lower case, for the extension.
            spec_id: The spec of the partition.
            partition: The partition tuple, in internal form; empty puts the file into the root of the data files, and
                so does a spec that is newer than the write.
            deletes: True for a delete file.
        """
        self._count += 1
        suffix = "-deletes" if deletes else ""
        name = f"{self._prefix}-{self._count:05d}{suffix}.{EXTENSIONS[file_format]}"
        has_folder = bool(partition) and spec_id in self._specs
        key = PartitionPath(self.partition_path(spec_id, partition)) if has_folder else None
        location = self._locations.new_data_location(name, cast("PartitionKey | None", key))
        self._created.append(location)
        with write_errors(location, self._context.io_properties):
            # The name is unique, so that checking for an existing file would only cost a request.
            stream = self._io(location).new_output(location).create(overwrite=True)
        native = stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="w")
        self._streams[location] = native
        return OutputFile(location=location, stream=native)

    def close(self, file: OutputFile) -> None:
        """Close a complete file."""
        with write_errors(file.location):
            file.stream.close()
        self._streams.pop(file.location, None)

    def abort(self) -> tuple[str, ...]:
        """Close and delete every file, complete or not.

        Returns:
            The locations that could not be deleted.
        """
        for stream in self._streams.values():
            with suppress(Exception):  # a file that cannot be closed may still be deleted
                stream.close()
        self._streams.clear()
        created, self._created = self._created, []
        return tuple(left for location in created for left in delete_files(self._io(location), (location,)))

    def _io(self, location: str) -> FileIO:
        return file_io(self._context.io_properties, location)

    def _partition_path(self, spec_id: int, partition: tuple[Any, ...]) -> str:
        spec = self._specs[spec_id]
        return partition_path(spec, spec.partition_type(self._schema), partition)
