"""`spark.catalog` on RowDelta's namespaces and tables, and the current catalog. Driver, Spark Connect.

Input: the name that a method was given, and its other arguments by PySpark's names. Output: PySpark's own values, from
the catalog; creating and dropping go through `dml.ddl`. The server caches: it caches the scan of the table's state at
that time.

RowDelta's catalogs are never the server's current catalog. After `USE` or `setCurrentCatalog` has entered one, names
without a catalog resolve to the server's temporary views first, then to that catalog. The server's own current catalog
does not change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.catalog import CatalogMetadata, Column, Database, Table
from pyspark.sql.types import StructType

from dml import catalog as catalogs
from dml import ddl
from dml.catalog import list_namespaces
from dml.catalog.registry import ResolvedTable
from dml.connector.table_changes import NOWHERE, reference_of
from dml.ddl import match_names
from dml.ddl.properties import COMMENT
from dml.engine.dispatch import run_use
from dml.engine.engine import Engine, StatementSettings
from dml.engine.ownership import is_current_on_connect
from dml.engine.row_level import run_truncate
from dml.errors import AlreadyExistsError, AnalysisError, ErrorKind, NotFoundError
from dml.spark.handlers import run_as_handler
from dml.spark.types import spark_field
from dml.spark_connect.errors import ErrorCondition, message_of, spark_error, translate_errors
from dml.spark_connect.reads import read_table
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name, quoted
from dml.sqlparse.statements import (
    CreateNamespace,
    CreateTable,
    DropNamespace,
    DropTable,
    ShowCreateTable,
    ShowProperties,
    ShowTables,
    Span,
    Truncate,
    Use,
)

__all__ = ["CURRENT_METHODS", "NAMESPACE_METHODS", "TABLE_METHODS", "CurrentCatalog", "Namespaces", "Tables"]

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """Methods for tables.

    Attributes:
        engine: The session and its catalogs.
    """

    engine: Engine

    def exists(self, parts: Parts) -> bool:
        """`tableExists`."""
        return self.engine.registry.resolve(parts) is not None

    def get(self, parts: Parts) -> Table:
        """`getTable`."""
        found = self._resolve(parts)
        return Table(
            name=parts[-1],
            catalog=found.catalog_name,
            namespace=list(found.identifier[:-1]),
            description=found.table.properties.get(COMMENT),
            tableType="MANAGED",
            isTemporary=False,
        )

    def columns(self, parts: Parts) -> list[Column]:
        """`listColumns`."""
        table = self._resolve(parts).table
        fields = table.spec().fields
        partitions = {field.source_id for field in fields if isinstance(field.transform, IdentityTransform)}
        buckets = {field.source_id for field in fields if isinstance(field.transform, BucketTransform)}
        return [
            Column(
                name=field.name,
                description=field.doc,
                dataType=spark_field(field).dataType.simpleString(),
                nullable=not field.required,
                isPartition=field.field_id in partitions,
                isBucket=field.field_id in buckets,
                isCluster=False,
            )
            for field in table.schema().fields
        ]

    def create(
        self,
        parts: Parts,
        path: str | None = None,
        source: str | None = None,
        schema: StructType | None = None,
        description: str | None = None,
        **options: str,
    ) -> DataFrame:
        """`createTable`."""
        statement = CreateTable(
            table=reference_of(parts),
            provider=source,
            properties=tuple((key, str(value)) for key, value in options.items()),
            comment=description or None,
            location=path,
        )
        catalog_name, identifier = self.engine.registry.split(parts)
        with run_as_handler(), translate_errors(self.engine, parts, creates=True):
            ddl.create_table(
                statement,
                self.engine.registry.catalog(catalog_name),
                identifier,
                ddl.schema_from_json(schema.json()) if schema is not None and len(schema) else None,
                time_zone=self._time_zone,
            )
        return read_table(self.engine, parts, {})

    def drop(self, parts: Parts, ifExists: bool = False, purge: bool = False) -> None:  # noqa: N803  PySpark's name
        """`dropTable`."""
        self._run(DropTable(table=reference_of(parts), if_exists=ifExists, purge=purge), parts)

    def truncate(self, parts: Parts) -> None:
        """`truncateTable`."""
        with run_as_handler(), translate_errors(self.engine, parts):
            run_truncate(self.engine, Truncate(target=reference_of(parts)), quote_name(parts), None)

    def properties(self, parts: Parts) -> dict[str, str]:
        """`getTableProperties`."""
        rows = self._run(ShowProperties(table=reference_of(parts)), parts).rows
        return {str(row[0]): str(row[1]) for row in rows}

    def create_text(self, parts: Parts, asSerde: bool = False) -> str:  # noqa: ARG002, N803  PySpark's name
        """`getCreateTableString`. There is no Hive form, so `asSerde` is ignored."""
        return str(self._run(ShowCreateTable(table=reference_of(parts)), parts).rows[0][0])

    def cache(self, parts: Parts, storageLevel: StorageLevel | None = None) -> None:  # noqa: N803  PySpark's name
        """`cacheTable`."""
        frame = read_table(self.engine, parts, {})
        frame.persist(storageLevel) if storageLevel is not None else frame.persist()

    def is_cached(self, parts: Parts) -> bool:
        """`isCached`."""
        level = read_table(self.engine, parts, {}).storageLevel
        return level.useMemory or level.useDisk

    def uncache(self, parts: Parts) -> None:
        """`uncacheTable`."""
        read_table(self.engine, parts, {}).unpersist()

    def refresh(self, parts: Parts) -> None:
        """`refreshTable`: check that the table exists. Reads always use the current state."""
        self._resolve(parts)

    @property
    def _time_zone(self) -> str:
        return StatementSettings.of(self.engine).time_zone

    def _resolve(self, parts: Parts) -> ResolvedTable:
        found = self.engine.registry.resolve(parts)
        if found is None:
            message = f"The table or view {quote_name(parts)} cannot be found. {self.engine.registry.suggestion(parts)}"
            raise spark_error(ErrorCondition.TABLE_OR_VIEW_NOT_FOUND, parts, message)
        return found

    def _run(self, statement: ddl.DdlStatement, parts: Parts) -> ddl.DdlResult:
        with run_as_handler(), translate_errors(self.engine, parts):
            return ddl.execute(statement, self.engine.registry, time_zone=self._time_zone)


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Methods for namespaces.

    Attributes:
        engine: The session and its catalogs.
    """

    engine: Engine

    def exists(self, parts: Parts) -> bool:
        """`databaseExists`."""
        return catalogs.namespace_exists(self.engine.registry.catalog(parts[0]), parts[1:])

    def get(self, parts: Parts) -> Database:
        """`getDatabase`."""
        try:
            properties = catalogs.namespace_properties(self.engine.registry.catalog(parts[0]), parts[1:])
        except NotFoundError as error:
            raise spark_error(ErrorCondition.SCHEMA_NOT_FOUND, parts, message_of(error)) from error
        return Database(
            name=quote_name(parts[1:]),
            catalog=parts[0],
            description=properties.get(COMMENT),
            locationUri=properties.get("location", ""),
        )

    def tables(self, parts: Parts, pattern: str | None = None) -> list[Table]:
        """`listTables`."""
        try:
            statement = ShowTables(namespace=parts, pattern=pattern)
            shown = ddl.execute(statement, self.engine.registry, time_zone="UTC")
        except NotFoundError as error:
            raise spark_error(ErrorCondition.SCHEMA_NOT_FOUND, parts, message_of(error)) from error
        tables, names = Tables(self.engine), ((*parts, str(row[1])) for row in shown.rows)
        return [tables.get(name) for name in names if tables.exists(name)]  # a table may have been dropped since

    def create(
        self,
        parts: Parts,
        ifNotExists: bool = False,  # noqa: N803  PySpark's name
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`createDatabase`."""
        given = tuple((properties or {}).items())
        statement = CreateNamespace(name=parts, span=NOWHERE, if_not_exists=ifNotExists, properties=given)
        try:
            self._run(statement)
        except AlreadyExistsError as error:
            raise spark_error(ErrorCondition.SCHEMA_ALREADY_EXISTS, parts, message_of(error)) from error

    def drop(self, parts: Parts, ifExists: bool = False, cascade: bool = False) -> None:  # noqa: N803  PySpark's name
        """`dropDatabase`."""
        try:
            self._run(DropNamespace(name=parts, span=NOWHERE, if_exists=ifExists, cascade=cascade))
        except NotFoundError as error:
            raise spark_error(ErrorCondition.SCHEMA_NOT_FOUND, parts, message_of(error)) from error
        except AnalysisError as error:
            if error.kind is not ErrorKind.NOT_EMPTY:
                raise
            raise spark_error(ErrorCondition.SCHEMA_NOT_EMPTY, parts, message_of(error)) from error

    def _run(self, statement: ddl.DdlStatement) -> None:
        with run_as_handler():
            time_zone = StatementSettings.of(self.engine).time_zone
            ddl.execute(statement, self.engine.registry, time_zone=time_zone)


Answer = Callable[[Callable[[], Any]], Any]
"""Runs a call, given PySpark's own method."""


@dataclass(frozen=True, slots=True)
class CurrentCatalog:
    """Methods of `spark.catalog` that name no table.

    Each takes the arguments of a call and returns a function that runs it, or None if the call is Spark's.

    Attributes:
        engine: The session and its catalogs.
    """

    engine: Engine

    def name(self) -> Answer | None:
        """`currentCatalog`."""
        return (lambda _: self.engine.registry.current_catalog) if is_current_on_connect(self.engine) else None

    def namespace(self) -> Answer | None:
        """`currentDatabase`."""
        return (
            (lambda _: quote_name(self.engine.registry.current_namespace))
            if is_current_on_connect(self.engine)
            else None
        )

    def catalogs(self, pattern: str | None = None) -> Answer | None:
        """`listCatalogs`: the server's catalogs, then RowDelta's."""
        names = match_names(self.engine.registry.catalogs, pattern)
        added = [CatalogMetadata(name=name, description=None) for name in names]

        def list_all(original: Callable[[], list[CatalogMetadata]]) -> list[CatalogMetadata]:
            theirs = original()
            known = {getattr(found, "name", None) for found in theirs}
            return [*theirs, *(found for found in added if found.name not in known)]

        return list_all

    def namespaces(self, pattern: str | None = None) -> Answer | None:
        """`listDatabases` of the current catalog."""
        return (lambda _: self._namespaces(pattern)) if is_current_on_connect(self.engine) else None

    def _namespaces(self, pattern: str | None) -> list[Database]:
        registry, namespaces = self.engine.registry, Namespaces(self.engine)
        catalog = registry.current_catalog
        names = {quote_name(found): found for found in list_namespaces(registry.catalog(catalog), ())}
        return [namespaces.get((catalog, *names[name])) for name in match_names(names, pattern)]

    def enter(self, catalogName: str) -> Answer | None:  # noqa: N803  PySpark's name
        """`setCurrentCatalog`."""
        if catalogName in self.engine.registry.catalogs:
            return lambda _: self._use((catalogName,), catalog_only=True)
        return self._leave if is_current_on_connect(self.engine) else None

    def _leave(self, original: Callable[[], None]) -> None:
        original()
        self.engine.registry.is_current_on_connect = False

    def enter_namespace(self, dbName: str) -> Answer | None:  # noqa: N803  PySpark's name
        """`setCurrentDatabase`."""
        return (lambda _: self._enter_namespace(dbName)) if is_current_on_connect(self.engine) else None

    def _enter_namespace(self, name: str) -> None:
        parts = name_parts(name)
        try:
            self._use((self.engine.registry.current_catalog, *parts))
        except NotFoundError as error:
            raise spark_error(ErrorCondition.SCHEMA_NOT_FOUND, parts, message_of(error)) from error

    def _use(self, name: Parts, *, catalog_only: bool = False) -> None:
        text = ".".join(map(quoted, name))
        with run_as_handler():
            run_use(self.engine, Use(name=name, span=Span(0, len(text)), catalog_only=catalog_only), text)


TABLE_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "cacheTable": Tables.cache,
    "createTable": Tables.create,
    "dropTable": Tables.drop,
    "getCreateTableString": Tables.create_text,
    "getTable": Tables.get,
    "getTableProperties": Tables.properties,
    "isCached": Tables.is_cached,
    "listColumns": Tables.columns,
    "refreshTable": Tables.refresh,
    "tableExists": Tables.exists,
    "truncateTable": Tables.truncate,
    "uncacheTable": Tables.uncache,
}
"""Replaced methods of `spark.catalog` that take the name of a table."""

NAMESPACE_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "createDatabase": Namespaces.create,
    "databaseExists": Namespaces.exists,
    "dropDatabase": Namespaces.drop,
    "getDatabase": Namespaces.get,
    "listTables": Namespaces.tables,
}
"""Replaced methods of `spark.catalog` that take the name of a namespace."""

CURRENT_METHODS: Final[Mapping[str, Callable[..., Answer | None]]] = {
    "currentCatalog": CurrentCatalog.name,
    "currentDatabase": CurrentCatalog.namespace,
    "listCatalogs": CurrentCatalog.catalogs,
    "listDatabases": CurrentCatalog.namespaces,
    "setCurrentCatalog": CurrentCatalog.enter,
    "setCurrentDatabase": CurrentCatalog.enter_namespace,
}
"""Replaced methods of `spark.catalog` that return, set or list catalogs and namespaces."""
