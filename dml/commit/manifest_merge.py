"""Merging small manifests, so that their number stays bounded. Driver.

Input: a snapshot's manifests, newest first, the properties `commit.manifest-merge.enabled`,
`commit.manifest.target-size-bytes` and `commit.manifest.min-count-to-merge`. Output: fewer manifests.

Manifests of one content and spec are packed from the oldest on into bins of the target size, without changing their
order. A bin of several becomes one manifest. The bin with the newest one waits until it has the least count, so that
small commits stay cheap.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from dml.commit.entry_reader import EntryReader
from dml.commit.new_manifests import NewManifests
from dml.model.manifest import EntryStatus, ManifestEntry, ManifestFile
from dml.options import CommitOptions

__all__ = ["merge_manifests", "pack_from_end"]


def merge_manifests(
    manifests: Sequence[ManifestFile], options: CommitOptions, reader: EntryReader, written: NewManifests
) -> tuple[ManifestFile, ...]:
    """Merge manifests of one content.

    Args:
        manifests: Newest first.
        options: Of the table.
        reader: Reads manifests of earlier commits.
        written: Knows and writes those of this one.

    Raises:
        DmlError: a manifest cannot be read or written.
    """
    if not options.manifest_merge_enabled or len(manifests) < 2:
        return tuple(manifests)
    by_spec: dict[int, list[ManifestFile]] = {}
    for manifest in manifests:
        by_spec.setdefault(manifest.partition_spec_id, []).append(manifest)
    merged: list[ManifestFile] = []
    for spec_id in sorted(by_spec, reverse=True):
        for group in pack_from_end(by_spec[spec_id], options.manifest_target_size):
            waits = manifests[0] in group and len(group) < options.manifest_min_count_to_merge
            if len(group) == 1 or waits:
                merged += group
            else:
                merged.append(written.merged(group, partial(_entries, group, reader, written)))
    return tuple(merged)


def pack_from_end(manifests: Sequence[ManifestFile], target_size: int) -> list[list[ManifestFile]]:
    """Neighbours together, up to a size, starting with the last; what fits nowhere is alone.

    Args:
        manifests: In an order that is kept.
        target_size: Bytes.
    """
    bins: list[list[ManifestFile]] = []
    room = 0
    for manifest in reversed(manifests):
        if bins and manifest.manifest_length <= room:
            bins[0].insert(0, manifest)
            room -= manifest.manifest_length
        else:
            bins.insert(0, [manifest])
            room = target_size - manifest.manifest_length
    return bins


def _entries(
    manifests: Sequence[ManifestFile], reader: EntryReader, written: NewManifests
) -> tuple[ManifestEntry, ...]:
    reader.prepare(manifest for manifest in manifests if written.entries(manifest) is None)
    return tuple(entry for manifest in manifests for entry in _carried(manifest, reader, written))


def _carried(manifest: ManifestFile, reader: EntryReader, written: NewManifests) -> Iterable[ManifestEntry]:
    own = written.entries(manifest)
    if own is not None:
        return own
    return (replace(entry, status=EntryStatus.EXISTING) for entry in reader.entries(manifest) if entry.is_live)
