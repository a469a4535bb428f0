"""Files and tasks to read, in one line each."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema

from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.manifests.avro_container import AvroContainer
from dml.model.scan_task import DeleteFileRef, ScanContext, ScanTask
from dml.read.reader import TaskReader


def with_id(field_id: int, name: str, kind: pa.DataType, *, key: bytes = b"PARQUET:field_id") -> pa.Field:
    """An Arrow field that carries its Iceberg id."""
    return pa.field(name, kind, metadata={key: str(field_id).encode()})


def rows_in(path: str) -> int:
    """What the file's manifest entry would say; 0 for one that is damaged or is not there."""
    try:
        match path.rpartition(".")[2]:
            case "parquet":
                return pq.read_metadata(path).num_rows
            case "orc":
                return orc.ORCFile(path).nrows
            case _:
                data = Path(path).read_bytes()
                return sum(count for count, _ in AvroContainer(BytesIO(data).read, len(data)).blocks())
    except (OSError, ValueError, EOFError):
        return 0


@dataclass
class FileFolder:
    """A folder of files, and what reads them."""

    folder: Path

    def parquet(self, table: pa.Table, name: str = "data.parquet", **options: Any) -> str:
        path = str(self.folder / name)
        pq.write_table(table, path, **options)
        return path

    def task(self, path: str, **changes: Any) -> ScanTask:
        size = Path(path).stat().st_size if Path(path).exists() else 1
        fields: dict[str, Any] = {
            "file_ordinal": 0,
            "path": path,
            "file_format": path.rpartition(".")[2],
            "record_count": 0 if "record_count" in changes else rows_in(path),
            "file_size_in_bytes": size,
            "start": 0,
            "length": size,
            "spec_id": 0,
            "partition": (),
            "data_sequence_number": 5,
        }
        return ScanTask(**(fields | changes))

    def context(self, schema: Schema, specs: tuple[PartitionSpec, ...] = (), **changes: Any) -> ScanContext:
        fields: dict[str, Any] = {
            "schema_json": schema.model_dump_json(),
            "projected_ids": tuple(field.field_id for field in schema.fields),
            "specs_json": tuple(
                (spec.spec_id, spec.model_dump_json()) for spec in specs or (UNPARTITIONED_PARTITION_SPEC,)
            ),
        }
        return ScanContext(**(fields | changes))

    def read(self, task: ScanTask, context: ScanContext, *, spark_types: bool = True) -> pa.Table:
        reader = TaskReader(context, spark_types=spark_types)
        table = pa.Table.from_batches(reader.read(task), schema=reader.output_schema)
        table.validate(full=True)
        return table

    def deletion_vector(self, data_file: str, positions: list[int], **changes: Any) -> DeleteFileRef:
        blob = encode(PositionDeleteIndex.from_positions(positions))
        path = self.folder / "deletes.puffin"
        path.write_bytes(b"PFA1" + blob)
        fields: dict[str, Any] = {
            "path": str(path),
            "file_format": "puffin",
            "content_offset": 4,
            "content_size_in_bytes": len(blob),
            "record_count": len(positions),
            "file_size_in_bytes": 4 + len(blob),
            "referenced_data_file": data_file,
            "data_sequence_number": 6,
        }
        return DeleteFileRef(**(fields | changes))

    def delete_ref(self, path: str, record_count: int, **changes: Any) -> DeleteFileRef:
        fields: dict[str, Any] = {
            "path": path,
            "file_format": path.rpartition(".")[2],
            "record_count": record_count,
            "file_size_in_bytes": Path(path).stat().st_size,
            "data_sequence_number": 6,
        }
        return DeleteFileRef(**(fields | changes))
