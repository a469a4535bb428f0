"""Spliced files against rewritten ones: the same rows for every reader, the same metrics, whoever wrote the old one."""

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from dml import limits
from dml.errors import CorruptFileError, DataError, DmlError, ErrorKind
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID, DeltaLayout, RowOperation
from dml.model.manifest import ContentFile, FileContent
from dml.model.scan_task import DeleteFileRef, ScanContext, ScanTask
from dml.model.write_task import TaskCommit, TaskFailure
from dml.options import WriteOptions
from dml.read.reader import TargetFiles
from dml.splice.footer import Footer, footer_length, is_old_writer
from dml.splice.thrift_compact import decode_struct, encode_struct
from dml.write import splice_columns, splicing
from dml.write.column_metrics import NanCounter, parquet_metrics
from dml.write.file_layout import file_layout
from dml.write.splicing import FileSplice, copied_metrics, may_splice
from dml.write.writer_spec import WriteJob
from tests.dml.write.builders import context, delta, read_back, run, stored_files

JAVA = Path(__file__).parents[2] / "fixtures" / "java"
NUMBERS = itertools.count()
UPDATE = RowOperation.UPDATE
ALWAYS = {"write.splice.min-file-size-bytes": "0"}

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "amount", DoubleType(), required=False),
    NestedField(4, "flag", BooleanType(), required=False),
    NestedField(5, "day", DateType(), required=False),
    NestedField(6, "price", DecimalType(12, 2), required=False),
    NestedField(7, "raw", BinaryType(), required=False),
    NestedField(8, "at", TimestamptzType(), required=False),
    NestedField(
        9,
        "inner",
        StructType(
            NestedField(20, "a", IntegerType(), required=False),
            NestedField(21, "b", ListType(22, StringType(), element_required=False), required=False),
        ),
        required=False,
    ),
    NestedField(10, "words", ListType(23, StringType(), element_required=False), required=False),
    NestedField(11, "pairs", MapType(24, StringType(), 25, LongType(), value_required=False), required=False),
    NestedField(12, "Text", FloatType(), required=False),
    NestedField(13, "empty", StringType(), required=False),
    NestedField(14, "uuid", UUIDType(), required=False),
)
TEXTS = st.none() | st.sampled_from(["", "a", "a" * 40]) | st.text(max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-(2**62), 2**62),
    "text": TEXTS,
    "amount": st.none() | st.floats(width=64),
    "flag": st.none() | st.booleans(),
    "day": st.none() | st.dates(),
    "price": st.none() | st.decimals(-(10**9), 10**9, places=2),
    "raw": st.none() | st.binary(max_size=20),
    "at": st.none() | st.datetimes(timezones=st.just(dt.UTC)),
    "inner": st.none()
    | st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9), "b": st.none() | st.lists(TEXTS, max_size=3)}),
    "words": st.none() | st.lists(TEXTS, max_size=3),
    "pairs": st.none()
    | st.dictionaries(st.text(max_size=2), st.none() | st.integers(0, 9), max_size=2).map(
        lambda pairs: [*pairs.items()]
    ),
    "Text": st.none() | st.floats(width=32),
    "empty": st.none(),
    "uuid": st.none() | st.binary(min_size=16, max_size=16),
}


def arrow_table(schema: Schema, rows: list[dict[str, Any]], folder: Path) -> pa.Table:
    """Rows as files of the table hold them, with field ids."""
    arrow = file_layout(context(folder, schema=schema), row_lineage=False).arrow
    arrays = []
    for field in arrow:
        values = [row[field.name] for row in rows]
        if field.type == pa.uuid():
            arrays.append(pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16))))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=arrow)


def target_files(path: Path, schema: Schema, rows: int, **task: Any) -> TargetFiles:
    """The data file of a statement."""
    size = path.stat().st_size
    facts: dict[str, Any] = {
        "file_ordinal": 0,
        "path": f"file://{path}",
        "file_format": "parquet",
        "record_count": rows,
        "file_size_in_bytes": size,
        "start": 0,
        "length": size,
        "spec_id": 0,
        "partition": (),
        "data_sequence_number": 7,
    }
    return TargetFiles.of(
        [ScanTask(**{**facts, **task})], ScanContext(schema_json=schema.model_dump_json(), projected_ids=())
    )


def update(
    folder: Path,
    files: TargetFiles,
    schema: Schema,
    changes: pa.RecordBatch,
    assigned: tuple[int, ...],
    *,
    splices: bool = True,
    deletes: bool = False,
    inserted: Sequence[pa.RecordBatch] = (),
    **more: Any,
) -> TaskCommit:
    """One task of an UPDATE, or of a MERGE that inserts, into a folder of its own."""
    properties = {**ALWAYS, **more.pop("properties", {})}
    target = context(folder / str(next(NUMBERS)), schema=schema, properties=properties, **more)
    all_ids = tuple(field.field_id for field in schema.fields)
    layout = DeltaLayout(value_ids=assigned, assigned_ids=assigned)
    if inserted:
        layout = DeltaLayout(value_ids=all_ids, assigned_ids=assigned, insert_ids=all_ids)
    batches = [changes, *inserted]
    commit = run(
        WriteJob.COPY_ON_WRITE, batches, target, layout, files, splices=splices, deletes=deletes, tracks_origins=True
    )
    if isinstance(commit, TaskFailure):
        raise commit.error
    return commit


