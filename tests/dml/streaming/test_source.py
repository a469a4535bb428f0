"""Which snapshots and files a stream reads, without Spark: offsets, limits, what is passed over, what is an error.

After Iceberg's own `TestStructuredStreamingRead3` and `TestStreamingOffset`.
"""

import json
import shutil
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType

from dml.commit import AppendFiles, CommittedSnapshot, DeleteFiles, OverwriteByFilter, RewriteFiles, RowDelta, commit
from dml.errors import AnalysisError, DmlError, NotFoundError, NotSupportedError
from dml.manifests import read
from dml.options import Command
from dml.streaming.files import SnapshotFileCache, SnapshotPart
from dml.streaming.offsets import NOTHING_READ, StreamOffset
from dml.streaming.source import StreamedTable, check_columns
from dml.streaming.source_options import ReadLimits, SourceOptions
from tests.dml.commit.builders import data_file, deletes, new_table
from tests.fixtures.java.tables import HERE, place_of_tables

OPEN = ReadLimits()


@dataclass
class Stream:
    """A stream of a table, as Spark runs one: the latest offset, the tasks up to it, and so on."""

    table: Table
    options: SourceOptions = field(default_factory=SourceOptions)
    offset: StreamOffset | None = None

    def __post_init__(self) -> None:
        self.files = SnapshotFileCache()

    @property
    def source(self) -> StreamedTable:
        return StreamedTable(name="lake.db.t", table=self.table, options=self.options, files=self.files)

    def batch(self, limits: ReadLimits = OPEN) -> list[str] | None:
        """The files of the next micro-batch; None where there is nothing new."""
        self.table.refresh()
        start = self.source.starting_offset() if self.offset is None else self.offset
        end = self.source.latest_offset(start, limits, self.source.head_id)
        self.offset = end
        return None if end == start else [task.path for task in self.source.tasks(start, end)]

    def batches(self, limits: ReadLimits = OPEN) -> list[list[str]]:
        """All micro-batches."""
        found = []
        while (paths := self.batch(limits)) is not None:
            found.append(paths)
            assert len(found) < 100
        return found


def append(table: Table, *sizes: int) -> tuple[CommittedSnapshot, list[str]]:
    """A snapshot with a file of each number of rows."""
    files = [data_file(table, range(size)) for size in sizes]
    return commit(table, AppendFiles(data_files=tuple(files))), [file.path for file in files]


def compact(table: Table, *paths: str) -> CommittedSnapshot:
    rows = sum(file.file.record_count for file in table.refresh().scan().plan_files() if file.file.file_path in paths)
    file = replace(data_file(table, range(rows)), spec_id=0, partition=("a",) if table.specs()[0].fields else ())
    return commit(table, RewriteFiles(data_files=(file,), removed_data_files=frozenset(paths)))


def positions(table: Table, snapshot: Snapshot, *newer: Snapshot) -> list[int]:
    """The positions of the files of a snapshot, as a stream has them that has looked at newer ones."""
    files = SnapshotFileCache()
    for other in newer:
        files.load_newest(table, other)
        files.files_of_parts(table, [SnapshotPart(snapshot=snapshot)])
    return [place for place, _ in files.with_positions(table, SnapshotPart(snapshot=snapshot))]


OFFSETS = (
    (StreamOffset(snapshot_id=5, position=2), '{"version":1,"snapshot_id":5,"position":2,"scan_all_files":false}'),
    (
        StreamOffset(snapshot_id=2**62, scan_all_files=True),
        '{"version":1,"snapshot_id":4611686018427387904,"position":0,"scan_all_files":true}',
    ),
    (NOTHING_READ, '{"version":1,"snapshot_id":-1,"position":-1,"scan_all_files":false}'),
)


@pytest.mark.parametrize(("offset", "text"), OFFSETS)
def test_an_offset_is_written_as_the_jar_writes_it(offset: StreamOffset, text: str) -> None:
    assert offset.json == text
    assert StreamOffset.of_json(text) == offset
    spaced = text.replace(",", " , ").replace("{", '{"more":[1], ')
    assert StreamOffset.of_json(spaced) == offset


