"""Delete many files at once, and check the options that procedures which delete files share. Driver.

Input: files and a function that deletes one. Output: the files that could not be deleted, with their errors.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.options import GC_ENABLED, boolean

__all__ = ["SHOWN_FILES", "check_max_concurrent_deletes", "delete_all", "refuse_shared_files"]

SHOWN_FILES: Final = 5
"""The maximum number of files in an error message."""

File = TypeVar("File")


def check_max_concurrent_deletes(value: int) -> None:
    """Check the number of files to delete at once.

    Raises:
        AnalysisError: It is below 1.
    """
    if value < 1:
        raise AnalysisError(
            f"max_concurrent_deletes should have value > 0, value: {value}",
            kind=ErrorKind.INVALID_VALUE,
            hint="It must be 1 or more",
            option="max_concurrent_deletes",
        )


def refuse_shared_files(table: str, properties: Mapping[str, str], action: str) -> None:
    """Refuse to delete files of a table whose property `gc.enabled` is false.

    Args:
        table: The name of the table.
        properties: Its properties.
        action: The action, to follow "Cannot" in the message.

    Raises:
        NotSupportedError: `gc.enabled` is false.
    """
    if not boolean(properties, GC_ENABLED, default=True):
        raise NotSupportedError(
            f"Cannot {action}: GC is disabled (deleting files may corrupt other tables). The table '{table}' has "
            f"{GC_ENABLED} = false: its files may belong to other tables",
            hint=f"Set {GC_ENABLED} to true if they do not",
            property=GC_ENABLED,
        )


def delete_all(
    files: Sequence[File], delete: Callable[[File], None], threads: int
) -> tuple[tuple[File, Exception], ...]:
    """Delete files; a failure does not stop the other deletions.

    Args:
        files: The files.
        delete: Deletes one of them.
        threads: The number of files to delete at once.

    Returns:
        The files that were not deleted, with their errors.
    """

    def try_delete(file: File) -> Exception | None:
        try:
            delete(file)
        except Exception as error:  # noqa: BLE001 - storages raise anything; all errors are reported
            return error
        return None

    if not files:
        return ()
    with ThreadPoolExecutor(min(threads, len(files)), thread_name_prefix="rowdelta-deletes") as pool:
        outcomes = list(pool.map(try_delete, files))
    return tuple((file, error) for file, error in zip(files, outcomes, strict=True) if error is not None)