def changing(places: list[int], values: list[pa.Array], ids: tuple[int, ...]) -> pa.RecordBatch:
    """Updates of some rows."""
    shell = delta([(UPDATE, 0, place) for place in places])
    names = DeltaLayout(value_ids=ids).column_names
    return pa.RecordBatch.from_arrays([*shell.columns, *values], names=list(names))


def plain(path: str) -> pa.Table:
    """A file as Arrow reads it, with the checksums of its pages."""
    return pq.read_table(path.removeprefix("file://"), page_checksum_verification=True, partitioning=None)


def duck(path: str) -> list[tuple]:
    return duckdb.sql(f"SELECT * FROM read_parquet('{path.removeprefix('file://')}')").fetchall()


def entry_of(path: Path, schema: Schema, folder: Path) -> ContentFile:
    """The manifest entry of a file, as its writer would have made it."""
    layout = file_layout(context(folder, schema=schema), row_lineage=False)
    nans = NanCounter(layout.leaves, layout.modes)
    for batch in pq.read_table(path).combine_chunks().to_batches():
        nans.add(batch.columns)
    metrics = parquet_metrics(pq.read_metadata(path), layout.leaves, layout.modes, nans.counts)
    return ContentFile(
        content=FileContent.DATA, path=str(path), file_format="parquet", spec_id=0, partition=(),
        record_count=pq.read_metadata(path).num_rows, file_size_in_bytes=path.stat().st_size,
        **{name: getattr(metrics, name) for name in metrics.__slots__},
    )  # fmt: skip


def published(commit: TaskCommit, entry: ContentFile, schema: Schema, folder: Path) -> ContentFile:
    """The new file as the driver publishes it."""
    (file,), (spliced,) = commit.data_files, commit.spliced_files
    return copied_metrics(
        file, spliced, entry, file_layout(context(folder, schema=schema), row_lineage=False).modes, schema
    )


WRITERS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "brotli", "lz4"]),
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([64, 2**20]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "data_page_size": st.sampled_from([100, 2**20]),
        "write_page_index": st.booleans(),
        "write_page_checksum": st.booleans(),
        "write_statistics": st.booleans(),
        "store_schema": st.booleans(),
        "row_group_size": st.integers(3, 40),
        "bloom_filter_options": st.sampled_from([None, {"text": {"ndv": 10, "fpp": 0.01}}]),
        "version": st.sampled_from(["1.0", "2.4", "2.6"]),
    }
)


