"""Statistics by CALL, ANALYZE TABLE and methods of the session, computed in tasks."""

from pathlib import Path

import pytest
from pyiceberg.table.puffin import PuffinFile

from dml import limits
from dml.errors import AnalysisError, NotFoundError, NotSupportedError, SqlError
from dml.rows.theta_sketch import ThetaSketch
from tests.lake import Lake

pytestmark = pytest.mark.spark


def filled(lake: Lake) -> str:
    """A partitioned table of two snapshots with nested, decimal, unique and deleted values."""
    columns = "id BIGINT, p STRING, d DECIMAL(9, 2), at TIMESTAMP, place STRUCT<city: STRING, at: ARRAY<INT>>"
    name = lake.create(columns, "PARTITIONED BY (p)", **{"format-version": "3", "write.delete.mode": "merge-on-read"})
    lake.session.sql(
        f"INSERT INTO {name} SELECT id, if(id % 3 = 0, NULL, concat('p', id % 3)), id % 5 / 4, "
        "timestamp_seconds(id), if(id = 0, NULL, named_struct('city', concat('c', id % 4), 'at', array(1))) "
        "FROM range(40)"
    )
    lake.session.sql(f"DELETE FROM {name} WHERE id % 2 = 1")
    return name


def distinct(lake: Lake, name: str, snapshot_id: int | None = None) -> dict[int, str]:
    """The numbers of distinct values that the metadata has for a snapshot, by field id."""
    metadata = lake.table(name).metadata
    wanted = metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    (file,) = (found for found in metadata.statistics if found.snapshot_id == wanted)
    return {blob.fields[0]: (blob.properties or {})["ndv"] for blob in file.blob_metadata}


def test_sketches_of_live_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name, session = lake.copy_of("statistics", lambda: filled(lake)), lake.session
    old = lake.table(name).metadata.snapshots[0].snapshot_id
    first = session.compute_table_stats(name)
    assert distinct(lake, name) == {1: "20", 2: "2", 3: "5", 4: "20"}
    file = lake.table(name).metadata.statistics[0]
    content = Path(file.statistics_path.removeprefix("file://")).read_bytes()
    assert file.file_size_in_bytes == len(content)
    assert content[-file.file_footer_size_in_bytes :].startswith(b"PFA1{")
    puffin = PuffinFile(content)
    frame = session.sql(f"SELECT id, d FROM {name}").toArrow()
    for place, column in ((0, "id"), (2, "d")):
        sketch = ThetaSketch()
        sketch.update(frame[column].combine_chunks())
        blob = puffin.footer.blobs[place]
        assert puffin.get_blob_payload(blob) == sketch.to_bytes()
        assert (blob.type, blob.snapshot_id) == ("apache-datasketches-theta-v1", file.snapshot_id)
    assert file.statistics_path == first
    assert Path(file.statistics_path).name.startswith(f"{file.snapshot_id}-")

    monkeypatch.setattr(limits, "MAX_ALL_REPORT_BYTES", 1)  # one task reads all files
    ((second,),) = lake.rows(
        f"CALL lake.system.compute_table_stats('{name}', columns => array('place.city', 'id', 'id'))"
    )
    assert second != first
    assert distinct(lake, name) == {6: "2", 1: "20"}
    session.compute_table_stats(name, snapshot_id=old, columns=["id"])
    assert distinct(lake, name, old) == {1: "40"}
    assert len(lake.table(name).metadata.statistics) == 2


def test_analyze_table(lake: Lake) -> None:
    """FOR columns sketches them, in the session's case; without FOR partitions are counted."""
    name, session = lake.copy_of("statistics", lambda: filled(lake)), lake.session
    assert session.sql(f"ANALYZE TABLE lake.{name} COMPUTE STATISTICS FOR COLUMNS ID, Place.CITY").columns == []
    assert set(distinct(lake, name)) == {1, 6}
    session.spark.sql(f"ANALYZE TABLE lake.{name} COMPUTE STATISTICS FOR ALL COLUMNS")
    assert set(distinct(lake, name)) == {1, 2, 3, 4}
    assert lake.table(name).metadata.partition_statistics == []
    session.sql(f"ANALYZE TABLE {name} COMPUTE STATISTICS NOSCAN")
    (counts,) = lake.table(name).metadata.partition_statistics
    assert session.compute_partition_stats(name) == counts.statistics_path
    assert lake.rows(f"CALL system.compute_partition_stats('{name}')") == [(counts.statistics_path,)]
    with pytest.raises(SqlError, match="the statistics of all partitions") as found:
        session.sql(f"ANALYZE TABLE {name} PARTITION (p = 'p1') COMPUTE STATISTICS")
    assert "Leave out PARTITION" in str(found.value)
    plain = lake.create("id INT")
    before = lake.state(plain)
    session.sql(f"ANALYZE TABLE {plain} COMPUTE STATISTICS")
    assert lake.state(plain) == before


def test_what_has_no_statistics(lake: Lake) -> None:
    name, session = lake.copy_of("statistics", lambda: filled(lake)), lake.session
    before = lake.state(name)
    for columns, error in (
        (["nope"], "Can't find column nope in id, p, d, at, place"),
        (["ID"], "Can't find column ID"),
        (["place"], "Can't compute stats on non-primitive type column: place"),
        (["place.at.element"], "Can't find column place.at.element"),
        ([], "No columns found to compute stats"),
    ):
        with pytest.raises(AnalysisError, match=error):
            session.compute_table_stats(name, columns=columns)
    for procedure in ("compute_table_stats", "compute_partition_stats"):
        with pytest.raises(NotFoundError, match="Snapshot not found: 5"):
            session.call(procedure, table=name, snapshot_id=5)
    with pytest.raises(NotSupportedError, match="is a part of the table"):
        session.compute_table_stats(f"{name}.files")
    with pytest.raises(AnalysisError, match="'columns'"):
        session.sql(f"CALL system.compute_table_stats('{name}', columns => array('id', NULL))")
    assert lake.state(name) == before
    empty = lake.create("id INT")
    assert (session.compute_table_stats(empty), session.compute_partition_stats(empty)) == (None, None)
