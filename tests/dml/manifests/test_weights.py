"""What is kept of manifests and their lists is weighed by what it holds, whoever wrote them."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StructType

from dml import limits
from dml.errors import CorruptFileError
from dml.manifests import read, weights, write
from dml.manifests.avro_schema import avro_schema
from dml.manifests.cache import ManifestCache, read_entries
from dml.manifests.entries import Entries, EntryArrays, EntryList
from dml.manifests.read import entries_of, read_manifest_list, type_of_records
from dml.manifests.weights import LineCache, bytes_of_encoded, bytes_of_lines
from dml.manifests.write import encode_line, list_line
from dml.model.manifest import ContentFile, EntryStatus, ManifestFile, PartitionSummary
from tests.dml.manifests.test_lockstep_entries import PARTITION_TYPES, PLAIN, entry
from tests.dml.manifests.test_lockstep_entries import written as written_manifest
from tests.dml.manifests.test_lockstep_lines import written

IO = PyArrowFileIO()
ANY_COLUMNS = 1 << 30
LONG = 200_000
SUMMARY = PartitionSummary(
    contains_null=False, contains_nan=False, lower_bound=b"2026-01-01", upper_bound=b"2026-01-31"
)
BARE = PartitionSummary(contains_null=False)

LINES: dict[str, dict[str, Any]] = {
    "honest": {"partitions": (SUMMARY,)},
    "many fields": {"partitions": (SUMMARY,) * 40},
    "unpartitioned": {"partitions": ()},
    "summaries without bounds": {"partitions": (BARE,) * limits.MAX_PARTITION_SUMMARIES},
    "short bounds": {
        "partitions": (replace(BARE, lower_bound=b"ab", upper_bound=b"cd"),) * limits.MAX_PARTITION_SUMMARIES
    },
    "long bounds": {"partitions": (replace(BARE, lower_bound=bytes(LONG)),)},
    "key metadata": {"key_metadata": bytes(LONG)},
    "path": {"manifest_path": "s3://b/" + "x" * LONG},
    "path of other letters": {"manifest_path": "s3://b/" + "\U0001f600" + "x" * LONG},
}

MANY = dict.fromkeys(range(1000, 21_000), 100_000)
FILES: dict[str, dict[str, Any]] = {
    "honest": {name: dict.fromkeys(range(300, 306), 1234) for name in ("column_sizes", "value_counts")}
    | {name: dict.fromkeys(range(300, 306), bytes(16)) for name in ("lower_bounds", "upper_bounds")},
    "path": {"path": "file:///t/" + "x" * LONG},
    "path of other letters": {"path": "file:///t/\U0001f600" + "x" * LONG},
    "format": {"file_format": "x" * LONG},
    "key metadata": {"key_metadata": bytes(LONG)},
    "one long bound": {"upper_bounds": {1: bytes(LONG)}},
    "many bounds": {"lower_bounds": dict.fromkeys(MANY, b"abc")},
    "many counts": {"column_sizes": MANY, "nan_value_counts": MANY},
    "splits": {"split_offsets": tuple(range(1000, 50_000))},
    "partition": {"partition": tuple("x" * LONG if name == "s" else None for name in PARTITION_TYPES)},
}


def line_of(number: int, **fields: Any) -> ManifestFile:
    """A line of which no part is another's."""
    return ManifestFile(
        **{
            "manifest_path": f"s3://bucket/warehouse/db/t/metadata/0123456789abcdef-{number:06}.avro",
            "manifest_length": 7_000 + number,
            "partition_spec_id": 0,
            "sequence_number": 10_000 + number,
            "min_sequence_number": 10_000 + number,
            "added_snapshot_id": 2**62 + number,
            "added_files_count": 1_000 + number,
            "added_rows_count": 1_000_000 + number,
            **fields,
        }
    )


