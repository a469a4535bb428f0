"""Files that claim more than they hold: few bytes that ask for much memory or time.

Run as a program, in a process of its own: each must be refused, and the process must stay small.
"""

import bz2
import gzip
import json
import resource
import struct
import sys
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from dml.deletes.deletion_vector import decode
from dml.errors import CorruptFileError
from dml.files.table_metadata import read_table_metadata
from dml.manifests.entry_fields import KNOWN
from dml.manifests.read import entries_of
from dml.manifests.read_arrays import entry_arrays, read_arrays, read_blocks
from dml.model.manifest import ManifestFile
from dml.read.open_data_file import open_data_file

__all__ = ["LIMIT_BYTES", "LIMIT_SECONDS", "cases"]

LIMIT_BYTES: Final = 200 * 2**20
LIMIT_SECONDS: Final = 10
HUGE: Final = (2**63 - 1, 2**62, 2**40, 2**31, 2**31 - 1, -1, -(2**63))
SYNC: Final = bytes(range(16))
BOMB: Final = bytes(2**28)


def long(value: int) -> bytes:
    """A number as Avro writes it."""
    value = (value << 1) ^ (value >> 63)
    value &= 2**64 - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def text(value: bytes | str) -> bytes:
    """A string as Avro writes it."""
    data = value.encode() if isinstance(value, str) else value
    return long(len(data)) + data


def container(schema: Any, block: bytes, *, count: int = 1, codec: str = "null", length: int | None = None) -> bytes:
    """An Avro file of one block."""
    header = {"avro.schema": schema if isinstance(schema, str) else json.dumps(schema), "avro.codec": codec}
    fields = b"".join(text(key) + text(value) for key, value in header.items())
    size = len(block) if length is None else length
    return b"Obj\x01" + long(len(header)) + fields + long(0) + SYNC + long(count) + long(size) + block + SYNC


def optional(of: Any, name: str, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", of], "default": None, "field-id": field_id}


def required(of: Any, name: str, field_id: int) -> dict[str, Any]:
    return {"name": name, "type": of, "field-id": field_id}


def pairs(value: str, key_id: int) -> dict[str, Any]:
    """A map from int, which Avro has as a list of records."""
    fields = [required("int", "key", key_id), required(value, "value", key_id + 1)]
    items = {"type": "record", "name": f"k{key_id}_v{key_id + 1}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": items}


FILE: Final = [
    required("string", "file_path", 100),
    required("string", "file_format", 101),
    required({"type": "record", "name": "r102", "fields": []}, "partition", 102),
    required("long", "record_count", 103),
    required("long", "file_size_in_bytes", 104),
    optional(pairs("long", 109 + 10), "value_counts", 109),
    optional(pairs("bytes", 126), "lower_bounds", 125),
    optional({"type": "array", "items": "long", "element-id": 133}, "split_offsets", 132),
    optional({"type": "array", "items": {"type": "fixed", "size": 0, "name": "none"}, "element-id": 901}, "odd", 900),
]


def manifest_schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    file = {"type": "record", "name": "r2", "fields": fields}
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [required("int", "status", 0), required(file, "data_file", 2)],
    }


ENTRY: Final = long(1) + text("/f") + text("parquet") + long(1) + long(1)
NULL, VALUE = long(0), long(1)
SCHEMA: Final = manifest_schema(FILE[:-1])
LONG_ENTRY: Final = b"\x82" + b"\x80" * 10 + b"\x00" + ENTRY[1:] + NULL * 3
"""Its status, 1, takes 12 bytes."""


class Memory(InputFile):
    """A file in memory."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> Any:
        return pa.BufferReader(self.data)


class MemoryIO(PyArrowFileIO):
    """Files in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__()
        self.files = files

    def new_input(self, location: str) -> Any:
        return Memory(location, self.files[location])


def of_manifest(data: bytes) -> Callable[[], object]:
    """Reads a manifest, and looks at its metrics."""
    line = ManifestFile(manifest_path="f", manifest_length=len(data), partition_spec_id=0, added_snapshot_id=1)
    io: FileIO = MemoryIO({"f": data})
    return lambda: [dict(entry.data_file.value_counts) for entry in entries_of(line, io)]


