"""Compactions that copy row groups byte for byte: rows, ids and deletes stay. Without Spark's session."""

import math
import random
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import dml.engine.rewrite_data_files as rewriting
from dml import limits
from dml.catalog import create_table
from dml.commit import AppendFiles, DeleteFiles, commit
from dml.engine.by_tasks import copy_by_tasks
from dml.engine.writes import WriteOutcome, write_context
from dml.errors import CorruptFileError
from dml.maintenance import rewrite_plan
from dml.model.columns import DeltaLayout
from dml.model.manifest import ContentFile, FileContent
from dml.model.write_task import JoinedDataFile, TaskCommit
from dml.scan.planner import plan_scan
from dml.write.column_metrics import MetricsMode, leaves
from dml.write.copied_row_groups import RowGroupCopier, with_float_metrics
from dml.write.delta_writer import write_task
from dml.write.output_files import TaskIdentity
from dml.write.writer_spec import WriteJob, WriterSpec
from tests.dml.commit.builders import ids
from tests.dml.engine.rewrites import (
    ALL,
    BY_P,
    NAME,
    History,
    assert_sound,
    compact,
    files,
    in_process,
    rewrite,
    rows,
)
from tests.other_writers import set_properties

WITH_DELETES = pytest.mark.parametrize("version", [2, 3])
MANY = [pytest.param(seed, marks=[] if seed < 4 else [pytest.mark.nightly]) for seed in range(150)]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Lets row groups of any size be copied. For each new file that the plan wants to copy: whether the task did."""
    in_process(monkeypatch)
    monkeypatch.setattr(limits, "MIN_COPIED_ROW_GROUP_BYTES", 1)
    found: list[bool] = []
    copy = RowGroupCopier.copy

    def note(self: RowGroupCopier, *arguments: Any, **given: Any) -> TaskCommit | None:
        done = copy(self, *arguments, **given)
        found.append(done is not None)
        return done

    monkeypatch.setattr(RowGroupCopier, "copy", note)
    return found


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def filled(catalog: Catalog, version: int, **given: Any) -> History:
    """A table of six files, each of three row groups."""
    limit = {"spec": UNPARTITIONED_PARTITION_SPEC, "write.parquet.row-group-limit": "20"}
    history = History.new(catalog, version, **limit | given)
    for place in range(6):
        history.append(50, p="ab"[place % 2])
    return history


def stored_ids(path: Path) -> list[int]:
    found: list[int] = pq.read_table(path, columns=["id"])["id"].to_pylist()
    return found


@pytest.mark.parametrize("version", [1, 2, 3])
def test_row_groups_are_copied(catalog: Catalog, version: int, copies: list[bool]) -> None:
    """The new file has the old pages and their indexes; a second run does nothing."""
    history = filled(catalog, version)
    before, old = rows(history.table), [local(task.path) for task in history.tasks()]
    assert compact(history.table)[:2] == (6, 1)
    assert copies == [True]
    (task,) = history.tasks()
    new = local(task.path)
    assert stored_ids(new) == [number for path in old for number in stored_ids(path)]
    footer, data = pq.read_metadata(new), new.read_bytes()
    assert (footer.num_row_groups, task.record_count, len(task.split_offsets)) == (18, 300, 18)
    assert footer.created_by == pq.read_metadata(old[0]).created_by
    for path in old:
        for place in range(3):
            chunks = [pq.read_metadata(path).row_group(place).column(column) for column in range(6)]
            start = chunks[0].dictionary_page_offset or chunks[0].data_page_offset
            assert path.read_bytes()[start : start + sum(chunk.total_compressed_size for chunk in chunks)] in data
    last = footer.row_group(17).column(5)
    assert last.has_offset_index
    assert last.has_column_index
    assert rows(history.table) == before
    assert_sound(history.table)
    assert ids(history.reload().metadata_location) == list(range(300))
    assert compact(history.table) == (0, 0, 0, 0, 0)


def metrics(history: History) -> list[tuple[Any, ...]]:
    """The metrics of data files, without sizes."""
    table = history.reload()
    found = plan_scan(table, table.metadata.current_snapshot_id, keep_metrics=True).metrics
    names = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    return [tuple(getattr(file, name) for name in names) for file in found]


@pytest.mark.parametrize("version", [2, 3])
def test_metrics_are_those_of_encoded_rows(catalog: Catalog, version: int, copies: list[bool]) -> None:
    history = filled(catalog, version)
    compact(history.table)
    copied = metrics(history)
    compact(history.table, ALL)
    assert copies == [True]
    assert copied == metrics(history)


@WITH_DELETES
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_few_deletes_are_carried(catalog: Catalog, version: int, is_partitioned: bool, copies: list[bool]) -> None:
    """Each new data file has all rows and one delete file; a second run does nothing, though it has deletes."""
    spec = BY_P if is_partitioned else UNPARTITIONED_PARTITION_SPEC
    history = filled(catalog, version, spec=spec)
    history.delete([(0, [0, 3]), (2, [49]), (3, [7]), (5, range(14))])
    before, given = rows(history.table), {"min-input-files": 2}
    done = compact(history.table, given)
    new = 2 if is_partitioned else 1
    assert done[:2] == (6, new)
    assert done[4] == (4 if version > 2 else 0)
    assert copies == [True] * new
    tasks = history.tasks()
    assert sum(task.record_count for task in tasks) == 300
    found = [
        ref for task in tasks for ref in ((task.deletion_vector,) if version > 2 else task.position_deletes) if ref
    ]
    assert [ref.referenced_data_file for ref in found] == [task.path for task in tasks]
    assert sum(ref.record_count for ref in found) == 18
    snapshot = history.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary["rowdelta.rows-carried"], snapshot.summary["total-records"]) == ("300", "300")
    assert rows(history.table) == before
    assert_sound(history.table)
    assert len(ids(history.reload().metadata_location)) == 282
    location = history.table.metadata_location
    assert compact(history.table, given) == (0, 0, 0, 0, 0)
    assert history.reload().metadata_location == location


@WITH_DELETES
@pytest.mark.parametrize(
    ("given", "copied"),
    [
        ({"delete-ratio-threshold": 0.35}, [True]),
        ({"delete-ratio-threshold": 0.2}, []),
        ({"delete-file-threshold": 1}, []),
    ],
)
def test_options_decide_which_rows_are_dropped(
    catalog: Catalog, version: int, given: dict[str, Any], copied: list[bool], copies: list[bool]
) -> None:
    history = filled(catalog, version)
    history.delete([(2, range(15))])
    before = rows(history.table)
    compact(history.table, given)
    assert copies == copied
    assert [task.record_count for task in history.tasks()] == [300 if copied else 285]
    assert rows(history.table) == before
    assert compact(history.table, given)[:2] == (0, 0)


@WITH_DELETES
def test_a_new_file_never_reaches_the_ratio(catalog: Catalog, version: int, copies: list[bool]) -> None:
    """A large file is cut in two, of which one half would consist of deleted rows."""
    history = History.new(
        catalog, version, spec=UNPARTITIONED_PARTITION_SPEC, **{"write.parquet.row-group-limit": "1000"}
    )
    history.append(4000)
    history.delete([(0, range(1100))])
    before, (task,) = rows(history.table), history.tasks()
    given = {"target-file-size-bytes": task.file_size_in_bytes // 2, "min-file-size-bytes": 1}
    compact(history.table, given)
    assert sorted(copies) == [False, True]
    assert sum(found.record_count for found in history.tasks()) == 2900
    assert rows(history.table) == before
    assert compact(history.table, given)[:2] == (0, 0)


def delete_few(history: History, chosen: random.Random) -> None:
    """Delete at most a tenth of the rows of some files."""
    places = {
        place: sorted(chosen.sample(range(task.record_count), chosen.randrange(1 + task.record_count // 10)))
        for place, task in enumerate(history.tasks())
        if chosen.random() < 0.5
    }
    if any(places.values()):
        history.delete(list(places.items()))


@WITH_DELETES
@pytest.mark.parametrize("seed", MANY)
def test_rows_are_the_same_before_and_after(catalog: Catalog, version: int, seed: int, copies: list[bool]) -> None:
    """Random tables, in which some files can be copied."""
    chosen = random.Random(seed)
    history = History.new(catalog, version, seed, **{"write.parquet.row-group-limit": "10"})
    if seed % 3 == 2:  # also files of other formats, schemas and specs
        history.run(chosen.randrange(5))
    for _ in range(4):
        history.append(chosen.randrange(1, 60))
        delete_few(history, chosen)
    table, before = history.reload(), rows(history.table)
    sizes = [task.file_size_in_bytes for task in history.tasks()]
    given: dict[str, Any] = {"min-input-files": 1, "delete-ratio-threshold": chosen.choice([0.5, 1])}
    if seed % 2:
        given["target-file-size-bytes"] = chosen.randrange(
            min(sizes) if seed % 3 == 2 else 2 * max(sizes), 6 * max(sizes)
        )
        given["partial-progress.enabled"] = seed % 4 == 1
    compact(table, given)
    assert any(copies) or seed % 3 == 2
    assert rows(table) == before, history.steps
    assert_sound(table)
    delete_few(history, chosen)
    history.append(20)
    table, before = history.reload(), rows(history.table)
    compact(table, given)
    assert rows(table) == before, history.steps
    assert_sound(table)


# ---- other commits --------------------------------------------------------------------------------------------------


def others_commit(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let another commit land while new files are written."""

    def copy(*arguments: Any, **given: Any) -> WriteOutcome:
        outcome = copy_by_tasks(*arguments, **given)
        change()
        return outcome

    monkeypatch.setattr(rewriting, "copy_by_tasks", copy)


