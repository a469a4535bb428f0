"""Files that were made to mislead: claims of much memory, deletes of other files, entries that contradict."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CorruptFileError, DmlError
from dml.manifests.entries import EntryArrays
from dml.manifests.entry_fields import KNOWN
from dml.manifests.read import entries_of
from dml.model.manifest import EntryStatus, ManifestContent, ManifestFile
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.read.applied_deletes import DeleteLoader
from dml.read.reader import TaskReader
from dml.scan.planner import plan_scan
from dml.scan.table_scan import TableScan
from tests.damage import hostile
from tests.damage.conftest import Program
from tests.damage.samples import Outcome, Sample, make_sample
from tests.dml.commit.builders import DELETES


def test_what_claims_too_much_is_refused_in_little_memory_and_time(program: Program, tried: Counter[str]) -> None:
    """In a process of its own, which must not end either."""
    ran = program.run("hostile")
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert told[-1:] == [{"done": True}], (told[-1:], ran.stderr[-2000:])
    tried["hostile claims: refused"] += len(told) - 1
    assert len(told) > 100
    assert [case for case in told[:-1] if case["outcome"] != "refused"] == []
    assert [case for case in told[:-1] if case["bytes"] > hostile.LIMIT_BYTES] == []
    assert [case for case in told[:-1] if case["seconds"] > hostile.LIMIT_SECONDS] == []


def test_what_they_were_made_from_is_read() -> None:
    """Else the files above would be refused for other reasons."""
    good = hostile.ENTRY + hostile.VALUE + hostile.long(1) + hostile.long(5) + hostile.long(7) + hostile.NULL * 3
    manifest = hostile.container(hostile.SCHEMA, good)
    assert hostile.of_manifest(manifest)() == [{5: 7}]
    for wanted in (KNOWN, ()):
        columns = hostile.of_columns(manifest, wanted)()
        assert isinstance(columns, EntryArrays)
        assert columns.size == 1


def first_column(table: Table) -> TableScan:
    """A scan of the first column of a table."""
    return TableScan(table=table, snapshot_id=table.metadata.current_snapshot_id, schema=table.schema(), columns=(1,))


def tasks_of(sample: Sample) -> tuple[ScanTask, ...]:
    return plan_scan(sample.table, None).tasks


def positions(sample: Sample, task: ScanTask) -> PositionDeleteIndex | None:
    table = sample.table
    return DeleteLoader(table.schema(), table.io.properties).positions(task)


def test_a_vector_that_is_not_the_one_of_its_manifest_entry_is_refused(
    samples: dict[int, Sample], tried: Counter[str]
) -> None:
    """Another count, another place, another length, none at all, or a place outside of the file."""
    sample = samples[3]
    task, other = tasks_of(sample)
    ref, other_ref = task.deletion_vector, other.deletion_vector
    assert ref is not None
    assert other_ref is not None
    offset, length = ref.content_offset, ref.content_size_in_bytes
    assert offset is not None
    assert length is not None
    changes: list[dict[str, Any]] = [
        {"record_count": 4}, {"record_count": 0}, {"record_count": -1}, {"content_offset": None},
        {"content_size_in_bytes": None}, {"content_offset": -1}, {"content_offset": offset + 1},
        {"content_offset": 2**62}, {"content_size_in_bytes": 2**62}, {"content_size_in_bytes": -1},
        {"content_size_in_bytes": length - 1}, {"content_size_in_bytes": length + 1},
        {"content_offset": ref.file_size_in_bytes}, {"file_size_in_bytes": 2**62, "content_size_in_bytes": 2**61},
        {"file_size_in_bytes": ref.file_size_in_bytes + 1}, {"path": task.path}, {"path": ref.path + "x"},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(CorruptFileError) as raised:
            positions(sample, replace(task, deletion_vector=replace(ref, **change)))
        assert change.get("path", ref.path) in str(raised.value), change
        tried["deletion vector, other manifest entry: refused"] += 1


@pytest.mark.parametrize("rows", [[50], [0, 2**31], [2**32 + 1], [2**62]])
def test_deletes_beyond_the_end_of_their_data_file_are_refused(
    samples: dict[int, Sample], tmp_path: Path, tried: Counter[str], rows: list[int]
) -> None:
    """They belong to another file, so rows would be deleted that should not be, or others live on."""
    task = tasks_of(samples[3])[0]
    blob = encode(PositionDeleteIndex.from_positions(rows))
    puffin, parquet = tmp_path / "v.puffin", tmp_path / "d.parquet"
    puffin.write_bytes(blob)
    pq.write_table(pa.table({"file_path": [task.path] * len(rows), "pos": rows}, schema=DELETES), parquet)
    vector = ref_of(puffin, len(rows), content_offset=0, content_size_in_bytes=len(blob))
    for changed in (
        replace(task, deletion_vector=vector),
        replace(task, deletion_vector=None, position_deletes=(ref_of(parquet, len(rows)),)),
    ):
        with pytest.raises(CorruptFileError, match="50 rows"):
            positions(samples[3], changed)
        tried["deletes beyond the end: refused"] += 1


def ref_of(path: Path, record_count: int, **changes: Any) -> DeleteFileRef:
    fields: dict[str, Any] = {
        "path": str(path),
        "file_format": path.suffix[1:],
        "record_count": record_count,
        "file_size_in_bytes": path.stat().st_size,
        "data_sequence_number": 2,
    }
    return DeleteFileRef(**(fields | changes))


PATH = "file:///x.parquet"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"file_path": [PATH, PATH], "pos": [1, -1]}, "position -1"),
        ({"file_path": [PATH, PATH], "pos": [1, None]}, "nulls"),
        ({"file_path": [PATH, None], "pos": [1, 2]}, "nulls"),
        ({"file_path": [PATH, PATH], "pos": ["1", "2"]}, "positions are string"),
        ({"file_path": [PATH, PATH], "pos": [1.0, 2.0]}, "positions are double"),
        ({"file_path": [1, 2], "pos": [1, 2]}, "paths are int64"),
        ({"path": [PATH, PATH], "pos": [1, 2]}, "lacks the column 'file_path'"),
        ({"file_path": [PATH, PATH], "position": [1, 2]}, "lacks the column 'pos'"),
        ({"file_path": [PATH], "pos": [1]}, "1 rows where 2"),
        ({"file_path": [PATH] * 3, "pos": [1, 2, 3]}, "3 rows where 2"),
        ({"file_path": [], "pos": []}, "0 rows where 2"),
        ({"file_path": [PATH, "file:///y.parquet"], "pos": [3, 1]}, None),
        ({"file_path": [PATH, PATH], "pos": [3, 1]}, None),
        ({"file_path": [PATH, PATH], "pos": [3, 3]}, None),
        ({"pos": [3, 3], "file_path": [PATH, PATH]}, None),
    ],
)
def test_position_delete_files_with_other_columns_rows_and_orders(
    samples: dict[int, Sample], tmp_path: Path, tried: Counter[str], columns: dict[str, list[Any]], expected: str | None
) -> None:
    """Unsorted rows, repeated ones and those of other files do no harm; what makes no sense is an error."""
    path = tmp_path / "d.parquet"
    table = pa.table(columns)
    if not table.num_rows:
        table = table.cast(pa.schema([("file_path", pa.string()), ("pos", pa.int64())]))
    pq.write_table(table, path)
    task = replace(tasks_of(samples[2])[0], path=PATH, position_deletes=(ref_of(path, 2),))
    if expected is None:
        found = positions(samples[2], task)
        assert found is not None
        assert 3 in found
        tried["position delete file, odd: right rows"] += 1
        return
    with pytest.raises(CorruptFileError, match=expected) as raised:
        positions(samples[2], task)
    assert str(path) in str(raised.value)
    tried["position delete file, hostile: refused"] += 1


@pytest.fixture
def fresh(tmp_path: Path) -> Sample:
    return make_sample(tmp_path / "w", 2)


def entry(status: int = 1, *, file: str = "/f", rows: int = 1, size: int = 1) -> bytes:
    """An entry of a manifest as `tests.damage.hostile` writes them."""
    fields = hostile.text(file) + hostile.text("parquet") + hostile.long(rows) + hostile.long(size)
    return hostile.long(status) + fields + hostile.NULL * 3


@pytest.mark.parametrize(
    ("block", "expected"),
    [(entry(len(EntryStatus)), "3"), (entry(-1), "-1"), (entry(rows=-1), "-1 rows"), (entry(size=-1), "-1 bytes")],
)
def test_entries_that_cannot_be_are_refused(block: bytes, expected: str) -> None:
    """A status that there is not, and counts below 0."""
    with pytest.raises(CorruptFileError, match=f"'f' cannot be read.*{expected}"):
        hostile.of_manifest(hostile.container(hostile.SCHEMA, block))()


def test_a_manifest_whose_content_is_another_one_than_its_list_says_is_refused(samples: dict[int, Sample]) -> None:
    """Else delete files would be read as rows."""
    for sample in samples.values():
        table = sample.table
        swapped = {"data manifest": ManifestContent.DELETES, "delete manifest": ManifestContent.DATA}
        for kind, content in swapped.items():
            line = ManifestFile(
                manifest_path=str(sample.files[kind]),
                manifest_length=len(sample.content[kind]),
                partition_spec_id=0,
                content=content,
                added_snapshot_id=1,
                sequence_number=2,
            )
            with pytest.raises(CorruptFileError, match="has a file of content"):
                list(entries_of(line, table.io))


def planned(sample: Sample, change: Callable[[ManifestFile], ManifestFile], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scan of the table as its manifest list would have it."""
    real = sys.modules["dml.manifests.cache"].manifests_of
    monkeypatch.setattr("dml.manifests.cache.manifests_of", lambda io, snapshot: tuple(map(change, real(io, snapshot))))
    table = sample.table
    scan = first_column(table)
    plan = scan.plan()
    reader = TaskReader(scan.context(plan.tasks))
    return sum(batch.num_rows for task in plan.tasks for batch in reader.read(task))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"partition_spec_id": 7}, "does not fit the spec 7"),
        ({"partition_spec_id": -1}, "does not fit the spec -1"),
        ({"manifest_length": 1}, "bytes where its manifest list has 1"),
        ({"manifest_length": -1}, "bytes where its manifest list has -1"),
        ({"manifest_length": 2**62}, "bytes where its manifest list has"),
        ({"manifest_path": "/no/such.avro"}, "missing"),
        ({"manifest_path": "http://host/m.avro"}, "not set up for the scheme 'http'"),
    ],
)
def test_lines_of_a_manifest_list_that_cannot_be_are_refused(
    samples: dict[int, Sample], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], expected: str
) -> None:
    with pytest.raises(DmlError, match=expected):
        planned(samples[2], lambda line: replace(line, **change), monkeypatch)


