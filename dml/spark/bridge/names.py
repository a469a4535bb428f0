"""The private classes of Spark and private attributes of PySpark that RowDelta uses. Driver.

Each is a constant with its fallback. `tests/structure/internals.txt` lists them; a test looks each up in the PySpark
that runs it, and another replaces each by one that is missing.
"""

from typing import Final

from dml.spark.bridge.internals import Internal, JavaField, PrivateField, SparkClass
from dml.spark.versions import CLASSIC_PACKAGE, Feature, has_feature

__all__ = [
    "ALIAS_IDENTIFIER",
    "ATTRIBUTE_MAP",
    "BATCH_WRITER_FACTORY",
    "BUILDER_OPTIONS",
    "CATALOGS",
    "CATALYST_FILTERS",
    "CLASSIC_SESSION",
    "COLUMN",
    "COMMAND_RESULT",
    "CONNECT_PLANNER",
    "CONNECT_SERVICE",
    "CONNECT_STREAM",
    "CONNECT_WRITE",
    "CONTEXT",
    "CURRENT_ORIGIN",
    "DATASET",
    "EXPRESSION_INFO",
    "FILE_PARTITION",
    "FILTERED",
    "FORMATTER_VIEWS",
    "FRAME",
    "FUNCTION_IDENTIFIER",
    "FUNCTION_REGISTRY",
    "INHERITING",
    "INTERNALS",
    "INTERNAL_ROW",
    "JAVA_READER",
    "JAVA_WRITER",
    "KNOWN_NULLABLE",
    "LOGICAL_RDD",
    "NAMESPACE_EXISTS",
    "NAMESPACE_NOT_EMPTY",
    "NODE_CONVERTER",
    "NOT_BALANCED",
    "NO_CATALOGS",
    "NO_SUCH_FUNCTION",
    "NO_SUCH_NAMESPACE",
    "NO_SUCH_TABLE",
    "NO_SUCH_VIEW",
    "ONE_DISK",
    "PARQUET_SCAN",
    "PARSER_INTERFACE",
    "PARSE_EXCEPTION",
    "PARTITIONED_FILE",
    "PLAN",
    "PLANNING_TRACKER",
    "PLAN_CHILD",
    "PLAN_ID",
    "PYTHON_PARTITION",
    "PYTHON_PLANS",
    "PYTHON_READS",
    "PYTHON_SOURCE",
    "PYTHON_UTILS",
    "RANGE",
    "READER_FACTORY",
    "READER_FORMAT",
    "READER_OPTIONS",
    "READER_SCHEMA",
    "REBALANCE",
    "REPLACING_RULE",
    "RESULTS_READ",
    "ROWS",
    "ROW_TYPE",
    "SESSION",
    "SPARK_PATH",
    "SQL_EXECUTION",
    "STRATEGY",
    "STREAM_OFFSET",
    "STREAM_PLAN",
    "STREAM_READER_FORMAT",
    "STREAM_READER_SCHEMA",
    "STREAM_WRITER_COLUMNS",
    "STREAM_WRITER_FACTORY",
    "STREAM_WRITER_FORMAT",
    "STREAM_WRITER_MODE",
    "STREAM_WRITER_OPTIONS",
    "SUBQUERY_ALIAS",
    "TABLE_EXISTS",
    "TABLE_RELATION",
    "THRIFT_SERVER",
    "TOKEN_CHECK",
    "TREE_NODE_TAG",
    "TREE_PATTERN",
    "UTF8_STRING",
    "UTILS",
    "V1_FUNCTION",
    "VIEW_EXISTS",
    "WRITER_TABLE",
]

PYTHON_READS: Final = "Python workers read all data files"
PYTHON_PLANS: Final = "Python functions read tables in SQL"
NO_CATALOGS: Final = f"Spark works without RowDelta's catalogs, and {PYTHON_PLANS}"
FILTERED: Final = "scans generate numbers and filter them"
NOT_PRUNED: Final = "conditions on Iceberg's functions prune no files in DataFrames"
NO_COMMANDS: Final = "statements issued from the JVM that change something are refused"
NOT_BALANCED: Final = "writes do not split large tasks or combine small ones"
RESULTS_READ: Final = "queries read values that the manifests have"
DISTINCT_READ: Final = "aggregates are computed from the data files"
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
    CLASSIC_PACKAGE if has_feature(Feature.CLASSIC_COLUMN_NODES) else f"{CLASSIC_PACKAGE}.streaming"
)
V2: Final = Feature.DATA_SOURCE_V2
FUNCTIONS: Final = Feature.CATALOG_FUNCTIONS

