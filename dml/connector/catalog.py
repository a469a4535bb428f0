"""A RowDelta catalog as a Spark catalog: tables, namespaces, views and functions. Driver, classic Spark only.

Input: calls of Spark's `TableCatalog`, `SupportsNamespaces`, `ViewCatalog` and `FunctionCatalog`. Output:
`SparkTable`s, lists of names, views, functions. Everything that is created, changed or dropped goes through `dml.ddl`,
as for statements. Missing and already existing objects raise the exceptions that Spark expects; all other RowDelta
errors reach the caller unchanged.

Tables that are created or replaced together with their rows (`SparkStagedTable`) become visible when Spark commits
them, in one commit with their rows; until then a replaced table keeps its content. If the catalog's server cannot stage
tables, a new table is created first, and dropped again if its rows cannot be written.

Spark parses and analyzes the query of a view each time the view is read. View properties hold what Spark needs and
Iceberg's metadata has no field for: the settings under which the query was written, the names of its columns, and how
the view follows changes of them.

A function, such as `lake.system.bucket(16, id)`, is a builder that returns a Spark expression when a call is analyzed,
the one that `dml.spark.iceberg_functions` uses in SQL: no Python runs per row. The functions therefore work wherever
Spark resolves one: in `expr`, in conditions of DataFrames, in `call_function`, in views. A function of Spark's
connector API would be a Java object that is sent to executors, which Python cannot implement.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from pyiceberg.view import View
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from dml import catalog as catalogs
from dml import ddl
from dml.catalog import LoadState, ViewDefinition
from dml.catalog.registry import ResolvedTable
from dml.connector.state import TableState, load_once
from dml.connector.table import SparkMetadataTable, SparkTable
from dml.connector.table_changes import NOWHERE, alter_actions, create_statement, reference_of
from dml.connector.write import SparkWriteBuilder, WrittenTable
from dml.engine.create_as_select import drop_empty
from dml.engine.engine import Engine, StatementSettings
from dml.errors import AlreadyExistsError, AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.result import Result
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.names import (
    ATTRIBUTE_MAP,
    EXPRESSION_INFO,
    NAMESPACE_EXISTS,
    NAMESPACE_NOT_EMPTY,
    NO_SUCH_FUNCTION,
    NO_SUCH_NAMESPACE,
    NO_SUCH_TABLE,
    NO_SUCH_VIEW,
    REPLACING_RULE,
    TABLE_EXISTS,
    V1_FUNCTION,
    VIEW_EXISTS,
)
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.sessions import analyzed_plan
from dml.spark.bridge.values import (
    CATALOG,
    array,
    elements,
    java_class,
    java_map,
    scala_list,
    scala_tuple,
    simple_name,
    string_array,
    struct_type,
)
from dml.spark.handlers import run_as_handler
from dml.spark.iceberg_functions import FUNCTIONS, NAMESPACE, replace_iceberg_functions
from dml.spark.types import spark_field
from dml.spark.versions import INSTALLED_FEATURES, Feature, require
from dml.spark_scan.expressions import mark_call, wrap_column
from dml.sqlparse.statements import (
    AlterTable,
    CreateNamespace,
    CreateTable,
    DropNamespace,
    DropTable,
    RenameTable,
)

__all__ = ["SparkCatalog", "stage"]

ARGUMENT: Final = "__rowdelta_argument_"


def list_functions(namespace: Sequence[str]) -> JavaObject:
    """Return the identifiers of the functions in a namespace; all functions are in one namespace."""
    names = sorted(FUNCTIONS) if [part.lower() for part in namespace] == [NAMESPACE] else []
    return array(CATALOG + "Identifier", (identifier(name) for name in names))


def identifier(name: str) -> JavaObject:
    """Return the identifier of a function."""
    return java_class(CATALOG + "Identifier").of(string_array((NAMESPACE,)), name)


def load_function(session: Callable[[], SparkSession], wanted: JavaObject) -> JavaObject:
    """Return the function that Spark's analyzer calls.

    Args:
        session: Returns the session that analyzes calls.
        wanted: The function's identifier.

    Raises:
        CallbackError: No function has this name. Spark receives a NoSuchFunctionException.
        NotSupportedError: This Spark accepts no builders from catalogs.
    """
    name = str(wanted.name()).lower()
    if [str(part).lower() for part in wanted.namespace()] != [NAMESPACE] or name not in FUNCTIONS:
        raise NO_SUCH_FUNCTION.error(wanted)
    require(Feature.CATALOG_FUNCTIONS)
    info = EXPRESSION_INFO.new("org.apache.iceberg", NAMESPACE, name)
    builder = FunctionBuilder(session, name)
    return V1_FUNCTION.call("apply", info, builder)


class FunctionBuilder(Proxy):
    """`Seq[Expression] => Expression`.

    Args:
        session: Returns the session that analyzes calls.
        name: The function's name.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("scala.Function1",)

    def __init__(self, session: Callable[[], SparkSession], name: str) -> None:
        self.session = session
        self.name = name

    def apply(self, arguments: JavaObject) -> JavaObject:
        """Return the expression of a call, analyzed over columns that the arguments then replace."""
        given = elements(arguments)
        texts = [constant_text(argument) or f"{ARGUMENT}{place}" for place, argument in enumerate(given)]
        columns = [
            f"CAST(NULL AS {argument.dataType().sql()}) AS {ARGUMENT}{place}" for place, argument in enumerate(given)
        ]
        call = f"SELECT {NAMESPACE}.{self.name}({', '.join(texts)}) FROM (SELECT {', '.join(columns) or '1'})"
        spark = self.session()
        with run_as_handler():
            text = replace_iceberg_functions(call, lambda probe: spark.sql(probe).schema, ())
            plan = analyzed_plan(spark.sql(text))
        (result,) = named_expressions(plan)
        if not given:
            return result.child()
        *widths, source = given
        given = [*widths, wrap_column(source)]
        aliases = named_expressions(plan.child().child())  # below the name of the subquery
        replaced = [
            scala_tuple(alias.toAttribute(), alias.withNewChildren(scala_list([argument])))
            for alias, argument in zip(aliases, given, strict=True)
        ]
        mapped = ATTRIBUTE_MAP.call_object("apply", scala_list(replaced))
        return mark_call(self.name, given, REPLACING_RULE.call_object("replaceAlias", result.child(), mapped))


