"""A handler that stands for the engine: it takes statements that name `lake`."""

import threading
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from dml.errors import AnalysisError
from dml.result import Result
from dml.spark import interception
from dml.spark.handlers import Arguments, Binding, StatementHandler, session_key


class LakeHandler:
    """Answers queries with five rows and commands with seven updated rows; `fail` in the text is an error."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.calls: list[tuple[str, Arguments]] = []
        self.lock = threading.Lock()
        self.heirs: list[LakeHandler] = []
        self.bound_to = session_key(spark)

    def registered(self) -> StatementHandler:
        return StatementHandler(
            handles=self.handles,
            run=self.run,
            is_query=self.is_query,
            bequeath=self.bequeath,
        )

    def is_query(self, text: str) -> bool:
        return text.startswith("SELECT")

    def bequeath(self) -> Binding:
        heir = LakeHandler(self.spark)
        self.heirs.append(heir)

        def bound(spark: SparkSession) -> StatementHandler:
            heir.bound_to = session_key(spark)
            return heir.registered()

        return bound

    def handles(self, text: str) -> bool:
        return "lake" in text.lower()

    def run(self, text: str, args: Arguments) -> DataFrame | Result:
        with self.lock:
            self.calls.append((text, args))
        if "fail" in text:
            raise AnalysisError("There is no such table", sql=text, position=text.index("fail"))
        if "recursive" in text:
            return self.spark.sql(text)
        if "spark_error" in text:
            return self.spark.sql("SELECT nope FROM range(3)")
        if text.startswith("SELECT"):
            return self.spark.range(5).selectExpr("id AS lake_id")
        rows = self.spark.range(100).repartition(3).selectExpr("count(*) AS n").collect()[0].n
        return Result(command="UPDATE", table="lake.t", mode="none", rows_updated=7, rows_deleted=None if rows else 0)


@pytest.fixture
def handler(spark: SparkSession) -> Iterator[LakeHandler]:
    """The handler, registered for the test's session."""
    handler = LakeHandler(spark)
    interception.enable(spark, handler.registered())
    yield handler
    interception.disable(spark)
