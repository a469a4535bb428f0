"""Read data files with Spark's own vectorized Parquet reader, without Python. Driver, classic Spark only.

Input: the tasks of a scan. Output: Spark's partitions and reader factory for them. `dml.spark_scan.readers` decides
which scans Spark reads.

Rows arrive as column batches and never enter Python. Spark's reader matches columns by field id, as Iceberg does, but
supports nothing else of a scan: no deletes, no defaults, no promoted types. The values of identity partition fields
come from the manifests, as the specification requires.

Source: Iceberg specification, "Column Projection"; Spark's `ParquetScan` and `FilePartition`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.types import StructField, StructType

from dml import limits
from dml.catalog.credentials import storage_properties
from dml.files.file_io import file_io
from dml.files.schemes import local_path
from dml.model.scan_task import ScanTask
from dml.read.open_data_file import open_data_file
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import works
from dml.spark.bridge.names import (
    FILE_PARTITION,
    INTERNAL_ROW,
    PARQUET_SCAN,
    PARTITIONED_FILE,
    PYTHON_READS,
    SPARK_PATH,
    UTF8_STRING,
)
from dml.spark.bridge.sessions import classic_session, session_state
from dml.spark.bridge.values import CONNECTOR, array, java_class, scala_list, scala_none, struct_type

__all__ = [
    "SETTERS",
    "VectorizedRead",
    "has_stable_types",
    "have_field_ids",
    "identity_places",
    "is_local_parquet",
    "is_simple",
    "is_supported",
]


SCAN_PARAMETERS: Final = (
    "SparkSession",
    "Configuration",
    "PartitioningAwareFileIndex",
    "StructType",
    "StructType",
    "StructType",
    "Filter[]",
    "CaseInsensitiveStringMap",
    "Option",
    "Seq",
    "Seq",
)
"""The parameter types of the constructor of `ParquetScan`."""

EMPTY_ARGUMENTS: Final = {
    "VariantExtraction[]": lambda: array(CONNECTOR + "read.VariantExtraction", ()),  # from Spark 4.1 on
}
"""Makers of empty values for the parameters that later releases of Spark add."""

NO_NAMES: Final = NameMapping([])
"""Assigns no ids to files without field ids."""


TYPES: Final = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
"""Types with a single encoding in Parquet, which Spark's reader expects for its own type."""

