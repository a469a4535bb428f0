"""The private classes of Spark and private attributes of PySpark that RowDelta uses. Driver.

Each is a constant with its fallback. `tests/structure/internals.txt` lists them. One test looks up each of them in the
PySpark that runs it, and another replaces each with a missing one.
"""

from typing import Final

from dml.spark.bridge.internals import Internal, JavaField, PrivateField, SparkClass
from dml.spark.versions import CLASSIC_PACKAGE, INSTALLED_FEATURES, Feature

__all__ = ["INTERNALS"]

PYTHON_READS: Final = "Python workers read all data files"
PYTHON_PLANS: Final = "Python functions read tables in SQL"
NO_CATALOGS: Final = f"Spark works without RowDelta's catalogs, and {PYTHON_PLANS}"
FILTERED: Final = "scans generate numbers and filter them"
NOT_PRUNED: Final = "conditions on Iceberg's functions prune no files in DataFrames"
NO_COMMANDS: Final = "statements issued from the JVM that change something are refused"
NOT_BALANCED: Final = "writes do not split large tasks or combine small ones"
RESULTS_READ: Final = "queries read values that the manifests have"
DISTINCT_READ: Final = "aggregates are computed from the data files"
NOT_EXPLAINED: Final = "EXPLAIN of a query lacks the readers of the scans that Spark plans"
ONE_DISK: Final = "the driver keeps temporary files on one disk"
RUNTIME_ERRORS: Final = "errors of statements issued from the JVM are Java's RuntimeException"

SQL: Final = "org.apache.spark.sql."
EXECUTION: Final = SQL + "execution."
CATALYST: Final = SQL + "catalyst."
LOGICAL: Final = CATALYST + "plans.logical."
EXPRESSIONS: Final = CATALYST + "expressions."
FILES: Final = EXECUTION + "datasources."
PYTHON: Final = FILES + "v2.python."
CLASSIC_STREAMS: Final = (
    CLASSIC_PACKAGE if Feature.CLASSIC_COLUMN_NODES in INSTALLED_FEATURES else f"{CLASSIC_PACKAGE}.streaming"
)
V2: Final = Feature.DATA_SOURCE_V2
FUNCTIONS: Final = Feature.CATALOG_FUNCTIONS

# ---- scans by Spark's Parquet reader
PARQUET_SCAN: Final = SparkClass(
    FILES + "v2.parquet.ParquetScan", "new/11+ createReaderFactory/0", fallback=PYTHON_READS, since=V2
)
PARTITIONED_FILE: Final = SparkClass(
    FILES + "PartitionedFile", "new/8 apply$default$8/0", fallback=PYTHON_READS, since=V2
)
FILE_PARTITION: Final = SparkClass(FILES + "FilePartition", "new/2", fallback=PYTHON_READS, since=V2)
SPARK_PATH: Final = SparkClass("org.apache.spark.paths.SparkPath", "fromPathString/1", fallback=PYTHON_READS, since=V2)
UTF8_STRING: Final = SparkClass(
    "org.apache.spark.unsafe.types.UTF8String", "fromString/1", fallback=PYTHON_READS, since=V2
)
INTERNAL_ROW: Final = SparkClass(
    EXPRESSIONS + "GenericInternalRow",
    "new/1 setNullAt/1 update/2 setInt/2 setLong/2 setBoolean/2",
    fallback=f"{PYTHON_READS}; {RESULTS_READ}",
    since=V2,
)
ROW_TYPE: Final = SparkClass(CATALYST + "InternalRow", fallback=RESULTS_READ, since=V2)

