"""Hold the context of every statement of a session: Spark, the catalogs, the session's settings. Driver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml import limits
from dml.catalog.registry import CatalogRegistry
from dml.errors import AnalysisError, ErrorKind
from dml.hook_options import HookOptions
from dml.hooks import Callbacks
from dml.model import summary_keys
from dml.plan.names import SqlRules
from dml.spark.bridge.gateway import Py4JError
from dml.spark.errors import is_jvm_exit, jvm_exit_error, translate
from dml.spark.foreign_data import ForeignRows
from dml.spark.lazy_session import LazySession
from dml.spark.master import SettingReader, integer_setting, local_cores, max_task_failures, parallel_tasks
from dml.spark.runtime import Runtime
from dml.spark.settings import replaces_any
from dml.spark.store_assignment import StoreAssignmentPolicy, store_assignment_policy
from dml.spark.versions import INSTALLED_FEATURES, Feature
from dml.sqlparse.dialect import BUILT_INS, NO_BUILT_INS, TreeReading, called_functions
from dml.sqlparse.spellings import is_read_otherwise, is_surely_spark

__all__ = ["ICEBERG_SETTINGS", "Engine", "StatementSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementSettings:
    """The session's settings when a statement starts.

    Attributes:
        rules: Rules for the names and literals of the statement.
        policy_name: `spark.sql.storeAssignmentPolicy`.
        dynamic_overwrite: Whether `spark.sql.sources.partitionOverwriteMode` is dynamic.
        quoted_regex: Whether `spark.sql.parser.quotedRegexColumnNames` makes quoted names match many columns.
        wap_branch: `spark.wap.branch`.
        wap_id: `spark.wap.id`.
        parallelism: The number of concurrent tasks.
        iceberg: The settings below `spark.sql.iceberg.`, without this prefix: write options of the session.
    """

    rules: SqlRules = field(default_factory=SqlRules)
    policy_name: str = "ansi"
    dynamic_overwrite: bool = False
    quoted_regex: bool = False
    wap_branch: str | None = None
    wap_id: str | None = None
    parallelism: int = 2
    iceberg: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def case_sensitive(self) -> bool:
        """`spark.sql.caseSensitive`."""
        return self.rules.case_sensitive

    @property
    def time_zone(self) -> str:
        """`spark.sql.session.timeZone`."""
        return self.rules.time_zone

    @property
    def policy(self) -> StoreAssignmentPolicy:
        """The policy of store assignment.

        Raises:
            NotSupportedError: it is `legacy`.
        """
        return store_assignment_policy(self.policy_name)

    @staticmethod
    def of(engine: "Engine", statement: str = "") -> "StatementSettings":
        """Read the settings of a session.

        Args:
            engine: The session and its catalogs.
            statement: The statement whose trees are read.

        Raises:
            AnalysisError: both `spark.wap.id` and `spark.wap.branch` are set.
        """
        get = engine.lazy_session.settings()

        def flag(key: str) -> bool:
            return (get(key, "false") or "false").lower() == "true"

        branch, wap_id = get("spark.wap.branch", None), get("spark.wap.id", None)
        if branch and wap_id:
            raise AnalysisError(
                f"Cannot set both WAP ID and branch: spark.wap.id is '{wap_id}', spark.wap.branch is '{branch}'",
                kind=ErrorKind.INVALID_PROPERTY,
                hint="Unset one of them",
            )
        return StatementSettings(
            rules=SqlRules(
                case_sensitive=flag("spark.sql.caseSensitive"),
                time_zone=engine.lazy_session.time_zone,
                trees=tree_reading(
                    any(flag(key) for key in LITERAL_SETTINGS)
                    or (get("spark.sql.timestampType", TIMESTAMP_LTZ) or TIMESTAMP_LTZ).upper() != TIMESTAMP_LTZ
                    or (get(COLLATION, UTF8_BINARY) or UTF8_BINARY).upper() != UTF8_BINARY
                    or differs_from_spark(engine.lazy_session, statement),
                    INSTALLED_FEATURES if engine.lazy_session.is_deferred else engine.runtime.features,
                ),
                catalogs=tuple(engine.registry.catalogs),
            ),
            policy_name=get("spark.sql.storeAssignmentPolicy", "ansi") or "ansi",
            dynamic_overwrite=(get("spark.sql.sources.partitionOverwriteMode", "static") or "").lower() == "dynamic",
            quoted_regex=flag("spark.sql.parser.quotedRegexColumnNames"),
            wap_branch=branch or None,
            wap_id=wap_id or None,
            parallelism=parallelism_of(engine.lazy_session, get),
            iceberg=engine.lazy_session.settings_below(ICEBERG_SETTINGS),
        )


ICEBERG_SETTINGS: Final = "spark.sql.iceberg."

LITERAL_SETTINGS: Final = (
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.legacy.consecutiveStringLiterals.enabled",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled",
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.ansi.enforceReservedKeywords",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled",
    "spark.sql.preserveCharVarcharTypeInfo",  # sqlglot reads CHAR(n) in a cast as STRING, as Spark does otherwise
)
"""With one of these settings Spark may parse or compare literals differently, so sqlglot's trees are not used."""

