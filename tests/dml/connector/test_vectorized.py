"""Reading data files with Spark's own Parquet reader: when it is used, and that its rows are those of ours."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from dml import limits
from dml.errors import CorruptFileError
from tests.marks import by_night

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]


@pytest.fixture(autouse=True)
def however_small(monkeypatch):
    """Files of a few rows are read as large ones are."""
    monkeypatch.setattr(limits, "MIN_SPARK_READER_BYTES", 0)


def is_vectorized(frame: DataFrame) -> bool:
    """Whether Spark's own reader gives batches of columns."""
    return "ColumnarToRow" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.fixture
def read(lake, spark, monkeypatch):
    """Reads a table by its name and by SQL, with Spark's reader and with ours: the rows are the same."""

    def rows_of(name: str, columns: str = "*", *, spark_reads: bool = True) -> list[tuple]:
        def frames() -> list[DataFrame]:
            listed = [f"`{column}`" for column in columns.split(", ")] if columns != "*" else ["*"]
            return [
                spark.table(f"lake.{name}").selectExpr(*listed),
                lake.session.sql(f"SELECT {columns} FROM {name}"),
            ]

        found = []
        for frame in frames():
            assert is_vectorized(frame) == spark_reads, name
            found.append(sorted(map(tuple, frame.collect()), key=repr))
        with monkeypatch.context() as ours:
            ours.setattr(limits, "MAX_SPARK_READER_FILES", 0)
            for frame in frames():
                assert not is_vectorized(frame)
                found.append(sorted(map(tuple, frame.collect()), key=repr))
        first, *others = found
        assert all(repr(other) == repr(first) for other in others)
        return first

    return rows_of


VALUES = """
    (true, 1, 100L, 1.5F, 1.5D, 1.50, 12345678901234567890.123456789, 'a', X'00FF', DATE'2020-01-01',
     TIMESTAMP'2020-01-01 00:00:00', TIMESTAMP_NTZ'2020-01-01 12:00:00'),
    (false, -2147483648, -9223372036854775808L, -0.0F, -0.0D, -1.50, -0.000000001, '', X'', DATE'1969-12-31',
     TIMESTAMP'1969-12-31 23:59:59.999999', TIMESTAMP_NTZ'1969-12-31 23:59:59.000001'),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (true, 2147483647, 9223372036854775807L, float('NaN'), double('NaN'), 9999999.99, 0, 'ä"`%_\\u0000', X'C328',
     DATE'9999-12-31', TIMESTAMP'2024-02-29 12:34:56.123456', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'),
    (false, 0, 0L, float('-Infinity'), double('Infinity'), 0, 1, 'abc', X'616263', DATE'0001-01-01',
     TIMESTAMP'0001-01-03 00:00:00', TIMESTAMP_NTZ'0001-01-01 00:00:00')
"""
COLUMNS = (
    "b boolean, i int, l bigint, f float, d double, n decimal(9,2), m decimal(38,9), s string, x binary, dt date,"
    " ts timestamp, tn timestamp_ntz"
)


@pytest.mark.parametrize("version", by_night(["1", "2", "3"], lambda version: version == "3"))
def test_values_of_all_types(lake, read, version):
    name = lake.create(COLUMNS, **{"format-version": version})
    lake.session.sql(f"INSERT INTO {name} VALUES {VALUES}")
    assert len(read(name)) == 5
    assert len(read(name, "tn, s, m")) == 5


def test_columns_are_found_by_their_ids(lake, read):
    """Renamed, swapped, dropped and added again under an old name, added."""
    name = lake.create("a int, b int, c int")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 2, 3)")
    for change in ("RENAME COLUMN a TO x", "RENAME COLUMN b TO a", "RENAME COLUMN x TO b", "DROP COLUMN c"):
        lake.session.sql(f"ALTER TABLE {name} {change}")
    lake.session.sql(f"ALTER TABLE {name} ADD COLUMN c int")
    lake.session.sql(f"INSERT INTO {name} (a, b, c) VALUES (20, 10, 30)")
    assert read(name, "a, b, c") == [(2, 1, None), (20, 10, 30)]


def test_values_of_identity_partitions(lake, read):
    """They come from the manifests; NULL, text that is escaped in paths, days and numbers among them."""
    columns = "id bigint, s string, d date, l bigint, b boolean, ts timestamp, i int"
    name = lake.create(columns, "PARTITIONED BY (s, d, l, b, ts, bucket(2, id), i)")
    lake.session.sql(
        f"INSERT INTO {name} VALUES (2, NULL, NULL, NULL, NULL, NULL, NULL),"
        " (1, 'a/b c%ä#?', DATE'1969-12-31', -5000000000, true, TIMESTAMP'2020-01-01 01:02:03', -1),"
        " (3, '', DATE'2024-02-29', 0, false, TIMESTAMP'1960-01-01 00:00:00', 1)"
    )
    assert [row[0] for row in read(name)] == [1, 2, 3]
    assert len(read(name, "i, id, s")) == 3
    assert len(read(name, "s, l", spark_reads=False)) == 3  # nothing is left to read from the files


