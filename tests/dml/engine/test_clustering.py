"""`rewrite_data_files` along z-order and Hilbert curves, and sorts of large groups in ranges. Without Spark."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.transforms import IdentityTransform

from dml import limits
from dml.commit import AppendFiles, commit
from dml.engine.writes import write_context
from dml.errors import AnalysisError, CorruptFileError
from dml.model.columns import DeltaLayout
from dml.model.write_task import TaskCommit
from dml.rows.space_filling_curves import Curve, CurveKind, curve_words
from dml.scan.planner import plan_scan
from dml.write.delta_writer import write_task
from dml.write.output_files import TaskIdentity
from dml.write.partitioning import SortingDataWriter
from dml.write.writer_spec import WriteJob, WriterSpec
from tests.dml.engine.rewrites import ALL, BY_P, History, assert_sound, compact, files, in_process, rewrite, rows
from tests.marks import by_night

SMALL = {"target-file-size-bytes": 4000, "min-file-size-bytes": 1, "max-file-size-bytes": 10**9}
VERSIONS = (3, 2, 1)


def orders(texts: Sequence[str]) -> pytest.MarkDecorator:
    """Run sort orders on all versions by night; with every change, each on one version, in turn."""
    always = {(VERSIONS[place % len(VERSIONS)], text) for place, text in enumerate(texts)}
    return pytest.mark.parametrize(("version", "order"), by_night([*product(VERSIONS, texts)], always.__contains__))


@pytest.fixture(autouse=True)
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch)


@pytest.fixture
def _ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group of several new files is sorted in ranges, in small pieces and buffers."""
    monkeypatch.setattr(limits, "MIN_RANGED_BYTES", 0)
    monkeypatch.setattr(limits, "MAX_SPLIT_BUFFER_BYTES", 5000)
    monkeypatch.setattr(limits, "SHUFFLED_PIECE_BYTES", 500)
    monkeypatch.setattr(limits, "SHUFFLED_PIECES", 2)


def tables(history: History) -> list[pa.Table]:
    """The rows of each data file, in the order of the file."""
    return [pq.read_table(Path(task.path.removeprefix("file://"))) for task in history.tasks()]


def keys(table: pa.Table, order: str) -> list[tuple[int, ...]]:
    kind, names = order.rstrip(")").split("(")
    columns = tuple(name.strip() for name in names.split(","))
    curve = Curve(kind=CurveKind(kind), columns=columns, field_ids=(0,) * len(columns))
    words = curve_words(curve, [table[name].combine_chunks() for name in columns])
    return list(zip(*(word.tolist() for word in words), strict=True))


