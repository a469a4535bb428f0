"""The adaptive mode: which changes are in memory until a file's choice is made, and the properties."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dml.errors import AnalysisError
from dml.model.columns import RowOperation
from dml.options import AUTO_ENABLED, AUTO_MAX_DELETED_RATIO, Command, WriteOptions, row_level_operation_mode
from dml.write.delta_rows import Changes
from dml.write.delta_writer import HeldCounts, hold_changes


def changes(start: int, number: int) -> Changes:
    return Changes(
        positions=np.arange(start, start + number, dtype=np.int64),
        operations=np.full(number, RowOperation.UPDATE, dtype=np.int32),
        values=pa.record_batch([pa.array(["x" * 100] * number)], ["v"]),
    )


def deletes(start: int, number: int) -> Changes:
    found = changes(start, number)
    return replace(found, operations=np.full(number, RowOperation.DELETE, dtype=np.int32))


def hold(parts: Iterator[Changes], rows: int, max_bytes: int) -> tuple[list[Changes], HeldCounts]:
    held: list[Changes] = []
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
