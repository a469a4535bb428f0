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
    MAINTENANCE_TRIGGER_BUDGET,
    MAINTENANCE_TRIGGER_COMMITS,
    MAINTENANCE_TRIGGER_DELETED_RATIO,
    MAINTENANCE_TRIGGER_SMALL_FILES,
    choice,
    integer,
    share,
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
        trigger_commits: `maintenance.trigger.commits`: compact after this number of commits; None for never.
        trigger_small_files: `maintenance.trigger.small-files`: compact after this number of new small files.
        trigger_deleted_ratio: `maintenance.trigger.deleted-ratio`: compact if this fraction of the rows is deleted.
        trigger_budget_ms: `maintenance.trigger.budget-ms`: the time after which such a compaction starts no new work.
    """

    tag_creation: TagCreation = TagCreation.NONE
    tag_prefix: str = ""
    tag_max_age_ms: int | None = None
    tag_num_retained: int | None = None
    mark_done: MarkDone = MarkDone.NONE
    mark_done_delay_ms: int = 0
    time_zone: ZoneInfo = UTC_ZONE
    trigger_commits: int | None = None
    trigger_small_files: int | None = None
    trigger_deleted_ratio: float | None = None
    trigger_budget_ms: int = 60_000

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
            trigger_commits=optional_integer(properties, MAINTENANCE_TRIGGER_COMMITS, minimum=1),
            trigger_small_files=optional_integer(properties, MAINTENANCE_TRIGGER_SMALL_FILES, minimum=1),
            trigger_deleted_ratio=optional_share(properties, MAINTENANCE_TRIGGER_DELETED_RATIO),
            trigger_budget_ms=integer(properties, MAINTENANCE_TRIGGER_BUDGET, HookOptions().trigger_budget_ms),
        )


def optional_integer(properties: Mapping[str, str], key: str, *, minimum: int) -> int | None:
    """Return the value of a numeric property, or None if it is not set."""
    return integer(properties, key, 0, minimum=minimum) if key in properties else None


def optional_share(properties: Mapping[str, str], key: str) -> float | None:
    """Return the value of a property that is a fraction above 0, or None if it is not set or 0."""
    return share(properties, key, 0.0) or None


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
