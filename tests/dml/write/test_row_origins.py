"""Where the rows of rewritten files come from: found again wherever partitioning, sorting and rolling put them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from dml.model.columns import DeltaLayout, RowOperation
from dml.model.write_task import NEW_ROWS, RowOrigins, TaskCommit
from dml.write import partitioning
from dml.write.delta_rows import OriginLog
from dml.write.writer_spec import WriteJob
from tests.dml.write.builders import BY_NAME, UNPARTITIONED, MemoryFiles, context, delta, run, table

DELETE, UPDATE, INSERT = RowOperation.DELETE, RowOperation.UPDATE, RowOperation.INSERT
MERGE = DeltaLayout(value_ids=(1, 2, 3), assigned_ids=(2,), insert_ids=(1, 2, 3))
TYPES = (pa.int64(), pa.string(), pa.float64())
DESCENDING = SortOrder(
    SortField(
        source_id=1, transform=IdentityTransform(), direction=SortDirection.DESC, null_order=NullOrder.NULLS_LAST
    ),
    order_id=1,
)


def batch(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(rows), pa.int64())], names=["x"])


def places(commit: TaskCommit, ordinal: int, position: int) -> list[tuple[str, int]]:
    """Where a row is, as the origins say."""
    found = []
    for origins in commit.row_origins:
        hits, there = origins.find(ordinal, np.array([position]))
        assert len(there) == hits.sum()
        found += [(origins.data_file, int(place)) for place in there]
    return found


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 23), min_size=1, max_size=3),
    operations=st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 22)), st.sampled_from([DELETE, UPDATE])),
    dead=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 22))),
    inserts=st.integers(0, 5),
    partitioned=st.booleans(),
    ordered=st.booleans(),
    roll=st.sampled_from([3, 1000]),
)
def test_every_carried_row_is_found(
    sizes: list[int],
    operations: dict[tuple[int, int], RowOperation],
    dead: set[tuple[int, int]],
    inserts: int,
    partitioned: bool,
    ordered: bool,
    roll: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    files = MemoryFiles()
    for ordinal, size in enumerate(sizes):
        ids = [100 * ordinal + row for row in range(size)]
        gone = [row for file, row in sorted(dead) if file == ordinal and row < size]
        files.add(table(ids, [f"p{id_ % 3}" for id_ in ids]), deleted=gone)
    live = {(file, row) for file, size in enumerate(sizes) for row in range(size)} - dead
    changes = [(what, *row, None, f"p{row[1] % 2}", None) for row, what in sorted(operations.items()) if row in live]
    if not changes:
        return
    added = [(INSERT, None, None, -1 - number, "p0", 0.5) for number in range(inserts)]
    write = context(
        tmp_path_factory.mktemp("origins"),
        specs=(BY_NAME,) if partitioned else (UNPARTITIONED,),
        properties={"write.target-file-size-bytes": "200"},
        **({"sorted_by_table_order": True} if ordered else {}),
    )
    if ordered:
        write = replace(write, sort_order_json=DESCENDING.model_dump_json())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioning, "CHECK_ROWS", roll)
        rows = delta([*changes, *added], TYPES)
        commit = run(WriteJob.COPY_ON_WRITE, [rows], write, MERGE, files, tracks_origins=True, sorts_rows=ordered)
    assert isinstance(commit, TaskCommit), commit
    contents = {file.path: pq.read_table(file.path, partitioning=None)["id"].to_pylist() for file in commit.data_files}
    assert {origins.data_file for origins in commit.row_origins} == set(contents)
    for origins in commit.row_origins:
        assert sum(origins.decode()[1]) == len(contents[origins.data_file])
    rewritten = {change[1] for change in changes}
    for file, size in enumerate(sizes):
        for row in range(size):
            found = places(commit, file, row)
            kept = file in rewritten and (file, row) in live and operations.get((file, row)) is not DELETE
            assert len(found) == kept
            assert all(contents[path][place] == 100 * file + row for path, place in found)


def test_nothing_is_noted_where_nobody_asks(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.add(table([1, 2]))
    commit = run(WriteJob.COPY_ON_WRITE, [delta([(DELETE, 0, 0)])], context(tmp_path), DeltaLayout(), files)
    assert commit.row_origins == ()


@pytest.mark.parametrize(("tasks", "told"), [(1, True), (2**27, False)])
@pytest.mark.parametrize("job", [WriteJob.COPY_ON_WRITE, WriteJob.MERGE_ON_READ])
def test_many_tasks_share_what_they_may_tell(tmp_path: Path, job: WriteJob, tasks: int, told: bool) -> None:
    """Spark gives up a job whose results are too large: rows are left out, and the counts are there all the same."""
    files = MemoryFiles()
    files.add(table([1, 2, 3]))
    commit = run(
        job, [delta([(DELETE, 0, 0)])], context(tmp_path), DeltaLayout(), files, tracks_origins=True, tasks=tasks
    )
    assert isinstance(commit, TaskCommit), commit
    (changed,) = commit.changed_files
    assert changed.rows_deleted == 1
    assert (changed.deleted is not None) is told
    assert bool(commit.row_origins) is (told and job is WriteJob.COPY_ON_WRITE)


def test_neighbours_in_many_batches_are_one_run() -> None:
    log = OriginLog()
    for start in range(0, 100, 10):
        plain = log.take(log.with_carried_origins(batch(10), 7, start), "a.parquet")
        assert plain.schema == batch(10).schema
    log.take(log.with_new_origins(batch(3)), "a.parquet")
    log.take(log.with_new_origins(batch(2)), "a.parquet")
    (origins,) = log.report()
    assert origins.runs == 2
    firsts, lengths = origins.decode()
    assert (firsts.tolist(), lengths.tolist()) == ([7 << 40, NEW_ROWS], [100, 5])


def test_positions_and_ordinals_may_be_large() -> None:
    firsts = np.array([(2**22 << 40) + 2**39, 5], np.int64)
    origins = RowOrigins.of("a", firsts, np.array([10, 1], np.int64))
    hits, found = origins.find(2**22, np.array([2**39 - 1, 2**39 + 4, 2**39 + 10]))
    assert (hits.tolist(), found.tolist()) == ([False, True, False], [4])
    hits, found = origins.find(0, np.array([5]))
    assert found.tolist() == [10]


def shuffled(log: OriginLog, rows: int) -> None:
    whole = log.with_carried_origins(batch(rows), 0, 0)
    log.take(whole.take(pa.array(np.random.default_rng(1).permutation(rows))), "a")


def test_what_sorting_tore_apart_is_given_up() -> None:
    log = OriginLog(max_runs=500)
    shuffled(log, 1000)
    log.take(log.with_carried_origins(batch(10), 1, 0), "b")
    assert log.report() == ()


def test_too_many_bytes_are_not_reported() -> None:
    log = OriginLog(max_encoded_bytes=100)
    shuffled(log, 1000)
    assert log.report() == ()


def test_origins_of_rows_a_few_of_which_are_gone_are_small() -> None:
    log = OriginLog()
    rows: Any = log.with_carried_origins(batch(1_000_000), 0, 0)
    keep = np.ones(1_000_000, dtype=bool)
    keep[::50] = False
    log.take(rows.filter(pa.array(keep)), "a")
    (origins,) = log.report()
    assert origins.runs == 20_000
    assert len(origins.encoded) < 20_000
