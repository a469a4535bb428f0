"""The ways to run a statement: parameters, Python, `spark.sql`, the JVM, threads; and what each returns."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

from dml.errors import AlreadyExistsError, AnalysisError, DmlError, ErrorKind, NotFoundError, SqlError
from dml.result import Result
from dml.session import Session
from tests.conftest import session_settings
from tests.dml.engine.conftest import Kind
from tests.lake import Lake

pytestmark = pytest.mark.spark


def test_named_and_positional_parameters(any_kind: Kind) -> None:
    """In conditions, values, sources and VALUES."""
    kind, name, session = any_kind, any_kind.filled(), any_kind.lake.session
    assert session.sql(f"DELETE FROM {name} WHERE id = :id", {"id": 1}).rows_deleted == 1
    assert session.sql(f"UPDATE {name} SET s = ? WHERE id IN (?, ?)", ["it's", 2, 3]).rows_updated == 2
    merge = (
        f"MERGE INTO {name} t USING (SELECT CAST(:a AS BIGINT) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET s = :s"
    )
    assert session.sql(merge, {"a": 4, "s": "merged"}).rows_updated == 1
    assert session.sql(f"INSERT INTO {name} VALUES (:id, :k, :s)", {"id": 50, "k": None, "s": "new"}).rows_inserted == 1
    assert session.sql(f"SELECT id FROM {name} WHERE s = :s", {"s": "new"}).collect() == [(50,)]
    found = {row[0]: row[2] for row in kind.lake.rows(name)}
    assert {i: found[i] for i in (2, 3, 4, 50)} == {2: "it's", 3: "it's", 4: "merged", 50: "new"}
    assert 1 not in found


def test_columns_that_differ_by_case_alone_are_not_guessed_among(lake: Lake) -> None:
    """Other engines make such tables."""
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "ID", LongType(), required=False))
    lake.session.registry.catalogs["lake"].create_table("db.twins", schema).append(
        pa.table({"id": [1000, 2000], "ID": [1, 2]})
    )
    for statement in (
        "DELETE FROM db.twins WHERE id < 100",
        "UPDATE db.twins SET id = 7",
        "INSERT INTO db.twins VALUES (1, 2)",
    ):
        with pytest.raises(AnalysisError, match="differ by case alone") as caught:
            lake.session.sql(statement)
        assert caught.value.kind is ErrorKind.AMBIGUOUS_COLUMN
    lake.session.spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert lake.session.sql("DELETE FROM db.twins WHERE ID = 2").rows_deleted == 1
        assert lake.session.sql("SELECT id FROM db.twins").collect() == [(1000,)]
    finally:
        lake.session.spark.conf.unset("spark.sql.caseSensitive")


def test_with_case_sensitivity_a_table_has_columns_that_differ_by_case_alone(lake: Lake, spark: SparkSession) -> None:
    """Iceberg's Java library does the same; without the setting, both reject such columns."""
    sql = lake.session.sql
    with session_settings(spark, {"spark.sql.caseSensitive": "true"}):
        sql("CREATE TABLE db.cased (a INT, A STRING, n INT) PARTITIONED BY (A)")
        sql("INSERT INTO db.cased VALUES (1, 'x', 1), (2, 'y', 2), (3, 'z', 3)")
        sql("INSERT INTO db.cased BY NAME SELECT 'w' AS A, 4 AS n, 4 AS a")
        assert sql("UPDATE db.cased SET A = 'X', n = a + 10 WHERE a = 1").rows_updated == 1
        assert sql("DELETE FROM db.cased WHERE A = 'y'").rows_deleted == 1
        source = "SELECT 3 AS a, 'm' AS A, 30 AS n UNION ALL SELECT 5, 'v', 5"
        matched = "WHEN MATCHED THEN UPDATE SET t.A = s.A, n = s.n WHEN NOT MATCHED THEN INSERT *"
        sql(f"MERGE INTO db.cased t USING ({source}) s ON t.a = s.a {matched}")
        rows = [(1, "X", 11), (3, "m", 30), (4, "w", 4), (5, "v", 5)]
        assert lake.rows("SELECT a, A, n FROM db.cased") == rows
        assert lake.rows("SELECT a FROM db.cased WHERE A = 'm' AND a > 1") == [(3,)]
        sql("CREATE TABLE db.copied AS SELECT a, A FROM db.cased")
        assert lake.rows("SELECT A, a FROM db.copied WHERE a = 5") == [("v", 5)]
        sql("ALTER TABLE db.copied ALTER COLUMN A COMMENT 'upper'; ALTER TABLE db.copied DROP COLUMN A")
        assert lake.rows("SELECT * FROM db.copied") == [(1,), (3,), (4,), (5,)]
        with pytest.raises(AlreadyExistsError, match="'a' is defined twice"):
            sql("CREATE TABLE db.twice (a INT, a STRING)")
    with pytest.raises(AnalysisError, match="differ by case alone"):
        sql("DELETE FROM db.cased WHERE a = 1")
    for statement in ("CREATE TABLE db.twice (a INT, A STRING)", "CREATE TABLE db.twice AS SELECT 1 AS a, 2 AS A"):
        with pytest.raises(DmlError, match=r"more than case|already exists"):
            sql(statement)