def rows_of(path: str, schema: Schema) -> str:
    """The rows of a file as the project reads them."""
    local = Path(path.removeprefix("file://"))
    files = target_files(local, schema, pq.read_metadata(local).num_rows)
    parts = files.rows(0, columns=tuple(field.field_id for field in schema.fields))
    return repr([row for part in parts for row in part.batch.to_pylist()])


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=settings.default.max_examples // 3)
@given(data=st.data(), names=st.sets(st.sampled_from(sorted(VALUES)), min_size=2, max_size=6), writer=WRITERS)
def test_random_splices_are_as_full_rewrites(
    tmp_path: Path, data: st.DataObject, names: set[str], writer: dict
) -> None:
    schema = Schema(*(field for field in SCHEMA.fields if field.name in names))
    row = st.fixed_dictionaries({name: VALUES[name] for name in sorted(names)})
    rows = data.draw(st.lists(row, min_size=1, max_size=20))
    assigned = data.draw(st.sets(st.sampled_from(sorted(names)), min_size=1, max_size=len(names) - 1))
    places = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1, max_size=5)))
    news = data.draw(st.lists(row, min_size=len(places), max_size=len(places)))
    path = tmp_path / f"old{next(NUMBERS)}.parquet"
    writer = writer if "text" in names else {**writer, "bloom_filter_options": None}
    pq.write_table(arrow_table(schema, rows, tmp_path), path, **writer)
    ids = tuple(field.field_id for field in schema.fields if field.name in assigned)
    new = arrow_table(schema, news, tmp_path).combine_chunks()
    changes = changing(places, [new.column(schema.find_field(place).name).chunk(0) for place in ids], ids)
    files = target_files(path, schema, len(rows))
    spliced = update(tmp_path, files, schema, changes, ids)
    whole = update(tmp_path, files, schema, changes, ids, splices=False)
    (mine,), (theirs,) = spliced.data_files, whole.data_files
    assert ([file.path for file in spliced.spliced_files], whole.spliced_files) == ([mine.path], ())
    assert repr(plain(mine.path).to_pylist()) == repr(plain(theirs.path).to_pylist())
    assert plain(mine.path).schema.equals(plain(theirs.path).schema, check_metadata=False)
    assert repr(duck(mine.path)) == repr(duck(theirs.path))
    assert (spliced.changed_files, spliced.metrics) == (whole.changed_files, whole.metrics)
    assert mine.record_count == theirs.record_count == len(rows)
    assert mine.file_size_in_bytes == Path(mine.path.removeprefix("file://")).stat().st_size
    (mine_origins,), (their_origins,) = spliced.row_origins, whole.row_origins
    assert [part.tolist() for part in mine_origins.decode()] == [part.tolist() for part in their_origins.decode()]
    mine = published(spliced, entry_of(path, schema, tmp_path), schema, tmp_path)
    for leaf in file_layout(context(tmp_path, schema=schema), row_lineage=False).leaves:
        if schema.fields[leaf.path[0]].name in assigned:
            for metric in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"):
                found, wanted = (getattr(file, metric).get(leaf.field.field_id) for file in (mine, theirs))
                assert found == wanted, (metric, leaf)
    again = target_files(Path(mine.path.removeprefix("file://")), schema, len(rows))
    assert repr(read_back(update(tmp_path, again, schema, changes, ids))) == repr(read_back(spliced))


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=settings.default.max_examples // 3)
@given(data=st.data(), names=st.sets(st.sampled_from(sorted(VALUES)), min_size=2, max_size=6), first=st.booleans())
def test_new_rows_are_added_to_a_spliced_file(
    tmp_path: Path, data: st.DataObject, names: set[str], first: bool
) -> None:
    """They are its last rows, also where Spark's query gives them first; its metrics are those of a rewritten file."""
    schema = Schema(*(field for field in SCHEMA.fields if field.name in names))
    row = st.fixed_dictionaries({name: VALUES[name] for name in sorted(names)})
    rows = data.draw(st.lists(row, min_size=2, max_size=20))
    assigned = data.draw(st.sets(st.sampled_from(sorted(names)), min_size=1, max_size=len(names) - 1))
    places = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1, max_size=5)))
    gone = data.draw(st.sets(st.sampled_from(places), max_size=2)) if len(places) < len(rows) else set()
    news = data.draw(st.lists(row, min_size=len(places), max_size=len(places)))
    added = data.draw(st.lists(row, min_size=1, max_size=10))
    path = tmp_path / f"old{next(NUMBERS)}.parquet"
    size = data.draw(st.integers(2, 30))
    pq.write_table(arrow_table(schema, rows, tmp_path), path, row_group_size=size, store_decimal_as_integer=True)
    ids = tuple(field.field_id for field in schema.fields if field.name in assigned)
    names_of = list(DeltaLayout(value_ids=tuple(field.field_id for field in schema.fields)).column_names)

    def batch(shell: pa.RecordBatch, values: list[dict[str, Any]]) -> pa.RecordBatch:
        table = arrow_table(schema, values, tmp_path).combine_chunks()
        return pa.RecordBatch.from_arrays(
            [*shell.columns, *(column.chunk(0) for column in table.columns)], names=names_of
        )

    operations = [(RowOperation.DELETE if place in gone else UPDATE, 0, place) for place in places]
    changes = batch(delta(operations), news)
    inserts = batch(delta([(RowOperation.INSERT, None, None)] * len(added)), added)
    files = target_files(path, schema, len(rows))
    order = (inserts, [changes]) if first else (changes, [inserts])
    joined = data.draw(st.sampled_from([0, 200, limits.MAX_JOINED_GROUP_BYTES]))
    with mock.patch.object(limits, "MAX_JOINED_GROUP_BYTES", joined):
        spliced = update(tmp_path, files, schema, order[0], ids, inserted=order[1], deletes=bool(gone))
    whole = update(tmp_path, files, schema, changes, ids, inserted=[inserts], deletes=bool(gone), splices=False)
    (mine,), (theirs,) = spliced.data_files, whole.data_files
    assert repr(plain(mine.path).to_pylist()) == repr(plain(theirs.path).to_pylist())
    assert repr(duck(mine.path)) == repr(duck(theirs.path))
    assert (spliced.changed_files, spliced.metrics) == (whole.changed_files, whole.metrics)
    assert mine.record_count == theirs.record_count == len(rows) - len(gone) + len(added)
    (mine_origins,), (their_origins,) = spliced.row_origins, whole.row_origins
    assert [part.tolist() for part in mine_origins.decode()] == [part.tolist() for part in their_origins.decode()]
    if not spliced.spliced_files:  # each row group loses rows, or is joined with others
        assert gone
        return
    mine = published(spliced, entry_of(path, schema, tmp_path), schema, tmp_path)
    for leaf in file_layout(context(tmp_path, schema=schema), row_lineage=False).leaves:
        for metric in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"):
            found, wanted = (getattr(file, metric).get(leaf.field.field_id) for file in (mine, theirs))
            if metric == "nan_value_counts" and gone:
                continue  # rows that leave are not always looked at
            assert found == wanted, (metric, leaf)


def test_row_groups_that_small_merges_append_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_JOINED_GROUP_BYTES", 400)
    schema = Schema(*(SCHEMA.find_field(name) for name in ("id", "amount")))
    path = tmp_path / "old.parquet"
    rows = [{"id": number, "amount": 0.5} for number in range(1000)]
    pq.write_table(arrow_table(schema, rows, tmp_path), path, row_group_size=500)
    names = list(DeltaLayout(value_ids=(1, 3)).column_names)
    groups = []
    for number in range(1000, 1030):
        changes = delta([(UPDATE, 0, 600)])
        changed = [*changes.columns, pa.array([600]), pa.array([float(number)])]
        insert = delta([(RowOperation.INSERT, None, None)])
        new = [*insert.columns, pa.array([number]), pa.array([0.25])]
        commit = update(
            tmp_path,
            target_files(path, schema, len(rows)),
            schema,
            pa.RecordBatch.from_arrays(changed, names=names),
            (3,),
            inserted=[pa.RecordBatch.from_arrays(new, names=names)],
        )
        assert len(commit.spliced_files) == 1
        rows.append({"id": number, "amount": 0.25})
        rows[600] = {"id": 600, "amount": float(number)}
        assert read_back(commit) == rows
        path = Path(commit.data_files[0].path.removeprefix("file://"))
        metadata = pq.read_metadata(path)
        groups.append([metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)])
    assert groups[:4] == [[500, 500, 1], [500, 500, 1, 1], [500, 500, 3], [500, 500, 3, 1]]
    assert max(map(len, groups)) <= 6
    assert sum(groups[-1][2:]) == 30


