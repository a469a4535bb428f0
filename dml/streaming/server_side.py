"""Micro-batches on a Spark Connect server, whose process has no RowDelta session. Driver; runs beside the server.

Input: the catalogs of a session, the checkpoint of a query. Output: the same catalogs in this process; the query's id,
from the file `metadata` of the checkpoint: Spark passes only the batch number to a function of `foreachBatch`.
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
from dml.spark.runtime import Runtime

__all__ = ["engine_of", "pack_catalogs", "query_id_of"]


def pack_catalogs(registry: CatalogRegistry) -> bytes:
    """Pickle the properties of a session's catalogs for another process. They may contain credentials."""
    properties = {name: dict(catalog.properties) for name, catalog in registry.catalogs.items()}
    return pickle.dumps((properties, registry.current_catalog, registry.current_namespace))


@cache
def registry_of(packed: bytes) -> CatalogRegistry:
    """Load the catalogs that `pack_catalogs` packed."""
    catalogs, current, namespace = pickle.loads(packed)  # noqa: S301 - from RowDelta's client, in a pickled function
    loaded = {name: load(name, **properties) for name, properties in catalogs.items()}
    return CatalogRegistry(catalogs=loaded, current_catalog=current, current_namespace=namespace)


def engine_of(batch: DataFrame, packed: bytes) -> Engine:
    """Build an engine from the micro-batch's session and the catalogs of the session that started the query.

    Args:
        batch: The micro-batch.
        packed: The output of `pack_catalogs`.

    Raises:
        SetupError: A catalog cannot be loaded here.
    """
    return Engine(runtime=Runtime(batch.sparkSession), registry=registry_of(packed))


QUERY_IDS: Final[dict[str, str]] = {}


def query_id_of(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query that a checkpoint belongs to. Spark writes it before the first micro-batch.

    Args:
        spark: A session of the server, which can read the checkpoint.
        checkpoint: The checkpoint's location.

    Raises:
        CorruptFileError: The file has no id.
    """
    if checkpoint not in QUERY_IDS:
        path = f"{checkpoint.rstrip('/')}/metadata"
        text = "".join(row[0] for row in spark.read.text(path).collect())
        try:
            QUERY_IDS[checkpoint] = str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(
                f"The file {path} does not contain the id of the checkpoint's query",
                hint="Start the stream with a new checkpoint",
                file=path,
            ) from error
    return QUERY_IDS[checkpoint]
