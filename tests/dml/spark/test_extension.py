"""The parser inside Spark: what JVM callers see, and that Python callers see no difference."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.errors.exceptions import captured
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from dml import limits
from dml.errors import AnalysisError, ExecutionError, SetupError
from dml.result import Result
from dml.spark import extension, interception, replaced_methods
from dml.spark.bridge import internals
from dml.spark.bridge.gateway import CARRIED
from dml.spark.bridge.internals import SparkClass
from dml.spark.extension import EXTENDED, extend
from dml.spark.handlers import INHERITED, session_key
from dml.spark.versions import INSTALLED_FEATURES, Feature, sql_failure
from tests.dml.spark.conftest import LakeHandler

pytestmark = pytest.mark.spark


def jvm_rows(spark, text, *args):
    """The rows of a statement that comes from the JVM side."""
    return [str(row) for row in spark._jsparkSession.sql(text, *args).collectAsList()]


@pytest.mark.oldest
def test_without_a_handler_everything_is_sparks(spark):
    assert spark.conf.get(EXTENDED) == "true"
    assert spark.sql("SELECT 1 AS a").collect() == [(1,)]
    with pytest.raises(AnalysisException) as caught:
        spark.sql("DELETE FROM lake.t")
    assert sql_failure(caught.value).condition == "TABLE_OR_VIEW_NOT_FOUND"


@pytest.mark.oldest
def test_a_command_from_the_jvm_runs_once_and_gives_its_counts(spark, handler):
    assert jvm_rows(spark, "UPDATE lake.t SET a = 1") == ["[null,7,null,0]"]
    assert [text for text, _ in handler.calls] == ["UPDATE lake.t SET a = 1"]


@pytest.mark.oldest
def test_a_query_from_the_jvm_gives_its_rows(spark, handler):
    assert jvm_rows(spark, "SELECT * FROM lake.t") == [f"[{i}]" for i in range(5)]
    assert len(handler.calls) == 1


@pytest.mark.oldest
def test_asking_only_for_a_plan_runs_nothing(spark, handler):
    parser = spark._jsparkSession.sessionState().sqlParser()
    assert "DeleteFromTable" in parser.parsePlan("DELETE FROM lake.t WHERE x = 1").toString()
    jvm_rows(spark, "EXPLAIN DELETE FROM other.t")
    assert handler.calls == []


@pytest.mark.oldest
def test_other_parser_methods_are_delegated(spark, handler):
    parser = spark._jsparkSession.sessionState().sqlParser()
    assert parser.parseDataType("decimal(4,2)").toString() == "DecimalType(4,2)"
    assert parser.parseMultipartIdentifier("a.`b c`").mkString("|") == "a|b c"


@pytest.mark.oldest
def test_a_handler_that_cannot_tell_leaves_statements_and_names_to_spark(spark, handler, monkeypatch, caplog):
    """Whatever comes from the JVM is parsed, ours or not; a warning says why it was not looked at."""

    def fails(*_):
        raise AttributeError("_jsparkSession")

    monkeypatch.setattr(replaced_methods, "WARNED", set())
    monkeypatch.setattr(extension, "find_handler", fails)
    monkeypatch.setattr(extension, "inherit", fails)
    assert jvm_rows(spark, "SELECT 1 AS a") == ["[1]"]
    parser = spark._jsparkSession.sessionState().sqlParser()
    assert parser.parseMultipartIdentifier("a.`b c`").mkString("|") == "a|b c"
    (warning,) = (record.getMessage() for record in caplog.records if record.name == replaced_methods.__name__)
    assert "_jsparkSession" in warning


@pytest.mark.oldest
def test_a_catalog_that_fails_is_an_error_and_spark_does_not_answer_in_its_place(spark, handler, monkeypatch):
    """Spark may have a table of the same name."""

    def fails(*_):
        raise ExecutionError("The catalog 'lake' does not answer")

    monkeypatch.setattr(extension, "find_handler", fails)
    with pytest.raises(ExecutionError, match="does not answer"):
        jvm_rows(spark, "SELECT 1 AS a")


@pytest.mark.parametrize("constant", ["COMMAND_RESULT", "UTILS"])
def test_a_command_whose_result_spark_cannot_take_does_not_run(spark, handler, monkeypatch, constant):
    """Its caller would see an error, and the rows would have changed."""
    monkeypatch.setattr(internals, "TRIED", {})
    monkeypatch.setattr(internals, "WARNED", set())
    monkeypatch.setattr(extension, constant, SparkClass("org.apache.spark.sql.OfLater"))
    with pytest.raises(SetupError, match=r"org\.apache\.spark\.sql\.OfLater .* in PySpark \d"):
        jvm_rows(spark, "UPDATE lake.t SET a = 1")
    assert handler.calls == []


def test_execute_immediate_of_a_text_that_only_spark_knows_is_ours(spark, handler):
    spark.sql("DECLARE OR REPLACE VARIABLE statement_text STRING")
    spark.sql("SET VARIABLE statement_text = concat('UPDATE la', 'ke.t SET a = 1')")
    assert spark.sql("EXECUTE IMMEDIATE statement_text").collect() == [(None, 7, None, 0)]
    assert len(handler.calls) == 1


def test_an_error_of_ours_reaches_python_through_the_jvm_as_it_was_raised(spark, handler):
    spark.sql("DECLARE OR REPLACE VARIABLE statement_text STRING")
    spark.sql("SET VARIABLE statement_text = concat('UPDATE la', 'ke.fail SET a = 1')")
    with pytest.raises(AnalysisError, match="There is no such table") as caught:
        spark.sql("EXECUTE IMMEDIATE statement_text")
    assert caught.value.position == len("UPDATE lake.")


@pytest.fixture
def as_the_jvm_sees(monkeypatch):
    """Errors of the JVM as PySpark makes them, without the Python exception that they stand for."""
    monkeypatch.setattr(captured, "convert_exception", captured.convert_exception.__wrapped__)


@pytest.mark.usefixtures("as_the_jvm_sees")
def test_an_error_of_ours_reaches_the_jvm_with_its_class_and_text(spark, handler):
    """As what callers of a parser catch: Spark's servers send it to their clients."""
    with pytest.raises(ParseException) as caught:
        spark._jsparkSession.sql("DELETE FROM lake.fail")
    assert "AnalysisError: There is no such table (line 1, column 18)" in str(caught.value)
    assert caught.value.getCondition() == "USER_RAISED_EXCEPTION"
    assert "Traceback" not in str(caught.value)


