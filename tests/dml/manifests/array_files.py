"""The entries of a manifest as arrays, from its file."""

from pyiceberg.io import FileIO

from dml.manifests.entries import EntryArrays
from dml.manifests.read import blocks_of, damage_named
from dml.manifests.read_arrays import entry_arrays
from dml.model.manifest import ManifestFile


def read_arrays(manifest: ManifestFile, io: FileIO) -> EntryArrays:
    """All entries, however few there are."""
    with damage_named(manifest.manifest_path):
        file_type, blocks = blocks_of(io, manifest.manifest_path, manifest.manifest_length)
        return entry_arrays(file_type, list(blocks), manifest, few=0)
