"""PySpark Columns as SQL text: each means in `selectExpr` what it means in `select`."""

import datetime
import math
import re
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users write it

from dml.errors import NotSupportedError
from dml.sql_values import column_sql
from tests.dml.spark import column_cases

pytestmark = pytest.mark.spark

SETTINGS = {
    "default": {},
    "legacy": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "Europe/Prague",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.legacy.consecutiveStringLiterals.enabled": "true",
    },
    "strict": {
        "spark.sql.ansi.enforceReservedKeywords": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.session.timeZone": "America/New_York",
    },
}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Three rows with columns of many types."""
    return spark.sql(column_cases.FRAME).coalesce(1).cache()


@pytest.fixture(params=SETTINGS)
def session(request: pytest.FixtureRequest, spark: SparkSession):
    """The session under settings that change how SQL text is read."""
    chosen = SETTINGS[request.param]
    before = {key: spark.conf.get(key, None) for key in chosen}
    for key, value in chosen.items():
        spark.conf.set(key, value)
    yield spark
    for key, earlier in before.items():
        if earlier is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, earlier)


def means_the_same(frame: DataFrame, columns: dict[str, Column]) -> None:
    """Compares values, signs of zero and NaN included, and types."""
    texts = {name: column_sql(column) for name, column in columns.items()}
    names = list(columns)
    direct = frame.select(*(columns[name].alias(f"c{index}") for index, name in enumerate(names)))
    textual = frame.selectExpr(*(f"{texts[name]} AS c{index}" for index, name in enumerate(names)))
    for name, left, right in zip(names, direct.schema, textual.schema, strict=True):
        assert left.dataType == right.dataType, (name, texts[name])
    for one, other in zip(direct.collect(), textual.collect(), strict=True):
        for index, name in enumerate(names):
            assert repr(one[index]) == repr(other[index]), (name, texts[name])


@pytest.mark.oldest
def test_every_kind_of_column_means_the_same_as_its_text(session, frame):
    cases = column_cases.cases(session)
    if session.conf.get("spark.sql.ansi.doubleQuotedIdentifiers") == "true":
        cases.pop("text with strings")  # its double quotes are names then
    means_the_same(frame, cases)


def test_texts_read_like_sql(spark):
    assert column_sql(F.col("a") == 1) == "(`a` = 1)"
    assert column_sql((F.col("t.a") > 1) & F.col("b").isNull() & ~F.col("c")) == (
        "((`t`.`a` > 1) AND (`b` IS NULL) AND (NOT `c`))"
    )
    assert column_sql(F.col("d") >= datetime.date(2020, 1, 1)) == "(`d` >= DATE '2020-01-01')"
    assert column_sql(F.col("s").isin("x", "it's")) == r"(`s` IN ('x', 'it\'s'))"
    assert column_sql(F.lit(Decimal("1.20"))) == "CAST('1.20' AS DECIMAL(3,2))"
    assert column_sql(F.upper("s")) == "`upper`(`s`)"


def test_a_timestamp_is_the_same_instant_in_every_time_zone(session):
    second_before_summer = datetime.datetime(2021, 3, 28, 0, 59, 59, 1, tzinfo=datetime.UTC)
    assert column_sql(F.lit(second_before_summer)) == "TIMESTAMP_LTZ '2021-03-28 00:59:59.000001+00:00'"


def test_what_sql_cannot_say_is_refused(spark, frame):
    for message, column in column_cases.refused(frame, lambda value: value).items():
        with pytest.raises(NotSupportedError) as caught:
            column_sql(column)
        assert message in caught.value.message, message
        assert caught.value.hint


def test_a_window_is_refused(spark):
    with pytest.raises(NotSupportedError, match="window"):
        column_sql(F.sum("a").over(Window.partitionBy("b")))


def test_a_lambda_parameter_that_hides_a_column_is_refused(spark):
    """SQL would take the parameter for the column."""
    found = re.search(r"x_(\d+)", column_sql(F.transform("arr", lambda x: x)))
    assert found is not None
    number = int(found[1]) + 1
    for inner in [F.col(f"X_{number}"), F.expr(f"x_{number + 1} + 1")]:
        with pytest.raises(NotSupportedError, match="lambda"):
            column_sql(hidden(inner))


def hidden(inner: Column) -> Column:
    """A lambda with a column inside."""
    return F.transform("arr", lambda x: x + inner)


def test_texts_in_parentheses_never_become_something_else(spark):
    """What Spark's `expr` reads as one thing must not be another in parentheses: it is refused or reads alike."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    for text in [
        *["select a", "values (1)", "values + 1", "values", "map(1, 2)", "map a using 'x'", "table t", "from t"],
        *["with + 1", "a; b", "a;", "(a, b)", "a -- x", "a /* ) */", "/* x */ select a", "(select 1)", "'a' 'b'"],
        *["((a) + (b))", "select", "a.b", "values.a", "reduce(arr, 0, (x, y) -> x)", "r'\\' || 'x'", "table", "x -> x"],
    ]:
        try:
            inside = column_sql(F.expr(text))
        except NotSupportedError:
            continue
        assert same_text(parser, text.rstrip(";"), inside), (text, inside)


