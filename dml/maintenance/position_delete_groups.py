"""Select the position delete files to rewrite, and group them by partition. Pure; driver.

Input: the options of a call, live position delete files. Output: groups of files, and a reason for each file.
Source: Iceberg's `SizeBasedFileRewritePlanner` and `BinPackRewritePositionDeletePlanner`.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dml.deletes.delete_file_index import partition_key
from dml.errors import AnalysisError, ErrorKind
from dml.hints import did_you_mean
from dml.model.manifest import ManifestEntry, Partition

__all__ = [
    "UNLIMITED",
    "GroupOrder",
    "PositionDeleteGroup",
    "PositionDeleteOptions",
    "group_reasons",
    "position_delete_groups",
]

TARGET: Final = "target-file-size-bytes"
MIN_SIZE: Final = "min-file-size-bytes"
MAX_SIZE: Final = "max-file-size-bytes"
MIN_FILES: Final = "min-input-files"
REWRITE_ALL: Final = "rewrite-all"
GROUP_BYTES: Final = "max-file-group-size-bytes"
GROUP_FILES: Final = "max-file-group-input-files"
CONCURRENT: Final = "max-concurrent-file-group-rewrites"
PARTIAL: Final = "partial-progress.enabled"
MAX_COMMITS: Final = "partial-progress.max-commits"
ORDER: Final = "rewrite-job-order"
OPTIONS: Final = (
    *(TARGET, MIN_SIZE, MAX_SIZE, MIN_FILES, REWRITE_ALL, GROUP_BYTES, GROUP_FILES),
    *(CONCURRENT, PARTIAL, MAX_COMMITS, ORDER),
)
UNLIMITED: Final = 2**63 - 1


class GroupOrder(StrEnum):
    """The order in which groups are rewritten."""

    NONE = "none"
    BYTES_ASC = "bytes-asc"
    BYTES_DESC = "bytes-desc"
    FILES_ASC = "files-asc"
    FILES_DESC = "files-desc"


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionDeleteOptions:
    """The options of a call; sizes in bytes.

    Attributes:
        target_size: The size of new delete files.
        min_size: Smaller files are rewritten.
        max_size: Larger files are rewritten.
        min_files: The minimum number of files of a group, unless its size is a reason to rewrite it.
        rewrite_all: Rewrite all files.
        group_size: The maximum size of a group.
        group_files: The maximum number of files of a group.
        concurrent_groups: The maximum number of groups at once.
        partial_progress: Commit groups in several commits.
        max_commits: The maximum number of these commits.
        order: The order of the groups.
    """

    target_size: int
    min_size: int
    max_size: int
    min_files: int = 5
    rewrite_all: bool = False
    group_size: int = 100 * 2**30
    group_files: int = UNLIMITED
    concurrent_groups: int = 5
    partial_progress: bool = False
    max_commits: int = 10
    order: GroupOrder = GroupOrder.NONE

    @property
    def max_output_size(self) -> int:
        """The size at which a new file is closed: above the target, so that no small remainder is left."""
        return int(self.target_size + (self.max_size - self.target_size) * 0.5)

    @staticmethod
    def of(given: Mapping[str, str], default_target: int) -> "PositionDeleteOptions":
        """Parse the options of a call.

        Args:
            given: The options by name.
            default_target: The table's `write.delete.target-file-size-bytes`.

        Raises:
            AnalysisError: An option is unknown or has an invalid value.
        """
        unknown = sorted(set(given) - set(OPTIONS))
        if unknown:
            raise AnalysisError(
                f"Cannot use options [{', '.join(unknown)}], they are not supported by rewrite_position_delete_files",
                kind=ErrorKind.INVALID_VALUE,
                hint=did_you_mean(unknown[0], OPTIONS),
                option=unknown[0],
            )
        target = number(given, TARGET, default_target, least=1)
        smallest = number(given, MIN_SIZE, int(target * 0.75), least=0)
        largest = number(given, MAX_SIZE, int(target * 1.8), least=0)
        if not smallest < target < largest:
            raise AnalysisError(
                f"'{TARGET}' ({target}) must be > '{MIN_SIZE}' ({smallest}) and < '{MAX_SIZE}' ({largest})",
                kind=ErrorKind.INVALID_VALUE,
                hint="Otherwise all new files would be rewritten again",
            )
        return PositionDeleteOptions(
            target_size=target,
            min_size=smallest,
            max_size=largest,
            min_files=number(given, MIN_FILES, 5, least=1),
            rewrite_all=flag(given, REWRITE_ALL),
            group_size=number(given, GROUP_BYTES, 100 * 2**30, least=1),
            group_files=number(given, GROUP_FILES, UNLIMITED, least=1),
            concurrent_groups=number(given, CONCURRENT, 5, least=1),
            partial_progress=flag(given, PARTIAL),
            max_commits=number(given, MAX_COMMITS, 10, least=1),
            order=group_order(given.get(ORDER, GroupOrder.NONE)),
        )


def number(given: Mapping[str, str], option: str, default: int, *, least: int) -> int:
    text = given.get(option, str(default))
    value = int(text) if text.strip().removeprefix("-").isdecimal() else least - 1
    if not least <= value <= UNLIMITED:
        raise AnalysisError(
            f"'{option}' is set to {text} but must be a whole number >= {least}", kind=ErrorKind.INVALID_VALUE
        )
    return value


def flag(given: Mapping[str, str], option: str) -> bool:
    text = given.get(option, "false").strip().lower()
    if text not in {"true", "false"}:
        raise AnalysisError(f"'{option}' is set to {text} but must be true or false", kind=ErrorKind.INVALID_VALUE)
    return text == "true"


def group_order(text: str) -> GroupOrder:
    order = next((order for order in GroupOrder if order == text.strip().lower()), None)
    if order is None:
        raise AnalysisError(
            f"Invalid rewrite job order name: {text}",
            kind=ErrorKind.INVALID_VALUE,
            hint=f"It must be one of {', '.join(GroupOrder)}",
        )
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionDeleteGroup:
    """Position delete files of one partition that are rewritten together.

    Attributes:
        partition: The spec and the partition.
        files: Their manifest entries.
    """

    partition: Partition
    files: tuple[ManifestEntry, ...]

    @property
    def size(self) -> int:
        """The bytes of the files."""
        return sum(entry.data_file.file_size_in_bytes for entry in self.files)

    @property
    def data_sequence_number(self) -> int:
        """The data sequence number of the new files: the greatest of the old ones."""
        return max(entry.data_sequence_number or 0 for entry in self.files)


def position_delete_groups(
    files: Iterable[ManifestEntry], options: PositionDeleteOptions
) -> tuple[PositionDeleteGroup, ...]:
    """Return the groups to rewrite.

    Args:
        files: The live position delete files, without deletion vectors.
        options: The options.
    """
    by_partition: dict[Hashable, list[ManifestEntry]] = {}
    for entry in files:
        if options.rewrite_all or has_wrong_size(entry, options):
            key = partition_key(entry.data_file.spec_id, entry.data_file.partition)
            by_partition.setdefault(key, []).append(entry)
    groups = [
        PositionDeleteGroup(partition=(pack[0].data_file.spec_id, pack[0].data_file.partition), files=tuple(pack))
        for entries in by_partition.values()
        for pack in packs(entries, options)
        if options.rewrite_all or is_worth_it(pack, options)
    ]
    match options.order:
        case GroupOrder.BYTES_ASC | GroupOrder.BYTES_DESC:
            groups.sort(key=lambda group: group.size, reverse=options.order is GroupOrder.BYTES_DESC)
        case GroupOrder.FILES_ASC | GroupOrder.FILES_DESC:
            groups.sort(key=lambda group: len(group.files), reverse=options.order is GroupOrder.FILES_DESC)
        case GroupOrder.NONE:
            pass
    return tuple(groups)


def has_wrong_size(entry: ManifestEntry, options: PositionDeleteOptions) -> bool:
    return not options.min_size <= entry.data_file.file_size_in_bytes <= options.max_size


def packs(entries: Sequence[ManifestEntry], options: PositionDeleteOptions) -> Iterator[list[ManifestEntry]]:
    """Cut files into groups, in their order."""
    pack: list[ManifestEntry] = []
    size = 0
    for entry in entries:
        more = entry.data_file.file_size_in_bytes
        if pack and (size + more > options.group_size or len(pack) >= options.group_files):
            yield pack
            pack, size = [], 0
        pack.append(entry)
        size += more
    if pack:
        yield pack


def is_worth_it(pack: Sequence[ManifestEntry], options: PositionDeleteOptions) -> bool:
    size = sum(entry.data_file.file_size_in_bytes for entry in pack)
    enough = len(pack) > 1 and (len(pack) >= options.min_files or size > options.target_size)
    return enough or size > options.max_size


def group_reasons(
    files: Iterable[ManifestEntry], groups: Iterable[PositionDeleteGroup], options: PositionDeleteOptions
) -> Iterator[tuple[ManifestEntry, bool, str]]:
    """Yield each file, whether it is rewritten, and the reason."""
    chosen = {entry.data_file.path: len(group.files) for group in groups for entry in group.files}
    for entry in files:
        size = f"{entry.data_file.file_size_in_bytes} bytes"
        if entry.data_file.path in chosen:
            yield entry, True, f"{size}, one of {chosen[entry.data_file.path]} files of its partition"
        elif has_wrong_size(entry, options):
            yield entry, False, f"{size}, fewer than {MIN_FILES} ({options.min_files}) in its partition"
        else:
            yield entry, False, f"{size}, between {MIN_SIZE} and {MAX_SIZE}"