@pytest.mark.parametrize(
    "text",
    [
        "",
        "17",
        "null",
        "[]",
        '{"version":1,"snapshot_id":5,"position":2}',
        '{"version":1,"snapshot_id":"5","position":2,"scan_all_files":false}',
        '{"version":2,"snapshot_id":5,"position":2,"scan_all_files":false}',
        '{"logOffset":3}',
    ],
)
def test_the_checkpoint_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(AnalysisError, match="The checkpoint holds"):
        StreamOffset.of_json(text)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"streaming-max-file-per-micro-batch": "1"}, "Did you mean 'streaming-max-files-per-micro-batch'"),
        ({"streaming-max-files-per-micro-batch": "0"}, "a whole number from 1"),
        ({"streaming-max-rows-per-micro-batch": "many"}, "a whole number from 1"),
        ({"streaming-max-bytes-per-micro-batch": "-5"}, "a whole number from 1"),
        ({"stream-from-timestamp": "2026-01-01"}, "is '2026-01-01'"),
        ({"stream-from-timestamp": "1", "stream-from-snapshot-id": "1"}, "each selects where to begin"),
        ({"streaming-skip-delete-snapshots": "yes"}, "true or false"),
        ({"snapshot-id": "1"}, "gets no more rows"),
        ({"as-of-timestamp": "1"}, "gets no more rows"),
        ({"tag": "v1"}, "gets no more rows"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises((AnalysisError, NotSupportedError)) as raised:
        SourceOptions.of(given)
    assert said in str(raised.value)


def test_options_have_the_names_of_the_jar() -> None:
    given = {
        "stream-from-timestamp": "-5",
        "streaming-skip-delete-snapshots": "TRUE",
        "streaming-skip-overwrite-snapshots": "true",
        "streaming-max-files-per-micro-batch": "3",
        "streaming-max-rows-per-micro-batch": "9999999999",
        "streaming-snapshot-polling-interval-ms": "1",
        "branch": "audit",
        "split-size": "1",
    }
    assert SourceOptions.of(given) == SourceOptions(
        branch="audit",
        from_timestamp=-5,
        skips_deletes=True,
        skips_overwrites=True,
        limits=ReadLimits(files=3, rows=9_999_999_999),
    )


def test_a_stream_reads_each_file_once_from_the_first_snapshot_on(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    first, second = append(table, 1, 2)[1], append(table, 3)[1]
    stream = Stream(table)
    assert stream.batch() == first + second
    assert stream.batch() is None
    third = append(table, 1)[1]
    fourth = append(table, 1, 1)[1]
    assert stream.batch() == third + fourth
    assert stream.batch() is None
    commit(table, AppendFiles())  # a snapshot without files
    assert stream.batch() == []
    assert Stream(table, offset=stream.offset).batch() is None


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        (ReadLimits(files=1), [1, 2, 1, 1, 1, 1]),
        (ReadLimits(files=2), [3, 2, 2]),
        (ReadLimits(files=4), [5, 2]),
        (ReadLimits(rows=1), [1, 2, 1, 1, 1, 1]),
        (ReadLimits(rows=2), [3, 2, 2]),
        (ReadLimits(rows=4), [4, 3]),
        (ReadLimits(files=1, rows=2), [1, 2, 1, 1, 1, 1]),
        (ReadLimits(files=100, rows=100, size=10**9), [7]),
        (ReadLimits(size=1), [1, 2, 1, 1, 1, 1]),
    ],
)
def test_a_micro_batch_is_as_large_as_the_jars(catalog: Catalog, limits: ReadLimits, sizes: list[int]) -> None:
    """The sizes are those that Iceberg's tests expect; a limit in bytes is ours."""
    table = new_table(catalog, 2)
    rows: dict[Any, Any] = {}
    for added in ((1, 2), (1, 1), (1, 1)):
        rows |= dict(zip(append(table, *added)[1], added, strict=True))
    batches = Stream(table).batches(limits)
    assert [sum(rows[path] for path in batch) for batch in batches] == sizes
    assert [path for batch in batches for path in batch] == list(rows)