def test_a_parameter_is_a_value_and_never_sql(lake: Lake) -> None:
    """Whatever stands in it."""
    name = lake.create("id INT, s STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    assert lake.session.sql(f"DELETE FROM {name} WHERE s = :s", {"s": "a' OR '1' = '1"}).rows_deleted == 0
    assert len(lake.rows(name)) == 2


def test_the_python_api_says_what_sql_says(any_kind: Kind) -> None:
    """Text and Columns alike, a DataFrame as the source, all clauses."""
    kind, name, session = any_kind, any_kind.filled(), any_kind.lake.session
    assert session.delete(name, col("id") == 1).rows_deleted == 1
    assert session.delete(f"{name} AS t", "t.id = 2").rows_deleted == 1
    assert session.update(name, {"s": lit("it's"), "k": None}, col("id").isin(3, 5)).rows_updated == 2
    assert session.update(name, {"k": 7}, "id = 6").rows_updated == 1
    source = session.spark.createDataFrame([(4, "m"), (8, "gone"), (40, "new")], "id BIGINT, s STRING")
    result = (
        session.merge_into(source, f"{name} AS t", col("t.id") == col("s.id"), source_alias="s")
        .whenMatched(col("s.s") == "gone")
        .delete()
        .whenMatched()
        .update({"s": col("s.s")})
        .whenNotMatched()
        .insert({"id": col("s.id"), "k": 4, "s": "upper(s.s)"})
        .whenNotMatchedBySource(col("t.id") > 9)
        .delete()
        .merge()
    )
    assert (result.rows_deleted, result.rows_updated, result.rows_inserted) == (3, 1, 1)
    expected = {
        (0, 0, "s0"),
        (3, None, "it's"),
        (4, 1, "m"),
        (5, None, "it's"),
        (6, 7, "s6"),
        (7, 1, "s7"),
        (9, 2, "s9"),
        (40, 4, "NEW"),
    }
    assert set(kind.lake.rows(name)) == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, t: s.update(t, 5), "mapping of columns to values, not int"),
        (lambda s, t: s.update(t, {5: 1}), "name of a column is a text, not int"),
        (lambda s, t: s.update(t, {"s": date(2020, 1, 31)}), "number, a truth value or None, not date"),
        (lambda s, t: s.update(t, {"s": 1}, 5), "SQL text or a PySpark Column, not int"),
        (lambda s, t: s.delete(t, ["id = 1"]), "SQL text or a PySpark Column, not list"),
        (lambda s, t: s.merge_into([(1,)], t, "true"), "a query in parentheses, not list"),
        (lambda s, t: s.merge_into(t, t, None), "SQL text or a PySpark Column, not NoneType"),
        (lambda s, t: s.merge_into(t, t, "true", source_alias=5), "source_alias is a text, not int"),
        (lambda s, t: s.merge_into(t, t, "true", source_alias=""), "source_alias is empty"),
        (lambda s, t: s.merge_into(t, t, "true").whenMatched(5), "SQL text or a PySpark Column, not int"),
        (lambda s, t: s.merge_into(t, t, "true").whenNotMatched().insert(["id"]), "mapping of columns"),
        (lambda s, t: s.remove_orphan_files(t, dry_runs=True), "no option 'dry_runs'. Did you mean 'dry_run'"),
        (lambda s, t: s.remove_orphan_files(t, location=5), "location is a text, not int"),
        (lambda s, t: s.remove_orphan_files(t, dry_run="yes"), "dry_run is True or False, not str"),
        (lambda s, t: s.remove_orphan_files(t, max_concurrent_deletes=True), "is a whole number, not bool"),
        (lambda s, t: s.remove_orphan_files(t, equal_schemes={"s3a": 3}), "is a mapping of texts to texts, not dict"),
        (lambda s, t: s.remove_orphan_files(t, prefix_mismatch_mode=1), "is a text, not int"),
    ],
)
def test_arguments_of_another_type_are_refused_with_what_they_should_be(
    lake: Lake, call: Callable[[Session, str], object], message: str
) -> None:
    """Before anything runs: no TypeError of ours, no text that means something else."""
    name = lake.create("id BIGINT, s STRING")
    before = lake.state(name)
    with pytest.raises(AnalysisError, match=message):
        call(lake.session, name)
    assert lake.state(name) == before


