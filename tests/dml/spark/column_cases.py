"""Columns whose SQL text must mean what they mean, for the tests on classic Spark and on Spark Connect."""

import datetime
from decimal import Decimal

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - as PySpark's users write it

from dml.spark.versions import INSTALLED_FEATURES, Feature

FRAME = """
    SELECT * FROM VALUES
      (1, 10L, 1.5D, 'abc', DATE '2020-01-01', TIMESTAMP '2020-06-01 12:00:00', array(1, 2, 3),
       named_struct('b', 1, 'we ird', 'x'), map('k', 1), true, 5Y, 1.20BD, X'0102', 7),
      (2, NULL, CAST('NaN' AS DOUBLE), 'it''s', DATE '1999-12-31', NULL, array(),
       NULL, map(), false, NULL, -3.45BD, NULL, NULL),
      (-3, -5L, -0.0D, NULL, NULL, TIMESTAMP '1950-01-01 00:00:00', NULL,
       named_struct('b', -1, 'we ird', NULL), NULL, NULL, -1Y, NULL, X'', -7)
    AS t(a, b, d, s, dt, ts, arr, st, m, flag, tiny, num, bin, `we ird.x```)
"""


def cases(spark):
    """Columns by a short description: those that Spark itself runs."""
    found = older_cases() | (newer_cases() if Feature.CLASSIC_COLUMN_NODES in INSTALLED_FEATURES else {})
    try:
        spark.range(1).select(F.call_function("system.builtin.upper", F.lit("a"))).collect()
    except AnalysisException:
        found.pop("call with path", None)  # Spark resolves the path since 4.2
    return found


def newer_cases():
    """What Columns have had since PySpark 4.0: functions, and texts that stay texts."""
    a, s, ts, flag = map(F.col, ("a", "s", "ts", "flag"))
    return {
        "in a scalar subquery": a.isin(F.expr("(select max(id) from range(3))")),
        "try cast": s.try_cast("int"),
        "text with subquery": a < F.expr("(select max(id) from range(2))"),
        "text with in": F.expr("a in (select id from range(2))") | flag,
        "text with exists": F.expr("exists (select 1 from range(2) where id = a)"),
        "timestamp functions": F.timestamp_add("HOUR", F.lit(3), ts),
        "timestamp difference": F.timestamp_diff(
            "MINUTE", ts, F.lit(datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC))
        ),
        "call with path": F.call_function("system.builtin.upper", s),
        "text with interval": F.expr("dt + interval 1 month"),
        "like with escape": F.like(s, F.lit("a/%"), F.lit("/")),
    }