def test_a_limit_in_bytes_is_exceeded_by_no_second_file(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    append(table, 1, 1, 1, 1, 1)
    size = next(iter(table.refresh().scan().plan_files())).file.file_size_in_bytes
    for limit, counts in ((2 * size - 1, [1] * 5), (2 * size, [2, 2, 1]), (3 * size - 1, [2, 2, 1])):
        assert [len(batch) for batch in Stream(table).batches(ReadLimits(size=limit))] == counts


@pytest.mark.parametrize("version", [1, 2, 3])
def test_merged_manifests_and_several_specs_lose_and_repeat_nothing(catalog: Catalog, version: int) -> None:
    """The positions of files have gaps then; what was read before a compaction is not read after it."""
    properties = {"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "true"}
    table = new_table(catalog, version, partitioned=True, **properties)
    stream, bounded, expected = Stream(table), Stream(table), []
    for number in range(4):
        paths = append(table, 1, 2, number + 1)[1]
        assert stream.batch() == paths
        expected += paths
    with table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "by_id")
    old = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"), spec_id=0)
    assert table.refresh().spec() != old
    for number in range(3):
        new = replace(data_file(table, [number]), spec_id=table.spec().spec_id, partition=("a", number))
        older = replace(data_file(table, [7, 8]), spec_id=0, partition=("a",))
        commit(table, AppendFiles(data_files=(new, older)))
        expected += [new.path, older.path]
        assert sorted(stream.batch()) == sorted([new.path, older.path])
    for number, snapshot in enumerate(table.refresh().metadata.snapshots):
        assert positions(table, snapshot) == positions(table, snapshot, *table.metadata.snapshots[number + 1 :])
    for limit in (ReadLimits(files=1), ReadLimits(files=2), ReadLimits(files=4), ReadLimits(rows=3), OPEN):
        found = [path for batch in Stream(table).batches(limit) for path in batch]
        assert sorted(found) == sorted(expected)
    assert bounded.batch(ReadLimits(files=5)) == expected[:5]
    compact(table, *expected[:3])
    assert sorted(path for batch in bounded.batches(ReadLimits(files=3)) for path in batch) == sorted(expected[5:])
    assert stream.batch() is None


def test_a_planned_batch_stays_as_it_is(catalog: Catalog) -> None:
    """After a restart Spark asks again for a batch that it has written down, whatever happened to the table since."""
    table = new_table(catalog, 2)
    first, second = append(table, 1, 2, 3)[1], append(table, 1)[1]
    stream = Stream(table)
    stream.batch(ReadLimits(files=2))
    start = stream.offset
    assert stream.batch(ReadLimits(files=2)) == [*first[2:], *second]
    append(table, 1)
    compact(table, *first)
    commit(table, DeleteFiles(row_filter=AlwaysTrue()))
    again = Stream(table.refresh())
    assert [task.path for task in again.source.tasks(start, stream.offset)] == [*first[2:], *second]


def test_where_a_stream_begins(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    assert Stream(table).source.starting_offset() == NOTHING_READ
    snapshots = [append(table, 1) for _ in range(3)]
    ids = [made.snapshot_id for made, _ in snapshots]
    paths = [path for _, added in snapshots for path in added]
    # Milliseconds apart, as commits of a program are not.
    metadata = table.refresh().metadata
    times = [metadata.snapshot_by_id(made).timestamp_ms for made in ids]
    times = [times[0], times[0] + 10, times[0] + 20]
    metadata.snapshots[:] = [
        snapshot.model_copy(update={"timestamp_ms": times[ids.index(snapshot.snapshot_id)]})
        for snapshot in metadata.snapshots
    ]

    def begins(**options: object) -> StreamOffset:
        return Stream(table, SourceOptions(**options)).source.starting_offset()

    assert begins() == StreamOffset(snapshot_id=ids[0])
    assert begins(from_snapshot_id=ids[1]) == StreamOffset(snapshot_id=ids[1])
    assert begins(scan_all_files=True) == StreamOffset(snapshot_id=ids[2], scan_all_files=True)
    assert begins(from_timestamp=0) == StreamOffset(snapshot_id=ids[0])
    assert begins(from_timestamp=times[0]) == StreamOffset(snapshot_id=ids[0])
    assert begins(from_timestamp=times[0] + 1) == StreamOffset(snapshot_id=ids[1])
    assert begins(from_timestamp=times[2]) == StreamOffset(snapshot_id=ids[2])
    assert begins(from_timestamp=times[2] + 1) == NOTHING_READ
    with pytest.raises(NotFoundError, match="cannot begin at snapshot 17"):
        begins(from_snapshot_id=17)
    with pytest.raises(NotFoundError, match="no branch 'nowhere'"):
        begins(branch="nowhere")
    assert Stream(table, SourceOptions(from_snapshot_id=ids[1])).batch() == paths[1:]


def test_a_stream_that_began_with_an_empty_table_reads_all_that_comes(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    stream = Stream(table)
    assert stream.batch() is None
    assert stream.offset == NOTHING_READ
    paths = append(table, 1)[1] + append(table, 1, 1)[1]
    late = Stream(table, offset=NOTHING_READ)
    assert stream.batch(ReadLimits(files=2)) == paths[:2]
    assert stream.batch() == paths[2:]
    table.refresh().maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    with pytest.raises(NotFoundError, match="were expired before the stream read them"):
        late.batch()


def test_a_timestamp_in_the_future_waits_for_its_time(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    made, _ = append(table, 1)
    time = table.refresh().metadata.snapshot_by_id(made.snapshot_id).timestamp_ms
    stream = Stream(table, SourceOptions(from_timestamp=time + 1))
    assert stream.batch() is None
    while (last := append(table, 1))[0].snapshot_id and stream.batch() is None:
        assert stream.table.current_snapshot().timestamp_ms <= time
    assert stream.offset.snapshot_id == last[0].snapshot_id


def test_compactions_are_passed_over_and_what_takes_rows_away_is_an_error(catalog: Catalog) -> None:
    table = new_table(catalog, 2, partitioned=True)
    first = append(table, 4)[1]
    stream = Stream(table)
    assert stream.batch() == first
    at = stream.offset
    compact(table, *first)
    assert stream.batch() is None
    second = append(table, 2)[1]
    assert stream.batch() == second
    deleted = commit(table, DeleteFiles(paths=frozenset(second)))
    with pytest.raises(NotSupportedError) as raised:
        stream.batch()
    assert f"Cannot process delete snapshot: {deleted.snapshot_id}" in str(raised.value)
    assert "streaming-skip-delete-snapshots" in str(raised.value)
    skipping = Stream(table, SourceOptions(skips_deletes=True), stream.offset)
    assert skipping.batch() is None
    third = append(table, 1)[1]
    assert skipping.batch() == third
    commit(table, OverwriteByFilter(data_files=(data_file(table, [1, 2]),), row_filter=EqualTo("p", "a")))
    operations = [snapshot.summary.operation.value for snapshot in table.refresh().metadata.snapshots]
    assert operations == ["append", "replace", "append", "delete", "append", "overwrite"]
    with pytest.raises(NotSupportedError, match="'streaming-skip-overwrite-snapshots' to true"):
        skipping.batch()
    fourth = append(table, 1)[1]
    passing = Stream(table, SourceOptions(skips_deletes=True, skips_overwrites=True), at)
    assert passing.batches(ReadLimits(files=2)) == [second + third, fourth]


@pytest.mark.parametrize("version", [2, 3])
def test_appended_files_are_read_as_they_were_appended(catalog: Catalog, version: int) -> None:
    """Later deletes are no matter to a stream from the beginning; one of the whole table leaves their rows out."""
    table = new_table(catalog, version)
    file = data_file(table, [1, 2, 3])
    commit(table, AppendFiles(data_files=(file,)))
    start = table.refresh().metadata.current_snapshot_id
    delete = deletes(table, file, [1])
    commit(table, RowDelta(command=Command.DELETE, delete_files=(delete,), starting_snapshot_id=start))
    source = Stream(table.refresh(), SourceOptions(skips_deletes=True)).source
    begin = source.starting_offset()
    (task,) = source.tasks(begin, source.latest_offset(begin, OPEN, source.head_id))
    assert (task.path, task.has_deletes) == (file.path, False)
    assert task.first_row_id == (0 if version == 3 else None)
    whole = Stream(table, SourceOptions(scan_all_files=True))
    begin = whole.source.starting_offset()
    end = whole.source.latest_offset(begin, OPEN, whole.source.head_id)
    (task,) = whole.source.tasks(begin, end)
    assert (task.path, task.has_deletes) == (file.path, True)
    whole.offset = end
    assert whole.batch() is None
    assert whole.batch() is None
    added = append(table, 1, 1)[1]
    assert whole.batches(ReadLimits(files=1)) == [[path] for path in added]


def test_the_whole_table_in_several_batches(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    paths = append(table, 1, 1)[1] + append(table, 1)[1]
    batches = Stream(table, SourceOptions(scan_all_files=True)).batches(ReadLimits(files=2))
    assert [len(batch) for batch in batches] == [2, 1]
    assert sorted(path for batch in batches for path in batch) == sorted(paths)


def test_a_branch_is_followed(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    main = append(table, 1)[1]
    side = data_file(table, [1])
    made = commit(table, AppendFiles(data_files=(side,)), branch="audit", create_branch=True)
    append(table, 1)
    stream = Stream(table.refresh(), SourceOptions(branch="audit"))
    assert stream.batch() == [*main, side.path]
    table.manage_snapshots().create_tag(made.snapshot_id, "v1").commit()
    with pytest.raises(NotSupportedError, match="'v1', a tag, selects a state"):
        Stream(table.refresh(), SourceOptions(branch="v1")).batch()
    table.manage_snapshots().remove_branch("audit").commit()
    with pytest.raises(NotFoundError, match="no branch 'audit'"):
        stream.batch()


def test_an_offset_that_the_table_has_no_more(catalog: Catalog) -> None:
    table = new_table(catalog, 2)
    stream = Stream(table)
    first = append(table, 1)[0].snapshot_id
    stream.batch()
    append(table, 1)
    ahead = Stream(table)
    ahead.batch()
    table.refresh().manage_snapshots().rollback_to_snapshot(first).commit()
    append(table, 1)
    with pytest.raises(NotFoundError, match="does not descend from it"):
        ahead.batch()
    table.refresh().maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(NotFoundError, match=f"current offset at snapshot {first}, the snapshot was expired or removed"):
        stream.batch()
    catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(ref_name="main"),))
    with pytest.raises(NotFoundError, match="branch 'main': the branch has no snapshots"):
        ahead.batch()
    other = new_table(catalog, 2, name="other")
    append(other, 1)
    with pytest.raises(NotFoundError, match="dropped and created again"):
        Stream(other, offset=ahead.offset).batch()


JAVAS = HERE / "streamed"


@pytest.mark.parametrize("key", ["all", "files 1", "files 2", "rows 3"])
def test_offsets_are_those_that_java_wrote(catalog: Catalog, key: str) -> None:
    """Of a table of Java's, with merged manifests, a compaction and two specs; the files are read by a Spark test."""
    written = json.loads((JAVAS / "stream.json").read_text())
    with place_of_tables() as place:
        shutil.copytree(JAVAS / "files", place / "db" / "streamed")
        table = catalog.register_table(("db", "streamed"), f"file://{written['metadata']}")
        stream = Stream(table, SourceOptions.of(written[key]["options"]))
        assert stream.source.starting_offset().json == written[key]["initial"]
        offsets, rows = [], []
        while stream.batch(stream.options.limits) is not None:
            offsets.append(stream.offset.json)
        assert offsets == written[key]["offsets"]
        offset = stream.source.starting_offset()
        for text in offsets:
            until = StreamOffset.of_json(text)
            rows.append(sum(task.record_count for task in Stream(table).source.tasks(offset, until)))
            offset = until
        assert rows == [len(batch) for batch in written[key]["batches"]]


def counted(function):
    """Runs a function; how many manifest lists and manifests it opened."""
    opened: list[str] = []
    original = read.content_of

    def content(io, location):
        opened.append(location)
        return original(io, location)

    with patch.object(read, "content_of", content):
        function()
    lists = sum("snap-" in path for path in opened)
    return lists, len(opened) - lists


def test_a_micro_batch_opens_what_it_reads(catalog: Catalog) -> None:
    """However many snapshots there are: one manifest list, and the manifest of each snapshot that is read."""
    table = new_table(catalog, 2, **{"commit.manifest-merge.enabled": "false"})
    stream = Stream(table)
    for _ in range(20):
        append(table, 1)
    assert counted(stream.batch) == (1, 20)  # a stream that was behind
    assert counted(stream.batch) == (0, 0)  # nothing new
    for _ in range(3):
        append(table, 1, 1)
        assert counted(stream.batch) == (1, 1)
    limited = Stream(table)
    assert counted(lambda: limited.batch(ReadLimits(files=1))) == (2, 2)  # the file after the last one is looked at
    for _ in range(5):
        assert counted(lambda: limited.batch(ReadLimits(files=1))) == (1, 1)
    again = Stream(table, offset=limited.offset)
    again.files = limited.files
    limited.batch(ReadLimits(files=5))
    planned = Stream(table)
    assert counted(lambda: planned.source.tasks(again.offset, limited.offset)) == (1, 5)  # after a restart


READ = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "l", ListType(4, IntegerType(), element_required=False), required=False),
)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ([READ.fields[0], READ.fields[1]], None),  # `l` was dropped
        ([*READ.fields, NestedField(9, "new", StringType(), required=False)], None),
        ([READ.fields[0].model_copy(update={"name": "key"}), *READ.fields[1:]], None),
        ([NestedField(1, "id", LongType(), required=True)], "'id' of lake.db.t has the type long where it had int"),
        ([NestedField(1, "id", IntegerType(), required=False)], "'id' of lake.db.t has NULLs"),
        ([READ.fields[1]], "'id' of lake.db.t has NULLs"),
        (
            [READ.fields[0], NestedField(3, "l", ListType(4, LongType(), element_required=False), required=False)],
            "'element' of lake.db.t has the type long",
        ),
    ],
)
def test_a_running_stream_notices_columns_that_are_others_now(now: list[NestedField], said: str | None) -> None:
    if said is None:
        check_columns("lake.db.t", READ, Schema(*now))
        return
    with pytest.raises(DmlError, match="Start the query again") as raised:
        check_columns("lake.db.t", READ, Schema(*now))
    assert said in str(raised.value)
