"""Live rows, from metadata."""

import pytest

from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.scan.size import estimate_live_rows, live_rows


def task(**given: object) -> ScanTask:
    facts = {"length": 100, **given}
    return ScanTask(
        file_ordinal=0,
        path="a",
        file_format="parquet",
        record_count=10,
        file_size_in_bytes=100,
        start=0,
        spec_id=0,
        partition=(),
        data_sequence_number=1,
        **facts,
    )


def delete(rows: int, **given: object) -> DeleteFileRef:
    return DeleteFileRef(
        path="d", file_format="parquet", record_count=rows, file_size_in_bytes=1, data_sequence_number=1, **given
    )


VECTOR = task(deletion_vector=delete(3, content_offset=4))
ONE = task(position_deletes=(delete(4, referenced_data_file="a"),))
PARTITION = task(position_deletes=(delete(4),))
SEVERAL = task(position_deletes=(delete(4, referenced_data_file="a"), delete(1, referenced_data_file="a")))
EQUALITY = task(equality_deletes=(delete(4, equality_ids=(1,)),))


@pytest.mark.parametrize(
    ("found", "exact", "trusting"),
    [
        ([], 0, 0),
        ([task(), task()], 20, 20),
        ([task(), VECTOR], 17, 17),
        ([task(), ONE], None, 16),
        ([PARTITION], None, None),
        ([SEVERAL, task()], None, None),
        ([task(), EQUALITY], None, None),
        ([task(deletion_vector=delete(3), equality_deletes=EQUALITY.equality_deletes)], None, None),
    ],
)
def test_live_rows_are_known_as_far_as_delete_files_count_distinct_rows(found, exact, trusting) -> None:  # type: ignore[no-untyped-def]
    assert live_rows(found, trust_position_deletes=False) == exact
    assert live_rows(found, trust_position_deletes=True) == trusting


def test_an_estimate_subtracts_what_is_known_of_the_file_and_scales_with_the_range() -> None:
    estimates = [estimate_live_rows(one) for one in (task(), VECTOR, ONE, PARTITION, SEVERAL, EQUALITY)]
    assert estimates == [10, 7, 6, 10, 5, 10]
    assert estimate_live_rows(task(length=35)) == 4
    assert estimate_live_rows(task(position_deletes=(delete(40, referenced_data_file="a"),))) == 0