# ---- tasks in Python workers
PYTHON_SOURCE: Final = SparkClass(PYTHON + "UserDefinedPythonDataSource", "new/1", fallback=NO_CATALOGS, since=V2)
PYTHON_PARTITION: Final = SparkClass(PYTHON + "PythonInputPartition", "new/2", fallback=NO_CATALOGS, since=V2)
READER_FACTORY: Final = SparkClass(PYTHON + "PythonPartitionReaderFactory", "new/3+", fallback=NO_CATALOGS, since=V2)
BATCH_WRITER_FACTORY: Final = SparkClass(PYTHON + "PythonBatchWriterFactory", "new/3+", since=V2)
STREAM_WRITER_FACTORY: Final = SparkClass(PYTHON + "PythonStreamingWriterFactory", "new/3+", since=V2)
STREAM_OFFSET: Final = SparkClass(PYTHON + "PythonStreamingSourceOffset", "new/1", since=V2)

# ---- plans
DATASET: Final = SparkClass(
    f"{CLASSIC_PACKAGE}.Dataset", "ofRows/2", fallback=f"{PYTHON_PLANS}; {FILTERED}; {NOT_BALANCED}"
)
SUBQUERY_ALIAS: Final = SparkClass(LOGICAL + "SubqueryAlias", "new/2", fallback=PYTHON_PLANS, since=V2)
ALIAS_IDENTIFIER: Final = SparkClass(CATALYST + "AliasIdentifier", "new/2", fallback=PYTHON_PLANS, since=V2)
TABLE_RELATION: Final = SparkClass(FILES + "v2.DataSourceV2Relation", "create/3", fallback=PYTHON_PLANS, since=V2)
REBALANCE: Final = SparkClass(LOGICAL + "RebalancePartitions", "new/4", fallback=NOT_BALANCED)
LOGICAL_RDD: Final = SparkClass(EXECUTION + "LogicalRDD", "new/6+", fallback=FILTERED)
RANGE: Final = SparkClass(LOGICAL + "Range", "apply/4 maxRows/0 stats/0", fallback=f"{FILTERED}; {NOT_BALANCED}")
TREE_PATTERN: Final = SparkClass(
    CATALYST + "trees.TreePattern",
    "CURRENT_LIKE/0 AGGREGATE_EXPRESSION/0 PYTHON_UDF/0",
    fallback=f"sources of literals are sized like others; {DISTINCT_READ}; batches keep Spark's byte limit",
)
SQL_EXECUTION: Final = SparkClass(EXECUTION + "SQLExecution", "EXECUTION_ID_KEY/0 getQueryExecution/1", since=V2)
EXPLAINED_PLAN: Final = SparkClass(SQL + "api.python.PythonSQLUtils", "explainString/2", fallback=NOT_EXPLAINED)
PLANNING_TRACKER: Final = SparkClass(
    CATALYST + "QueryPlanningTracker", "get/0", fallback=f"{DISTINCT_READ}; {NOT_EXPLAINED}", since=V2
)

# ---- conditions and Iceberg's functions
CATALYST_FILTERS: Final = SparkClass(
    SQL + "internal.connector.SupportsPushDownCatalystFilters", fallback=NOT_PRUNED, since=FUNCTIONS
)
TREE_NODE_TAG: Final = SparkClass(CATALYST + "trees.TreeNodeTag", "new/1", fallback=NOT_PRUNED, since=FUNCTIONS)
KNOWN_NULLABLE: Final = SparkClass(EXPRESSIONS + "KnownNullable", "new/1", fallback=NOT_PRUNED, since=FUNCTIONS)
STRATEGY: Final = SparkClass(
    FILES + "v2.DataSourceV2Strategy", "translateFilterV2/1", fallback=NOT_PRUNED, since=FUNCTIONS
)
V1_FUNCTION: Final = SparkClass(SQL + "internal.connector.V1Function", "apply/2", since=FUNCTIONS)
EXPRESSION_INFO: Final = SparkClass(EXPRESSIONS + "ExpressionInfo", "new/3", since=FUNCTIONS)
ATTRIBUTE_MAP: Final = SparkClass(EXPRESSIONS + "AttributeMap", "apply/1", since=FUNCTIONS)
REPLACING_RULE: Final = SparkClass(
    CATALYST + "optimizer.PushPredicateThroughNonJoin", "replaceAlias/2", since=FUNCTIONS
)