def older_cases():
    """What Columns have had before."""
    names = ["a", "b", "d", "s", "dt", "ts", "arr", "st", "m", "flag"]
    a, b, d, s, dt, ts, arr, st, m, flag = map(F.col, names)
    odd = F.col("`we ird.x```")
    return {
        **literals(),
        "equal": a == 1,
        "not equal": a != 1,
        "null safe": b.eqNullSafe(None),
        "null safe with column": b.eqNullSafe(a),
        "less": (a < 2) & (b <= 10) | (d > 0) & (d >= a),
        "precedence": (a + 1) * 2 - b / 3 % 2,
        "reverse": 1 - a + 2 * (3 - (b - a)),
        "minus of minus": -(-a) - (-F.lit(5)) - F.lit(-5),  # noqa: B002 - on purpose
        "negated minimum": -F.lit(-5),
        "not": ~flag,
        "not of or": ~(flag | (a > 1)),
        "is null": s.isNull() & ~b.isNotNull(),
        "is null of comparison": (a == b).isNull() == flag,
        "is nan": F.isnan(d),
        "in": a.isin(1, 2, 3),
        "in one": a.isin(1),
        "in nothing": a.isin(),
        "in with null": b.isin(10, None),
        "in strings": s.isin("abc", "it's", "back\\slash"),
        "in columns": a.isin(b, odd),
        "between": a.between(0, 5),
        "between strings": s.between("a", "b'"),
        "like": s.like("a%") | s.like("it'_"),
        "like escapes": s.like("%\\%%"),
        "ilike": s.ilike("A%"),
        "rlike": s.rlike("^\\w+'s$"),
        "starts": s.startswith("a") | s.endswith("s") | s.contains("t'"),
        "bitwise": a.bitwiseAND(3).bitwiseOR(8).bitwiseXOR(1) + F.bitwise_not(a),
        "shift": F.shiftleft(a, 2) + F.shiftright(a, 1),
        "power": a**2,
        "odd name": odd + 1,
        "case": F.when(a > 1, "big").when(a < 0, F.lit(None)).otherwise(s),
        "case without else": F.when(flag, 1),
        "cast": s.cast("string").cast("binary"),
        "cast to decimal": a.cast("decimal(20,5)"),
        "cast number": d.cast("float"),
        "cast to varchar": s.cast("varchar(2)"),
        "cast struct": st.cast("struct<`q r`:bigint,z:string>"),
        "cast date": dt.cast("timestamp"),
        "field": F.col("st.b"),
        "field with a blank": F.col("st.`we ird`"),
        "get field": st.getField("b") + st["b"],
        "get field with a blank": st.getField("we ird"),
        "element": F.array(F.lit(7), a)[0],
        "element of a function": F.split(F.lit("a,b"), ",")[1],
        "map value": m["k"],
        "element with column": F.array(F.lit(7), F.lit(8))[F.abs(a) % 2],
        "nested element": F.array(F.struct(a.alias("q")))[0]["q"],
        "alias": (a + 1).alias("x"),
        "inner alias": (a.alias("x") + 1) > b.alias("y"),
        "struct": F.struct(a, F.col("st.b"), st["b"], a + 1),
        "struct with alias": F.struct(a.alias("q"), F.col("st.b"), (a + 1), F.lit(1), s.alias("with `tick")),
        "struct of struct": F.struct(F.struct(a.alias("i")).alias("o")),
        "named struct": F.named_struct(F.lit("p'q"), a, F.lit("r"), s),
        "array": F.array(a, b),
        "map": F.create_map(F.lit("k"), a),
        "upper": F.upper(F.concat(s, F.lit("-"), s)),
        "substr": s.substr(1, 2),
        "trim": F.trim(s),
        "if": F.expr("if(flag, 1, 2)"),
        "coalesce": F.coalesce(b, a, F.lit(0)),
        "date functions": F.date_add(dt, 3) > F.to_date(F.lit("2020-01-02")),
        "date minus date": dt - F.lit(datetime.date(2019, 1, 1)),
        "timestamp minus interval": ts - F.lit(datetime.timedelta(hours=5, microseconds=3)),
        "window struct": F.date_trunc("month", ts),
        "extract": F.extract(F.lit("YEAR"), dt),
        "transform": F.transform(arr, lambda x: x + a),
        "transform with index": F.transform(arr, lambda x, i: x * i),
        "nested lambdas": F.transform(arr, lambda x: F.aggregate(arr, x, lambda acc, y: acc + y * x)),
        "exists": F.exists(arr, lambda x: x > a) | F.forall(arr, lambda x: x.isNotNull()),
        "filter": F.filter(arr, lambda x: (x % 2) == 1),
        "sort": F.array_sort(arr, lambda x, y: y - x),
        "map filter": F.map_filter(m, lambda k, v: (k == "k") & (v > 0)),
        "lambda struct": F.transform(arr, lambda x: F.struct(x.alias("v"), a.alias("w"))),
        "lambda field": F.transform(F.array(st), lambda x: x["b"]),
        "lambda with text": F.transform(arr, lambda x: x + F.expr("a * 2 -- half\n")),
        "call function": F.call_function("abs", a),
        "call operator": F.call_function("`+`", a, b),
        "text": F.expr("a + 1") * 2,
        "text with or": F.expr("flag or a > 1") & (a > 100),
        "text with comment": F.expr("a + 1 -- no ) here"),
        "text with strings": F.expr("concat(s, ')', \"(\", `s`)"),
        "text with case": F.expr("case when flag then 1 else 2 end") + 1,
        "long chain": or_chain(20),
        "substituted text": F.concat(F.lit("${spark.app.name}"), F.lit("${env:HOME}"), F.lit("$")),
        "count distinct text": F.expr("cast(a as string) || s"),
        "dynamic like": F.like(s, F.concat(F.lit("a"), F.lit("%"))),
    }


