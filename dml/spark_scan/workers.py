"""Python functions on executors, as readers and writers of Spark's connector API. Driver, classic Spark only.

Input: a function from Arrow batches to Arrow batches, and the schema of its output. Output: Spark's
`PythonPartitionReaderFactory` or `PythonBatchWriterFactory`, which runs the function in a Python worker. Spark uses the
same classes for Python data sources.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from dml.errors import SetupError
from dml.spark.bridge.gateway import JavaObject, Py4JError, python_function
from dml.spark.bridge.internals import SparkClass, works
from dml.spark.bridge.names import (
    BATCH_WRITER_FACTORY,
    NO_CATALOGS,
    PYTHON_PARTITION,
    PYTHON_SOURCE,
    READER_FACTORY,
    STREAM_WRITER_FACTORY,
)
from dml.spark.bridge.values import scala_none, struct_type
from dml.spark.handlers import session_key
from dml.spark.versions import INSTALLED_FEATURES, Feature
from dml.spark.workers import check_workers

__all__ = [
    "BatchFunction",
    "WriteFunction",
    "can_run_tasks",
    "has_python_readers",
    "python_partition",
    "python_source",
    "reader_factory",
    "stream_writer_factory",
    "user_data_source",
    "writer_factory",
]


FACTORY_PARAMETERS: Final = ("UserDefinedPythonDataSource", "byte[]", "StructType")
"""The parameter types of factories of readers and writers; Scala options may follow."""


MESSAGE = StructType([StructField("message", BinaryType())])
"""The output of a write function: one row per task."""

UNFIT: Final[set[str]] = set()
"""Sessions whose workers failed the check for RowDelta's tasks, which runs once per session."""

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
WriteFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def has_python_readers() -> bool:
    """Return whether RowDelta can use the classes by which this Spark runs Python data sources on executors."""
    return Feature.DATA_SOURCE_V2 in INSTALLED_FEATURES and works(
        "the readers of Python data sources", try_readers, NO_CATALOGS
    )


def try_readers() -> None:
    """Make the objects that read a scan, to test that Spark's internals work."""
    schema = StructType([StructField("value", BinaryType())])
    reader_factory(iter, schema)  # it never runs
    python_partition(0, b"")


def can_run_tasks(spark: SparkSession) -> bool:
    """Return True if the workers of a session can run RowDelta's tasks. Use it only if Spark can do the work too."""
    key = session_key(spark)
    if key in UNFIT:
        return False
    try:
        check_workers(spark)
    except (SetupError, PySparkException, Py4JError):
        UNFIT.add(key)
        return False
    return True


def python_partition(number: int, data: bytes) -> JavaObject:
    """Build a partition of a scan.

    Args:
        number: The index of the partition.
        data: The function's input: the only value of the first column of the only row.
    """
    return PYTHON_PARTITION.new(number, bytearray(data))


def reader_factory(function: BatchFunction, schema: StructType) -> JavaObject:
    """Build the factory of partition readers.

    Args:
        function: Reads a partition, in a Python worker.
        schema: The columns of its output.
    """
    return factory(READER_FACTORY, function, schema, struct_type(schema))


def writer_factory(function: WriteFunction, schema: JavaObject) -> JavaObject:
    """Build the factory of the writers of a batch job.

    Args:
        function: Writes the rows of one task, in a Python worker, and returns one message for the driver.
        schema: The columns of the rows.
    """
    return factory(BATCH_WRITER_FACTORY, function, MESSAGE, schema)


def stream_writer_factory(function: WriteFunction, schema: JavaObject) -> JavaObject:
    """Build the factory of the writers of a micro-batch; see `writer_factory`."""
    return factory(STREAM_WRITER_FACTORY, function, MESSAGE, schema)


def factory(
    kind: SparkClass, function: BatchFunction | WriteFunction, result: StructType, schema: JavaObject
) -> JavaObject:
    """Build a factory of readers or writers.

    Args:
        kind: Spark's class.
        function: The function that runs in a Python worker.
        result: The columns of its output.
        schema: The schema that Spark's class requires.
    """
    pickled = bytearray(CloudPickleSerializer().dumps((function, result)))  # type: ignore[no-untyped-call]
    # The options are about the job's artifacts and, from Spark 4.1 on, its session.
    rest = kind.further_arguments(FACTORY_PARAMETERS, {"Option": scala_none})
    return kind.new(python_source(), pickled, schema, *rest)


def python_source() -> JavaObject:
    """Return a data source that Spark requires to find the Python of the functions. It is never used."""
    return user_data_source(python_function(len))


def user_data_source(function: JavaObject) -> JavaObject:
    """Return Spark's object for a Python data source.

    Args:
        function: The class of the data source, as Spark runs it in Python workers.
    """
    return PYTHON_SOURCE.new(function)
