"""All methods of PySpark that RowDelta replaces, in one table. Driver.

Each row has the class that defines the method, the method, a question (is the call about a RowDelta table?), the action
that runs such a call, and the kinds of sessions for which the method is replaced. `dml.spark.replaced_methods` guards
the questions, and restores the methods when no session has a handler any more. Methods and classes that a version of
PySpark lacks are skipped.
"""

from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from dml import dataframe_writers as writers
from dml import format_calls as formats
from dml.connector.install import register_format
from dml.spark.interception import SQL_REPLACEMENTS
from dml.spark.replaced_methods import Replacement, replace_methods
from dml.spark.runtime import Runtime, SessionKind
from dml.spark_connect import calls as connect
from dml.spark_connect.catalog import CURRENT_METHODS, NAMESPACE_METHODS, TABLE_METHODS

__all__ = ["PATCHES", "patch_pyspark"]

CLASSIC: Final = "pyspark.sql."
CONNECT: Final = "pyspark.sql.connect."
ANY_CLASSIC: Final = SessionKind.CLASSIC | SessionKind.CLASSIC_WITHOUT_CATALOGS

FORMAT: Final = partial(formats.register_format, register_format)

PATCHES: Final[tuple[Replacement, ...]] = (
    # SQL
    *SQL_REPLACEMENTS,
    # mergeInto and overwritePartitions; PySpark 3.5 has no mergeInto
    Replacement(
        f"{CLASSIC}classic.dataframe.DataFrame", "mergeInto", writers.handler_of_merge, writers.merge_into, ANY_CLASSIC
    ),
    Replacement(
        f"{CONNECT}dataframe.DataFrame", "mergeInto", writers.handler_of_merge, writers.merge_into, SessionKind.CONNECT
    ),
    Replacement(
        f"{CLASSIC}readwriter.DataFrameWriterV2",
        "__init__",
        writers.target_of_writer,
        writers.remember_target,
        ANY_CLASSIC,
    ),
    Replacement(
        f"{CLASSIC}readwriter.DataFrameWriterV2",
        "overwritePartitions",
        writers.handler_of_writer,
        writers.overwrite_partitions,
        ANY_CLASSIC,
    ),
    # load and save with the format `iceberg`
    Replacement(f"{CLASSIC}readwriter.DataFrameReader", "load", formats.find_load, formats.load, SessionKind.CLASSIC),
    Replacement(f"{CONNECT}readwriter.DataFrameReader", "load", formats.find_load, formats.load, SessionKind.CONNECT),
    Replacement(f"{CLASSIC}readwriter.DataFrameWriter", "save", formats.find_save, formats.save, SessionKind.CLASSIC),
    Replacement(f"{CONNECT}readwriter.DataFrameWriter", "save", formats.find_save, formats.save, SessionKind.CONNECT),
    Replacement(f"{CLASSIC}readwriter.DataFrameWriter", "format", FORMAT, formats.pass_through, SessionKind.CLASSIC),
    # streams
    *(
        Replacement(f"{package}streaming.readwriter.{owner}", name, question, action, kinds)
        for package, kinds in ((CLASSIC, ANY_CLASSIC), (CONNECT, SessionKind.CONNECT))
        for owner, name, question, action in (
            ("DataStreamReader", "load", formats.find_load, formats.load),
            ("DataStreamWriter", "start", formats.find_start, formats.start),
        )
    ),
    *(
        Replacement(f"{package}streaming.readwriter.{owner}", name, question, action, kinds)
        for package, kinds in ((CLASSIC, SessionKind.CLASSIC_WITHOUT_CATALOGS), (CONNECT, SessionKind.CONNECT))
        for owner, name, question, action in (
            ("DataStreamReader", "table", formats.find_stream_read, formats.refuse_read),
            ("DataStreamWriter", "toTable", connect.find_named_table, connect.to_table),
        )
    ),
    Replacement(
        f"{CLASSIC}streaming.readwriter.DataStreamWriter",
        "toTable",
        formats.find_update,
        formats.refuse_update,
        SessionKind.CLASSIC,
    ),
    # on Spark Connect, whose server does not know RowDelta's catalogs, the client resolves the names of tables
    Replacement(
        f"{CONNECT}readwriter.DataFrameReader", "table", connect.find_named_table, connect.read, SessionKind.CONNECT
    ),
    *(
        Replacement(
            f"{CONNECT}readwriter.DataFrameWriterV2",
            name,
            connect.find_write,
            partial(connect.write, action),
            SessionKind.CONNECT,
        )
        for name, action in connect.WRITER_ACTIONS.items()
    ),
    Replacement(
        f"{CONNECT}readwriter.DataFrameWriter",
        "insertInto",
        connect.find_named_table,
        connect.insert_into,
        SessionKind.CONNECT,
    ),
    Replacement(
        f"{CONNECT}readwriter.DataFrameWriter",
        "saveAsTable",
        connect.find_save,
        connect.save_as_table,
        SessionKind.CONNECT,
    ),
    *(
        Replacement(
            f"{CONNECT}catalog.Catalog",
            name,
            partial(connect.find_catalog_call, name),
            connect.run_call,
            SessionKind.CONNECT,
        )
        for name in (*TABLE_METHODS, *NAMESPACE_METHODS)
    ),
    *(
        Replacement(
            f"{CONNECT}catalog.Catalog",
            name,
            partial(connect.find_current_call, name),
            connect.run_current_call,
            SessionKind.CONNECT,
        )
        for name in CURRENT_METHODS
    ),
)


def patch_pyspark(spark: SparkSession) -> None:
    """Replace the methods for a kind of session, each method once."""
    kind = Runtime.of(spark).kind
    replace_methods(patch for patch in PATCHES if kind in patch.on)
