"""Groups of scan tasks as bytes in a Spark task's closure, and the function that reads them. Worker-safe.

Input: groups and a context on the driver. Output: on a worker, the record batches of the groups whose numbers it is
given. Spark pickles the function by reference to this module and its data as bytes, unpacked only for the group asked.
"""

import gc
import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from dml.model.scan_task import ScanContext, ScanTask
from dml.read.data_file import coalesced
from dml.read.reader import KeyLookup, TaskReader

__all__ = ["GroupReader", "PackedGroups", "pack", "read_self_contained", "settle", "unpack"]


@cache
def settle() -> None:
    """Keep all that is imported by now out of later collections; only the first call in a process does something."""
    gc.collect()
    gc.freeze()


LEVEL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedGroups:
    """What the tasks of one Spark stage read.

    Attributes:
        context: The packed `ScanContext`.
        groups: Each group of tasks, packed.
    """

    context: bytes
    groups: tuple[bytes, ...]

    @staticmethod
    def pack(groups: Sequence[Sequence[ScanTask]], context: ScanContext) -> "PackedGroups":
        """Packs groups of tasks."""
        return PackedGroups(context=pack(context), groups=tuple(pack(tuple(group)) for group in groups))

    def tasks(self, number: int) -> tuple[ScanTask, ...]:
        """The tasks of one group."""
        tasks: tuple[ScanTask, ...] = unpack(self.groups[number])
        return tasks

    def read(self, numbers: Iterable[pa.RecordBatch], keys: KeyLookup | None = None) -> Iterator[pa.RecordBatch]:
        """Read the groups whose numbers are in the first column, as a function for `mapInArrow`.

        Args:
            numbers: The numbers of the groups.
            keys: Looks up the keys that matter, instead of the context's key filter.
        """
        settle()
        context: ScanContext = unpack(self.context)
        reader = TaskReader(context, keys=keys)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                rows = (found for task in self.tasks(number) for found in reader.read(task))
                yield from coalesced(rows, context.batch_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReader:
    """Reads groups that come with the rows instead of with the function: each Spark task gets its own alone.

    Attributes:
        context: The packed `ScanContext`.
    """

    context: bytes

    def __call__(self, groups: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the packed groups that stand in the first column."""
        settle()
        context: ScanContext = unpack(self.context)
        reader = TaskReader(context)
        for batch in groups:
            for group in batch.column(0).to_pylist():
                tasks: tuple[ScanTask, ...] = unpack(group)
                rows = (found for task in tasks for found in reader.read(task))
                yield from coalesced(rows, context.batch_rows)


def read_self_contained(groups: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Reads groups that come with their context, packed as `(ScanContext, tasks)`, in the first column.

    What a stream reads of a table is not known when Spark asks for the function: later files may need later specs.
    """
    settle()
    for batch in groups:
        for packed in batch.column(0).to_pylist():
            context, tasks = unpack(packed)
            reader = TaskReader(context)
            rows = (found for task in tasks for found in reader.read(task))
            yield from coalesced(rows, context.batch_rows)


def pack(value: object) -> bytes:
    """A value as bytes."""
    return zlib.compress(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), LEVEL)


def unpack(data: bytes) -> Any:
    """The value that `pack` was given."""
    return pickle.loads(zlib.decompress(data))  # noqa: S301 - made by the driver of the same statement
