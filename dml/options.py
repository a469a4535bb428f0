"""Table properties as typed options, under Iceberg's names and with Iceberg's defaults. Worker-safe leaf.

Source: Iceberg documentation, "Configuration", and `TableProperties.java`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from dml.errors import AnalysisError, ErrorKind

__all__ = [
    "AVRO_COMPRESSION",
    "BLOOM_FILTER_ENABLED_PREFIX",
    "BLOOM_FILTER_FPP_PREFIX",
    "COMMIT_MARK_DONE",
    "COMMIT_MARK_DONE_DELAY",
    "COMMIT_MARK_DONE_UNTIL",
    "COMMIT_TAG_CREATION",
    "COMMIT_TAG_MAX_REF_AGE",
    "COMMIT_TAG_NUM_RETAINED",
    "COMMIT_TAG_PREFIX",
    "COMMIT_TIME_ZONE",
    "DEFAULT_FILE_FORMAT",
    "DEFAULT_METRICS_MODE",
    "DEFAULT_NAME_MAPPING",
    "DELETE_AVRO_COMPRESSION",
    "DELETE_DEFAULT_FILE_FORMAT",
    "DELETE_ORC_COMPRESSION",
    "DELETE_PARQUET_COMPRESSION",
    "DISTRIBUTION_MODES",
    "FOLDER_PROPERTIES",
    "FORMAT_VERSION",
    "GC_ENABLED",
    "HOOK_PROPERTIES",
    "MAINTENANCE_LEASE_DURATION",
    "MAINTENANCE_LEASE_EXPIRES_AT",
    "MAINTENANCE_LEASE_HOLDER",
    "MAINTENANCE_ORPHANS_INTERVAL",
    "MAINTENANCE_ORPHANS_LAST_RUN",
    "MAINTENANCE_PARTITION_IDLE",
    "MAINTENANCE_REWRITE_OPTIONS",
    "MAINTENANCE_REWRITE_PREFIX",
    "MAINTENANCE_STATISTICS",
    "MAINTENANCE_TRIGGER_BUDGET",
    "MAINTENANCE_TRIGGER_COMMITS",
    "MAINTENANCE_TRIGGER_DELETED_RATIO",
    "MAINTENANCE_TRIGGER_SMALL_FILES",
    "MAINTENANCE_TTL_COLUMN",
    "MAINTENANCE_TTL_MAX_AGE",
    "MAX_REF_AGE_MS",
    "MAX_SNAPSHOT_AGE_MS",
    "METADATA_COMPRESSION",
    "METRICS_MAX_INFERRED_COLUMNS",
    "METRICS_MODE_COLUMN_PREFIX",
    "MIN_SNAPSHOTS_TO_KEEP",
    "OPTION_PREFIX",
    "ORC_COMPRESSION",
    "ORC_COMPRESSION_STRATEGY",
    "PARQUET_COMPRESSION",
    "PARQUET_COMPRESSION_LEVEL",
    "PARQUET_ROW_GROUP_LIMIT",
    "PARQUET_SHRED_VARIANTS",
    "PARQUET_VARIANT_INFERENCE_ROWS",
    "PARQUET_VECTORIZATION_ENABLED",
    "SPARK_ACCEPT_ANY_SCHEMA",
    "SPARK_AUTO_SCHEMA_EVOLUTION",
    "SPARK_FANOUT_ENABLED",
    "SPLIT_OPEN_FILE_COST",
    "SPLIT_SIZE",
    "WRITE_AUDIT_PUBLISH_ENABLED",
    "WRITE_DATA_PATH",
    "WRITE_DISTRIBUTION_MODE",
    "WRITE_METADATA_PATH",
    "WRITE_TARGET_FILE_SIZE",
    "Command",
    "CommitOptions",
    "DeleteGranularity",
    "DistributionMode",
    "IsolationLevel",
    "MaintenanceOptions",
    "OrcStrategy",
    "RowLevelOperationMode",
    "StatisticsUpkeep",
    "WriteOptions",
    "isolation_level",
    "num_reruns",
    "num_reruns_after_compaction",
    "row_level_concurrency",
    "row_level_operation_mode",
    "row_probe_bytes",
    "sent_source_bytes",
]

# Names of properties. Names that end in a period are prefixes for a column or option.

# The table: format version, permission to delete its files, names of columns in files without field ids, and the prefix
# of Spark's OPTIONS.
FORMAT_VERSION: Final = "format-version"
GC_ENABLED: Final = "gc.enabled"
MAX_SNAPSHOT_AGE_MS: Final = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS_TO_KEEP: Final = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE_MS: Final = "history.expire.max-ref-age-ms"
METADATA_COMPRESSION: Final = "write.metadata.compression-codec"
DEFAULT_NAME_MAPPING: Final = "schema.name-mapping.default"
OPTION_PREFIX: Final = "option."

# Locations of files.
WRITE_DATA_PATH: Final = "write.data.path"
WRITE_METADATA_PATH: Final = "write.metadata.path"

# Reading in tasks.
SPLIT_SIZE: Final = "read.split.target-size"
SPLIT_OPEN_FILE_COST: Final = "read.split.open-file-cost"
PARQUET_VECTORIZATION_ENABLED: Final = "read.parquet.vectorization.enabled"

# Distribution of rows over tasks and files, and publishing.
WRITE_DISTRIBUTION_MODE: Final = "write.distribution-mode"
ADVISORY_PARTITION_SIZE: Final = "write.spark.advisory-partition-size-bytes"
SPARK_FANOUT_ENABLED: Final = "write.spark.fanout.enabled"
SPARK_ACCEPT_ANY_SCHEMA: Final = "write.spark.accept-any-schema"
SPARK_AUTO_SCHEMA_EVOLUTION: Final = "write.spark.auto-schema-evolution.enabled"
WRITE_TARGET_FILE_SIZE: Final = "write.target-file-size-bytes"
WRITE_AUDIT_PUBLISH_ENABLED: Final = "write.wap.enabled"

# File formats, and the layout of files.
DEFAULT_FILE_FORMAT: Final = "write.format.default"
DELETE_DEFAULT_FILE_FORMAT: Final = "write.delete.format.default"
PARQUET_COMPRESSION: Final = "write.parquet.compression-codec"
PARQUET_COMPRESSION_LEVEL: Final = "write.parquet.compression-level"
PARQUET_ROW_GROUP_LIMIT: Final = "write.parquet.row-group-limit"
PARQUET_SHRED_VARIANTS: Final = "write.parquet.shred-variants"
PARQUET_VARIANT_INFERENCE_ROWS: Final = "write.parquet.variant-inference-buffer-size"
ORC_COMPRESSION: Final = "write.orc.compression-codec"
ORC_COMPRESSION_STRATEGY: Final = "write.orc.compression-strategy"
AVRO_COMPRESSION: Final = "write.avro.compression-codec"
DELETE_PARQUET_COMPRESSION: Final = "write.delete.parquet.compression-codec"
DELETE_ORC_COMPRESSION: Final = "write.delete.orc.compression-codec"
DELETE_AVRO_COMPRESSION: Final = "write.delete.avro.compression-codec"
BLOOM_FILTER_ENABLED_PREFIX: Final = "write.parquet.bloom-filter-enabled.column."
BLOOM_FILTER_FPP_PREFIX: Final = "write.parquet.bloom-filter-fpp.column."

# Metrics of columns in manifests.
AUTO_ENABLED: Final = "write.auto.enabled"
AUTO_MAX_DELETED_RATIO: Final = "write.auto.max-deleted-ratio"
DEFAULT_METRICS_MODE: Final = "write.metadata.metrics.default"
METRICS_MODE_COLUMN_PREFIX: Final = "write.metadata.metrics.column."
METRICS_MAX_INFERRED_COLUMNS: Final = "write.metadata.metrics.max-inferred-column-defaults"

# Post-commit actions of RowDelta.
COMMIT_TAG_CREATION: Final = "commit.tag.creation"
COMMIT_TAG_PREFIX: Final = "commit.tag.prefix"
COMMIT_TAG_MAX_REF_AGE: Final = "commit.tag.max-ref-age-ms"
COMMIT_TAG_NUM_RETAINED: Final = "commit.tag.num-retained"
COMMIT_MARK_DONE: Final = "commit.mark-done.action"
COMMIT_MARK_DONE_DELAY: Final = "commit.mark-done.delay-ms"
COMMIT_MARK_DONE_UNTIL: Final = "commit.mark-done.until"
COMMIT_TIME_ZONE: Final = "commit.time-zone"

# Maintenance, of RowDelta. RowDelta sets the lease and the time of the last removal of orphan files.
MAINTENANCE_REWRITE_PREFIX: Final = "maintenance.rewrite."
MAINTENANCE_REWRITE_OPTIONS: Final = frozenset(
    {
        "cache-delete-files",
        "delete-file-threshold",
        "delete-ratio-threshold",
        "max-concurrent-file-group-rewrites",
        "max-file-group-input-files",
        "max-file-group-size-bytes",
        "max-file-size-bytes",
        "max-files-to-rewrite",
        "min-file-size-bytes",
        "min-input-files",
        "output-spec-id",
        "partial-progress.enabled",
        "partial-progress.max-commits",
        "partial-progress.max-failed-commits",
        "remove-dangling-deletes",
        "rewrite-all",
        "rewrite-job-order",
        "target-file-size-bytes",
        "use-starting-sequence-number",
    }
)
MAINTENANCE_PARTITION_IDLE: Final = "maintenance.partition-idle-ms"
MAINTENANCE_TTL_COLUMN: Final = "maintenance.ttl.column"
MAINTENANCE_TTL_MAX_AGE: Final = "maintenance.ttl.max-age-ms"
MAINTENANCE_STATISTICS: Final = "maintenance.statistics"
MAINTENANCE_ORPHANS_INTERVAL: Final = "maintenance.orphans.interval-ms"
MAINTENANCE_ORPHANS_LAST_RUN: Final = "maintenance.orphans.last-run-ms"
MAINTENANCE_LEASE_DURATION: Final = "maintenance.lease.duration-ms"
MAINTENANCE_LEASE_HOLDER: Final = "maintenance.lease.holder"
MAINTENANCE_LEASE_EXPIRES_AT: Final = "maintenance.lease.expires-at-ms"
MAINTENANCE_TRIGGER_COMMITS: Final = "maintenance.trigger.commits"
MAINTENANCE_TRIGGER_SMALL_FILES: Final = "maintenance.trigger.small-files"
MAINTENANCE_TRIGGER_DELETED_RATIO: Final = "maintenance.trigger.deleted-ratio"
MAINTENANCE_TRIGGER_BUDGET: Final = "maintenance.trigger.budget-ms"

HOOK_PROPERTIES: Final = (
    COMMIT_TAG_CREATION,
    COMMIT_TAG_PREFIX,
    COMMIT_TAG_MAX_REF_AGE,
    COMMIT_TAG_NUM_RETAINED,
    COMMIT_MARK_DONE,
    COMMIT_MARK_DONE_DELAY,
    COMMIT_TIME_ZONE,
    MAINTENANCE_TRIGGER_COMMITS,
    MAINTENANCE_TRIGGER_SMALL_FILES,
    MAINTENANCE_TRIGGER_DELETED_RATIO,
    MAINTENANCE_TRIGGER_BUDGET,
)
"""Properties of post-commit actions, which a session may set instead of the table."""

FOLDER_PROPERTIES: Final = (
    WRITE_DATA_PATH,
    WRITE_METADATA_PATH,
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Properties that name folders for a table's files besides its location."""