# ---- scans by Spark's Parquet reader
PARQUET_SCAN: Final = SparkClass(
    name=FILES + "v2.parquet.ParquetScan",
    members=("new/11+", "createReaderFactory/0"),
    fallback=PYTHON_READS,
    since=V2,
)
PARTITIONED_FILE: Final = SparkClass(
    name=FILES + "PartitionedFile", members=("new/8", "apply$default$8/0"), fallback=PYTHON_READS, since=V2
)
FILE_PARTITION: Final = SparkClass(name=FILES + "FilePartition", members=("new/2",), fallback=PYTHON_READS, since=V2)
SPARK_PATH: Final = SparkClass(
    name="org.apache.spark.paths.SparkPath", members=("fromPathString/1",), fallback=PYTHON_READS, since=V2
)
UTF8_STRING: Final = SparkClass(
    name="org.apache.spark.unsafe.types.UTF8String", members=("fromString/1",), fallback=PYTHON_READS, since=V2
)
INTERNAL_ROW: Final = SparkClass(
    name=EXPRESSIONS + "GenericInternalRow",
    members=("new/1", "setNullAt/1", "update/2", "setInt/2", "setLong/2", "setBoolean/2"),
    fallback=f"{PYTHON_READS}; {RESULTS_READ}",
    since=V2,
)
ROW_TYPE: Final = SparkClass(name=CATALYST + "InternalRow", fallback=RESULTS_READ, since=V2)

# ---- tasks in Python workers
PYTHON_SOURCE: Final = SparkClass(
    name=PYTHON + "UserDefinedPythonDataSource", members=("new/1",), fallback=NO_CATALOGS, since=V2
)
PYTHON_PARTITION: Final = SparkClass(
    name=PYTHON + "PythonInputPartition", members=("new/2",), fallback=NO_CATALOGS, since=V2
)
READER_FACTORY: Final = SparkClass(
    name=PYTHON + "PythonPartitionReaderFactory", members=("new/3+",), fallback=NO_CATALOGS, since=V2
)
BATCH_WRITER_FACTORY: Final = SparkClass(name=PYTHON + "PythonBatchWriterFactory", members=("new/3+",), since=V2)
STREAM_WRITER_FACTORY: Final = SparkClass(name=PYTHON + "PythonStreamingWriterFactory", members=("new/3+",), since=V2)
STREAM_OFFSET: Final = SparkClass(name=PYTHON + "PythonStreamingSourceOffset", members=("new/1",), since=V2)

# ---- plans
DATASET: Final = SparkClass(
    name=f"{CLASSIC_PACKAGE}.Dataset",
    members=("ofRows/2",),
    fallback=f"{PYTHON_PLANS}; {FILTERED}; {NOT_BALANCED}",
)
SUBQUERY_ALIAS: Final = SparkClass(name=LOGICAL + "SubqueryAlias", members=("new/2",), fallback=PYTHON_PLANS, since=V2)
ALIAS_IDENTIFIER: Final = SparkClass(
    name=CATALYST + "AliasIdentifier", members=("new/2",), fallback=PYTHON_PLANS, since=V2
)
TABLE_RELATION: Final = SparkClass(
    name=FILES + "v2.DataSourceV2Relation", members=("create/3",), fallback=PYTHON_PLANS, since=V2
)
REBALANCE: Final = SparkClass(name=LOGICAL + "RebalancePartitions", members=("new/4",), fallback=NOT_BALANCED)
LOGICAL_RDD: Final = SparkClass(name=EXECUTION + "LogicalRDD", members=("new/6+",), fallback=FILTERED)
RANGE: Final = SparkClass(
    name=LOGICAL + "Range", members=("apply/4", "maxRows/0", "stats/0"), fallback=f"{FILTERED}; {NOT_BALANCED}"
)
TREE_PATTERN: Final = SparkClass(
    name=CATALYST + "trees.TreePattern",
    members=("CURRENT_LIKE/0", "AGGREGATE_EXPRESSION/0"),
    fallback=f"sources of literals are sized like others; {DISTINCT_READ}",
)
SQL_EXECUTION: Final = SparkClass(
    name=EXECUTION + "SQLExecution", members=("EXECUTION_ID_KEY/0", "getQueryExecution/1"), since=V2
)
PLANNING_TRACKER: Final = SparkClass(
    name=CATALYST + "QueryPlanningTracker", members=("get/0",), fallback=DISTINCT_READ, since=V2
)