def test_the_counts_of_results_and_summaries(balanced_kind: Kind) -> None:
    """What was matched, changed, added and removed."""
    name, session = balanced_kind.filled(), balanced_kind.lake.session
    deleted = session.delete(name, "id IN (1, 5, 6)")
    assert (deleted.command, deleted.mode, deleted.rows_matched, deleted.rows_deleted) == (
        "DELETE",
        balanced_kind.mode,
        3,
        3,
    )
    assert deleted.row.asDict() == {
        "num_affected_rows": 3,
        "num_updated_rows": 0,
        "num_deleted_rows": 3,
        "num_inserted_rows": 0,
    }
    if balanced_kind.copy_on_write:
        assert (deleted.data_files_removed, deleted.data_files_rewritten, deleted.delete_files_added) == (2, 2, 0)
        assert deleted.summary["operation"] == "overwrite"
    else:
        assert (deleted.data_files_removed, deleted.data_files_added, deleted.delete_files_added) == (0, 0, 2)
        assert deleted.summary["operation"] == "delete"
    assert deleted.snapshot_id == balanced_kind.lake.table(name).current_snapshot().snapshot_id
    again = session.delete(name, "id IN (1, 7)")
    assert again.rows_deleted == 1
    nothing = session.update(name, {"s": "'x'"}, "id = 999")
    assert (nothing.rows_matched, nothing.changed, nothing.snapshot_id) == (0, False, None)
    assert nothing.row.num_affected_rows == 0


def test_explain_changes_nothing_and_tells_the_mode(kind: Kind) -> None:
    name, lake = kind.filled(), kind.lake
    before = lake.state(name)
    for statement in (
        f"DELETE FROM {name} WHERE id % 2 = 1",
        f"UPDATE {name} SET s = 'x' WHERE k = 1",
        f"MERGE INTO {name} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ):
        (row,) = lake.session.sql(f"EXPLAIN {statement}").collect()
        assert kind.mode in row[0]
    lake.session.sql(f"EXPLAIN INSERT INTO {name} VALUES (1, 1, 'x')").collect()
    assert lake.state(name) == before


def test_spark_sql_runs_statements_from_python_and_from_the_jvm(kind: Kind) -> None:
    """Commands run when `sql` is called; queries and errors come back as ours."""
    name, spark = kind.filled(), kind.lake.session.spark
    result = spark.sql(f"DELETE FROM lake.{name} WHERE id = 1")
    assert isinstance(result, Result)
    assert result.rows_deleted == 1
    row = spark._jsparkSession.sql(f"UPDATE lake.{name} SET s = 'jvm' WHERE id IN (2, 3)").collectAsList().get(0)
    assert row.getAs("num_updated_rows") == 2
    found = spark._jsparkSession.sql(f"SELECT count(*) FROM lake.{name} WHERE s = 'jvm'").collectAsList().get(0)
    assert found.getLong(0) == 2
    assert spark.sql(f"SELECT max(id) FROM lake.{name} WHERE k = 0").collect() == [(3,)]
    assert spark.sql("SELECT 1").collect() == [(1,)]
    with pytest.raises(DmlError, match="nope"):
        spark.sql(f"DELETE FROM lake.{name} WHERE nope = 1")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {t} SET id = 1, id = 2",
        "MERGE INTO {t} USING s WHEN",
        "DELETE {t}",
        "ALTER TABLE {t} CREATE TAG v1 RETAIN 1 DAY",
    ],
)
def test_spark_sql_reports_mistakes_in_statements_on_tables_without_a_catalog(lake: Lake, statement: str) -> None:
    """Spark would report that there is no such table."""
    name = lake.create("id INT")
    text = statement.format(t=name)
    lake.session.enable()
    try:
        with pytest.raises(SqlError) as by_spark_sql:
            lake.session.spark.sql(text)
        with pytest.raises(ParseException):
            lake.session.spark.sql(statement.format(t="default.nothing_of_ours") + " ,")
    finally:
        lake.session.disable()
    with pytest.raises(SqlError) as by_lake_sql:
        lake.session.sql(text)
    assert str(by_spark_sql.value) == str(by_lake_sql.value)


