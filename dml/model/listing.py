"""Where a snapshot lists files, so that a commit that removes them opens no more than it has to. Worker-safe."""

from dataclasses import dataclass
from typing import Any

__all__ = ["DeleteFileKey", "Listing", "Partition"]

DeleteFileKey = tuple[str, int | None, int | None]
"""Path, content offset and content size: many deletion vectors share one Puffin file."""

Partition = tuple[int, tuple[Any, ...]]
"""Spec id and partition tuple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Where the snapshot that a statement read lists some files.

    A manifest never changes, so as long as a newer snapshot has it, the files are in it. Where it was merged with
    others or lost files, they are in another manifest, which the partitions help to find.

    Attributes:
        data_manifests: Locations of the manifests that list the data files.
        delete_manifests: Locations of those that list the delete files, and all deletion vectors of the data files.
        partitions: Of the data files.
    """

    data_manifests: frozenset[str]
    delete_manifests: frozenset[str]
    partitions: frozenset[Partition]
