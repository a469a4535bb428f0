"""Iceberg's functions in SQL: as its transforms compute, wherever an expression may stand."""

import datetime as dt
import logging
import random
import re
from decimal import Decimal
from typing import Any

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

import dml.scan.table_scan
from dml.errors import AnalysisError
from dml.scan.planner import plan_scan

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


@pytest.fixture(params=[pytest.param("UTC", marks=pytest.mark.nightly), "America/New_York"])
def zone(request, lake):
    conf = lake.session.spark.conf
    before = conf.get("spark.sql.session.timeZone")
    conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    conf.set("spark.sql.session.timeZone", before)


def with_one_width(transforms):
    """Of the buckets and of the widths one; the others tell nothing new about a type."""
    return [one for one in transforms if one[0] not in {"bucket[1]", "bucket[1000003]", "truncate[1]", "truncate[10]"}]


@pytest.mark.parametrize(
    "transforms",
    [
        pytest.param(with_one_width(TRANSFORMS), id="some"),
        pytest.param(TRANSFORMS, id="all", marks=pytest.mark.nightly),
    ],
)
def test_each_function_computes_what_the_transform_of_its_name_does(lake, zone, transforms):
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
    for transform, call, columns in transforms:
        selected = ", ".join(f"{call.format(column)} AS c_{column}" for column in columns)
        found = lake.session.sql(f"SELECT id, {selected} FROM {name} ORDER BY id").collect()
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
    seen: list[Any] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", seen.append)
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.ERROR)
    logger.manager._clear_cache()
    assert lake.rows("SELECT lake.system.bucket(16, 34), system.truncate(2, 'abc')") == [(3, "ab")]
    assert seen == []
    with pytest.raises(AnalysisError):
        lake.session.sql("SELECT nope FROM range(1)")
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
        ("system.bucket(16, f)", "not DOUBLE"),
        ("system.bucket(16L, i)", "number of buckets of system.bucket must be an INT, not BIGINT"),
        ("system.bucket(0, i)", "must be at least 1, not 0"),
        ("system.days(16, ts)", "takes one argument"),
        ("system.bucket(16)", "takes two arguments, a number and a value, not 1"),
        ("system.truncate(4, ts)", "not TIMESTAMP"),
        ("system.hours(d)", "takes a value of type TIMESTAMP or TIMESTAMP_NTZ, not DATE"),
        ("system.years('2020-01-01')", "not STRING"),
        ("system.days(NULL)", "not VOID"),
        ("system.months(array(i))", "not ARRAY"),
        ("system.iceberg_version(1)", "takes no arguments, not 1"),
    ],
)
def test_what_a_function_does_not_take_is_refused_at_its_place(lake, call, message):
    name = lake.create("i INT, f DOUBLE, ts TIMESTAMP, d DATE")
    with pytest.raises(AnalysisError, match=message) as caught:
        lake.session.sql(f"SELECT i,\n {call} FROM {name}").collect()
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
        ((plan,),) = lake.session.sql(f"EXPLAIN UPDATE {name} SET id = 0 WHERE {condition}").collect()
        assert f"scan: {files} of 4 data files" in plan, condition
    # A condition on whole partitions needs no look at their rows.
    deleted = lake.session.sql(f"DELETE FROM {name} WHERE system.days(ts) = DATE '2026-01-02'")
    assert (deleted.mode, deleted.rows_deleted) == ("metadata", 2)


@pytest.mark.parametrize("function", ["system.bucket", "lake.system.bucket"])
def test_rows_of_a_bucket_are_replaced_and_deleted(lake, function):
    name = lake.create("id BIGINT, s STRING", "PARTITIONED BY (bucket(4, id))")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 'old' FROM range(60)")
    members = lake.rows(f"SELECT id FROM {name} WHERE {function}(4, id) = 3")
    assert 0 < len(members) < 60
    lake.session.sql(f"INSERT INTO {name} REPLACE WHERE {function}(4, id) = 3 VALUES (0, 'new')")
    assert lake.rows(f"SELECT id FROM {name} WHERE s = 'new'") == [(0,)]
    assert len(lake.rows(f"SELECT id FROM {name} WHERE s = 'old'")) == 60 - len(members)
    assert lake.session.sql(f"DELETE FROM {name} WHERE {function}(4, id) = 2").mode == "metadata"
    assert lake.rows(f"SELECT id FROM {name} WHERE {function}(4, id) = 2") == []


def planned(lake, statement):
    """What EXPLAIN says of a statement: data files of the scan, and its filter."""
    ((plan,),) = lake.session.sql(f"EXPLAIN {statement}").collect()
    found = re.search(r"scan: (\d+) of (\d+) data files.*filter: (.*)", plan)
    assert found is not None, plan
    return int(found[1]), int(found[2]), found[3]