@WITH_DELETES
def test_deletes_that_came_meanwhile_join_those_that_are_carried(
    catalog: Catalog, version: int, copies: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On version 3 in one vector, and no other file is left."""
    history = filled(catalog, version)
    history.delete([(0, [0, 3]), (2, [49])])
    old = files(history.table)
    others_commit(monkeypatch, lambda: history.delete([(0, [5]), (4, [1])]))
    compact(history.table)
    assert copies == [True]
    (task,) = history.tasks()
    assert len(ids(history.reload().metadata_location)) == len(rows(history.table)) == 295
    assert_sound(history.table)
    if version > 2:
        assert task.deletion_vector is not None
        assert task.deletion_vector.record_count == 5
        listed = [file for file in files(history.table) - old if file.suffix == ".puffin"]
        assert len(listed) == 2  # the other's, and that of the new file
    else:
        assert [ref.record_count for ref in task.position_deletes if ref.referenced_data_file == task.path] == [3, 2]


@WITH_DELETES
def test_a_conflict_leaves_no_file(
    catalog: Catalog, version: int, copies: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit has removed a file of one partition: that group is left out, with its delete file."""
    history = filled(catalog, version, spec=BY_P)
    history.delete([(0, [0]), (1, [1])])
    gone = next(task.path for task in history.tasks() if task.partition == ("a",))
    old = files(history.table)
    others_commit(monkeypatch, lambda: remove(history, gone))
    assert compact(history.table, {"min-input-files": 2})[:4] == (3, 1, sizes_of(history, old, "b"), 3)
    assert copies == [True, True]
    new = files(history.table) - old
    assert len(new) == 2
    assert_sound(history.table)


def remove(history: History, path: str) -> None:
    commit(history.reload(), DeleteFiles(paths=frozenset({path})))


def sizes_of(history: History, old: set[Path], partition: str) -> int:
    return sum(
        file.stat().st_size for file in old if file.parent.name == f"p={partition}" and "deletes" not in file.name
    )


# ---- files that are decoded -----------------------------------------------------------------------------------------


def add_column(history: History) -> None:
    with history.reload().update_schema() as update:
        update.add_column("later", StringType())


def promote(history: History) -> None:
    with history.reload().update_schema() as update:
        update.update_column("n", LongType())


def rename(history: History) -> None:
    with history.reload().update_schema() as update:
        update.rename_column("n", "m")


def drop(history: History) -> None:
    with history.reload().update_schema() as update:
        update.delete_column("l")


def properties(**given: str) -> Callable[[History], object]:
    return lambda history: set_properties(history.reload(), given)


def sort(history: History) -> None:
    with history.reload().update_sort_order() as update:
        update.asc("id", IdentityTransform())


CODEC = "write.parquet.compression-codec"


@pytest.mark.parametrize(
    ("change", "copied"),
    [
        pytest.param(add_column, [False], id="a file lacks a column"),
        pytest.param(promote, [False], id="a column has another type"),
        pytest.param(rename, [True], id="a column has another name"),
        pytest.param(drop, [True], id="a column was dropped"),
        pytest.param(properties(**{CODEC: "gzip"}), [False], id="another codec"),
        pytest.param(properties(**{CODEC: "zstd"}), [True], id="the same codec"),
        pytest.param(
            properties(**{"write.parquet.bloom-filter-enabled.column.id": "true"}), [False], id="bloom filter"
        ),
        pytest.param(properties(**{"write.parquet.row-group-size-bytes": "100"}), [False], id="smaller row groups"),
        pytest.param(properties(**{"write.parquet.row-group-limit": "19"}), [False], id="fewer rows"),
        pytest.param(properties(**{"write.format.default": "orc"}), [], id="another format"),
        pytest.param(sort, [], id="sorted"),
        pytest.param(History.evolve_spec, [], id="another spec"),
        pytest.param(History.delete_by_key, [], id="equality delete"),
        pytest.param(lambda history: history.append(5, "orc"), [], id="ORC"),
    ],
)
def test_other_files_are_decoded(
    catalog: Catalog, change: Callable[[History], object], copied: list[bool], copies: list[bool]
) -> None:
    history = filled(catalog, 3)
    history.delete([(0, [1])])
    change(history)
    before = rows(history.table)
    assert compact(history.table)[1] >= 1
    assert copies == copied
    assert rows(history.table) == before
    assert_sound(history.table)


def test_all_files_are_decoded_for_rewrite_all(catalog: Catalog, copies: list[bool]) -> None:
    history = filled(catalog, 2)
    compact(history.table, ALL)
    assert copies == []


@pytest.mark.parametrize("is_unknown", [False, True])
def test_small_row_groups_are_decoded(
    catalog: Catalog, is_unknown: bool, copies: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the manifests, or if they do not tell, by the footers."""
    history = filled(catalog, 2)
    sizes = [task.file_size_in_bytes for task in history.tasks()]
    monkeypatch.setattr(limits, "MIN_COPIED_ROW_GROUP_BYTES", max(sizes))
    monkeypatch.setattr(rewrite_plan, "row_group_size", lambda _: 2**30 if is_unknown else min(sizes) // 3)
    compact(history.table)
    assert copies == [False] * is_unknown


def test_a_dry_run_says_what_is_copied(catalog: Catalog, copies: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    history = filled(catalog, 2)
    found = rewrite(history.table)
    (first, *_) = found.decisions()
    assert first.reason.endswith("become 1, row groups of 0 MiB copied")
    monkeypatch.setattr(limits, "MIN_COPIED_ROW_GROUP_BYTES", 2**23)
    (first, *_) = found.decisions()
    assert first.reason.endswith("become 1")
    assert copies == []


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4", "brotli", "uncompressed"])
def test_each_codec_is_copied(catalog: Catalog, codec: str, copies: list[bool]) -> None:
    history = filled(catalog, 3, **{CODEC: codec})
    before = rows(history.table)
    compact(history.table)
    assert copies == [True]
    assert rows(history.table) == before
    assert ids(history.reload().metadata_location) == list(range(300))


def test_damage_is_found_and_named(catalog: Catalog, copies: list[bool]) -> None:
    """Chunks are not decoded, so their lengths are checked."""
    history = filled(catalog, 2)
    path = local(history.tasks()[3].path)
    data, old = path.read_bytes(), files(history.table)
    path.write_bytes(data[:-100] + bytes(100))
    with pytest.raises(CorruptFileError) as caught:
        compact(history.table)
    assert str(path) in str(caught.value)
    assert copies == [False]
    assert files(history.table) == old


# ---- floating-point columns -----------------------------------------------------------------------------------------


def with_numbers(catalog: Catalog, parts: list[list[float | None]], *, required: bool = False, **given: str) -> History:
    """A table of a floating-point column, with a file for each part."""
    id_column, column = (
        NestedField(1, "id", LongType(), required=required),
        NestedField(2, "n", DoubleType(), required=False),
    )
    table = create_table(catalog, NAME, Schema(id_column, column), properties={"format-version": "2", **given})
    history = History(table, random.Random(0))
    for part in parts:
        add_numbers(history, part)
    return history


def add_numbers(history: History, part: list[float | None]) -> None:
    table = history.reload()
    spec = WriterSpec(
        job=WriteJob.ROWS,
        context=write_context(table, str(uuid.uuid4())),
        layout=DeltaLayout(value_ids=(1, 2), insert_ids=(1, 2)),
    )
    batch = pa.record_batch([pa.array(range(len(part))), pa.array(part, pa.float64())], names=["v0", "v1"])
    written = write_task([batch], spec, TaskIdentity())
    assert isinstance(written, TaskCommit), written
    commit(table, AppendFiles(data_files=written.data_files))


@pytest.mark.parametrize("is_mixed", [False, True])
def test_files_may_require_values_if_all_do(catalog: Catalog, is_mixed: bool, copies: list[bool]) -> None:
    history = with_numbers(catalog, [[1.0], [2.0], [3.0], [4.0], [None]], required=True)
    with history.reload().update_schema() as update:
        update.make_column_optional("id")
    if is_mixed:
        add_numbers(history, [5.0])
    before = rows(history.table)
    compact(history.table)
    assert copies == [not is_mixed]
    assert rows(history.table) == before
    assert_sound(history.table)
    assert ids(history.reload().metadata_location) == [0] * (5 + is_mixed)


NAN = math.nan


@pytest.mark.parametrize(
    "parts",
    [
        [[1.5, NAN], [None, 3.0], [-2.0], [NAN], [None]],
        [[NAN], [NAN, None], [None], [NAN], [NAN]],
        [[0.0], [-0.0], [0.0], [-0.0], [math.inf]],
    ],
)
@pytest.mark.parametrize("is_trusted", [True, False])
def test_nans_are_counted_and_bounds_exclude_them(
    catalog: Catalog,
    parts: list[list[float | None]],
    is_trusted: bool,
    copies: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the manifests, if the writer of a file may have included NaN in its footer's bounds."""
    if not is_trusted:
        monkeypatch.setattr("dml.write.copied_row_groups.excludes_nan", lambda _: False)
    history = with_numbers(catalog, parts)
    compact(history.table)
    copied = metrics(history)
    compact(history.table, ALL)
    assert copies == [True]
    assert copied == metrics(history)


def test_metrics_that_are_unknown_stay_unknown(catalog: Catalog, copies: list[bool]) -> None:
    history = with_numbers(catalog, [[1.0]], **{"write.metadata.metrics.column.n": "none"})
    set_properties(history.reload(), {"write.metadata.metrics.column.n": "full"})
    compact(history.table, {"min-input-files": 1, "delete-file-threshold": 0})
    assert metrics(history)[0][2] in ({}, {2: 0})


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("lower", [0.0, float("nan")])
def test_nan_in_the_bounds_of_an_old_file_tells_nothing(order: str, lower: float) -> None:
    """Old releases of Iceberg's JAR wrote it: the file may hold any number, wherever it stands among the files."""

    def file(path: str, bounds: tuple[float, float] | None) -> ContentFile:
        packed = () if bounds is None else tuple({1: struct.pack("<d", bound)} for bound in bounds)
        return ContentFile(
            content=FileContent.DATA,
            path=path,
            file_format="parquet",
            spec_id=0,
            partition=(),
            record_count=10,
            file_size_in_bytes=1,
            value_counts={1: 10},
            null_value_counts={1: 0},
            **({"lower_bounds": packed[0], "upper_bounds": packed[1]} if packed else {}),
        )

    entries = {"a": file("a", (1.0, 5.0)), "b": file("b", (lower, float("nan")))}
    joined = JoinedDataFile(path="new", sources=tuple((path, True) for path in order))
    columns = leaves((NestedField(1, "x", DoubleType(), required=False),))
    found = with_float_metrics(file("new", None), joined, entries, columns, {1: MetricsMode()})
    assert (dict(found.lower_bounds), dict(found.upper_bounds)) == ({}, {})