@pytest.mark.usefixtures("as_the_jvm_sees")
def test_an_error_of_spark_inside_a_handler_reaches_the_jvm_as_text(spark, handler):
    with pytest.raises(Py4JJavaError) as caught:
        spark._jsparkSession.sql("DELETE FROM lake.spark_error")
    assert "UNRESOLVED_COLUMN" in caught.value.java_exception.getMessage()


@pytest.mark.usefixtures("as_the_jvm_sees")
def test_errors_that_nobody_collects_do_not_pile_up(spark, handler):
    for _ in range(limits.CARRIED_EXCEPTIONS + 5):
        with pytest.raises(ParseException):
            spark._jsparkSession.sql("DELETE FROM lake.fail")
    assert len(CARRIED) == limits.CARRIED_EXCEPTIONS
    CARRIED.clear()


@pytest.mark.oldest
def test_sparks_own_errors_come_out_unchanged(spark, handler):
    for text, error, condition in [
        ("SELEC 1", ParseException, "PARSE_SYNTAX_ERROR"),
        ("SELECT nope", AnalysisException, "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION"),
    ]:
        with pytest.raises(error) as caught:
            spark.sql(text)
        assert type(caught.value).__module__ == "pyspark.errors.exceptions.captured"
        assert sql_failure(caught.value).condition == condition
    with pytest.raises(ParseException) as caught:
        spark._jsparkSession.sql("SELEC 1")
    assert "py4j" not in str(caught.value).split("JVM stacktrace")[0]


@pytest.mark.oldest
def test_parameters_reach_spark_and_the_handler(spark, handler):
    assert spark.sql("SELECT :x AS a", args={"x": 3}).collect() == [(3,)]
    assert spark.sql("SELECT ? AS a, ? AS b", args=[3, "y"]).collect() == [(3, "y")]
    statements = (
        ("DELETE FROM lake.t WHERE a = :a", {"a": lit(3)._jc}),
        ("DELETE FROM lake.t WHERE a = ?", spark._jvm.PythonUtils.toArray([lit("z")._jc])),
    )
    if Feature.JVM_PARAMETERS not in INSTALLED_FEATURES:
        for text, values in statements:
            with pytest.raises(Exception, match=r"A parameter in a statement .* needs PySpark 4\.1 or later"):
                jvm_rows(spark, text, values)
        assert handler.calls == []
        return
    for text, values in statements:
        jvm_rows(spark, text, values)
    named, positional = (args for _, args in handler.calls)
    assert spark.range(1).select(named["a"], positional[0]).collect() == [(3, "z")]


@pytest.mark.oldest
def test_several_threads_at_once_run_their_own_statements(spark, handler):
    def one(i):
        rows = jvm_rows(spark, f"UPDATE lake.t{i} SET a = 1")
        return rows, spark.sql(f"SELECT {i} AS a").collect()[0].a

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(one, range(12)))
    assert outcomes == [(["[null,7,null,0]"], i) for i in range(12)]
    assert sorted(text for text, _ in handler.calls) == sorted(f"UPDATE lake.t{i} SET a = 1" for i in range(12))


