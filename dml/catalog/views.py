"""Views of a catalog: Iceberg's, an SQL text with its columns. Driver.

Input: a catalog and an identifier (namespace and name). Output: PyIceberg's `View`s, or None where there is none; our
errors.

Catalogs in a SQL database alone: PyIceberg has no views there, so a view is written here as other engines read it, a
metadata file and a row of the type VIEW beside those of the tables. A row is replaced only if it still is what was
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
from dml.catalog.translation import translated
from dml.errors import AlreadyExistsError, CommitConflictError, NotFoundError, NotSupportedError
from dml.files.file_io import delete_files

__all__ = ["ViewDefinition", "drop_view", "has_views", "list_views", "load_view", "rename_view", "save_view"]

Identifier = tuple[str, ...]

TYPE: Final = "VIEW"
DIALECT: Final = "spark"
FIRST_VERSION: Final = 1
CURRENT_WITHOUT_USE: Final = ("default",)
"""The current namespace that nobody has made: a view with a bare name makes it."""
KEPT_VERSIONS: Final = 10
"""How many versions a view's metadata keeps: Iceberg's default of `version.history.num-entries`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDefinition:
    """What a view is.

    Attributes:
        sql: Its query, as written.
        schema: Its columns.
        catalog: Where the query's names without a catalog are looked up.
        namespace: Where its bare names are looked up.
        properties: Its properties.
    """

    sql: str
    schema: Schema
    catalog: str
    namespace: Identifier
    properties: Mapping[str, str]


def has_views(catalog: Catalog) -> bool:
    """Whether a catalog can hold views that this module reads and writes: its rows tell tables from views."""
    return isinstance(catalog, SqlCatalog) and catalog._schema_version == "v1"  # noqa: SLF001  no public name


def load_view(catalog: Catalog, identifier: Identifier) -> View | None:
    """A view as it is now; None where there is none.

    Raises:
        DmlError: the catalog or the storage failed.
    """
    if not has_views(catalog) or len(identifier) < 2:
        return None
    with translated(f"Loading the view '{shown(identifier)}'", catalog):
        location = metadata_location(catalog, identifier)
        return None if location is None else View(identifier, read_metadata(catalog, location))


def list_views(catalog: Catalog, namespace: Identifier) -> list[Identifier]:
    """Identifiers of a namespace's views, in order.

    Raises:
        DmlError: the catalog failed.
    """
    if not has_views(catalog) or not namespace:
        return []
    with translated(f"Listing the views of '{shown(namespace)}'", catalog):
        found = select(IcebergTables.table_name).where(
            IcebergTables.catalog_name == catalog.name,
            IcebergTables.table_namespace == Catalog.namespace_to_string(namespace),
            IcebergTables.iceberg_type == TYPE,
        )
        with session_of(catalog) as session:
            return sorted((*namespace, name) for name in session.scalars(found))


