"""Data of pandas, Polars and Arrow as sources of statements: types are exact, and no value changes silently."""

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dml.errors import AnalysisError, DataError, DmlError, ErrorKind
from dml.spark.foreign_data import foreign_rows, spark_column
from dml.spark.versions import INSTALLED_FEATURES, Feature
from dml.sql_values import fill_placeholders
from tests.dml.connector.conftest import connector_lake, lake  # noqa: F401

BERLIN = pa.timestamp("s", "Europe/Berlin")
DAY = dt.datetime(2020, 1, 1)  # noqa: DTZ001  a timestamp without a zone

COLUMNS = {
    "dictionary": (pa.array(["a", None]).dictionary_encode(), "string", "a"),
    "text_view": (pa.array(["a", None]).cast(pa.string_view()), "string", "a"),
    "large_text": (pa.array(["a", None], pa.large_string()), "string", "a"),
    "bytes_view": (pa.array([b"a", None]).cast(pa.binary_view()), "binary", b"a"),
    "fixed_bytes": (pa.array([b"ab", None], pa.binary(2)), "binary", b"ab"),
    "run_ends": (pa.RunEndEncodedArray.from_arrays([1, 2], ["a", None]), "string", "a"),
    "dictionaries": (
        pa.ListArray.from_arrays([0, 2, 2], pa.array(["a", None]).dictionary_encode(), mask=pa.array([False, True])),
        "array<string>",
        ["a", None],
    ),
    "coded_views": (
        pa.array([["a"], None], pa.list_(pa.string())).cast(pa.list_(pa.dictionary(pa.int32(), pa.string_view()))),
        "array<string>",
        ["a"],
    ),
    "fixed_list": (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), "array<int>", [1, 2]),
    "large_list": (pa.array([[2**32 - 1], None], pa.large_list(pa.uint32())), "array<bigint>", [2**32 - 1]),
    "u8": (pa.array([255, None], pa.uint8()), "smallint", 255),
    "u16": (pa.array([2**16 - 1, None], pa.uint16()), "int", 2**16 - 1),
    "u64": (pa.array([2**64 - 1, None], pa.uint64()), "decimal(20,0)", Decimal(2**64 - 1)),
    "nanoseconds": (pa.array([1000, None], pa.timestamp("ns")), "timestamp_ntz", dt.datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    "half": (pa.array([1.5, None], pa.float16()), "float", 1.5),
    "wide_decimal": (pa.array([Decimal("1.5"), None], pa.decimal256(76, 1)), "decimal(38,1)", Decimal("1.5")),
    "hundreds": (pa.array([Decimal(1500), None], pa.decimal128(5, -2)), "decimal(7,0)", Decimal(1500)),
    "uuid": (pa.array([UUID(int=5).bytes, None], pa.uuid()), "string", str(UUID(int=5))),
    "json": (pa.array(["{}", None], pa.json_()), "string", "{}"),
    "date64": (pa.array([86_400_000, None], pa.date64()), "date", dt.date(1970, 1, 2)),
    "duration": (pa.array([1000, None], pa.duration("ns")), "interval day to second", dt.timedelta(microseconds=1)),
    "nothing": (pa.nulls(2), "void", None),
    "map": (pa.array([[("a", 1)], None], pa.map_(pa.large_string(), pa.uint8())), "map<string,smallint>", {"a": 1}),
    "nan": (pa.array([float("inf"), None]), "double", float("inf")),
    "struct": (
        pa.array([{"n": 1, "at": DAY}, None], pa.struct([("n", pa.uint16()), ("at", pa.timestamp("ns"))])),
        "struct<n:int,at:timestamp_ntz>",
        (1, DAY),
    ),
}


@pytest.mark.spark
def test_types_are_exact(spark: SparkSession) -> None:
    """Each column arrives with the type and the values that it has, and with its NULL."""
    frame = foreign_rows(pa.table({name: column for name, (column, _, _) in COLUMNS.items()})).frame(spark)
    assert dict(frame.dtypes) == {name: kind for name, (_, kind, _) in COLUMNS.items()}
    first, second = frame.collect()
    assert first.asDict() == {name: value for name, (_, _, value) in COLUMNS.items()}
    assert set(second) == {None}


