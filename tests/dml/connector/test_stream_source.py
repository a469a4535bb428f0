"""Tables read as streams by Spark: batches, restarts, limits, and what happens to the table meanwhile."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from dml.errors import AnalysisError, DmlError, NotFoundError, NotSupportedError
from dml.spark.versions import INSTALLED_FEATURES, Feature
from tests.fixtures.java.tables import HERE, place_of_tables
from tests.lake import Lake

pytestmark = pytest.mark.spark

JAVAS = HERE / "streamed"
MAX_FILES = "streaming-max-files-per-micro-batch"


class Reader:
    """A query that keeps the ids of each micro-batch.

    Args:
        rows: What it reads.
        checkpoint: Its checkpoint.
        before: Is called before each batch is kept, with its number.
    """

    def __init__(self, rows: DataFrame, checkpoint: Path, before: Callable[[int], object] = lambda _: None) -> None:
        self.batches: list[list[int]] = []
        self.checkpoint = checkpoint

        def keep(batch: DataFrame, number: int) -> None:
            before(number)
            self.batches.append(sorted(row[0] for row in batch.collect()))

        self.writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))

    def run(self) -> list[list[int]]:
        """Read what there is."""
        self.query = self.writer.trigger(availableNow=True).start()
        assert self.query.awaitTermination(120)
        return self.batches

    def start(self) -> StreamingQuery:
        """Read until it is stopped."""
        self.query = self.writer.start()
        return self.query

    def offsets(self) -> list[dict[str, object]]:
        """What the checkpoint has of each batch."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def fill(lake: Lake, name: str, *ranges: tuple[int, int]) -> None:
    """A snapshot of one file for each range of ids."""
    for first, end in ranges:
        lake.session.sql(f"INSERT INTO {name} SELECT id, concat('v', id) FROM range({first}, {end}, 1, 1)")


def five_rows(lake: Lake) -> str:
    """Create a table of five rows in two snapshots."""
    made = lake.create("id BIGINT, v STRING", **{"format-version": "2"})
    fill(lake, made, (0, 3), (3, 5))
    return made


@pytest.fixture
def name(lake: Lake) -> str:
    """A table of five rows in two snapshots, whose files other tables read too."""
    return lake.copy_of(five_rows, lambda: five_rows(lake))


def test_a_table_is_read_batch_after_batch(lake: Lake, spark: SparkSession, name: str, tmp_path: Path) -> None:
    """Once each, also by a query that is started again; a checkpoint has what Iceberg's JAR would have written."""
    read = Reader(spark.readStream.table(f"lake.{name}"), tmp_path)
    assert read.run() == [[0, 1, 2, 3, 4]]
    progress = read.query.lastProgress
    assert progress is not None
    (source,) = progress["sources"]
    assert source["numInputRows"] == 5
    assert source["description"].startswith(f"RowDelta lake.{name} (")
    assert source["endOffset"] == source["latestOffset"]
    snapshots = [snapshot.snapshot_id for snapshot in lake.table(name).metadata.snapshots]
    begin = {"version": 1, "snapshot_id": snapshots[0], "position": 0, "scan_all_files": False}
    assert json.loads((tmp_path / "sources/0/offsets/0").read_text()) == begin
    assert read.offsets() == [{**begin, "snapshot_id": snapshots[1], "position": 1}]
    assert read.run() == [[0, 1, 2, 3, 4]]  # nothing new
    fill(lake, name, (5, 6), (6, 7))
    again = Reader(spark.readStream.format("iceberg").load(f"lake.{name}"), tmp_path)
    assert again.run() == [[5, 6]]


def test_columns_rows_and_joins(lake: Lake, spark: SparkSession, name: str, tmp_path: Path) -> None:
    stream = spark.readStream.table(f"lake.{name}")
    joined = stream.join(spark.table(f"lake.{name}"), "id").join(stream.where("id > 1"), "id").select("id")
    assert Reader(joined, tmp_path).run()[0] == [2, 3, 4]


def test_metadata_columns(lake: Lake, spark: SparkSession, name: str, tmp_path: Path) -> None:
    """Where Spark does not ask for them they are refused: it would read them from columns that are not there."""
    files = {file.path: 0 if file.record_count == 3 else 3 for file in lake.data_files(name)}
    chosen = spark.readStream.table(f"lake.{name}").where("id % 2 = 0").select("id", "_file", "_pos")
    seen: list[tuple[int, str, int]] = []
    writer = chosen.writeStream.foreachBatch(lambda batch, _: seen.extend(map(tuple, batch.collect())))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    if Feature.METADATA_IN_STREAMS in INSTALLED_FEATURES or spark.version == "4.2.1":
        assert query.awaitTermination(120)
        assert sorted(number for number, _, _ in seen) == [0, 2, 4]
        assert all(files[path] + pos == number for number, path, pos in seen)
    else:
        with pytest.raises(NotSupportedError, match=r"metadata column in a stream of a table needs PySpark 4\.3"):
            query.awaitTermination(120)


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({MAX_FILES: 1}, [[0, 1, 2], [3, 4], [5]]),
        ({"streaming-max-rows-per-micro-batch": 4}, [[0, 1, 2, 3, 4], [5]]),
        ({"streaming-max-bytes-per-micro-batch": 10**7}, [[0, 1, 2, 3, 4, 5]]),
        ({MAX_FILES: 2, "streaming-max-rows-per-micro-batch": 3, "streaming-max-bytes-per-micro-batch": 10**7}, None),
    ],
)
def test_limits(
    lake: Lake, spark: SparkSession, name: str, tmp_path: Path, options: dict[str, int], batches: list[list[int]] | None
) -> None:
    fill(lake, name, (5, 6))
    found = Reader(spark.readStream.options(**options).table(f"lake.{name}"), tmp_path).run()
    assert found == (batches or [[0, 1, 2], [3, 4, 5]])


