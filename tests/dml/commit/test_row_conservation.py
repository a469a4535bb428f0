"""Rows that do not add up are refused, and the file is named; rows that do are not."""

from dataclasses import replace

import pytest

from dml.commit import RowCounts, check_changed_files, check_rows_added, conservation_summary
from dml.errors import RowConservationError
from dml.model.manifest import ContentFile, FileContent
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.model.write_task import ChangedFile

PATH = "file:/t/a.parquet"
TASK = ScanTask(
    file_ordinal=0,
    path=PATH,
    file_format="parquet",
    record_count=10,
    file_size_in_bytes=100,
    start=0,
    length=100,
    spec_id=0,
    partition=(),
    data_sequence_number=1,
)
VECTOR = DeleteFileRef(
    path="file:/t/v.puffin",
    file_format="puffin",
    content_offset=4,
    content_size_in_bytes=40,
    record_count=2,
    file_size_in_bytes=60,
    data_sequence_number=2,
)
POSITIONS = replace(VECTOR, path="file:/t/d.parquet", content_offset=None, content_size_in_bytes=None)
REWRITTEN = ChangedFile(path=PATH, rows_deleted=1, rows_updated=2, rows_before=10, rows_carried=7)
MARKED = ChangedFile(path=PATH, rows_deleted=1, rows_updated=2, deletes_before=0, deletes_after=3)
COUNTS = RowCounts(deleted=1, updated=2, inserted=4, carried=7)


def new_vector(rows: int) -> ContentFile:
    return ContentFile(
        content=FileContent.POSITION_DELETES,
        path="file:/t/n.puffin",
        file_format="puffin",
        spec_id=0,
        partition=(),
        record_count=rows,
        file_size_in_bytes=60,
        referenced_data_file=PATH,
        content_offset=4,
        content_size_in_bytes=40,
    )


def check(file: ChangedFile, task: ScanTask = TASK, *delete_files: ContentFile, counts: RowCounts = COUNTS) -> None:
    check_changed_files([file], {PATH: task}, delete_files, counts)


def test_rows_that_add_up_pass() -> None:
    check(REWRITTEN)
    check(MARKED)
    check(MARKED, TASK, new_vector(3))
    check(replace(REWRITTEN, rows_before=8, rows_carried=5), replace(TASK, deletion_vector=VECTOR))
    check(replace(MARKED, deletes_before=2, deletes_after=5), replace(TASK, deletion_vector=VECTOR), new_vector(5))
    check_rows_added([replace(new_vector(13), content=FileContent.DATA)], COUNTS)


def test_delete_files_that_may_name_a_row_twice_bound_the_rows_from_above_only() -> None:
    check(replace(REWRITTEN, rows_before=9, rows_carried=6), replace(TASK, position_deletes=(POSITIONS, POSITIONS)))


@pytest.mark.parametrize(
    ("file", "task", "message"),
    [
        (replace(REWRITTEN, rows_carried=6), TASK, "10 rows; 6 were carried, 2 updated and 1 deleted"),
        (replace(REWRITTEN, rows_carried=8), TASK, "10 rows; 8 were carried"),
        (replace(REWRITTEN, rows_before=9, rows_carried=6), TASK, "10 rows by its manifest, and 9 were read"),
        (replace(REWRITTEN, rows_before=11, rows_carried=8), TASK, "10 rows by its manifest, and 11 were read"),
        (REWRITTEN, replace(TASK, deletion_vector=VECTOR), "8 rows by its manifest, and 10 were read"),
        (replace(MARKED, deletes_after=2), TASK, "grew from 0 to 2 positions"),
        (replace(MARKED, deletes_after=4), TASK, "grew from 0 to 4 positions"),
        (MARKED, replace(TASK, deletion_vector=VECTOR), "old deletion vector .* has 2 positions"),
        (MARKED, replace(TASK, record_count=2), "3 rows of .* are deleted, and it has 2"),
        (replace(MARKED, path="file:/t/other.parquet"), TASK, "did not read it"),
    ],
)
def test_rows_of_a_file_that_do_not_add_up_are_refused(file: ChangedFile, task: ScanTask, message: str) -> None:
    with pytest.raises(RowConservationError, match=message) as raised:
        check(file, task)
    assert raised.value.context["file"] == file.path


def test_a_vector_that_is_not_what_was_counted_is_refused() -> None:
    with pytest.raises(RowConservationError, match="has 4 positions, 3 expected"):
        check(MARKED, TASK, new_vector(4))


@pytest.mark.parametrize("counts", [replace(COUNTS, deleted=2), replace(COUNTS, updated=1)])
def test_files_that_do_not_give_the_statements_counts_are_refused(counts: RowCounts) -> None:
    with pytest.raises(RowConservationError, match="in the data files these are 1 and 2"):
        check(REWRITTEN, counts=counts)


@pytest.mark.parametrize("rows", [12, 14])
def test_new_files_with_rows_too_few_or_too_many_are_refused(rows: int) -> None:
    with pytest.raises(RowConservationError, match=f"hold {rows} rows; .* which makes 13"):
        check_rows_added([replace(new_vector(rows), content=FileContent.DATA)], COUNTS)


def test_the_counts_stand_in_the_summary() -> None:
    assert conservation_summary(COUNTS) == {
        "rowdelta.rows-deleted": "1",
        "rowdelta.rows-updated": "2",
        "rowdelta.rows-inserted": "4",
        "rowdelta.rows-carried": "7",
    }
