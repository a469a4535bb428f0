"""The keys of a MERGE's source prune files, whatever their types: the pruned files are moved away."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dml import limits
from dml.engine import row_level
from tests.lake import Lake
from tests.marks import by_night

pytestmark = pytest.mark.spark

ZONE = "Europe/Berlin"
COLUMNS = {
    "l": ("BIGINT", "id * 3"),
    "i": ("INT", "CAST(id - 20 AS INT)"),
    "ts": ("TIMESTAMP", "timestampadd(DAY, CAST(id * 2 AS INT), TIMESTAMP '2024-03-01 02:30:00')"),
    "ntz": ("TIMESTAMP_NTZ", "CAST(timestampadd(DAY, CAST(id * 2 AS INT), DATE '2024-03-01') AS TIMESTAMP_NTZ)"),
    "d": ("DATE", "date_add(DATE '2024-03-01', CAST(id * 2 AS INT))"),
    "dec": ("DECIMAL(20, 2)", "CAST(id / 2 AS DECIMAL(20, 2))"),
    "dbl": ("DOUBLE", "id / 4 - 3"),
    "flt": ("FLOAT", "CAST(id / 4 - 3 AS FLOAT)"),
    "txt": ("STRING", "concat('x', lpad(id, 4, '0'))"),
    "bin": ("BINARY", "CAST(concat('x', lpad(id, 4, '0')) AS BINARY)"),
    "fx": ("FIXED(5)", "CAST(concat('x', lpad(id, 4, '0')) AS BINARY)"),
    "u": ("UUID", "concat(lpad(hex(id * 4), 8, '0'), '-1111-4111-8111-111111111111')"),
    "flag": ("BOOLEAN", "id >= 20"),
    "st": (
        "STRUCT<at: TIMESTAMP, n: INT>",
        "named_struct('at', TIMESTAMP '2024-01-01 00:00:00', 'n', CAST(id AS INT))",
    ),
}
ROWS_OF_FILE = 10

SOURCES = [
    ("l", "id * 3"),
    ("l", "CAST(id * 3 AS DECIMAL(38, 0))"),
    ("i", "id - 20"),
    ("ts", COLUMNS["ts"][1]),
    ("ts", "CAST(timestampadd(DAY, CAST(id * 2 AS INT), TIMESTAMP '2024-03-01 02:30:00') AS TIMESTAMP_NTZ)"),
    ("ntz", COLUMNS["ntz"][1]),
    ("ntz", "timestampadd(DAY, CAST(id * 2 AS INT), TIMESTAMP '2024-03-01 00:00:00')"),
    ("ntz", COLUMNS["d"][1]),
    ("d", COLUMNS["d"][1]),
    ("d", "CAST(date_add(DATE '2024-03-01', CAST(id * 2 AS INT)) AS TIMESTAMP)"),
    ("dec", COLUMNS["dec"][1]),
    ("dec", "CAST(id / 2 AS DECIMAL(12, 4))"),
    ("dbl", COLUMNS["dbl"][1]),
    ("dbl", COLUMNS["flt"][1]),
    ("flt", COLUMNS["flt"][1]),
    ("flt", COLUMNS["dbl"][1]),
    ("txt", COLUMNS["txt"][1]),
    ("bin", COLUMNS["bin"][1]),
    ("fx", COLUMNS["fx"][1]),
    ("u", f"lower({COLUMNS['u'][1]})"),
    ("st.n", "CAST(id AS INT)"),
]


def is_of_the_columns_type(case: tuple[str, str]) -> bool:
    """Whether a source has the type of the target's column."""
    key, source = case
    return (key in {"l", "i", "u", "st.n"} and "DECIMAL" not in source) or source == COLUMNS.get(key, ("", ""))[1]


SOURCES_IN_TURN = [case for case in SOURCES if is_of_the_columns_type(case)][::2]