@pytest.fixture(scope="module", autouse=True)
def _of_other_tests() -> Iterator[None]:
    """Leave what other tests have imported and made out of the collections of garbage, two for each measurement."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def held_by(make: Callable[[], Any]) -> tuple[Any, int]:
    """What is made, and how many bytes it takes; some kilobytes are kept of each file by others."""
    make()
    gc.collect()
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        return made, tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - arrow - 10_000
    finally:
        tracemalloc.stop()


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are read and encoded anew."""
    monkeypatch.setattr(read, "READ_LINES", LineCache(0, lambda key, found: bytes_of_encoded(found, key[1])))
    monkeypatch.setattr(write, "WRITTEN_LINES", LineCache(0, lambda key, line: bytes_of_encoded(key[0], line)))


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("kind", LINES)
def test_lines_weigh_what_they_take(tmp_path: Path, kind: str) -> None:
    is_honest = kind in {"honest", "many fields"}
    count = 200 if is_honest else 4
    location = written(tmp_path, [line_of(number, **LINES[kind]) for number in range(count)], 2)
    found, held = held_by(lambda: read_manifest_list(IO, location))
    assert held <= bytes_of_lines(found)
    if is_honest:
        assert bytes_of_lines(found) < 2 * held


@pytest.mark.parametrize("many", [False, True], ids=["one by one", "cut apart"])
def test_a_line_with_more_summaries_than_any_spec_has_fields_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, many: bool
) -> None:
    monkeypatch.setattr(limits, "MIN_LOCKSTEP_LINES", 0 if many else 1 << 40)
    most = (BARE,) * limits.MAX_PARTITION_SUMMARIES
    location = written(tmp_path, [line_of(1, partitions=most)], 2)
    assert [line.partitions for line in read_manifest_list(IO, location)] == [most]
    location = written(tmp_path, [line_of(1), line_of(2, partitions=(*most, BARE))], 2)
    with pytest.raises(CorruptFileError, match=r"000002\.avro' has summaries of 4097 partition fields"):
        read_manifest_list(IO, location)


@pytest.mark.parametrize(
    ("fields", "is_kept"),
    [
        ({"partitions": (SUMMARY,)}, True),
        ({"partitions": (BARE,) * 600}, False),
        ({"key_metadata": bytes(limits.MAX_CACHED_LINE_BYTES)}, False),
        ({"partitions": (replace(BARE, lower_bound=bytes(limits.MAX_CACHED_LINE_BYTES)),)}, False),
        ({"manifest_path": "\u00e9" * (limits.MAX_CACHED_LINE_BYTES // 2)}, False),
    ],
    ids=["short", "summaries", "key metadata", "bounds", "path"],
)
def test_lines_that_are_long_when_they_are_encoded_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], *, is_kept: bool
) -> None:
    encoded: list[ManifestFile] = []

    def noted(line: ManifestFile, version: int) -> bytes:
        encoded.append(line)
        return encode_line(line, version)

    monkeypatch.setattr(write, "encode_line", noted)
    monkeypatch.setattr(write, "WRITTEN_LINES", LineCache(1 << 20, lambda key, line: bytes_of_encoded(key[0], line)))
    line = line_of(1, **fields)
    assert list_line(line, 2) == list_line(line, 2) == encode_line(line, 2)
    assert len(encoded) == (1 if is_kept else 2)
    assert (write.WRITTEN_LINES.nbytes > 0) is is_kept


@pytest.mark.parametrize("summary", [BARE, replace(BARE, lower_bound=b"ab", upper_bound=b"cd"), SUMMARY])
def test_lines_that_are_kept_are_bounded_by_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, summary: PartitionSummary
) -> None:
    """A line of two thousand bytes may have hundreds of summaries."""
    size = len(encode_line(line_of(1, partitions=(summary,) * 50), 2)) - len(encode_line(line_of(1), 2))
    line_length = (limits.MAX_CACHED_LINE_BYTES - 200) * 50 // size
    lines = [line_of(number, partitions=(summary,) * line_length) for number in range(40)]
    location = written(tmp_path, lines, 2)
    for limit in (1 << 40, 1 << 18):
        kept = LineCache[Any, Any](limit, lambda key, found: bytes_of_encoded(found, key[1]))
        monkeypatch.setattr(read, "READ_LINES", kept)
        tracemalloc.start()
        read_manifest_list(IO, location)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held - 10_000 <= kept.nbytes <= limit


