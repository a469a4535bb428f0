"""Spliced files that lose rows, against rewritten ones: row groups in which nothing changes are copied."""

from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType, StructType

from dml import limits
from dml.errors import DmlError
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID, DeltaLayout, RowOperation
from dml.model.scan_task import DeleteFileRef
from dml.model.write_task import TaskCommit, TaskFailure
from dml.read.reader import PieceReader, TargetFiles
from dml.splice.footer import Chunk, Footer, footer_length
from dml.splice.thrift_compact import I16, I64, LIST, STRUCT, decode_struct, encode_struct, list_of, value_of
from dml.write import splicing
from dml.write.writer_spec import WriteJob
from tests.dml.write.builders import context, delta, read_back, run, stored_files
from tests.dml.write.test_splicing import (
    ALWAYS,
    JAVA,
    NUMBERS,
    SCHEMA,
    TWO,
    VALUES,
    WRITERS,
    arrow_table,
    chunk_of,
    duck,
    entry_of,
    java_files,
    old_file,
    plain,
    published,
    rows_of,
    target_files,
    with_footer,
)

DELETE, UPDATE = RowOperation.DELETE, RowOperation.UPDATE
COUNTS = ("value_counts", "null_value_counts", "nan_value_counts")
METRICS = (*COUNTS, "lower_bounds", "upper_bounds")


def change(
    folder: Path,
    files: TargetFiles,
    schema: Schema,
    changes: list[tuple[RowOperation, int]],
    values: pa.RecordBatch | None = None,
    *,
    splices: bool = True,
    **more: Any,
) -> TaskCommit:
    """One task that deletes and updates rows of its one file; values for each change, where there are any."""
    ids = () if values is None else tuple(int(field.metadata[b"PARQUET:field_id"]) for field in values.schema)
    target = context(
        folder / str(next(NUMBERS)), schema=schema, properties={**ALWAYS, **more.pop("properties", {})}, **more
    )
    layout = DeltaLayout(value_ids=ids, assigned_ids=ids)
    shell = delta([(operation, 0, place) for operation, place in changes])
    columns = [*shell.columns, *(() if values is None else values.columns)]
    batch = pa.RecordBatch.from_arrays(columns, names=list(layout.column_names))
    commit = run(
        WriteJob.COPY_ON_WRITE, [batch], target, layout, files, splices=splices, deletes=True, tracks_origins=True
    )
    if isinstance(commit, TaskFailure):
        raise commit.error
    return commit