@pytest.mark.spark
def test_instants_stay_instants_and_local_times_stay_local(spark: SparkSession) -> None:
    """Neither the session's time zone nor the column's moves a timestamp, alone or inside of a list."""
    instants = pa.array([0], BERLIN)
    local = pa.array([0], pa.timestamp("ms"))
    data = pa.table(
        {
            "instant": instants,
            "local": local,
            "instants": pa.ListArray.from_arrays([0, 1], instants),
            "locals": pa.ListArray.from_arrays([0, 1], local),
        }
    )
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = foreign_rows(data).frame(spark)
        shown = frame.selectExpr("CAST(instant AS STRING)", "CAST(local AS STRING)", "instants[0] = instant").first()
        also = frame.selectExpr("locals[0] = local").first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert dict(frame.dtypes)["instants"] == "array<timestamp>"
    assert tuple(shown or ()) == ("1970-01-01 09:00:00", "1970-01-01 00:00:00", True)
    assert tuple(also or ()) == (True,)


@pytest.mark.spark
@pytest.mark.needs(Feature.TIME)
def test_times_of_day_are_times(spark: SparkSession) -> None:
    frame = foreign_rows(pa.table({"at": pa.array([1], pa.time32("s"))})).frame(spark)
    assert frame.dtypes == [("at", "time(6)")]
    assert frame.collect()[0].at == dt.time(0, 0, 1)


@pytest.mark.spark
def test_frames_of_pandas_lose_their_index_and_their_nan(spark: SparkSession) -> None:
    """As PyArrow converts them; Polars knows NULL, so its NaN stay."""
    pandas = pd.DataFrame(
        {
            "x": [1.0, float("nan")],
            "kind": pd.Categorical(["a", None]),
            "at": pd.to_datetime(["2020-01-01", None]),
            "n": pd.array([1, None], dtype="Int64"),
        },
        index=pd.Index(["p", "q"], name="key"),
    )
    frame = foreign_rows(pandas).frame(spark)
    assert frame.dtypes == [("x", "double"), ("kind", "string"), ("at", "timestamp_ntz"), ("n", "bigint")]
    assert [tuple(row) for row in frame.collect()] == [(1.0, "a", DAY, 1), (None,) * 4]
    polars = pl.DataFrame({"x": [float("nan"), None], "kind": pl.Series(["a", None], dtype=pl.Categorical)})
    assert str(foreign_rows(polars).frame(spark).collect()) == "[Row(x=nan, kind='a'), Row(x=None, kind=None)]"


@pytest.mark.spark
def test_a_frame_without_rows_keeps_its_columns(spark: SparkSession) -> None:
    data = pl.DataFrame({"id": pl.Series([], dtype=pl.UInt8), "s": pl.Series([], dtype=pl.Utf8)})
    without_chunks = pa.schema({"m": pa.map_(pa.string(), pa.int32())}).empty_table()
    assert foreign_rows(without_chunks).frame(spark).count() == 0
    frame = foreign_rows(data).frame(spark)
    assert (frame.dtypes, frame.count()) == ([("id", "smallint"), ("s", "string")], 0)


