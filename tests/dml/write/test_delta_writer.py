"""The writer of all modes: the same rows whatever is chosen, what is in memory until then, and the properties."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dml.errors import AnalysisError
from dml.model.columns import DeltaLayout, RowOperation
from dml.options import AUTO_ENABLED, AUTO_MAX_DELETED_RATIO, Command, WriteOptions, row_level_operation_mode
from dml.write.delta_rows import RowChanges
from dml.write.delta_writer import HeldCounts, hold_changes
from dml.write.writer_spec import WriteJob
from tests.dml.write.builders import MemoryFiles, context, delta, read_back, run, table
from tests.dml.write.test_merge_on_read import positions


def changes(start: int, number: int) -> RowChanges:
    return RowChanges(
        positions=np.arange(start, start + number, dtype=np.int64),
        operations=np.full(number, RowOperation.UPDATE, dtype=np.int32),
        values=pa.record_batch([pa.array(["x" * 100] * number)], ["v"]),
    )


def deletes(start: int, number: int) -> RowChanges:
    found = changes(start, number)
    return replace(found, operations=np.full(number, RowOperation.DELETE, dtype=np.int32))


def hold(parts: Iterator[RowChanges], rows: int, max_bytes: int) -> tuple[list[RowChanges], HeldCounts]:
    held: list[RowChanges] = []
    return held, hold_changes(parts, held, rows, max_bytes)


def test_changes_are_held_until_there_are_too_many() -> None:
    parts = [changes(0, 4), changes(4, 4), changes(8, 4), changes(12, 4)]
    parts_held, held = hold(iter(parts), 16, 10_000)
    assert (len(parts_held), held.rows, held.updated, held.is_all) == (4, 16, 16, True)
    rest = iter(parts)
    parts_held, held = hold(rest, 7, 10_000)
    assert ([part.positions[0] for part in parts_held], held.rows, held.is_all) == ([0, 4], 8, False)
    assert [part.positions[0] for part in rest] == [8, 12]  # nothing is lost
    parts_held, held = hold(iter(parts), 16, 900)
    assert (len(parts_held), held.is_all) == (2, False)
    parts_held, held = hold(iter(parts[:1]), -3, 10_000)
    assert (parts_held, held.is_all) == (parts[:1], False)


def test_deletes_may_be_of_every_row_and_are_all_held() -> None:
    parts = [deletes(0, 4), deletes(4, 4), deletes(8, 4)]
    _, held = hold(iter(parts), 1, 10_000)
    assert (held.rows, held.updated, held.is_all) == (12, 0, True)
    _, held = hold(iter([*parts[:2], changes(8, 4), changes(12, 4)]), 1, 10_000)
    assert (held.rows, held.updated, held.is_all) == (12, 4, False)


def test_the_property_is_ours_and_the_modes_stay_those_of_iceberg() -> None:
    assert (
        row_level_operation_mode({AUTO_ENABLED: "true", "write.merge.mode": "merge-on-read"}, Command.MERGE) == "auto"
    )
    assert row_level_operation_mode({AUTO_ENABLED: "false"}, Command.MERGE) == "copy-on-write"
    with pytest.raises(AnalysisError, match=r"'write\.delete\.mode' is 'auto', which other engines refuse") as caught:
        row_level_operation_mode({"write.delete.mode": "auto"}, Command.DELETE)
    assert "'write.auto.enabled' = 'true'" in str(caught.value)
    with pytest.raises(AnalysisError) as caught:
        row_level_operation_mode({"write.delete.mode": "merge_on_read"}, Command.DELETE)
    assert caught.value.hint == "It must be one of 'copy-on-write', 'merge-on-read'"
    assert WriteOptions.from_properties({AUTO_MAX_DELETED_RATIO: " 0.25 "}).auto_max_deleted_ratio == 0.25
    for wrong in ("10%", "1.5", "-0.1", "nan", ""):
        with pytest.raises(AnalysisError, match="It must be a number from 0 to 1"):
            WriteOptions.from_properties({AUTO_MAX_DELETED_RATIO: wrong})


MERGE = DeltaLayout(value_ids=(1, 2, 3), assigned_ids=(2,), insert_ids=(1, 2, 3))
OPERATIONS = [RowOperation.MATCHED, RowOperation.DELETE, RowOperation.UPDATE]
Row = tuple[int, str | None, float]


@st.composite
def statements(draw: st.DrawFn) -> tuple[list[int], list[tuple[Any, ...]]]:
    """Sizes of data files, and delta rows for some of their rows; from few of a file to all."""
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    rows: list[tuple[Any, ...]] = [
        (RowOperation.INSERT, None, None, 1000 + number, "new", 1.5) for number in range(draw(st.integers(0, 3)))
    ]
    for ordinal, size in enumerate(sizes):
        kinds = draw(st.sampled_from([OPERATIONS, [RowOperation.DELETE], [RowOperation.UPDATE]]))
        chosen = draw(st.sampled_from([range(size), range(0, size, 7), range(1)]))
        rows.extend((draw(st.sampled_from(kinds)), ordinal, place, None, f"u{place}", None) for place in chosen)
    return sizes, rows


def rows_after(
    folder: Path, sizes: list[int], rows: list[tuple[Any, ...]], job: WriteJob, version: int, ratio: str
) -> list[Row]:
    """The rows that a reader of the table finds."""
    files = MemoryFiles()
    for ordinal, size in enumerate(sizes):
        files.add(table(list(range(ordinal * 100, ordinal * 100 + size))))
    batch = delta(rows, (pa.int64(), pa.string(), pa.float64()))
    batches = [batch.slice(start, 5) for start in range(0, batch.num_rows, 5)]
    target = context(folder / uuid.uuid4().hex, version=version, properties={AUTO_MAX_DELETED_RATIO: ratio})
    commit = run(job, batches, target, MERGE, files)
    marked = {} if version == 1 else positions(commit)
    assert not set(marked) & set(commit.removed_data_files), "a file is rewritten or marked, never both"
    kept = [
        row
        for file in files.files
        if file.task.path not in commit.removed_data_files
        for place, row in enumerate(file.table.to_pylist())
        if place not in marked.get(file.task.path, [])
    ]
    return sorted((row["id"], row["name"], row["amount"]) for row in [*kept, *read_back(commit)])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(statements())
def test_every_choice_leaves_the_same_rows(tmp_path: Path, statement: tuple[list[int], list[tuple[Any, ...]]]) -> None:
    sizes, rows = statement
    expected = {
        (ordinal, place): (ordinal * 100 + place, f"n{ordinal * 100 + place}", (ordinal * 100 + place) / 2)
        for ordinal, size in enumerate(sizes)
        for place in range(size)
    }
    inserted = [(row[3], row[4], row[5]) for row in rows if row[0] == RowOperation.INSERT]
    for operation, ordinal, place, _, name, _ in rows:
        if operation == RowOperation.DELETE:
            del expected[ordinal, place]
        elif operation == RowOperation.UPDATE:
            old = expected[ordinal, place]
            expected[ordinal, place] = (old[0], name, old[2])
    for job, version, ratio in (
        (WriteJob.COPY_ON_WRITE, 1, "0.1"),
        (WriteJob.MERGE_ON_READ, 2, "0.1"),
        (WriteJob.MERGE_ON_READ, 3, "0.1"),
        (WriteJob.CHOSEN_BY_FILE, 1, "0.5"),
        (WriteJob.CHOSEN_BY_FILE, 2, "0.2"),
        (WriteJob.CHOSEN_BY_FILE, 3, "1"),
    ):
        found = rows_after(tmp_path, sizes, rows, job, version, ratio)
        assert found == sorted([*expected.values(), *inserted]), (job, version)