def deletes_of(folder: Path, data_file: Path, places: list[int]) -> DeleteFileRef:
    """A position delete file."""
    path = folder / f"deletes{next(NUMBERS)}.parquet"
    fields = [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
    pq.write_table(pa.table([[f"file://{data_file}"] * len(places), places], schema=pa.schema(fields)), path)
    return DeleteFileRef(
        path=f"file://{path}", file_format="parquet", record_count=len(places), file_size_in_bytes=path.stat().st_size,
        data_sequence_number=8,
    )  # fmt: skip


def footer_of(path: str | Path) -> Footer:
    data = Path(str(path).removeprefix("file://")).read_bytes()
    length = footer_length(data[-8:], len(data))
    return Footer.of(data[-8 - length : -8], len(data) - 8 - length)


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=settings.default.max_examples // 3)
@given(data=st.data(), names=st.sets(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5), writer=WRITERS)
def test_random_losses_are_as_full_rewrites(tmp_path: Path, data: st.DataObject, names: set[str], writer: dict) -> None:
    schema = Schema(*(field for field in SCHEMA.fields if field.name in names))
    row = st.fixed_dictionaries({name: VALUES[name] for name in sorted(names)})
    rows = data.draw(st.lists(row, min_size=1, max_size=30))
    size = data.draw(st.integers(1, 8))
    places = st.integers(0, len(rows) - 1) | st.integers(0, min(size, len(rows)) - 1)
    dead = data.draw(st.just(set()) | st.sets(places, max_size=3))
    fates = data.draw(st.dictionaries(places, st.sampled_from([DELETE, DELETE, UPDATE]), min_size=1, max_size=6))
    changes = [(fates[place], place) for place in sorted(fates) if place not in dead]
    assigned = data.draw(st.sets(st.sampled_from(sorted(names)), max_size=len(names)))
    if not assigned:
        changes = [(DELETE, place) for _, place in changes]
    if not changes:
        return
    news = data.draw(st.lists(row, min_size=len(changes), max_size=len(changes)))
    path = tmp_path / f"old{next(NUMBERS)}.parquet"
    writer = writer if "text" in names else {**writer, "bloom_filter_options": None}
    pq.write_table(arrow_table(schema, rows, tmp_path), path, **{**writer, "row_group_size": size})
    values = arrow_table(schema, news, tmp_path).select(
        [field.name for field in schema.fields if field.name in assigned]
    )
    task = {"position_deletes": (deletes_of(tmp_path, path, sorted(dead)),)} if dead else {}
    files = target_files(path, schema, len(rows), first_row_id=1000, **task)
    version = {"version": 3, "row_lineage": True} if data.draw(st.booleans()) else {}
    new = values.combine_chunks().to_batches()[0] if assigned else None
    spliced = change(tmp_path, files, schema, changes, new, **version)
    whole = change(tmp_path, files, schema, changes, new, splices=False, **version)
    assert (spliced.changed_files, spliced.metrics) == (whole.changed_files, whole.metrics)
    assert len(spliced.data_files) == len(whole.data_files)
    if not spliced.data_files:
        assert len(changes) + len(dead) == len(rows)
        return
    (mine,), (theirs,) = spliced.data_files, whole.data_files
    assert repr(plain(mine.path).to_pylist()) == repr(plain(theirs.path).to_pylist())
    assert plain(mine.path).schema.equals(plain(theirs.path).schema, check_metadata=False)
    assert repr(duck(mine.path)) == repr(duck(theirs.path))
    assert mine.record_count == theirs.record_count == len(rows) - len(dead) - sum(f is DELETE for f, _ in changes)
    assert mine.file_size_in_bytes == Path(mine.path.removeprefix("file://")).stat().st_size
    assert list(mine.split_offsets) == sorted(set(mine.split_offsets))
    (mine_origins,), (their_origins,) = spliced.row_origins, whole.row_origins
    assert [part.tolist() for part in mine_origins.decode()] == [part.tolist() for part in their_origins.decode()]
    if spliced.spliced_files:
        mine = published(spliced, entry_of(path, schema, tmp_path), schema, tmp_path)
    gone = len(footer_of(path).row_groups) > len(footer_of(mine.path).row_groups)
    for metric in METRICS:
        found, wanted = getattr(mine, metric), getattr(theirs, metric)
        if metric == "nan_value_counts" and gone:  # nobody has looked at rows that left by row groups
            wanted = {key: number for key, number in wanted.items() if key in found}
        assert found == wanted, metric
    footer_of(mine.path)


def test_row_groups_in_which_nothing_changes_are_not_read(tmp_path: Path) -> None:
    path = old_file(tmp_path)
    values = arrow_table(TWO, [{"id": 0, "text": "new"}], tmp_path).select(["text"]).combine_chunks().to_batches()[0]
    files = target_files(path, TWO, 50)
    with mock.patch.object(PieceReader, "rows", autospec=True, side_effect=PieceReader.rows) as read:
        commit = change(tmp_path, files, TWO, [(DELETE, place) for place in (1, *range(40, 50))])
    assert [call.args[1] for call in read.call_args_list] == [0]
    assert [group.rows for group in footer_of(commit.data_files[0].path).row_groups] == [19, 20]
    with mock.patch.object(PieceReader, "rows", autospec=True, side_effect=PieceReader.rows) as read:
        commit = change(tmp_path, files, TWO, [(DELETE, 21), (UPDATE, 45)], pa.concat_batches([values, values]))
    assert [call.args[1] for call in read.call_args_list] == [1, 2]
    new, old = footer_of(commit.data_files[0].path), footer_of(path)
    assert [group.rows for group in new.row_groups] == [20, 19, 10]
    assert [pages(path, chunk) for chunk in old.row_groups[0].chunks] == [
        pages(commit.data_files[0].path, chunk) for chunk in new.row_groups[0].chunks
    ]
    assert pages(path, old.row_groups[2].chunks[0]) == pages(commit.data_files[0].path, new.row_groups[2].chunks[0])
    assert [value_of(group.fields, 7, I16) for group in new.row_groups] == [0, 1, 2]
    assert [row["id"] for row in read_back(commit)] == [place for place in range(50) if place != 21]


def pages(path: str | Path, chunk: Chunk) -> bytes:
    start, length = chunk.pages
    return Path(str(path).removeprefix("file://")).read_bytes()[start : start + length]


def test_what_is_worth_it(tmp_path: Path) -> None:
    """A file of which every row group loses rows is rewritten; of one that loses all rows nothing is read."""
    files = target_files(old_file(tmp_path), TWO, 50)
    with mock.patch.object(splicing, "read_offset_indexes") as indexes:  # which is known by the footer alone
        assert change(tmp_path, files, TWO, [(DELETE, place) for place in (1, 21, 41)]).spliced_files == ()
    assert indexes.call_count == 0
    assert change(tmp_path, files, TWO, [(DELETE, place) for place in (1, *range(20, 50))]).spliced_files == ()
    with mock.patch.object(PieceReader, "rows", autospec=True) as read:
        commit = change(tmp_path, files, TWO, [(DELETE, place) for place in range(50)])
    assert (commit.data_files, commit.removed_data_files, read.call_count) == ((), (files.task(0).path,), 0)
    assert (commit.changed_files[0].rows_before, commit.metrics.rows_carried) == (50, 0)
    with mock.patch.object(limits, "MAX_HELD_CHANGE_BYTES", 0):  # changes that are too many to be kept
        assert change(tmp_path, files, TWO, [(DELETE, place) for place in range(30)]).spliced_files == ()
        commit = change(tmp_path, files, TWO, [(DELETE, place) for place in range(45, 50)])
    assert (len(commit.spliced_files), commit.metrics.rows_carried) == (1, 45)


def test_a_row_group_that_does_not_fit_in_memory_is_written_in_parts(tmp_path: Path) -> None:
    """Where its rows may leave: then a file can have other row groups than before."""
    new = arrow_table(TWO, [{"id": 0, "text": "x"}] * 2, tmp_path).select(["text"]).combine_chunks().to_batches()[0]
    files = target_files(old_file(tmp_path), TWO, 50)
    with mock.patch.object(limits, "MAX_SPLICED_BYTES", 50):
        commit = change(
            tmp_path, files, TWO, [(DELETE, 1), (UPDATE, 21)], new, properties={"write.parquet.row-group-limit": "15"}
        )
    assert [group.rows for group in footer_of(commit.data_files[0].path).row_groups] == [15, 15, 9, 10]
    assert [row["text"] for row in read_back(commit)] == [
        "x" if place == 21 else f"t{place}" for place in range(50) if place != 1
    ]


def test_row_lineage_of_rows_that_move(tmp_path: Path) -> None:
    """Row ids follow from places, which change: they are written for all rows, filled in where a file has them."""
    path = old_file(tmp_path)
    files = target_files(path, TWO, 50, first_row_id=1000)
    commit = change(tmp_path, files, TWO, [(DELETE, 3)], version=3, row_lineage=True)
    assert len(commit.spliced_files) == 1
    kept = [place for place in range(50) if place != 3]
    assert [row[ROW_ID] for row in read_back(commit)] == [1000 + place for place in kept]
    assert {row[LAST_UPDATED_SEQUENCE_NUMBER] for row in read_back(commit)} == {7}
    new = arrow_table(TWO, [{"id": 0, "text": "x"}], tmp_path).select(["text"]).combine_chunks().to_batches()[0]
    updated = change(tmp_path, files, TWO, [(UPDATE, 3)], new, version=3, row_lineage=True)
    again = Path(updated.data_files[0].path.removeprefix("file://"))  # NULL as sequence number of the updated row
    commit = change(
        tmp_path,
        target_files(again, TWO, 50, first_row_id=5000, data_sequence_number=9),
        TWO,
        [(DELETE, 45)],
        version=3,
        row_lineage=True,
    )
    assert len(commit.spliced_files) == 1
    rows = read_back(commit)
    assert [row[ROW_ID] for row in rows] == [1000 + place for place in range(50) if place != 45]
    assert [row[LAST_UPDATED_SEQUENCE_NUMBER] for row in rows] == [9 if row["id"] == 3 else 7 for row in rows]


@pytest.mark.parametrize("path", java_files(), ids=lambda path: path.relative_to(JAVA).parts[0])
def test_files_of_parquets_java_library_lose_rows(tmp_path: Path, path: Path) -> None:
    """In one row group they are rewritten; joined with themselves they have two, of which one is copied."""
    schema = Schema.model_validate_json(pq.read_metadata(path).metadata[b"iceberg.schema"])
    schema = Schema(*(field for field in schema.fields if field.field_id < 2**31 - 300))
    rows = pq.read_metadata(path).num_rows
    twice = doubled(path, tmp_path)
    files = target_files(twice, schema, 2 * rows)
    spliced = change(tmp_path, files, schema, [(DELETE, rows)])
    whole = change(tmp_path, files, schema, [(DELETE, rows)], splices=False)
    (mine,), (theirs,) = spliced.data_files, whole.data_files
    assert len(spliced.spliced_files) == 1
    assert rows_of(mine.path, schema) == rows_of(theirs.path, schema)
    for metric in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds"):
        assert getattr(mine, metric) == getattr(theirs, metric), metric
    if path.relative_to(JAVA).parts[0] != "other_types":  # DuckDB knows no timestamps of both units in one file
        assert repr(duck(mine.path)) == repr(duck(theirs.path))


def doubled(path: Path, folder: Path) -> Path:
    """A file with all its row groups twice: the pages are not touched."""
    data = path.read_bytes()
    start = len(data) - 8 - footer_length(data[-8:], len(data))
    fields = decode_struct(data[start:-8])[0]
    body = data[4:start]
    first = list_of(fields, 4, STRUCT) or []
    second = decode_struct(data[start:-8])[0][4][1][1]
    for group in second:
        for chunk in group[1][1][1]:
            for place in (4, 6):
                if place in chunk:
                    chunk[place] = (I64, chunk[place][1] + len(body))
            for place in (9, 11, 14):
                if chunk[3][1].get(place, (I64, 0))[1] > 0:
                    chunk[3][1][place] = (I64, chunk[3][1][place][1] + len(body))
    # The pages' places stand in the offset indexes, too: without them readers go by the chunks.
    for group in (*first, *second):
        for chunk in group[1][1][1]:
            for place in (4, 5, 6, 7):
                chunk.pop(place, None)
    fields[3] = (I64, 2 * fields[3][1])
    fields[4] = (LIST, (STRUCT, [*first, *second]))
    footer = encode_struct(fields)
    new = folder / f"twice{next(NUMBERS)}.parquet"
    new.write_bytes(b"PAR1" + body + body + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return new


def test_files_of_duckdb_lose_rows(tmp_path: Path) -> None:
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
    spliced = change(tmp_path, files, schema, [(DELETE, 4500), (DELETE, 4501)])
    whole = change(tmp_path, files, schema, [(DELETE, 4500), (DELETE, 4501)], splices=False)
    (mine,), (theirs,) = spliced.data_files, whole.data_files
    assert len(spliced.spliced_files) == 1
    assert duck(mine.path) == duck(theirs.path)
    assert plain(mine.path).to_pylist() == plain(theirs.path).to_pylist()
    assert {metric: getattr(mine, metric) for metric in METRICS} == {
        metric: getattr(theirs, metric) for metric in METRICS
    }


def test_columns_of_other_types_than_ours_are_written_anew(tmp_path: Path) -> None:
    """A promoted column, one that the table has dropped, and one that the file lacks."""
    old = Schema(
        NestedField(1, "id", IntegerType(), required=True),
        NestedField(2, "text", StringType(), required=False),
        NestedField(3, "ratio", FloatType(), required=False),
        NestedField(4, "gone", StringType(), required=False),
    )
    new = Schema(
        NestedField(1, "key", LongType(), required=True),
        NestedField(5, "added", StringType(), required=False),
        NestedField(2, "words", StringType(), required=False),
        NestedField(3, "ratio", DoubleType(), required=False),
    )
    path = tmp_path / "old.parquet"
    rows = [{"id": place, "text": f"t{place}", "ratio": place / 4, "gone": "g"} for place in range(40)]
    pq.write_table(arrow_table(old, rows, tmp_path), path, row_group_size=10)
    commit = change(tmp_path, target_files(path, new, 40), new, [(DELETE, 4)])
    (file,) = commit.data_files
    assert len(commit.spliced_files) == 1
    assert plain(file.path).to_pylist() == [
        {"key": place, "words": f"t{place}", "ratio": place / 4} for place in range(40) if place != 4
    ]
    assert plain(file.path).schema.field("key").type == pa.int64()
    found, was = footer_of(file.path), footer_of(path)
    assert pages(file.path, found.row_groups[1].chunks[1]) == pages(path, was.row_groups[1].chunks[1])
    assert pages(file.path, found.row_groups[1].chunks[0]) != pages(path, was.row_groups[1].chunks[0])


def test_columns_that_a_file_lacks_have_the_metrics_of_a_rewritten_one(tmp_path: Path) -> None:
    """They are NULL in each row, by which whoever looks for a value leaves the file out; one with a default is not."""
    inner = (NestedField(6, "a", IntegerType(), required=False), NestedField(7, "b", DoubleType(), required=False))
    old = Schema(*TWO.fields, NestedField(5, "inner", StructType(inner[0]), required=False))
    new = Schema(
        *TWO.fields,
        NestedField(5, "inner", StructType(*inner), required=False),
        NestedField(3, "added", DoubleType(), required=False),
        NestedField(4, "given", IntegerType(), required=False, initial_default=7),
    )
    path = tmp_path / "old.parquet"
    rows = [{"id": place, "text": f"t{place}", "inner": {"a": place}} for place in range(40)]
    pq.write_table(arrow_table(old, rows, tmp_path), path, row_group_size=10)
    files, entry = target_files(path, new, 40), entry_of(path, old, tmp_path)
    text = pa.record_batch([pa.array(["x"])], schema=pa.schema([pa.field("text", pa.string(), metadata=TEXT_ID)]))
    for values, changes in ((None, [(DELETE, 4)]), (text, [(UPDATE, 4)])):
        mine = published(change(tmp_path, files, new, changes, values), entry, new, tmp_path)
        (theirs,) = change(tmp_path, files, new, changes, values, splices=False).data_files
        for metric in METRICS:
            wanted = {key: value for key, value in getattr(theirs, metric).items() if key != 4}
            assert getattr(mine, metric) == wanted, metric
        assert mine.null_value_counts[3] == mine.value_counts[3] == mine.null_value_counts[7] == mine.record_count


TEXT_ID = {"PARQUET:field_id": "2"}


def test_changes_that_do_not_fit_leave_no_file(tmp_path: Path) -> None:
    path = old_file(tmp_path)
    files = target_files(path, TWO, 50, position_deletes=(deletes_of(tmp_path, path, [3]),))
    with pytest.raises(DmlError, match="Cannot change a row that was deleted before"):
        change(tmp_path, files, TWO, [(DELETE, 3)])
    with pytest.raises(DmlError, match="position 50"):
        change(tmp_path, target_files(path, TWO, 50), TWO, [(DELETE, 3), (DELETE, 50)])
    assert [file for file in stored_files(tmp_path) if "data" in file.parts] == []


def test_a_damaged_row_group_is_found_where_it_is_copied(tmp_path: Path) -> None:
    """Nobody decodes it: its pages must follow each other to its end all the same."""
    path = old_file(tmp_path, write_page_index=False)

    def shorter(footer: dict) -> None:
        sizes = chunk_of(footer)[3][1]
        sizes[7] = (6, sizes[7][1] - 3)

    assert len(change(tmp_path, target_files(path, TWO, 50), TWO, [(DELETE, 25)]).spliced_files) == 1
    with_footer(path, shorter)
    with pytest.raises(DmlError, match=r"cannot be read: it has a column that ends at \d+, but a page"):
        change(tmp_path, target_files(path, TWO, 50), TWO, [(DELETE, 25)])


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=settings.default.max_examples // 3)
@given(data=st.data())
def test_a_damaged_footer_never_makes_other_rows(tmp_path: Path, data: st.DataObject) -> None:
    """What a rewrite can read, a splice copies, or it is an error; a rewrite never sees what was copied wrongly."""
    path = old_file(tmp_path, write_page_index=data.draw(st.booleans()))
    whole = bytearray(path.read_bytes())
    length = footer_length(bytes(whole[-8:]), len(whole))
    for _ in range(data.draw(st.integers(1, 2))):
        whole[-9 - data.draw(st.integers(0, length - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    files = target_files(path, TWO, 50)
    try:
        wanted = read_back(change(tmp_path, files, TWO, [(DELETE, 25)], splices=False))
    except DmlError:
        return
    try:
        found = change(tmp_path, files, TWO, [(DELETE, 25)])
    except DmlError:
        return
    # Another field id makes a column one that the file lacks: a splice keeps it so, and readers return NULL.
    assert [dict.fromkeys(("id", "text")) | row for row in read_back(found)] == wanted
