"""`INSERT INTO t WITH ('key' = 'value')`: options of one write. Driver.

Input: the options of a statement. Output: an `InsertOptions`; an option that is not known is refused, for one that is
silently ignored may put rows where nobody wants them. Source: Iceberg documentation, "Spark write options".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.options import IsolationLevel, choice, integer

__all__ = ["InsertOptions", "insert_options"]

SNAPSHOT_PROPERTY: Final = "snapshot-property."
RESERVED: Final = "rowdelta."
TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "target-file-size-bytes": "write.target-file-size-bytes",
    "write-format": "write.format.default",
    "distribution-mode": "write.distribution-mode",
    "fanout-enabled": "write.spark.fanout.enabled",
    "compression-codec": "write.parquet.compression-codec",
    "compression-level": "write.parquet.compression-level",
}
"""Options that stand for a table property, for this write alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertOptions:
    """What a statement asks for.

    Attributes:
        branch: The branch to write to.
        properties: Table properties, for this write alone.
        summary: Keys of the snapshot's summary.
        dynamic: `overwrite-mode`: True for dynamic, False for static, None where it is not given.
        isolation_level: What an overwrite validates.
        starting_snapshot_id: Since when.
    """

    branch: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    summary: Mapping[str, str] = field(default_factory=dict)
    dynamic: bool | None = None
    isolation_level: IsolationLevel | None = None
    starting_snapshot_id: int | None = None


def insert_options(options: Sequence[tuple[str, str]]) -> InsertOptions:
    """Read the options of a statement.

    Raises:
        NotSupportedError: an option that is not known.
        AnalysisError: a value that the option cannot have.
    """
    given = {key.lower(): value for key, value in options}
    known = {"branch", "overwrite-mode", "isolation-level", "validate-from-snapshot-id", *TABLE_PROPERTIES}
    for key in given:
        if key not in known and not key.startswith(SNAPSHOT_PROPERTY):
            raise NotSupportedError(
                f"The write option '{key}' is not known",
                hint=f"Known are {', '.join(sorted(known))} and snapshot-property.*",
                option=key,
            )
        if key.startswith(SNAPSHOT_PROPERTY + RESERVED):
            raise AnalysisError(
                f"The write option '{key}' would stand for what RowDelta itself says of a snapshot",
                kind=ErrorKind.INVALID_PROPERTY,
                hint=f"Keys of a snapshot's summary that begin with '{RESERVED}' are reserved",
                option=key,
            )
    mode = given.get("overwrite-mode")
    if mode is not None and mode.lower() not in {"static", "dynamic"}:
        raise AnalysisError(
            f"The write option 'overwrite-mode' is '{mode}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be 'static' or 'dynamic'",
            option="overwrite-mode",
        )
    snapshot_id = given.get("validate-from-snapshot-id")
    return InsertOptions(
        branch=given.get("branch"),
        properties={TABLE_PROPERTIES[key]: value for key, value in given.items() if key in TABLE_PROPERTIES},
        summary={
            key[len(SNAPSHOT_PROPERTY) :]: value for key, value in options if key.lower().startswith(SNAPSHOT_PROPERTY)
        },
        dynamic=None if mode is None else mode.lower() == "dynamic",
        isolation_level=None
        if "isolation-level" not in given
        else choice(given, "isolation-level", IsolationLevel, IsolationLevel.SERIALIZABLE),
        starting_snapshot_id=None if snapshot_id is None else integer(given, "validate-from-snapshot-id", 0),
    )
