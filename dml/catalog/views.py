"""Iceberg views of SQL catalogs. Driver.

Input: a catalog and an identifier (namespace and name). Output: PyIceberg's `View`, or None if there is none.

PyIceberg does not support views in SQL catalogs. This module writes them in the form that other engines read: a
metadata file, and a row of type VIEW next to the rows of tables. A row is only replaced if it is unchanged since it was
read.
Source: Iceberg specification, "View Spec"; the table `iceberg_tables` of Iceberg's JDBC catalog.
"""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.view import View
from pyiceberg.view.metadata import (
    SQLViewRepresentation,
    ViewHistoryEntry,
    ViewMetadata,
    ViewRepresentation,
    ViewVersion,
)
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from dml.catalog.file_access import check_new_location
from dml.catalog.translation import translate_errors
from dml.errors import AlreadyExistsError, CommitConflictError, NotFoundError, NotSupportedError
from dml.files.file_io import delete_files

__all__ = ["ViewDefinition", "drop_view", "has_views", "list_views", "load_view", "rename_view", "save_view"]

Identifier = tuple[str, ...]

TYPE: Final = "VIEW"
DIALECT: Final = "spark"
FIRST_VERSION: Final = 1
CURRENT_WITHOUT_USE: Final = ("default",)
"""The initial current namespace, which may not exist: saving a view there creates it."""
KEPT_VERSIONS: Final = 10
"""The number of versions in a view's metadata: Iceberg's default of `version.history.num-entries`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDefinition:
    """The definition of a view.

    Attributes:
        sql: The query, as written.
        schema: The columns.
        catalog: The catalog for names without one in the query.
        namespace: The namespace for bare names in the query.
        properties: The properties of the view.
    """

    sql: str
    schema: Schema
    catalog: str
    namespace: Identifier
    properties: Mapping[str, str]


def has_views(catalog: Catalog) -> bool:
    """Return True if this module can read and write views of the catalog: its rows have a type."""
    return isinstance(catalog, SqlCatalog) and catalog._schema_version == "v1"  # noqa: SLF001  no public name


def load_view(catalog: Catalog, identifier: Identifier) -> View | None:
    """Load a view, or return None if it does not exist.

    Raises:
        DmlError: The catalog or the storage failed.
    """
    if not has_views(catalog) or len(identifier) < 2:
        return None
    with translate_errors(f"Loading the view '{dotted_name(identifier)}'", catalog):
        location = metadata_location(catalog, identifier)
        return None if location is None else View(identifier, read_metadata(catalog, location))


def list_views(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    """Return the identifiers of a namespace's views, sorted.

    Raises:
        DmlError: the catalog failed.
    """
    if not has_views(catalog) or not namespace:
        return []
    with translate_errors(f"Listing the views of '{dotted_name(namespace)}'", catalog):
        found = select(IcebergTables.table_name).where(
            IcebergTables.catalog_name == catalog.name,
            IcebergTables.table_namespace == Catalog.namespace_to_string(namespace),
            IcebergTables.iceberg_type == TYPE,
        )
        with session_of(catalog) as session:
            return sorted((*namespace, name) for name in session.scalars(found))


def save_view(catalog: Catalog, identifier: Identifier, definition: ViewDefinition, *, replaces: View | None) -> View:
    """Create a view, or replace the definition of an existing one with a new version.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        definition: The new definition.
        replaces: The view to replace, as it was read; None for a new view.

    Raises:
        AlreadyExistsError: The view is new, but a view or table with its name exists.
        NotFoundError: The namespace does not exist.
        CommitConflictError: The view was changed or dropped meanwhile.
        NotSupportedError: The catalog does not support views.
        DmlError: The catalog or the storage failed.
    """
    check_views(catalog)
    with translate_errors(f"Saving the view '{dotted_name(identifier)}'", catalog):
        if identifier[:-1] == CURRENT_WITHOUT_USE:
            catalog.create_namespace_if_not_exists(identifier[:-1])
        elif not catalog.namespace_exists(identifier[:-1]):
            raise NotFoundError(
                f"There is no namespace '{dotted_name(identifier[:-1])}' in the catalog '{catalog.name}'"
            )
        metadata = new_metadata(catalog, identifier, definition, None if replaces is None else replaces.metadata)
        number = len(metadata.version_log) - 1
        location = f"{metadata.location}/metadata/{number:05d}-{uuid.uuid4()}.metadata.json"
        io = file_io(catalog, location)
        with io.new_output(location).create(overwrite=False) as output:
            output.write(metadata.model_dump_json().encode())
        try:
            publish(catalog, identifier, location, replaces)
        except (AlreadyExistsError, CommitConflictError):
            delete_files(io, (location,))
            raise
    return View(identifier, metadata)


def publish(catalog: Catalog, identifier: Identifier, location: str, replaces: View | None) -> None:
    """Insert or update the row of a view."""
    with session_of(catalog) as session:
        if replaces is None:
            namespace, name = row_names(identifier)
            row = {
                "catalog_name": catalog.name,
                "table_namespace": namespace,
                "table_name": name,
                "metadata_location": location,
                "previous_metadata_location": None,
                "iceberg_type": TYPE,
            }
            try:
                session.execute(insert(IcebergTables).values(**row))
                session.commit()
            except IntegrityError:
                raise AlreadyExistsError(f"There is a table or view '{dotted_name(identifier)}' already") from None
            return
        before = metadata_location(catalog, identifier)
        if before is None or read_metadata(catalog, before) != replaces.metadata:
            raise changed_meanwhile(identifier)
        changed = (
            update(IcebergTables)
            .where(*row_of(catalog, identifier), IcebergTables.metadata_location == before)
            .values(metadata_location=location, previous_metadata_location=before)
        )
        if rows_of(session.execute(changed)) < 1:
            raise changed_meanwhile(identifier)
        session.commit()


def drop_view(catalog: Catalog, identifier: Identifier) -> bool:
    """Drop a view and delete its metadata file; return False if there is none.

    Raises:
        DmlError: the catalog failed.
    """
    if not has_views(catalog) or len(identifier) < 2:
        return False
    with translate_errors(f"Dropping the view '{dotted_name(identifier)}'", catalog):
        location = metadata_location(catalog, identifier)
        if location is None:
            return False
        with session_of(catalog) as session:
            dropped = rows_of(session.execute(delete(IcebergTables).where(*row_of(catalog, identifier))))
            session.commit()
        delete_files(file_io(catalog, location), (location,))
        return dropped > 0


def rename_view(catalog: Catalog, old: Identifier, new: Identifier) -> None:
    """Rename a view.

    Raises:
        NotFoundError: The view or the new namespace does not exist.
        AlreadyExistsError: The new name is taken.
        DmlError: The catalog failed.
    """
    check_views(catalog)
    with translate_errors(f"Renaming the view '{dotted_name(old)}' to '{dotted_name(new)}'", catalog):
        if not catalog.namespace_exists(new[:-1]):
            raise NotFoundError(f"There is no namespace '{dotted_name(new[:-1])}' in the catalog '{catalog.name}'")
        namespace, name = row_names(new)
        renamed = update(IcebergTables).where(*row_of(catalog, old))
        with session_of(catalog) as session:
            try:
                count = rows_of(session.execute(renamed.values(table_namespace=namespace, table_name=name)))
                session.commit()
            except IntegrityError:
                raise AlreadyExistsError(f"There is a table or view '{dotted_name(new)}' already") from None
        if count < 1:
            raise NotFoundError(f"There is no view '{dotted_name(old)}' in the catalog '{catalog.name}'")


def new_metadata(
    catalog: Catalog, identifier: Identifier, definition: ViewDefinition, before: ViewMetadata | None
) -> ViewMetadata:
    """Build the metadata of a view with the definition as its newest version."""
    now = time.time_ns() // 1_000_000
    versions = [] if before is None else before.versions
    schemas = [] if before is None else before.schemas
    number = max((version.version_id for version in versions), default=FIRST_VERSION - 1) + 1
    same = next((schema for schema in schemas if schema.as_struct() == definition.schema.as_struct()), None)
    schema_id = max((schema.schema_id for schema in schemas), default=-1) + 1 if same is None else same.schema_id
    version = ViewVersion(
        version_id=number,
        schema_id=schema_id,
        timestamp_ms=now,
        summary={"engine-name": "rowdelta"},
        representations=[ViewRepresentation(SQLViewRepresentation(type="sql", sql=definition.sql, dialect=DIALECT))],
        default_catalog=definition.catalog,
        default_namespace=definition.namespace,
    )
    kept = [*versions, version][-KEPT_VERSIONS:]
    added = [] if same is not None else [Schema(*definition.schema.fields, schema_id=schema_id)]
    needed = {one.schema_id for one in kept}
    return ViewMetadata(
        view_uuid=str(uuid.uuid4()) if before is None else before.view_uuid,
        format_version=1,
        location=new_location(catalog, identifier) if before is None else before.location,
        schemas=[schema for schema in [*schemas, *added] if schema.schema_id in needed],
        current_version_id=number,
        versions=kept,
        version_log=[
            *([] if before is None else before.version_log),
            ViewHistoryEntry(timestamp_ms=now, version_id=number),
        ],
        properties=dict(definition.properties),
    )


def new_location(catalog: Catalog, identifier: Identifier) -> str:
    """Return a folder for a new view; the folder of its name may belong to a table that was renamed."""
    check_new_location(catalog, identifier, None, {})
    namespace, name = row_names(identifier)
    usual = str(catalog._resolve_table_location(None, namespace, name))  # type: ignore[attr-defined]  # noqa: SLF001
    return f"{usual}-{uuid.uuid4()}"


def read_metadata(catalog: Catalog, location: str) -> ViewMetadata:
    with file_io(catalog, location).new_input(location).open() as file:
        return ViewMetadata.model_validate_json(file.read())


def metadata_location(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the location of a view's metadata file, or None if there is no view."""
    with session_of(catalog) as session:
        return session.scalar(select(IcebergTables.metadata_location).where(*row_of(catalog, identifier)))