BY_FLAG = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "flag"))


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        ({}, {True: [4, 6], False: [4, 6], None: [1]}),
        ({"dml.limits.MAX_OPEN_SPLICED_FILES": 1}, {True: [4, 4, 2], False: [4, 6], None: [1]}),
        ({"dml.limits.MAX_APPENDED_BYTES": 0}, {True: [4, 4, 2], False: [4, 4, 2], None: [1]}),
        ({"write.target-file-size-bytes": "1000"}, {True: [4, 4, 2], False: [4, 4, 2], None: [1]}),
    ],
)
def test_new_rows_go_to_the_last_spliced_file_of_their_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], rows: dict[bool | None, list[int]]
) -> None:
    """A partition without one gets a file, as one does whose last file has the target size.

    A column that old files lack has the values of the new rows.
    """
    for name, limit in limits.items():
        if name.startswith("dml."):
            monkeypatch.setattr(name, limit)
    commit, new = merged_by_partition(
        tmp_path, {key: limit for key, limit in limits.items() if key.startswith("write.")}
    )
    assert isinstance(commit, TaskCommit)
    found: dict[bool | None, list[int]] = {}
    for file in commit.data_files:
        found.setdefault(file.partition[0], []).append(file.record_count)
    assert {flag: sorted(counts) for flag, counts in found.items()} == {
        flag: sorted(counts) for flag, counts in rows.items()
    }
    assert len(commit.spliced_files) == 4
    read = sorted((row["id"], row["amount"], row["flag"], row["text"]) for row in read_back(commit))
    kept = [(10 * n + place, 9.0 if place == 1 else 0.5, n < 2, None) for n in range(4) for place in range(4)]
    assert read == kept + [(number, 1.0, flag, f"new {number}") for number, flag in new]
    assert commit.metrics.rows_inserted == len(new)
    assert {origin.data_file for origin in commit.row_origins} == {file.path for file in commit.data_files}


def test_no_spliced_file_stays_open_when_another_cannot_be_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted: list[FileSplice] = []
    abort = FileSplice.abort

    def failing_close(splice: FileSplice) -> None:
        raise OSError("no space left on device")

    def noted(splice: FileSplice) -> None:
        aborted.append(splice)
        abort(splice)
        raise OSError("nor can it be closed")

    monkeypatch.setattr(FileSplice, "close", failing_close)
    monkeypatch.setattr(FileSplice, "abort", noted)
    failure, _ = merged_by_partition(tmp_path, {})
    assert isinstance(failure, TaskFailure)
    assert len(set(map(id, aborted))) == 2  # the file that was complete, and the next of its partition
    assert stored_files(tmp_path / "new") == []


def merged_by_partition(
    tmp_path: Path, properties: dict[str, str]
) -> tuple[TaskCommit | TaskFailure, list[tuple[int, bool | None]]]:
    """Update a row in each of two files of two partitions, and insert rows into these and a third one."""
    schema = Schema(*(SCHEMA.find_field(name) for name in ("id", "amount", "flag", "text")))
    old_schema = Schema(*schema.fields[:3])
    tasks = []
    for ordinal, flag in enumerate((True, True, False, False)):
        path = tmp_path / f"old{next(NUMBERS)}.parquet"
        held = [{"id": 10 * ordinal + place, "amount": 0.5, "flag": flag} for place in range(4)]
        pq.write_table(arrow_table(old_schema, held, tmp_path), path, row_group_size=3)
        tasks.append(replace(target_files(path, schema, 4, partition=(flag,)).task(0), file_ordinal=ordinal))
    files = TargetFiles.of(tasks, ScanContext(schema_json=schema.model_dump_json(), projected_ids=()))
    values = [pa.array([9.0] * 4), pa.nulls(4, pa.int64()), pa.nulls(4, pa.bool_()), pa.nulls(4, pa.string())]
    names = list(DeltaLayout(value_ids=(3, 1, 4, 2)).column_names)
    changes = delta([(UPDATE, ordinal, 1) for ordinal in range(4)])
    new: list[tuple[int, bool | None]] = [(100, True), (101, False), (102, None), (103, True), (104, False)]
    inserts = delta([(RowOperation.INSERT, None, None)] * len(new))
    added = [
        pa.array([1.0] * len(new)),
        pa.array([number for number, _ in new]),
        pa.array([flag for _, flag in new], pa.bool_()),
        pa.array([f"new {number}" for number, _ in new]),
    ]
    commit = run(
        WriteJob.COPY_ON_WRITE,
        [
            pa.RecordBatch.from_arrays([*changes.columns, *values], names=names),
            pa.RecordBatch.from_arrays([*inserts.columns, *added], names=names),
        ],
        context(tmp_path / "new", schema=schema, specs=(BY_FLAG,), properties={**ALWAYS, **properties}),
        DeltaLayout(value_ids=(3, 1, 4, 2), assigned_ids=(3,), insert_ids=(3, 1, 4, 2)),
        files,
        splices=True,
        tracks_origins=True,
    )
    return commit, new