def of_metadata(data: bytes) -> Callable[[], object]:
    """Reads table metadata."""
    io: FileIO = MemoryIO({"f": data})
    return lambda: read_table_metadata(io, "f")


def of_rows(data: bytes, file_format: str) -> Callable[[], object]:
    """Reads all rows of a data file."""
    io: FileIO = MemoryIO({"f": data})

    def read() -> object:
        with open_data_file(io, "f", file_format, None, size=len(data)) as file:
            return sum(batch.num_rows for batch in file.batches(file.pieces, range(len(file.fields)), 1000))

    return read


def of_vector(vector: bytes) -> Callable[[], object]:
    """Reads a deletion vector whose frame and checksum are right."""
    body = b"\xd1\xd3\x39\x64" + vector
    blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    return lambda: decode(blob, file="f", cardinality=None)


def of_columns(data: bytes, wanted: Collection[int]) -> Callable[[], object]:
    """Reads a manifest as columns, as metadata tables do; what is not wanted is passed over."""
    line = ManifestFile(manifest_path="f", manifest_length=len(data), partition_spec_id=0, added_snapshot_id=1)
    io: FileIO = MemoryIO({"f": data})
    return lambda: next(read_arrays([line], lambda _: io, wanted))


def of_lockstep(data: bytes) -> Callable[[], object]:
    """Reads a manifest as the cache does, where it has many files."""
    line = ManifestFile(manifest_path="f", manifest_length=len(data), partition_spec_id=0, added_snapshot_id=1)
    io: FileIO = MemoryIO({"f": data})

    def read() -> object:
        file_type, found = read_blocks(line, io)
        return entry_arrays(file_type, [found], lockstep=True)

    return read


def manifest_cases(name: str, data: bytes) -> Iterator[tuple[str, Callable[[], object]]]:
    """A manifest, in each way that manifests are read."""
    yield name, of_manifest(data)
    yield f"{name}, as columns", of_columns(data, KNOWN)
    yield f"{name}, in lockstep", of_lockstep(data)
    yield f"{name}, passed over", of_columns(data, ())


