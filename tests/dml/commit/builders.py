"""Tables, data files, delete files and deletion vectors in one line each, and rows as others read them."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from dml.catalog import create_table
from dml.deletes.deletion_vector import PuffinWriter, deletion_vector_blob, encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.manifest import ContentFile, FileContent
from dml.model.row_map import ROW_MAP_KEY, RowMap

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
)
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("p", pa.string(), metadata={"PARQUET:field_id": "2"}),
    ]
)
DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)
NUMBERS = itertools.count()


def new_table(
    catalog: Catalog, version: int, *, name: str = "t", partitioned: bool = False, **properties: str
) -> Table:
    """A table `(id bigint, p string)` of a format version."""
    return create_table(
        catalog,
        ("db", name),
        SCHEMA,
        partition_spec=BY_P if partitioned else UNPARTITIONED_PARTITION_SPEC,
        properties={"format-version": str(version), **properties},
    )


def data_file(table: Table, ids: Sequence[int | None], p: str | None = "a") -> ContentFile:
    """A Parquet file with a row for each id, all of one p, with the metrics that writers give."""
    path = f"{table.location()}/data/{next(NUMBERS):05}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(ids), "p": [p] * len(ids)}, schema=ARROW), local, write_page_checksum=True)
    known = [value for value in ids if value is not None]
    bounds: dict[int, tuple[bytes, bytes]] = {}
    if known:
        bounds[1] = (to_bytes(LongType(), min(known)), to_bytes(LongType(), max(known)))
    if p is not None and ids:
        bounds[2] = (p.encode(), p.encode())
    return ContentFile(
        content=FileContent.DATA,
        path=path,
        file_format="parquet",
        spec_id=table.spec().spec_id,
        partition=(p,) if table.spec().fields else (),
        record_count=len(ids),
        file_size_in_bytes=local.stat().st_size,
        value_counts={1: len(ids), 2: len(ids)},
        null_value_counts={1: len(ids) - len(known), 2: len(ids) if p is None else 0},
        lower_bounds={field_id: lower for field_id, (lower, _) in bounds.items()},
        upper_bounds={field_id: upper for field_id, (_, upper) in bounds.items()},
        split_offsets=(4,),
        sort_order_id=0,
    )


def with_row_map(file: ContentFile, row_map: RowMap | str) -> ContentFile:
    """The same Parquet file, with a row map in its footer."""
    local = Path(file.path.removeprefix("file://"))
    rows = pq.ParquetFile(local).read()
    text = row_map if isinstance(row_map, str) else row_map.to_text()
    pq.write_table(rows.replace_schema_metadata({ROW_MAP_KEY: text}), local, write_page_checksum=True)
    return replace(file, file_size_in_bytes=local.stat().st_size)


def with_row_ids(
    file: ContentFile,
    row_ids: Sequence[int | None],
    rows_per_group: int = 2**20,
    sequence_numbers: Sequence[int] | None = None,
) -> ContentFile:
    """The same Parquet file with the lineage of its rows, as engines write it that keep it in a rewrite."""
    local = Path(file.path.removeprefix("file://"))
    parquet = pq.ParquetFile(local)
    field = pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"})
    rows = parquet.read().append_column(field, pa.array(row_ids, pa.int64()))
    updated = pa.field("_last_updated_sequence_number", pa.int64(), metadata={"PARQUET:field_id": "2147483539"})
    rows = rows.append_column(updated, pa.array(sequence_numbers or [1] * len(row_ids), pa.int64()))
    pq.write_table(rows, local, row_group_size=rows_per_group, write_page_checksum=True)
    return replace(file, file_size_in_bytes=local.stat().st_size)


def position_deletes(table: Table, of: ContentFile, positions: Iterable[int]) -> ContentFile:
    """A position delete file for one data file."""
    path = f"{table.location()}/data/{next(NUMBERS):05}-deletes.parquet"
    local = Path(path.removeprefix("file://"))
    rows = sorted(positions)
    table_of_rows = pa.table({"file_path": [of.path] * len(rows), "pos": rows}, schema=DELETES)
    pq.write_table(table_of_rows, local, write_page_checksum=True)
    return ContentFile(
        content=FileContent.POSITION_DELETES,
        path=path,
        file_format="parquet",
        spec_id=of.spec_id,
        partition=of.partition,
        record_count=len(rows),
        file_size_in_bytes=local.stat().st_size,
        lower_bounds={2147483546: of.path.encode()},
        upper_bounds={2147483546: of.path.encode()},
    )


def equality_deletes(table: Table, of: ContentFile, row_id: int) -> ContentFile:
    """An equality delete file for one id, in the partition of a data file."""
    path = f"{table.location()}/data/{next(NUMBERS):05}-equality.parquet"
    local = Path(path.removeprefix("file://"))
    pq.write_table(pa.table({"id": [row_id]}, schema=pa.schema([ARROW.field("id")])), local)
    bound = {1: to_bytes(LongType(), row_id)}
    return ContentFile(
        content=FileContent.EQUALITY_DELETES,
        path=path,
        file_format="parquet",
        spec_id=of.spec_id,
        partition=of.partition,
        record_count=1,
        file_size_in_bytes=local.stat().st_size,
        value_counts={1: 1},
        null_value_counts={1: 0},
        lower_bounds=bound,
        upper_bounds=bound,
        equality_ids=(1,),
    )


def vectors(table: Table, deletes: Sequence[tuple[ContentFile, Iterable[int]]]) -> tuple[ContentFile, ...]:
    """One Puffin file with a deletion vector for each data file."""
    path = f"{table.location()}/data/{next(NUMBERS):05}-deletes.puffin"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    written = []
    with local.open("wb") as stream:
        writer = PuffinWriter(stream.write, "tests")
        for of, positions in deletes:
            index = PositionDeleteIndex.from_positions(list(positions))
            blob = deletion_vector_blob(of.path, len(index))
            written.append((of, len(index), writer.write_blob(blob, encode(index))))
        size = writer.close()
    return tuple(
        ContentFile(
            content=FileContent.POSITION_DELETES,
            path=path,
            file_format="puffin",
            spec_id=of.spec_id,
            partition=of.partition,
            record_count=count,
            file_size_in_bytes=size,
            referenced_data_file=of.path,
            content_offset=blob.offset,
            content_size_in_bytes=blob.length,
        )
        for of, count, blob in written
    )


def deletes(table: Table, of: ContentFile, positions: Iterable[int]) -> ContentFile:
    """Deleted positions of one data file, in the form of the table's format version."""
    if table.metadata.format_version > 2:
        return vectors(table, [(of, positions)])[0]
    return position_deletes(table, of, positions)


def ids_by_pyiceberg(metadata_location: str) -> list[int]:
    """The ids that PyIceberg reads."""
    return sorted(StaticTable.from_metadata(metadata_location).scan().to_arrow()["id"].to_pylist())


@cache
def duckdb_connection() -> duckdb.DuckDBPyConnection:
    """A DuckDB that reads Iceberg, with the extensions of the wheels."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET enable_external_file_cache = false")  # it mixes up the deletion vectors of a file
    for name, package in (("avro", duckdb_extension_avro), ("iceberg", duckdb_extension_iceberg)):
        folder = Path(str(package.__file__)).parent
        connection.execute(f"load '{next(folder.rglob(f'{name}.duckdb_extension'))}'")
    return connection


def ids_by_duckdb(metadata_location: str) -> list[int]:
    """The ids that DuckDB reads."""
    path = metadata_location.removeprefix("file://")
    return sorted(row[0] for row in duckdb_connection().execute(f"select id from iceberg_scan('{path}')").fetchall())


def ids(metadata_location: str) -> list[int]:
    """The ids that PyIceberg and DuckDB read, which have to be the same."""
    read = ids_by_pyiceberg(metadata_location)
    assert ids_by_duckdb(metadata_location) == read
    return read