def java_files() -> list[Path]:
    """A data file of each shape that Iceberg's Java library wrote."""
    found: dict[Any, Any] = {}
    for table in ("all_types_parquet", "row_lineage", "evolved_schema", "deletion_vectors", "other_types", "streamed"):
        for path in sorted((JAVA / table).rglob("*.parquet")):
            if b"iceberg.schema" in (pq.read_metadata(path).metadata or {}) and "deletes" not in path.name:
                found.setdefault((table, pq.read_metadata(path).num_columns), path)
    return list(found.values())


@pytest.mark.parametrize("path", java_files(), ids=lambda path: path.relative_to(JAVA).parts[0])
def test_files_of_parquets_java_library(tmp_path: Path, path: Path) -> None:
    """Each column in turn takes the last row's value in the first row."""
    schema = Schema.model_validate_json(pq.read_metadata(path).metadata[b"iceberg.schema"])
    schema = Schema(*(field for field in schema.fields if field.field_id < 2**31 - 300))
    rows = pq.read_metadata(path).num_rows
    files = target_files(path, schema, rows)
    for field in schema.fields:
        values = pa.concat_arrays([part.batch.column(0) for part in files.rows(0, columns=(field.field_id,))])
        changes = changing([0], [values.slice(rows - 1)], (field.field_id,))
        spliced = update(tmp_path, files, schema, changes, (field.field_id,))
        whole = update(tmp_path, files, schema, changes, (field.field_id,), splices=False)
        (mine,), (theirs,) = spliced.data_files, whole.data_files
        assert len(spliced.spliced_files) == 1
        assert rows_of(mine.path, schema) == rows_of(theirs.path, schema)
        assert len(plain(mine.path)) == rows
        if path.relative_to(JAVA).parts[0] != "other_types":  # DuckDB knows no timestamps of both units in one file
            assert repr(duck(mine.path)) == repr(duck(theirs.path))


def test_files_of_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    duckdb.sql(
        f"COPY (SELECT i AS id, 'n' || (i % 7) AS name, i / 3 AS amount FROM range(5000) t(i)) TO '{path}' "
        "(FORMAT parquet, ROW_GROUP_SIZE 2048, FIELD_IDS {id: 1, name: 2, amount: 3})"
    )
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "name", StringType(), required=False),
        NestedField(3, "amount", DoubleType(), required=False),
    )
    files = target_files(path, schema, 5000)
    for field_id, value in ((1, pa.array([7])), (2, pa.array(["new"])), (3, pa.array([0.5]))):
        changes = changing([4000], [value], (field_id,))
        (mine,) = (spliced := update(tmp_path, files, schema, changes, (field_id,))).data_files
        (theirs,) = update(tmp_path, files, schema, changes, (field_id,), splices=False).data_files
        assert len(spliced.spliced_files) == 1
        assert duck(mine.path) == duck(theirs.path)
        assert plain(mine.path).to_pylist() == plain(theirs.path).to_pylist()


TWO = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType(), required=False),
)


def old_file(folder: Path, rows: int = 50, **writer: Any) -> Path:
    """A small file of `TWO`."""
    path = folder / f"old{next(NUMBERS)}.parquet"
    table = arrow_table(TWO, [{"id": place, "text": f"t{place}"} for place in range(rows)], folder)
    options = {"row_group_size": 20, "write_page_index": True, "bloom_filter_options": {"id": {"ndv": 50, "fpp": 0.1}}}
    pq.write_table(table, path, **{**options, **writer})
    return path


TEXT = changing([4, 45], [pa.array(["x", None], pa.string())], (2,))


def test_indexes_and_bloom_filters_are_copied_where_they_belong(tmp_path: Path) -> None:
    path = old_file(tmp_path)
    properties = {"write.parquet.bloom-filter-enabled.column.text": "true"}
    (file,) = update(tmp_path, target_files(path, TWO, 50), TWO, TEXT, (2,), properties=properties).data_files
    new, old = pq.read_metadata(file.path), pq.read_metadata(path)
    assert new.num_row_groups == 3
    for place in range(3):
        for column in range(2):
            chunk = new.row_group(place).column(column)
            assert (chunk.has_offset_index, chunk.has_column_index) == (True, True)
        assert new.row_group(place).column(0).statistics == old.row_group(place).column(0).statistics
    # DuckDB leaves out row groups by their bloom filters.
    name = file.path.removeprefix("file://")
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe('{}', '{}', {}) ORDER BY row_group_id"
    assert duckdb.sql(probe.format(name, "id", 30)).fetchall() == duckdb.sql(probe.format(path, "id", 30)).fetchall()
    assert (False,) in duckdb.sql(probe.format(name, "text", "'x'")).fetchall()
    assert (True,) in duckdb.sql(probe.format(name, "text", "'x'")).fetchall()
    assert duckdb.sql(f"SELECT id FROM '{name}' WHERE text = 'x'").fetchall() == [(4,)]
    assert duckdb.sql(f"SELECT text FROM '{name}' WHERE id = 30").fetchall() == [("t30",)]


def test_row_lineage_is_written_for_all_rows(tmp_path: Path) -> None:
    files = target_files(old_file(tmp_path), TWO, 50, first_row_id=1000)
    commit = update(tmp_path, files, TWO, TEXT, (2,), version=3, row_lineage=True)
    assert len(commit.spliced_files) == 1
    rows = read_back(commit)
    assert [row[ROW_ID] for row in rows] == list(range(1000, 1050))
    assert [row[LAST_UPDATED_SEQUENCE_NUMBER] for row in rows] == [
        None if place in {4, 45} else 7 for place in range(50)
    ]