def test_available_now_ends_where_the_table_was(lake: Lake, spark: SparkSession, name: str, tmp_path: Path) -> None:
    rows = spark.readStream.option(MAX_FILES, 1).table(f"lake.{name}")
    read = Reader(rows, tmp_path, before=lambda number: fill(lake, name, (10 + number, 11 + number)))
    assert read.run() == [[0, 1, 2], [3, 4]]
    assert Reader(rows, tmp_path).run() == [[10], [11]]
    empty = lake.create("id BIGINT, v STRING")
    read = Reader(spark.readStream.table(f"lake.{empty}"), tmp_path / "empty")
    assert read.run() == []
    fill(lake, empty, (0, 1))
    assert read.run() == [[0]]


def test_a_batch_that_failed_comes_again_as_it_was(lake: Lake, spark: SparkSession, name: str, tmp_path: Path) -> None:
    """Whatever was committed since: it had been written down."""

    def fail(number: int) -> None:
        if number == 1:
            raise ValueError("enough")

    rows = spark.readStream.option(MAX_FILES, 1).table(f"lake.{name}")
    read = Reader(rows, tmp_path, before=fail)
    with pytest.raises(Exception, match="enough"):
        read.run()
    assert read.batches == [[0, 1, 2]]
    fill(lake, name, (5, 6))
    lake.session.sql(f"DELETE FROM {name} WHERE id = 3")
    again = Reader(spark.readStream.option(MAX_FILES, 1).table(f"lake.{name}"), tmp_path)
    with pytest.raises(NotSupportedError, match=r"Cannot process \w+ snapshot"):
        again.run()
    assert again.batches == [[3, 4]]


