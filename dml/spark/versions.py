"""Differences between PySpark versions, and replacements for missing features. Driver.

RowDelta runs on PySpark 3.5 and later. No other module compares versions: it calls a function here that uses the newest
API available, or tests for a `Feature`. If a required feature is missing, the user gets a one-line error.

Source: the release notes of Spark 4.0 and 4.1.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

import pyarrow as pa
import pyspark
import pyspark.util
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dml.errors import NotSupportedError
from dml.hints import page

__all__ = [
    "CLASSIC_PACKAGE",
    "INSTALLED_FEATURES",
    "MINIMUM_JAVA",
    "Feature",
    "SqlFailure",
    "arrow_table",
    "default_mode",
    "features_of",
    "frame_of_table",
    "is_client_only",
    "java_failure",
    "query_loggers",
    "require",
    "sql_failure",
]


class Feature(Enum):
    """A feature that some versions lack: its first version, and its name in messages."""

    ARROW_FRAMES = ((4, 0), "Arrow tables as DataFrames")
    BATCH_PROPERTIES = ((4, 0), "Batch limits in the properties of a job")
    CATALOG_FUNCTIONS = ((4, 3), "A function of Iceberg's that is called outside a statement")
    CATALOG_VIEWS = ((4, 2), "A view in a RowDelta catalog")
    CLASSIC_COLUMN_NODES = ((4, 0), "Trees of classic Columns")
    CONDITIONS = ((4, 0), "Error conditions by that name")
    CONNECT = ((4, 0), "Spark Connect")
    DATA_SOURCE_V2 = ((4, 0), "RowDelta's catalog inside Spark")
    DOUBLED_QUOTES = ((4, 1), "A doubled quote in a string")
    FUNCTION_PATH = ((4, 3), "A search path for functions")
    JAVA_17 = ((4, 0), "Java 17 as the minimum")
    JVM_PARAMETERS = ((4, 1), "A parameter in a statement from the JVM, not from Python,")
    METADATA_IN_STREAMS = ((4, 3), "A metadata column in a stream of a table")
    TABLE_RELOAD = ((4, 1), "Reloading a table for each job")
    TIME = ((4, 1), "A column of type TIME")
    TIME_TRAVEL_IN_PLANS = ((4, 1), "A plan that names the versions of its tables")
    REPARTITION_BY_ID = ((4, 1), "A partition for each number")

    @property
    def since(self) -> tuple[int, int]:
        """The first version with the feature."""
        return self.value[0]

    @property
    def called(self) -> str:
        """The name of the feature in messages."""
        return self.value[1]


def features_of(version: str) -> frozenset[Feature]:
    """Return the features of a Spark version, such as `4.1.2`; none if it does not begin with two numbers."""
    number = re.match(r"(\d+)\.(\d+)", version)
    return frozenset(each for each in Feature if number and each.since <= (int(number[1]), int(number[2])))


INSTALLED_FEATURES: Final = features_of(pyspark.__version__)
"""Features of the installed PySpark. A Connect server may have others: see `Runtime.features`."""


def require(feature: Feature) -> None:
    """Raise if this PySpark lacks a feature.

    Raises:
        NotSupportedError: it does.
    """
    if feature not in INSTALLED_FEATURES:
        needed = ".".join(map(str, feature.since))
        raise NotSupportedError(
            f"{feature.called} needs PySpark {needed} or later, and this is {pyspark.__version__}",
            hint=f"{page('Known limits')} lists what older versions cannot do",
        )


CLASSIC_PACKAGE: Final = (
    "org.apache.spark.sql.classic" if Feature.CLASSIC_COLUMN_NODES in INSTALLED_FEATURES else "org.apache.spark.sql"
)
"""The package of the JVM's classic sessions, which share only interfaces with those of Connect."""

MINIMUM_JAVA: Final = 17 if Feature.JAVA_17 in INSTALLED_FEATURES else 8
"""The oldest Java that this Spark runs on."""


# ---- sessions ---------------------------------------------------------------------------------------------------


