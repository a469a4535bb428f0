"""The module's functions: `dml.connect`, and `dml.sql` and others on the session that it opened last. Driver.

dml.connect("./warehouse")
dml.sql("DELETE FROM db.flights WHERE dep_time IS NULL")
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from dml.catalog.loading import load
from dml.catalog.registry import CatalogRegistry
from dml.errors import SetupError
from dml.merge_builder import Condition, MergeBuilder, Source, Value
from dml.result import Result
from dml.session import ACTIVE, Session
from dml.spark import interception
from dml.spark.lazy_session import LazySession
from dml.tracebacks import short_traceback

if TYPE_CHECKING:
    from dml.merge_stream import StreamMerge
    from dml.table_health import TableHealth
    from dml.verification import Verification

__all__ = [
    "DEFAULT_CATALOG",
    "DEFAULT_WAREHOUSE",
    "active",
    "after_commit",
    "connect",
    "delete",
    "disable",
    "enable",
    "health",
    "insert",
    "merge_into",
    "remove_orphan_files",
    "sql",
    "stream_merge",
    "table",
    "update",
    "upsert",
    "verify",
]

DEFAULT_CATALOG: Final = "lake"
"""The name of the embedded catalog."""

DEFAULT_WAREHOUSE: Final = "./warehouse"


@short_traceback
def connect(
    warehouse: str | None = None,
    *,
    catalog: str | None = None,
    spark: SparkSession | None = None,
    progress: bool = True,
    settings: Mapping[str, str] | None = None,
    **properties: str,
) -> Session:
    """Open a session on a catalog.

    Examples:
        >>> lake = dml.connect("./warehouse")
        >>> lake.sql("SELECT 1").show()
        >>> lake = dml.connect(catalog="prod", type="rest", uri="https://catalog.example.com")

    Args:
        warehouse: The folder of the embedded catalog (SQLite and local files). Without warehouse and catalog it is
            `./warehouse`.
        catalog: The name of a PyIceberg catalog, from its configuration or described by `properties`.
        spark: The Spark session; by default the active one, or a new one that starts on first use.
        progress: Show a progress bar in a terminal for long statements.
        settings: Spark settings, if a Spark session is started. They are read when it starts.
        **properties: PyIceberg's catalog properties (`type`, `uri`, ...; others as `**{"s3.region": "..."}`).

    Returns:
        The session, which becomes the active one of the module's functions.

    Raises:
        SetupError: The catalog does not start. `Session.spark` raises what keeps Spark from starting.
    """
    name = catalog or DEFAULT_CATALOG
    if warehouse is None and catalog is None:
        warehouse = DEFAULT_WAREHOUSE
    loaded = load(name, warehouse, **properties)
    registry = CatalogRegistry(catalogs={name: loaded}, current_catalog=name)
    session = Session(LazySession.of(spark, settings=settings), registry, progress=progress)
    session.enable()
    ACTIVE[:] = [session]
    return session


@short_traceback
def active() -> Session:
    """Return the session that `connect` opened last.

    Raises:
        SetupError: There is no open session.
    """
    if not ACTIVE:
        raise SetupError("There is no active session", hint="Call dml.connect(...) first")
    return ACTIVE[0]


# ---- the module's functions, on the active session


def enable(spark: SparkSession) -> None:
    """Make `spark.sql` of an existing Spark session, classic or Connect, accept RowDelta's statements.

    Raises:
        SetupError: There is no active session, so no catalog to resolve tables.
    """
    active().enable(spark)


def disable(spark: SparkSession) -> None:
    """Restore `spark.sql` of a Spark session, and remove RowDelta's catalogs from it."""
    interception.disable(spark)


@short_traceback
def sql(
    text: str,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    idempotency_key: str | None = None,
    reruns: int | None = None,
    **values: Any,
) -> DataFrame | Result:
    """Call `Session.sql` on the active session."""
    return active().sql(text, args, idempotency_key=idempotency_key, reruns=reruns, **values)


@short_traceback
def after_commit(callback: Callable[[Result], object]) -> Callable[[], None]:
    """Call `Session.after_commit` on the active session."""
    return active().after_commit(callback)


@short_traceback
def table(name: str) -> DataFrame:
    """Call `Session.table` on the active session."""
    return active().table(name)


@short_traceback
def delete(table: str, condition: Condition | None = None, *, idempotency_key: str | None = None) -> Result:
    """Call `Session.delete` on the active session."""
    return active().delete(table, condition, idempotency_key=idempotency_key)


@short_traceback
def update(
    table: str,
    set: Mapping[str, Value],  # noqa: A002
    where: Condition | None = None,
    *,
    idempotency_key: str | None = None,
) -> Result:
    """Call `Session.update` on the active session."""
    return active().update(table, set, where, idempotency_key=idempotency_key)


@short_traceback
def verify(table: str, snapshot_id: int | None = None, *, every_file: bool = False) -> "Verification":
    """Call `Session.verify` on the active session."""
    return active().verify(table, snapshot_id, every_file=every_file)


@short_traceback
def health(table: str, branch: str | None = None) -> "TableHealth":
    """Call `Session.health` on the active session."""
    return active().health(table, branch)


@short_traceback
def remove_orphan_files(
    table: str,
    older_than: datetime | None = None,
    location: str | None = None,
    dry_run: bool = False,
    **options: Any,
) -> tuple[str, ...]:
    """Call `Session.remove_orphan_files` on the active session."""
    return active().remove_orphan_files(table, older_than, location, dry_run, **options)


@short_traceback
def insert(table: str, rows: Source, *, idempotency_key: str | None = None) -> Result:
    """Call `Session.insert` on the active session."""
    return active().insert(table, rows, idempotency_key=idempotency_key)


@short_traceback
def upsert(
    table: str, rows: Source, on: str | Sequence[str] | None = None, *, idempotency_key: str | None = None
) -> Result:
    """Call `Session.upsert` on the active session."""
    return active().upsert(table, rows, on, idempotency_key=idempotency_key)


@short_traceback
def merge_into(source: Source, table: str, on: Condition, *, source_alias: str = "source") -> MergeBuilder:
    """Call `Session.merge_into` on the active session."""
    return active().merge_into(source, table, on, source_alias=source_alias)


@short_traceback
def stream_merge(
    source: DataFrame,
    table: str,
    on: Condition | Sequence[str],
    *,
    keys: Sequence[str] | str | None = None,
    latest_by: Sequence[str] | str | None = None,
    source_alias: str = "source",
) -> "StreamMerge":
    """Call `Session.stream_merge` on the active session."""
    return active().stream_merge(source, table, on, keys=keys, latest_by=latest_by, source_alias=source_alias)