E = TypeVar("E", bound=StrEnum)


class Command(StrEnum):
    """The commands with their own mode, isolation level and distribution mode."""

    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"


DISTRIBUTION_MODES: Final = (WRITE_DISTRIBUTION_MODE, *(f"write.{command}.distribution-mode" for command in Command))
"""Properties whose value is a `DistributionMode`."""


class RowLevelOperationMode(StrEnum):
    """`write.{delete,update,merge}.mode`; `AUTO` is RowDelta's adaptive mode, which `write.auto.enabled` enables."""

    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"
    AUTO = "auto"


class OrcStrategy(StrEnum):
    """`write.orc.compression-strategy`."""

    SPEED = "speed"
    COMPRESSION = "compression"


class IsolationLevel(StrEnum):
    """`write.{delete,update,merge}.isolation-level`."""

    SERIALIZABLE = "serializable"
    SNAPSHOT = "snapshot"


class DistributionMode(StrEnum):
    """`write.distribution-mode`, and its variants per command."""

    NONE = "none"
    HASH = "hash"
    RANGE = "range"


class DeleteGranularity(StrEnum):
    """`write.delete.granularity`."""

    FILE = "file"
    PARTITION = "partition"


class StatisticsUpkeep(StrEnum):
    """`maintenance.statistics`: refresh existing statistics, also compute missing ones, or neither."""

    EXISTING = "existing"
    ALL = "all"
    NONE = "none"


