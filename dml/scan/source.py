"""Scan tasks as a Spark DataFrame. Driver.

Input: groups of tasks and their context. Output: a DataFrame that reads each group in one Spark task. Only the
DataFrame API is used, so that it works on Spark Classic and on Spark Connect.
"""

from collections.abc import Sequence

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from dml.model import columns
from dml.model.scan_task import ScanContext, ScanTask
from dml.read.metadata_columns import partition_fields
from dml.read.packed_groups import PackedGroups
from dml.spark.types import spark_field

__all__ = ["dataframe", "spark_schema"]

PLAIN_TYPES = {
    columns.FILE: spark_types.StringType(),
    columns.POS: spark_types.LongType(),
    columns.SPEC_ID: spark_types.IntegerType(),
    columns.ROW_ID: spark_types.LongType(),
    columns.LAST_UPDATED_SEQUENCE_NUMBER: spark_types.LongType(),
    columns.FILE_ORDINAL: spark_types.IntegerType(),
}


def spark_schema(context: ScanContext) -> spark_types.StructType:
    """The schema of the rows of a scan.

    Raises:
        NotSupportedError: Spark has no type for a column.
    """
    schema = Schema.model_validate_json(context.schema_json)
    fields = [spark_field(schema.find_field(field_id)) for field_id in context.projected_ids]
    for name in context.metadata_columns:
        if name == columns.PARTITION:
            specs = {spec_id: PartitionSpec.model_validate_json(text) for spec_id, text in context.specs_json}
            partition = spark_types.StructType([spark_field(field) for field in partition_fields(specs, schema)])
            fields.append(spark_types.StructField(name, partition, nullable=True))
        else:
            fields.append(spark_types.StructField(name, PLAIN_TYPES[name], nullable=True))
    return spark_types.StructType(fields)


def dataframe(spark: SparkSession, groups: Sequence[Sequence[ScanTask]], context: ScanContext) -> DataFrame:
    """The rows of a scan.

    Args:
        spark: A session, classic or Connect.
        groups: What each Spark task reads; see `dml.scan.split`.
        context: What all of them share.

    Returns:
        The table's columns, then the metadata columns. Without groups an empty DataFrame, which runs no job.

    Raises:
        NotSupportedError: Spark has no type for a column.
    """
    schema = spark_schema(context)
    if not groups:
        return spark.createDataFrame([], schema)
    packed = PackedGroups.pack(groups, context)
    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(packed.read, schema)