TIMESTAMP_LTZ: Final = "TIMESTAMP_LTZ"
"""The default of `spark.sql.timestampType`, the meaning of TIMESTAMP in SQL. Other values disable pruning."""

COLLATION: Final = "spark.sql.session.collation.default"
UTF8_BINARY: Final = "UTF8_BINARY"
"""Spark 4.0 compares two strings without a column by this setting's collation. Its default is `UTF8_BINARY`."""


def differs_from_spark(lazy_session: LazySession, statement: str) -> bool:
    """Return whether sqlglot's tree of a statement may have another meaning than the statement has in Spark.

    It may call a user-defined function that sqlglot parses as one of Spark's, or `is_read_otherwise`. Before Spark has
    started, there are no user-defined functions, but a statement that only sqlglot accepts would not be rejected.
    """
    if called_functions(statement, NO_BUILT_INS) or is_read_otherwise(statement):
        return True
    if lazy_session.is_deferred:
        return not is_surely_spark(statement)
    return replaces_any(lazy_session.spark, called_functions(statement, BUILT_INS))


def tree_reading(is_other: bool, features: frozenset[Feature]) -> TreeReading:
    """Return how closely sqlglot's trees match Spark.

    Args:
        is_other: Whether settings or user-defined functions change how Spark interprets the statement.
        features: The features of the Spark that parses the statement: before Spark has started, those of PySpark.
    """
    if is_other:
        return TreeReading.OTHERWISE
    return TreeReading.ALIKE if Feature.DOUBLED_QUOTES in features else TreeReading.WITHOUT_QUOTES


def parallelism_of(lazy_session: LazySession, get: SettingReader) -> int:
    """Return how many tasks run at once. A Connect server does not report it: without a setting, 8 is assumed."""
    known = lazy_session.known
    if known is not None:
        return parallel_tasks(get, local_cores(known["spark.master"]))
    if not lazy_session.runtime.is_connect:
        return parallel_tasks(get, int(lazy_session.spark.sparkContext.defaultParallelism))
    return integer_setting(get, "spark.default.parallelism", 0) or integer_setting(
        get, LEAF_PARALLELISM, limits.CONNECT_PARALLELISM
    )


VERSION: Final = version("rowdelta")
LEAF_PARALLELISM: Final = "spark.sql.leafNodeDefaultParallelism"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A session: Spark, its catalogs, and how it reports progress and commits.

    Attributes:
        lazy_session: The Spark session, which starts on first use.
        registry: The catalogs.
        progress: Whether long statements show their progress.
        callbacks: Functions that are called after each commit.
        compact: Compacts a table, by name, given the options of its triggers; None for sessions without triggers.
        foreign_rows: The foreign rows of the current statement, by the view name in its text. They become DataFrames
            only if Spark reads them.
    """

    lazy_session: LazySession
    registry: CatalogRegistry
    progress: bool = False
    callbacks: Callbacks = field(default_factory=Callbacks)
    compact: "Callable[[Engine, tuple[str, ...], HookOptions], None] | None" = None
    foreign_rows: Mapping[str, ForeignRows] = field(default_factory=dict, repr=False)

    @property
    def spark(self) -> SparkSession:
        """The Spark session, which starts on first use."""
        return self.lazy_session.spark

    @property
    def runtime(self) -> Runtime:
        """The kind and capabilities of the Spark session. Starts it if necessary."""
        return self.lazy_session.runtime

    def commit_summary(self) -> dict[str, str]:
        """Return the summary entries that identify the engine, for every snapshot.

        Raises:
            ExecutionError: Spark's JVM has exited. It is RowDelta's own error, so that the statement deletes the files
                that it wrote.
        """
        try:
            return self._commit_summary()
        except (PySparkException, Py4JError, OSError) as error:
            raise (jvm_exit_error() if is_jvm_exit(error, self.spark) else translate(error)) from error

    def _commit_summary(self) -> dict[str, str]:
        get = self.lazy_session.settings()
        is_deferred = self.lazy_session.is_deferred
        app_id = get("spark.app.id", None)
        if not app_id and not is_deferred and not self.runtime.is_connect:
            app_id = self.spark.sparkContext.applicationId
        facts = {
            "engine-name": "spark",
            "engine-version": pyspark.__version__ if is_deferred else self.spark.version,
            "spark.app.id": app_id,
            "app-id": app_id,
            "app-name": get("spark.app.name", None) or "",
            summary_keys.VERSION: VERSION,
        }
        return {key: value for key, value in facts.items() if value}

    def max_failures(self) -> int:
        """Return how often Spark tries a task before the job fails."""
        return max_task_failures(self.lazy_session.settings())