# ---- conditions and functions of Iceberg's
CATALYST_FILTERS: Final = SparkClass(
    name=SQL + "internal.connector.SupportsPushDownCatalystFilters", fallback=NOT_PRUNED, since=FUNCTIONS
)
TREE_NODE_TAG: Final = SparkClass(
    name=CATALYST + "trees.TreeNodeTag", members=("new/1",), fallback=NOT_PRUNED, since=FUNCTIONS
)
KNOWN_NULLABLE: Final = SparkClass(
    name=EXPRESSIONS + "KnownNullable", members=("new/1",), fallback=NOT_PRUNED, since=FUNCTIONS
)
STRATEGY: Final = SparkClass(
    name=FILES + "v2.DataSourceV2Strategy", members=("translateFilterV2/1",), fallback=NOT_PRUNED, since=FUNCTIONS
)
V1_FUNCTION: Final = SparkClass(name=SQL + "internal.connector.V1Function", members=("apply/2",), since=FUNCTIONS)
EXPRESSION_INFO: Final = SparkClass(name=EXPRESSIONS + "ExpressionInfo", members=("new/3",), since=FUNCTIONS)
ATTRIBUTE_MAP: Final = SparkClass(name=EXPRESSIONS + "AttributeMap", members=("apply/1",), since=FUNCTIONS)
REPLACING_RULE: Final = SparkClass(
    name=CATALYST + "optimizer.PushPredicateThroughNonJoin", members=("replaceAlias/2",), since=FUNCTIONS
)

# ---- errors of catalogs, which are those of Spark's public `TableCatalog`
NO_SUCH_FUNCTION: Final = SparkClass(name=CATALYST + "analysis.NoSuchFunctionException", members=("new/1",), since=V2)
NO_SUCH_NAMESPACE: Final = SparkClass(name=CATALYST + "analysis.NoSuchNamespaceException", members=("new/1",), since=V2)
NO_SUCH_TABLE: Final = SparkClass(name=CATALYST + "analysis.NoSuchTableException", members=("new/1",), since=V2)
NO_SUCH_VIEW: Final = SparkClass(name=CATALYST + "analysis.NoSuchViewException", members=("new/1",), since=V2)
NAMESPACE_EXISTS: Final = SparkClass(
    name=CATALYST + "analysis.NamespaceAlreadyExistsException", members=("new/1",), since=V2
)
NAMESPACE_NOT_EMPTY: Final = SparkClass(
    name=CATALYST + "analysis.NonEmptyNamespaceException", members=("new/1",), since=V2
)
TABLE_EXISTS: Final = SparkClass(name=CATALYST + "analysis.TableAlreadyExistsException", members=("new/1",), since=V2)
VIEW_EXISTS: Final = SparkClass(name=CATALYST + "analysis.ViewAlreadyExistsException", members=("new/1",), since=V2)

# ---- the parser
CLASSIC_SESSION: Final = SparkClass(name=f"{CLASSIC_PACKAGE}.SparkSession", members=("builder/0",))
PARSER_INTERFACE: Final = SparkClass(name=CATALYST + "parser.ParserInterface", members=("parsePlan/1",))
PARSE_EXCEPTION: Final = SparkClass(name=CATALYST + "parser.ParseException", fallback=RUNTIME_ERRORS)
CURRENT_ORIGIN: Final = SparkClass(name=CATALYST + "trees.CurrentOrigin", members=("get/0",), fallback=RUNTIME_ERRORS)
PYTHON_UTILS: Final = SparkClass(
    name="org.apache.spark.api.python.PythonUtils", members=("toScalaMap/1",), fallback=RUNTIME_ERRORS
)
CONNECT_PLANNER: Final = SparkClass(
    name=SQL + "connect.planner.SparkConnectPlanner",
    fallback="clients of a server see no counts",
    since=Feature.CONNECT,
)
COMMAND_RESULT: Final = SparkClass(name=LOGICAL + "CommandResult", members=("new/4",), fallback=NO_COMMANDS)
UTILS: Final = SparkClass(
    name="org.apache.spark.util.Utils",
    members=("exceptionString/1", "getOrCreateLocalRootDirs/1"),
    fallback=f"{ONE_DISK}; statements issued from the JVM are refused",
)

# ---- Columns
NODE_CONVERTER: Final = SparkClass(
    name=SQL + "classic.ColumnNodeToExpressionConverter", members=("apply/1",), since=Feature.CLASSIC_COLUMN_NODES
)
FUNCTION_IDENTIFIER: Final = SparkClass(
    name=CATALYST + "FunctionIdentifier", members=("new/1",), until=Feature.CLASSIC_COLUMN_NODES
)
FUNCTION_REGISTRY: Final = SparkClass(
    name=CATALYST + "analysis.FunctionRegistry", members=("builtin/0",), until=Feature.CLASSIC_COLUMN_NODES
)
INHERITING: Final = SparkClass(name=EXPRESSIONS + "InheritAnalysisRules", until=Feature.CLASSIC_COLUMN_NODES)

