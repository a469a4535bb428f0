"""The options of a stream's writer. Driver.

Input: the options of `df.writeStream`. Output: the INSERT options among them, and those specific to streams.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dml.engine.insert import InsertOptions, insert_options
from dml.errors import NotSupportedError
from dml.options import boolean

__all__ = ["StreamOptions", "stream_options"]

ADOPT_CHECKPOINT: Final = "adopt-checkpoint"

OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Options that Spark handles itself and also passes to the sink."""

OF_OVERWRITES: Final = frozenset(
    {"isolation-level", "overwrite-mode", "overwrite-schema", "overwriteschema", "validate-from-snapshot-id"}
)
"""INSERT options that streams do not support: a stream appends, or replaces all rows unconditionally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The parsed options of a stream's writer.

    Attributes:
        write: The options that an INSERT also has.
        adopts_checkpoint: True if the stream may continue from a checkpoint whose earlier micro-batches are not in the
            table.
    """

    write: InsertOptions
    adopts_checkpoint: bool = False


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream's writer.

    Args:
        given: The options by name.

    Raises:
        NotSupportedError: An option is unknown, or not available for streams.
        AnalysisError: An option has an invalid value.
    """
    lower = {key.lower(): value for key, value in given.items()}
    refused = sorted(OF_OVERWRITES.intersection(lower))
    if refused:
        raise NotSupportedError(
            f"The write option '{refused[0]}' is not supported for streams",
            hint="Remove it: a stream appends, or replaces all rows in complete mode",
            option=refused[0],
        )
    return StreamOptions(
        write=insert_options([pair for pair in given.items() if pair[0].lower() not in {*OF_SPARK, ADOPT_CHECKPOINT}]),
        adopts_checkpoint=boolean(lower, ADOPT_CHECKPOINT, default=False),
    )
