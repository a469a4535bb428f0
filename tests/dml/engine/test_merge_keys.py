"""MERGE keys of all types that tasks look up: the result is that of Spark's join, which gets no keys here."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from unittest import mock

import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dml.engine import merge_source
from dml.engine.join_keys import pruning_key
from dml.errors import DataError, ErrorKind
from dml.plan.comparisons import TableColumn
from tests.dml.engine.conftest import Kind
from tests.dml.engine.test_merge_in_tasks import broadcasts, counts
from tests.lake import Lake
from tests.marks import by_night

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Pair:
    """The type of a key in the table and in the source.

    Attributes:
        target: The type in the table.
        source: The type in the source.
        values: Values of both, as far as they can be cast.
        equal: Whether tasks decide `=`.
        null_safe: Whether tasks decide `<=>`.
    """

    target: str
    source: str
    values: tuple[str, ...]
    equal: bool = True
    null_safe: bool = True

    def __str__(self) -> str:
        return f"{self.target} {self.source}"


FLOATS = ("'NaN'", "'-0.0'", "'0.0'", "'Infinity'", "'-Infinity'", "0.1D", "1.5D", "16777217D", "1e300D", "3D")
DECIMALS = ("0", "-0.01", "1.1", "1.1001", "1.50", "-99999999.99", "99999999.99", "3", "123456789012345678901.5")
WHOLE = (
    "0",
    "-1",
    "1",
    "127",
    "2147483647",
    "2147483648",
    "9007199254740993",
    "9223372036854775807",
    "1.5",
    "16777217",
)
TIMES = (
    "TIMESTAMP_NTZ '2024-03-31 02:30:00'",
    "TIMESTAMP_NTZ '2024-03-31 03:30:00'",
    "TIMESTAMP_NTZ '2024-10-27 02:30:00'",
    "TIMESTAMP_NTZ '2024-01-01 00:00:00'",
    "TIMESTAMP_NTZ '1960-01-01 00:00:00.000001'",
    "TIMESTAMP_NTZ '0001-01-01 00:00:00'",
    "DATE '2024-06-01'",
)
TEXTS = ("''", "'a'", "'A'", "'a '", "'é'", "repeat('long', 20)", "concat(repeat('long', 20), 'er')")

ICEBERG_TYPES = {
    "BIGINT": LongType(),
    "BINARY": BinaryType(),
    "BOOLEAN": BooleanType(),
    "DATE": DateType(),
    "DECIMAL(10, 2)": DecimalType(10, 2),
    "DECIMAL(38, 10)": DecimalType(38, 10),
    "DOUBLE": DoubleType(),
    "FLOAT": FloatType(),
    "INT": IntegerType(),
    "STRING": StringType(),
    "TIMESTAMP": TimestamptzType(),
    "TIMESTAMP_NTZ": TimestampType(),
}
PAIRS = [
    Pair("DOUBLE", "DOUBLE", FLOATS),
    Pair("FLOAT", "DOUBLE", FLOATS, null_safe=False),
    Pair("DECIMAL(10, 2)", "DECIMAL(12, 4)", DECIMALS, null_safe=False),
    Pair("TIMESTAMP", "TIMESTAMP", TIMES),
    Pair("DOUBLE", "BIGINT", (*WHOLE, "'NaN'")),
    Pair("DOUBLE", "FLOAT", FLOATS),
    Pair("DOUBLE", "DECIMAL(20, 1)", DECIMALS),
    Pair("FLOAT", "FLOAT", FLOATS),
    Pair("FLOAT", "DECIMAL(20, 1)", DECIMALS, null_safe=False),
    Pair("FLOAT", "INT", WHOLE, equal=False, null_safe=False),
    Pair("DECIMAL(10, 2)", "DECIMAL(10, 2)", DECIMALS),
    Pair("DECIMAL(10, 2)", "BIGINT", DECIMALS, null_safe=False),
    Pair("DECIMAL(10, 2)", "DOUBLE", DECIMALS, equal=False, null_safe=False),
    Pair("DECIMAL(38, 10)", "DECIMAL(38, 10)", DECIMALS),
    Pair("DECIMAL(38, 10)", "DECIMAL(20, 2)", DECIMALS, null_safe=False),
    Pair("BIGINT", "DECIMAL(22, 2)", WHOLE, null_safe=False),
    Pair("BIGINT", "TINYINT", WHOLE),
    Pair("BIGINT", "DOUBLE", WHOLE, equal=False, null_safe=False),
    Pair("INT", "BIGINT", WHOLE, null_safe=False),
    Pair("TIMESTAMP", "TIMESTAMP_NTZ", TIMES, null_safe=False),
    Pair("TIMESTAMP", "DATE", TIMES, null_safe=False),
    Pair("TIMESTAMP_NTZ", "TIMESTAMP_NTZ", TIMES),
    Pair("TIMESTAMP_NTZ", "DATE", TIMES, null_safe=False),
    Pair("TIMESTAMP_NTZ", "TIMESTAMP", TIMES, equal=False, null_safe=False),
    Pair("DATE", "DATE", TIMES),
    Pair("DATE", "TIMESTAMP", TIMES, equal=False, null_safe=False),
    Pair("STRING", "STRING", TEXTS),
    Pair("STRING", "BINARY", TEXTS, equal=False, null_safe=False),
    Pair("BINARY", "BINARY", TEXTS),
]
"""The first four with every change, with the operators that tasks decide; the others by night."""

ALONE = Pair("BOOLEAN", "BOOLEAN", ("true", "false"))
"""Tasks look booleans up, but only beside other keys."""


@pytest.mark.parametrize("ansi", ["true", pytest.param("false", marks=pytest.mark.nightly)])
@pytest.mark.usefixtures("zone")
def test_keys_equal_the_tables_values_where_sparks_comparison_is_true(lake: Lake, ansi: str) -> None:
    """Every value of the table's type is compared with every value of the source's, and with its key."""
    conf, query = lake.session.spark.conf, lake.session.spark.sql
    checked = [(pair, operator) for pair in (*PAIRS, ALONE) for operator in ("=", "<=>")]
    nulls = query("SELECT " + ", ".join(f"CAST(NULL AS {pair.source}) AS s{n}" for n, (pair, _) in enumerate(checked)))
    values, results = [], []
    for number, (pair, operator) in enumerate(checked):
        column, null_safe = TableColumn("t", ICEBERG_TYPES[pair.target]), operator == "<=>"
        key = pruning_key(f"s{number}", nulls.schema[number].dataType, column, null_safe=null_safe)
        is_exact = key is not None and key.is_exact
        assert is_exact is (pair.null_safe if null_safe else pair.equal), (pair, operator)
        if key is None or not is_exact:
            continue
        for side, kind, place in (("t", pair.target, "i"), ("s", pair.source, "j")):
            listed = ", ".join(f"try_cast({value} AS {kind})" for value in pair.values)
            values.append(f"get(array({listed}), {place}) AS {side}{number}")
        of_spark, of_key = (f"coalesce(t{number} {operator} {side}, false)" for side in (f"s{number}", key.sql))
        results.append(f"array({of_spark}, {of_key}) AS `{pair} {operator}`")
    size = 1 + max(len(pair.values) for pair in PAIRS)  # a place without a value has NULL
    places = ", ".join(f"({i}, {j})" for i, j in product(range(size), repeat=2))
    conf.set("spark.sql.ansi.enabled", ansi)
    try:
        # Spark evaluates this in its planner: it runs no task, and compiles nothing.
        found = query(f"SELECT {', '.join(results)} FROM (SELECT {', '.join(values)} FROM VALUES {places} AS v(i, j))")
        rows_found = [row.asDict() for row in found.collect()]
    finally:
        conf.unset("spark.sql.ansi.enabled")
    for name in rows_found[0]:
        pairs = [row[name] for row in rows_found]
        assert [sparks for sparks, _ in pairs] == [ours for _, ours in pairs], name
        assert any(sparks for sparks, _ in pairs), name


CHANGES = "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (k, n) VALUES (NULL, -s.n)"
BY_SOURCE = (
    "WHEN MATCHED AND s.n % 2 = 0 THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.n < 5 THEN UPDATE SET n = n + 100"
)


@pytest.fixture
def zone(lake: Lake) -> Iterator[None]:
    """A time zone with clock changes."""
    lake.session.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield
    lake.session.spark.conf.unset("spark.sql.session.timeZone")


def rows(values: list[str], kind: str) -> str:
    """Return a query of distinct values, which are NULL where a cast fails, and a number for each."""
    listed = " UNION ALL ".join(
        f"SELECT try_cast({value} AS {kind}) AS k, {number} AS n" for number, value in enumerate(values)
    )
    return f"SELECT k, max(n) AS n FROM ({listed}) GROUP BY k"


def filled(kind: Kind, target: str, values: list[str]) -> str:
    """Create a table of two files with these values, of which the last are there twice."""
    name = kind.lake.create(
        f"k {target}, n INT", **{"write.merge.mode": kind.mode, "format-version": str(kind.version)}
    )
    for part in (values, values[len(values) // 2 :]):
        kind.lake.session.sql(f"INSERT INTO {name} {rows(part, target)}")
    return name


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("place", "operator"),
    by_night(
        list(product(range(len(PAIRS)), ("=", "<=>"))),
        lambda case: case[0] < 4 and (case[1] == "=" or PAIRS[case[0]].null_safe),
    ),
    ids=lambda value: str(PAIRS[value]) if isinstance(value, int) else value,
)
def test_tasks_match_what_sparks_join_matches(lake: Lake, place: int, operator: str) -> None:
    pair, drawn = PAIRS[place], random.Random(place)
    version, mode = ((2, "copy-on-write"), (3, "merge-on-read"))[(place + (operator == "=")) % 2]
    kind = Kind(lake=lake, version=version, mode=mode, partitioned=False)
    table = filled(kind, pair.target, [*drawn.sample(pair.values, max(1, len(pair.values) * 3 // 4)), "NULL"])
    for clauses in (CHANGES, BY_SOURCE):
        asked = [*drawn.sample(pair.values, max(1, len(pair.values) * 3 // 4)), "NULL"]
        names = [lake.copy(table) for _ in range(2)]
        # Two values of the source may be equal in the type of the table's column: then Spark joins.
        key = f"max_by(k, n) AS k, max(n) AS n FROM ({rows(asked, pair.source)}) GROUP BY try_cast(k AS {pair.target})"
        source = f"SELECT {key}"
        merge = f"USING ({source}) s ON t.k {operator} s.k {clauses}"
        sent = pair.equal if operator == "=" else pair.null_safe
        assert broadcasts(lake, f"MERGE INTO {names[0]} t {merge}") is sent
        result = lake.session.sql(f"MERGE INTO {names[0]} t {merge}")
        with mock.patch.object(merge_source, "join_keys", return_value=((), ())):
            expected = lake.session.sql(f"MERGE INTO {names[1]} t {merge}")
        assert counts(result) == counts(expected)
        assert any(counts(result))
        # As text: a local time of year 1 may be one of year 0 in the time zone of Python.
        found = [lake.rows(f"SELECT CAST(k AS STRING), n FROM {name}") for name in names]
        assert found[0] == found[1]


MIXED = "a STRING, b DECIMAL(10, 2), c BOOLEAN, d TIMESTAMP, e DOUBLE, n INT"
MIXED_ROWS = (
    "SELECT element_at(array('x', 'y', NULL), 1 + int(id % 3)) AS a, CAST(id % 4 / 4 AS DECIMAL(10, 2)) AS b, "
    "id % 2 = 0 AS c, IF(id % 5 = 0, NULL, timestamp_seconds(id % 5)) AS d, "
    "element_at(array(double('NaN'), -0.0D, 0.0D, 1.5D), 1 + int(id % 4)) AS e, int(id) AS n FROM range"
)


def mixed(kind: Kind) -> str:
    """Create a table of two files of mixed rows."""
    name = kind.create(f"{MIXED}, k INT")
    for first, last in ((0, 25), (25, 60)):
        kind.lake.session.sql(f"INSERT INTO {name} SELECT *, n % 3 AS k FROM ({MIXED_ROWS}({first}, {last}))")
    return name


@pytest.mark.parametrize(
    ("keys", "null_safe"),
    [
        (("a", "b", "c", "d", "e"), ()),
        (("a", "b", "c", "d", "e"), ("a", "d")),
        pytest.param(("d", "a"), ("d", "a"), marks=pytest.mark.nightly),
        pytest.param(("n", "c"), ("c",), marks=pytest.mark.nightly),
    ],
)
def test_keys_of_several_columns(kind: Kind, keys: tuple[str, ...], null_safe: tuple[str, ...]) -> None:
    lake = kind.lake
    on = " AND ".join(f"t.{key} {'<=>' if key in null_safe else '='} s.{key}" for key in keys)
    unique = f"SELECT {', '.join(keys)}, max(n) AS m FROM ({MIXED_ROWS}(30, 75)) GROUP BY {', '.join(keys)}"
    merge = (
        f"USING ({unique}) s ON {on} AND s.m <> t.k WHEN MATCHED AND s.m % 3 = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET n = s.m WHEN NOT MATCHED THEN INSERT (n) VALUES (-s.m) "
        "WHEN NOT MATCHED BY SOURCE AND n > 40 THEN UPDATE SET n = n + 1000"
    )
    names = [kind.copy_of(mixed) for _ in range(2)]
    assert broadcasts(lake, f"MERGE INTO {names[0]} t {merge}")
    result = lake.session.sql(f"MERGE INTO {names[0]} t {merge}")
    with mock.patch.object(merge_source, "join_keys", return_value=((), ())):
        expected = lake.session.sql(f"MERGE INTO {names[1]} t {merge}")
    assert counts(result) == counts(expected)
    assert result.rows_matched
    assert repr(lake.rows(names[0])) == repr(lake.rows(names[1]))
    assert lake.session.verify(names[0], every_file=True).ok


@pytest.mark.parametrize(
    ("kind_of_key", "operator", "twice"),
    [
        ("DOUBLE", "=", "CAST('-0.0' AS DOUBLE), CAST('0.0' AS DOUBLE)"),
        pytest.param("DOUBLE", "=", "CAST('NaN' AS DOUBLE), CAST('NaN' AS DOUBLE)", marks=pytest.mark.nightly),
        pytest.param("DECIMAL(5, 1)", "=", "1.1BD, 1.10BD", marks=pytest.mark.nightly),
        ("STRING", "<=>", "CAST(NULL AS STRING), NULL"),
    ],
)
def test_source_rows_that_match_one_row_are_an_error_of_sparks(
    lake: Lake, kind_of_key: str, operator: str, twice: str
) -> None:
    name = lake.create(f"k {kind_of_key}, n INT")
    one, other = twice.split(", ")
    lake.session.sql(f"INSERT INTO {name} SELECT {one}, 1")
    source = f"SELECT {one} AS k, 1 AS n UNION ALL SELECT {other}, 2"
    before = lake.state(name)
    for clauses in (CHANGES, BY_SOURCE.replace("s.n % 2 = 0", "s.n > 0")):
        with pytest.raises(DataError) as caught:
            lake.session.sql(f"MERGE INTO {name} t USING ({source}) s ON t.k {operator} s.k {clauses}")
        assert caught.value.kind is ErrorKind.CARDINALITY_VIOLATION
    assert lake.state(name) == before