def test_threads_change_different_tables_at_once(lake: Lake) -> None:
    """Each statement finds its own rows, through the session and through `spark.sql`."""
    names = [lake.create("id BIGINT, s STRING") for _ in range(3)]

    def work(name: str) -> int:
        lake.session.sql(f"INSERT INTO {name} SELECT id, 'a' FROM range(10)")
        lake.session.spark.sql(f"UPDATE lake.{name} SET s = '{name}' WHERE id > 4")
        result = lake.session.sql(f"DELETE FROM {name} WHERE id = 9")
        assert isinstance(result, Result)
        assert result.rows_deleted is not None
        return result.rows_deleted

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, names)) == [1, 1, 1]
    for name in names:
        assert lake.rows(f"SELECT count(*) FROM {name} WHERE s = '{name}'") == [(4,)]


def test_threads_change_one_table_at_once(lake: Lake) -> None:
    """Inserts of all threads arrive; retries take turns."""
    name = lake.create("id BIGINT, s STRING", **{"commit.retry.min-wait-ms": "5", "commit.retry.num-retries": "20"})

    def work(number: int) -> None:
        lake.session.sql(f"INSERT INTO {name} VALUES ({number}, 'thread')")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert [row[0] for row in lake.rows(name)] == list(range(8))


def test_several_catalogs_and_use(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A statement reads one catalog and writes another; USE decides what a short name means."""
    session = lake.session
    folder = tmp_path_factory.mktemp("other")
    session.add_catalog("other", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    session.sql("CREATE NAMESPACE IF NOT EXISTS other.db")
    session.sql("CREATE TABLE other.db.source (id BIGINT, s STRING)")
    session.sql("INSERT INTO other.db.source VALUES (1, 'from other'), (5, 'new')")
    name = lake.create("id BIGINT, s STRING")
    session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    session.sql(
        f"MERGE INTO {name} t USING other.db.source s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert lake.rows(name) == [(1, "from other"), (2, "b"), (5, "new")]
    current = (session.registry.current_catalog, session.registry.current_namespace)
    try:
        session.sql("USE other.db")
        assert session.delete("source", "id = 5").rows_deleted == 1
        assert session.table("source").collect() == [(1, "from other")]
        with pytest.raises(NotFoundError):
            session.delete(name)
        assert session.delete(f"lake.{name}", "id IN (SELECT id FROM source)").rows_deleted == 1
    finally:
        session.spark.catalog.setCurrentCatalog("spark_catalog")
        session.registry.current_catalog, session.registry.current_namespace = current
    assert lake.rows(name) == [(2, "b"), (5, "new")]


def test_a_branch_is_changed_alone(kind: Kind) -> None:
    """C12: main stays, and the branch is read by its name."""
    name, lake = kind.filled(), kind.lake
    table = lake.table(name)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    main = lake.rows(name)
    assert lake.session.delete(f"{name}.branch_audit", "id % 2 = 1").branch == "audit"
    lake.session.sql(f"UPDATE {name}.branch_audit SET s = 'b' WHERE id = 2")
    lake.session.sql(f"INSERT INTO {name}.branch_audit VALUES (70, 7, 'b')")
    lake.session.sql(
        f"MERGE INTO {name}.branch_audit t USING (SELECT 4L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    )
    assert lake.rows(name) == main
    found = {row[0]: row[2] for row in lake.rows(f"{name}.branch_audit")}
    assert found == {0: "s0", 2: "b", 6: "s6", 8: "s8", 10: "s10", 70: "b"}
    with pytest.raises(NotFoundError, match="does not exist"):
        lake.session.delete(f"{name}.branch_nope", "id = 1")


def test_write_audit_publish(kind: Kind) -> None:
    """C15 and C16: under a branch writes and reads go there, under an id the snapshot is staged."""
    name, lake = kind.filled(), kind.lake
    conf = lake.session.spark.conf
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    head = lake.table(name).current_snapshot().snapshot_id
    conf.set("spark.wap.branch", "staging")
    try:
        assert len(lake.rows(name)) == 12
        lake.session.delete(name, "id = 1")
        lake.session.update(name, {"s": "'w'"}, "id = 2")
        assert len(lake.rows(name)) == 11
    finally:
        conf.unset("spark.wap.branch")
    assert len(lake.rows(name)) == 12
    conf.set("spark.wap.id", "job-1")
    try:
        lake.session.delete(name, "id = 3")
        lake.session.delete(name, "k = 2")
    finally:
        conf.unset("spark.wap.id")
    table = lake.table(name)
    assert table.current_snapshot().snapshot_id == head
    staged = [one for one in table.snapshots() if one.summary.additional_properties.get("wap.id") == "job-1"]
    assert len(staged) == 2
    assert len(lake.rows(name)) == 12
