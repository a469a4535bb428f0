"""Validates table properties and locations before they are stored. Pure; driver.

Input: the properties that a statement sets, or a location. Output: the properties to store, and the format version,
which the specification stores outside the properties.

Relative paths are refused: each program would resolve them against its own working directory and miss the files.
PyIceberg reads `file://a/b` as the relative path `a/b`; Hadoop's local file system refuses it. Source: Iceberg
documentation, "Configuration".
"""

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.hints import did_you_mean
from dml.hook_options import HookOptions
from dml.options import (
    DEFAULT_FILE_FORMAT,
    DELETE_DEFAULT_FILE_FORMAT,
    DISTRIBUTION_MODES,
    FOLDER_PROPERTIES,
    FORMAT_VERSION,
    MAINTENANCE_REWRITE_OPTIONS,
    MAINTENANCE_REWRITE_PREFIX,
    Command,
    CommitOptions,
    DistributionMode,
    MaintenanceOptions,
    WriteOptions,
    isolation_level,
    row_level_concurrency,
    row_level_operation_mode,
    row_probe_bytes,
)

__all__ = [
    "COMMENT",
    "check_folders",
    "check_location_is_absolute",
    "check_properties",
    "check_removals",
    "split_format_version",
]

COMMENT = "comment"
FORMATS = ("parquet", "avro", "orc")
FORMAT_KEYS = (DEFAULT_FILE_FORMAT, DELETE_DEFAULT_FILE_FORMAT)
COMPUTED = frozenset(
    {
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
        "sort-order",
        "identifier-fields",
    }
)
CLAUSES = {"location": "LOCATION", "provider": "USING"}
LATEST_VERSION = 3


def check_properties(changes: Mapping[str, str]) -> None:
    """Validate the properties that a statement sets.

    Args:
        changes: Keys and values as written, without the format version.

    Raises:
        AnalysisError: A value is invalid for its property, or the property cannot be set.
    """
    for key in changes:
        refuse_reserved(key)
    for command in Command:
        row_level_operation_mode(changes, command)
        isolation_level(changes, command)
    row_level_concurrency(changes)
    row_probe_bytes(changes)
    WriteOptions.from_properties(changes)
    CommitOptions.from_properties(changes)
    HookOptions.from_properties(changes)
    check_rewrite_options(MaintenanceOptions.from_properties(changes).rewrite)
    for key in DISTRIBUTION_MODES:
        one_of(changes, key, tuple(DistributionMode))
    for key in FORMAT_KEYS:
        one_of(changes, key, FORMATS)
    check_folders(changes)


def split_format_version(properties: Iterable[tuple[str, str]]) -> tuple[int | None, dict[str, str]]:
    """Split `format-version` off a statement's properties.

    Args:
        properties: Keys and values as written; the last of equal keys wins.

    Returns:
        The version, or None if it is not set, and the other properties.

    Raises:
        AnalysisError: The version is unknown.
    """
    rest = dict(properties)
    text = rest.pop(FORMAT_VERSION, None)
    if text is None:
        return None, rest
    if text.strip() not in {str(version) for version in range(1, LATEST_VERSION + 1)}:
        raise AnalysisError(
            f"The table property '{FORMAT_VERSION}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be '1', '2' or '3'",
            property=FORMAT_VERSION,
        )
    return int(text), rest


def check_removals(keys: Iterable[str]) -> None:
    """Refuse to unset properties that every table has.

    Raises:
        AnalysisError: A key is the format version, or is computed.
    """
    for key in keys:
        if key == FORMAT_VERSION:
            raise AnalysisError(
                "A table always has a format version",
                kind=ErrorKind.INVALID_PROPERTY,
                hint="It can be set to a higher one",
                property=FORMAT_VERSION,
            )
        refuse_reserved(key)


def refuse_reserved(key: str) -> None:
    if key in CLAUSES:
        raise NotSupportedError(
            f"The table property '{key}' is reserved",
            kind=ErrorKind.INVALID_PROPERTY,
            hint=f"It is given once, by {CLAUSES[key]} of CREATE TABLE",
            property=key,
        )
    if key in COMPUTED:
        raise AnalysisError(
            f"The table property '{key}' is computed from the table",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="Leave it out: it cannot be set",
            property=key,
        )


def check_rewrite_options(names: Iterable[str]) -> None:
    """Refuse options of the compaction by `maintain` that do not exist: each later run would fail.

    Raises:
        AnalysisError: There is no such option.
    """
    for name in names:
        if name not in MAINTENANCE_REWRITE_OPTIONS:
            key = f"{MAINTENANCE_REWRITE_PREFIX}{name}"
            raise AnalysisError(
                f"The table property '{key}' names no option of a rewrite by size",
                kind=ErrorKind.INVALID_PROPERTY,
                hint=did_you_mean(name, MAINTENANCE_REWRITE_OPTIONS),
                property=key,
            )


def one_of(properties: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> None:
    value = properties.get(key)
    if value is not None and value.strip().lower() not in allowed:
        raise AnalysisError(
            f"The table property '{key}' is '{value}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be one of " + ", ".join(f"'{name}'" for name in allowed),
            property=key,
        )


WHY: Final = "depends on the folder in which a program runs"
WAY_OUT: Final = "Give an absolute path, such as /lake/t or file:///lake/t, or a URI such as s3://bucket/t"


def check_location_is_absolute(location: str) -> None:
    """Refuse a LOCATION that depends on the working directory of a program.

    Raises:
        AnalysisError: It is a relative path, or has the scheme `file` and names a host.
    """
    if is_relative(location):
        raise AnalysisError(f"The location '{location}' {WHY}", hint=WAY_OUT, location=location)


def check_folders(properties: Mapping[str, str]) -> None:
    """Refuse table properties with a relative path.

    Raises:
        AnalysisError: As for `check_location_is_absolute`.
    """
    for key in FOLDER_PROPERTIES:
        value = properties.get(key)
        if value is not None and is_relative(value):
            raise AnalysisError(
                f"The table property '{key}' is '{value}', which {WHY}",
                kind=ErrorKind.INVALID_PROPERTY,
                hint=WAY_OUT,
                property=key,
            )


def is_relative(location: str) -> bool:
    parts = urlsplit(location)
    if parts.scheme in {"", "file"}:
        return bool(parts.netloc) or not parts.path.startswith("/")
    return False