def test_a_data_file_that_is_listed_twice_is_refused(
    samples: dict[int, Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would come twice, and a delete would take both or one."""
    real = sys.modules["dml.manifests.cache"].manifests_of
    monkeypatch.setattr("dml.manifests.cache.manifests_of", lambda io, snapshot: real(io, snapshot) * 2)
    for version in (2, 3):
        with pytest.raises(CorruptFileError) as raised:
            plan_scan(samples[version].table, None)
        assert "twice" in str(raised.value) or "Two deletion vectors" in str(raised.value)


@pytest.mark.parametrize(("field", "value"), [("record_count", 49), ("record_count", 51), ("file_size_in_bytes", 5)])
def test_a_data_file_that_is_not_the_one_of_its_manifest_entry_is_refused(
    samples: dict[int, Sample], field: str, value: int
) -> None:
    """Positions of deleted rows would point to other rows."""
    table = samples[2].table
    task = replace(tasks_of(samples[2])[0], **{field: value}, position_deletes=())
    with pytest.raises(CorruptFileError) as raised:
        list(TaskReader(first_column(table).context([task])).read(task))
    assert task.path in str(raised.value)
    assert str(value) in str(raised.value)


def test_a_swapped_data_file_is_refused(fresh: Sample) -> None:
    """One of the same schema and the same number of rows, but of another size."""
    path = fresh.files["data"]
    rows = pq.read_table(path)
    with pa.BufferOutputStream() as sink:
        pq.write_table(rows, sink, compression="none", use_dictionary=False)
        content = sink.getvalue().to_pybytes()
    assert len(content) != len(fresh.content["data"])
    assert fresh.outcome("data", content) is Outcome.REFUSED