def test_values_of_partitions_after_the_spec_changed(lake, read):
    """Where only some files have a column's value in their partition, our reader knows where it is."""
    name = lake.create("id bigint, k int", "PARTITIONED BY (k)")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 1), (2, NULL)")
    lake.session.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)")
    lake.session.sql(f"INSERT INTO {name} VALUES (3, 3)")
    assert len(read(name)) == 3
    lake.session.sql(f"ALTER TABLE {name} DROP PARTITION FIELD k")
    lake.session.sql(f"INSERT INTO {name} VALUES (4, 4)")
    assert read(name, spark_reads=False) == [(1, 1), (2, None), (3, 3), (4, 4)]
    assert len(read(name, "id")) == 4


def test_what_only_our_reader_can(lake, read):
    """Deletes, nested values, defaults, promoted types, other formats, filters."""
    deleted = lake.create("id bigint", **{"write.delete.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {deleted} SELECT id FROM range(9)")
    assert len(read(deleted)) == 9
    lake.session.sql(f"DELETE FROM {deleted} WHERE id = 3")
    assert len(read(deleted, spark_reads=False)) == 8
    nested = lake.create("id bigint, st struct<a: int>")
    lake.session.sql(f"INSERT INTO {nested} VALUES (1, named_struct('a', 1))")
    assert len(read(nested, spark_reads=False)) == 1
    assert read(nested, "id") == [(1,)]
    defaults = lake.create("id bigint", **{"format-version": "3"})
    lake.session.sql(f"INSERT INTO {defaults} VALUES (1)")
    lake.session.sql(f"ALTER TABLE {defaults} ADD COLUMN v int DEFAULT 7")
    assert read(defaults, spark_reads=False) == [(1, 7)]
    assert read(defaults, "id") == [(1,)]
    promoted = lake.create("id bigint, v int")
    lake.session.sql(f"INSERT INTO {promoted} VALUES (1, 1)")
    lake.session.sql(f"ALTER TABLE {promoted} ALTER COLUMN v TYPE bigint")
    assert read(promoted, spark_reads=False) == [(1, 1)]
    assert read(promoted, "id") == [(1,)]


def test_rows_of_a_condition(lake, spark):
    """Few of the rows are filtered by our reader; where all are wanted, or most, Spark's reads every row."""
    name = lake.create("id bigint, k int", "PARTITIONED BY (k)")
    lake.session.sql(f"INSERT INTO {name} SELECT id, id % 3 FROM range(30)")
    whole, part = spark.table(f"lake.{name}").where("k = 1"), spark.table(f"lake.{name}").where("id < 4")
    most = spark.table(f"lake.{name}").where("id > 4 AND id <> 7")
    missing = spark.table(f"lake.{name}").where("id > 5")
    assert is_vectorized(whole)
    assert not is_vectorized(part)
    assert whole.count() == 10
    assert sorted(row.id for row in whole.collect()) == list(range(1, 30, 3))
    assert sorted(row.id for row in part.collect()) == [0, 1, 2, 3]
    assert is_vectorized(most)
    assert sorted(row.id for row in most.collect()) == [5, 6, *range(8, 30)]
    for file in lake.data_files(name):
        Path(file.path.removeprefix("file://")).unlink()
    assert not is_vectorized(missing)
    with pytest.raises(CorruptFileError, match="parquet"):
        lake.session.sql(f"INSERT INTO {lake.create('id bigint')} SELECT id FROM {name} WHERE id > 5")


def test_settings(lake, spark):
    """Iceberg's switches; Spark's settings that would change what is read turn it off, or do nothing."""
    name = lake.create("id bigint, s string, x binary")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a', X'61')")
    for key, value in (
        ("spark.sql.iceberg.vectorization.enabled", "false"),
        ("spark.sql.parquet.enableVectorizedReader", "false"),
        ("spark.sql.parquet.binaryAsString", "true"),
    ):
        spark.conf.set(key, value)
        try:
            table = spark.table(f"lake.{name}")
            assert not is_vectorized(table)
            assert table.collect() == [(1, "a", bytearray(b"a"))]
        finally:
            spark.conf.unset(key)
    for key, value in (("spark.sql.files.ignoreMissingFiles", "true"), ("spark.sql.caseSensitive", "true")):
        spark.conf.set(key, value)
        try:
            assert is_vectorized(spark.table(f"lake.{name}"))
        finally:
            spark.conf.unset(key)
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('read.parquet.vectorization.enabled' = 'false')")
    assert not is_vectorized(spark.table(f"lake.{name}"))


def test_a_file_that_is_gone_or_damaged_is_never_no_rows(lake, spark):
    """Whatever the session says of missing files."""
    name = lake.create("id bigint")
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id FROM range(1000)")
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id FROM range(1000, 3000)")
    first, second = (
        Path(file.path.removeprefix("file://"))
        for file in sorted(lake.data_files(name), key=lambda file: file.record_count)
    )
    content = second.read_bytes()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        table = spark.table(f"lake.{name}")
        assert is_vectorized(table)
        start = pq.ParquetFile(second).metadata.row_group(0).column(0).data_page_offset
        second.write_bytes(
            content[: start + 60]
            + bytes(byte ^ 0xFF for byte in content[start + 60 : start + 64])
            + content[start + 64 :]
        )
        with pytest.raises(Exception, match=r"(?i)checksum|CRC"):
            table.selectExpr("sum(id)").collect()
        second.unlink()
        with pytest.raises(Exception, match=second.name):
            table.selectExpr("sum(id)").collect()
        with pytest.raises(CorruptFileError, match=second.name):
            lake.session.sql(f"INSERT INTO {lake.create('id bigint')} SELECT id FROM {name}")
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    second.write_bytes(content)
    assert table.selectExpr("sum(id)").collect() == [(sum(range(3000)),)]
    assert first.exists()


def test_large_files_are_read_by_several_tasks(lake, spark, read):
    """Each row group by one of them, where they are cut where row groups start."""
    name = lake.create(
        "id bigint, s string", **{"write.parquet.row-group-size-bytes": "20000", "read.split.open-file-cost": "1"}
    )
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, uuid() FROM range(60000)")
    (file,) = lake.data_files(name)
    assert len(file.split_offsets) > 3
    lake.session.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('read.split.target-size' = '{file.file_size_in_bytes // 4}')"
    )
    assert spark.table(f"lake.{name}").rdd.getNumPartitions() > 2
    assert [row[0] for row in sorted(read(name))] == list(range(60000))


