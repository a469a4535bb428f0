"""What a call of `remove_orphan_files` asks for, checked. Pure; driver.

Source: Iceberg's Spark procedure `remove_orphan_files` (`RemoveOrphanFilesProcedure`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from dml.errors import AnalysisError, ErrorKind
from dml.maintenance.file_identity import Equivalents
from dml.maintenance.orphan_choice import PrefixMismatchMode

__all__ = ["RemoveOrphanFiles", "prefix_mismatch_mode"]

DEFAULT_AGE: Final = timedelta(days=3)
LEAST_AGE: Final = timedelta(hours=24)
DEFAULT_CONCURRENT_DELETES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOrphanFiles:
    """A call.

    Attributes:
        older_than: Only files that were written before; three days ago by default.
        location: Only files below this folder of the table; None for all.
        dry_run: Tell the files, and delete none.
        max_concurrent_deletes: How many files are deleted at once.
        equal_schemes: From schemes, with commas between them, to the one that stands for them.
        equal_authorities: The same for authorities.
        prefix_mismatch_mode: What becomes of a file that metadata names with another scheme or authority.
    """

    older_than: datetime = field(default_factory=lambda: datetime.now(UTC) - DEFAULT_AGE)
    location: str | None = None
    dry_run: bool = False
    max_concurrent_deletes: int = DEFAULT_CONCURRENT_DELETES
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)
    prefix_mismatch_mode: PrefixMismatchMode = PrefixMismatchMode.ERROR

    def __post_init__(self) -> None:
        if self.older_than.tzinfo is None:
            raise AnalysisError(f"older_than ({self.older_than}) has no time zone", kind=ErrorKind.INVALID_VALUE)
        if self.max_concurrent_deletes < 1:
            raise AnalysisError(
                f"max_concurrent_deletes is {self.max_concurrent_deletes}",
                kind=ErrorKind.INVALID_VALUE,
                hint="It must be 1 or more",
                option="max_concurrent_deletes",
            )
        if not self.dry_run and self.older_than > datetime.now(UTC) - LEAST_AGE:
            raise AnalysisError(
                f"Cannot remove orphan files with an interval less than 24 hours: older_than is {self.older_than}",
                kind=ErrorKind.INVALID_VALUE,
                hint="Files of statements that run now belong to no snapshot yet, and would be lost; "
                "dry_run lists files of any age",
                option="older_than",
            )

    @property
    def older_than_ms(self) -> int:
        """`older_than` in milliseconds since 1970."""
        return int(self.older_than.timestamp() * 1000)

    @property
    def equivalents(self) -> Equivalents:
        """Schemes and authorities that are equal."""
        return Equivalents.of(self.equal_schemes, self.equal_authorities)


def prefix_mismatch_mode(text: str) -> PrefixMismatchMode:
    """The mode of a name, in any case.

    Raises:
        AnalysisError: there is no such mode.
    """
    mode = next((mode for mode in PrefixMismatchMode if mode == text.strip().lower()), None)
    if mode is None:
        raise AnalysisError(
            f"The prefix_mismatch_mode is '{text}'",
            kind=ErrorKind.INVALID_VALUE,
            hint="It must be ERROR, IGNORE or DELETE",
            option="prefix_mismatch_mode",
        )
    return mode
