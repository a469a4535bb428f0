"""The choice for a changed data file, from counts alone: properties of any counts, and cases."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.write.delta_writer import (
    Choice,
    FileCounts,
    always_mark,
    always_rewrite,
    choose_by_counts,
    may_be_spliced,
    rows_to_mark,
)

RATIOS = st.floats(min_value=0, max_value=1)


@st.composite
def counts(draw: st.DrawFn) -> FileCounts:
    """A file and changes that fit it."""
    rows = draw(st.integers(1, 3_000))
    dead = draw(st.integers(0, rows))
    changed = draw(st.integers(0, rows - dead))
    updated = draw(st.one_of(st.just(0), st.just(changed), st.integers(0, changed)))
    return FileCounts(
        rows=rows,
        dead=dead,
        is_dead_exact=draw(st.booleans()),
        deleted=changed - updated,
        updated=updated,
        is_all=draw(st.booleans()),
        new_bytes_ratio=draw(st.none() | st.floats(min_value=0, max_value=1)),
    )


@given(counts(), RATIOS)
def test_a_file_leaves_exactly_where_every_live_row_is_deleted_for_sure(file: FileCounts, ratio: float) -> None:
    sure = file.is_all and file.is_dead_exact and file.deleted > 0
    every = file.dead + file.deleted == file.rows
    assert (choose_by_counts(file, ratio) is Choice.REMOVE) == (sure and every)


@given(counts(), RATIOS)
def test_no_file_keeps_more_dead_rows_than_it_may_and_none_without_a_live_row(file: FileCounts, ratio: float) -> None:
    if choose_by_counts(file, ratio) is Choice.MARK:
        dead = file.dead + file.deleted + file.updated
        assert file.is_all
        assert dead <= ratio * file.rows
        assert dead < file.rows


@given(counts(), RATIOS)
def test_a_file_that_may_be_marked_is_rewritten_only_to_splice_it(file: FileCounts, ratio: float) -> None:
    fits = file.is_all and file.deleted + file.updated <= rows_to_mark(file.rows, file.dead, ratio)
    if fits and choose_by_counts(file, ratio) is Choice.REWRITE:
        assert may_be_spliced(file)
        assert (file.deleted, file.dead) == (0, 0)
        assert file.updated * 100 >= file.rows
        assert file.new_bytes_ratio is not None
        assert file.new_bytes_ratio <= 0.5


@given(counts(), RATIOS, RATIOS)
def test_a_greater_ratio_marks_no_less(file: FileCounts, one: float, other: float) -> None:
    less, more = sorted((one, other))
    if choose_by_counts(file, less) is Choice.MARK:
        assert choose_by_counts(file, more) is Choice.MARK


@given(counts(), RATIOS)
def test_a_file_is_looked_into_only_where_that_can_matter(file: FileCounts, ratio: float) -> None:
    if not may_be_spliced(file):
        assert choose_by_counts(file, ratio) is choose_by_counts(replace(file, new_bytes_ratio=None), ratio)


@given(counts(), RATIOS)
def test_with_a_few_more_changes_the_way_is_never_back_to_marks(file: FileCounts, ratio: float) -> None:
    left = file.rows - file.dead - file.deleted - file.updated
    unspliced = replace(file, new_bytes_ratio=None)
    if left and choose_by_counts(unspliced, ratio) is Choice.REWRITE:
        assert choose_by_counts(replace(file, deleted=file.deleted + 1), ratio) is not Choice.MARK


@pytest.mark.parametrize(
    ("file", "choice"),
    [
        (FileCounts(rows=100, deleted=100), Choice.REMOVE),
        (FileCounts(rows=100, dead=60, deleted=40), Choice.REMOVE),
        (FileCounts(rows=100, dead=60, deleted=40, is_dead_exact=False), Choice.REWRITE),
        (FileCounts(rows=100, deleted=99, updated=1), Choice.REWRITE),
        (FileCounts(rows=100, updated=100), Choice.REWRITE),
        (FileCounts(rows=100, deleted=10), Choice.MARK),
        (FileCounts(rows=100, deleted=11), Choice.REWRITE),
        (FileCounts(rows=100, dead=5, deleted=6), Choice.REWRITE),
        (FileCounts(rows=1_000, updated=9, new_bytes_ratio=0.1), Choice.MARK),
        (FileCounts(rows=1_000, updated=10, new_bytes_ratio=0.1), Choice.REWRITE),
        (FileCounts(rows=1_000, updated=10, new_bytes_ratio=0.6), Choice.MARK),
        (FileCounts(rows=1_000, updated=10, dead=1, new_bytes_ratio=0.1), Choice.MARK),
        (FileCounts(rows=1_000, updated=500, new_bytes_ratio=0.1), Choice.REWRITE),
        (FileCounts(rows=1_000, updated=500, new_bytes_ratio=0.9), Choice.REWRITE),
        (FileCounts(rows=1, updated=1), Choice.REWRITE),
    ],
)
def test_the_choices(file: FileCounts, choice: Choice) -> None:
    assert choose_by_counts(file, 0.1) is choice


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
    assert rows_to_mark(rows, dead, ratio) == room


def test_constant_choices_count_nothing() -> None:
    def count() -> FileCounts:
        raise AssertionError("counting holds changes in memory")

    assert always_rewrite(count) is Choice.REWRITE
    assert always_mark(count) is Choice.MARK