@pytest.mark.oldest
def test_the_answers_of_callbacks_are_there_when_the_jvm_takes_them(spark, handler, monkeypatch):
    """py4j forgets objects in a thread of its own, which may be faster than the answer that names them."""
    original = ClientServerConnection._call_proxy

    def slow(self, *arguments):
        message = original(self, *arguments)
        gc.collect()
        time.sleep(0.1)
        return message

    monkeypatch.setattr(ClientServerConnection, "_call_proxy", slow)
    assert spark.sql("SELECT 1 AS a").collect() == [(1,)]
    parser = spark._jsparkSession.sessionState().sqlParser()
    assert parser.parseMultipartIdentifier("a.`b c`").mkString("|") == "a|b c"
    assert jvm_rows(spark, "UPDATE lake.t SET a = 1") == ["[null,7,null,0]"]
    with pytest.raises(ParseException, match="SELEKT"):
        spark.sql("SELEKT 1")


@pytest.mark.oldest
def test_what_a_handler_asks_of_spark_is_not_ours_again(spark, handler):
    with pytest.raises(AnalysisException) as caught:
        spark.sql("SELECT * FROM lake.recursive")
    assert sql_failure(caught.value).condition == "TABLE_OR_VIEW_NOT_FOUND"
    assert len(handler.calls) == 1


def test_a_new_session_has_the_parser_and_what_it_inherits(spark, handler):
    other = spark.newSession()
    assert jvm_rows(other, "UPDATE lake.t SET a = 1") == ["[null,7,null,0]"]
    assert isinstance(other.sql("DELETE FROM lake.t"), Result)
    (heir,) = handler.heirs
    assert [text for text, _ in heir.calls] == ["UPDATE lake.t SET a = 1", "DELETE FROM lake.t"]
    assert heir.bound_to == session_key(other)
    assert handler.calls == []


def test_a_session_that_was_disabled_inherits_nothing_and_can_be_enabled_again(spark, handler):
    other = spark.newSession()
    interception.disable(other)
    with pytest.raises(AnalysisException):
        other.sql("SELECT * FROM lake.t")
    with pytest.raises(AnalysisException):
        other._jsparkSession.sql("SELECT * FROM lake.t")
    interception.enable(other, handler.registered())
    try:
        assert jvm_rows(other, "UPDATE lake.t SET a = 1") == ["[null,7,null,0]"]
    finally:
        interception.disable(other)


def test_a_clone_has_what_its_origin_has_and_nothing_when_that_is_disabled(spark, handler):
    second = spark.newSession()
    newest = LakeHandler(second)
    interception.enable(second, newest.registered())
    try:
        clone = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        assert jvm_rows(clone, "UPDATE lake.t SET a = 1") == ["[null,7,null,0]"]
        assert (len(handler.heirs), newest.heirs) == (1, [])
        interception.disable(spark)
        with pytest.raises(AnalysisException):
            clone.sql("SELECT * FROM lake.t")
        assert jvm_rows(spark.newSession(), "UPDATE lake.t SET a = 1") == ["[null,7,null,0]"]
        assert len(newest.heirs) == 1
    finally:
        interception.disable(second)


def test_what_a_session_inherited_is_forgotten_with_it(spark, handler):
    """Spark itself may keep one session that nobody uses any more, but not all."""
    keys = []
    for _ in range(3):
        other = spark.newSession()
        keys.append(session_key(other))
        assert jvm_rows(other, "UPDATE lake.t SET a = 1") == ["[null,7,null,0]"]
    del other
    deadline = time.monotonic() + 60
    while len(INHERITED.keys() & keys) > 1 and time.monotonic() < deadline:
        gc.collect()
        spark._jvm.System.gc()
        time.sleep(0.2)
    assert len(INHERITED.keys() & keys) <= 1


def test_errors_of_sparks_parser_arrive_as_themselves(spark, handler):
    """Spark falls back on another method where one raises a ParseException, and knows no other class."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    for method in (parser.parseDataType, parser.parseTableSchema, parser.parseExpression, parser.parseTableIdentifier):
        with pytest.raises(ParseException) as caught:
            method("a b c d (")
        assert sql_failure(caught.value).condition == "PARSE_SYNTAX_ERROR"
    assert parser.parseTableSchema("a INT").simpleString() == "struct<a:int>"


def test_extending_a_builder_keeps_its_settings_and_the_active_session(spark):
    builder = extend(SparkSession.builder.config("spark.rowdelta.test", "kept"))
    assert builder.getOrCreate() is spark
    assert spark.conf.get("spark.rowdelta.test") == "kept"


def test_pyspark_finds_its_classes_without_asking_for_them_again(spark, monkeypatch):
    """A column takes one class of PySpark's: to make it asks the JVM for no class by its name."""
    asked = []
    send = ClientServerConnection.send_command

    def sent(connection, command):
        asked.append(command)
        return send(connection, command)

    col("first")
    monkeypatch.setattr(ClientServerConnection, "send_command", sent)
    assert str(col("a") + 1) == "Column<'+(a, 1)'>"
    lookups = [command for command in asked if command.startswith("r\nu\n")]
    assert asked
    assert lookups == []