def constant_text(argument: JavaObject) -> str | None:
    """Return a constant integer argument as SQL text, or None if the argument is not one."""
    if not argument.foldable() or str(argument.dataType().sql()) not in {"TINYINT", "SMALLINT", "INT"}:
        return None
    value = argument.eval(None)
    return None if value is None else str(value)


def named_expressions(plan: JavaObject) -> list[JavaObject]:
    """Return the expressions of a projection."""
    return elements(plan.projectList())


DIALECT: Final = "spark"
QUERY_COLUMNS: Final = "spark.query-column-names"
LISTED_COLUMNS: Final = "rowdelta.query-column-names"
SCHEMA_MODE: Final = "view.schemaMode"
CONFIG: Final = "view.sqlConfig."


def spark_view(view: View, catalog_name: str) -> JavaObject:
    """Build Spark's view from an Iceberg view.

    Args:
        view: The view.
        catalog_name: The name of its catalog in the session, used if the view records no default catalog.

    Raises:
        NotSupportedError: The view has a query for other engines only.
    """
    written = view.sql_for(DIALECT)
    if written is None:
        raise NotSupportedError(
            f"The view '{'.'.join(view.name())}' has no query for Spark",
            hint="Another engine wrote it in its own SQL dialect: CREATE OR REPLACE it here",
        )
    version, given = view.current_version(), dict(view.properties)
    joined, listed = given.pop(QUERY_COLUMNS, None), given.pop(LISTED_COLUMNS, None)
    builder = java_class(CATALOG + "View$Builder")()
    builder.withSchema(struct_type(StructType([column(field) for field in view.schema().fields])))
    builder.withQueryText(written.sql)
    builder.withCurrentCatalog(version.default_catalog or catalog_name)
    builder.withCurrentNamespace(string_array(version.default_namespace))
    builder.withSchemaMode(given.pop(SCHEMA_MODE, "BINDING"))
    if listed is not None:
        names = json.loads(listed)
    else:
        names = [field.name for field in view.schema().fields] if joined is None else joined.split(",")
    builder.withQueryColumnNames(string_array(names))
    configs = {key.removeprefix(CONFIG): given.pop(key) for key in list(given) if key.startswith(CONFIG)}
    builder.withSqlConfigs(java_map(configs))
    builder.withProperties(java_map(given))
    return builder.build()


def column(field: NestedField) -> StructField:
    """Convert an Iceberg field to a Spark field with its comment."""
    shown = spark_field(field)
    if field.doc is not None:
        shown.metadata = {"comment": field.doc}
    return shown


