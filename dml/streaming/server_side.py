"""Micro-batches on a Spark Connect server, whose process has no session of ours. Driver; runs beside the server.

Input: the catalogs of a session, the checkpoint of a query. Output: the same catalogs there; the query's id, which
stands in the checkpoint's file `metadata`: Spark tells a function of `foreachBatch` nothing but the number.
"""

import json
import pickle
from functools import cache
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from dml.catalog.loading import load
from dml.catalog.registry import CatalogRegistry
from dml.engine.engine import Engine
from dml.errors import CorruptFileError

__all__ = ["engine_of", "packed_catalogs", "query_id_of"]


def packed_catalogs(registry: CatalogRegistry) -> bytes:
    """The catalogs of a session for another process: their properties, which may hold credentials.

    Args:
        registry: The catalogs.
    """
    properties = {name: dict(catalog.properties) for name, catalog in registry.catalogs.items()}
    return pickle.dumps((properties, registry.current_catalog, registry.current_namespace))


@cache
def registry_of(packed: bytes) -> CatalogRegistry:
    """The catalogs that `packed_catalogs` packed."""
    catalogs, current, namespace = pickle.loads(packed)  # noqa: S301 - of our own client, inside a pickled function
    loaded = {name: load(name, **properties) for name, properties in catalogs.items()}
    return CatalogRegistry(catalogs=loaded, current_catalog=current, current_namespace=namespace)


def engine_of(batch: DataFrame, packed: bytes) -> Engine:
    """A micro-batch's session with the catalogs of the one that started the query.

    Args:
        batch: The micro-batch.
        packed: By `packed_catalogs`.

    Raises:
        SetupError: a catalog cannot be loaded here.
    """
    return Engine(spark=batch.sparkSession, registry=registry_of(packed))


QUERY_IDS: Final[dict[str, str]] = {}


def query_id_of(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query that a checkpoint belongs to. Spark writes it before the first micro-batch.

    Args:
        spark: A session of the server, whose storage the checkpoint is in.
        checkpoint: Its location.

    Raises:
        CorruptFileError: the file has no id.
    """
    if checkpoint not in QUERY_IDS:
        path = f"{checkpoint.rstrip('/')}/metadata"
        text = "".join(row[0] for row in spark.read.text(path).collect())
        try:
            QUERY_IDS[checkpoint] = str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(
                f"The file {path} does not say which query the checkpoint belongs to",
                hint="Start the stream with a new checkpoint",
                file=path,
            ) from error
    return QUERY_IDS[checkpoint]