def save_view(catalog: Catalog, identifier: Identifier, definition: ViewDefinition, *, replaces: View | None) -> View:
    """Create a view, or give one that is there another definition, as its next version.

    Args:
        catalog: The catalog.
        identifier: Namespace and name.
        definition: What it is from now on.
        replaces: The view as it was read; None for a new one.

    Raises:
        AlreadyExistsError: a new one was asked for, and there is a view or table of that name.
        NotFoundError: the namespace is not there.
        CommitConflictError: the view was changed or dropped meanwhile.
        NotSupportedError: the catalog holds no views.
        DmlError: the catalog or the storage failed.
    """
    check_views(catalog)
    with translated(f"Saving the view '{shown(identifier)}'", catalog):
        if identifier[:-1] == CURRENT_WITHOUT_USE:
            catalog.create_namespace_if_not_exists(identifier[:-1])
        elif not catalog.namespace_exists(identifier[:-1]):
            raise NotFoundError(f"There is no namespace '{shown(identifier[:-1])}' in the catalog '{catalog.name}'")
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
    """Write a view's row."""
    with session_of(catalog) as session:
        if replaces is None:
            namespace, name = names(identifier)
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
                raise AlreadyExistsError(f"There is a table or view '{shown(identifier)}' already") from None
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
    """Drop a view, and delete its metadata file; false if there is none.

    Raises:
        DmlError: the catalog failed.
    """
    if not has_views(catalog) or len(identifier) < 2:
        return False
    with translated(f"Dropping the view '{shown(identifier)}'", catalog):
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
        NotFoundError: there is no such view, or not the new name's namespace.
        AlreadyExistsError: the new name is taken.
        DmlError: the catalog failed.
    """
    check_views(catalog)
    with translated(f"Renaming the view '{shown(old)}' to '{shown(new)}'", catalog):
        if not catalog.namespace_exists(new[:-1]):
            raise NotFoundError(f"There is no namespace '{shown(new[:-1])}' in the catalog '{catalog.name}'")
        namespace, name = names(new)
        renamed = update(IcebergTables).where(*row_of(catalog, old))
        with session_of(catalog) as session:
            try:
                count = rows_of(session.execute(renamed.values(table_namespace=namespace, table_name=name)))
                session.commit()
            except IntegrityError:
                raise AlreadyExistsError(f"There is a table or view '{shown(new)}' already") from None
        if count < 1:
            raise NotFoundError(f"There is no view '{shown(old)}' in the catalog '{catalog.name}'")


def new_metadata(
    catalog: Catalog, identifier: Identifier, definition: ViewDefinition, before: ViewMetadata | None
) -> ViewMetadata:
    """The metadata of a view with a definition as its newest version."""
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
    """A folder for a view alone: that of a table of its name may be another table's, which was renamed."""
    check_new_location(catalog, identifier, None, {})
    namespace, name = names(identifier)
    usual = str(catalog._resolve_table_location(None, namespace, name))  # type: ignore[attr-defined]  # noqa: SLF001
    return f"{usual}-{uuid.uuid4()}"


def read_metadata(catalog: Catalog, location: str) -> ViewMetadata:
    """A metadata file."""
    with file_io(catalog, location).new_input(location).open() as file:
        return ViewMetadata.model_validate_json(file.read())


def metadata_location(catalog: Catalog, identifier: Identifier) -> str | None:
    """Where a view's metadata is."""
    with session_of(catalog) as session:
        return session.scalar(select(IcebergTables.metadata_location).where(*row_of(catalog, identifier)))


def row_of(catalog: Catalog, identifier: Identifier) -> tuple[Any, ...]:
    """The conditions of a view's row."""
    namespace, name = names(identifier)
    return (
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == name,
        IcebergTables.iceberg_type == TYPE,
    )


def names(identifier: Identifier) -> tuple[str, str]:
    """Namespace and name as they stand in a row."""
    return Catalog.namespace_to_string(identifier[:-1]), identifier[-1]


def session_of(catalog: Catalog) -> Session:
    """A session of the catalog's database."""
    assert isinstance(catalog, SqlCatalog)
    return Session(catalog.engine)


def rows_of(result: Any) -> int:
    """How many rows a statement changed."""
    return int(result.rowcount)


def file_io(catalog: Catalog, location: str) -> FileIO:
    """Where a view's metadata is read and written: only where the catalog's tables may have files."""
    return catalog._load_file_io(location=location)  # noqa: SLF001  the way of the catalog's tables


def check_views(catalog: Catalog) -> None:
    """Refuse a catalog without views.

    Raises:
        NotSupportedError: it holds none.
    """
    if not has_views(catalog):
        raise NotSupportedError(
            f"The catalog '{catalog.name}' holds no views",
            hint="Views are there in the embedded catalog and in other SQL catalogs; use a temporary view",
        )


def changed_meanwhile(identifier: Identifier) -> CommitConflictError:
    return CommitConflictError(f"The view '{shown(identifier)}' was changed meanwhile", hint="Run the statement again")


def shown(identifier: Identifier) -> str:
    return ".".join(identifier)
