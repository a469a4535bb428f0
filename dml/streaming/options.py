"""The options of a stream's writer. Driver.

Input: the options of `df.writeStream`. Output: those of an INSERT, and what is about the stream alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dml.engine.insert import InsertOptions, insert_options
from dml.errors import NotSupportedError
from dml.options import boolean

__all__ = ["StreamOptions", "insert_options_of", "stream_options"]

ADOPT_CHECKPOINT: Final = "adopt-checkpoint"

OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""What Spark reads of a stream's writer, and hands on to its sink."""

OF_OVERWRITES: Final = frozenset({"isolation-level", "overwrite-mode", "validate-from-snapshot-id"})
"""Options of an INSERT that a stream cannot have: it appends, or replaces all rows whatever they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a stream's writer asks for.

    Attributes:
        write: As an INSERT has it.
        adopts_checkpoint: Whether the stream may go on from a checkpoint whose earlier micro-batches the table has not.
    """

    write: InsertOptions
    adopts_checkpoint: bool = False


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Read the options of a stream's writer.

    Args:
        given: They, by name.

    Raises:
        NotSupportedError: an option that is not known, or that a stream cannot have.
        AnalysisError: a value that the option cannot have.
    """
    lower = {key.lower(): value for key, value in given.items()}
    refused = sorted(OF_OVERWRITES.intersection(lower))
    if refused:
        raise NotSupportedError(
            f"The write option '{refused[0]}' is none of a stream",
            hint="A stream appends; in complete mode it replaces all rows",
            option=refused[0],
        )
    return StreamOptions(
        write=insert_options(tuple(insert_options_of(given).items())),
        adopts_checkpoint=boolean(lower, ADOPT_CHECKPOINT, default=False),
    )


def insert_options_of(given: Mapping[str, str]) -> dict[str, str]:
    """Those of the options of a stream's writer that an INSERT has too."""
    return {key: value for key, value in given.items() if key.lower() not in {*OF_SPARK, ADOPT_CHECKPOINT}}