# ---- errors of catalogs, which are those of Spark's public `TableCatalog`
NO_SUCH_FUNCTION: Final = SparkClass(CATALYST + "analysis.NoSuchFunctionException", "new/1", since=V2)
NO_SUCH_NAMESPACE: Final = SparkClass(CATALYST + "analysis.NoSuchNamespaceException", "new/1", since=V2)
NO_SUCH_TABLE: Final = SparkClass(CATALYST + "analysis.NoSuchTableException", "new/1", since=V2)
NO_SUCH_VIEW: Final = SparkClass(CATALYST + "analysis.NoSuchViewException", "new/1", since=V2)
NAMESPACE_EXISTS: Final = SparkClass(CATALYST + "analysis.NamespaceAlreadyExistsException", "new/1", since=V2)
NAMESPACE_NOT_EMPTY: Final = SparkClass(CATALYST + "analysis.NonEmptyNamespaceException", "new/1", since=V2)
TABLE_EXISTS: Final = SparkClass(CATALYST + "analysis.TableAlreadyExistsException", "new/1", since=V2)
VIEW_EXISTS: Final = SparkClass(CATALYST + "analysis.ViewAlreadyExistsException", "new/1", since=V2)

# ---- the parser
CLASSIC_SESSION: Final = SparkClass(f"{CLASSIC_PACKAGE}.SparkSession", "builder/0")
PARSER_INTERFACE: Final = SparkClass(CATALYST + "parser.ParserInterface", "parsePlan/1")
PARSE_EXCEPTION: Final = SparkClass(CATALYST + "parser.ParseException", fallback=RUNTIME_ERRORS)
CURRENT_ORIGIN: Final = SparkClass(CATALYST + "trees.CurrentOrigin", "get/0", fallback=RUNTIME_ERRORS)
PYTHON_UTILS: Final = SparkClass("org.apache.spark.api.python.PythonUtils", "toScalaMap/1", fallback=RUNTIME_ERRORS)
CONNECT_PLANNER: Final = SparkClass(
    SQL + "connect.planner.SparkConnectPlanner", fallback="clients of a server see no counts", since=Feature.CONNECT
)
COMMAND_RESULT: Final = SparkClass(LOGICAL + "CommandResult", "new/4", fallback=NO_COMMANDS)
UTILS: Final = SparkClass(
    "org.apache.spark.util.Utils",
    "exceptionString/1 getOrCreateLocalRootDirs/1",
    fallback=f"{ONE_DISK}; statements issued from the JVM are refused",
)

# ---- Columns
NODE_CONVERTER: Final = SparkClass(
    SQL + "classic.ColumnNodeToExpressionConverter", "apply/1", since=Feature.CLASSIC_COLUMN_NODES
)
FUNCTION_IDENTIFIER: Final = SparkClass(CATALYST + "FunctionIdentifier", "new/1", until=Feature.CLASSIC_COLUMN_NODES)
FUNCTION_REGISTRY: Final = SparkClass(
    CATALYST + "analysis.FunctionRegistry", "builtin/0", until=Feature.CLASSIC_COLUMN_NODES
)
INHERITING: Final = SparkClass(EXPRESSIONS + "InheritAnalysisRules", until=Feature.CLASSIC_COLUMN_NODES)

# ---- servers
CONNECT_SERVICE: Final = SparkClass(
    SQL + "connect.service.SparkConnectService", "start/1 stop/2 server/0", since=Feature.CONNECT
)
TOKEN_CHECK: Final = SparkClass(SQL + "connect.service.PreSharedKeyAuthenticationInterceptor", since=Feature.CONNECT)
THRIFT_SERVER: Final = SparkClass(
    SQL + "hive.thriftserver.HiveThriftServer2", "startWithSparkSession/2", since=Feature.CONNECT
)

