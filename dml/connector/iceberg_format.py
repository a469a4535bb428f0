"""The format `iceberg` of Spark's readers and writers. Driver, classic Spark only.

Output: a data source of that name, so that `df.write.format("iceberg").saveAsTable("lake.db.t")` comes to the catalog
of the table: Spark looks for the format first, and would find none. `load` and `save` with the name of a table never
come here (`dml.spark.format_calls`); of what comes it says what to give instead. Where Iceberg's JAR is there, Spark
finds the JAR's.
"""

import importlib
from typing import Any, Final

from py4j.java_gateway import JavaObject

from dml.connector.java import java_class
from dml.connector.workers import PYTHON_SOURCES
from dml.errors import NotSupportedError
from dml.spark.jvm import python_function

__all__ = ["register_format"]

ICEBERG: Final = "iceberg"


def register_format(session_state: JavaObject) -> None:
    """Let a session have the format, unless it has one of that name.

    Args:
        session_state: What the session keeps in the JVM.
    """
    manager = session_state.dataSourceManager()
    if not manager.dataSourceExists(ICEBERG):
        source = java_class(PYTHON_SOURCES + "UserDefinedPythonDataSource")(python_function(data_source()))
        manager.registerDataSource(ICEBERG, source)


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
