"""Detect built-in SQL functions that the user has replaced. Driver.

Before Spark 4.3, `spark.udf.register("upper", f)` and CREATE OR REPLACE TEMPORARY FUNCTION replace the function in the
session's registry. Spark 4.3 searches functions along a path, on which built-in functions come first by default.
Source: Spark's `FunctionRegistry` and `FunctionResolution`.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml.spark.jvm import settings_of
from dml.spark.versions import Feature, server_has

__all__ = ["replaces_any"]

ORDER: Final = "spark.sql.functionResolution.sessionOrder"
BUILT_INS_FIRST: Final = frozenset({"second", "last"})
PATH: Final = "spark.sql.path.enabled"
BUILT_IN_CLASSES: Final = "org.apache.spark.sql.catalyst."


def replaces_any(spark: SparkSession, names: Iterable[str]) -> bool:
    """Return whether a user-defined function may replace one of these built-in functions.

    Args:
        spark: The session, classic or Connect. It is queried only if there is a name.
        names: Names of built-in functions.
    """
    names = list(names)
    if not names:
        return False
    get = settings_of(spark)
    if (get(ORDER, None) or "last").lower() not in BUILT_INS_FIRST or (get(PATH, None) or "false").lower() != "false":
        return True
    if server_has(spark, Feature.FUNCTION_PATH):
        return False
    return not all(is_built_in(spark, name) for name in names)


def is_built_in(spark: SparkSession, name: str) -> bool:
    try:
        found = spark.catalog.getFunction(name)
    except PySparkException:
        return False
    return (found.className or "").startswith(BUILT_IN_CLASSES)
