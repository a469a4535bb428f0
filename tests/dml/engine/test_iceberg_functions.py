"""Iceberg's functions in SQL: as its transforms compute, wherever an expression may stand."""

import datetime as dt
import logging
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dml.errors import AnalysisError

pytestmark = pytest.mark.spark

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COLUMNS = (
    "i INT, l BIGINT, n DECIMAL(9, 2), w DECIMAL(18, 0), s STRING, b BINARY, d DATE, ts TIMESTAMP, ntz TIMESTAMP_NTZ"
)
TYPES = {
    "i": (IntegerType(), pa.int32()),
    "l": (LongType(), pa.int64()),
    "n": (DecimalType(9, 2), pa.decimal128(9, 2)),
    "w": (DecimalType(18, 0), pa.decimal128(18, 0)),
    "s": (StringType(), pa.string()),
    "b": (BinaryType(), pa.binary()),
    "d": (DateType(), pa.date32()),
    "ts": (TimestamptzType(), pa.timestamp("us", tz="UTC")),
    "ntz": (TimestampType(), pa.timestamp("us")),
}
TRANSFORMS = [
    *((f"bucket[{n}]", f"system.bucket({n}, {{}})", list(TYPES)) for n in (1, 16, 1000003)),
    *((f"truncate[{n}]", f"lake.system.truncate({n}, {{}})", ["i", "l", "n", "w", "s", "b"]) for n in (1, 3, 10)),
    ("year", "system.years({})", ["d", "ts", "ntz"]),
    ("month", "system.months({})", ["d", "ts", "ntz"]),
    ("day", "`System`.Days({})", ["d", "ts", "ntz"]),
    ("hour", "system.hours({})", ["ts", "ntz"]),
]


