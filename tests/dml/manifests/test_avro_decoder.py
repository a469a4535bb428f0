"""The checked decoder returns what was encoded, and refuses what no writer encodes."""

import struct
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import BooleanType

from dml.errors import CorruptFileError
from dml.manifests.avro_container import AvroContainer
from dml.manifests.avro_decoder import CheckedDecoder
from dml.manifests.read import entries_of, read_manifest_list
from dml.model.manifest import EntryStatus, ManifestFile, PartitionSummary
from tests.damage.hostile import container
from tests.dml.manifests.array_files import read_arrays
from tests.dml.manifests.test_lockstep_entries import PARTITION_TYPES, PLAIN, entry, written
from tests.dml.manifests.test_lockstep_lines import written as written_list

IO = PyArrowFileIO()


@pytest.mark.parametrize("value", [0.1, 1e300, 5e-324, 123456789.123, -0.0, float("inf")])
def test_doubles_keep_their_precision(value: float) -> None:
    """PyIceberg 0.12.0 rounds them to single precision: copy-on-write would write the rounded values back."""
    data = struct.pack("<d", value)
    assert struct.pack("<d", CheckedDecoder(data).read_double()) == data


def test_a_boolean_is_the_byte_0_or_1() -> None:
    assert [CheckedDecoder(bytes([byte])).read_boolean() for byte in (0, 1)] == [False, True]
    for byte in (2, 7, 255):
        with pytest.raises(ValueError, match=f"a boolean is the byte {byte}"):
            CheckedDecoder(bytes([byte])).read_boolean()
    with pytest.raises(EOFError):
        CheckedDecoder(b"").read_boolean()


def replaced(location: str, old: bytes, new: bytes) -> int:
    """Replace bytes of an Avro file's one block; return the length of the file."""
    path = Path(location.removeprefix("file://"))
    data = path.read_bytes()
    avro = AvroContainer(BytesIO(data).read, len(data))
    ((count, block),) = avro.blocks()
    assert block.count(old) == 1
    path.write_bytes(container(avro.metadata["avro.schema"].decode(), block.replace(old, new), count=count))
    return path.stat().st_size


@pytest.mark.parametrize("byte", [0, 7])
@pytest.mark.parametrize("files", [1, 300])
def test_a_partition_value_that_is_no_boolean_is_an_error(tmp_path: Path, files: int, byte: int) -> None:
    """In each way to read a manifest."""
    place = next(place for place, (kind, _) in enumerate(PARTITION_TYPES.values()) if isinstance(kind, BooleanType))
    nulls = [None] * len(PARTITION_TYPES)
    partition = (*nulls[:place], True, *nulls[place + 1 :])
    found = [entry(replace(PLAIN, partition=partition), EntryStatus.ADDED, 7)]
    found += [
        entry(replace(PLAIN, path=f"file:///t/data/{number}"), EntryStatus.ADDED, 7) for number in range(1, files)
    ]
    line = written(tmp_path, found)
    true = bytes(place) + b"\x02\x01" + bytes(len(nulls) - place - 1)
    line = replace(line, manifest_length=replaced(line.manifest_path, true, true.replace(b"\x01", bytes([byte]))))
    if byte == 0:
        assert next(entries_of(line, IO)).data_file.partition[place] is False
        assert read_arrays(line, IO).file(0).partition[place] is False
        return
    with pytest.raises(CorruptFileError, match="a boolean is the byte 7"):
        list(entries_of(line, IO))
    with pytest.raises(CorruptFileError, match="a boolean is the byte 7"):
        read_arrays(line, IO)


@pytest.mark.parametrize("manifests", [1, 200])
def test_a_summary_whose_flag_is_no_boolean_is_an_error(tmp_path: Path, manifests: int) -> None:
    """Line by line, and with lines cut apart first."""
    first = ManifestFile(
        manifest_path="file:///t/0.avro",
        manifest_length=9,
        partition_spec_id=0,
        sequence_number=1,
        min_sequence_number=1,
        added_snapshot_id=1,
        partitions=(PartitionSummary(contains_null=True, contains_nan=None, lower_bound=b"lower", upper_bound=None),),
    )
    others = [replace(first, manifest_path=f"file:///t/{number}.avro", partitions=()) for number in range(1, manifests)]
    location = written_list(tmp_path, [first, *others], 2)
    bound = b"\x02\x0alower"
    replaced(location, b"\x01\x00" + bound, b"\x00\x00" + bound)
    assert [summary.contains_null for summary in read_manifest_list(IO, location)[0].partitions or ()] == [False]
    replaced(location, b"\x00\x00" + bound, b"\x07\x00" + bound)
    with pytest.raises(CorruptFileError, match="a boolean is the byte 7"):
        read_manifest_list(IO, location)
