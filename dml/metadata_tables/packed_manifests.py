"""Manifests as bytes in a Spark task's closure, and the function that reads them. Worker-safe.

Input: groups of manifests and a scan on the driver. Output: on a worker, the record batches of the groups whose numbers
it is given, as `dml.read.packed_groups` does it for scan tasks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dml.files.file_io import file_io
from dml.metadata_tables.entry_scan import EntryReader, EntryScan
from dml.model.manifest import ManifestFile
from dml.read.packed_groups import pack, settle, unpack

__all__ = ["PackedManifests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedManifests:
    """What the tasks of one Spark stage read.

    Attributes:
        scan: The packed `EntryScan`.
        groups: Each group of manifests, packed.
    """

    scan: bytes
    groups: tuple[bytes, ...]

    @staticmethod
    def pack(groups: Sequence[Sequence[ManifestFile]], scan: EntryScan) -> "PackedManifests":
        """Packs groups of manifests."""
        return PackedManifests(scan=pack(scan), groups=tuple(pack(tuple(group)) for group in groups))

    def read(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the groups whose numbers stand in the first column: what `mapInArrow` calls."""
        settle()
        scan: EntryScan = unpack(self.scan)
        reader = EntryReader(scan, lambda location: file_io(scan.io_properties, location))
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from reader.batches(unpack(self.groups[number]))
