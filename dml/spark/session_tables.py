"""Describe tables of Spark's session catalog whose files can be imported. Driver; partitions on classic Spark only.

Input: the name of a table of `spark_catalog`. Output: its provider, format, location, schema, properties and
partitions. Spark's statements describe the table, so that this works on Spark Connect. No statement lists the locations
of partitions, so these come from the JVM's catalog. Source: Iceberg's `SparkTableUtil` and
`BaseTableCreationSparkAction`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dml.errors import AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.spark.bridge.internals import internals
from dml.spark.bridge.sessions import session_state
from dml.spark.bridge.values import java_class
from dml.spark.handlers import run_as_handler
from dml.spark.runtime import Runtime
from dml.sqlparse.quoting import quote_name

__all__ = ["SESSION_CATALOG", "SessionPartition", "SessionTable", "session_partitions", "session_table"]

SESSION_CATALOG = "spark_catalog"
DETAILS = "# Detailed Table Information"
PARTITIONS = "# Partition Information"
FORMATS = ("parquet", "avro", "orc")
"""The formats of data files, as parts of the names of providers and serializers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTable:
    """A table of Spark's session catalog.

    Attributes:
        name: Database and name.
        provider: The provider, in lower case; empty for a view.
        file_format: The format of its files; empty if it is none that Iceberg has.
        location: The folder; empty if it has none.
        is_bucketed: Whether it has buckets.
        partition_columns: The names of its partition columns.
        lists_partitions: Whether the catalog knows its partitions; else Spark finds them by listing the folder.
        schema: Its columns.
        properties: Its properties.
    """

    name: tuple[str, ...]
    provider: str
    file_format: str
    location: str
    is_bucketed: bool
    partition_columns: tuple[str, ...]
    lists_partitions: bool
    schema: StructType = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)

    @property
    def full_name(self) -> str:
        """The quoted name with the catalog."""
        return quote_name((SESSION_CATALOG, *self.name))


def session_table(spark: SparkSession, name: tuple[str, ...]) -> SessionTable:
    """Describe a table.

    Args:
        spark: The session.
        name: Database and name.

    Raises:
        NotFoundError: Spark has no such table.
        AnalysisError: It is a view, or a table of another kind than those that Spark describes by itself.
    """
    full = quote_name((SESSION_CATALOG, *name))
    with run_as_handler():
        try:
            rows = spark.sql(f"DESCRIBE TABLE EXTENDED {full}").collect()
        except AnalysisException as error:
            raise NotFoundError(
                f"Spark's session catalog has no table {full}",
                hint="Name a table of spark_catalog, or the folder of the files: parquet.`/folder`",
                table=full,
            ) from error
        # A column always has a type, so that only the headings have an empty second column.
        headings = {str(row[0]): place for place, row in enumerate(rows) if not row[1] and row[0]}
        start = headings.get(DETAILS, len(rows))
        details = {str(row[0]): str(row[1]) for row in rows[start + 1 :]}
        provider = details.get("Provider", "").lower()
        if not provider or details.get("Type") == "VIEW":
            raise AnalysisError(f"Cannot use non-v1 table {full} as a source", kind=ErrorKind.NOT_SUPPORTED, table=full)
        schema = spark.table(full).schema
        properties = {str(row[0]): str(row[1]) for row in spark.sql(f"SHOW TBLPROPERTIES {full}").collect()}
    partitions = rows[headings[PARTITIONS] + 2 : start] if PARTITIONS in headings else []
    serializer = details.get("Serde Library", "").lower()
    known = (one for text in (serializer, provider) for one in FORMATS if one in text)
    return SessionTable(
        name=name,
        provider=provider,
        file_format=next(known, ""),
        location=details.get("Location", ""),
        is_bucketed="Num Buckets" in details,
        partition_columns=tuple(str(row[0]) for row in partitions if row[0]),
        lists_partitions=details.get("Partition Provider") == "Catalog",
        schema=schema,
        properties=properties,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPartition:
    """A partition of a table.

    Attributes:
        values: The texts of its partition columns, in order.
        location: The folder.
    """

    values: tuple[str, ...]
    location: str


def session_partitions(spark: SparkSession, table: SessionTable) -> tuple[SessionPartition, ...]:
    """Return the partitions of a table; none for an unpartitioned one.

    Raises:
        NotSupportedError: The session is one of Spark Connect, or Spark does not manage the partitions.
    """
    if not table.partition_columns:
        return ()
    if Runtime.of(spark).is_connect:
        reason = "a Spark Connect server does not report their locations"
    elif not table.lists_partitions:
        reason = "Spark finds them by listing the folder"
    else:
        return partitions_of(spark, table)
    raise NotSupportedError(
        f"The partitions of {table.full_name} are not known: {reason}",
        hint=f"Import the folder of the table: {table.file_format}.`{table.location}`",
        table=table.full_name,
    )


def partitions_of(spark: SparkSession, table: SessionTable) -> tuple[SessionPartition, ...]:
    with internals("SessionCatalog"):
        state = session_state(spark)
        identifier = state.sqlParser().parseTableIdentifier(quote_name(table.name))
        found = state.catalog().listPartitions(identifier, java_class("scala.Option").empty())
        path = java_class("org.apache.hadoop.fs.Path")
        result = []
        for place in range(found.size()):
            partition = found.apply(place)
            values = partition.spec()
            result.append(
                SessionPartition(
                    values=tuple(str(values.apply(name)) for name in table.partition_columns),
                    location=str(path(partition.location()).toString()),
                )
            )
    return tuple(sorted(result, key=lambda one: one.values))
