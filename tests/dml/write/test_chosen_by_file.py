"""The mode that chooses by file: how many rows of a file may be marked, and what is in memory until that is known."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dml.errors import AnalysisError
from dml.model.columns import RowOperation
from dml.model.scan_task import ScanTask
from dml.options import AUTO_ENABLED, AUTO_MAX_DELETED_RATIO, Command, WriteOptions, row_level_operation_mode
from dml.write.chosen_by_file import held_changes, rows_to_mark
from dml.write.delta_rows import Changes

TASK = ScanTask(
    path="a.parquet",
    file_format="parquet",
    file_size_in_bytes=1000,
    record_count=100,
    file_ordinal=0,
    start=0,
    length=1000,
    spec_id=0,
    partition=(),
    data_sequence_number=1,
)


@pytest.mark.parametrize(
    ("rows", "dead", "ratio", "room"),
    [
        (100, 0, 0.1, 10),
        (100, 4, 0.1, 6),
        (100, 10, 0.1, 0),
        (100, 40, 0.1, -30),  # deleted before the mode was chosen
        (100, 0, 0.0, 0),
        (100, 0, 1.0, 99),  # a file without a live row is not kept
        (100, 99, 1.0, 0),
        (1, 0, 1.0, 0),
        (9, 0, 0.1, 0),
    ],
)
def test_rows_that_may_be_marked(rows: int, dead: int, ratio: float, room: int) -> None:
    assert rows_to_mark(replace(TASK, record_count=rows), dead, ratio) == room


def changes(start: int, number: int) -> Changes:
    return Changes(
        positions=np.arange(start, start + number, dtype=np.int64),
        operations=np.full(number, RowOperation.UPDATE, dtype=np.int32),
        values=pa.record_batch([pa.array(["x" * 100] * number)], ["v"]),
    )


def test_changes_are_held_until_there_are_too_many() -> None:
    parts = [changes(0, 4), changes(4, 4), changes(8, 4), changes(12, 4)]
    held, is_all = held_changes(iter(parts), 16, 10_000)
    assert (len(held), is_all) == (4, True)
    rest = iter(parts)
    held, is_all = held_changes(rest, 7, 10_000)
    assert ([part.positions[0] for part in held], is_all) == ([0, 4], False)
    assert [part.positions[0] for part in rest] == [8, 12]  # nothing is lost
    held, is_all = held_changes(iter(parts), 16, 900)
    assert (len(held), is_all) == (2, False)
    assert held_changes(iter(parts[:1]), -3, 10_000) == (parts[:1], False)


def test_the_property_is_ours_and_the_modes_stay_those_of_iceberg() -> None:
    assert (
        row_level_operation_mode({AUTO_ENABLED: "true", "write.merge.mode": "merge-on-read"}, Command.MERGE) == "auto"
    )
    assert row_level_operation_mode({AUTO_ENABLED: "false"}, Command.MERGE) == "copy-on-write"
    with pytest.raises(AnalysisError, match=r"'write\.delete\.mode' is 'auto', which other engines refuse") as caught:
        row_level_operation_mode({"write.delete.mode": "auto"}, Command.DELETE)
    assert "'write.auto.enabled' = 'true'" in str(caught.value)
    assert WriteOptions.from_properties({AUTO_MAX_DELETED_RATIO: " 0.25 "}).auto_max_deleted_ratio == 0.25
    for wrong in ("10%", "1.5", "-0.1", "nan", ""):
        with pytest.raises(AnalysisError, match="It must be a number from 0 to 1"):
            WriteOptions.from_properties({AUTO_MAX_DELETED_RATIO: wrong})
