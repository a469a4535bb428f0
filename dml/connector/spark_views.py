"""Views of our catalogs as Spark's, and back. Driver, classic Spark only.

Input: an Iceberg view. Output: Spark's `View`, whose query Spark parses and analyses each time the view is read. The
other way around, what `CREATE VIEW` gives becomes a `ViewDefinition`.

What Spark has and Iceberg's metadata has no field for goes into properties: the settings that the query was written
under, the names of its columns, and how the view follows changes of them.
"""

import json
from typing import Final

from py4j.java_gateway import JavaObject
from pyiceberg.types import NestedField
from pyiceberg.view import View
from pyspark.sql.types import StructField, StructType

from dml import ddl
from dml.catalog import ViewDefinition
from dml.errors import NotSupportedError
from dml.spark.java import CATALOG, java_class, java_map, strings, struct_type
from dml.spark.types import spark_field

__all__ = ["definition_of", "spark_view"]

DIALECT: Final = "spark"
QUERY_COLUMNS: Final = "spark.query-column-names"
LISTED_COLUMNS: Final = "rowdelta.query-column-names"
SCHEMA_MODE: Final = "view.schemaMode"
CONFIG: Final = "view.sqlConfig."


def spark_view(view: View, catalog_name: str) -> JavaObject:
    """Spark's view of one of ours.

    Args:
        view: The view.
        catalog_name: The name that its catalog has in the session, where it does not say another.

    Raises:
        NotSupportedError: it is written for other engines alone.
    """
    written = view.sql_for(DIALECT)
    if written is None:
        raise NotSupportedError(
            f"The view '{'.'.join(view.name())}' has no query for Spark",
            hint="Another engine wrote it in a language of its own: CREATE OR REPLACE it here",
        )
    version, given = view.current_version(), dict(view.properties)
    joined, listed = given.pop(QUERY_COLUMNS, None), given.pop(LISTED_COLUMNS, None)
    builder = java_class(CATALOG + "View$Builder")()
    builder.withSchema(struct_type(StructType([column(field) for field in view.schema().fields])))
    builder.withQueryText(written.sql)
    builder.withCurrentCatalog(version.default_catalog or catalog_name)
    builder.withCurrentNamespace(strings(version.default_namespace))
    builder.withSchemaMode(given.pop(SCHEMA_MODE, "BINDING"))
    if listed is not None:
        names = json.loads(listed)
    else:
        names = [field.name for field in view.schema().fields] if joined is None else joined.split(",")
    builder.withQueryColumnNames(strings(names))
    configs = {key.removeprefix(CONFIG): given.pop(key) for key in list(given) if key.startswith(CONFIG)}
    builder.withSqlConfigs(java_map(configs))
    builder.withProperties(java_map(given))
    return builder.build()


def column(field: NestedField) -> StructField:
    """A column with its comment."""
    shown = spark_field(field)
    if field.doc is not None:
        shown.metadata = {"comment": field.doc}
    return shown


def definition_of(view: JavaObject) -> ViewDefinition:
    """What a view of Spark's is."""
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
    """The property with the names of a query's columns: as Iceberg's engines join them, if that can be cut again."""
    if any("," in name for name in names):
        return {LISTED_COLUMNS: json.dumps(names)}
    return {QUERY_COLUMNS: ",".join(names)} if names else {}