def definition_of(view: JavaObject) -> ViewDefinition:
    """Convert a Spark view to the definition that the catalog saves."""
    configs = {f"{CONFIG}{key}": str(value) for key, value in dict(view.sqlConfigs()).items()}
    given = {str(key): str(value) for key, value in dict(view.properties()).items()}
    mode = view.schemaMode()
    return ViewDefinition(
        sql=str(view.queryText()),
        schema=ddl.schema_from_json(view.schema().json()),
        catalog=str(view.currentCatalog()),
        namespace=tuple(map(str, view.currentNamespace())),
        properties={
            **given,
            **configs,
            **({} if mode is None else {SCHEMA_MODE: str(mode)}),
            **query_columns(tuple(map(str, view.queryColumnNames()))),
        },
    )


def query_columns(names: tuple[str, ...]) -> dict[str, str]:
    """Return the property with a query's column names: comma-separated as in Iceberg, or JSON if a name has a comma."""
    if any("," in name for name in names):
        return {LISTED_COLUMNS: json.dumps(names)}
    return {QUERY_COLUMNS: ",".join(names)} if names else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCreation:
    """A table that is being created or replaced.

    Attributes:
        statement: The CREATE TABLE statement, without columns.
        schema: The table's schema.
        catalog_name: The name of its catalog in the session.
        catalog: Its catalog.
        identifier: Namespace and name.
        time_zone: The session's time zone.
        table: The staged table, or the created one if the catalog cannot stage tables.
        load_state: Loads the table's state for each attempt to commit; None if the table has been created already.
    """

    statement: CreateTable
    schema: Schema
    catalog_name: str
    catalog: Catalog
    identifier: tuple[str, ...]
    time_zone: str
    table: Table
    load_state: LoadState | None

    @property
    def resolved(self) -> ResolvedTable:
        """The table as a write target."""
        return ResolvedTable(
            catalog_name=self.catalog_name, catalog=self.catalog, identifier=self.identifier, table=self.table
        )


def stage(provide: Callable[[], Engine], statement: CreateTable, schema: Schema) -> "SparkStagedTable":
    """Prepare a table that is created or replaced.

    Args:
        provide: Returns the session and its catalogs.
        statement: The CREATE TABLE statement, without columns.
        schema: The table's schema.

    Raises:
        DmlError: The table exists already, does not exist, or cannot be created with this definition.
    """
    engine = provide()
    catalog_name, identifier = engine.registry.split(statement.table.parts)
    catalog = engine.registry.catalog(catalog_name)
    time_zone = StatementSettings.of(engine).time_zone
    load_state = ddl.stage_table(statement, catalog, identifier, schema, time_zone=time_zone)
    if load_state is None:
        table = ddl.create_table(statement, catalog, identifier, schema, time_zone=time_zone)
    else:
        table = load_state().table
    creation = StagedCreation(
        statement=statement,
        schema=schema,
        catalog_name=catalog_name,
        catalog=catalog,
        identifier=identifier,
        time_zone=time_zone,
        table=table,
        load_state=load_state,
    )
    return SparkStagedTable(provide, creation)


class SparkStagedTable(SparkTable):
    """A table that is created or replaced when Spark commits it.

    Args:
        engine: Returns the session and its catalogs.
        creation: The table.
    """

    interfaces: ClassVar[tuple[str, ...]] = (*SparkTable.interfaces, "catalog.StagedTable")

    def __init__(self, engine: Callable[[], Engine], creation: StagedCreation) -> None:
        state = TableState(resolved=creation.resolved, snapshot_id=None, schema=creation.table.schema())
        super().__init__(engine, state)
        self._creation = creation
        self._exists = creation.load_state is None

    @property
    def _accepts_any_schema(self) -> bool:
        """Always False: the table is created with the columns of its rows, and Spark casts the rows to them."""
        return False

    def newWriteBuilder(self, info: JavaObject) -> SparkWriteBuilder:
        """Return a builder of the write that commits the table together with its rows."""
        creation = self._creation
        written = WrittenTable(engine=self.engine, resolved=creation.resolved, load_state=creation.load_state)
        return SparkWriteBuilder(written, info, self._record_result)

    def commitStagedChanges(self) -> None:
        """Create or replace the table, unless the write of its rows has done so. Without rows there was no commit."""
        creation = self._creation
        if not self._exists:
            ddl.create_table(
                creation.statement,
                creation.catalog,
                creation.identifier,
                creation.schema,
                time_zone=creation.time_zone,
            )

    def abortStagedChanges(self) -> None:
        """Drop the table if it had to be created before its rows; a staged table leaves nothing."""
        if self._creation.load_state is None:
            drop_empty(self._creation.table)

    def _record_result(self, result: Result) -> None:
        self._exists = self._exists or result.snapshot_id is not None