@pytest.mark.parametrize(
    ("task", "properties"),
    [
        ({"file_format": "avro"}, {}),
        ({"spec_id": 1}, {}),
        ({}, {"write.splice.min-file-size-bytes": "1000000"}),
        (
            {
                "equality_deletes": (
                    DeleteFileRef(
                        path="e", file_format="parquet", equality_ids=(1,), record_count=1, file_size_in_bytes=50,
                        data_sequence_number=8,
                    ),
                )
            },
            {},
        ),
    ],
    ids=["format", "spec", "small", "equality deletes"],
)  # fmt: skip
def test_what_a_manifest_says_decides_first(tmp_path: Path, task: dict, properties: dict) -> None:
    found = target_files(old_file(tmp_path), TWO, 50, **task).task(0)
    options = WriteOptions.from_properties({**ALWAYS, **properties})
    assert not may_splice(found, 0, options)


@pytest.mark.parametrize(
    "writer",
    [
        {"use_deprecated_int96_timestamps": True},
        {"schema": pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])},
    ],
    ids=["INT96", "no field ids"],
)
def test_what_is_not_known_is_rewritten(tmp_path: Path, writer: dict) -> None:
    schema = Schema(*TWO.fields, NestedField(3, "at", TimestamptzType(), required=False))
    rows = [{"id": place, "text": "t", "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)} for place in range(50)]
    table = arrow_table(schema, rows, tmp_path)
    path = tmp_path / f"old{next(NUMBERS)}.parquet"
    if "schema" in writer:
        schema, table, writer = TWO, table.select(["id", "text"]).cast(writer["schema"]), {}
    pq.write_table(table, path, **writer)
    commit = update(tmp_path, target_files(path, schema, 50), schema, TEXT, (2,))
    assert commit.spliced_files == ()
    assert [row["text"] for row in read_back(commit)][3:6] == ["t", "x", "t"]


def with_footer(path: Path, change: Any) -> Path:
    """The file with another footer."""
    data = path.read_bytes()
    length = footer_length(data[-8:], len(data))
    footer = decode_struct(data[-8 - length : -8])[0]
    change(footer)
    new = encode_struct(footer)
    path.write_bytes(data[: -8 - length] + new + len(new).to_bytes(4, "little") + b"PAR1")
    return path


def chunk_of(footer: dict, group: int = 0, column: int = 0) -> dict:
    return footer[4][1][1][group][1][1][1][column]


def add_unknown_to_chunk(footer: dict) -> None:
    chunk_of(footer)[99] = (6, 4)


def add_unknown_to_file(footer: dict) -> None:
    footer[99] = (8, b"of the future")
    footer[98] = (11, (8, 5, [(b"a", 1)]))
    footer[97] = (9, (1, [1, 2]))
    footer[96] = (7, b"\x00" * 8)
    footer[95] = (1, False)


def old_writer(footer: dict) -> None:
    footer[6] = (8, b"parquet-mr version 1.8.1 (build x)")


def encrypted(footer: dict) -> None:
    footer[8] = (12, {})


def elsewhere(footer: dict) -> None:
    chunk_of(footer)[1] = (8, b"other.parquet")


def without_orders(footer: dict) -> None:
    del footer[7]


def behind_the_end(footer: dict) -> None:
    chunk_of(footer)[3][1][9] = (6, 10**12)


def negative(footer: dict) -> None:
    chunk_of(footer)[3][1][7] = (6, -5)


def overlapping(footer: dict) -> None:
    first, second = chunk_of(footer, 0), chunk_of(footer, 1)
    for place in (9, 11):
        if place in first[3][1] and place in second[3][1]:
            second[3][1][place] = first[3][1][place]


def unknown_codec(footer: dict) -> None:
    chunk_of(footer)[3][1][4] = (5, 42)


def fewer_values(footer: dict) -> None:
    chunk_of(footer)[3][1][5] = (6, 19)


def sorted_by_nothing(footer: dict) -> None:
    footer[4][1][1][0][4] = (5, 1)


def no_text(footer: dict) -> None:
    footer[6] = (5, 7)


def more_rows(footer: dict) -> None:
    footer[3] = (6, 51)


@pytest.mark.parametrize(
    ("change", "splices"),
    [
        (add_unknown_to_file, True),
        (add_unknown_to_chunk, False),
        (old_writer, False),
        (encrypted, False),
        (elsewhere, False),
        (without_orders, False),
        (behind_the_end, False),
        (negative, False),
        (overlapping, False),
        (more_rows, False),
        (unknown_codec, False),
        (fewer_values, False),
        (no_text, False),
        (sorted_by_nothing, False),
    ],
)
def test_what_a_footer_says_decides_next(tmp_path: Path, change: Any, splices: bool) -> None:
    """What is not spliced is left to today's way, which may find it broken."""
    path = with_footer(old_file(tmp_path), change)
    try:
        commit = update(tmp_path, target_files(path, TWO, 50), TWO, TEXT, (2,))
    except (CorruptFileError, DmlError):
        assert not splices
        return
    assert bool(commit.spliced_files) is splices
    if splices:
        (file,) = commit.data_files
        data = Path(file.path.removeprefix("file://")).read_bytes()
        length = footer_length(data[-8:], len(data))
        fields = decode_struct(data[-8 - length : -8])[0]
        kept: dict = {}
        change(kept)
        assert {key: fields[key] for key in kept} == kept


@pytest.mark.parametrize("field_id", [1, 2], ids=["place", "size"])
def test_a_file_with_a_broken_offset_index_is_rewritten(tmp_path: Path, field_id: int) -> None:
    path = old_file(tmp_path)
    data = bytearray(path.read_bytes())
    length = footer_length(bytes(data[-8:]), len(data))
    place, size = (chunk_of(decode_struct(bytes(data[-8 - length : -8]))[0])[key][1] for key in (4, 5))
    index = decode_struct(bytes(data[place : place + size]))[0]
    kind, found = index[1][1][1][0][field_id]
    index[1][1][1][0][field_id] = (kind, found + 1)
    changed = encode_struct(index)
    assert len(changed) == size
    data[place : place + size] = changed
    path.write_bytes(data)
    commit = update(tmp_path, target_files(path, TWO, 50), TWO, TEXT, (2,))
    assert commit.spliced_files == ()
    assert [row["text"] for row in read_back(commit)][3:6] == ["t3", "x", "t5"]


def test_a_column_that_is_longer_than_its_footer_says_is_not_cut_off(tmp_path: Path) -> None:
    """Without an offset index the headers of pages say where a column ends, also across the blocks of a copy."""

    def shorter(footer: dict) -> None:
        sizes = chunk_of(footer)[3][1]
        sizes[7] = (6, sizes[7][1] - 3)

    whole = old_file(tmp_path, write_page_index=False)
    for block in (1, 7, 50, 2**20):
        with mock.patch.object(limits, "COPY_BYTES", block):
            (file,) = (commit := update(tmp_path, target_files(whole, TWO, 50), TWO, TEXT, (2,))).data_files
        assert len(commit.spliced_files) == 1
        assert plain(file.path).column("id").to_pylist() == list(range(50))
    path = with_footer(old_file(tmp_path, write_page_index=False), shorter)
    with pytest.raises(CorruptFileError, match=r"cannot be read: it has a column that ends at \d+, but a page"):
        update(tmp_path, target_files(path, TWO, 50), TWO, TEXT, (2,))
    indexed = with_footer(old_file(tmp_path), shorter)
    with pytest.raises(CorruptFileError, match="cannot be read"):  # by the rewrite
        update(tmp_path, target_files(indexed, TWO, 50), TWO, TEXT, (2,))


def test_indexes_are_read_at_once(tmp_path: Path) -> None:
    """The reads of a file of many columns and row groups: an object store answers each of them after a while."""
    schema = Schema(*(NestedField(place, f"c{place}", LongType(), required=False) for place in range(1, 31)))
    path = tmp_path / "wide.parquet"
    rows = [dict.fromkeys([field.name for field in schema.fields], place) for place in range(60)]
    filters = {f"c{place}": {"ndv": 20, "fpp": 0.1} for place in range(1, 31)}
    table = arrow_table(schema, rows, tmp_path)
    pq.write_table(table, path, row_group_size=20, write_page_index=True, bloom_filter_options=filters)
    reads: list[int] = []
    real = splice_columns.read_exactly

    def counted(stream: Any, start: int, length: int) -> bytes:
        reads.append(length)
        return real(stream, start, length)

    with mock.patch.object(splice_columns, "read_exactly", counted):
        commit = update(tmp_path, target_files(path, schema, 60), schema, changing([4], [pa.array([7])], (15,)), (15,))
    assert len(commit.spliced_files) == 1
    # The footer; two runs of columns in each row group; offset indexes; column indexes and bloom filters.
    assert len(reads) <= 1 + 3 * 2 + 1 + 2


def test_the_schema_in_the_footer_is_that_of_the_file(tmp_path: Path) -> None:
    """Readers that go by it must find what is there: a promoted column is stored as it was."""
    old = Schema(
        NestedField(1, "id", IntegerType(), required=True),
        NestedField(2, "text", StringType(), required=False),
        NestedField(3, "inner", StructType(NestedField(4, "a", IntegerType(), required=False)), required=False),
        schema_id=3,
    )
    new = Schema(
        NestedField(1, "key", LongType(), required=True),
        NestedField(2, "text", StringType(), required=False),
        NestedField(3, "inner", StructType(NestedField(5, "b", LongType(), required=False)), required=False),
        schema_id=4,
    )
    table = arrow_table(old, [{"id": place, "text": "t", "inner": {"a": 1}} for place in range(50)], tmp_path)
    for known in (True, False):
        path = tmp_path / f"old{next(NUMBERS)}.parquet"
        metadata = {"iceberg.schema": old.model_dump_json()} if known else {"iceberg.schema": "{"}
        pq.write_table(table.replace_schema_metadata(metadata), path)
        (file,) = (commit := update(tmp_path, target_files(path, new, 50), new, TEXT, (2,))).data_files
        assert len(commit.spliced_files) == 1
        found = (pq.read_metadata(file.path.removeprefix("file://")).metadata or {}).get(b"iceberg.schema")
        if known:
            assert Schema.model_validate_json(found).fields == (
                NestedField(1, "key", IntegerType(), required=True),
                NestedField(2, "text", StringType(), required=False),
                NestedField(3, "inner", StructType(NestedField(4, "a", IntegerType(), required=False)), required=False),
            )
        else:
            assert found is None
            data = Path(file.path.removeprefix("file://")).read_bytes()
            assert 5 not in decode_struct(data, len(data) - 8 - footer_length(data[-8:], len(data)))[0]


@pytest.mark.parametrize("absent", [True, False])
def test_a_dictionary_that_is_not_said_to_be_there(tmp_path: Path, *, absent: bool) -> None:
    """Old writers gave the place of the dictionary as that of the first data page, and 0 as its own."""

    def as_java_wrote(footer: dict) -> None:
        for group in footer[4][1][1]:
            for chunk in group[1][1][1]:
                meta_data = chunk[3][1]
                meta_data[9] = meta_data.pop(11)
                if not absent:
                    meta_data[11] = (6, 0)

    path = with_footer(old_file(tmp_path, use_dictionary=True), as_java_wrote)
    (file,) = (commit := update(tmp_path, target_files(path, TWO, 50), TWO, TEXT, (2,))).data_files
    assert len(commit.spliced_files) == 1
    assert plain(file.path).column("id").to_pylist() == list(range(50))
    assert file.split_offsets[0] == 4
    assert list(file.split_offsets) == sorted(set(file.split_offsets))


def test_columns_that_do_not_fit_in_memory_are_rewritten_in_parts(tmp_path: Path) -> None:
    """The new columns of a row group are there at once; a dictionary hides how long its texts are."""
    rows = [{"id": place, "text": "long" * 300} for place in range(100)]
    path = tmp_path / f"old{next(NUMBERS)}.parquet"
    pq.write_table(arrow_table(TWO, rows, tmp_path), path)
    assert path.stat().st_size < 10_000
    files = target_files(path, TWO, 100)
    ids = changing([4], [pa.array([-1])], (1,))
    with mock.patch.object(limits, "MAX_SPLICED_BYTES", 100_000):
        assert update(tmp_path, files, TWO, TEXT, (2,)).spliced_files == ()
        assert len(update(tmp_path, files, TWO, ids, (1,)).spliced_files) == 1
    assert len(update(tmp_path, files, TWO, TEXT, (2,)).spliced_files) == 1


def test_what_fails_while_a_file_is_written_is_not_the_old_files_fault(tmp_path: Path) -> None:
    error = pa.ArrowMemoryError("malloc of size 4096 failed")
    with (
        mock.patch.object(splicing.NewColumns, "row_group", side_effect=error),
        pytest.raises(DmlError, match="Writing failed in the task of partition 3: ArrowMemoryError") as found,
    ):
        update(tmp_path, target_files(old_file(tmp_path), TWO, 50), TWO, TEXT, (2,))
    assert not isinstance(found.value, CorruptFileError)
    assert [file for file in stored_files(tmp_path) if "data" in file.parts] == []


@pytest.mark.parametrize(
    ("created_by", "old"),
    [
        ("parquet-mr version 1.8.1 (build x)", True),
        ("parquet-mr version 1.13.1 (build x)", False),
        ("parquet-mr", True),
        ("parquet-mr-trino version 480 (build n/a)", False),
        ("parquet-cpp-arrow version 2.0.0", True),
        ("parquet-cpp-arrow version 26.0.1", False),
        ("parquet-cpp-arrow", True),
        ("parquet-cpp version 1.5.0", True),
        ("impala version 4.0", True),
        ("DuckDB version v1.5.5 (build x)", False),
        ("", False),
    ],
)
def test_old_writers(created_by: str, *, old: bool) -> None:
    assert is_old_writer(created_by) is old


def test_a_wrong_value_and_a_row_that_is_not_there_leave_no_file(tmp_path: Path) -> None:
    files = target_files(old_file(tmp_path), TWO, 50)
    with pytest.raises(DataError) as found:
        update(tmp_path, files, TWO, changing([45], [pa.array([None], pa.int64())], (1,)), (1,))
    assert found.value.kind is ErrorKind.NOT_NULL_VIOLATION
    with pytest.raises(DmlError, match="position 50"):
        update(tmp_path, files, TWO, changing([50], [pa.array(["x"])], (2,)), (2,))
    assert [file for file in stored_files(tmp_path) if "data" in file.parts] == []


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_a_damaged_footer_is_an_error_or_a_footer_within_the_file(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever a few bytes become, nothing is taken for true that lies outside of the file."""
    whole = old_file(tmp_path).read_bytes()
    length = footer_length(whole[-8:], len(whole))
    footer = bytearray(whole[-8 - length : -8])
    for _ in range(data.draw(st.integers(1, 4))):
        footer[data.draw(st.integers(0, length - 1))] = data.draw(st.integers(0, 255))
    start = len(whole) - 8 - length
    try:
        found = Footer.of(bytes(footer), start)
    except ValueError:
        return
    found.obstacle()
    for group in found.row_groups:
        for chunk in group.chunks:
            for place, size in chunk.ranges():
                assert 0 <= place <= place + size <= start


@given(st.binary(max_size=200))
@example(b"\x19\xfc\xff\xff\xff\xff\x0f" + b"\x00" * 10)
@example(b"\x1c" * 200)
@example(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
def test_any_bytes_are_a_struct_or_an_error(data: bytes) -> None:
    try:
        fields, length = decode_struct(data)
    except ValueError:
        return
    assert length <= len(data)
    assert decode_struct(encode_struct(fields))[0] == fields