def filled(catalog: Catalog, version: int, number: int = 60, spec: Any = UNPARTITIONED_PARTITION_SPEC) -> History:
    history = History.new(catalog, version, seed=version, spec=spec)
    for _ in range(5):
        history.append(number)
    if version > 1:
        rows_of = [task.record_count for task in history.tasks()]
        history.delete([(0, [0, 3]), (2, range(rows_of[2] // 2))])
        history.delete_by_key()
    return history


@orders(["zorder(n, id)", "hilbert(id, n)", "zorder(p, n, id)", "hilbert(n)"])
def test_rows_follow_the_curve(catalog: Catalog, version: int, order: str) -> None:
    history = filled(catalog, version)
    before = rows(history.table)
    compact(history.table, ALL, order=order)
    (table,) = tables(history)
    found = keys(table, order)
    assert found == sorted(found)
    assert len(set(found)) > 100
    assert rows(history.table) == before
    assert_sound(history.table)
    snapshot = history.reload().metadata.current_snapshot_id
    scan = plan_scan(history.table, snapshot, keep_metrics=True)
    assert [file.sort_order_id for file in scan.metrics] == [0], "as the reference: the files are in no order it knows"
    assert not any(task.has_deletes for task in history.tasks())
    assert compact(history.table, order=order)[:2] == (0, 0), "one file of any size is left"


def test_partitions_are_apart_and_their_columns_left_out(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    history = filled(catalog, 3, spec=BY_P)
    before = rows(history.table)
    compact(history.table, ALL, order="ZORDER(P, Id) DESC, zorder(n)")
    assert "Ignoring 'p'" in caplog.text
    parts = tables(history)
    assert len(parts) == 3
    for table in parts:
        assert keys(table, "zorder(id,n)") == sorted(keys(table, "zorder(id,n)"))
    assert rows(history.table) == before


def test_fields_of_structs_may_be_named(catalog: Catalog) -> None:
    history = filled(catalog, 3)
    compact(history.table, ALL, order="hilbert(S.a, n)")
    (table,) = tables(history)
    flat = table.append_column("a", pa.compute.struct_field(table["s"].combine_chunks(), [0]))
    assert keys(flat, "hilbert(a,n)") == sorted(keys(flat, "hilbert(a,n)"))


def test_options_of_curves(catalog: Catalog) -> None:
    history = filled(catalog, 2)
    given = {"max-output-size": 3, "var-length-contribution": 20, "compression-factor": 1.5}
    spec = rewrite(history.table, given, order="zorder(p, n)")._spec(1)
    assert (spec.curve.max_key_bytes, spec.curve.prefix_bytes) == (3, 20)
    compact(history.table, ALL | given, order="zorder(p, n)")
    for option, strategy in (("max-output-size", "hilbert(n)"), ("var-length-contribution", "n")):
        with pytest.raises(AnalysisError, match=f"Cannot use options .{option}., they are not supported"):
            rewrite(history.table, {option: 4}, order=strategy)
    for option in ("max-output-size", "var-length-contribution"):
        with pytest.raises(AnalysisError, match=f"'{option}' is set to 0 but must be > 0"):
            rewrite(history.table, {option: 0}, order="zorder(n)")


def test_a_column_of_the_name_of_the_key_is_refused(catalog: Catalog) -> None:
    history = filled(catalog, 2)
    with history.reload().update_schema() as update:
        update.rename_column("n", "icezvalue")
    with pytest.raises(AnalysisError, match="Cannot ZOrder because the table has a column named 'ICEZVALUE'"):
        rewrite(history.reload(), order="zorder(id)")
    rewrite(history.table, order="hilbert(id)")


def test_decisions_tell_the_order(catalog: Catalog) -> None:
    history = filled(catalog, 2)
    for order, text in (("zorder(N, s.A)", "zorder(n, s.a)"), ("id desc", "id DESC NULLS LAST"), (None, "")):
        plan = rewrite(history.table, ALL, order=order)
        first = next(plan.decisions())
        assert first.reason.endswith(f"become 1, sorted by {text}" if text else "become 1")


# ---- ranges -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_ranges")
@orders(["zorder(n, id)", "hilbert(n, p)"])
def test_files_are_ranges_of_the_curve(catalog: Catalog, version: int, order: str) -> None:
    history = filled(catalog, version, 200)
    before = rows(history.table)
    counters = compact(history.table, ALL | SMALL, order=order)
    parts = sorted((keys(table, order) for table in tables(history)), key=min)
    assert counters[:2] == (5, len(parts))
    assert len(parts) > 3
    assert all(part == sorted(part) for part in parts)
    assert all(left[-1] <= right[0] for left, right in pairwise(parts))
    assert max(map(len, parts)) < 2 * sum(map(len, parts)) / len(parts), "ranges of about the same size"
    assert rows(history.table) == before
    assert_sound(history.table)
    assert len(files(history.table)) >= len(parts)
    assert compact(history.table, SMALL | {"min-input-files": 100, "target-file-size-bytes": 10**8})[:2] == (0, 0)


@pytest.mark.usefixtures("_ranges")
def test_ranges_follow_any_sort_order(catalog: Catalog) -> None:
    """Descending, NULLs last, by a transform; files record the order if it is the table's."""
    history = filled(catalog, 3, 200)
    with history.reload().update_sort_order() as update:
        update.desc("n", IdentityTransform())
    before = rows(history.table)
    compact(history.table, ALL | SMALL, order="n DESC NULLS LAST")
    parts = [table["n"].to_pylist() for table in tables(history)]
    assert len(parts) > 3
    ranks = sorted([[-1 if n is None else n for n in part] for part in parts], reverse=True)
    assert [n for part in ranks for n in part] == sorted((n for part in ranks for n in part), reverse=True)
    assert rows(history.table) == before
    scan = plan_scan(history.reload(), history.table.metadata.current_snapshot_id, keep_metrics=True)
    assert {file.sort_order_id for file in scan.metrics} == {1}
    compact(history.table, ALL | SMALL, order="truncate(p, 1), bucket(3, id)")
    assert rows(history.table) == before


@pytest.mark.usefixtures("_ranges")
def test_small_and_large_partitions_in_one_call(catalog: Catalog) -> None:
    history = History.new(catalog, 3, spec=BY_P)
    for _ in range(3):
        history.append(400, p="a")
    history.append(2, p="b")
    before = rows(history.table)
    plan = rewrite(history.table, ALL | SMALL, order="hilbert(id, n)")
    assert sorted((len(group.tasks), plan.is_ranged(group)) for group in plan.plan.groups) == [(1, False), (3, True)]
    expected = plan.expected_counters()
    assert compact(history.table, ALL | SMALL, order="hilbert(id, n)")[:3] == expected[:3]
    assert rows(history.table) == before
    assert_sound(history.table)


@pytest.mark.usefixtures("_ranges")
def test_rows_with_one_key_and_files_without_rows(catalog: Catalog) -> None:
    """All bounds are equal, so that one range has all rows, and others have none."""
    history = History.new(catalog, 3, spec=UNPARTITIONED_PARTITION_SPEC)
    for _ in range(2):
        history.append(600, n=7)
    history.delete([(0, range(600))])
    before = rows(history.table)
    compact(history.table, ALL | SMALL, order="zorder(n)")
    assert (rows(history.table), len(history.tasks())) == (before, 1)
    history.delete([(0, range(600))])
    compact(history.table, ALL | SMALL, order="zorder(n)")
    assert (rows(history.table), history.tasks()) == ([], ())


@pytest.mark.usefixtures("_ranges")
@pytest.mark.parametrize("broken", ["the sample", "the split"])
def test_a_failed_sort_leaves_no_file(catalog: Catalog, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history = filled(catalog, 3, 200)
    before, found = rows(history.table), files(history.table)
    if broken == "the split":
        monkeypatch.setattr(limits, "SAMPLED_ROW_GROUPS_PER_RANGE", 0)
    path = Path(history.tasks()[2].path.removeprefix("file://"))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptFileError):
        compact(history.table, ALL | SMALL, order="zorder(n, id)")
    path.write_bytes(data)
    assert files(history.table) == found
    assert rows(history.table) == before


@pytest.mark.usefixtures("_ranges")
def test_origins_of_ranges_take_over_concurrent_deletes(catalog: Catalog) -> None:
    history = filled(catalog, 3, 200)
    call = rewrite(history.table, ALL | SMALL, order="hilbert(n, id)")
    written = call._write(call.plan.groups)
    history.delete([(1, [5, 9])])
    expected = rows(history.table)
    call._commit((written,))
    assert len(history.tasks()) > 3
    assert rows(history.table) == expected


def test_samples_are_at_regular_distances(catalog: Catalog) -> None:
    history = filled(catalog, 2)
    (group,) = rewrite(history.table, ALL, order="n").plan.groups
    wide = replace(group.tasks[0], split_offsets=tuple(range(4, 1000, 100)), file_size_in_bytes=1000)
    one = replace(group, tasks=(wide,))
    assert [piece.start for piece in one.sampled(1)] == [0, 104, 304, 404, 504, 604, 804, 904]
    assert len(one.sampled(5)) == 10


# ---- sorted files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["id DESC", "hilbert(id, n)", "n NULLS LAST, p, id"])
def test_sorted_files_are_merged(catalog: Catalog, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files whose rows lie between each other, with deleted rows."""
    history = History.new(catalog, 3, spec=UNPARTITIONED_PARTITION_SPEC)
    for _ in range(3):
        history.next_id = 0
        history.append(50)
    compact(history.table, ALL | {"max-file-group-input-files": 1}, order=order)
    monkeypatch.setattr(limits, "SORTED_BATCH_ROWS", 7)
    monkeypatch.setattr(SortingDataWriter, "write", lambda *_: pytest.fail("the rows were sorted again"))
    history.delete([(0, [0, 20, 49]), (1, range(25, 50))])
    before = rows(history.table)
    assert len(history.tasks()) == 3
    compact(history.table, ALL, order=order)
    (table,) = tables(history)
    assert rows(history.table) == before
    assert_sound(history.table)
    if "(" in order:
        assert keys(table, order) == sorted(keys(table, order))
    else:
        name = order.split(" ", maxsplit=1)[0]
        known = [value for value in table[name].to_pylist() if value is not None]
        assert known == sorted(known, reverse="DESC" in order)


def sorted_history(catalog: Catalog) -> History:
    history = History.new(catalog, 3, spec=UNPARTITIONED_PARTITION_SPEC)
    for _ in range(3):
        history.append(50)  # in the order of `id`
    return history


@pytest.mark.parametrize("reason", ["order", "files", "memory", "batches", "no rows"])
def test_other_files_are_sorted(catalog: Catalog, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of order within a batch or between two of them; too many files; too many keys; a file without rows."""
    history = sorted_history(catalog)
    match reason:
        case "files":
            monkeypatch.setattr(limits, "MAX_MERGED_FILES", 2)
        case "memory":
            monkeypatch.setattr(limits, "MAX_MERGED_KEY_BYTES", 1000)
        case "batches":
            monkeypatch.setattr(limits, "SPARK_BATCH_ROWS", 1)
        case "no rows":
            history.delete([(1, range(50))])
    order = {"order": "n, id", "batches": "id DESC"}.get(reason, "id")
    call = rewrite(history.table, ALL, order=order)
    sorts: list[int] = []
    write = SortingDataWriter.write

    def counted(*args: Any) -> None:
        sorts.append(1)
        write(*args)

    monkeypatch.setattr(SortingDataWriter, "write", counted)
    before = rows(history.table)
    rewritten, _ = call.run()
    assert sorts
    assert rewritten
    (table,) = tables(history)
    found = table["n" if reason == "order" else "id"].to_pylist()
    ranks = [-1 if value is None else value for value in found]
    assert ranks == sorted(ranks, reverse=reason == "batches")
    assert rows(history.table) == before


def test_a_sort_order_id_is_not_believed(catalog: Catalog) -> None:
    """A file of another writer that names the table's order, and is not in it."""
    history = sorted_history(catalog)
    with history.reload().update_sort_order() as update:
        update.desc("id", IdentityTransform())
    table = history.reload()
    context = replace(write_context(table, str(uuid.uuid4())), sorted_by_table_order=True)
    ids = tuple(column.field_id for column in table.schema().fields)
    spec = WriterSpec(job=WriteJob.ROWS, context=context, layout=DeltaLayout(value_ids=ids, insert_ids=ids))
    written = write_task([history.batch(50)], spec, TaskIdentity())
    assert isinstance(written, TaskCommit)
    assert [file.sort_order_id for file in written.data_files] == [1]
    commit(table, AppendFiles(data_files=written.data_files))
    compact(history.table, ALL, order="id DESC NULLS LAST")
    (table,) = tables(history)
    assert table["id"].to_pylist() == [*range(199, -1, -1)]
