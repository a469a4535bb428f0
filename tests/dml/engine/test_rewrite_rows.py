"""A compaction changes no row, commits all or what it says, and leaves no file behind. Without Spark's session."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.transforms import IdentityTransform

import dml.engine.rewrite_data_files as rewriting
from dml import limits
from dml.commit import CommittedSnapshot, commit
from dml.engine.by_tasks import copy_by_tasks
from dml.engine.rewrite_data_files import RewriteDataFiles, sort_order_of, where_filter
from dml.engine.writes import WriteOutcome
from dml.errors import (
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptFileError,
    ExecutionError,
    RowConservationError,
    SqlError,
)
from dml.maintenance import remove_dangling_deletes
from dml.plan.names import SqlRules, TargetNames
from dml.scan.planner import plan_scan
from dml.write.partitioning import RollingDataWriter
from tests.dml.commit.builders import ids
from tests.dml.engine.rewrites import (
    ALL,
    BY_P,
    SCHEMA,
    History,
    assert_sound,
    compact,
    files,
    in_process,
    rows,
)

MANY = [pytest.param(seed, marks=[] if seed < 2 else [pytest.mark.nightly]) for seed in range(150)]
VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


@VERSIONS
@pytest.mark.parametrize("seed", MANY)
def test_rows_are_the_same_before_and_after(catalog: Catalog, version: int, seed: int) -> None:
    """Random tables: formats, deletes of all kinds, other schemas and specs; on version 3 with row ids and numbers."""
    history = History.new(catalog, version, seed)
    history.run(6 + seed % 5)
    table, before = history.reload(), rows(history.table)
    given = ALL | {"target-file-size-bytes": str(2_000 if seed % 3 == 0 else 2**29)}
    if seed % 2:
        given |= {"partial-progress.enabled": "true", "partial-progress.max-commits": "3"}
    count = len(history.tasks())
    order = "p DESC NULLS FIRST, bucket(4, id), id" if seed % 4 == 2 else None
    replaced, _, _, failed, _ = compact(table, given, order=order)
    assert (replaced, failed) == (count, 0), history.steps
    assert rows(table) == before, history.steps
    assert_sound(table)
    history.run(2)
    table, before = history.reload(), rows(history.table)
    compact(table, ALL)
    remove_dangling_deletes(history.reload(), "main", {})
    assert rows(table) == before, history.steps
    assert_sound(table)


def filled(catalog: Catalog, version: int, number: int = 6, **given: Any) -> History:
    """A table of some small files, in partitions a and b if it has any."""
    history = History.new(catalog, version, **given)
    for place in range(number):
        history.append(5, p="ab"[place % 2])
    return history


@VERSIONS
def test_small_files_become_one_and_a_second_run_does_nothing(catalog: Catalog, version: int) -> None:
    history = filled(catalog, version, spec=UNPARTITIONED_PARTITION_SPEC)
    before, size = rows(history.table), sum(task.file_size_in_bytes for task in history.tasks())
    assert compact(history.table) == (6, 1, size, 0, 0)
    (task,) = history.tasks()
    assert task.record_count == 30
    assert rows(history.table) == before
    assert ids(history.reload().metadata_location) == list(range(30))
    snapshot = history.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary.operation.value, snapshot.summary["rowdelta.rows-carried"]) == ("replace", "30")
    location = history.table.metadata_location
    assert compact(history.table) == (0, 0, 0, 0, 0)
    assert history.reload().metadata_location == location


def test_partitions_are_apart(catalog: Catalog) -> None:
    history = filled(catalog, 2, 10, spec=BY_P)
    assert compact(history.table)[:2] == (10, 2)
    assert sorted(task.partition for task in history.tasks()) == [("a",), ("b",)]


def test_deleted_rows_are_left_out_and_their_vectors_leave_the_table(catalog: Catalog) -> None:
    history = filled(catalog, 3, 3, spec=UNPARTITIONED_PARTITION_SPEC)
    history.delete([(0, [0, 1]), (2, [4])])
    before = rows(history.table)
    found = {task.path: task for task in history.tasks()}
    ratio = {"min-file-size-bytes": 0}
    # Two of five rows are above the ratio of 0.3, one is below.
    replaced, added, _, _, removed = compact(history.table, ratio)
    assert (replaced, added, removed) == (1, 1, 1)
    assert rows(history.table) == before
    left = {task.path for task in history.tasks()} & found.keys()
    assert len(left) == 2
    assert sum(task.deletion_vector is not None for task in history.tasks()) == 1


def test_a_group_without_live_rows_leaves_no_file(catalog: Catalog) -> None:
    history = filled(catalog, 2, 2, spec=UNPARTITIONED_PARTITION_SPEC)
    history.delete([(0, range(5)), (1, range(5))])
    assert compact(history.table)[:2] == (2, 0)
    assert history.tasks() == ()
    assert rows(history.table) == []


def test_large_files_are_cut(catalog: Catalog) -> None:
    """Row groups of one file go to several new files, each row once."""
    history = History.new(catalog, 3, spec=UNPARTITIONED_PARTITION_SPEC, **{"write.parquet.row-group-limit": "100"})
    history.append(1000)
    (task,) = history.tasks()
    assert len(task.split_offsets) == 10
    before = rows(history.table)
    assert compact(history.table, {"target-file-size-bytes": task.file_size_in_bytes // 4})[0] == 1
    assert len(history.tasks()) > 1
    assert rows(history.table) == before


def test_new_files_keep_the_sequence_number_of_the_snapshot_that_was_read(catalog: Catalog) -> None:
    history = filled(catalog, 2, spec=UNPARTITIONED_PARTITION_SPEC)
    number = history.reload().metadata.last_sequence_number
    compact(history.table)
    assert [task.data_sequence_number for task in history.tasks()] == [number]
    compact(history.table, ALL | {"use-starting-sequence-number": "false"})
    assert [task.data_sequence_number for task in history.tasks()] == [number + 2]


def test_an_equality_delete_that_came_meanwhile_applies_to_the_new_file(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = filled(catalog, 2, spec=UNPARTITIONED_PARTITION_SPEC)
    monkeypatch.setattr(history.random, "randrange", lambda *_: 7)
    others_commit(monkeypatch, history.delete_by_key)
    compact(history.table)
    found = [row for row in rows(history.table) if "'id': 7," in row]
    assert (len(rows(history.table)), found) == (29, [])


def others_commit(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Let another commit land while new files are written."""

    def copy(*arguments: Any, **given: Any) -> WriteOutcome:
        outcome = copy_by_tasks(*arguments, **given)
        change()
        return outcome

    monkeypatch.setattr(rewriting, "copy_by_tasks", copy)


