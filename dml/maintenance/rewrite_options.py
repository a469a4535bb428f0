"""The options of `rewrite_data_files`: names, defaults and checks. Pure; driver.

Input: the options of a call, as text, and the table's properties. Output: `RewriteOptions`. Source: Iceberg's
`RewriteDataFiles`, `SizeBasedFileRewritePlanner` and `BinPackRewriteFilePlanner`, which define names and defaults.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.options import WRITE_TARGET_FILE_SIZE, WriteOptions, integer
from dml.rows.space_filling_curves import NUMBER_BYTES, CurveKind

__all__ = ["BINPACK", "JobOrder", "RewriteOptions"]

BINPACK: Final = "binpack"

MIN_SIZE_SHARE: Final = 0.75
MAX_SIZE_SHARE: Final = 1.8
SPREAD_SHARE: Final = 1.1
"""A remainder is spread over the other files if their average size stays below this multiple of the target."""

SPLIT_OVERHEAD: Final = 5 * 1024

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1

MAX_PREFIX_BYTES: Final = 1024
"""The reference has no limit. Longer prefixes do not cluster rows better, and a key takes memory for each row."""


class JobOrder(StrEnum):
    """The order in which groups are rewritten."""

    NONE = "none"
    BYTES_ASC = "bytes-asc"
    BYTES_DESC = "bytes-desc"
    FILES_ASC = "files-asc"
    FILES_DESC = "files-desc"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOptions:
    """The options of a rewrite; sizes in bytes. The name of each field is that of its option.

    Attributes:
        target_file_size_bytes: The size of new files.
        min_file_size_bytes: Smaller files are rewritten.
        max_file_size_bytes: Larger files are rewritten.
        min_input_files: A group of at least this many files is rewritten.
        rewrite_all: Rewrite all files.
        max_file_group_size_bytes: The maximum size of a group.
        max_file_group_input_files: The maximum number of files of a group.
        max_files_to_rewrite: The maximum number of files of all groups; None for any number.
        delete_file_threshold: Files with at least this many delete files are rewritten.
        delete_ratio_threshold: Files with at least this fraction of deleted rows are rewritten.
        rewrite_job_order: The order of groups.
        output_spec_id: The partition spec of new files.
        max_concurrent_file_group_rewrites: The maximum number of groups at once, with partial progress.
        partial_progress_enabled: Commit finished groups while others are running.
        partial_progress_max_commits: The maximum number of these commits.
        partial_progress_max_failed_commits: The number of commits that may fail before the call fails.
        use_starting_sequence_number: New files keep the sequence number of the snapshot that was read.
        remove_dangling_deletes: Remove delete files that no longer apply to any data file.
        cache_delete_files: Accepted for compatibility: a task always keeps the deletes that its files share.
        compression_factor: `sort` only: the size of sorted rows in files, relative to the old files.
        shuffle_partitions_per_file: `sort` only: accepted for compatibility. A task sorts the rows of a new file in
            bounded memory, whatever their size.
        max_output_size: `zorder` only: the maximum length of a key in bytes; None for no limit.
        var_length_contribution: `zorder` only: the bytes of text, binaries and UUIDs in a key.
    """

    target_file_size_bytes: int
    min_file_size_bytes: int
    max_file_size_bytes: int
    output_spec_id: int
    min_input_files: int = 5
    rewrite_all: bool = False
    max_file_group_size_bytes: int = 100 * 2**30
    max_file_group_input_files: int = MAX_LONG
    max_files_to_rewrite: int | None = None
    delete_file_threshold: int = MAX_INT
    delete_ratio_threshold: float = 0.3
    rewrite_job_order: JobOrder = JobOrder.NONE
    max_concurrent_file_group_rewrites: int = 5
    partial_progress_enabled: bool = False
    partial_progress_max_commits: int = 10
    partial_progress_max_failed_commits: int = 10
    use_starting_sequence_number: bool = True
    remove_dangling_deletes: bool = False
    cache_delete_files: bool = False
    compression_factor: float = 1.0
    shuffle_partitions_per_file: int = 1
    max_output_size: int | None = None
    var_length_contribution: int = NUMBER_BYTES

    @staticmethod
    def of(
        given: Mapping[str, str],
        properties: Mapping[str, str],
        spec_id: int,
        spec_ids: Collection[int],
        *,
        strategy: str = BINPACK,
    ) -> "RewriteOptions":
        """Read the options of a call.

        Args:
            given: The options by name.
            properties: The table's properties.
            spec_id: The table's partition spec.
            spec_ids: All of its partition specs.
            strategy: `binpack`, `sort`, or the curve of `sort`: `zorder` or `hilbert`. Each has options of its own.

        Raises:
            AnalysisError: An option is unknown, or its value is invalid.
        """
        known = OPTIONS - FURTHER | OF_STRATEGY[strategy]
        unknown = sorted(given.keys() - known)
        if unknown:
            raise AnalysisError(
                f"Cannot use options [{', '.join(unknown)}], they are not supported by the strategy {strategy}",
                kind=ErrorKind.INVALID_VALUE,
                hint=did_you_mean(unknown[0], known),
                option=unknown[0],
            )
        default = integer(properties, WRITE_TARGET_FILE_SIZE, WriteOptions().target_file_size, minimum=1)
        target = number(given, "target-file-size-bytes", default, least=1)
        least = number(given, "min-file-size-bytes", int(target * MIN_SIZE_SHARE))
        most = number(given, "max-file-size-bytes", int(target * MAX_SIZE_SHARE))
        if target <= least:
            raise sizes_error(target, "min-file-size-bytes", least, ">", "smaller than the min threshold")
        if target >= most:
            raise sizes_error(target, "max-file-size-bytes", most, "<", "larger than the max threshold")
        output = number(given, "output-spec-id", spec_id)
        if output not in spec_ids:
            raise AnalysisError(
                f"Cannot use output spec id {output} because the table does not contain a reference to this spec-id.",
                kind=ErrorKind.INVALID_VALUE,
                hint="The table has " + ", ".join(map(str, sorted(spec_ids))),
                option="output-spec-id",
            )
        partial = flag(given, "partial-progress.enabled", default=False)
        commits = number(given, "partial-progress.max-commits", 10, least=1 if partial else -MAX_INT)
        files = None
        if "max-files-to-rewrite" in given:
            files = number(given, "max-files-to-rewrite", 0, least=1, most=MAX_INT)
        return RewriteOptions(
            target_file_size_bytes=target,
            min_file_size_bytes=least,
            max_file_size_bytes=most,
            output_spec_id=output,
            min_input_files=number(given, "min-input-files", 5, least=1, most=MAX_INT),
            rewrite_all=flag(given, "rewrite-all", default=False),
            max_file_group_size_bytes=number(given, "max-file-group-size-bytes", 100 * 2**30, least=1),
            max_file_group_input_files=number(given, "max-file-group-input-files", MAX_LONG, least=1),
            max_files_to_rewrite=files,
            delete_file_threshold=number(given, "delete-file-threshold", MAX_INT, most=MAX_INT),
            delete_ratio_threshold=positive(given, "delete-ratio-threshold", 0.3, most=1),
            rewrite_job_order=job_order(given, "rewrite-job-order"),
            max_concurrent_file_group_rewrites=number(given, "max-concurrent-file-group-rewrites", 5, least=1),
            partial_progress_enabled=partial,
            partial_progress_max_commits=commits,
            partial_progress_max_failed_commits=number(
                given, "partial-progress.max-failed-commits", commits, least=-MAX_INT
            ),
            use_starting_sequence_number=flag(given, "use-starting-sequence-number", default=True),
            remove_dangling_deletes=flag(given, "remove-dangling-deletes", default=False),
            cache_delete_files=flag(given, "cache-delete-files", default=False),
            compression_factor=positive(given, "compression-factor", 1.0),
            shuffle_partitions_per_file=number(given, "shuffle-partitions-per-file", 1, least=1, most=MAX_INT),
            max_output_size=number(given, "max-output-size", MAX_INT, least=1, most=MAX_INT)
            if "max-output-size" in given
            else None,
            var_length_contribution=number(
                given, "var-length-contribution", NUMBER_BYTES, least=1, most=MAX_PREFIX_BYTES
            ),
        )

    @property
    def close_at_size(self) -> int:
        """The size at which a new file is closed: halfway from the target to the maximum.

        Otherwise, a new file that is larger than estimated would leave a small remainder in another file.
        """
        return int(self.target_file_size_bytes + (self.max_file_size_bytes - self.target_file_size_bytes) * 0.5)

    def expected_files(self, size: int) -> int:
        """Return how many files of the target size hold the rows of a group.

        A remainder becomes a file if it exceeds the minimum size, or if the other files would grow by a tenth.

        Args:
            size: The bytes of the group's files.
        """
        target, size = self.target_file_size_bytes, int(size * self.compression_factor)
        if size < target:
            return 1
        whole, rest = divmod(size, target)
        spread = size // whole < min(SPREAD_SHARE * target, self.close_at_size)
        return whole if rest == 0 or (rest <= self.min_file_size_bytes and spread) else whole + 1

    def split_size(self, size: int) -> int:
        """Return the bytes of old files that become one new file.

        Args:
            size: The bytes of the group's files.
        """
        estimate = int(size * self.compression_factor) // self.expected_files(size) + SPLIT_OVERHEAD
        return max(self.target_file_size_bytes, min(estimate, self.close_at_size))


OPTIONS: Final = frozenset(
    name.replace("_", "-").replace("partial-progress-", "partial-progress.") for name in RewriteOptions.__slots__
)


OF_SORTING: Final = frozenset({"compression-factor", "shuffle-partitions-per-file"})
OF_ZORDER: Final = frozenset({"max-output-size", "var-length-contribution"})
FURTHER: Final = OF_SORTING | OF_ZORDER
OF_STRATEGY: Final = {
    BINPACK: frozenset[str](),
    "sort": OF_SORTING,
    CurveKind.ZORDER: FURTHER,
    CurveKind.HILBERT: OF_SORTING,
}


def invalid(option: str, value: str | float, rule: str) -> AnalysisError:
    return AnalysisError(
        f"'{option}' is set to {value} but must be {rule}",
        kind=ErrorKind.INVALID_VALUE,
        hint=f"Leave '{option}' out for its default",
        option=option,
    )


def sizes_error(target: int, option: str, value: int, sign: str, effect: str) -> AnalysisError:
    return AnalysisError(
        f"'target-file-size-bytes' ({target}) must be {sign} '{option}' ({value}), all new files will be {effect}",
        kind=ErrorKind.INVALID_VALUE,
        hint=f"Change one of them, or leave '{option}' out",
        option=option,
    )


def number(given: Mapping[str, str], option: str, default: int, *, least: int = 0, most: int = MAX_LONG) -> int:
    text = given.get(option)
    if text is None:
        return default
    try:
        value = int(text.strip())
    except ValueError:
        raise invalid(option, repr(text), "a whole number") from None
    if value < least:
        raise invalid(option, value, "> 0" if least == 1 else f">= {least}")
    if value > most:
        raise invalid(option, value, f"<= {most}")
    return value


def positive(given: Mapping[str, str], option: str, default: float, *, most: float = math.inf) -> float:
    text = given.get(option)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise invalid(option, repr(text), "a number")
    if not value > 0:
        raise invalid(option, value, "> 0")
    if value > most:
        raise invalid(option, value, f"<= {most}")
    return value


def flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise invalid(option, repr(given[option]), "true or false")
    return text == "true"


def job_order(given: Mapping[str, str], option: str) -> JobOrder:
    text = given.get(option, JobOrder.NONE)
    try:
        return JobOrder(text.strip().lower())
    except ValueError:
        raise invalid(option, repr(text), "one of " + ", ".join(JobOrder)) from None
