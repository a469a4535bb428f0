"""Run as a program: many small queries in one session, and what stays of them. Prints JSON, one line for each measure.

    python -m tests.dml.connector.many_queries WAREHOUSE ROUNDS

A round is one query of each kind. What Spark keeps for its web pages is kept short; it is measured after garbage has
been collected on both sides of py4j, when nothing more goes.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import py4j.java_gateway
import pytest
from pyspark.sql import SparkSession

import dml
from dml.session import Session
from tests.conftest import part_settings

__all__ = ["KINDS"]

MEASURES = 4
WARMING = 200
KEPT_SHORT = {
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}


def by_catalog(spark: SparkSession, lake: Session, number: int) -> None:
    assert spark.table("lake.db.t").where(f"id = {number % 10}").select("v").collect() == [("v",)]


def by_statement(spark: SparkSession, lake: Session, number: int) -> None:
    assert spark.sql(f"SELECT v FROM lake.db.t WHERE id = {number % 10}").collect() == [("v",)]


def by_join(spark: SparkSession, lake: Session, number: int) -> None:
    text = f"SELECT a.v FROM lake.db.t a JOIN lake.db.t b ON a.id = b.id WHERE a.id = {number % 10}"
    assert spark.sql(text).collect() == [("v",)]


def by_lake_table(spark: SparkSession, lake: Session, number: int) -> None:
    assert lake.table("db.t").where(f"id < {number % 10}").count() == number % 10


def of_metadata(spark: SparkSession, lake: Session, number: int) -> None:
    assert spark.table("lake.db.t.snapshots").count() == 1
    assert spark.catalog.tableExists("lake.db.t")


def of_a_view(spark: SparkSession, lake: Session, number: int) -> None:
    lake.table("db.t").createOrReplaceTempView("seen")
    assert spark.sql("SELECT count(*) FROM seen").first() == (10,)


def that_fails(spark: SparkSession, lake: Session, number: int) -> None:
    for run in (lambda: spark.table("lake.db.nothing"), lambda: spark.sql("SELECT nothing FROM lake.db.t")):
        with pytest.raises(Exception, match="nothing"):
            run()


def of_another_session(spark: SparkSession, lake: Session, number: int) -> None:
    if number % 10 == 0:
        assert spark.newSession().table("lake.db.t").count() == 10


KINDS: tuple[Callable[[SparkSession, Session, int], None], ...] = (
    by_catalog,
    by_statement,
    by_join,
    by_lake_table,
    of_metadata,
    of_a_view,
    that_fails,
    of_another_session,
)


def changes(lake: Session, number: int) -> None:
    """Statements that change a table, which is dropped after them: its metadata would grow."""
    lake.sql("CREATE TABLE db.changed (id BIGINT, v STRING) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    lake.sql("INSERT INTO db.changed VALUES (1, 'a'), (2, 'b')")
    lake.sql(
        f"MERGE INTO db.changed t USING (SELECT 2L AS id, '{number}' AS v) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *"
    )
    lake.spark.range(3).selectExpr("id", "'c' AS v").writeTo("lake.db.changed").append()
    assert lake.sql("DELETE FROM db.changed WHERE id = 2").rows_deleted == 2
    lake.sql("DROP TABLE db.changed PURGE")


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(spark: SparkSession) -> dict[str, int]:
    """What is left when garbage is collected, until there is no less."""
    jvm = spark._jvm
    gateway = spark.sparkContext._gateway
    assert jvm is not None
    assert gateway is not None
    server = py4j.java_gateway.JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    bindings = server.getGateway().getBindings()
    memory = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    found: dict[str, int] = {}
    for _ in range(8):
        gc.collect()
        jvm.System.gc()
        time.sleep(0.5)
        now = {
            "java_objects": int(bindings.size()),
            "proxies": len(gateway.gateway_property.pool),
            "heap": int(memory.getHeapMemoryUsage().getUsed()),
            "threads": int(jvm.java.lang.Thread.activeCount()),
            "python_objects": len(gc.get_objects()),
        }
        found = {name: min(value, found.get(name, value)) for name, value in now.items()}
    return {**found, "resident": resident()}


def main(warehouse: str, rounds: int) -> None:
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**KEPT_SHORT, **part_settings()}.items():
        builder = builder.config(name, value)
    spark = dml.extend(builder).getOrCreate()
    lake = dml.connect(warehouse, spark=spark, progress=False)
    lake.enable()
    lake.sql("CREATE NAMESPACE db")
    lake.sql("CREATE TABLE db.t (id BIGINT, v STRING)")
    lake.sql("INSERT INTO db.t SELECT id, 'v' FROM range(10)")
    done = 0
    for part in (WARMING, *[rounds] * MEASURES):
        for _ in range(part):
            for kind in KINDS:
                kind(spark, lake, done)
            if done % 10 == 0:
                changes(lake, done)
            done += 1
        print(json.dumps({"rounds": done, **measure(spark)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