@pytest.fixture(scope="module")
def table(engine_lake: Lake) -> str:
    """A table of four files, whose columns ascend from file to file."""
    engine_lake.session.enable()
    engine_lake.session.spark.conf.set("spark.sql.session.timeZone", ZONE)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    name = engine_lake.create(columns)
    values = ", ".join(value for _, value in COLUMNS.values())
    for first in range(0, 4 * ROWS_OF_FILE, ROWS_OF_FILE):
        engine_lake.session.sql(
            f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ {values} FROM range({first}, {first + ROWS_OF_FILE})"
        )
    engine_lake.session.spark.conf.unset("spark.sql.session.timeZone")
    engine_lake.session.disable()
    return name


@pytest.fixture
def zone(lake: Lake) -> Iterator[None]:
    """A session in a time zone with a clock change among the table's times."""
    lake.session.spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield
    lake.session.spark.conf.unset("spark.sql.session.timeZone")


@contextmanager
def only_file(lake: Lake, name: str, place: int) -> Iterator[None]:
    """Move away all files but one during the block."""
    paths = [Path(file.path.removeprefix("file://")) for file in lake.data_files(name)]
    away = sorted(paths, key=lambda path: path.stat().st_mtime_ns)
    del away[place]
    for path in away:
        path.rename(path.with_suffix(".away"))
    try:
        yield
    finally:
        for path in away:
            path.with_suffix(".away").rename(path)