# ---- servers
CONNECT_SERVICE: Final = SparkClass(
    name=SQL + "connect.service.SparkConnectService", members=("start/1", "stop/2", "server/0"), since=Feature.CONNECT
)
TOKEN_CHECK: Final = SparkClass(
    name=SQL + "connect.service.PreSharedKeyAuthenticationInterceptor", since=Feature.CONNECT
)
THRIFT_SERVER: Final = SparkClass(
    name=SQL + "hive.thriftserver.HiveThriftServer2", members=("startWithSparkSession/2",), since=Feature.CONNECT
)

# ---- fields in the JVM
CATALOGS: Final = JavaField(
    owner=SQL + "connector.catalog.CatalogManager",
    name="catalogs",
    fallback="Spark works without RowDelta's catalogs; only SQL finds RowDelta's tables",
    since=V2,
)
STREAM_READER_FORMAT: Final = JavaField(owner=f"{CLASSIC_STREAMS}.DataStreamReader", name="source")
STREAM_READER_SCHEMA: Final = JavaField(owner=f"{CLASSIC_STREAMS}.DataStreamReader", name="userSpecifiedSchema")
STREAM_WRITER_FORMAT: Final = JavaField(owner=f"{CLASSIC_STREAMS}.DataStreamWriter", name="source")
STREAM_WRITER_MODE: Final = JavaField(owner=f"{CLASSIC_STREAMS}.DataStreamWriter", name="outputMode", until=V2)
STREAM_WRITER_OPTIONS: Final = JavaField(owner=f"{CLASSIC_STREAMS}.DataStreamWriter", name="extraOptions")
STREAM_WRITER_COLUMNS: Final = JavaField(
    owner=f"{CLASSIC_STREAMS}.DataStreamWriter", name="partitioningColumns", until=V2
)

# ---- PySpark
SESSION: Final = PrivateField(owner="pyspark.sql.SparkSession", name="_jsparkSession")
FRAME: Final = PrivateField(owner="pyspark.sql.DataFrame", name="_jdf")
COLUMN: Final = PrivateField(owner="pyspark.sql.Column", name="_jc")
BUILDER_OPTIONS: Final = PrivateField(owner="pyspark.sql.SparkSession.Builder", name="_options")
FORMATTER_VIEWS: Final = PrivateField(owner="pyspark.sql.sql_formatter.SQLStringFormatter", name="_temp_views")
CONTEXT: Final = PrivateField(owner="pyspark.SparkContext", name="_jsc")

JAVA_READER: Final = PrivateField(owner="pyspark.sql.DataFrameReader", name="_jreader")
JAVA_WRITER: Final = PrivateField(owner="pyspark.sql.DataFrameWriter", name="_jwrite")
ROWS: Final = PrivateField(owner="pyspark.sql.DataFrameWriter", name="_df")

# ---- the client of Spark Connect
READER_FORMAT: Final = PrivateField(
    owner="pyspark.sql.connect.readwriter.DataFrameReader", name="_format", since=Feature.CONNECT
)
READER_OPTIONS: Final = PrivateField(
    owner="pyspark.sql.connect.readwriter.DataFrameReader", name="_options", since=Feature.CONNECT
)
READER_SCHEMA: Final = PrivateField(
    owner="pyspark.sql.connect.readwriter.DataFrameReader", name="_schema", since=Feature.CONNECT
)
CONNECT_WRITE: Final = PrivateField(
    owner="pyspark.sql.connect.readwriter.DataFrameWriter", name="_write", since=Feature.CONNECT
)
WRITER_TABLE: Final = PrivateField(
    owner="pyspark.sql.connect.readwriter.DataFrameWriterV2", name="_table_name", since=Feature.CONNECT
)
CONNECT_STREAM: Final = PrivateField(
    owner="pyspark.sql.connect.streaming.readwriter.DataStreamWriter", name="_write_proto", since=Feature.CONNECT
)
STREAM_PLAN: Final = PrivateField(
    owner="pyspark.sql.connect.streaming.readwriter.DataStreamWriter", name="_write_stream", since=Feature.CONNECT
)
PLAN: Final = PrivateField(owner="pyspark.sql.connect.dataframe.DataFrame", name="_plan", since=Feature.CONNECT)
PLAN_CHILD: Final = PrivateField(owner="pyspark.sql.connect.plan.LogicalPlan", name="_child", since=Feature.CONNECT)
PLAN_ID: Final = PrivateField(owner="pyspark.sql.connect.plan.LogicalPlan", name="_plan_id", since=Feature.CONNECT)

INTERNALS: Final[dict[str, Internal]] = {
    key: value for key, value in list(globals().items()) if isinstance(value, Internal)
}
"""All of them, by the name of the constant."""
