"""The folders in which a table keeps its files, and which of them are below others. Pure; driver.

Source: Iceberg documentation, "Configuration" (`write.data.path` ...), and `LocationProviders`.
"""

from collections.abc import Iterable, Mapping

from dml.maintenance.file_identity import Equivalents, is_inside
from dml.options import FOLDER_PROPERTIES

__all__ = ["folders_of", "is_below", "outermost", "overlap"]


def folders_of(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """A table's location, and the folders that its properties name.

    Args:
        location: Of the table.
        properties: Of the table.
    """
    named = (properties[key] for key in FOLDER_PROPERTIES if properties.get(key))
    return tuple(folder.rstrip("/") for folder in (location, *named))


def outermost(folders: Iterable[str], equivalents: Equivalents) -> tuple[str, ...]:
    """The folders that lie in no other, so that no file is listed twice.

    Args:
        folders: In the order of their importance: of two names of one folder the first stays.
        equivalents: Which schemes and authorities are equal.
    """
    kept: list[str] = []
    for folder in folders:
        if not any(is_inside(folder, other, equivalents) for other in kept):
            kept = [*(other for other in kept if not is_inside(other, folder, equivalents)), folder]
    return tuple(kept)


def overlap(one: str, other: str, equivalents: Equivalents) -> bool:
    """Whether two folders are one, or one lies in the other."""
    return is_inside(one, other, equivalents) or is_inside(other, one, equivalents)


def is_below(folder: str, other: str, equivalents: Equivalents) -> bool:
    """Whether a folder lies in another and is not that folder itself."""
    return is_inside(folder, other, equivalents) and not is_inside(other, folder, equivalents)