REFUSED = {
    "nanoseconds": (pa.table({"x": pa.array([1001], pa.timestamp("ns"))}), DataError, "'x'.*lose data: 1001"),
    "nested nanoseconds": (
        pa.table({"x": pa.array([{"t": 1001}], pa.struct([("t", pa.timestamp("ns"))]))}),
        DataError,
        "'x'.*lose data: 1001",
    ),
    "far years": (pa.table({"x": pa.array([2**62], pa.timestamp("s"))}), DataError, "'x'"),
    "part of a day": (pa.table({"x": pa.array([1], pa.date64())}), DataError, "'x'"),
    "many digits": (pa.table({"x": pa.array([Decimal(10) ** 50], pa.decimal256(60, 0))}), DataError, "'x'"),
    "more digits than declared": (
        pa.table({"x": pa.Array.from_buffers(pa.decimal128(3, 0), 1, pa.array([Decimal(5000)]).buffers())}),
        DataError,
        "'x'.*5000 does not fit in precision",
    ),
    "no columns": (pl.DataFrame(), AnalysisError, "no columns"),
    "a name twice": (pa.table([[1], [2]], names=["a", "a"]), AnalysisError, "2 columns named 'a'"),
    "a name twice in pandas": (pd.DataFrame([[1, 2]], columns=["a", "a"]), AnalysisError, "'a'"),
    "a field twice": (
        pa.table({"x": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])}),
        AnalysisError,
        "'x'",
    ),
    "mixed values": (pd.DataFrame({"o": [1, "a"]}), AnalysisError, "column o"),
    "large integers": (pd.DataFrame({"n": [2**70]}), AnalysisError, "cannot be read as rows: .*64 bits are decimals"),
    "half a character": (pd.DataFrame({"s": ["\ud800"]}), AnalysisError, r"\\ud800.*surrogates not allowed"),
    "a series": (pl.Series([1]), AnalysisError, "polars Series cannot be read as rows"),
    "periods": (
        pd.DataFrame({"p": pd.period_range("2020", "2021", freq="Y")}),
        AnalysisError,
        "'p'.*no type|no type.*'p'",
    ),
    "views of lists": (pa.table({"x": pa.array([[1]], pa.list_view(pa.int32()))}), AnalysisError, "'x'"),
    "months": (pa.table({"x": pa.array([None], pa.month_day_nano_interval())}), AnalysisError, "'x'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_spark_cannot_hold_is_refused(case: str) -> None:
    """Before Spark is asked, so no session is needed; the message names the column."""
    data, kind, message = REFUSED[case]
    with pytest.raises(DmlError, match=message) as caught:
        foreign_rows(data)
    assert type(caught.value) is kind


def test_columns_are_not_copied_where_spark_reads_their_type() -> None:
    column = pa.chunked_array([[1, 2], [3]])
    assert spark_column("x", column).chunk(0).buffers()[1].address == column.chunk(0).buffers()[1].address


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("SELECT {a}", {"a": 1, "idempotency_kay": "x"}, "no placeholder {idempotency_kay}"),
        ("SELECT {a}, {b}", {"a": 1}, "{b} has no value"),
        ("SELECT {}", {"a": 1}, "has no value"),
        ("SELECT {a", {"a": 1}, "cannot be read"),
    ],
)
def test_placeholders_and_values_belong_together(text: str, values: dict[str, object], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        fill_placeholders(text, values)


class Store:
    """Makes a new object for each attribute, as a property may."""

    def __getattr__(self, name: str) -> "Rows":
        return Rows(name)


class Rows:
    def __init__(self, name: str) -> None:
        self.name = name

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        raise NotImplementedError


def test_each_value_has_its_view_although_nothing_else_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reuses the id of an object that is gone."""
    monkeypatch.setattr("dml.sql_values.foreign_rows", lambda data: data.name)
    names = [f"c{number}" for number in range(40)]
    filled = fill_placeholders(" ".join(f"{{s.{name}}}" for name in names), {"s": Store()})
    assert [filled.rows[view] for view in filled.text.split()] == names


@pytest.mark.parametrize("placeholder", ["{a!r}", "{a:.2}"])
def test_the_text_of_a_value_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, placeholder: str) -> None:
    monkeypatch.setattr("dml.sql_values.foreign_rows", lambda data: data.name)
    with pytest.raises(AnalysisError, match="is not supported"):
        fill_placeholders(f"SELECT * FROM {placeholder}", {"a": Rows("a")})


def test_errors_show_the_placeholders_of_rows() -> None:
    filled = fill_placeholders("SELECT 1 FROM {new_rows} a, {new_rows} b", {"new_rows": pl.DataFrame({"id": [1]})})
    (view,) = filled.rows
    error = AnalysisError(f"{view} is unknown", hint=f"Replace {view}")
    error.point_at(filled.text, filled.text.rindex(view), len(filled.text))
    with pytest.raises(AnalysisError) as caught, filled.restore_placeholders():
        raise error
    assert str(caught.value) == (
        "{new_rows} is unknown (line 1, column 29)\n"
        "  SELECT 1 FROM {new_rows} a, {new_rows} b\n"
        "                              ^^^^^^^^^^^^\n"
        "Replace {new_rows}"
    )


@pytest.fixture
def people(lake):  # noqa: F811
    """A table of two rows."""
    name = lake.create("id BIGINT, name STRING, at TIMESTAMP")
    lake.session.sql(f"INSERT INTO {name} (id, name) VALUES (1, 'Ann'), (2, 'Bob')")
    return name


NEW = {"id": [2, 3], "name": ["Bea", "Dan"], "at": [DAY, None]}
FORMS = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "table": pa.table,
    "batch": pa.RecordBatch.from_pydict,
    "reader": lambda columns: pa.table(columns).to_reader(),
}


@pytest.mark.spark
@pytest.mark.parametrize("form", FORMS)
def test_an_upsert_updates_and_inserts(lake, people, form) -> None:  # noqa: F811
    """Rows of each library, read once although the MERGE may read its source twice."""
    result = lake.session.upsert(people, FORMS[form](NEW), on="id")
    assert (result.command, result.rows_updated, result.rows_inserted) == ("MERGE", 1, 1)
    assert lake.rows(f"SELECT id, name, CAST(at AS STRING) FROM {people}") == [
        (1, "Ann", None),
        (2, "Bea", "2020-01-01 00:00:00"),
        (3, "Dan", None),
    ]


@pytest.mark.spark
def test_inserts_merges_and_placeholders_take_the_same_data(lake, people) -> None:  # noqa: F811
    session, rows = lake.session, pl.DataFrame({"name": ["Eve"], "id": pl.Series([9], dtype=pl.UInt64)})
    assert session.insert(people, rows).rows_inserted == 1  # by name; `at` gets its default
    found = session.sql(
        "SELECT p.name, {tag} AS tag FROM {rows} r JOIN " + people + " p ON p.id = r.id", rows=rows, tag="it's"
    )
    assert [tuple(row) for row in found.collect()] == [("Eve", "it's")]
    session.sql(
        f"DELETE FROM {people} WHERE id IN (SELECT id FROM {{gone}}) AND id < :most",
        {"most": 5},
        gone=pa.table({"id": [1, 9]}),
    )
    merge = session.merge_into(pd.DataFrame({"id": [9], "name": ["Fay"]}), f"{people} t", "t.id = source.id")
    assert merge.whenMatched().update({"name": "source.name"}).merge().rows_updated == 1
    assert lake.rows(people if Feature.ARROW_FRAMES not in INSTALLED_FEATURES else f"SELECT id, name FROM {people}")[
        :2
    ] == [
        (2, "Bob"),
        (9, "Fay"),
    ]
    with pytest.raises(AnalysisError, match="LazyFrame has no SQL text"):
        session.sql("SELECT * FROM {rows}", rows=rows.lazy())
    assert not [row for row in session.spark.sql("SHOW VIEWS").collect() if row.viewName.startswith("__rowdelta")]


@pytest.mark.spark
def test_a_key_knows_data_by_its_columns(lake, people) -> None:  # noqa: F811
    """A job that runs again reads its rows again: they are other objects, and the statement is the same."""
    for replayed in (False, True):
        rows = pd.DataFrame({"id": [7]})
        results = (
            lake.session.insert(people, rows, idempotency_key="insert"),
            lake.session.upsert(people, pd.DataFrame(NEW), on=["id"], idempotency_key="upsert"),
            lake.session.sql(
                "DELETE FROM " + people + " WHERE id IN (SELECT id FROM {rows})", rows=rows, idempotency_key="delete"
            ),
        )
        assert [result.replayed for result in results] == [replayed] * 3
    with pytest.raises(AnalysisError) as caught:
        lake.session.insert(people, pd.DataFrame({"id": ["7"]}), idempotency_key="insert")
    assert caught.value.kind is ErrorKind.IDEMPOTENCY_KEY


@pytest.mark.spark
def test_the_keys_of_an_upsert(lake) -> None:  # noqa: F811
    """Identifier fields by default; several rows for one row of the table are refused, with a way out."""
    name = lake.create("source_id BIGINT NOT NULL, source INT NOT NULL, v STRING")
    with pytest.raises(AnalysisError, match="no identifier fields"):
        lake.session.upsert(name, pd.DataFrame({"source_id": [1]}))
    lake.session.sql(f"ALTER TABLE {name} SET IDENTIFIER FIELDS source_id, source")
    rows = pd.DataFrame({"source_id": [1, 1], "source": [1, 2], "v": ["a", "b"]})
    assert lake.session.upsert(f"{name} AS source", rows).rows_inserted == 2
    before = lake.state(name)
    with pytest.raises(DataError, match=r"they have the same source_id") as caught:
        lake.session.upsert(name, rows, on="source_id")
    assert "dropDuplicates(['source_id'])" in str(caught.value)
    for wrong, message in (("ids", "'ids', which the source does not have"), ([], "no column"), (5, "got int")):
        with pytest.raises(AnalysisError, match=message):
            lake.session.upsert(name, rows, on=wrong)
    with pytest.raises(AnalysisError, match="list"):
        lake.session.upsert(name, [{"source_id": 1}], on="source_id")  # type: ignore[arg-type]
    assert lake.state(name) == before


@pytest.mark.spark
def test_an_upsert_writes_to_the_branch_that_the_name_ends_in(lake, people) -> None:  # noqa: F811
    lake.session.sql(f"ALTER TABLE {people} CREATE BRANCH audit")
    assert lake.session.upsert(f"{people}.branch_audit", pd.DataFrame(NEW), on="id").branch == "audit"
    assert [row[:2] for row in lake.rows(f"SELECT * FROM {people}")] == [(1, "Ann"), (2, "Bob")]


@pytest.mark.spark
def test_the_catalog_is_that_of_pyiceberg(lake, people) -> None:  # noqa: F811
    assert lake.session.catalog is lake.session.registry.catalogs["lake"]
    assert lake.session.catalog.load_table(people).scan().to_arrow().num_rows == 2
