"""The format `iceberg` of Spark's readers and writers. Driver, classic Spark only.

Output: a data source of that name, so that `df.write.format("iceberg").saveAsTable("lake.db.t")` comes to the catalog
of the table: Spark looks for the format first, and would find none. `load` and `save` with the name of a table never
come here (`dml.spark.format_calls`); of what comes it says what to give instead. Where Iceberg's JAR is there, Spark
finds the JAR's.
"""

import importlib
import threading
from typing import Any, Final

from pyspark.sql import SparkSession

from dml.errors import NotSupportedError
from dml.spark.jvm import python_function, session_state
from dml.spark_scan.workers import has_python_readers, user_data_source

__all__ = ["inherit_format", "register_format"]

ICEBERG: Final = "iceberg"

LOOKED_UP: Final = threading.Event()
"""Whether a session of this process has the format."""


def register_format(spark: SparkSession) -> None:
    """Let a session have the format, unless it has one of that name.

    Spark looks then for data sources of Python packages, once, in a Python process that it starts for it: nearly a
    second, which a program that never names the format need not spend.

    Args:
        spark: The session.
    """
    if not has_python_readers():
        return
    LOOKED_UP.set()
    inherit_format(spark)


def inherit_format(spark: SparkSession) -> None:
    """Let a session have the format where another one has it: Spark knows by then what else there is."""
    if not LOOKED_UP.is_set():
        return
    manager = session_state(spark).dataSourceManager()
    if not manager.dataSourceExists(ICEBERG):
        manager.registerDataSource(ICEBERG, user_data_source(python_function(data_source())))


def data_source() -> type:
    """The class of the format: PySpark before 4.0 has none to derive it from."""
    base = importlib.import_module("pyspark.sql.datasource").DataSource
    return type("Iceberg", (base,), {"name": classmethod(lambda _: ICEBERG), "__init__": refuse})


def refuse(*_: Any, **__: Any) -> None:
    """Say what to call instead. Worker.

    Raises:
        NotSupportedError: always.
    """
    raise NotSupportedError(
        "The format 'iceberg' loads and saves tables by their names, and this is none with a catalog in front",
        hint="Give load() and save() a name such as 'lake.db.t', or use spark.table('lake.db.t')",
    )
