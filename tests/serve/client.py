"""Run as a program: `client.py URL PART...` in an environment without RowDelta. Prints what the test looks at.

Of several parts it prints what became of each, as JSON: `done`, or a traceback.
"""

import importlib.util
import json
import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pyspark
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf


def new_session() -> SparkSession:
    """A session of this client's own."""
    return SparkSession.builder.remote(sys.argv[1]).create()


def rows(spark: SparkSession, text: str) -> list[tuple]:
    return [tuple(row) for row in spark.sql(text).collect()]


def failure(spark: SparkSession, text: str, *parameters: object) -> Exception:
    """The error of a statement."""
    try:
        spark.sql(text, *parameters).collect()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError(f"{text} did not fail")


def statements() -> None:
    """Every kind of statement, each of which changes the table once."""
    spark = new_session()
    for text in (
        "CREATE NAMESPACE IF NOT EXISTS lake.db",
        "CREATE TABLE lake.db.s (id BIGINT, s STRING)",
    ):
        assert rows(spark, text) == [], text
    assert rows(spark, "INSERT INTO lake.db.s VALUES (1, 'a'), (2, 'b'), (3, 'c')") == [(3, 0, 0, 3)]
    assert rows(spark, "DELETE FROM lake.db.s WHERE id = 1") == [(1, 0, 1, 0)]
    assert rows(spark, "UPDATE lake.db.s SET s = upper(s) WHERE id = 2") == [(1, 1, 0, 0)]
    spark.createDataFrame([(3, "new"), (4, "new")], "id BIGINT, s STRING").createOrReplaceTempView("updates")
    merge = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    assert rows(spark, f"MERGE INTO lake.db.s t USING updates u ON t.id = u.id {merge}") == [(2, 1, 0, 1)]
    frame = spark.range(5, 6).select("id", sf.lit("frame").alias("s"))
    text = f"MERGE INTO lake.db.s t USING {{frame}} u ON t.id = u.id {merge}"
    assert [tuple(row) for row in spark.sql(text, frame=frame).collect()] == [(1, 0, 0, 1)]
    if pyspark.__version__ < "4.1":
        refused = failure(spark, "DELETE FROM lake.db.s WHERE id = :id", {"id": 5})
        assert "A parameter in a statement from the JVM, not from Python, needs PySpark 4.1" in str(refused)
        assert rows(spark, "DELETE FROM lake.db.s WHERE id = 5") == [(1, 0, 1, 0)]
    else:
        assert spark.sql("DELETE FROM lake.db.s WHERE id = :id", {"id": 5}).collect()[0].num_deleted_rows == 1
    assert rows(spark, "SELECT * FROM lake.db.s ORDER BY id") == [(2, "B"), (3, "new"), (4, "new")]
    history = rows(spark, "SELECT operation FROM lake.db.s.snapshots ORDER BY committed_at")
    assert len(history) == 6, history  # nothing ran twice, and nothing failed to
    added = spark.sql("ALTER TABLE lake.db.s ADD COLUMN n INT")
    assert (added.collect(), added.collect()) == ([], [])
    result = spark.sql("DELETE FROM lake.db.s WHERE id = 4")
    assert [result.collect()[0].num_deleted_rows for _ in range(3)] == [1, 1, 1]
    assert result.schema.names[0] == "num_affected_rows"
    frame = spark.sql("SELECT id FROM lake.db.s")
    assert frame.where("id > 2").count() == 1
    assert frame.join(spark.range(3), "id").count() == 1
    assert "DELETE" in rows(spark, "EXPLAIN DELETE FROM lake.db.s WHERE id = 2")[0][0]
    assert frame.count() == 2
    assert ("db", "s", False) in rows(spark, "SHOW TABLES IN lake.db")
    assert [row[0] for row in rows(spark, "DESCRIBE TABLE lake.db.s")][:3] == ["id", "s", "n"]
    assert rows(spark, "SHOW COLUMNS IN s IN lake.db") == [("id",), ("s",), ("n",)]
    assert rows(spark, "COMMENT ON TABLE lake.db.s IS 'of a client'") == rows(spark, "REFRESH TABLE lake.db.s") == []
    assert rows(spark, "COMMENT ON COLUMN lake.db.s.id IS 'the key'") == []
    assert rows(spark, "DESCRIBE TABLE lake.db.s")[0] == ("id", "bigint", "the key")
    assert rows(spark, "ANALYZE TABLE lake.db.s COMPUTE STATISTICS FOR ALL COLUMNS") == []
    assert rows(spark, "ALTER TABLE lake.db.s CREATE BRANCH audit RETAIN 7 DAYS") == []
    assert rows(spark, "CREATE TABLE lake.db.like LIKE lake.db.s") == []
    assert rows(spark, "ALTER TABLE lake.db.like CREATE BRANCH first") == []  # of a table without a snapshot
    found = [rows(spark, f"SELECT name FROM lake.db.{name}.refs ORDER BY name") for name in ("s", "like")]
    assert found == [[("audit",), ("main",)], [("first",)]]
    assert rows(spark, "ALTER TABLE lake.db.s DROP BRANCH audit") == rows(spark, "DROP TABLE lake.db.like") == []
    immediate = "EXECUTE IMMEDIATE 'DELETE FROM lake.db.s WHERE id = 3'"
    if pyspark.__version__ < "4.1":
        assert "Table does not support deletes" in str(failure(spark, immediate))
        immediate = "DELETE FROM lake.db.s WHERE id = 3"
    assert rows(spark, immediate) == [(1, 0, 1, 0)]
    assert len(rows(spark, "SELECT 1 FROM lake.db.s.snapshots")) == 8
    spark.stop()


