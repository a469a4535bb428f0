"""Extreme values in partitioned tables: sentinels, dates outside of Python's range, minimum numbers."""

from collections.abc import Iterator
from itertools import product

import pytest

from dml.errors import DataError
from tests.dml.engine.conftest import Kind, in_turn
from tests.lake import Lake
from tests.marks import by_night

ZONES = (("America/Los_Angeles", "9999-12-31 23:59:59"), ("Asia/Shanghai", "0001-01-01 00:00:00"))


@pytest.fixture
def sentinel(request: pytest.FixtureRequest, lake: Lake) -> Iterator[str]:
    """A timestamp in Python's range of years that is outside of it in UTC, of the zone that the test names."""
    zone, text = request.param
    spark = lake.session.spark
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    yield text
    spark.conf.set("spark.sql.session.timeZone", before)


PARTITIONINGS = ("", "days(valid_to)", "hours(valid_to)", "years(valid_to), valid_to")
IN_TURN = {(ZONES[place % 2], partitioning) for place, partitioning in enumerate(PARTITIONINGS)}


@pytest.mark.parametrize(
    ("sentinel", "partitioning"),
    by_night(list(product(ZONES, PARTITIONINGS)), IN_TURN.__contains__),
    indirect=["sentinel"],
)
def test_histories_mark_the_current_row_with_the_last_timestamp(lake: Lake, sentinel: str, partitioning: str) -> None:
    clause = f"PARTITIONED BY ({partitioning})" if partitioning else ""
    name = lake.create("id INT, v STRING, valid_to TIMESTAMP", clause)
    sql, end = lake.session.sql, f"TIMESTAMP '{sentinel}'"
    sql(f"INSERT INTO {name} VALUES (1, 'a', {end}), (2, 'b', {end})")
    sql(f"""MERGE INTO {name} t USING (SELECT * FROM VALUES (1, 'A'), (3, 'C') AS w (id, v)) s
        ON t.id = s.id AND t.valid_to = {end}
        WHEN MATCHED THEN UPDATE SET valid_to = TIMESTAMP '2024-05-01 00:00:00'
        WHEN NOT MATCHED THEN INSERT (id, v, valid_to) VALUES (s.id, s.v, {end})""")
    shown = f"SELECT id, v, CAST(valid_to AS STRING) FROM {name}"
    assert lake.rows(shown) == [(1, "a", "2024-05-01 00:00:00"), (2, "b", sentinel), (3, "C", sentinel)]
    assert lake.session.sql(f"EXPLAIN DELETE FROM {name} WHERE valid_to = {end}").collect()
    sql(f"UPDATE {name} SET v = 'now' WHERE valid_to = {end} AND id = 2")
    sql(f"DELETE FROM {name} WHERE valid_to = {end} AND v <> 'now'")
    assert lake.rows(shown) == [(1, "a", "2024-05-01 00:00:00"), (2, "now", sentinel)]
    for table in ("partitions", "files", "manifests", "entries"):
        assert lake.session.sql(f"SELECT * FROM {name}.{table}").count() > 0, table
    metric = "CAST(readable_metrics.valid_to.{} AS STRING)"
    bounds = lake.rows(f"SELECT {metric.format('lower_bound')}, {metric.format('upper_bound')} FROM {name}.files")
    assert sentinel in {bound for row in bounds for bound in row}
    assert lake.session.verify(name, every_file=True).ok


TERMS = ["d", "days(d)", "months(d)", "years(d)", "bucket(4, d)"]


@pytest.mark.parametrize(("kind", "term"), in_turn(TERMS), indirect=["kind"])
def test_dates_before_and_after_pythons(kind: Kind, term: str) -> None:
    lake = kind.lake
    name, sql = lake.create("id INT, d DATE", f"PARTITIONED BY ({term})", **kind.properties), lake.session.sql
    sql(f"""INSERT INTO {name} VALUES (1, DATE '+10000-06-01'), (2, DATE '-0044-03-15'), (3, DATE '2024-01-01'),
        (4, DATE '0000-12-31'), (5, DATE '9999-12-31'), (6, DATE '+300000-01-01')""")
    sql(f"DELETE FROM {name} WHERE d > DATE '9999-12-31'")
    assert lake.rows(f"SELECT id FROM {name}") == [(2,), (3,), (4,), (5,)]
    sql(f"UPDATE {name} SET d = DATE '+20000-01-01' WHERE d < DATE '0000-01-01'")
    sql(f"DELETE FROM {name} WHERE d = DATE '0000-12-31'")
    assert lake.rows(f"SELECT id, CAST(d AS STRING) FROM {name}") == [
        (2, "+20000-01-01"),
        (3, "2024-01-01"),
        (5, "9999-12-31"),
    ]
    sql(f"MERGE INTO {name} t USING (SELECT DATE '+20000-01-01' AS d) s ON t.d = s.d WHEN MATCHED THEN DELETE")
    assert lake.rows(f"SELECT id FROM {name}") == [(3,), (5,)]


LEAST = [
    ("INT", "truncate(10000, x)", "CAST(-2147483648 AS INT)"),
    ("BIGINT", "truncate(10, x)", "-9223372036854775808"),
    ("DECIMAL(4, 2)", "truncate(70, x)", "CAST(-99.99 AS DECIMAL(4, 2))"),
    ("TIMESTAMP", "hours(x)", "TIMESTAMP '+294247-01-10 04:00:54Z'"),
    ("TIMESTAMP_NTZ", "hours(x)", "TIMESTAMP_NTZ '-290308-12-22 00:00:00'"),
]


@pytest.mark.parametrize(("kind", "term", "value"), LEAST, ids=[kind for kind, _, _ in LEAST])
def test_a_row_whose_partition_value_overflows_is_refused(lake: Lake, kind: str, term: str, value: str) -> None:
    name = lake.create(f"id INT, x {kind}", f"PARTITIONED BY ({term})")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, NULL)")
    before = lake.state(name)
    with pytest.raises(DataError, match="out of range for the partition field") as caught:
        lake.session.sql(f"INSERT INTO {name} SELECT 3, {value}")
    assert "replace the partition field" in (caught.value.hint or "")
    assert lake.state(name) == before
    assert lake.rows(f"SELECT id FROM {name}") == [(1,)]


@pytest.mark.parametrize("partitioned", ["", "PARTITIONED BY (d)"], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_doubles_in_avro_files_keep_their_precision(lake: Lake, mode: str, partitioned: str) -> None:
    """PyIceberg's compiled decoder rounds them, and copy-on-write would write the rounded values back."""
    name = lake.create("id INT, d DOUBLE", partitioned, **{"write.format.default": "avro", "write.update.mode": mode})
    values = [0.1, 1e300, 123456789.123]
    lake.session.sql(f"INSERT INTO {name} VALUES (0, 0.1D), (1, 1e300D), (2, 123456789.123D)")
    lake.session.sql(f"UPDATE {name} SET id = id + 10 WHERE id = 1")
    assert lake.rows(name) == [(0, values[0]), (11, values[1]), (2, values[2])]
    assert lake.rows(f"SELECT id FROM {name} WHERE d = 0.1D") == [(0,)]
    assert lake.rows(f"SELECT d FROM {name} WHERE id = 2") == [(values[2],)]
