"""Deleting files, several at once. Driver.

Input: files and what deletes one. Output: the files that could not be deleted, each with the reason.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dml.maintenance.orphan_choice import ListedFile

__all__ = ["delete_all"]


def delete_all(
    files: Sequence[ListedFile], delete: Callable[[ListedFile], None], threads: int
) -> tuple[tuple[ListedFile, Exception], ...]:
    """Delete files; one that fails does not stop the others.

    Args:
        files: The files.
        delete: Deletes one of them.
        threads: How many at once.

    Returns:
        The files that are still there, with what was raised.
    """

    def tried(file: ListedFile) -> Exception | None:
        try:
            delete(file)
        except Exception as error:  # noqa: BLE001 - every storage has errors of its own; all are reported
            return error
        return None

    with ThreadPoolExecutor(threads, thread_name_prefix="rowdelta-orphans") as pool:
        outcomes = list(pool.map(tried, files))
    return tuple((file, error) for file, error in zip(files, outcomes, strict=True) if error is not None)
