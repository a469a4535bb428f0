"""Options of post-commit actions, from a table's properties or a session's settings. A leaf; driver."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dml.errors import AnalysisError, ErrorKind
from dml.options import (
    COMMIT_MARK_DONE,
    COMMIT_MARK_DONE_DELAY,
    COMMIT_TAG_CREATION,
    COMMIT_TAG_MAX_REF_AGE,
    COMMIT_TAG_NUM_RETAINED,
    COMMIT_TAG_PREFIX,
    COMMIT_TIME_ZONE,
    choice,
    integer,
)

__all__ = ["HookOptions", "MarkDone", "TagCreation"]

UTC_ZONE: Final = ZoneInfo("UTC")


class TagCreation(StrEnum):
    """`commit.tag.creation`."""

    NONE = "none"
    COMMIT = "commit"
    HOURLY = "hourly"
    DAILY = "daily"


class MarkDone(StrEnum):
    """`commit.mark-done.action`."""

    NONE = "none"
    PROPERTY = "property"
    SUCCESS_FILE = "success-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """The post-commit actions of a table or session.

    Attributes:
        tag_creation: `commit.tag.creation`.
        tag_prefix: `commit.tag.prefix`: the prefix of tag names.
        tag_max_age_ms: `commit.tag.max-ref-age-ms`; None keeps tags forever.
        tag_num_retained: `commit.tag.num-retained`; None keeps all.
        mark_done: `commit.mark-done.action`.
        mark_done_delay_ms: `commit.mark-done.delay-ms`: the time from the end of a partition until it is marked.
        time_zone: `commit.time-zone`: the zone in which days, and partitions named by a date, end.
    """

    tag_creation: TagCreation = TagCreation.NONE
    tag_prefix: str = ""
    tag_max_age_ms: int | None = None
    tag_num_retained: int | None = None
    mark_done: MarkDone = MarkDone.NONE
    mark_done_delay_ms: int = 0
    time_zone: ZoneInfo = UTC_ZONE

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "HookOptions":
        """Parse a table's properties.

        Raises:
            AnalysisError: A property has an invalid value.
        """
        creation = choice(properties, COMMIT_TAG_CREATION, TagCreation, TagCreation.NONE)
        return HookOptions(
            tag_creation=creation,
            tag_prefix=properties.get(COMMIT_TAG_PREFIX, f"{creation}-"),
            tag_max_age_ms=optional_integer(properties, COMMIT_TAG_MAX_REF_AGE, minimum=1),
            tag_num_retained=optional_integer(properties, COMMIT_TAG_NUM_RETAINED, minimum=1),
            mark_done=choice(properties, COMMIT_MARK_DONE, MarkDone, MarkDone.NONE),
            mark_done_delay_ms=integer(properties, COMMIT_MARK_DONE_DELAY, 0),
            time_zone=time_zone(properties),
        )


def optional_integer(properties: Mapping[str, str], key: str, *, minimum: int) -> int | None:
    """Return the value of a numeric property, or None if it is not set."""
    return integer(properties, key, 0, minimum=minimum) if key in properties else None


def time_zone(properties: Mapping[str, str]) -> ZoneInfo:
    """Return the value of `commit.time-zone`.

    Raises:
        AnalysisError: The time zone is unknown.
    """
    name = properties.get(COMMIT_TIME_ZONE, "UTC").strip()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise AnalysisError(
            f"The table property '{COMMIT_TIME_ZONE}' is '{name}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be the name of a time zone, such as UTC or Europe/Berlin",
            property=COMMIT_TIME_ZONE,
        ) from None
