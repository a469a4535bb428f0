"""Replace equality deletes with position deletes: the tasks of `convert_equality_deletes`. Worker.

Input: data files with the equality deletes to replace. Output: a `TaskCommit` with position delete files or deletion
vectors, or a `TaskFailure`. Only the key columns are read. Spec: "Equality Delete Files", "Scan Planning".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dml.deletes.position_index import PositionDeleteIndex
from dml.model.columns import FILE_ORDINAL, POS, ROW_OPERATION, RowOperation
from dml.model.scan_task import ScanTask
from dml.model.write_task import report_batch
from dml.read.reader import TaskReader
from dml.tasks.task_input import TaskInput
from dml.write.delta_writer import write_task
from dml.write.output_files import current_task
from dml.write.writer_spec import WriterSpec

__all__ = ["ConvertDeletes", "deleted_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertDeletes:
    """The function of a task. It can be pickled.

    Attributes:
        input: Groups of scan tasks of whole files, each with the equality deletes to replace, and a `ScanContext`
            without columns.
        spec: The write, of the job `MERGE_ON_READ`.
    """

    input: TaskInput
    spec: WriterSpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row with one binary column: the task's report.

        Args:
            batches: The numbers of the groups.
        """
        reader = TaskReader(self.input.context, spark_types=False)
        tasks = (task for group in self.input.groups(batches) for task in group)
        rows = (batch for task in tasks for batch in deleted_rows(task, reader))
        yield report_batch(write_task(rows, self.spec, current_task()))


def deleted_rows(task: ScanTask, reader: TaskReader) -> Iterator[pa.RecordBatch]:
    """Yield the rows that equality deletes delete, as delta rows. Rows already deleted by position are left out.

    Args:
        task: A whole file.
        reader: Reads no columns.
    """
    known = reader.deletes.positions(task) or PositionDeleteIndex()
    for rows in reader.scan_file(task):
        if rows.live is None:
            continue
        dead = PositionDeleteIndex.from_positions(rows.start_position + np.flatnonzero(~rows.live))
        positions = dead.difference(known).to_numpy()
        if len(positions):
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(np.full(len(positions), RowOperation.DELETE), pa.int32()),
                    pa.array(np.full(len(positions), task.file_ordinal), pa.int32()),
                    pa.array(positions, pa.int64()),
                ],
                names=[ROW_OPERATION, FILE_ORDINAL, POS],
            )
