"""Which names mean one file. Pure; driver.

    s3a://b/t/data/a%20b.parquet  and  s3://b/t/data/a b.parquet        are one file
    file:/t/a.parquet, file:///t/a.parquet  and  /t/a.parquet           are one file
    s3://b1/t/a.parquet  and  s3://b2/t/a.parquet                       may be one file: the path is the same

Input: locations, as metadata, a catalog or a listing has them. Output: what they are compared by. Where two names might
mean one file they are made equal: a file too many is kept then, and none is lost. Source: Iceberg's
`DeleteOrphanFilesSparkAction` (`FileURI`).
"""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

__all__ = ["EQUAL_SCHEMES", "Equivalents", "FileIdentity", "identity_of", "is_inside", "path_of"]

EQUAL_SCHEMES: Final[Mapping[str, str]] = MappingProxyType({"s3n,s3a": "s3"})
"""The schemes that mean one storage, whatever else is given: the reference's default."""

_LOCATION: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalents:
    """Schemes and authorities that are other names of one.

    Attributes:
        schemes: From each scheme, lower case, to the one that stands for it.
        authorities: The same for authorities: buckets, hosts.
    """

    schemes: Mapping[str, str]
    authorities: Mapping[str, str]

    @staticmethod
    def of(schemes: Mapping[str, str], authorities: Mapping[str, str]) -> "Equivalents":
        """What a call gives, beside the schemes that are always equal.

        Args:
            schemes: From one or more schemes, with commas between them, to the one that stands for them.
            authorities: The same for authorities.
        """
        return Equivalents(schemes=_flat({**EQUAL_SCHEMES, **schemes}), authorities=_flat(authorities))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """What a location is compared by.

    Attributes:
        scheme: Lower case, one for all equal ones; empty where the location has none.
        authority: The bucket or host, likewise.
        path: Absolute, decoded, without empty parts and dots.
    """

    scheme: str
    authority: str
    path: str

    def has_prefix_of(self, other: "FileIdentity") -> bool:
        """Whether scheme and authority are the other's; one that a location leaves out may be any."""
        return _may_be(self.scheme, other.scheme) and _may_be(self.authority, other.authority)


def identity_of(location: str, equivalents: Equivalents) -> FileIdentity:
    """What a location is compared by.

    Args:
        location: A URI, or the path of a local file.
        equivalents: Which schemes and authorities are equal.
    """
    scheme, authority, path = _parts(location)
    return FileIdentity(
        scheme=equivalents.schemes.get(scheme, scheme),
        authority=equivalents.authorities.get(authority, authority),
        path=_normal(_decoded(path)),
    )


def path_of(location: str) -> str:
    """The path of a location as its storage has it: nothing is decoded."""
    return _normal(_parts(location)[2])


def is_inside(location: str, folder: str, equivalents: Equivalents) -> bool:
    """Whether a location is a folder or lies below it. Nothing is decoded: `a%2Fb` is one name.

    Args:
        location: Of a file or folder.
        folder: Of a folder.
        equivalents: Which schemes and authorities are equal.
    """
    path, root = path_of(location), path_of(folder)
    below = path == root or path.startswith(root.rstrip("/") + "/")
    return below and identity_of(location, equivalents).has_prefix_of(identity_of(folder, equivalents))


def _parts(location: str) -> tuple[str, str, str]:
    match = _LOCATION.fullmatch(location)
    if match is None:
        return "", "", location
    return match["scheme"].lower(), (match["authority"] or "").lower(), match["path"]


def _normal(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _decoded(path: str) -> str:
    # A name may be encoded more than once: a partition's value in the name of its folder, and then all of it in a URI.
    while (plain := unquote(path)) != path:
        path = plain
    return path


def _flat(names: Mapping[str, str]) -> Mapping[str, str]:
    return {name.strip().lower(): one.strip().lower() for listed, one in names.items() for name in listed.split(",")}


def _may_be(one: str, other: str) -> bool:
    return not one or not other or one == other