def choice(properties: Mapping[str, str], key: str, enum: type[E], default: E, *unoffered: E) -> E:
    """Return the value of an enumerated property; the error lists all values except `unoffered`.

    Raises:
        AnalysisError: The value is not valid for the property.
    """
    text = properties.get(key)
    if text is None:
        return default
    try:
        return enum(text.strip().lower())
    except ValueError:
        known = ", ".join(f"'{member.value}'" for member in enum if member not in unoffered)
        raise AnalysisError(
            f"The table property '{key}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint=f"It must be one of {known}",
            property=key,
        ) from None


def integer(properties: Mapping[str, str], key: str, default: int, *, minimum: int = 0) -> int:
    """Return the value of a numeric property.

    Raises:
        AnalysisError: The value is not a whole number, or is below the minimum.
    """
    text = properties.get(key)
    if text is None:
        return default
    try:
        value = int(text.strip())
    except ValueError:
        value = minimum - 1
    if value < minimum:
        raise AnalysisError(
            f"The table property '{key}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint=f"It must be a whole number, {minimum} or more",
            property=key,
        )
    return value


def share(properties: Mapping[str, str], key: str, default: float) -> float:
    """Return the value of a property that is a fraction, from 0 to 1.

    Raises:
        AnalysisError: The value is not a number from 0 to 1.
    """
    text = properties.get(key)
    if text is None:
        return default
    try:
        value = float(text.strip())
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise AnalysisError(
            f"The table property '{key}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be a number from 0 to 1",
            property=key,
        )
    return value


