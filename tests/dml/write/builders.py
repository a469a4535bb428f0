"""Tables, data files in memory and write jobs for the tests of writers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from dml.deletes.position_index import PositionDeleteIndex
from dml.model import columns
from dml.model.columns import DeltaLayout
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.model.write_task import TaskCommit, TaskFailure, WriteContext
from dml.options import WriteOptions
from dml.write.output_files import TaskIdentity
from dml.write.run import write_task
from dml.write.writer_spec import WriteJob, WriterSpec

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
)
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=1)
UNPARTITIONED = PartitionSpec(spec_id=0)
TASK = TaskIdentity(partition_id=3, task_attempt_id=17, attempt_number=0)


def context(
    folder: Path,
    *,
    schema: Schema = SCHEMA,
    specs: tuple[PartitionSpec, ...] = (UNPARTITIONED,),
    version: int = 2,
    row_lineage: bool = False,
    properties: dict[str, str] | None = None,
    **more: Any,
) -> WriteContext:
    """A write into a table in a folder; the last spec is the current one."""
    properties = properties or {}
    return WriteContext(
        query_id="11111111-2222-3333-4444-555555555555",
        format_version=version,
        schema_json=schema.model_dump_json(),
        specs_json=tuple((spec.spec_id, spec.model_dump_json()) for spec in specs),
        default_spec_id=specs[-1].spec_id,
        sort_order_json=UNSORTED_SORT_ORDER.model_dump_json(),
        data_location=f"{folder}/data",
        table_location=str(folder),
        properties=properties,
        options=WriteOptions.from_properties(properties),
        row_lineage=row_lineage,
        **more,
    )


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a reader gives of a file."""

    start_position: int
    batch: pa.RecordBatch
    live: np.ndarray | None = None


@dataclass(kw_only=True)
class MemoryFile:
    """A data file in memory."""

    task: ScanTask
    table: pa.Table
    field_ids: tuple[int, ...]
    deleted: PositionDeleteIndex = field(default_factory=PositionDeleteIndex)
    existing: dict[str, PositionDeleteIndex] = field(default_factory=dict)


@dataclass(kw_only=True)
class MemoryFiles:
    """`TargetFiles` over tables in memory; counts what is read."""

    files: list[MemoryFile] = field(default_factory=list)
    batch_rows: int = 4
    batches_read: int = 0
    columns_read: list[tuple[int, ...]] = field(default_factory=list)

    def add(
        self,
        table: pa.Table,
        *,
        field_ids: tuple[int, ...] = (1, 2, 3),
        spec_id: int = 0,
        partition: tuple[Any, ...] = (),
        deleted: list[int] | None = None,
        **task: Any,
    ) -> str:
        """Adds a file and gives its path."""
        ordinal = len(self.files)
        path = f"file:/old/{ordinal}.parquet"
        self.files.append(
            MemoryFile(
                task=ScanTask(
                    file_ordinal=ordinal,
                    path=path,
                    file_format="parquet",
                    record_count=table.num_rows,
                    file_size_in_bytes=1000,
                    start=0,
                    length=1000,
                    spec_id=spec_id,
                    partition=partition,
                    data_sequence_number=7,
                    **task,
                ),
                table=table,
                field_ids=field_ids,
                deleted=PositionDeleteIndex.from_positions(deleted or []),
            )
        )
        return path

    def task(self, ordinal: int) -> ScanTask:
        return self.files[ordinal].task

    def rows(
        self,
        ordinal: int,
        *,
        columns: tuple[int, ...],
        metadata_columns: tuple[str, ...] = (),
        positions: np.ndarray | None = None,
    ) -> Iterator[Rows]:
        file = self.files[ordinal]
        names = [file.table.column_names[file.field_ids.index(field_id)] for field_id in columns]
        self.columns_read.append(columns)
        table = file.table.select([*names, *metadata_columns])
        for start in range(0, table.num_rows, self.batch_rows):
            part = table.slice(start, self.batch_rows).combine_chunks()
            if positions is not None and not ((positions >= start) & (positions < start + part.num_rows)).any():
                continue
            self.batches_read += 1
            dead = file.deleted.deleted_mask(start, part.num_rows)
            arrays = [column.chunk(0) for column in part.columns]
            batch = pa.RecordBatch.from_arrays(arrays, names=part.column_names)
            live = ~dead if dead.any() else None
            if live is not None:
                live.flags.writeable = False  # the mask is the reader's
            yield Rows(start_position=start, batch=batch, live=live)

    def existing_positions(self, ordinal: int, delete_files: tuple[DeleteFileRef, ...]) -> PositionDeleteIndex:
        result = PositionDeleteIndex()
        for reference in delete_files:
            result.update(self.files[ordinal].existing[reference.path])
        return result


def table(ids: list[int], names: list[str | None] | None = None, amounts: list[float] | None = None) -> pa.Table:
    """Rows of `SCHEMA`."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array(names if names is not None else [f"n{value}" for value in ids], pa.string()),
            "amount": pa.array(amounts if amounts is not None else [value / 2 for value in ids], pa.float64()),
        }
    )


def delta(rows: list[tuple[Any, ...]], types: tuple[pa.DataType, ...] = ()) -> pa.RecordBatch:
    """Delta rows: operation, ordinal, position, values..."""
    kinds = (pa.int32(), pa.int32(), pa.int64(), *types)
    names = DeltaLayout(value_ids=tuple(range(len(types)))).column_names
    return pa.RecordBatch.from_arrays(
        [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)], names=list(names)
    )


def run(
    job: WriteJob,
    batches: Any,
    write_context: WriteContext,
    layout: DeltaLayout,
    files: MemoryFiles | None = None,
    *,
    task: TaskIdentity = TASK,
    max_failures: int = 1,
    **more: Any,
) -> TaskCommit | TaskFailure:
    """Runs one task of a job."""
    spec = WriterSpec(job=job, context=write_context, layout=layout, files=files, max_failures=max_failures, **more)
    return write_task(batches, spec, task)


def read_back(commit: TaskCommit | TaskFailure) -> list[dict[str, Any]]:
    """The rows of all new data files."""
    assert isinstance(commit, TaskCommit), commit
    return [row for file in commit.data_files for row in pq.read_table(file.path, partitioning=None).to_pylist()]


def stored_files(folder: Path) -> list[Path]:
    """All files below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def footer_schema(path: str) -> dict[str, Any]:
    """The Iceberg schema in a file's footer."""
    return json.loads(pq.read_metadata(path).metadata[b"iceberg.schema"])


ROW_ID, SEQUENCE = columns.ROW_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER
