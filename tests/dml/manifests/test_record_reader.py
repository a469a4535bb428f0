"""The record reader accepts what the specification allows, and refuses other branches, types and lengths."""

import json
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import LongType, NestedField, StringType, StructType

from dml.errors import CorruptFileError
from dml.manifests.avro_decoder import CheckedDecoder
from dml.manifests.entry_fields import KNOWN, RECORD_COUNT, STATUS
from dml.manifests.read import entries_of, read_manifest_list
from dml.manifests.read_arrays import entry_arrays, read_arrays, read_blocks
from dml.manifests.record_reader import RecordReader
from dml.model.manifest import EntryStatus, ManifestFile
from tests.damage.hostile import (
    ENTRY,
    FILE,
    LONG_ENTRY,
    NULL,
    SCHEMA,
    VALUE,
    MemoryIO,
    container,
    long,
    manifest_schema,
    text,
)
from tests.dml.manifests.test_avro_decoder import replaced
from tests.dml.manifests.test_lockstep_entries import PARTITION_TYPES, PLAIN, entry, written
from tests.dml.manifests.test_lockstep_lines import written as written_list

LINE = ManifestFile(manifest_path="f", manifest_length=0, partition_spec_id=0, added_snapshot_id=1)
GOOD = ENTRY + NULL * 3


def ways(data: bytes) -> dict[str, Callable[[], object]]:
    """Each way in which the entries of a manifest are read."""
    line, io = replace(LINE, manifest_length=len(data)), MemoryIO({"f": data})

    def in_lockstep() -> object:
        file_type, found = read_blocks(line, io)
        return entry_arrays(file_type, [found], lockstep=True)

    return {
        "entries": lambda: list(entries_of(line, io)),
        "all columns": lambda: list(read_arrays([line], lambda _: io, KNOWN)),
        "one column": lambda: list(read_arrays([line], lambda _: io, {RECORD_COUNT})),
        "lockstep": in_lockstep,
    }


def test_what_the_tests_below_change_is_read() -> None:
    for read in ways(container(SCHEMA, GOOD)).values():
        assert read()


@pytest.mark.parametrize("branch", [2, -1, 3, 2**62])
@pytest.mark.parametrize("field", range(3))
def test_a_branch_that_a_union_does_not_have_is_refused(branch: int, field: int) -> None:
    data = container(SCHEMA, ENTRY + NULL * field + long(branch) + NULL * (2 - field))
    for way, read in ways(data).items():
        with pytest.raises(CorruptFileError, match=f"a union of two has no branch {branch}"):
            pytest.fail(f"{way}: {read()}")


def test_a_partition_value_of_another_branch_is_refused(tmp_path: Path) -> None:
    nulls = (None,) * len(PARTITION_TYPES)
    found = entry(replace(PLAIN, partition=(7, *nulls[1:])), EntryStatus.ADDED, 7)
    line = written(tmp_path, [found])
    line = replace(line, manifest_length=replaced(line.manifest_path, b"\x02\x0e" + bytes(14), b"\x04\x0e" + bytes(14)))
    with pytest.raises(CorruptFileError, match="a union of two has no branch 2"):
        list(entries_of(line, MemoryIO({line.manifest_path: Path(line.manifest_path[7:]).read_bytes()})))


@pytest.mark.parametrize("manifests", [1, 200])
def test_a_manifest_list_whose_union_has_another_branch_is_refused(tmp_path: Path, manifests: int) -> None:
    lines = [
        replace(LINE, manifest_path=f"file:///t/{number}.avro", sequence_number=1, key_metadata=b"key" * (not number))
        for number in range(manifests)
    ]
    location = written_list(tmp_path, lines, 2)
    replaced(location, b"\x02\x06key", b"\x04\x06key")
    io = MemoryIO({location: Path(location[7:]).read_bytes()})
    with pytest.raises(CorruptFileError, match="a union of two has no branch 2"):
        read_manifest_list(io, location)


def test_a_number_has_at_most_ten_bytes() -> None:
    longest = b"\xff" * 9 + b"\x01"
    assert CheckedDecoder(longest).read_int() == -(2**63)
    assert CheckedDecoder(b"\x82" + b"\x80" * 8 + b"\x00").read_int() == 1
    for data in (b"\x82" + b"\x80" * 9 + b"\x00", b"\x82" + b"\x80" * 10 + b"\x00"):
        for read in (
            lambda decoder: decoder.read_int(),
            lambda decoder: decoder.skip_int(),
            lambda decoder: decoder.read_ints(1),
            lambda decoder: decoder.skip_ints(1),
            lambda decoder: decoder.read_bytes(),
            lambda decoder: decoder.skip_utf8(),
            lambda decoder: decoder.read_int_bytes_dict(1, {}),
            lambda decoder: decoder.read_int_bytes(1, [], []),
            lambda decoder: decoder.skip_int_bytes(1),
        ):
            with pytest.raises(ValueError, match="a number has more than 10 bytes"):
                read(CheckedDecoder(data + bytes(20)))
            # A text of high bytes before it, which belong to no number, in a long block.
            decoder = CheckedDecoder(text(b"\xff" * 5000) + data + bytes(20))
            decoder.read_bytes()
            with pytest.raises(ValueError, match="a number has more than 10 bytes"):
                read(decoder)


def test_a_manifest_with_a_longer_number_is_refused() -> None:
    for way, read in ways(container(SCHEMA, LONG_ENTRY)).items():
        with pytest.raises(CorruptFileError, match="a number has more than 10 bytes"):
            pytest.fail(f"{way}: {read()}")


VALUES = st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40) | st.just(b"\xff" * 25)


@given(values=st.lists(VALUES, max_size=30), padding=st.integers(0, 1500))
def test_bytes_beside_numbers_make_no_number_too_long(values: list[int | bytes], padding: int) -> None:
    """High bytes of bounds and texts may stand directly before and behind a number."""
    data = text(bytes(padding)) + b"".join(long(v) if isinstance(v, int) else text(v) for v in values)
    decoder = CheckedDecoder(data)
    assert decoder.read_bytes() == bytes(padding)
    assert [decoder.read_int() if isinstance(value, int) else decoder.read_bytes() for value in values] == values
    decoder.finish()
    skipping = CheckedDecoder(data)
    skipping.skip_bytes()
    for value in values:
        if isinstance(value, int):
            skipping.skip_ints(1)
        else:
            skipping.skip_bytes()
    skipping.finish()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), st.integers(0, 29), st.integers(1, 3))
def test_a_long_number_among_others_is_found_by_reading_many(numbers: list[int], place: int, more: int) -> None:
    encoded = [long(number) for number in numbers]
    encoded.insert(min(place, len(encoded)), b"\x81" + b"\x80" * (8 + more) + b"\x00")
    with pytest.raises(ValueError, match="more than 10 bytes"):
        CheckedDecoder(b"".join(encoded)).read_ints(len(encoded))
    assert list(CheckedDecoder(b"".join(map(long, numbers))).read_ints(len(numbers))) == numbers


def changed(place: int, kind: Any) -> dict[str, Any]:
    return manifest_schema([*FILE[:place], {**FILE[place], "type": kind}, *FILE[place + 1 : -1]])


@pytest.mark.parametrize(
    ("schema", "block", "what"),
    [
        (changed(0, "bytes"), GOOD, "id 100 is of the type binary"),
        (changed(1, "bytes"), GOOD, "id 101 is of the type binary"),
        (changed(3, "boolean"), GOOD, "id 103 is of the type boolean"),
        (changed(3, "float"), long(1) + text("/f") + text("p") + bytes(4) + long(1) + NULL * 3, "id 103 .* float"),
        (changed(7, ["null", {"type": "array", "items": ["null", "long"], "element-id": 133}]), GOOD, "id 132 is"),
    ],
    ids=["path", "format", "count as boolean", "count as float", "offsets that may be null"],
)
def test_a_field_of_another_type_is_refused(schema: dict[str, Any], block: bytes, what: str) -> None:
    for way, read in ways(container(schema, block)).items():
        with pytest.raises(CorruptFileError, match=what):
            pytest.fail(f"{way}: {read()}")


