"""Pack the input of tasks on the driver, and unpack it in the task that reads it. Worker-safe.

A Spark task gets either the number of its group, if all groups travel with the function, or the packed group itself,
if Spark distributes them. Groups may be of data files, manifests or delete files.
"""

import gc
import pickle
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from dml import limits

__all__ = ["TaskInput", "freeze_imports", "pack", "unpack"]


@cache
def freeze_imports() -> None:
    """Exclude imported modules from garbage collections, once per worker: a full collection takes 30 ms otherwise.

    A task in the driver freezes nothing: objects of the user's program would never be collected again.
    """
    pyspark = sys.modules.get("pyspark")  # workers load it before RowDelta, and other processes need not have it
    if pyspark is None or pyspark.TaskContext.get() is None:
        return
    gc.collect()
    gc.freeze()


def pack(value: object) -> bytes:
    """Pickle and compress a value."""
    return zlib.compress(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), limits.MESSAGE_COMPRESSION_LEVEL)


def unpack(data: bytes) -> Any:
    """Return the value that was packed."""
    return pickle.loads(zlib.decompress(data))  # noqa: S301 - made by the driver of the same statement


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput:
    """The input of the tasks of one Spark stage. It can be pickled.

    Attributes:
        packed_context: The context that all groups share (a `ScanContext`, for data files), packed. None if each group
            starts with its own: the groups of a stream are planned after Spark has received the function.
        packed_groups: The groups that tasks read by number, packed one by one so that a task unpacks only its own;
            empty if Spark distributes the packed groups.
    """

    packed_context: bytes | None = None
    packed_groups: tuple[bytes, ...] = ()

    @staticmethod
    def of(groups: Iterable[Sequence[Any]], context: object) -> "TaskInput":
        """Pack groups and their context."""
        return TaskInput(packed_context=pack(context), packed_groups=tuple(pack(tuple(group)) for group in groups))

    @property
    def context(self) -> Any:
        """The context that all groups share, unpacked; None if each has its own."""
        return None if self.packed_context is None else unpack(self.packed_context)

    def group(self, number: int) -> tuple[Any, ...]:
        """Return a group."""
        found: tuple[Any, ...] = unpack(self.packed_groups[number])
        return found

    def groups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
        """Unpack the groups of one task.

        Args:
            batches: The task's input from Spark: the numbers of its groups, or packed groups, in the first column.
        """
        freeze_imports()
        for batch in batches:
            for key in batch.column(0).to_pylist():
                yield unpack(key) if isinstance(key, bytes) else self.group(key)
