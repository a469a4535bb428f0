"""How far a stream has read a table. Driver; pure.

Input: the JSON that stands in a checkpoint. Output: a place among the files that snapshots appended. The JSON is that
of Iceberg's JAR, so that a query goes on with either.

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
    """A place in a stream: before the file at a position of a snapshot, and after all that came earlier.

    Attributes:
        snapshot_id: The snapshot; -1 while the table has none to read.
        position: The place of the first file that is not read yet, among those of the snapshot (`dml.streaming.files`).
        scan_all_files: Whether all files of the snapshot are read, or those that it added.
    """

    snapshot_id: int
    position: int = 0
    scan_all_files: bool = False

    @staticmethod
    def of_json(text: str) -> "StreamOffset":
        """The offset that a checkpoint holds.

        Raises:
            AnalysisError: it is none of a table's.
        """
        try:
            found = json.loads(text)
            version = found["version"]
            offset = StreamOffset(
                snapshot_id=whole(found["snapshot_id"]),
                position=whole(found["position"]),
                scan_all_files=bool(found["scan_all_files"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise unreadable(f"The checkpoint holds '{text}', which is no place in a table") from error
        if version != VERSION:
            raise unreadable(f"The checkpoint holds an offset of version {version}, and only {VERSION} is known")
        return offset

    @property
    def json(self) -> str:
        """As the JAR writes it, byte for byte: Spark compares offsets by their text."""
        fields = {
            "version": VERSION,
            "snapshot_id": self.snapshot_id,
            "position": self.position,
            "scan_all_files": self.scan_all_files,
        }
        return json.dumps(fields, separators=(",", ":"))


NOTHING_READ: Final = StreamOffset(snapshot_id=-1, position=-1)
"""The offset of a stream that has found nothing to read yet."""


def whole(value: Any) -> int:
    """A number, and nothing that Python would take for one."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def unreadable(message: str) -> AnalysisError:
    return AnalysisError(
        message,
        kind=ErrorKind.CHECKPOINT,
        hint="The checkpoint is that of another query: give each query a 'checkpointLocation' of its own",
    )