@pytest.mark.parametrize("place", [0, 2, 3, 4])
def test_an_entry_without_a_value_that_is_required_is_refused(place: int) -> None:
    parts = [text("/f"), text("parquet"), b"", long(1), long(1)]
    parts[place] = NULL
    block = long(1) + b"".join(parts) + NULL * 3
    field_id = FILE[place]["field-id"]
    for way, read in ways(container(changed(place, ["null", FILE[place]["type"]]), block)).items():
        with pytest.raises(CorruptFileError, match=rf"without a path|lack the fields with the ids \[{field_id}\]"):
            pytest.fail(f"{way}: {read()}")


def test_a_field_that_occurs_twice_is_refused() -> None:
    for way, read in ways(container(manifest_schema([*FILE[:-1], {**FILE[3], "name": "n"}]), GOOD + long(1))).items():
        with pytest.raises(CorruptFileError, match=r"103.* twice"):
            pytest.fail(f"{way}: {read()}")


def test_partition_fields_may_have_any_ids() -> None:
    """Those of other fields of files among them, and one id twice: they are read by position."""
    fields = [{"name": f"p{place}", "type": ["null", "long"], "field-id": 108} for place in range(2)]
    partition = {"type": "record", "name": "r102", "fields": fields}
    block = ENTRY[: len(long(1) + text("/f") + text("parquet"))] + VALUE + long(5) + NULL + long(1) + long(1) + NULL * 3
    data = container(changed(2, partition), block)
    line, io = replace(LINE, manifest_length=len(data)), MemoryIO({"f": data})
    assert [found.data_file.partition for found in entries_of(line, io)] == [(5, None)]
    (found,) = read_arrays([line], lambda _: io, KNOWN)
    assert found.partitions == ((5, None),)
    (found,) = read_arrays([line], lambda _: io, ())
    assert found.values(STATUS) == [1]


def test_an_int_may_be_written_as_a_long() -> None:
    schema = json.loads(json.dumps(SCHEMA))
    schema["fields"][0]["type"] = "long"
    schema["fields"][1]["type"]["fields"][3]["type"] = "int"
    for read in ways(container(schema, GOOD)).values():
        assert read()


@pytest.mark.parametrize("place", [0, 2, 3, 4])
def test_a_missing_field_is_refused(place: int) -> None:
    parts = [text("/f"), text("parquet"), b"", long(1), long(1)]
    block = long(1) + b"".join(parts[:place] + parts[place + 1 :]) + NULL * 3
    for way, read in ways(container(manifest_schema(FILE[:place] + FILE[place + 1 : -1]), block)).items():
        with pytest.raises(CorruptFileError, match=f"lack the field.*{FILE[place]['field-id']}"):
            pytest.fail(f"{way}: {read()}")


@given(values=st.lists(st.tuples(st.integers(-5, 5), st.none() | st.text(max_size=5)), max_size=5))
def test_fields_are_skipped_moved_and_filled(values: list[tuple[int, str | None]]) -> None:
    file_type = StructType(
        NestedField(1, "a", LongType(), required=True), NestedField(2, "b", StringType(), required=False)
    )
    block = b"".join(long(a) + (NULL if b is None else VALUE + text(b)) for a, b in values)
    absent = NestedField(3, "c", LongType(), required=False)
    read_type = StructType(absent, *reversed(file_type.fields))
    for skipped in ({}, {2: attrgetter("skip_bytes")}):
        decoder = CheckedDecoder(block)
        read = RecordReader(file_type, read_type).bind(decoder, skipped)
        found = [read()[:3] for _ in values]
        decoder.finish()
        assert found == [[None, None if skipped else b, a] for a, b in values]


def test_statuses_are_read_in_each_way() -> None:
    data = container(SCHEMA, GOOD * 3, count=3)
    line, io = replace(LINE, manifest_length=len(data)), MemoryIO({"f": data})
    (found,) = read_arrays([line], lambda _: io, ())
    assert found.values(STATUS) == [1, 1, 1]
