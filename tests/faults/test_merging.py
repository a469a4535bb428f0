"""MERGE on a cluster: a broadcast variable carries a source of some megabytes to the tasks, without Spark's join."""

import json
from pathlib import Path

import pyspark
import pytest

from tests.faults.processes import running

pytestmark = pytest.mark.spark

PATIENCE_SECONDS = 600
ROWS = {"few": 10, "megabytes": 200_000, "too many": 200_000}
SENT = {"few": ["StreamedBatch"], "megabytes": ["BroadcastBatch"], "too many": [""]}


@pytest.mark.nightly
def test_sources_of_a_merge_on_a_cluster(tmp_path: Path) -> None:
    """The rows are the same as with Spark's join, and nothing of the source is left on the driver's disk."""
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_WORKER_DIR": str(tmp_path / "work")}
    with running("tests.faults.merging", [str(tmp_path)], tmp_path, **spark) as process:
        assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()[-4000:]
    told = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert len(told) == 2 * len(SENT)
    for line in told:
        half = ROWS[line["what"]] // 2
        assert line["sent"] == SENT[line["what"]]
        assert line["changed"] == [half, half]
        assert line["rows"] == [
            row
            for row in (
                ["new", 2 * half, 2 * half, 99_999 + half],
                ["old", 100_000 - half, 100_000 - half, 99_999 - half],
            )
            if row[1]
        ]
        assert line["left"] == []