def test_statements_that_take_rows_away(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    """UPDATE, DELETE and MERGE in both modes are passed over where options say so, and an error otherwise."""
    for mode in ("copy-on-write", "merge-on-read"):
        modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
        name = lake.create("id BIGINT, v STRING", **modes)
        fill(lake, name, (0, 4))
        read = Reader(spark.readStream.table(f"lake.{name}"), tmp_path / mode)
        assert read.run() == [[0, 1, 2, 3]]
        lake.session.sql(f"UPDATE {name} SET v = 'x' WHERE id = 1")
        with pytest.raises(NotSupportedError, match="Cannot process overwrite snapshot"):
            read.run()
        lake.session.sql(f"DELETE FROM {name} WHERE id = 2")
        lake.session.sql(
            f"MERGE INTO {name} AS t USING (SELECT 3L AS id) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'y'"
        )
        fill(lake, name, (4, 6))
        skips = {"streaming-skip-overwrite-snapshots": "true", "streaming-skip-delete-snapshots": "true"}
        passing = spark.readStream.options(**skips).table(f"lake.{name}")
        assert Reader(passing, tmp_path / mode).run() == [[4, 5]]
        whole = spark.readStream.option("stream-scan-all-files", "true").table(f"lake.{name}")
        assert Reader(whole, tmp_path / f"{mode} whole").run() == [[0, 1, 3, 4, 5]]


def test_columns_change_under_a_stream(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    """It goes on with the columns that it began with; where it cannot, it does so when it is started again."""
    name = lake.create("id INT, v STRING")

    def add(values: str) -> None:
        lake.session.sql(f"INSERT INTO {name} VALUES {values}")
        read.query.processAllAvailable()

    read = Reader(spark.readStream.table(f"lake.{name}"), tmp_path)
    read.start()
    try:
        add("(1, 'a')")
        lake.session.sql(f"ALTER TABLE {name} ADD COLUMN w STRING")
        add("(2, 'b', 'c')")
        lake.session.sql(f"ALTER TABLE {name} RENAME COLUMN id TO key")
        add("(3, 'd', 'e')")
        lake.session.sql(f"ALTER TABLE {name} ADD PARTITION FIELD v")
        add("(4, 'f', 'g')")
        lake.session.sql(f"ALTER TABLE {name} ALTER COLUMN key TYPE BIGINT")
        with pytest.raises(Exception, match="has the type long where it had int when the stream started"):
            add("(5000000000, 'h', 'i')")
    finally:
        read.query.stop()
    assert read.batches == [[1], [2], [3], [4]]
    again = Reader(spark.readStream.table(f"lake.{name}").select("key", "w"), tmp_path)
    assert again.run() == [[5_000_000_000]]


def test_the_table_of_a_stream_is_dropped(lake: Lake, spark: SparkSession, name: str, tmp_path: Path) -> None:
    read = Reader(spark.readStream.table(f"lake.{name}"), tmp_path)
    query = read.start()
    query.processAllAvailable()
    lake.session.sql(f"DROP TABLE {name}")
    with pytest.raises(NotFoundError, match="There is no table"):
        query.awaitTermination(60)
    lake.session.sql(f"CREATE TABLE {name} (id BIGINT, v STRING)")
    fill(lake, name, (7, 8))
    read = Reader(spark.readStream.table(f"lake.{name}"), tmp_path)
    with pytest.raises(NotFoundError, match=r"was expired or removed.*dropped and created again"):
        read.run()
    query = Reader(spark.readStream.table(f"lake.{name}"), tmp_path / "new").start()
    query.processAllAvailable()
    lake.session.sql(f"DROP TABLE {name}")
    lake.session.sql(f"CREATE TABLE {name} (id BIGINT, v STRING)")
    with pytest.raises(NotFoundError, match=r"There is no table|was dropped and created again while the stream read"):
        query.awaitTermination(60)


def test_branches(lake: Lake, spark: SparkSession, name: str, tmp_path: Path) -> None:
    table = lake.table(name)
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "audit").commit()
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "v1").commit()
    fill(lake, f"{name}.branch_audit", (10, 12))
    fill(lake, name, (5, 6))
    assert Reader(spark.readStream.table(f"lake.{name}.branch_audit"), tmp_path / "1").run() == [
        [0, 1, 2, 3, 4, 10, 11]
    ]
    by_option = spark.readStream.option("branch", "audit").table(f"lake.{name}")
    assert Reader(by_option, tmp_path / "1").run() == []  # it goes on
    with pytest.raises(NotSupportedError, match="the tag 'v1' selects a state of the table that gets no more rows"):
        Reader(spark.readStream.table(f"lake.{name}.tag_v1"), tmp_path / "2").run()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"streaming-max-file-per-micro-batch": "1"}, AnalysisError, "Unknown option"),
        ({"snapshot-id": "17"}, NotFoundError, "17"),
        ({"tag": "main", "branch": "main"}, AnalysisError, "more than one state"),
        ({"start-snapshot-id": "1"}, NotSupportedError, "start-snapshot-id"),
    ],
)
def test_options_that_cannot_be(
    spark: SparkSession, name: str, tmp_path: Path, options: dict[str, str], error: type[DmlError], said: str
) -> None:
    with pytest.raises(error, match=said):
        Reader(spark.readStream.options(**options).table(f"lake.{name}"), tmp_path).run()


def test_the_checkpoint_of_another_query(spark: SparkSession, name: str, tmp_path: Path) -> None:
    query = spark.readStream.format("rate").load().writeStream.format("noop").trigger(once=True)
    assert query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)
    with pytest.raises(AnalysisError, match="which is not an offset in a table"):
        Reader(spark.readStream.table(f"lake.{name}"), tmp_path).run()


def load(reader: DataStreamReader, path: str) -> object:
    return reader.format("iceberg").load(path)


def test_what_cannot_be_read_as_a_stream(spark: SparkSession, name: str) -> None:
    with pytest.raises(NotSupportedError, match="cannot set a schema"):
        load(spark.readStream.schema("id INT"), f"lake.{name}")
    with pytest.raises(AnalysisException, match="does not support"):
        spark.readStream.table(f"lake.{name}.snapshots")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        load(spark.readStream, "lake.db.no_such_table")


@pytest.fixture(scope="module")
def javas_stream() -> Iterator[Path]:
    """A table that Iceberg's Java library wrote and streamed: its metadata's location is in `stream.json`."""
    with place_of_tables() as place:
        shutil.copytree(JAVAS / "files", place / "db" / "streamed")
        yield place


def test_a_query_of_icebergs_jar_goes_on(lake: Lake, spark: SparkSession, javas_stream: Path, tmp_path: Path) -> None:
    """Where it failed, with the batch that it had written down; `dml.streaming` is asked of more of Java's offsets."""
    written = json.loads((JAVAS / "stream.json").read_text())
    name = lake.new_name()
    lake.session.registry.catalogs["lake"].register_table(tuple(name.split(".")), f"file://{written['metadata']}")
    shutil.copytree(JAVAS / "checkpoint", tmp_path / "1")
    expected = written["files 2"]
    assert written["failed"]["batches"] == expected["batches"][:3]
    read = Reader(spark.readStream.options(**expected["options"]).table(f"lake.{name}"), tmp_path / "1")
    assert read.run() == expected["batches"][3:]
    assert read.offsets() == [json.loads(text) for text in expected["offsets"]]