def or_chain(length):
    """Many alternatives, as a loop builds them."""
    column = F.col("a") == -1
    for value in range(length):
        column = column | (F.col("a") == value)
    return column


def literals():
    """Literals of all types that PySpark has."""
    utc = datetime.UTC
    values = {
        "int": 5,
        "negative int": -5,
        "least int": -(2**31),
        "long": 2**40,
        "least long": -(2**63),
        "double": 1.5,
        "small double": 4.9e-324,
        "big double": -1.7976931348623157e308,
        "tenth": 0.1,
        "nan": float("nan"),
        "infinity": float("inf"),
        "negative infinity": float("-inf"),
        "negative zero": -0.0,
        "true": True,
        "false": False,
        "null": None,
        "string": "plain",
        "quote": "it's",
        "doubled quote": "''",
        "backslash": "a\\b\\",
        "escape": "\\n\\u0041\\'",
        "double quote": '"x"',
        "newline": "a\nb\tc\r",
        "unicode": "žluťoučký 🐎 \x00 end",
        "percent": "\\%\\_",
        "comment": "-- /* ",
        "empty": "",
        "variable": "${spark.app.name}",
        "decimal": Decimal("1.20"),
        "big decimal": Decimal("-12345678901234567890123456789012345.678"),
        "small decimal": Decimal("1E-9"),
        "exponent decimal": Decimal("1E+5"),
        "zero decimal": Decimal("0.00"),
        "date": datetime.date(2020, 2, 29),
        "old date": datetime.date(1582, 10, 4),
        "last date": datetime.date(9999, 12, 31),
        "timestamp": datetime.datetime(2020, 1, 1, 2, 3, 4, 5),  # noqa: DTZ001 - in the zone of Python
        "aware timestamp": datetime.datetime(2020, 10, 25, 0, 30, tzinfo=utc),
        "second aware timestamp": datetime.datetime(2020, 10, 25, 1, 30, tzinfo=utc),
        "old timestamp": datetime.datetime(1600, 1, 1, 2, 3, 4, 500, tzinfo=utc),
        "time": datetime.time(23, 59, 59, 999999),
        "interval": datetime.timedelta(days=1, seconds=3, microseconds=4),
        "negative interval": datetime.timedelta(days=-400, microseconds=1),
        "binary": b"\x00\xff'",
        "empty binary": b"",
        "list": [1, 2, 3],
        "list of strings": ["it's", "b"],
    }
    if Feature.TIME not in INSTALLED_FEATURES:
        values.pop("time")
    found = {f"literal {name}": F.lit(value) for name, value in values.items()}
    for kind in ["tinyint", "smallint", "timestamp_ntz", "array<int>", "interval day to second", "decimal(5,1)"]:
        found[f"null of {kind}"] = F.lit(None).cast(kind)
    return found


def refused(frame, function):
    """Columns that have no SQL text, each with a part of the message; of a DataFrame and a Python function."""
    column = F.col("a")
    return {
        "belongs to a DataFrame": column + frame.a,
        "user-defined function": F.udf(function)(column) == "x",
        "withField": F.col("st").withField("b", F.lit(1)),
        "dropFields": F.col("st").dropFields("b"),
        "sort order": column.asc(),
        "star": F.count("*"),
        "which SQL does not have": F.product(column),
        "not one expression": F.expr("a, b"),
        "which is not an expression": F.expr("a) or (true"),
        "begins like a query": F.expr("values (1)"),
        "without an alias": F.expr("a as c"),
        "without a name": F.struct(column.alias("q"), F.col("st")["b"]),
        "which holds '${'": F.col("`${x}`"),
        "of several names": column.alias("p", "q"),
        "subquery": F.lit(1) + frame.select("a").scalar(),
        "nested too deeply": deep(400),
        "outer()": column.outer(),
    }


def deep(levels):
    """A tree that is nothing but depth."""
    column = F.col("a")
    for _ in range(levels):
        column = column + 1
    return column
