"""The sink of a stream without Spark: its options, and the function that another process receives."""

import pickle
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

import pytest
from pyspark.sql import DataFrame

from dml.catalog.registry import CatalogRegistry
from dml.commit import StreamEpoch
from dml.engine.engine import Engine
from dml.errors import NotSupportedError
from dml.spark.lazy_session import LazySession
from dml.spark.runtime import Runtime, SessionKind
from dml.spark_connect.server_side import RemoteBatches, batch_function, pack_catalogs
from dml.streaming.sink import LocalBatches, StreamSink, stream_options

TABLE = UUID(int=7)


def sink(options: Mapping[str, str]) -> StreamSink:
    return StreamSink(table=("lake", "db", "t"), table_uuid=TABLE, options=stream_options(options), complete=True)


@pytest.mark.parametrize(
    "option", ["isolation-level", "overwrite-mode", "overwrite-schema", "overwriteSchema", "validate-from-snapshot-id"]
)
def test_options_that_a_stream_would_ignore_are_refused(option: str) -> None:
    """Each is about the rows or columns that one overwrite replaces."""
    with pytest.raises(NotSupportedError, match="not supported for streams"):
        stream_options({option: "true"})


def test_the_function_for_micro_batches_survives_pickling() -> None:
    """It keeps the options, and the identity by which a micro-batch is written once."""
    wanted = sink({"adopt-checkpoint": "true", "checkpointLocation": "c", "branch": "audit", "fanout-enabled": "true"})
    sent = RemoteBatches(catalogs=b"", write=wanted.write, checkpoint="c")
    found = pickle.loads(pickle.dumps(sent)).write.__self__
    assert found == wanted
    assert found.epoch("q", 3) == StreamEpoch(query_id="q", epoch_id=3, table_uuid=TABLE, adopts_checkpoint=True)
    assert found.options.write.branch == "audit"


def test_names_are_resolved_as_when_the_query_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later USE in the session affects no running query, neither in its process nor beside a server."""
    spark: Any = object()
    runtime = Runtime(kind=SessionKind.CLASSIC, features=frozenset())
    monkeypatch.setattr(Runtime, "of", staticmethod(lambda _: runtime))
    registry = CatalogRegistry(catalogs={}, current_catalog="lake", current_namespace=("before",))
    engine = Engine(lazy_session=LazySession(spark), registry=registry)
    function = cast("LocalBatches", batch_function(engine, ignore, "c"))
    packed = pickle.loads(pack_catalogs(registry))
    registry.current_namespace = ("after",)
    assert function.engine.registry.current_namespace == ("before",)
    assert packed == ({}, "lake", ("before",))


def ignore(_: Engine, __: DataFrame, ___: str, ____: int) -> None:
    """Write nothing."""