DEFAULT_NAMESPACE = ("default",)
MANAGED = "MANAGED"
VIEW = "VIEW"


class SparkCatalog(Proxy):
    """A catalog of a session.

    Args:
        engine: Returns the session and its catalogs.
        name: The catalog's name in the session.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "catalog.StagingTableCatalog",
        "catalog.RelationCatalog" if Feature.CATALOG_VIEWS in INSTALLED_FEATURES else "catalog.TableCatalog",
        "catalog.SupportsNamespaces",
        "catalog.FunctionCatalog",
    )

    def __init__(self, engine: Callable[[], Engine], name: str) -> None:
        self._provide = engine
        self._name = name

    def name(self) -> str:
        """Return the catalog's name."""
        return self._name

    def toString(self) -> str:
        """Return the text that Spark shows."""
        return f"RowDelta catalog {self._name}"

    def initialize(self, name: str, options: JavaObject) -> None:
        """Do nothing: the constructor has initialized the catalog."""

    def defaultNamespace(self) -> JavaObject:
        """Return the namespace that `USE catalog` selects."""
        return string_array(DEFAULT_NAMESPACE)

    # ---- tables

    def listTables(self, namespace: Sequence[str]) -> JavaObject:
        """Return the identifiers of the tables in a namespace."""
        with namespace_errors(namespace):
            found = catalogs.list_tables(self._catalog, tuple(namespace))
        return array(CATALOG + "Identifier", (identifier_of(name) for name in found))

    def loadTable(self, identifier: JavaObject, *how: Any) -> SparkTable | SparkMetadataTable:
        """Load a table, now or at a version, a time, or a context that holds either, with options."""
        state = parse_time_travel(how)
        key = (*self._parts(identifier), *state)
        return load_once(self._engine.spark, key, lambda: self._table(self._resolve(identifier), *state))

    def tableExists(self, identifier: JavaObject) -> bool:
        """Return True if the table exists."""
        return self._engine.registry.resolve(self._parts(identifier)) is not None

    def createTable(self, identifier: JavaObject, *what: Any) -> SparkTable | SparkMetadataTable:
        """Create a table from a `TableInfo`, or from columns, partitioning and properties."""
        columns, partitions, properties = table_parts(what)
        try:
            self._run(create_statement(self._parts(identifier), columns, partitions, dict(properties)))
        except AlreadyExistsError:
            raise TABLE_EXISTS.error(identifier) from None
        except NotFoundError:
            raise NO_SUCH_NAMESPACE.error(identifier.namespace()) from None
        return self.loadTable(identifier)

    def stageCreate(self, identifier: JavaObject, *what: Any) -> SparkStagedTable:
        """Prepare a new table, which is committed with its rows."""
        return self._stage(identifier, what)

    def stageReplace(self, identifier: JavaObject, *what: Any) -> SparkStagedTable:
        """Prepare the replacement of a table, which is committed with its rows."""
        return self._stage(identifier, what, replace_only=True)

    def stageCreateOrReplace(self, identifier: JavaObject, *what: Any) -> SparkStagedTable:
        """Prepare a new table or the replacement of an existing one, which is committed with its rows."""
        return self._stage(identifier, what, or_replace=True)

    def alterTable(self, identifier: JavaObject, changes: Sequence[JavaObject]) -> SparkTable | SparkMetadataTable:
        """Change a table."""
        self._resolve(identifier)
        for action in alter_actions(changes):
            self._run(AlterTable(table=reference_of(self._parts(identifier)), action=action))
        return self.loadTable(identifier)

    def dropTable(self, identifier: JavaObject) -> bool:
        """Drop a table and keep its files; return False if there is none."""
        return self._drop(identifier, purge=False)

    def purgeTable(self, identifier: JavaObject) -> bool:
        """Drop a table and its files; return False if there is none."""
        return self._drop(identifier, purge=True)

    def renameTable(self, identifier: JavaObject, new: JavaObject) -> None:
        """Rename a table."""
        action = RenameTable(new_name=self._parts(new), span=NOWHERE)
        try:
            self._run(AlterTable(table=reference_of(self._parts(identifier)), action=action))
        except AlreadyExistsError:
            raise TABLE_EXISTS.error(new) from None
        except NotFoundError:
            if self._engine.registry.resolve(self._parts(identifier)) is None:
                raise NO_SUCH_TABLE.error(identifier) from None
            raise NO_SUCH_NAMESPACE.error(new.namespace()) from None

    # ---- views

    def loadRelation(self, identifier: JavaObject) -> SparkTable | SparkMetadataTable | JavaObject:
        """Load a table, or a view if no table has the name."""
        found = self._engine.registry.resolve(self._parts(identifier))
        if found is not None:
            return self._table(found)
        view = self._view(identifier)
        if view is None:
            raise NO_SUCH_TABLE.error(identifier)
        return spark_view(view, self._name)

    def loadView(self, identifier: JavaObject) -> JavaObject:
        """Load a view."""
        return spark_view(self._require_view(identifier), self._name)

    def viewExists(self, identifier: JavaObject) -> bool:
        """Return True if the view exists."""
        return self._view(identifier) is not None

    def listViews(self, namespace: Sequence[str]) -> JavaObject:
        """Return the identifiers of the views in a namespace."""
        return array(CATALOG + "Identifier", map(identifier_of, catalogs.list_views(self._catalog, tuple(namespace))))

    def listTableSummaries(self, namespace: Sequence[str]) -> JavaObject:
        """Return the tables of a namespace with their type. Spark's default would load each table for it."""
        return self._summaries(MANAGED, self.listTables(namespace))

    def listRelationSummaries(self, namespace: Sequence[str]) -> JavaObject:
        """Return the tables and views of a namespace with their types."""
        tables = self._summaries(MANAGED, self.listTables(namespace))
        views = self._summaries(VIEW, self.listViews(namespace))
        return array(CATALOG + "TableSummary", [*tables, *views])

    def createView(self, identifier: JavaObject, view: JavaObject) -> JavaObject:
        """Create a view."""
        return self._save_view(identifier, view, None)

    def replaceView(self, identifier: JavaObject, view: JavaObject) -> JavaObject:
        """Replace the definition of a view."""
        return self._save_view(identifier, view, self._require_view(identifier))

    def createOrReplaceView(self, identifier: JavaObject, view: JavaObject) -> JavaObject:
        """Create a view, or replace its definition."""
        return self._save_view(identifier, view, self._view(identifier))

    def dropView(self, identifier: JavaObject) -> bool:
        """Drop a view; return False if there is none."""
        return catalogs.drop_view(self._catalog, self._parts(identifier)[1:])

    def renameView(self, identifier: JavaObject, new: JavaObject) -> None:
        """Rename a view."""
        self._require_view(identifier)
        try:
            catalogs.rename_view(self._catalog, self._parts(identifier)[1:], self._new_name(new))
        except AlreadyExistsError:
            raise VIEW_EXISTS.error(new) from None

    # ---- namespaces

    def listNamespaces(self, *parent: Sequence[str]) -> JavaObject:
        """Return the namespaces below a parent, or the top-level ones."""
        above = tuple(parent[0]) if parent else ()
        with namespace_errors(above):
            found = catalogs.list_namespaces(self._catalog, above)
        names = [name if name[: len(above)] == above and len(name) > len(above) else (*above, *name) for name in found]
        rows = java_class("java.lang.reflect.Array").newInstance(string_array(()).getClass(), len(names))
        for index, name in enumerate(names):
            java_class("java.lang.reflect.Array").set(rows, index, string_array(name))
        return rows

    def namespaceExists(self, namespace: Sequence[str]) -> bool:
        """Return True if the namespace exists; the root always does."""
        return not namespace or catalogs.namespace_exists(self._catalog, tuple(namespace))

    def loadNamespaceMetadata(self, namespace: Sequence[str]) -> JavaObject:
        """Return the properties of a namespace."""
        with namespace_errors(namespace):
            return java_map(catalogs.namespace_properties(self._catalog, tuple(namespace)) if len(namespace) else {})

    def createNamespace(self, namespace: Sequence[str], properties: Any) -> None:
        """Create a namespace."""
        given = tuple((str(key), str(value)) for key, value in dict(properties).items() if key != "owner")
        try:
            self._run(CreateNamespace(name=(self._name, *namespace), span=NOWHERE, properties=given))
        except AlreadyExistsError:
            raise NAMESPACE_EXISTS.error(string_array(namespace)) from None

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
        """Drop a namespace; return False if there is none."""
        if not catalogs.namespace_exists(self._catalog, tuple(namespace)):
            return False
        try:
            self._run(DropNamespace(name=(self._name, *namespace), span=NOWHERE, cascade=cascade))
        except NotFoundError:
            return False
        except AnalysisError as error:
            if error.kind is ErrorKind.NOT_EMPTY:
                raise NAMESPACE_NOT_EMPTY.error(string_array(namespace)) from None
            raise
        return True

    # ---- functions

    def listFunctions(self, namespace: Sequence[str]) -> JavaObject:
        """Return the identifiers of Iceberg's functions, which are in the namespace `system`."""
        return list_functions(namespace)

    def loadFunction(self, identifier: JavaObject) -> JavaObject:
        """Load one of Iceberg's functions."""
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

    def _resolve(self, identifier: JavaObject) -> ResolvedTable:
        found = self._engine.registry.resolve(self._parts(identifier))
        if found is None:
            raise NO_SUCH_TABLE.error(identifier)
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
        # Spark resolves the name after RENAME TO inside the catalog, even if it begins with the catalog's name.
        inside = self._parts(identifier)[1:]
        return inside[1:] if len(inside) > 2 and inside[0] == self._name else inside

    def _require_view(self, identifier: JavaObject) -> View:
        found = self._view(identifier)
        if found is None:
            raise NO_SUCH_VIEW.error(identifier)
        return found

    def _save_view(self, identifier: JavaObject, view: JavaObject, replaces: View | None) -> JavaObject:
        try:
            saved = catalogs.save_view(
                self._catalog, self._parts(identifier)[1:], definition_of(view), replaces=replaces
            )
        except AlreadyExistsError:
            raise VIEW_EXISTS.error(identifier) from None
        except NotFoundError:
            raise NO_SUCH_NAMESPACE.error(identifier.namespace()) from None
        return spark_view(saved, self._name)

    def _stage(
        self, identifier: JavaObject, what: Sequence[Any], *, or_replace: bool = False, replace_only: bool = False
    ) -> SparkStagedTable:
        columns, partitions, properties = table_parts(what)
        statement = create_statement(self._parts(identifier), (), partitions, dict(properties))
        schema = ddl.schema_from_json(
            java_class(CATALOG + "CatalogV2Util").v2ColumnsToStructType(columns).json(),
            case_sensitive=True,  # Spark has already rejected duplicate names
        )
        try:
            return stage(self._provide, replace(statement, or_replace=or_replace, replace_only=replace_only), schema)
        except AlreadyExistsError:
            raise TABLE_EXISTS.error(identifier) from None
        except NotFoundError:
            if replace_only:
                raise NO_SUCH_TABLE.error(identifier) from None
            raise NO_SUCH_NAMESPACE.error(identifier.namespace()) from None

    def _drop(self, identifier: JavaObject, *, purge: bool) -> bool:
        if not catalogs.table_exists(self._catalog, self._parts(identifier)[1:]):
            return False
        self._run(DropTable(table=reference_of(self._parts(identifier)), if_exists=True, purge=purge))
        return True

    def _run(self, statement: ddl.DdlStatement) -> None:
        time_zone = StatementSettings.of(self._engine).time_zone
        ddl.execute(statement, self._engine.registry, time_zone=time_zone)