def test_files_that_another_table_imported_have_no_ids(lake, spark, read, tmp_path):
    """Their columns are found by a name mapping or by their places: our reader does."""
    name = lake.create("id bigint, v string")
    spark.range(5).selectExpr("id", "concat('v', id) AS v").coalesce(1).write.parquet(str(tmp_path / "in"))
    (path,) = (tmp_path / "in").glob("*.parquet")
    lake.table(name).add_files([path.as_uri()])
    assert len(read(name, spark_reads=False)) == 5
    lake.session.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('schema.name-mapping.default')")
    assert len(read(name, spark_reads=False)) == 5


def test_names_of_folders(lake, spark, tmp_path, read):
    """Spaces, percent signs and letters of other alphabets in a table's location mean themselves."""
    name = lake.new_name()
    place = (tmp_path / "a b%20ä").as_posix()
    lake.session.sql(f"CREATE TABLE {name} (id bigint, k string) PARTITIONED BY (k) LOCATION 'file://{place}'")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'x y'), (2, 'ß+%')")
    assert read(name) == [(1, "x y"), (2, "ß+%")]


def test_joins_and_partitions_that_are_left_out_by_them(lake, spark):
    name = lake.create("id bigint, k int", "PARTITIONED BY (k)")
    lake.session.sql(f"INSERT INTO {name} SELECT id, id % 5 FROM range(100)")
    spark.range(3, 4).selectExpr("CAST(id AS INT) AS k", "id AS other").createOrReplaceTempView("vectorized_side")
    joined = spark.sql(f"SELECT t.* FROM lake.{name} t JOIN vectorized_side v ON t.k = v.k WHERE v.other > 0")
    assert len(joined.collect()) == 20
    assert {row.k for row in joined.collect()} == {3}


def test_streams_are_read_by_our_reader(lake, spark, tmp_path):
    """Their columns stay in their order, also where a batch of the table has those of its partitions last."""
    name = lake.create("k string, id bigint, v string", "PARTITIONED BY (k)")
    lake.session.sql(f"INSERT INTO {name} SELECT concat('k', id % 2), id, concat('v', id) FROM range(6)")
    assert is_vectorized(spark.table(f"lake.{name}"))
    stream = spark.readStream.table(f"lake.{name}")
    for number, (chosen, columns) in enumerate(
        [
            (stream, ("k", "id", "v")),
            (stream.where("id < 9"), ("k", "id", "v")),
            (stream.select("id", "k"), ("id", "k")),
        ]
    ):
        seen: list[dict] = []
        query = chosen.writeStream.foreachBatch(
            lambda batch, _, to=seen: to.extend(row.asDict() for row in batch.collect())
        )
        query = query.option("checkpointLocation", str(tmp_path / str(number))).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        whole = [{"k": f"k{at % 2}", "id": at, "v": f"v{at}"} for at in range(6)]
        assert sorted(seen, key=lambda row: row["id"]) == [{key: row[key] for key in columns} for row in whole]