def test_files_are_pruned_by_buckets(lake, monkeypatch):
    """Each answer is also that of Spark without pruning: the same condition, as a column of all rows."""
    name = lake.create("id BIGINT, s STRING", "PARTITIONED BY (bucket(4, id))")
    session = lake.session
    session.sql(f"INSERT INTO {name} SELECT id, concat('t', id) FROM range(60) UNION ALL SELECT NULL, NULL")
    scans = []

    def counted(*arguments, **options):
        plan = plan_scan(*arguments, **options)
        scans.append(len(plan.tasks))
        return plan

    monkeypatch.setattr(dml.scan.table_scan, "plan_scan", counted)
    call = "system.bucket(4, id)"
    conditions = {
        f"{call} = 3": 1,
        "3 = lake.system.bucket(4, id)": 1,
        f"{call} <=> 3": 1,
        f"NOT ({call} <=> 3)": 4,
        f"{call} IN (1, 3)": 2,
        f"{call} NOT IN (1, 3)": 2,
        f"NOT ({call} = 3)": 3,
        f"{call} < 2": 2,
        f"{call} = 3 AND {call} = 1": 0,
        f"{call} = 3 AND s LIKE 't1%'": 1,
        f"{call} = 3 OR {call} = 1": 2,
        f"{call} = 3 OR length(s) = 2": 5,
        f"{call} = 3 AND length(s) = 2": 1,
        "system.bucket(8, id) = 3": 5,
        "system.bucket(4, s) = 3": 5,
    }
    columns = ", ".join(f"({condition}) AS c{number}" for number, condition in enumerate(conditions))
    everything = lake.rows(f"SELECT id, {columns} FROM {name}")
    assert scans == [5]
    scans.clear()
    for number, (condition, files) in enumerate(conditions.items()):
        expected = sorted(((row[0],) for row in everything if row[1 + number]), key=str)
        assert sorted(lake.rows(f"SELECT id FROM {name} WHERE {condition}"), key=str) == expected, condition
        assert scans == [files], condition
        scans.clear()
        assert planned(lake, f"UPDATE {name} SET s = 'x' WHERE {condition}")[:2] == (files, 5), condition
        scans.clear()
    assert planned(lake, f"UPDATE {name} SET s = 'x' WHERE {call} = 3")[2] == f"{call} = 3"


def test_statements_prune_by_buckets_and_change_the_right_rows(lake):
    name = lake.create("id BIGINT, s STRING", "PARTITIONED BY (bucket(4, id))")
    session = lake.session
    session.sql(f"INSERT INTO {name} SELECT id, 'old' FROM range(60) UNION ALL SELECT NULL, 'old'")
    buckets = dict(lake.rows(f"SELECT id, system.bucket(4, id) FROM {name}"))

    def of(*numbers):
        return {key for key, bucket in buckets.items() if bucket in numbers}

    merge = (
        f"MERGE INTO {name} AS t USING (SELECT id FROM range(60)) AS s "
        "ON t.id = s.id AND system.bucket(4, t.id) = 2 WHEN MATCHED THEN UPDATE SET s = 'merged'"
    )
    assert planned(lake, merge)[:2] == (1, 5)
    assert session.sql(merge).rows_updated == len(of(2))
    update = f"UPDATE {name} SET s = 'new' WHERE system.bucket(4, id) = 1 AND id < 30"
    assert planned(lake, update)[:2] == (1, 5)
    assert session.sql(update).rows_updated == len({key for key in of(1) if key < 30})
    delete = f"DELETE FROM {name} WHERE system.bucket(4, id) = 0 AND length(s) = 3 AND id < 30"
    assert planned(lake, delete)[0] == 1
    assert session.sql(delete).rows_deleted == len({key for key in of(0) if key < 30})
    expected = {(key, "merged" if bucket == 2 else "old") for key, bucket in buckets.items()}
    expected -= {(key, "old") for key in of(0, 1) if key < 30}
    expected |= {(key, "new") for key in of(1) if key < 30}
    assert set(lake.rows(f"SELECT id, s FROM {name}")) == expected
    # Whole partitions leave without a look at their rows; the row whose bucket is NULL stays.
    deleted = session.sql(f"DELETE FROM {name} WHERE NOT (system.bucket(4, id) = 3)")
    assert deleted.mode == "metadata"
    assert {key for (key,) in lake.rows(f"SELECT id FROM {name}")} == of(3) | {None}


def test_buckets_of_other_specs_decide_nothing(lake):
    name = lake.create("id BIGINT")
    session = lake.session
    session.sql(f"INSERT INTO {name} SELECT id FROM range(0, 40)")
    session.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(8, id)")
    session.sql(f"INSERT INTO {name} SELECT id FROM range(40, 80)")
    session.sql(f"ALTER TABLE {name} REPLACE PARTITION FIELD bucket(8, id) WITH bucket(16, id)")
    session.sql(f"INSERT INTO {name} SELECT id FROM range(80, 200)")
    buckets = dict(lake.rows(f"SELECT id, system.bucket(16, id) FROM {name}"))
    third = {key for key, bucket in buckets.items() if bucket == 3}
    assert all(any(low <= key < high for key in third) for low, high in ((0, 40), (40, 80), (80, 200)))
    files = dict(lake.rows(f"SELECT spec_id, count(*) FROM {name}.files GROUP BY spec_id"))
    assert (files[1], files[2]) == (8, 16)
    condition = "system.bucket(16, id) = 3"
    assert {key for (key,) in lake.rows(f"SELECT id FROM {name} WHERE {condition}")} == third
    assert planned(lake, f"UPDATE {name} SET id = 0 WHERE {condition}")[:2] == (files[0] + 8 + 1, sum(files.values()))
    deleted = session.sql(f"DELETE FROM {name} WHERE {condition}")
    assert deleted.rows_deleted == len(third)
    assert {key for (key,) in lake.rows(f"SELECT id FROM {name}")} == set(range(200)) - third