def some_rows():
    """Values of every length and sign, and NULLs."""
    chosen = random.Random(7)
    rows = [dict.fromkeys(TYPES)]
    texts = ["", "a", "ab", "abc", "abcd", "äöü€😀x", "\0\0", "ÿ" * 5, "x" * 37]
    for index in range(60):
        micros = chosen.choice([-1, 0, 1, chosen.randrange(-(10**16), 10**17)])
        stamp = EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=micros)
        text = texts[index % len(texts)] + "z" * (index // 9)
        rows.append(
            {
                "i": chosen.choice([0, -1, 1, 2**31 - 1, -(2**31) + 20, chosen.randrange(-(2**31) + 20, 2**31)]),
                "l": chosen.choice([0, -1, 2**63 - 1, -(2**63) + 20, chosen.randrange(-(2**63) + 20, 2**63)]),
                "n": Decimal(chosen.choice([0, -1, 127, 128, -128, -129, chosen.randrange(-(10**8), 10**8)])).scaleb(
                    -2
                ),
                "w": Decimal(chosen.choice([0, -1, 2**55, -(2**55), chosen.randrange(-(10**17), 10**17)])),
                "s": text,
                "b": chosen.randbytes(index % 11),
                "d": stamp.date(),
                "ts": stamp.replace(tzinfo=dt.UTC),
                "ntz": stamp,
            }
        )
    return [{"id": index, **row} for index, row in enumerate(rows)]


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(request, lake):
    conf = lake.session.spark.conf
    before = conf.get("spark.sql.session.timeZone")
    conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    conf.set("spark.sql.session.timeZone", before)


def test_each_function_computes_what_the_transform_of_its_name_does(lake, zone):
    """Every value, against PyIceberg's transforms: those by which the writers partition."""
    name = lake.create(f"id INT, {COLUMNS}")
    rows = some_rows()
    table = lake.table(name)
    table.append(
        pa.table(
            {"id": pa.array([row["id"] for row in rows], pa.int32())}
            | {column: pa.array([row[column] for row in rows], kind) for column, (_, kind) in TYPES.items()}
        )
    )
    for transform, call, columns in TRANSFORMS:
        selected = ", ".join(f"{call.format(column)} AS c_{column}" for column in columns)
        found = lake.session.query(f"SELECT id, {selected} FROM {name} ORDER BY id").collect()
        assert len(found) == len(rows)
        for column in columns:
            kind, arrow = TYPES[column]
            apply = parse_transform(transform).pyarrow_transform(kind)
            expected = apply(pa.array([row[column] for row in rows], arrow))
            if transform == "day":
                expected = expected.cast(pa.int32()).cast(pa.date32())
            got = [row[f"c_{column}"] for row in found]
            got = [bytes(value) if isinstance(value, bytearray) else value for value in got]
            assert got == expected.to_pylist(), f"{transform} of {column}"


def test_they_stand_in_every_statement(lake):
    name = lake.create("id BIGINT, s STRING, d DATE, n INT")
    session = lake.session
    session.sql(f"INSERT INTO {name} SELECT id, concat('text', id), DATE '2020-01-31', 0 FROM range(40)")
    buckets = dict(lake.rows(f"SELECT id, system.bucket(8, id) FROM {name}"))
    third = {key for key, bucket in buckets.items() if bucket == 3}
    assert third

    assert session.sql(f"UPDATE {name} SET n = system.bucket(8, id) WHERE system.truncate(5, s) = 'text1'").rows_updated
    assert dict(lake.rows(f"SELECT id, n FROM {name} WHERE s LIKE 'text1%'")) == {
        key: bucket for key, bucket in buckets.items() if str(key).startswith("1")
    }
    assert session.sql(f"DELETE FROM {name} WHERE lake.system.bucket(8, id) = 3").rows_deleted == len(third)
    assert not third & {key for (key,) in lake.rows(f"SELECT id FROM {name}")}
    merged = session.sql(
        f"MERGE INTO {name} AS t USING (SELECT id FROM range(40)) AS s "
        "ON t.id = s.id AND system.bucket(8, t.id) = system.bucket(8, s.id) "
        "WHEN MATCHED AND system.years(t.d) = 50 THEN UPDATE SET n = system.months(t.d) "
        "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, system.truncate(10, CAST(s.id AS INT)))"
    )
    assert (merged.rows_updated, merged.rows_inserted) == (40 - len(third), len(third))
    assert set(lake.rows(f"SELECT n FROM {name} WHERE d IS NOT NULL")) == {(600,)}
    assert set(lake.rows(f"SELECT id, n FROM {name} WHERE d IS NULL")) == {(key, key // 10 * 10) for key in third}

    # Nested, in a subquery, in GROUP BY, and where a text only looks like a call.
    query = (
        f"SELECT system.bucket(4, system.truncate(5, s)) AS b, count(*) AS c, 'system.bucket(4, x)' AS t FROM {name} "
        f"WHERE id IN (SELECT id FROM {name} WHERE system.days(d) = DATE '2020-01-31') "
        "GROUP BY system.bucket(4, system.truncate(5, s))"
    )
    assert sum(row[1] for row in lake.rows(query)) == 40 - len(third)
    assert {row[2] for row in lake.rows(query)} == {"system.bucket(4, x)"}


def test_asking_for_types_logs_no_error(lake, monkeypatch):
    """PySpark logs every error of an analysis, and the question for types is one."""
    logger = logging.getLogger("SQLQueryContextLogger")
    seen = []
    handler = logging.Handler()
    handler.emit = seen.append
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.ERROR)
    logger.manager._clear_cache()
    assert lake.rows("SELECT lake.system.bucket(16, 34), system.truncate(2, 'abc')") == [(3, "ab")]
    assert seen == []
    with pytest.raises(AnalysisError):
        lake.session.query("SELECT nope FROM range(1)")
    assert len(seen) == 1  # the logger works


def test_without_a_table_they_are_known_too(lake):
    spark = lake.session.spark
    ((version, bucket),) = spark.sql("SELECT system.iceberg_version(), lake.system.bucket(16, 34)").collect()
    assert bucket == 3  # the specification's example: 2017239379
    assert version[0].isdigit()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("system.bucket(16, f)", "takes a value of type"),
        ("system.bucket(16, f)", "this is of type DOUBLE"),
        ("system.bucket(16L, i)", "number of buckets of system.bucket is an INT, and this is of type BIGINT"),
        ("system.bucket(0, i)", "is 1 at least, and this is 0"),
        ("system.bucket(16)", "takes two arguments, a number and a value, and 1 are given"),
        ("system.truncate(4, ts)", "this is of type TIMESTAMP"),
        ("system.hours(d)", "takes a value of type TIMESTAMP or TIMESTAMP_NTZ, and this is of type DATE"),
        ("system.years('2020-01-01')", "this is of type STRING"),
        ("system.days(NULL)", "this is of type VOID"),
        ("system.months(array(i))", "this is of type ARRAY"),
        ("system.iceberg_version(1)", "takes no argument, and 1 are given"),
    ],
)
def test_what_a_function_does_not_take_is_refused_at_its_place(lake, call, message):
    name = lake.create("i INT, f DOUBLE, ts TIMESTAMP, d DATE")
    with pytest.raises(AnalysisError, match=message) as caught:
        lake.session.query(f"SELECT i,\n {call} FROM {name}").collect()
    assert (caught.value.line, caught.value.column) == (2, 2)
    with pytest.raises(AnalysisError, match=message):
        lake.session.sql(f"DELETE FROM {name} WHERE {call} IS NULL")


def test_files_are_pruned_by_transforms_that_keep_the_order(lake):
    name = lake.create("id INT, ts TIMESTAMP, s STRING", "PARTITIONED BY (days(ts), truncate(2, s))")
    lake.session.sql(
        f"INSERT INTO {name} VALUES (1, TIMESTAMP '2026-01-01 10:00:00', 'abc'), "
        "(2, TIMESTAMP '2026-01-02 10:00:00', 'abd'), (3, TIMESTAMP '2026-01-02 10:00:00', 'xyz'), (4, NULL, NULL)"
    )
    conditions = {
        "system.days(ts) = DATE '2026-01-01'": ({(1,)}, 1),
        "system.hours(ts) > 490920": ({(2,), (3,)}, 2),
        "system.truncate(2, s) = 'ab'": ({(1,), (2,)}, 2),
        "system.truncate(2, s) <> 'ab'": ({(3,)}, 1),
    }
    for condition, (ids, files) in conditions.items():
        assert set(lake.rows(f"SELECT id FROM {name} WHERE {condition}")) == ids, condition
        ((plan,),) = lake.session.query(f"EXPLAIN UPDATE {name} SET id = 0 WHERE {condition}").collect()
        assert f"scan: {files} of 4 data files" in plan, condition
    # A condition on whole partitions needs no look at their rows.
    deleted = lake.session.sql(f"DELETE FROM {name} WHERE system.days(ts) = DATE '2026-01-02'")
    assert (deleted.mode, deleted.rows_deleted) == ("metadata", 2)