def avro_cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """Containers, and entries of manifests."""
    for number in HUGE:
        yield from manifest_cases(f"avro: header of {number} entries", b"Obj\x01" + long(number) + text("a"))
        yield from manifest_cases(f"avro: name of {number} bytes", b"Obj\x01" + long(1) + long(number) + b"a")
        yield from manifest_cases(f"avro: block of {number} bytes", container(SCHEMA, ENTRY, length=number))
        yield from manifest_cases(f"avro: block of {number} records", container(SCHEMA, ENTRY + NULL * 3, count=number))
        path = long(1) + long(number) + b"/f"
        yield from manifest_cases(f"manifest: path of {number} bytes", container(SCHEMA, path))
        counts = ENTRY + VALUE + long(number) + bytes(40)
        yield from manifest_cases(f"manifest: {number} counts", container(SCHEMA, counts))
        bounds = ENTRY + NULL + VALUE + long(number) + bytes(40)
        yield from manifest_cases(f"manifest: {number} bounds", container(SCHEMA, bounds))
        bound = ENTRY + NULL + VALUE + long(1) + long(1) + long(number) + bytes(40)
        yield from manifest_cases(f"manifest: bound of {number} bytes", container(SCHEMA, bound))
        offsets = ENTRY + NULL * 2 + VALUE + long(number) + bytes(40)
        yield from manifest_cases(f"manifest: {number} offsets", container(SCHEMA, offsets))
        odd = ENTRY + NULL * 3 + VALUE + long(number) + bytes(40)
        yield from manifest_cases(f"manifest: {number} of nothing", container(manifest_schema(FILE), odd))
        rows = {"type": "record", "name": "r", "fields": [optional({"type": "array", "items": "null"}, "a", 1)]}
        yield f"avro data: {number} nulls", of_rows(container(rows, VALUE + long(number)), "avro")
        yield from manifest_cases(f"manifest: branch {number} of a union", container(SCHEMA, ENTRY + long(number)))
    nothing = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "null", "field-id": 1}]}
    for blocks in (1, 50):
        data = container(nothing, b"", count=50_000_000 // blocks)
        again = data[data.index(SYNC) + len(SYNC) :] * (blocks - 1)
        yield f"avro data: 50 million rows of no bytes in {blocks} blocks", of_rows(data + again, "avro")
    yield from manifest_cases("manifest: number of 12 bytes", container(SCHEMA, LONG_ENTRY))
    deep = '{"type":"array","items":' * 50_000 + '"int"' + "}" * 50_000
    yield from manifest_cases("avro: deep schema", container(deep, b""))
    yield from manifest_cases("avro: schema that is no JSON", container("{", b""))
    yield from manifest_cases("avro: number without end", container(SCHEMA, b"\xff" * 100))
    for codec, packed in (
        ("deflate", zlib.compress(BOMB)[2:-4]),
        ("bzip2", bz2.compress(BOMB)),
        ("zstandard", pa.Codec("zstd").compress(BOMB, asbytes=True)),
        ("snappy", b"\xff\xff\xff\xff\x0f" + bytes(100)),
    ):
        yield from manifest_cases(f"avro: {codec} bomb of {len(packed)} bytes", container(SCHEMA, packed, codec=codec))
        yield f"avro data: {codec} bomb of {len(packed)} bytes", of_rows(container(SCHEMA, packed, codec=codec), "avro")


def other_cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """Deletion vectors, Parquet files and table metadata."""
    for count in (2**63, 2**62, 2**64 - 1, 2**31, 2):
        yield f"vector: {count} bitmaps", of_vector(struct.pack("<Q", count) + bytes(12))
    for count in (2**32 - 1, 2**16 + 1, 2**16):
        yield f"vector: {count} containers", of_vector(struct.pack("<QIII", 1, 0, 12346, count) + bytes(20))
    yield "vector: position beyond 2**63", of_vector(struct.pack("<QIIIHHIH", 1, 2**31 - 1, 12346, 1, 0, 0, 16, 1))
    yield "vector: runs without end", of_vector(struct.pack("<QIIBHHH", 1, 0, 12347, 1, 0, 0xFFFF, 0xFFFF))
    for length in (2**31 - 1, 2**32 - 1, 2**30, 0, 9):
        yield f"parquet: footer of {length} bytes", of_rows(b"PAR1" + struct.pack("<I4s", length, b"PAR1"), "parquet")
    # A list of 2**31 - 1 structs where the schema should be.
    claims = b"\x15\x02\x19\xfc\xff\xff\xff\xff\x07"
    yield "parquet: 2**31 columns", of_rows(b"PAR1" + claims + struct.pack("<I4s", len(claims), b"PAR1"), "parquet")
    yield "metadata: gzip bomb", of_metadata(gzip.compress(BOMB))
    yield "metadata: deep JSON", of_metadata(b"[" * 100_000)
    yield "metadata: deep object", of_metadata(b'{"a":' * 100_000)
    yield "metadata: long number", of_metadata(b'{"format-version": ' + b"9" * 100_000 + b"}")
    yield "metadata: nothing", of_metadata(b"")
    yield "metadata: not text", of_metadata(b"\xff\xfe\x00")


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """All, each by a name."""
    yield from avro_cases()
    yield from other_cases()


def peak() -> int:
    """Greatest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Try all, and tell what each came to."""
    resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
    for name, read in list(cases()):
        before, start = peak(), time.process_time()
        try:
            outcome = f"read: {str(read())[:100]}"
        except CorruptFileError as error:
            outcome = "refused" if "f" in (error.context.get("file") or "") else f"unnamed: {error}"
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            outcome = f"{type(error).__name__}: {error}"[:300]
        told = {"name": name, "outcome": outcome, "bytes": peak() - before, "seconds": time.process_time() - start}
        print(json.dumps(told), flush=True)
    json.dump({"done": True}, sys.stdout)


if __name__ == "__main__":
    main()
