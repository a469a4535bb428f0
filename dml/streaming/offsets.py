"""How far a stream has read a table. Driver; pure.

Input: the JSON in a checkpoint. Output: a position among the files that snapshots appended. The JSON is that of
Iceberg's JAR, so that a query can continue with either implementation.

Source: `StreamingOffset` of Iceberg 1.10.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from dml.errors import AnalysisError, ErrorKind

__all__ = ["NOTHING_READ", "StreamOffset"]

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """A position in a stream: before one file of a snapshot, and after everything earlier.

    Attributes:
        snapshot_id: The snapshot; -1 while the table has none to read.
        position: The position of the first file that is not read yet (`dml.streaming.files`).
        scan_all_files: True to read all files of the snapshot, False to read those that it added.
    """

    snapshot_id: int
    position: int = 0
    scan_all_files: bool = False

    @staticmethod
    def of_json(text: str) -> "StreamOffset":
        """Parse the offset in a checkpoint.

        Raises:
            AnalysisError: The text is not an offset of a table.
        """
        try:
            found = json.loads(text)
            version = found["version"]
            offset = StreamOffset(
                snapshot_id=parse_integer(found["snapshot_id"]),
                position=parse_integer(found["position"]),
                scan_all_files=bool(found["scan_all_files"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise unreadable(f"The checkpoint holds '{text}', which is not an offset in a table") from error
        if version != VERSION:
            raise unreadable(f"The checkpoint holds an offset of version {version}; only {VERSION} is supported")
        return offset

    @property
    def json(self) -> str:
        """The JSON that Iceberg's JAR writes, byte for byte: Spark compares offsets as text."""
        fields = {
            "version": VERSION,
            "snapshot_id": self.snapshot_id,
            "position": self.position,
            "scan_all_files": self.scan_all_files,
        }
        return json.dumps(fields, separators=(",", ":"))


NOTHING_READ: Final = StreamOffset(snapshot_id=-1, position=-1)
"""The offset of a stream that has found nothing to read yet."""


def parse_integer(value: Any) -> int:
    """Return an integer. Raise TypeError for bool, which Python also counts as int."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def unreadable(message: str) -> AnalysisError:
    return AnalysisError(
        message,
        kind=ErrorKind.CHECKPOINT,
        hint="The checkpoint belongs to another query: give each query its own 'checkpointLocation'",
    )