# ---- fields in the JVM
CATALOGS: Final = JavaField(
    "catalogs",
    SQL + "connector.catalog.CatalogManager",
    fallback="Spark works without RowDelta's catalogs; only SQL finds RowDelta's tables",
    since=V2,
)
STREAM_READER_FORMAT: Final = JavaField("source", f"{CLASSIC_STREAMS}.DataStreamReader")
STREAM_READER_SCHEMA: Final = JavaField("userSpecifiedSchema", f"{CLASSIC_STREAMS}.DataStreamReader")
STREAM_WRITER_FORMAT: Final = JavaField("source", f"{CLASSIC_STREAMS}.DataStreamWriter")
STREAM_WRITER_MODE: Final = JavaField("outputMode", f"{CLASSIC_STREAMS}.DataStreamWriter")
STREAM_WRITER_OPTIONS: Final = JavaField("extraOptions", f"{CLASSIC_STREAMS}.DataStreamWriter")
STREAM_WRITER_COLUMNS: Final = JavaField("partitioningColumns", f"{CLASSIC_STREAMS}.DataStreamWriter", until=V2)

# ---- PySpark
SESSION: Final = PrivateField("_jsparkSession", "pyspark.sql.SparkSession")
FRAME: Final = PrivateField("_jdf", "pyspark.sql.DataFrame")
COLUMN: Final = PrivateField("_jc", "pyspark.sql.Column")
BUILDER_OPTIONS: Final = PrivateField("_options", "pyspark.sql.SparkSession.Builder")
FORMATTER_VIEWS: Final = PrivateField("_temp_views", "pyspark.sql.sql_formatter.SQLStringFormatter")
CONTEXT: Final = PrivateField("_jsc", "pyspark.SparkContext")

JAVA_READER: Final = PrivateField("_jreader", "pyspark.sql.DataFrameReader")
JAVA_WRITER: Final = PrivateField("_jwrite", "pyspark.sql.DataFrameWriter")
ROWS: Final = PrivateField("_df", "pyspark.sql.DataFrameWriter")

# ---- the client of Spark Connect
READER_FORMAT: Final = PrivateField("_format", "pyspark.sql.connect.readwriter.DataFrameReader", since=Feature.CONNECT)
READER_OPTIONS: Final = PrivateField(
    "_options", "pyspark.sql.connect.readwriter.DataFrameReader", since=Feature.CONNECT
)
READER_SCHEMA: Final = PrivateField("_schema", "pyspark.sql.connect.readwriter.DataFrameReader", since=Feature.CONNECT)
CONNECT_WRITE: Final = PrivateField("_write", "pyspark.sql.connect.readwriter.DataFrameWriter", since=Feature.CONNECT)
WRITER_TABLE: Final = PrivateField(
    "_table_name", "pyspark.sql.connect.readwriter.DataFrameWriterV2", since=Feature.CONNECT
)
CONNECT_STREAM: Final = PrivateField(
    "_write_proto", "pyspark.sql.connect.streaming.readwriter.DataStreamWriter", since=Feature.CONNECT
)
STREAM_PLAN: Final = PrivateField(
    "_write_stream", "pyspark.sql.connect.streaming.readwriter.DataStreamWriter", since=Feature.CONNECT
)
PLAN: Final = PrivateField("_plan", "pyspark.sql.connect.dataframe.DataFrame", since=Feature.CONNECT)
PLAN_CHILD: Final = PrivateField("_child", "pyspark.sql.connect.plan.LogicalPlan", since=Feature.CONNECT)
PLAN_ID: Final = PrivateField("_plan_id", "pyspark.sql.connect.plan.LogicalPlan", since=Feature.CONNECT)

INTERNALS: Final[dict[str, Internal]] = {
    key: value for key, value in list(globals().items()) if isinstance(value, Internal)
}
"""All of them, by the name of the constant."""
