"""Names and places of new files, and which of them were created. Worker.

Input: the write's context and the task's identity. Output: open streams for new files. Spec: none names files; the
names follow Java's `OutputFileFactory`, so that tools that look for them find them.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider

from dml import limits
from dml.errors import storage_failure
from dml.files.deletion import delete_files
from dml.files.file_io import file_io
from dml.model.value_text import partition_path
from dml.model.write_task import WriteContext
from dml.options import WRITE_DATA_PATH

__all__ = ["OutputFile", "OutputFileFactory", "TaskIdentity", "current_task", "write_errors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """One attempt of one task.

    Attributes:
        partition_id: The Spark partition.
        task_attempt_id: Unique among all attempts of all tasks of the application.
        attempt_number: How often the task was tried before.
    """

    partition_id: int = 0
    task_attempt_id: int = 0
    attempt_number: int = 0


def current_task() -> TaskIdentity:
    """The attempt that runs this code; outside Spark the first attempt of task 0."""
    # Writers must not load PySpark: they run without it in tests and other engines. In a Spark worker the worker's own
    # main loop has loaded it before any of our code runs, so it is found here without an import.
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    if context is None:
        return TaskIdentity()
    return TaskIdentity(
        partition_id=context.partitionId(),
        task_attempt_id=context.taskAttemptId(),
        attempt_number=context.attemptNumber(),
    )


EXTENSIONS = {"parquet": "parquet", "orc": "orc", "avro": "avro", "puffin": "puffin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """A file that is being written.

    Attributes:
        location: Full location.
        stream: Where its bytes go; its writer closes it.
    """

    location: str
    stream: pa.NativeFile


@dataclass(frozen=True, slots=True)
class PartitionPath:
    """What PyIceberg's location providers ask of a partition key."""

    path: str

    def to_path(self) -> str:
        """The folder of the partition."""
        return self.path


@contextmanager
def write_errors(location: str, io_properties: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn exceptions of a storage inside the block into an error that names the file.

    Args:
        location: The file.
        io_properties: The properties of the FileIO that writes it, if the block opens it.

    Raises:
        ExecutionError: the storage failed.
    """
    try:
        yield
    except OSError as error:
        raise storage_failure("Writing the file", location, error, io_properties) from error


class OutputFileFactory:
    """Opens the files of one task, and remembers them for an abort.

    Args:
        context: The write.
        task: The attempt: part of each name, so that attempts never meet.

    Attributes:
        task: The same.
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
        """All locations at which a file was created."""
        return tuple(self._created)

    def open(
        self, file_format: str, spec_id: int = 0, partition: tuple[Any, ...] = (), *, deletes: bool = False
    ) -> OutputFile:
        """Creates a new file.

        Args:
            file_format: Lower case, for the extension.
            spec_id: Spec of the partition.
            partition: Partition tuple, in internal form; empty puts the file into the root of the data files.
            deletes: Whether it holds deletes.
        """
        self._count += 1
        suffix = "-deletes" if deletes else ""
        name = f"{self._prefix}-{self._count:05d}{suffix}.{EXTENSIONS[file_format]}"
        key = PartitionPath(self.partition_path(spec_id, partition)) if partition else None
        location = self._locations.new_data_location(name, cast("PartitionKey | None", key))
        self._created.append(location)
        with write_errors(location, self._context.io_properties):
            # The name is unique: no look before.
            stream = self._io(location).new_output(location).create(overwrite=True)
        native = stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="w")
        self._streams[location] = native
        return OutputFile(location=location, stream=native)

    def close(self, file: OutputFile) -> None:
        """Closes a file that is complete."""
        with write_errors(file.location):
            file.stream.close()
        self._streams.pop(file.location, None)

    def abort(self) -> tuple[str, ...]:
        """Closes and deletes every file, complete or not.

        Returns:
            Locations that could not be deleted.
        """
        for stream in self._streams.values():
            with suppress(Exception):  # what could not be closed may still be deleted
                stream.close()
        self._streams.clear()
        created, self._created = self._created, []
        return tuple(left for location in created for left in delete_files(self._io(location), (location,)))

    def _io(self, location: str) -> FileIO:
        return file_io(self._context.io_properties, location)

    def _partition_path(self, spec_id: int, partition: tuple[Any, ...]) -> str:
        spec = self._specs[spec_id]
        return partition_path(spec, spec.partition_type(self._schema), partition)
