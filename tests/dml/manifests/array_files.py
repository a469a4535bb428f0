"""The entries of a manifest as arrays, from its file."""

from pyiceberg.io import FileIO

from dml.manifests.entries import EntryArrays
from dml.manifests.read_arrays import entry_arrays, read_blocks
from dml.model.manifest import ManifestFile


def read_arrays(manifest: ManifestFile, io: FileIO) -> EntryArrays:
    """All entries, however few there are."""
    file_type, found = read_blocks(manifest, io)
    return entry_arrays(file_type, [found], lockstep=True)