def table_parts(what: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return columns, partitioning and properties of a new table, from a `TableInfo` or three arguments."""
    if len(what) == 1:
        return what[0].columns(), what[0].partitions(), what[0].properties()
    columns, partitions, properties = what
    return columns, partitions, properties


@contextmanager
def namespace_errors(namespace: Sequence[str]) -> Iterator[None]:
    """Translate NotFoundError to Spark's NoSuchNamespaceException."""
    try:
        yield
    except NotFoundError:
        raise NO_SUCH_NAMESPACE.error(string_array(namespace)) from None


def identifier_of(name: Sequence[str]) -> JavaObject:
    """Return Spark's identifier of a table."""
    return java_class(CATALOG + "Identifier").of(string_array(name[:-1]), name[-1])


def parse_time_travel(how: Sequence[Any]) -> tuple[str | None, int | None]:
    """Return the version and the time in microseconds at which a table is loaded; at most one is set."""
    match how:
        case [str() as version]:
            return version, None
        case [int() as micros]:
            return None, micros
        case [JavaObject() as context, _] if simple_name(context) == "TableContext":
            time_travel = context.timeTravel()
            if time_travel.isPresent():
                state = time_travel.get()
                if simple_name(state) == "AsOfVersion":
                    return str(state.version()), None
                return None, int(state.micros())
    return None, None
