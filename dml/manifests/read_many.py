"""Several manifests at once: most of the time one waits for storage. Driver.

Input: manifests, and what reads one of them. Output: what it gives, in their order.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dml import limits
from dml.model.manifest import ManifestFile

__all__ = ["read_all", "read_each"]


Read = TypeVar("Read")


def read_all(manifests: Sequence[ManifestFile], read: Callable[[ManifestFile], Read]) -> list[Read]:
    """What is read of each manifest, in their order; several are read at once."""
    return [found for _, found in read_each(manifests, read)]


def read_each(
    manifests: Sequence[ManifestFile], read: Callable[[ManifestFile], Read]
) -> Iterator[tuple[ManifestFile, Read]]:
    """The same, one after the other: what was done with need not be kept."""
    if len(manifests) < 2:
        yield from ((manifest, read(manifest)) for manifest in manifests)
        return
    size = -(-len(manifests) // limits.MAX_THREAD_GROUPS)
    groups = [manifests[start : start + size] for start in range(0, len(manifests), size)]
    with ThreadPoolExecutor(min(limits.READ_THREADS, len(groups)), thread_name_prefix="manifests") as pool:
        for group, found in zip(groups, pool.map(lambda group: list(map(read, group)), groups), strict=True):
            yield from zip(group, found, strict=True)