def test_of_kept_lines_the_first_go_first() -> None:
    kept: LineCache[str, int] = LineCache(10, lambda line, _: len(line))
    for line in ("aaaa", "bbbb", "cccc", "cccc"):
        kept.keep(line, len(line))
    assert [kept.get(line) for line in ("aaaa", "bbbb", "cccc")] == [None, 4, 4]
    assert kept.nbytes == 8
    kept.keep("d" * 11, 11)
    assert (kept.get("d" * 11), kept.nbytes) == (None, 0)


def looked_at(found: Entries) -> Entries:
    """The same, all metrics of which somebody asked for."""
    if isinstance(found, EntryList):
        for each in found.entries:
            file = each.data_file
            for metrics in (file.column_sizes, file.value_counts, file.null_value_counts, file.nan_value_counts):
                len(metrics)
    return found


@pytest.mark.parametrize("columns", [1, ANY_COLUMNS], ids=["long ones as arrays", "all as objects"])
@pytest.mark.parametrize("kind", FILES)
def test_entries_weigh_what_they_take(tmp_path: Path, kind: str, columns: int) -> None:
    file: ContentFile = replace(PLAIN, **FILES[kind])
    line = written_manifest(tmp_path, [entry(file, EntryStatus.ADDED, 7)] * (100 if kind == "honest" else 3))

    def looked() -> Any:
        cache = ManifestCache(1 << 40)
        return cache, looked_at(cache.entries([line], IO, columns)(line))

    (cache, found), held = held_by(looked)
    assert isinstance(found, EntryArrays) is (kind != "honest" and columns == 1)
    assert held <= 1.1 * cache.nbytes
    if kind == "honest":
        assert cache.nbytes < 2 * held


def test_how_many_entries_there_are_the_manifest_says(tmp_path: Path) -> None:
    """The manifest list may say anything."""
    files = [replace(PLAIN, path=f"file:///t/{number}.parquet") for number in range(limits.MAX_ENTRY_OBJECTS + 1)]
    line = written_manifest(tmp_path, [entry(file, EntryStatus.ADDED, 7) for file in files])
    found = read_entries(replace(line, added_files_count=1), IO, 6).value
    assert isinstance(found, EntryArrays)
    few = written_manifest(tmp_path, [entry(file, EntryStatus.ADDED, 7) for file in files[1:]])
    assert isinstance(read_entries(replace(few, added_files_count=None), IO, 6).value, EntryList)


def test_a_few_long_entries_are_the_same_as_arrays(tmp_path: Path) -> None:
    files = [replace(PLAIN, path=f"file:///t/{number}", upper_bounds={2: bytes(LONG)}) for number in range(9)]
    line = written_manifest(tmp_path, [entry(file, EntryStatus.ADDED, 7) for file in files])
    found = read_entries(line, IO, 6).value
    assert isinstance(found, EntryArrays)
    assert [found.entry(place) for place in range(9)] == list(entries_of(line, IO))


def test_partitions_of_collections_are_refused() -> None:
    partition = StructType(NestedField(1000, "p", ListType(1001, LongType(), element_required=True), required=False))
    file = StructType(NestedField(102, "partition", partition, required=True))
    schema = avro_schema(Schema(NestedField(2, "data_file", file, required=True)), "manifest_entry")
    with pytest.raises(ValueError, match=r"partition field 'p' are of the type list<long>"):
        type_of_records(schema.encode())
    assert weights.bytes_of_values(("a" * 1000, None, 7)) > 1000