def inserted(lake: Lake, name: str, key: str, source: str, operator: str, first: int, last: int) -> object:
    """Return how many of ten source rows match nothing in a MERGE."""
    result = lake.session.sql(
        f"MERGE INTO {name} t USING (SELECT {source} AS k FROM range({first}, {last})) s ON t.{key} {operator} s.k "
        "WHEN NOT MATCHED THEN INSERT (l) VALUES (0)"
    )
    return result.rows_inserted


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("operator", ["=", pytest.param("<=>", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("key", "source"), SOURCES)
def test_files_without_a_key_of_the_source_are_not_opened(
    lake: Lake, table: str, key: str, source: str, operator: str
) -> None:
    assert len(lake.data_files(table)) == 4
    with only_file(lake, table, 1):
        assert inserted(lake, table, key, source, operator, 12, 18) == 0


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(("key", "source"), by_night(SOURCES, SOURCES_IN_TURN.__contains__))
def test_neither_are_they_where_the_keys_are_too_many_for_the_driver(
    lake: Lake, table: str, key: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark then computes the minimum and maximum; by night for all sources."""
    for limit in ("MAX_SOURCE_KEYS", "MAX_INTEGER_SOURCE_KEYS"):
        monkeypatch.setattr(limits, limit, 2)
    monkeypatch.setattr(row_level, "most_sent", lambda *_: 0)
    assert len(lake.data_files(table)) == 4
    with only_file(lake, table, 1):
        assert inserted(lake, table, key, source, "=", 12, 18) == 0


@pytest.mark.usefixtures("zone")
def test_a_boolean_key_prunes(lake: Lake, table: str) -> None:
    with only_file(lake, table, 0), pytest.raises(Exception, match="does not exist"):
        inserted(lake, table, "flag", "true", "=", 0, 1)
    paths = sorted(lake.data_files(table), key=lambda file: Path(file.path.removeprefix("file://")).stat().st_mtime_ns)
    away = Path(paths[0].path.removeprefix("file://"))
    away.rename(away.with_suffix(".away"))
    try:
        assert inserted(lake, table, "flag", "true", "=", 0, 1) == 0
    finally:
        away.with_suffix(".away").rename(away)


AWKWARD = [
    "CAST('NaN' AS {kind})",
    "CAST('-0.0' AS {kind})",
    "CAST('0.0' AS {kind})",
    "CAST('Infinity' AS {kind})",
    "CAST('-Infinity' AS {kind})",
    "CAST(NULL AS {kind})",
    "CAST('1.5' AS {kind})",
]


@pytest.mark.parametrize(
    ("kind", "partition", "most"),
    [
        pytest.param(kind, partition, most, marks=() if (kind, most) == everyday else pytest.mark.nightly)
        for kind in ("FLOAT", "DOUBLE")
        for partition, everyday in (("", None), ("PARTITIONED BY (f)", ("DOUBLE", 1_000_000)))
        for most in (1, 1_000_000)
    ],
)
def test_floats_match_as_sparks_join_has_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str, partition: str, most: int
) -> None:
    """NaN equals NaN, and -0.0 equals 0.0: a file or partition with one is opened for the other."""
    monkeypatch.setattr(limits, "MAX_SOURCE_KEYS", most)
    name = lake.create(f"f {kind}, n INT", partition)
    values = [value.format(kind=kind) for value in AWKWARD]
    for number, value in enumerate(values):
        lake.session.sql(f"INSERT INTO {name} SELECT {value}, {number}")
    sources = {
        asked: " UNION ALL ".join(f"SELECT {values[int(place)]} AS f" for place in asked)
        for asked in ("0", "1", "2", "3", "46", "015")
    }
    every = " UNION ALL ".join(f"SELECT '{asked}' AS asked, f FROM ({source})" for asked, source in sources.items())
    for operator in ("=", "<=>"):
        # The MERGEs only insert what no row matches, NULL for `=`, so that what is missing stays the same.
        missing = lake.rows(f"SELECT asked, s.f FROM ({every}) s ANTI JOIN {name} t ON t.f {operator} s.f")
        for asked, source in sources.items():
            if operator == "<=>" and asked not in {"2", "015"}:  # the operators differ in NULL alone
                continue
            wanted = [row for row in missing if row[0] == asked]
            result = lake.session.sql(
                f"MERGE INTO {name} t USING ({source}) s ON t.f {operator} s.f AND t.n >= 0 "
                "WHEN NOT MATCHED THEN INSERT (f, n) VALUES (s.f, -1)"
            )
            assert result.rows_inserted == len(wanted), (operator, asked)


def test_a_source_of_two_far_days_opens_no_file_between_them(lake: Lake) -> None:
    """More keys than are listed individually become ranges, which end where a wide gap begins."""
    name = lake.create("ts TIMESTAMP, c INT, v INT", "PARTITIONED BY (days(ts))")
    times = "timestampadd(SECOND, CAST(id DIV 9 AS INT), timestampadd(DAY, CAST(id % 9 AS INT), DATE '2024-01-01'))"
    lake.session.sql(f"INSERT INTO {name} SELECT {times}, CAST(id AS INT), 0 FROM range(9000)")
    for path in lake.folder(name).joinpath("data").rglob("*.parquet"):
        if not {"2024-01-01", "2024-01-09"} & set(str(path).replace("=", "/").split("/")):
            path.unlink()
    source = f"SELECT {times} AS ts, CAST(id AS INT) AS c FROM range(9000) WHERE id % 9 IN (0, 8)"
    result = lake.session.sql(
        f"MERGE INTO {name} t USING ({source}) s "
        "ON t.ts = s.ts AND t.c = s.c WHEN MATCHED THEN UPDATE SET v = 1 WHEN NOT MATCHED THEN INSERT (c) VALUES (s.c)"
    )
    assert (result.rows_updated, result.rows_inserted) == (2000, 0)


@pytest.mark.parametrize("mode", ["true", "false"])
def test_local_times_that_a_clock_skips_match_as_sparks_join_has_them(lake: Lake, mode: str) -> None:
    """On the day of Berlin's clock change 02:30 is the instant of 03:30, and both types of column match it."""
    conf = lake.session.spark.conf
    conf.set("spark.sql.session.timeZone", ZONE)
    conf.set("spark.sql.ansi.enabled", mode)
    try:
        name = lake.create("ntz TIMESTAMP_NTZ, ts TIMESTAMP", "PARTITIONED BY (hours(ntz))")
        lake.session.sql(
            f"INSERT INTO {name} VALUES (TIMESTAMP_NTZ '2024-03-31 02:30:00', TIMESTAMP '2024-03-31 03:30:00'), "
            "(TIMESTAMP_NTZ '2024-10-27 02:30:00', TIMESTAMP '2024-10-27 00:30:00Z')"
        )
        for key, source, matched in (
            ("ntz", "TIMESTAMP '2024-03-31 03:30:00'", 1),
            ("ntz", "TIMESTAMP '2024-10-27 00:30:00Z'", 1),
            ("ntz", "TIMESTAMP '2024-10-27 01:30:00Z'", 0),
            ("ts", "TIMESTAMP_NTZ '2024-03-31 02:30:00'", 1),
            ("ts", "TIMESTAMP_NTZ '2024-10-27 02:30:00'", 1),
        ):
            # Spark's optimizer would convert a constant to a local time, which no instant of the skipped hour equals.
            rows = f"SELECT timestampadd(SECOND, CAST(id AS INT), {source}) AS k FROM range(1)"
            result = lake.session.sql(
                f"MERGE INTO {name} t USING ({rows}) s ON t.{key} = s.k WHEN MATCHED THEN UPDATE SET ts = t.ts"
            )
            assert result.rows_updated == matched, (key, source)
    finally:
        conf.unset("spark.sql.session.timeZone")
        conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize("mode", ["true", "false"])
@pytest.mark.parametrize("source", ["TINYINT", "BIGINT", "DECIMAL(20, 0)"])
def test_decimals_that_spark_rounds_to_compare_them_are_not_missed(lake: Lake, mode: str, source: str) -> None:
    """If 38 digits cannot hold both types, Spark 4 gives up digits behind the point, and 1.0...01 equals 1."""
    conf = lake.session.spark.conf
    conf.set("spark.sql.ansi.enabled", mode)
    try:
        name = lake.create("k DECIMAL(38, 37)")
        lake.session.sql(f"INSERT INTO {name} VALUES (CAST('1.{'0' * 36}1' AS DECIMAL(38, 37)))")
        rows = f"SELECT CAST(id AS {source}) AS k FROM range(1, 2)"
        wanted = lake.rows(f"SELECT s.k FROM ({rows}) s ANTI JOIN {name} t ON t.k = s.k")
        result = lake.session.sql(
            f"MERGE INTO {name} t USING ({rows}) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k) VALUES (NULL)"
        )
        assert result.rows_inserted == len(wanted)
    finally:
        conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize("sent", [True, False])
def test_a_text_that_is_not_utf_8_is_a_key_like_others(lake: Lake, monkeypatch: pytest.MonkeyPatch, sent: bool) -> None:
    if not sent:
        monkeypatch.setattr(row_level, "most_sent", lambda *_: 0)
    name = lake.create("s STRING, n INT")
    lake.session.sql(f"INSERT INTO {name} VALUES ('a', 1), ('b', 2)")
    source = "SELECT CAST(X'61FF' AS STRING) AS s UNION ALL SELECT 'b'"
    result = lake.session.sql(
        f"MERGE INTO {name} t USING ({source}) s ON t.s = s.s WHEN MATCHED THEN UPDATE SET n = 3 "
        "WHEN NOT MATCHED THEN INSERT (n) VALUES (4)"
    )
    assert (result.rows_updated, result.rows_inserted) == (1, 1)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("limit", [1 << 20, -1])
def test_a_source_that_is_large_beside_its_target_is_not_evaluated_for_keys_that_only_prune(
    lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(limits, "MAX_PRUNING_SOURCE_BYTES", limit)
    monkeypatch.setattr(limits, "PRUNING_SOURCE_DIVISOR", 1 << 40)
    statement = f"MERGE INTO {table} t USING (SELECT int(id) AS k FROM range(12, 18)) s ON t.st.n = s.k "
    ((plan,),) = lake.session.sql(f"EXPLAIN {statement} WHEN MATCHED THEN DELETE").collect()
    assert f"scan: {1 if limit > 0 else 4} of 4 data files" in plan