@pytest.mark.parametrize("version", [2, 3])
def test_a_conflict_leaves_no_file(catalog: Catalog, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_files = {"write.row-level-concurrency.enabled": "false"}
    history = filled(catalog, version, spec=UNPARTITIONED_PARTITION_SPEC, **by_files)
    delete = files(history.table)
    others_commit(monkeypatch, lambda: history.delete([(0, [0])]))
    with pytest.raises(CommitConflictError, match="found new delete for replaced data file"):
        compact(history.table)
    assert len(files(history.table) - delete) == 1  # the other's delete file
    assert len(rows(history.table)) == 29


@pytest.mark.parametrize("partial", [False, True])
def test_a_failing_storage_leaves_no_file(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, partial: bool) -> None:
    """The second partition's file cannot be completed: without partial progress nothing happens, with it one group."""
    history = filled(catalog, 2, 10, spec=BY_P)
    before, old, location = rows(history.table), files(history.table), history.reload().metadata_location
    finish = RollingDataWriter.finish_file

    def fail(self: RollingDataWriter) -> None:
        if self._partition == ("b",):
            raise ExecutionError("The disk is full")
        finish(self)

    monkeypatch.setattr(RollingDataWriter, "finish_file", fail)
    if not partial:
        with pytest.raises(ExecutionError, match="The disk is full"):
            compact(history.table)
        assert (files(history.table), history.reload().metadata_location) == (old, location)
        return
    assert compact(history.table, {"partial-progress.enabled": "true"})[:4:3] == (5, 5)
    assert len(files(history.table) - old) == 1
    assert rows(history.table) == before


def test_a_damaged_file_is_named(catalog: Catalog) -> None:
    history = filled(catalog, 2, spec=UNPARTITIONED_PARTITION_SPEC)
    damaged = history.tasks()[2].path
    data = local(damaged).read_bytes()
    local(damaged).write_bytes(data[:-100] + bytes(100))
    old = files(history.table)
    with pytest.raises(CorruptFileError) as caught:
        compact(history.table)
    assert damaged in str(caught.value)
    assert files(history.table) == old


def test_rows_are_counted_before_the_commit(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    history = filled(catalog, 2, spec=UNPARTITIONED_PARTITION_SPEC)
    old = files(history.table)

    def lose_a_run(lazy_session: Any, context: Any, runs: Sequence[Any], *further: Any, **given: Any) -> WriteOutcome:
        return copy_by_tasks(lazy_session, context, runs[:-1], *further, **given)

    monkeypatch.setattr(rewriting, "copy_by_tasks", lose_a_run)
    with pytest.raises(RowConservationError, match="30 rows by the manifests"):
        compact(history.table, ALL | {"target-file-size-bytes": history.tasks()[0].file_size_in_bytes * 2})
    assert files(history.table) == old


class Commits:
    """Commits of a compaction, of which some fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, errors: dict[int, Exception]) -> None:
        self.number, self.errors, self.real = 0, errors, rewriting.commit
        monkeypatch.setattr(rewriting, "commit", self)

    def __call__(self, *arguments: Any, **given: Any) -> CommittedSnapshot:
        self.number += 1
        if self.number in self.errors:
            raise self.errors[self.number]
        return self.real(*arguments, **given)


@pytest.mark.parametrize("order", ["id DESC", None])
def test_without_origins_deleted_rows_are_found_by_row_id(
    catalog: Catalog, order: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sort of many rows reports no origins, and another commit deletes rows meanwhile."""
    history = History.new(catalog, 3, spec=UNPARTITIONED_PARTITION_SPEC)
    for _ in range(3):
        history.append(20)
    history.delete([(1, [5, 6])])
    monkeypatch.setattr(limits, "MAX_TASK_ORIGIN_BYTES", 0)
    expected: list[str] = []

    def late(*arguments: Any, **given: Any) -> CommittedSnapshot:
        monkeypatch.setattr(rewriting, "commit", commit)
        history.delete([(0, [0, 19]), (1, [7])])
        expected.extend(rows(history.reload()))
        return commit(*arguments, **given)

    monkeypatch.setattr(rewriting, "commit", late)
    compact(history.table, ALL, order=order)
    snapshot = history.reload().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["rowdelta.rows-followed"] == "row-id"
    assert len(expected) == 55
    assert rows(history.table) == expected
    assert_sound(history.table)


def four_partitions(catalog: Catalog) -> History:
    history = History.new(catalog, 2, spec=BY_P)
    for place in range(20):
        history.append(2, p="abcd"[place % 4])
    return history


PARTIAL = {"partial-progress.enabled": "true", "partial-progress.max-commits": "4"}


@pytest.mark.parametrize(("commits", "made"), [(1, 1), (2, 2), (3, 2), (4, 4), (10, 4)])
def test_groups_are_committed_a_few_at_a_time(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, commits: int, made: int
) -> None:
    """As the reference: groups over commits, rounded up, are in each."""
    history, counted = four_partitions(catalog), Commits(monkeypatch, {})
    assert compact(history.table, PARTIAL | {"partial-progress.max-commits": commits})[:2] == (20, 4)
    assert counted.number == made


def test_a_failed_commit_is_counted_and_its_files_are_deleted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = four_partitions(catalog)
    before, old = rows(history.table), files(history.table)
    Commits(monkeypatch, {2: CommitConflictError("Another commit landed first")})
    replaced, added, _, failed, _ = compact(history.table, PARTIAL)
    assert (replaced, added, failed) == (15, 3, 5)
    assert len(files(history.table) - old) == 3
    assert rows(history.table) == before


def test_too_many_failed_commits_are_an_error(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    history = four_partitions(catalog)
    before, old = rows(history.table), files(history.table)
    conflict = CommitConflictError("Another commit landed first")
    Commits(monkeypatch, {1: conflict, 2: conflict})
    most = PARTIAL | {"partial-progress.max-failed-commits": 1}
    with pytest.raises(ExecutionError, match="2 rewrite commits failed"):
        compact(history.table, most)
    assert len(files(history.table) - old) == 2
    assert rows(history.table) == before


@pytest.mark.parametrize("error", [CommitStateUnknownError("No answer"), KeyboardInterrupt()])
def test_files_of_a_commit_without_an_answer_stay(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """They may be in the table. Those of groups whose commit was not tried are deleted."""
    history = four_partitions(catalog)
    old = files(history.table)
    Commits(monkeypatch, {1: error})
    with pytest.raises(type(error)):
        compact(history.table, PARTIAL)
    assert len(files(history.table) - old) == 1


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("id >= 5 AND P = 'a'", And(GreaterThanOrEqual("id", 5), EqualTo("p", "a"))),
        ("t.id = 1 -- of the table", EqualTo("id", 1)),
        ("true", AlwaysTrue()),
    ],
)
def test_conditions_become_filters_of_files(where: str, found: BooleanExpression) -> None:
    assert where_filter(where, TargetNames(schema=SCHEMA, qualifiers=(("t",),), rules=SqlRules())) == found


@pytest.mark.parametrize(
    "where",
    [
        "length(p) = 3",
        "id = 1) OR (id = 2",
        "id = 1), (id = 2",
        "id IN (SELECT 1)",
        "q = 1",
        "id = ",
        "1; DROP TABLE t",
    ],
)
def test_other_conditions_are_refused(where: str) -> None:
    with pytest.raises(SqlError):
        where_filter(where, TargetNames(schema=SCHEMA, qualifiers=(("t",),), rules=SqlRules()))


def test_a_column_that_does_not_exist_is_named() -> None:
    names = TargetNames(schema=SCHEMA, qualifiers=(("t",),), rules=SqlRules())
    with pytest.raises(AnalysisError, match="There is no column 'q'"):
        where_filter("id = 1 AND q = 1", names)


def test_a_branch_is_compacted(catalog: Catalog) -> None:
    history = filled(catalog, 2, 5, spec=UNPARTITIONED_PARTITION_SPEC)
    main = history.reload().metadata.current_snapshot_id
    for _ in range(3):
        history.append(5, branch="side")
    head = history.reload().metadata.refs["side"].snapshot_id
    before = rows(history.table, head)
    assert compact(history.table, branch="side")[:2] == (8, 1)
    metadata = history.reload().metadata
    assert metadata.current_snapshot_id == main
    assert rows(history.table, metadata.refs["side"].snapshot_id) == before
    assert len(plan_scan(history.table, metadata.refs["side"].snapshot_id).tasks) == 1


def test_new_files_may_get_an_older_spec(catalog: Catalog) -> None:
    history = filled(catalog, 2, spec=BY_P)
    history.evolve_spec()
    history.append(5, p="a")
    before = rows(history.table)
    compact(history.table, ALL)
    assert {task.spec_id for task in history.tasks()} == {1}
    compact(history.table, ALL | {"output-spec-id": 0})
    assert {(task.spec_id, task.partition) for task in history.tasks()} == {(0, ("a",)), (0, ("b",))}
    assert rows(history.table) == before


def test_files_of_a_sorted_table_stay_sorted(catalog: Catalog) -> None:
    """Neighbours by bounds share a new file, whose rows follow the order, as the reference sorts them."""
    history = History.new(catalog, 3, spec=UNPARTITIONED_PARTITION_SPEC)
    with history.table.update_sort_order() as update:
        update.asc("id", IdentityTransform())
    for start in (40, 0, 60, 20):
        history.next_id = start
        history.append(20)
    before = rows(history.table)
    size = max(task.file_size_in_bytes for task in history.tasks())
    compact(history.table, ALL | {"max-file-group-size-bytes": 2 * size})
    bounds = sorted(
        (file.lower_bounds[1], file.upper_bounds[1])
        for file in plan_scan(history.reload(), history.table.metadata.current_snapshot_id, keep_metrics=True).metrics
    )
    assert [tuple(int.from_bytes(part, "little") for part in pair) for pair in bounds] == [(0, 39), (40, 79)]
    assert rows(history.table) == before
    compact(history.table, ALL)
    assert ids_in_file(history) == list(range(80))


def ids_in_file(history: History) -> list[int]:
    """The ids of a table of one file, in the order of the file."""
    (task,) = history.tasks()
    found: list[int] = pq.read_table(local(task.path), columns=["id"])["id"].to_pylist()
    return found


def test_rows_are_sorted_by_an_order_of_the_call_or_the_table(catalog: Catalog) -> None:
    """Files record the order if the table knows it, as in the reference."""
    history = filled(catalog, 3, spec=UNPARTITIONED_PARTITION_SPEC)
    before = rows(history.table)
    compact(history.table, order="id DESC")
    assert ids_in_file(history) == list(range(29, -1, -1))
    assert sort_orders(history) == [0]
    with history.reload().update_sort_order() as update:
        update.desc("id", IdentityTransform())
    compact(history.table, ALL, order="id DESC NULLS LAST")
    assert sort_orders(history) == [1]
    compact(history.table, ALL, order="id")
    assert (ids_in_file(history), sort_orders(history)) == (list(range(30)), [0])
    assert sort_order_of(RewriteDataFiles(strategy="SORT"), history.reload()) == history.table.sort_order()
    assert rows(history.table) == before


def sort_orders(history: History) -> list[int | None]:
    table = history.reload()
    scan = plan_scan(table, table.metadata.current_snapshot_id, keep_metrics=True)
    return [file.sort_order_id for file in scan.metrics]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"strategy": "temp"}, AnalysisError, "unsupported strategy: temp. Only binpack or sort is supported"),
        (
            {"strategy": "BINPACK", "sort_order": "id"},
            AnalysisError,
            "Cannot set rewrite mode, it has already been set",
        ),
        ({"strategy": "sort"}, AnalysisError, "Cannot sort data without a valid sort order"),
        ({"sort_order": "none"}, AnalysisError, "none"),
        ({"sort_order": "id ASC none"}, SqlError, "none"),
        ({"sort_order": "id; DROP TABLE t"}, SqlError, ";"),
        ({"sort_order": "zorder(col1)"}, AnalysisError, "Cannot find column 'col1' in table schema"),
        ({"sort_order": "hilbert(s.x)"}, AnalysisError, "Cannot find column 's.x' in table schema"),
        ({"sort_order": "zorder(id.x)"}, AnalysisError, "Cannot find column 'id.x' in table schema"),
        ({"sort_order": "id, zorder(n, p)"}, AnalysisError, "Cannot mix identity sort columns and a Zorder or Hilbert"),
        ({"sort_order": "zorder(n), hilbert(p)"}, AnalysisError, "Cannot mix Zorder and Hilbert sort expressions: zor"),
        ({"sort_order": "hilbert(s, id)"}, AnalysisError, "Cannot use column s of type struct.* in ZOrdering"),
        ({"sort_order": "zorder(l)"}, AnalysisError, "Cannot use column l of type array<int> in ZOrdering"),
        ({"sort_order": "hilbert(P)"}, AnalysisError, "Cannot HILBERT, all columns provided were identity partition"),
        ({"sort_order": "zorder()"}, SqlError, "the name of a column"),
        ({"sort_order": "zorder(id n)"}, SqlError, "n"),
        ({"sort_order": "zorder(id"}, SqlError, r"\("),
    ],
)
def test_strategies_are_checked(catalog: Catalog, call: dict[str, str], error: type[Exception], message: str) -> None:
    history = History.new(catalog, 2, spec=BY_P)
    with pytest.raises(error, match=message):
        sort_order_of(RewriteDataFiles(**call), history.table)
