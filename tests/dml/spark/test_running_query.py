"""The id of the query that a function of `foreachBatch` works for; no Spark."""

import pytest

from dml.errors import NotSupportedError
from dml.spark import jobs


def test_without_the_id_of_its_query_a_micro_batch_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a name that stands for nothing, micro-batches of two streams would be taken for one."""
    monkeypatch.setattr(jobs, "local_property", lambda name: None)
    with pytest.raises(NotSupportedError, match="PYSPARK_PIN_THREAD"):
        jobs.running_query_id()
    monkeypatch.setattr(jobs, "local_property", {"sql.streaming.queryId": "7d"}.get)
    assert jobs.running_query_id() == "7d"
