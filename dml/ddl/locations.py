"""Locations of tables and folders that statements give. Pure; driver.

A relative path means another folder in each program that reads the table, so its files would seem to be lost there.
PyIceberg takes `file://a/b` for the relative path `a/b`, where Hadoop's local file system refuses it.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from dml.errors import AnalysisError, ErrorKind
from dml.options import FOLDER_PROPERTIES

__all__ = ["check_folders", "check_location_is_absolute"]

_WHY: Final = "depends on the folder in which a program runs"
_WAY_OUT: Final = "Give an absolute path, such as /lake/t or file:///lake/t, or a URI such as s3://bucket/t"


def check_location_is_absolute(location: str) -> None:
    """Refuse a LOCATION that depends on the folder in which a program runs.

    Raises:
        AnalysisError: it is a relative path, or has the scheme `file` and names a host.
    """
    if _is_relative(location):
        raise AnalysisError(f"The location '{location}' {_WHY}", hint=_WAY_OUT, location=location)


def check_folders(properties: Mapping[str, str]) -> None:
    """Refuse table properties that name such a folder.

    Raises:
        AnalysisError: as `check_location_is_absolute`.
    """
    for key in FOLDER_PROPERTIES:
        value = properties.get(key)
        if value is not None and _is_relative(value):
            raise AnalysisError(
                f"The table property '{key}' is '{value}', which {_WHY}",
                kind=ErrorKind.INVALID_PROPERTY,
                hint=_WAY_OUT,
                property=key,
            )


def _is_relative(location: str) -> bool:
    parts = urlsplit(location)
    if parts.scheme in {"", "file"}:
        return bool(parts.netloc) or not parts.path.startswith("/")
    return False