def calls() -> None:
    """PySpark's calls that find tables by name."""
    spark = new_session()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db").collect()
    spark.range(3).writeTo("lake.db.c").create()
    spark.range(3, 5).writeTo("lake.db.c").append()
    assert spark.table("lake.db.c").count() == 5
    assert spark.read.table("lake.db.c").where("id >= 3").count() == 2
    spark.table("lake.db.c").createOrReplaceTempView("v")
    assert spark.sql("SELECT max(id) AS m FROM v").collect()[0].m == 4
    assert spark.catalog.tableExists("lake.db.c")
    assert "c" in [table.name for table in spark.catalog.listTables("lake.db")]
    assert spark.sql("DELETE FROM lake.db.c WHERE id = 0").collect()[0].num_deleted_rows == 1
    assert spark.table("lake.db.c").count() == 4
    stream = spark.readStream.option("stream-scan-all-files", "true").table("lake.db.c").where("id > 2")
    query = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert rows(spark, "SELECT id FROM seen ORDER BY id") == [(3,), (4,)]
    spark.stop()


def types_as_text() -> None:
    """Types that are named by a text, which Spark parses with one method after the other."""
    spark = new_session()
    assert spark.createDataFrame([("1",)], "string").schema.simpleString() == "struct<value:string>"
    assert spark.createDataFrame([("1",)], "a string").select(sf.col("a").cast("int")).collect() == [(1,)]
    parsed = spark.createDataFrame([('{"a": 1}',)], "j string").select(sf.from_json("j", "a INT").alias("s"))
    assert parsed.collect()[0].s.a == 1
    text = spark.range(1).select(sf.from_json(sf.lit("[1, 2]"), "array<int>").alias("x"))
    assert text.collect()[0].x == [1, 2]
    spark.stop()


def errors() -> None:
    """Errors say what is wrong, and have the classes that programs catch."""
    spark = new_session()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db").collect()
    spark.sql("CREATE TABLE IF NOT EXISTS lake.db.e (id BIGINT)").collect()
    for text, words in {
        "DELETE FROM lake.db.nothing": ("NotFoundError", "'lake.db.nothing'", "line 1, column 13"),
        "DELETE FROM lake.db.e WHERE nope = 1": ("AnalysisError", "There is no column 'nope'"),
        "DELETE FROM lake.db.e WHERE": ("SqlError", "The statement ends too early"),
        "CREATE TABLE lake.db.e (id BIGINT)": ("AlreadyExistsError",),
    }.items():
        error = failure(spark, text)
        assert isinstance(error, AnalysisException), repr(error)
        assert all(word in str(error) for word in words), str(error)
    for text, condition in {
        "DELETE FROM lake.db.nothing": "TABLE_OR_VIEW_NOT_FOUND",
        "SELECT * FROM lake.db.nothing": "TABLE_OR_VIEW_NOT_FOUND",
        "DROP TABLE lake.db.nothing": "TABLE_OR_VIEW_NOT_FOUND",
        "CREATE TABLE lake.db.e (id BIGINT)": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "SHOW TABLES IN lake.nothing": "SCHEMA_NOT_FOUND",
        "DELETE FROM lake.db.e WHERE nope = 1": "USER_RAISED_EXCEPTION",
    }.items():
        assert failure(spark, text).getCondition() == condition, text
    error = failure(spark, "SELEC 1")
    assert isinstance(error, ParseException), repr(error)
    assert error.getCondition() == "PARSE_SYNTAX_ERROR"
    spark.sql("INSERT INTO lake.db.e VALUES (0)").collect()
    text = str(failure(spark, "UPDATE lake.db.e SET id = 1 / id"))
    assert "DataError" in text, text
    assert "ivision by zero" in text, text
    assert rows(spark, "SELECT * FROM lake.db.e") == [(0,)]
    spark.stop()