def same_text(parser, text: str, inside: str) -> bool:
    """Whether Spark's parser reads both as the same expression, the numbers of names aside."""
    return parser.parseExpression(text).canonicalized().equals(parser.parseExpression(inside).canonicalized())


def instant(micros: int) -> datetime.datetime:
    """So many microseconds after 1970."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)


numbers = st.sampled_from(["a", "b", "tiny", "`we ird.x```"]).map(F.col) | st.integers(-9, 9).map(F.lit)
strings = st.just("s").map(F.col) | st.text(alphabet="a'\\\"`%_${}n-*/\n🐎", max_size=6).map(F.lit)
others = st.one_of(
    st.dates(datetime.date(1600, 1, 1)).map(F.lit),
    st.integers(-8_520_336_000_000_000, 253_000_000_000_000_000).map(lambda micros: F.lit(instant(micros))),
    st.floats().map(F.lit),
    st.floats(width=32).map(lambda value: F.lit(value).cast("float")),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9).map(F.lit),
    st.binary(max_size=5).map(F.lit),
    st.timedeltas(datetime.timedelta(-9000), datetime.timedelta(9000)).map(F.lit),
    st.integers(-(2**63), 2**63 - 1).map(F.lit),
)


def number_trees(inner):
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] - p[1]),
        inner.map(lambda c: c * 2),
        inner.map(lambda c: -c),
        inner.map(F.abs),
        pair.map(lambda p: F.coalesce(*p)),
        pair.map(lambda p: F.when(p[0] > p[1], p[0]).otherwise(p[1])),
        pair.map(lambda p: F.element_at(F.array(*p), 2)),
        pair.map(lambda p: F.aggregate(F.array(*p), F.lit(0).cast("bigint"), lambda x, y: x + y.cast("bigint"))),
        inner.map(lambda c: c.cast("string").try_cast("bigint")),
    )


number_columns = st.recursive(numbers, number_trees, max_leaves=6)
string_columns = st.recursive(
    strings, lambda inner: st.tuples(inner, inner).map(lambda p: F.concat(*p)) | inner.map(F.upper), max_leaves=3
)


def truth_leaves():
    number_pair, string_pair = st.tuples(number_columns, number_columns), st.tuples(string_columns, string_columns)
    return st.one_of(
        st.just("flag").map(F.col),
        number_pair.map(lambda p: p[0] < p[1]),
        number_pair.map(lambda p: p[0] != p[1]),
        number_pair.map(lambda p: p[0].eqNullSafe(p[1])),
        string_pair.map(lambda p: p[0] == p[1]),
        string_pair.map(lambda p: p[0].contains(p[1])),
        st.tuples(number_columns, st.lists(st.integers(-9, 9), max_size=3)).map(lambda p: p[0].isin(p[1])),
        string_columns.map(lambda c: c.isNull()),
    )


truths = st.recursive(
    truth_leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] & p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] | p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] == p[1]),
        inner.map(lambda c: ~c),
        inner.map(lambda c: c.isNull()),
    ),
    max_leaves=6,
)


@settings(max_examples=max(6, min(24, settings.default.max_examples // 50)))  # Spark compiles each of them
@given(data=st.data())
def test_random_trees_mean_the_same_as_their_texts(data, frame):
    columns = st.one_of(truths, number_columns, string_columns, others)
    trees = data.draw(st.lists(columns, min_size=5, max_size=10))
    means_the_same(frame, {str(index): tree for index, tree in enumerate(trees)})


def test_the_sign_of_zero_and_nan_survive(spark, frame):
    row = frame.selectExpr(column_sql(F.lit(-0.0)), column_sql(F.lit(float("nan")))).first()
    assert math.copysign(1, row[0]) == -1
    assert math.isnan(row[1])


def test_a_chain_longer_than_sparks_own_stack_becomes_text(spark, frame):
    """Spark itself cannot evaluate this Column; as text it can."""
    text = column_sql(column_cases.or_chain(400))
    assert frame.where(text).count() == frame.where("a >= 0").count() == 2
