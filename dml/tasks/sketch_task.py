"""Sketch the distinct values of columns inside Spark's tasks. Worker.

Input: groups of scan tasks. Output: one report with a sketch for each column, of the live rows of all groups. A sketch
takes 32 KiB, regardless of the number of rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dml.errors import DmlError, ExecutionError
from dml.model.write_task import ColumnSketches, TaskFailure, report_batch
from dml.read.reader import TaskReader
from dml.rows.theta_sketch import ThetaSketch
from dml.tasks.task_input import TaskInput

__all__ = ["SketchTask"]

ColumnPath = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchTask:
    """The function of the tasks. It can be pickled.

    Attributes:
        input: The groups of `ScanTask`s, with a `ScanContext` that projects the columns.
        paths: For each sketch the place of its column among the projected ones, then that of each field in its struct.
    """

    input: TaskInput
    paths: tuple[ColumnPath, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the task.

        Args:
            batches: The groups to read, as `TaskInput.groups` takes them.

        Returns:
            The report. A failure that another attempt would repeat is reported, not raised.
        """
        sketches = tuple(ThetaSketch() for _ in self.paths)
        try:
            reader = TaskReader(self.input.context, spark_types=False)
            for tasks in self.input.groups(batches):
                for rows in (rows for task in tasks for rows in reader.read(task)):
                    for sketch, path in zip(sketches, self.paths, strict=True):
                        sketch.update(values_at(rows, path))
        except DmlError as error:
            if isinstance(error, ExecutionError):
                raise
            yield report_batch(TaskFailure(error))
            return
        yield report_batch(ColumnSketches(sketches))


def values_at(rows: pa.RecordBatch, path: ColumnPath) -> pa.Array:
    """Return the values of a column, or of a field of its structs; NULL where a struct is NULL."""
    values = rows.column(path[0])
    for place in path[1:]:
        values = pc.struct_field(values, [place])
    return values