def sessions() -> None:
    """Each has its own views, settings and namespace."""
    first, second = new_session(), new_session()
    first.sql("CREATE NAMESPACE IF NOT EXISTS lake.one").collect()
    first.sql("CREATE TABLE lake.one.t (id BIGINT, at TIMESTAMP)").collect()
    first.sql("USE lake.one").collect()
    first.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    for session, number in ((first, 1), (second, 2)):
        session.sql(f"SELECT {number}L AS id").createOrReplaceTempView("mine")
    first.sql("INSERT INTO t SELECT id, TIMESTAMP '2020-01-01 00:00:00' FROM mine").collect()
    second.sql("INSERT INTO lake.one.t SELECT id, TIMESTAMP '2020-01-01 00:00:00' FROM mine").collect()
    assert isinstance(failure(second, "DELETE FROM t"), AnalysisException)  # the first one's namespace
    found = rows(second, "SELECT id, CAST(at AS STRING) FROM lake.one.t ORDER BY id")
    assert found == [(1, "2019-12-31 15:00:00"), (2, "2020-01-01 00:00:00")], found
    first.stop()
    assert second.sql("SELECT count(*) AS n FROM lake.one.t").collect()[0].n == 2
    second.stop()


def together() -> None:
    """Several clients at once: every statement is there once."""
    spark = new_session()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db").collect()
    spark.sql("CREATE TABLE lake.db.many (client BIGINT, n BIGINT)").collect()

    def work(client: int) -> int:
        session = new_session()
        session.range(1).select(sf.lit(client).alias("client")).createOrReplaceTempView("me")
        for n in range(2):
            session.sql(f"INSERT INTO lake.db.many SELECT client, {n} FROM me").collect()
        found = session.sql("SELECT count(*) AS n FROM lake.db.many t JOIN me ON t.client = me.client").collect()
        session.stop()
        return found[0].n

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [2] * 4
    expected = [(client, n) for client in range(4) for n in range(2)]
    assert rows(spark, "SELECT * FROM lake.db.many ORDER BY client, n") == expected
    assert len(rows(spark, "SELECT 1 FROM lake.db.many.snapshots")) == 8
    spark.stop()


def interrupt() -> None:
    """A statement that is interrupted ends, and changes nothing."""
    spark = new_session()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db").collect()
    spark.sql("CREATE TABLE lake.db.i (id BIGINT)").collect()
    ended: list[Exception] = []

    def long() -> None:
        try:
            spark.sql("INSERT INTO lake.db.i SELECT max(id * 3 % 7) FROM range(1000000000000)").collect()
        except Exception as error:  # noqa: BLE001
            ended.append(error)

    thread = threading.Thread(target=long)
    thread.start()
    deadline = time.monotonic() + 120
    while thread.is_alive() and time.monotonic() < deadline:
        time.sleep(3)
        spark.interruptAll()
    thread.join(60)
    assert not thread.is_alive()
    assert len(ended) == 1, ended
    assert rows(spark, "SELECT * FROM lake.db.i") == []
    assert rows(spark, "INSERT INTO lake.db.i VALUES (1)")[0][0] == 1
    spark.stop()


def token() -> None:
    """One statement without a token, with a wrong one, and with the right one."""
    for given in (None, "wrong", os.environ["RIGHT_TOKEN"]):
        if given is not None:
            os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = given
        try:
            print(rows(new_session(), "SELECT 1 AS a"))
        except Exception as error:  # noqa: BLE001
            print("refused", "UNAUTHENTICATED" in str(error))


assert importlib.util.find_spec("dml") is None, "this environment has RowDelta"
PARTS = {
    part.__name__: part for part in (statements, calls, types_as_text, errors, sessions, together, interrupt, token)
}


def outcome(part: str) -> str:
    """Run a part, and return what became of it."""
    try:
        PARTS[part]()
    except Exception:  # noqa: BLE001 - the other parts run all the same
        return traceback.format_exc()
    return "done"


if len(sys.argv) > 3:
    print(json.dumps({part: outcome(part) for part in sys.argv[2:]}))
else:
    PARTS[sys.argv[2]]()
    print("done")
