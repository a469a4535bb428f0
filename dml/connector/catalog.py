"""A catalog of ours as Spark's: tables, namespaces and functions. Driver, classic Spark only.

Input: calls of Spark's `TableCatalog`, `SupportsNamespaces` and `FunctionCatalog`. Output: `SparkTable`s, lists of
names, functions; what is created, changed or dropped goes through `dml.ddl`, as the statements do. What is not there or
there already is said by the exceptions that Spark expects; every other error of ours arrives as itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from py4j.java_gateway import JavaObject
from pyiceberg.catalog import Catalog
from pyiceberg.view import View

from dml import catalog as catalogs
from dml import ddl
from dml.catalog.registry import ResolvedTable
from dml.connector.functions import list_functions, load_function
from dml.connector.metadata_table import SparkMetadataTable
from dml.connector.spark_views import definition_of, spark_view
from dml.connector.staged import SparkStagedTable, stage
from dml.connector.state import TableState, loaded_once
from dml.connector.table import SparkTable
from dml.connector.table_changes import NOWHERE, alter_actions, create_statement, reference_of
from dml.engine.engine import Engine, StatementSettings
from dml.errors import AlreadyExistsError, AnalysisError, NotFoundError
from dml.spark.java import CATALOG, array, java_class, java_error, java_map, simple_name, strings
from dml.spark.proxies import Proxy
from dml.spark.versions import Feature, has
from dml.sqlparse.statements import (
    AlterTable,
    CreateNamespace,
    DropNamespace,
    DropTable,
    RenameTable,
)

__all__ = ["SparkCatalog"]

ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
DEFAULT_NAMESPACE = ("default",)
MANAGED = "MANAGED"
VIEW = "VIEW"


class SparkCatalog(Proxy):
    """A catalog of a session.

    Args:
        engine: Gives the session and its catalogs.
        name: The catalog's name there.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "catalog.StagingTableCatalog",
        "catalog.RelationCatalog" if has(Feature.CATALOG_VIEWS) else "catalog.TableCatalog",
        "catalog.SupportsNamespaces",
        "catalog.FunctionCatalog",
    )

    def __init__(self, engine: Callable[[], Engine], name: str) -> None:
        self._provide = engine
        self._name = name

    def name(self) -> str:
        """Its name."""
        return self._name

    def toString(self) -> str:
        """What Spark shows."""
        return f"RowDelta catalog {self._name}"

    def initialize(self, name: str, options: JavaObject) -> None:
        """Nothing: it is made initialized."""

    def defaultNamespace(self) -> JavaObject:
        """The namespace after `USE catalog`."""
        return strings(DEFAULT_NAMESPACE)

    # ---- tables

    def listTables(self, namespace: Sequence[str]) -> JavaObject:
        """The tables of a namespace."""
        with namespace_errors(namespace):
            found = catalogs.list_tables(self._catalog, tuple(namespace))
        return array(CATALOG + "Identifier", (identifier_of(name) for name in found))

    def loadTable(self, identifier: JavaObject, *how: Any) -> SparkTable | SparkMetadataTable:
        """A table, as it is now or as it was: a version, a time, or a context that says either, with options."""
        state = travel(how)
        key = (*self._parts(identifier), *state)
        return loaded_once(self._engine.spark, key, lambda: self._table(self._resolved(identifier), *state))

    def tableExists(self, identifier: JavaObject) -> bool:
        """Whether there is such a table."""
        return self._engine.registry.resolve(self._parts(identifier)) is not None

    def createTable(self, identifier: JavaObject, *what: Any) -> SparkTable | SparkMetadataTable:
        """Create a table, of a `TableInfo` or of columns, partitioning and properties."""
        columns, partitions, properties = table_parts(what)
        try:
            self._run(create_statement(self._parts(identifier), columns, partitions, dict(properties)))
        except AlreadyExistsError:
            raise java_error(ANALYSIS + "TableAlreadyExistsException", identifier) from None
        except NotFoundError:
            raise java_error(ANALYSIS + "NoSuchNamespaceException", identifier.namespace()) from None
        return self.loadTable(identifier)

    def stageCreate(self, identifier: JavaObject, *what: Any) -> SparkStagedTable:
        """Prepare a new table, which comes with its rows."""
        return self._staged(identifier, what)

    def stageReplace(self, identifier: JavaObject, *what: Any) -> SparkStagedTable:
        """Prepare what a table is replaced by, with its rows."""
        return self._staged(identifier, what, replace_only=True)

    def stageCreateOrReplace(self, identifier: JavaObject, *what: Any) -> SparkStagedTable:
        """Prepare a table, new or in the place of one that is there."""
        return self._staged(identifier, what, or_replace=True)

    def alterTable(self, identifier: JavaObject, changes: Sequence[JavaObject]) -> SparkTable | SparkMetadataTable:
        """Change a table."""
        self._resolved(identifier)
        for action in alter_actions(changes):
            self._run(AlterTable(table=reference_of(self._parts(identifier)), action=action))
        return self.loadTable(identifier)

    def dropTable(self, identifier: JavaObject) -> bool:
        """Drop a table and keep its files; false if there is none."""
        return self._dropped(identifier, purge=False)

    def purgeTable(self, identifier: JavaObject) -> bool:
        """Drop a table and its files; false if there is none."""
        return self._dropped(identifier, purge=True)

    def renameTable(self, identifier: JavaObject, new: JavaObject) -> None:
        """Rename a table."""
        action = RenameTable(new_name=self._parts(new), span=NOWHERE)
        try:
            self._run(AlterTable(table=reference_of(self._parts(identifier)), action=action))
        except AlreadyExistsError:
            raise java_error(ANALYSIS + "TableAlreadyExistsException", new) from None
        except NotFoundError:
            if self._engine.registry.resolve(self._parts(identifier)) is None:
                raise java_error(ANALYSIS + "NoSuchTableException", identifier) from None
            raise java_error(ANALYSIS + "NoSuchNamespaceException", new.namespace()) from None

    # ---- views

    def loadRelation(self, identifier: JavaObject) -> SparkTable | SparkMetadataTable | JavaObject:
        """A table or a view."""
        found = self._engine.registry.resolve(self._parts(identifier))
        if found is not None:
            return self._table(found)
        view = self._view(identifier)
        if view is None:
            raise java_error(ANALYSIS + "NoSuchTableException", identifier)
        return spark_view(view, self._name)

    def loadView(self, identifier: JavaObject) -> JavaObject:
        """A view."""
        return spark_view(self._existing_view(identifier), self._name)

    def viewExists(self, identifier: JavaObject) -> bool:
        """Whether there is such a view."""
        return self._view(identifier) is not None

    def listViews(self, namespace: Sequence[str]) -> JavaObject:
        """The views of a namespace."""
        return array(CATALOG + "Identifier", map(identifier_of, catalogs.list_views(self._catalog, tuple(namespace))))

    def listTableSummaries(self, namespace: Sequence[str]) -> JavaObject:
        """The tables of a namespace, with their type: Spark would load each for it."""
        return self._summaries(MANAGED, self.listTables(namespace))

    def listRelationSummaries(self, namespace: Sequence[str]) -> JavaObject:
        """The tables and views of a namespace, with their types."""
        tables = self._summaries(MANAGED, self.listTables(namespace))
        views = self._summaries(VIEW, self.listViews(namespace))
        return array(CATALOG + "TableSummary", [*tables, *views])

    def createView(self, identifier: JavaObject, view: JavaObject) -> JavaObject:
        """Create a view."""
        return self._saved_view(identifier, view, None)

    def replaceView(self, identifier: JavaObject, view: JavaObject) -> JavaObject:
        """Give a view another definition."""
        return self._saved_view(identifier, view, self._existing_view(identifier))

    def createOrReplaceView(self, identifier: JavaObject, view: JavaObject) -> JavaObject:
        """Create a view, or give it another definition."""
        return self._saved_view(identifier, view, self._view(identifier))

    def dropView(self, identifier: JavaObject) -> bool:
        """Drop a view; false if there is none."""
        return catalogs.drop_view(self._catalog, self._parts(identifier)[1:])

    def renameView(self, identifier: JavaObject, new: JavaObject) -> None:
        """Rename a view."""
        self._existing_view(identifier)
        try:
            catalogs.rename_view(self._catalog, self._parts(identifier)[1:], self._new_name(new))
        except AlreadyExistsError:
            raise java_error(ANALYSIS + "ViewAlreadyExistsException", new) from None

    # ---- namespaces

    def listNamespaces(self, *parent: Sequence[str]) -> JavaObject:
        """The namespaces below one, or the topmost."""
        above = tuple(parent[0]) if parent else ()
        with namespace_errors(above):
            found = catalogs.list_namespaces(self._catalog, above)
        names = [name if name[: len(above)] == above and len(name) > len(above) else (*above, *name) for name in found]
        rows = java_class("java.lang.reflect.Array").newInstance(strings(()).getClass(), len(names))
        for index, name in enumerate(names):
            java_class("java.lang.reflect.Array").set(rows, index, strings(name))
        return rows

    def namespaceExists(self, namespace: Sequence[str]) -> bool:
        """Whether there is such a namespace."""
        return not namespace or catalogs.namespace_exists(self._catalog, tuple(namespace))

    def loadNamespaceMetadata(self, namespace: Sequence[str]) -> JavaObject:
        """The properties of a namespace."""
        with namespace_errors(namespace):
            return java_map(catalogs.namespace_properties(self._catalog, tuple(namespace)) if len(namespace) else {})

    def createNamespace(self, namespace: Sequence[str], properties: Any) -> None:
        """Create a namespace."""
        given = tuple((str(key), str(value)) for key, value in dict(properties).items() if key != "owner")
        try:
            self._run(CreateNamespace(name=(self._name, *namespace), span=NOWHERE, properties=given))
        except AlreadyExistsError:
            raise java_error(ANALYSIS + "NamespaceAlreadyExistsException", strings(namespace)) from None

    def alterNamespace(self, namespace: Sequence[str], changes: Sequence[JavaObject]) -> None:
        """Set and remove properties of a namespace."""
        given: dict[str, str] = {}
        removed: set[str] = set()
        for change in changes:
            if simple_name(change) == "SetProperty":
                given[str(change.property())] = str(change.value())
            else:
                removed.add(str(change.property()))
        with namespace_errors(namespace):
            catalogs.change_namespace_properties(self._catalog, tuple(namespace), given, removed)

    def dropNamespace(self, namespace: Sequence[str], cascade: bool) -> bool:
        """Drop a namespace; false if there is none."""
        if not catalogs.namespace_exists(self._catalog, tuple(namespace)):
            return False
        try:
            self._run(DropNamespace(name=(self._name, *namespace), span=NOWHERE, cascade=cascade))
        except NotFoundError:
            return False
        except AnalysisError as error:
            if "is not empty" in error.message:
                raise java_error(ANALYSIS + "NonEmptyNamespaceException", strings(namespace)) from None
            raise
        return True

    # ---- functions

    def listFunctions(self, namespace: Sequence[str]) -> JavaObject:
        """Iceberg's functions, which are in the namespace `system`."""
        return list_functions(namespace)

    def loadFunction(self, identifier: JavaObject) -> JavaObject:
        """A function of Iceberg's."""
        return load_function(lambda: self._engine.spark, identifier)

    # ---- inside

    @property
    def _engine(self) -> Engine:
        return self._provide()

    @property
    def _catalog(self) -> Catalog:
        return self._engine.registry.catalog(self._name)

    def _parts(self, identifier: JavaObject) -> tuple[str, ...]:
        return (self._name, *map(str, identifier.namespace()), str(identifier.name()))

    def _resolved(self, identifier: JavaObject) -> ResolvedTable:
        found = self._engine.registry.resolve(self._parts(identifier))
        if found is None:
            raise java_error(ANALYSIS + "NoSuchTableException", identifier)
        return found

    def _table(
        self, resolved: ResolvedTable, version: str | None = None, micros: int | None = None
    ) -> SparkTable | SparkMetadataTable:
        if resolved.metadata_table is not None:
            return SparkMetadataTable(self._provide, resolved, version, micros)
        return SparkTable(self._provide, TableState.of(self._engine, resolved, version, micros))

    def _view(self, identifier: JavaObject) -> View | None:
        return catalogs.load_view(self._catalog, self._parts(identifier)[1:])

    @staticmethod
    def _summaries(kind: str, identifiers: JavaObject) -> JavaObject:
        summary = java_class(CATALOG + "TableSummary")
        return array(CATALOG + "TableSummary", [summary.of(identifier, kind) for identifier in identifiers])

    def _new_name(self, identifier: JavaObject) -> tuple[str, ...]:
        # Spark takes the name after RENAME TO for one inside the catalog, also where it begins with the catalog.
        inside = self._parts(identifier)[1:]
        return inside[1:] if len(inside) > 2 and inside[0] == self._name else inside

    def _existing_view(self, identifier: JavaObject) -> View:
        found = self._view(identifier)
        if found is None:
            raise java_error(ANALYSIS + "NoSuchViewException", identifier)
        return found

    def _saved_view(self, identifier: JavaObject, view: JavaObject, replaces: View | None) -> JavaObject:
        try:
            saved = catalogs.save_view(
                self._catalog, self._parts(identifier)[1:], definition_of(view), replaces=replaces
            )
        except AlreadyExistsError:
            raise java_error(ANALYSIS + "ViewAlreadyExistsException", identifier) from None
        except NotFoundError:
            raise java_error(ANALYSIS + "NoSuchNamespaceException", identifier.namespace()) from None
        return spark_view(saved, self._name)

    def _staged(
        self, identifier: JavaObject, what: Sequence[Any], *, or_replace: bool = False, replace_only: bool = False
    ) -> SparkStagedTable:
        columns, partitions, properties = table_parts(what)
        statement = create_statement(self._parts(identifier), (), partitions, dict(properties))
        schema = ddl.schema_from_json(java_class(CATALOG + "CatalogV2Util").v2ColumnsToStructType(columns).json())
        try:
            return stage(self._provide, replace(statement, or_replace=or_replace, replace_only=replace_only), schema)
        except AlreadyExistsError:
            raise java_error(ANALYSIS + "TableAlreadyExistsException", identifier) from None
        except NotFoundError:
            if replace_only:
                raise java_error(ANALYSIS + "NoSuchTableException", identifier) from None
            raise java_error(ANALYSIS + "NoSuchNamespaceException", identifier.namespace()) from None

    def _dropped(self, identifier: JavaObject, *, purge: bool) -> bool:
        if not catalogs.table_exists(self._catalog, self._parts(identifier)[1:]):
            return False
        self._run(DropTable(table=reference_of(self._parts(identifier)), if_exists=True, purge=purge))
        return True

    def _run(self, statement: ddl.DdlStatement) -> None:
        time_zone = StatementSettings.of(self._engine).time_zone
        ddl.execute(statement, self._engine.registry, time_zone=time_zone)


def table_parts(what: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Columns, partitioning and properties of a new table, of a `TableInfo` or as Spark gave them before."""
    if len(what) == 1:
        return what[0].columns(), what[0].partitions(), what[0].properties()
    columns, partitions, properties = what
    return columns, partitions, properties


@contextmanager
def namespace_errors(namespace: Sequence[str]) -> Iterator[None]:
    """What is not there is the namespace."""
    try:
        yield
    except NotFoundError:
        raise java_error(ANALYSIS + "NoSuchNamespaceException", strings(namespace)) from None


def identifier_of(name: Sequence[str]) -> JavaObject:
    """Spark's identifier of a table."""
    return java_class(CATALOG + "Identifier").of(strings(name[:-1]), name[-1])


def travel(how: Sequence[Any]) -> tuple[str | None, int | None]:
    """The version, and the time in microseconds, that a table is to be loaded at."""
    match how:
        case [str() as version]:
            return version, None
        case [int() as micros]:
            return None, micros
        case [JavaObject() as context, _] if simple_name(context) == "TableContext":
            asked = context.timeTravel()
            if asked.isPresent():
                state = asked.get()
                if simple_name(state) == "AsOfVersion":
                    return str(state.version()), None
                return None, int(state.micros())
    return None, None