def is_client_only() -> bool:
    """Return True if the installed PySpark has no Spark, and so can only be a Connect client."""
    found = getattr(pyspark.util, "is_remote_only", None)
    return bool(found()) if found else False


def default_mode() -> str:
    """Return the default mode of a session, `classic` or `connect`."""
    found = getattr(pyspark.util, "default_api_mode", None)
    return str(found()) if found else "classic"


def query_loggers() -> list[logging.Logger]:
    """Return the loggers that repeat query errors, which exceptions report already; none before Spark 4.0."""
    module = getattr(pyspark, "logger", None)
    names = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    return [module.PySparkLogger.getLogger(name) for name in names] if module else []


# ---- DataFrames and Arrow ---------------------------------------------------------------------------------------


def arrow_table(frame: DataFrame) -> pa.Table:
    """Collect a DataFrame as an Arrow table."""
    if Feature.ARROW_FRAMES in INSTALLED_FEATURES:
        return frame.toArrow()
    schema = to_arrow_schema(frame.schema)
    batches = cast("Any", frame)._collect_as_arrow()  # noqa: SLF001  no public name
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def frame_of_table(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Create a DataFrame from an Arrow table in the driver.

    Args:
        spark: The session.
        table: The rows.
        schema: The Spark types of the columns.
    """
    if Feature.ARROW_FRAMES in INSTALLED_FEATURES:
        return spark.createDataFrame(table, schema)
    if not table.num_rows:
        return spark.createDataFrame([], schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return spark.range(0, 1, 1, 1).mapInArrow(SentTable(stream=sink.getvalue().to_pybytes()).read, schema)


@dataclass(frozen=True, slots=True)
class SentTable:
    """An Arrow table that can be pickled and read in a worker.

    Attributes:
        stream: The table in Arrow's IPC stream format.
    """

    stream: bytes

    def read(self, _: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; called by `mapInArrow`."""
        with pa.ipc.open_stream(self.stream) as reader:
            yield from reader


# ---- errors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFailure:
    """The parts of a Spark exception, independent of the version.

    Attributes:
        condition: The error condition, or None.
        state: The SQLSTATE, or None.
        message: The message, or an empty string.
        fragments: The SQL fragments that it points at.
        cause: The underlying exception, or None.
    """

    condition: str | None
    state: str | None = None
    message: str = ""
    fragments: tuple[str, ...] = ()
    cause: BaseException | None = None


def sql_failure(error: PySparkException) -> SqlFailure:
    """Read the parts of a PySpark exception with the attribute names of this version."""
    if Feature.CONDITIONS in INSTALLED_FEATURES:
        return SqlFailure(
            condition=error.getCondition(),
            state=error.getSqlState(),
            message=str(error.getMessage() or getattr(error, "_desc", "") or ""),
            fragments=fragments_of(error.getQueryContext() or ()),
            cause=getattr(error, "_cause", None),
        )
    origin: Any = getattr(error, "_origin", None)
    is_sparks = origin is not None and error.getErrorClass() is not None
    return SqlFailure(
        condition=error.getErrorClass(),
        state=error.getSqlState(),
        message=str(getattr(error, "desc", None) or getattr(error, "message", None) or ""),
        fragments=fragments_of(origin.getQueryContext()) if is_sparks else (),
        cause=getattr(error, "cause", None),
    )


def java_failure(error: Any) -> SqlFailure:
    """Read the parts of a JVM exception.

    Raises:
        Py4JError: it is not one of Spark's own exceptions.
    """
    condition = error.getCondition() if Feature.CONDITIONS in INSTALLED_FEATURES else error.getErrorClass()
    return SqlFailure(
        condition=condition, state=error.getSqlState(), fragments=fragments_of(error.getQueryContext() or ())
    )


def fragments_of(contexts: Iterable[Any]) -> tuple[str, ...]:
    """Return the fragments of SQL contexts; before Spark 4.0 all contexts are SQL."""
    of_sql = (
        each
        for each in contexts
        if Feature.CONDITIONS not in INSTALLED_FEATURES or str(each.contextType()).endswith("SQL")
    )
    return tuple(context.fragment() for context in of_sql)