def boolean(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Return the value of a boolean property; as in Java, anything but "true" is False."""
    text = properties.get(key)
    return default if text is None else text.strip().lower() == "true"


def row_level_operation_mode(properties: Mapping[str, str], command: Command) -> RowLevelOperationMode:
    """Return the mode of a command on a table.

    Raises:
        AnalysisError: The value is not one of Iceberg's modes.
    """
    if boolean(properties, AUTO_ENABLED, default=False):
        return RowLevelOperationMode.AUTO
    key, modes = f"write.{command}.mode", RowLevelOperationMode
    mode = choice(properties, key, modes, modes.COPY_ON_WRITE, modes.AUTO)
    if mode is RowLevelOperationMode.AUTO:
        raise AnalysisError(
            f"The table property '{key}' is 'auto', which other engines refuse",
            kind=ErrorKind.INVALID_PROPERTY,
            hint=f"Set '{AUTO_ENABLED}' = 'true', and '{key}' to 'copy-on-write' or 'merge-on-read' for other engines",
            property=key,
        )
    return mode


def distribution_mode_of(command: Command) -> str:
    """Return the name of a command's distribution mode property."""
    return f"write.{command}.distribution-mode"


def isolation_level(properties: Mapping[str, str], command: Command) -> IsolationLevel:
    """Return the isolation level of a command on a table."""
    return choice(properties, f"write.{command}.isolation-level", IsolationLevel, IsolationLevel.SERIALIZABLE)


def row_level_concurrency(properties: Mapping[str, str]) -> bool:
    """Return `write.row-level-concurrency.enabled`: commits that change different rows of a file do not conflict.

    This is a property of RowDelta, not of Iceberg.
    """
    return boolean(properties, "write.row-level-concurrency.enabled", default=True)


def row_probe_bytes(properties: Mapping[str, str]) -> int:
    """Return `write.row-level-concurrency.max-checked-bytes`.

    Above this size, data files that other commits have added are not read but judged by their metrics.
    """
    return integer(properties, "write.row-level-concurrency.max-checked-bytes", 256 * 1024 * 1024)


def sent_source_bytes(properties: Mapping[str, str], default: int) -> int:
    """Return `write.merge.max-sent-source-bytes`: the limit for a MERGE's source that each task receives whole."""
    return integer(properties, "write.merge.max-sent-source-bytes", default)


def num_reruns(properties: Mapping[str, str]) -> int:
    """Return `commit.rerun.num-reruns`: how often a statement runs again after a conflict with another commit."""
    return integer(properties, "commit.rerun.num-reruns", 0)


def num_reruns_after_compaction(properties: Mapping[str, str]) -> int:
    """Return `commit.rerun.num-reruns-after-compaction`: the same if the other commits changed no row."""
    return integer(properties, "commit.rerun.num-reruns-after-compaction", 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of writers; sizes in bytes.

    Attributes:
        file_format: `write.format.default`, lower case.
        delete_file_format: `write.delete.format.default`, else the data format.
        target_file_size: `write.target-file-size-bytes`.
        delete_target_file_size: `write.delete.target-file-size-bytes`.
        compression: `write.parquet.compression-codec`, lower case.
        compression_level: `write.parquet.compression-level`.
        row_group_size: `write.parquet.row-group-size-bytes`.
        row_group_rows: `write.parquet.row-group-limit`.
        splice_enabled: `write.splice.enabled`, RowDelta's own.
        splice_min_file_size: `write.splice.min-file-size-bytes`, RowDelta's own.
        auto_max_deleted_ratio: `write.auto.max-deleted-ratio`, RowDelta's own.
        page_size: `write.parquet.page-size-bytes`.
        page_rows: `write.parquet.page-row-limit`.
        dictionary_size: `write.parquet.dict-size-bytes`.
        shred_variants: `write.parquet.shred-variants`.
        variant_inference_rows: `write.parquet.variant-inference-buffer-size`.
        orc_compression: `write.orc.compression-codec`, lower case.
        orc_strategy: `write.orc.compression-strategy`.
        orc_stripe_size: `write.orc.stripe-size-bytes`.
        avro_compression: `write.avro.compression-codec`, lower case.
        delete_granularity: `write.delete.granularity`; Spark's default is `file`.
        fanout: `write.spark.fanout.enabled`; None if unset.
    """

    file_format: str = "parquet"
    delete_file_format: str = "parquet"
    target_file_size: int = 512 * 1024 * 1024
    delete_target_file_size: int = 64 * 1024 * 1024
    compression: str = "zstd"
    compression_level: int | None = None
    row_group_size: int = 128 * 1024 * 1024
    row_group_rows: int = 1_048_576
    splice_enabled: bool = True
    splice_min_file_size: int = 4 * 1024 * 1024
    auto_max_deleted_ratio: float = 0.1
    page_size: int = 1024 * 1024
    page_rows: int = 20_000
    dictionary_size: int = 2 * 1024 * 1024
    shred_variants: bool = False
    variant_inference_rows: int = 100
    orc_compression: str = "zlib"
    orc_strategy: OrcStrategy = OrcStrategy.SPEED
    orc_stripe_size: int = 64 * 1024 * 1024
    avro_compression: str = "gzip"
    delete_granularity: DeleteGranularity = DeleteGranularity.FILE
    fanout: bool | None = None

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "WriteOptions":
        """Parse a table's properties.

        Raises:
            AnalysisError: a property has a value that it cannot have.
        """
        default = WriteOptions()
        file_format = properties.get(DEFAULT_FILE_FORMAT, default.file_format).lower()
        level = properties.get(PARQUET_COMPRESSION_LEVEL)
        fanout = properties.get(SPARK_FANOUT_ENABLED)
        return WriteOptions(
            file_format=file_format,
            delete_file_format=properties.get(DELETE_DEFAULT_FILE_FORMAT, file_format).lower(),
            target_file_size=integer(properties, WRITE_TARGET_FILE_SIZE, default.target_file_size, minimum=1),
            delete_target_file_size=integer(
                properties, "write.delete.target-file-size-bytes", default.delete_target_file_size, minimum=1
            ),
            compression=properties.get(PARQUET_COMPRESSION, default.compression).lower(),
            compression_level=None
            if level is None
            else integer(properties, PARQUET_COMPRESSION_LEVEL, 0, minimum=-131072),
            row_group_size=integer(properties, "write.parquet.row-group-size-bytes", default.row_group_size, minimum=1),
            row_group_rows=integer(properties, PARQUET_ROW_GROUP_LIMIT, default.row_group_rows, minimum=1),
            splice_enabled=boolean(properties, "write.splice.enabled", default=True),
            splice_min_file_size=integer(properties, "write.splice.min-file-size-bytes", default.splice_min_file_size),
            auto_max_deleted_ratio=share(properties, AUTO_MAX_DELETED_RATIO, default.auto_max_deleted_ratio),
            page_size=integer(properties, "write.parquet.page-size-bytes", default.page_size, minimum=1),
            page_rows=integer(properties, "write.parquet.page-row-limit", default.page_rows, minimum=1),
            dictionary_size=integer(properties, "write.parquet.dict-size-bytes", default.dictionary_size, minimum=1),
            shred_variants=boolean(properties, PARQUET_SHRED_VARIANTS, default=False),
            variant_inference_rows=integer(
                properties, PARQUET_VARIANT_INFERENCE_ROWS, default.variant_inference_rows, minimum=1
            ),
            orc_compression=properties.get(ORC_COMPRESSION, default.orc_compression).lower(),
            orc_strategy=choice(properties, ORC_COMPRESSION_STRATEGY, OrcStrategy, default.orc_strategy),
            orc_stripe_size=integer(properties, "write.orc.stripe-size-bytes", default.orc_stripe_size, minimum=1),
            avro_compression=properties.get(AVRO_COMPRESSION, default.avro_compression).lower(),
            delete_granularity=choice(
                properties, "write.delete.granularity", DeleteGranularity, DeleteGranularity.FILE
            ),
            fanout=None if fanout is None else boolean(properties, SPARK_FANOUT_ENABLED, default=True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """The options of commits; waits in milliseconds.

    Attributes:
        num_retries: `commit.retry.num-retries`.
        min_wait_ms: `commit.retry.min-wait-ms`.
        max_wait_ms: `commit.retry.max-wait-ms`.
        total_timeout_ms: `commit.retry.total-timeout-ms`.
        status_check_retries: `commit.status-check.num-retries`.
        status_check_min_wait_ms: `commit.status-check.min-wait-ms`.
        status_check_max_wait_ms: `commit.status-check.max-wait-ms`.
        status_check_timeout_ms: `commit.status-check.total-timeout-ms`.
        manifest_merge_enabled: `commit.manifest-merge.enabled`.
        manifest_target_size: `commit.manifest.target-size-bytes`.
        manifest_min_count_to_merge: `commit.manifest.min-count-to-merge`.
        partition_summary_limit: `write.summary.partition-limit`.
    """

    num_retries: int = 4
    min_wait_ms: int = 100
    max_wait_ms: int = 60_000
    total_timeout_ms: int = 1_800_000
    status_check_retries: int = 3
    status_check_min_wait_ms: int = 1_000
    status_check_max_wait_ms: int = 60_000
    status_check_timeout_ms: int = 1_800_000
    manifest_merge_enabled: bool = True
    manifest_target_size: int = 8 * 1024 * 1024
    manifest_min_count_to_merge: int = 100
    partition_summary_limit: int = 0

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "CommitOptions":
        """Parse a table's properties.

        Raises:
            AnalysisError: a property has a value that it cannot have.
        """
        default = CommitOptions()
        return CommitOptions(
            num_retries=integer(properties, "commit.retry.num-retries", default.num_retries),
            min_wait_ms=integer(properties, "commit.retry.min-wait-ms", default.min_wait_ms),
            max_wait_ms=integer(properties, "commit.retry.max-wait-ms", default.max_wait_ms),
            total_timeout_ms=integer(properties, "commit.retry.total-timeout-ms", default.total_timeout_ms),
            status_check_retries=integer(properties, "commit.status-check.num-retries", default.status_check_retries),
            status_check_min_wait_ms=integer(
                properties, "commit.status-check.min-wait-ms", default.status_check_min_wait_ms
            ),
            status_check_max_wait_ms=integer(
                properties, "commit.status-check.max-wait-ms", default.status_check_max_wait_ms
            ),
            status_check_timeout_ms=integer(
                properties, "commit.status-check.total-timeout-ms", default.status_check_timeout_ms
            ),
            manifest_merge_enabled=boolean(properties, "commit.manifest-merge.enabled", default=True),
            manifest_target_size=integer(
                properties, "commit.manifest.target-size-bytes", default.manifest_target_size, minimum=1
            ),
            manifest_min_count_to_merge=integer(
                properties,
                "commit.manifest.min-count-to-merge",
                default.manifest_min_count_to_merge,
                minimum=1,
            ),
            partition_summary_limit=integer(
                properties, "write.summary.partition-limit", default.partition_summary_limit
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """The options of `maintain`; times in milliseconds. All properties are RowDelta's own.

    Attributes:
        rewrite: `maintenance.rewrite.*`: options of `rewrite_data_files`, by name.
        partition_idle_ms: `maintenance.partition-idle-ms`: partitions with a newer file are not compacted.
        ttl_column: `maintenance.ttl.column`: the column by whose time rows are deleted; None to delete none.
        ttl_max_age_ms: `maintenance.ttl.max-age-ms`: the age above which rows are deleted; None to delete none.
        statistics: `maintenance.statistics`.
        orphans_interval_ms: `maintenance.orphans.interval-ms`: the least time between two removals of orphan files; 0
            to remove none.
        orphans_last_run_ms: `maintenance.orphans.last-run-ms`: when they were last removed, since 1970; 0 for never.
        lease_duration_ms: `maintenance.lease.duration-ms`: the time after which the lease of a dead maintainer ends.
    """

    rewrite: Mapping[str, str] = field(default_factory=dict, hash=False)
    partition_idle_ms: int = 0
    ttl_column: str | None = None
    ttl_max_age_ms: int | None = None
    statistics: StatisticsUpkeep = StatisticsUpkeep.EXISTING
    orphans_interval_ms: int = 7 * 24 * 3600 * 1000
    orphans_last_run_ms: int = 0
    lease_duration_ms: int = 3600 * 1000

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> "MaintenanceOptions":
        """Parse a table's properties.

        Raises:
            AnalysisError: A property has an invalid value.
        """
        default = MaintenanceOptions()
        prefix = MAINTENANCE_REWRITE_PREFIX
        has_age = MAINTENANCE_TTL_MAX_AGE in properties
        return MaintenanceOptions(
            rewrite={key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)},
            partition_idle_ms=integer(properties, MAINTENANCE_PARTITION_IDLE, default.partition_idle_ms),
            ttl_column=properties.get(MAINTENANCE_TTL_COLUMN),
            ttl_max_age_ms=integer(properties, MAINTENANCE_TTL_MAX_AGE, 0, minimum=1) if has_age else None,
            statistics=choice(properties, MAINTENANCE_STATISTICS, StatisticsUpkeep, default.statistics),
            orphans_interval_ms=integer(properties, MAINTENANCE_ORPHANS_INTERVAL, default.orphans_interval_ms),
            orphans_last_run_ms=integer(properties, MAINTENANCE_ORPHANS_LAST_RUN, default.orphans_last_run_ms),
            lease_duration_ms=integer(properties, MAINTENANCE_LEASE_DURATION, default.lease_duration_ms, minimum=1),
        )
