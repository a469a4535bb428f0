"""Properties that users give to the snapshots of their statements: by session, by write option, for a block. Driver.

Of a key that is given in several places that of the block counts, then the write option, then the session's setting, as
in the reference (`CommitMetadata.withCommitProperties`, `snapshot-property.*`). Keys with a meaning of their own in a
summary are refused before the statement begins.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dml.commit import is_reserved
from dml.errors import AnalysisError, ErrorKind
from dml.spark.jobs import local_property, set_local_property

__all__ = ["SNAPSHOT_PROPERTY", "check_snapshot_properties", "commit_properties", "properties_of_block"]

SNAPSHOT_PROPERTY: Final = "snapshot-property."
"""What a write option for a property begins with, and below `spark.sql.iceberg.` a setting."""

QUERY_ID: Final = "sql.streaming.queryId"
"""The streaming query, in its threads."""

# A thread begins without any, as in the reference; a task of asyncio with those of the code that made it.
GIVEN: Final[ContextVar[Mapping[str, str]]] = ContextVar("commit_properties", default=MappingProxyType({}))


@contextmanager
def commit_properties(properties: Mapping[str, str]) -> Iterator[None]:
    """Put keys into the summary of every snapshot that statements of this thread make while the block runs.

    Blocks nest: an inner one adds its keys, and of a key of both its value counts. Other threads are not concerned; a
    stream commits in threads of its own, so it takes the write option `snapshot-property.KEY`, the session's setting
    `spark.sql.iceberg.snapshot-property.KEY`, or a block inside the function of `foreachBatch`.

    Args:
        properties: By key; `snapshot-property.` before a key is left out.

    Raises:
        AnalysisError: no dictionary is given, a key or a value is no text, or a key has a meaning of its own in a
            summary.
    """
    if not isinstance(properties, Mapping):
        raise AnalysisError(
            f"commit_properties takes a dictionary, not {type(properties).__name__}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Write dml.commit_properties({'job': 'nightly'})",
        )
    given = {without_prefix(key): value for key, value in properties.items()}
    check_snapshot_properties(given, "commit_properties has the key")
    name, before, inside = str(uuid.uuid4()), local_property(BLOCK), properties_of_block()
    block = PropertiesBlock(properties=MappingProxyType({**inside, **given}), query_id=local_property(QUERY_ID))
    token = GIVEN.set(block.properties)
    OPEN[name] = block
    set_local_property(BLOCK, name)
    try:
        yield
    finally:
        set_local_property(BLOCK, before)
        del OPEN[name]
        GIVEN.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertiesBlock:
    """A `with dml.commit_properties(...)` block that is being executed.

    Attributes:
        properties: Its properties, merged with those of the enclosing blocks.
        query_id: The streaming query in whose thread it runs; None outside of one.
    """

    properties: Mapping[str, str]
    query_id: str | None


BLOCK: Final = "spark.rowdelta.commit-properties"
"""The innermost block, for the JVM's thread: Spark calls a DataFrame's write back in another thread of Python."""

OPEN: Final[dict[str, PropertiesBlock]] = {}
"""The blocks that run, by what the JVM's threads call them."""


def properties_of_block() -> Mapping[str, str]:
    """The properties of the blocks that this thread runs in, or that for which the JVM calls it."""
    given = GIVEN.get()
    if given or not OPEN:
        return given
    # A stream that was started in a block has its name, and is none of it.
    found = OPEN.get(local_property(BLOCK) or "")
    return given if found is None or found.query_id != local_property(QUERY_ID) else found.properties


def without_prefix(key: str) -> str:
    """A key, as the summary has it; what is no text is left to `check_snapshot_properties`."""
    return key.removeprefix(SNAPSHOT_PROPERTY) if isinstance(key, str) else key


def check_snapshot_properties(properties: Mapping[str, str], where: str, prefix: str = "") -> None:
    """Refuse keys that no user can give.

    Args:
        properties: By key.
        where: What has them, and how the key is called there: the beginning of the error.
        prefix: What the key begins with there.

    Raises:
        AnalysisError: a key or a value is no text, or a key has a meaning of its own in a summary.
    """
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise AnalysisError(
                f"{where} {key!r} with the value {value!r}: keys and values of a snapshot's summary are texts",
                kind=ErrorKind.INVALID_VALUE,
                hint="Write numbers and dates as texts: {'run': str(run)}",
            )
        if not key:
            raise AnalysisError(
                f"{where} '{prefix}', which names no property", kind=ErrorKind.INVALID_PROPERTY, option=prefix
            )
        if is_reserved(key):
            raise AnalysisError(
                f"{where} '{prefix}{key}', and the key '{key}' has a meaning of its own in a snapshot's summary",
                kind=ErrorKind.INVALID_PROPERTY,
                hint="Use another name: counts and totals of files and rows, keys of write-audit-publish and streams, "
                "and keys that begin with 'rowdelta.', 'partitions.' or 'spark.merge-into.' are reserved",
                option=prefix + key,
            )
