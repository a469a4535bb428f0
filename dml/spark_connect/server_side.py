"""Micro-batches in the process beside a Spark Connect server, which has no RowDelta session. Driver.

Input: the catalogs of the session that started a query, the query's checkpoint, a micro-batch. Output: the micro-batch
in its table. The same catalogs are loaded in this process. The query's id comes from the file `metadata` of the
checkpoint, because Spark passes only the number of a micro-batch to a function of `foreachBatch`. Classic Spark runs
the function in the process of the session.
"""

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from dml.catalog.loading import load
from dml.catalog.registry import CatalogRegistry
from dml.engine.engine import Engine
from dml.errors import CorruptFileError
from dml.spark.lazy_session import LazySession
from dml.streaming.sink import LocalBatches, WriteBatch

__all__ = ["batch_function"]


def batch_function(engine: Engine, write: WriteBatch, checkpoint: str) -> Callable[[DataFrame, int], None]:
    """Return the function of `foreachBatch` that writes each micro-batch once.

    Names without a catalog are resolved in the catalog and namespace that were current when the query started.

    Args:
        engine: The session that starts the query, and its catalogs.
        write: Writes a micro-batch. It can be pickled.
        checkpoint: The location of the query's checkpoint.
    """
    if engine.runtime.is_connect:
        return RemoteBatches(catalogs=pack_catalogs(engine.registry), write=write, checkpoint=checkpoint)
    return LocalBatches(engine=replace(engine, registry=replace(engine.registry)), write=write)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBatches:
    """The function of `foreachBatch` on Spark Connect. It can be pickled.

    Attributes:
        catalogs: The packed catalogs of the session that started the query.
        write: Writes a micro-batch.
        checkpoint: The location of the query's checkpoint.
    """

    catalogs: bytes = field(repr=False)
    write: WriteBatch
    checkpoint: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write the micro-batch with the catalogs of the session that started the query."""
        engine = Engine(lazy_session=LazySession(batch.sparkSession), registry=registry_of(self.catalogs))
        self.write(engine, batch, query_id_of(batch.sparkSession, self.checkpoint), number)


def pack_catalogs(registry: CatalogRegistry) -> bytes:
    """Pickle the properties of a session's catalogs for another process. They may contain credentials."""
    properties = {name: dict(catalog.properties) for name, catalog in registry.catalogs.items()}
    return pickle.dumps((properties, registry.current_catalog, registry.current_namespace))


@cache
def registry_of(packed: bytes) -> CatalogRegistry:
    """Load the catalogs that `pack_catalogs` packed.

    Raises:
        SetupError: A catalog cannot be loaded here.
    """
    catalogs, current, namespace = pickle.loads(packed)  # noqa: S301 - from RowDelta's client, in a pickled function
    loaded = {name: load(name, **properties) for name, properties in catalogs.items()}
    return CatalogRegistry(catalogs=loaded, current_catalog=current, current_namespace=namespace)


QUERY_IDS: Final[dict[str, str]] = {}


def query_id_of(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of a checkpoint's query. Spark writes it before the first micro-batch.

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
