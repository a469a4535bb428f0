"""Views of a SQL catalog: Iceberg's metadata and a row of the type VIEW, as other engines read and write them."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from dml.catalog import (
    ViewDefinition,
    create_table,
    drop_view,
    has_views,
    list_tables,
    list_views,
    load,
    load_view,
    rename_view,
    save_view,
    table_exists,
)
from dml.errors import AlreadyExistsError, CommitConflictError, NotFoundError, NotSupportedError

COLUMNS = (NestedField(1, "id", LongType(), required=False, doc="key"), NestedField(2, "s", StringType()))
NAME = ("db", "v")


def definition(sql: str, columns: int = 2) -> ViewDefinition:
    schema = Schema(*COLUMNS[:columns])
    return ViewDefinition(sql=sql, schema=schema, catalog="lake", namespace=("db",), properties={"comment": "c"})


def row(catalog: Catalog, name: str = "v") -> Any:
    path = str(catalog.properties["warehouse"]).removeprefix("file://")
    with sqlite3.connect(Path(path) / "catalog.db") as database:
        query = "SELECT metadata_location, previous_metadata_location, iceberg_type FROM iceberg_tables"
        return database.execute(f"{query} WHERE table_namespace = 'db' AND table_name = ?", (name,)).fetchone()


def metadata(location: str) -> dict[str, Any]:
    return json.loads(Path(location.removeprefix("file://")).read_text())  # type: ignore[no-any-return]


def test_a_view_is_what_the_specification_says(catalog: Catalog) -> None:
    """A metadata file with all required fields, and a row beside the tables' that is no table's."""
    save_view(catalog, NAME, definition("SELECT * FROM t"), replaces=None)
    location, previous, kind = row(catalog)
    assert (previous, kind) == (None, "VIEW")
    written = metadata(location)
    version = written["versions"][0]
    assert {"view-uuid", "format-version", "location", "schemas", "current-version-id", "version-log"} <= set(written)
    assert written["format-version"] == 1
    assert version["representations"] == [{"type": "sql", "sql": "SELECT * FROM t", "dialect": "spark"}]
    assert (version["default-catalog"], version["default-namespace"]) == ("lake", ["db"])
    assert [field["name"] for field in written["schemas"][0]["fields"]] == ["id", "s"]
    assert not table_exists(catalog, NAME)
    assert list_tables(catalog, ("db",)) == []
    assert list_views(catalog, ("db",)) == [NAME]


def test_a_view_outlives_the_process(catalog: Catalog) -> None:
    """It is in the database, not in a session."""
    saved = save_view(catalog, NAME, definition("SELECT 1"), replaces=None)
    again = load("lake", str(catalog.properties["warehouse"]).removeprefix("file://"))
    assert load_view(again, NAME) == saved


def test_another_definition_is_the_next_version(catalog: Catalog) -> None:
    """The identity stays; old versions and the schemas that they need stay, ten of them."""
    first = save_view(catalog, NAME, definition("SELECT 0"), replaces=None)
    view = first
    for number in range(1, 12):
        view = save_view(catalog, NAME, definition(f"SELECT {number}", columns=1 + number % 2), replaces=view)
    found = load_view(catalog, NAME)
    assert found == view
    assert found is not None
    written = found.sql_for("spark")
    assert written is not None
    assert written.sql == "SELECT 11"
    assert found.uuid() == first.uuid()
    assert found.metadata.current_version_id == 12
    assert [version.version_id for version in found.versions] == list(range(3, 13))
    assert len(found.metadata.schemas) == 2
    assert [len(found.schemas()[version.schema_id].fields) for version in found.versions[-2:]] == [1, 2]
    assert row(catalog)[1] is not None


def test_only_what_was_read_is_replaced(catalog: Catalog) -> None:
    """Another writer was first; no file of the loser is left."""
    view = save_view(catalog, NAME, definition("SELECT 1"), replaces=None)
    save_view(catalog, NAME, definition("SELECT 2"), replaces=view)
    before = set(Path(view.location().removeprefix("file://")).rglob("*.json"))
    with pytest.raises(CommitConflictError):
        save_view(catalog, NAME, definition("SELECT 3"), replaces=view)
    assert set(Path(view.location().removeprefix("file://")).rglob("*.json")) == before
    drop_view(catalog, NAME)
    with pytest.raises(CommitConflictError):
        save_view(catalog, NAME, definition("SELECT 3"), replaces=view)


def test_tables_and_views_have_one_space_of_names(catalog: Catalog) -> None:
    """Neither takes the other's name."""
    create_table(catalog, ("db", "t"), Schema(*COLUMNS))
    with pytest.raises(AlreadyExistsError):
        save_view(catalog, ("db", "t"), definition("SELECT 1"), replaces=None)
    save_view(catalog, NAME, definition("SELECT 1"), replaces=None)
    with pytest.raises(AlreadyExistsError):
        create_table(catalog, NAME, Schema(*COLUMNS))
    with pytest.raises(AlreadyExistsError):
        rename_view(catalog, NAME, ("db", "t"))
    assert not drop_view(catalog, ("db", "t"))
    assert table_exists(catalog, ("db", "t"))


def test_a_view_is_renamed_and_dropped(catalog: Catalog) -> None:
    """Its metadata file goes with it."""
    save_view(catalog, NAME, definition("SELECT 1"), replaces=None)
    rename_view(catalog, NAME, ("db", "w"))
    location = Path(row(catalog, "w")[0].removeprefix("file://"))
    assert load_view(catalog, NAME) is None
    with pytest.raises(NotFoundError):
        rename_view(catalog, NAME, ("db", "x"))
    with pytest.raises(NotFoundError):
        rename_view(catalog, ("db", "w"), ("nowhere", "w"))
    assert location.exists()
    assert drop_view(catalog, ("db", "w"))
    assert not location.exists()
    assert not drop_view(catalog, ("db", "w"))
    assert list_views(catalog, ("db",)) == []


def test_a_view_needs_a_namespace(catalog: Catalog) -> None:
    """But for `default`, which is the current one without anybody having made it."""
    with pytest.raises(NotFoundError):
        save_view(catalog, ("nowhere", "v"), definition("SELECT 1"), replaces=None)
    save_view(catalog, ("default", "v"), definition("SELECT 1"), replaces=None)
    assert list_views(catalog, ("default",)) == [("default", "v")]


def test_a_catalog_of_tables_alone_says_so(catalog: Catalog) -> None:
    """One whose rows cannot tell what they are."""
    catalog._schema_version = "v0"  # type: ignore[attr-defined]
    assert not has_views(catalog)
    assert load_view(catalog, NAME) is None
    assert list_views(catalog, ("db",)) == []
    assert not drop_view(catalog, NAME)
    with pytest.raises(NotSupportedError):
        save_view(catalog, NAME, definition("SELECT 1"), replaces=None)