OPTIONS: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""Fixed options: dates follow the specification, and every file is read, whatever the session's settings are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorizedRead:
    """A scan that Spark's reader can read.

    Attributes:
        reason: The reason for this reader, as a clause for "because", for EXPLAIN.
        columns: Field ids of the columns that are read from the files.
        constants: Field ids of the columns whose values come from the manifests; they follow the others.
        places: The indexes of the constants in a partition tuple.
    """

    reason: str
    columns: tuple[int, ...]
    constants: tuple[int, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def order(self) -> tuple[int, ...]:
        """Field ids of all columns, in output order."""
        return (*self.columns, *self.constants)

    def factory(self, spark: SparkSession, schema: StructType) -> JavaObject:
        """Return the factory of the readers that executors run.

        Args:
            spark: The session.
            schema: The columns, in `order`.
        """
        session = classic_session(spark)
        hadoop = session_state(spark).newHadoopConf()
        hadoop.set("spark.sql.parquet.fieldId.read.enabled", "true")
        hadoop.set("spark.sql.parquet.fieldId.read.ignoreMissing", "false")
        hadoop.set("parquet.page.verify-checksum.enabled", "true")
        count = len(self.columns)
        read = struct_type(
            StructType([with_id(*pair) for pair in zip(schema.fields[:count], self.columns, strict=True)])
        )
        constants = struct_type(StructType(schema.fields[count:]))
        options = java_class("java.util.HashMap")()
        for key, value in OPTIONS.items():
            options.put(key, value)
        nothing = scala_list(())
        arguments = [
            session,
            hadoop,
            None,  # the file index: only Spark's own scan lists files with it
            read,
            read,
            constants,
            array("org.apache.spark.sql.sources.Filter", ()),
            java_class("org.apache.spark.sql.util.CaseInsensitiveStringMap")(options),
            scala_none(),
            nothing,
            nothing,
        ]
        arguments += PARQUET_SCAN.further_arguments(SCAN_PARAMETERS, EMPTY_ARGUMENTS)
        return PARQUET_SCAN.new(*arguments).createReaderFactory()

    def partitions(self, groups: Sequence[Sequence[ScanTask]], schema: Schema) -> JavaObject:
        """Return Spark's partitions, one for each task group.

        Args:
            groups: The scan tasks of each group.
            schema: The schema that the table is read with.
        """
        types = [schema.find_field(field_id).field_type for field_id in self.constants]
        path_of = SPARK_PATH.static("fromPathString")
        no_more, anywhere = PARTITIONED_FILE.call("apply$default$8"), array("java.lang.String", ())
        new_file, new_partition = PARTITIONED_FILE.resolve(), FILE_PARTITION.resolve()
        rows: dict[tuple[Any, ...], JavaObject] = {}
        result = []
        for number, group in enumerate(groups):
            files = []
            for task in group:
                values = tuple(task.partition[place] for place in self.places)
                row = rows.get(values)
                if row is None:
                    row = rows[values] = internal_row(values, types)
                path = path_of(task.path)
                size = task.file_size_in_bytes
                files.append(new_file(row, path, task.start, task.length, anywhere, 0, size, no_more))
            result.append(new_partition(number, PARTITIONED_FILE.array(files)))
        return array(CONNECTOR + "read.InputPartition", result)


def is_local_parquet(task: ScanTask) -> bool:
    """Return whether a file is a local Parquet file: for others, Spark may lack the catalog's credentials."""
    return task.file_format == "parquet" and local_path(task.path) is not None


def is_simple(known: NestedField) -> bool:
    """Return True if a column has a simple type and is NULL in files without it."""
    return isinstance(known.field_type, TYPES) and known.initial_default is None


def has_stable_types(table: Table, fields: Sequence[NestedField]) -> bool:
    """Return True if each column has had its type in all schemas of the table."""
    wanted = {known.field_id: known.field_type for known in fields}
    return all(
        wanted.get(known.field_id, known.field_type) == known.field_type
        for schema in table.schemas().values()
        for known in schema.fields
    )


def identity_places(table: Table, columns: Sequence[int], spec_ids: set[int]) -> dict[int, int] | None:
    """Map columns to their index in partition tuples; None if specs differ."""
    specs = table.specs()
    found = [
        {
            part.source_id: place
            for place, part in enumerate(specs[spec_id].fields)
            if isinstance(part.transform, IdentityTransform) and part.source_id in columns
        }
        for spec_id in spec_ids
    ]
    return found[0] if all(places == found[0] for places in found) else None


def have_field_ids(table: Table, tasks: Sequence[ScanTask]) -> bool:
    """Return True if the columns of the oldest file have field ids.

    Imported files have none. If a younger file lacks ids, Spark raises an error and never returns wrong rows.
    """
    oldest = min(tasks, key=lambda task: task.data_sequence_number)
    properties = tuple(sorted(storage_properties(table.io.properties).items()))
    return has_field_ids(oldest.path, oldest.file_size_in_bytes, properties)


@lru_cache(maxsize=limits.CACHED_FIELD_ID_CHECKS)
def has_field_ids(path: str, size: int, properties: tuple[tuple[str, str], ...]) -> bool:
    """Return True if all columns of a file have field ids."""
    with open_data_file(file_io(dict(properties), path), path, "parquet", NO_NAMES, size=size) as file:
        return all(column.field_id is not None for column in file.fields)


def with_id(column: StructField, field_id: int) -> StructField:
    """Attach the field id by which Spark finds a column."""
    return StructField(column.name, column.dataType, nullable=True, metadata={"parquet.field.id": field_id})


def is_supported(spark: SparkSession) -> bool:
    """Return whether RowDelta can use Spark's reader, by a trial with a file that is never opened."""

    def trial() -> None:
        read = VectorizedRead(reason="", columns=(1,), constants=(2,), places=(0,))
        columns = (StructField("read", spark_types.LongType()), StructField("known", spark_types.StringType()))
        schema = Schema(NestedField(1, "read", LongType()), NestedField(2, "known", StringType()))
        task = ScanTask(
            file_ordinal=0,
            path="/nowhere.parquet",
            file_format="parquet",
            record_count=1,
            file_size_in_bytes=8,
            start=0,
            length=8,
            spec_id=0,
            partition=("value",),
            data_sequence_number=1,
        )
        read.factory(spark, StructType(list(columns)))
        read.partitions([[task]], schema)

    return works("the vectorized Parquet reader", trial, PYTHON_READS)


def set_text(row: JavaObject, place: int, value: str) -> None:
    """Set a string in a row."""
    row.update(place, UTF8_STRING.call("fromString", value))


SETTERS: Final[Mapping[type[IcebergType], Callable[[JavaObject, int, Any], None]]] = {
    BooleanType: lambda row, place, value: row.setBoolean(place, value),
    IntegerType: lambda row, place, value: row.setInt(place, value),
    DateType: lambda row, place, value: row.setInt(place, value),
    LongType: lambda row, place, value: row.setLong(place, value),
    TimestampType: lambda row, place, value: row.setLong(place, value),
    TimestamptzType: lambda row, place, value: row.setLong(place, value),
    StringType: set_text,
}
"""Setters of partition values in Spark's internal rows, by type."""


def internal_row(values: Sequence[Any], types: Sequence[IcebergType]) -> JavaObject:
    """Build Spark's internal row of partition values."""
    row = INTERNAL_ROW.new(len(values))
    for place, (value, kind) in enumerate(zip(values, types, strict=True)):
        if value is None:
            row.setNullAt(place)
        else:
            SETTERS[type(kind)](row, place, value)
    return row