def row_of(catalog: Catalog, identifier: Identifier) -> tuple[Any, ...]:
    """Return the conditions that select a view's row."""
    namespace, name = row_names(identifier)
    return (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == name,
        IcebergTables.iceberg_type == TYPE,
    )


def row_names(identifier: Identifier) -> tuple[str, str]:
    """Return namespace and name as stored in a row."""
    return Catalog.namespace_to_string(identifier[:-1]), identifier[-1]


def session_of(catalog: Catalog) -> Session:
    assert isinstance(catalog, SqlCatalog)
    return Session(catalog.engine)


def rows_of(result: Any) -> int:
    return int(result.rowcount)


def file_io(catalog: Catalog, location: str) -> FileIO:
    """Return the FileIO of a metadata file, restricted to the locations of the catalog's tables."""
    return catalog._load_file_io(location=location)  # noqa: SLF001  as for the catalog's tables


def check_views(catalog: Catalog) -> None:
    """Refuse a catalog without views.

    Raises:
        NotSupportedError: The catalog does not support views.
    """
    if not has_views(catalog):
        raise NotSupportedError(
            f"The catalog '{catalog.name}' does not support views",
            hint="Use the embedded catalog or another SQL catalog, or a temporary view",
        )


def changed_meanwhile(identifier: Identifier) -> CommitConflictError:
    return CommitConflictError(
        f"The view '{dotted_name(identifier)}' was changed meanwhile", hint="Run the statement again"
    )


def dotted_name(identifier: Identifier) -> str:
    return ".".join(identifier)
