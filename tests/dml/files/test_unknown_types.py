"""Tables with columns of types that PyIceberg cannot load: the error names the column, and the table is not damaged."""

import json
from pathlib import Path

import pytest

from dml.catalog import create_namespace, load
from dml.catalog.tables import load_table
from dml.errors import CorruptFileError, NotSupportedError
from tests.dml.commit.builders import new_table


def load_with(tmp_path: Path, kind: object) -> None:
    """Load a table whose second column has a type, as another engine would have written it."""
    catalog = load("lake", str(tmp_path / "warehouse"))
    create_namespace(catalog, ("db",))
    path = Path(new_table(catalog, 3).metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["schemas"][0]["fields"][1]["type"] = kind
    path.write_text(json.dumps(metadata))
    load_table(catalog, ("db", "t"))


@pytest.mark.parametrize(
    ("kind", "column", "named"),
    [
        ("geometry(OGC:CRS84)", "p", "geometry(OGC:CRS84)"),
        ("geography(OGC:CRS84, spherical)", "p", "geography(OGC:CRS84, spherical)"),
        (
            {"type": "list", "element-id": 9, "element-required": False, "element": "geometry(OGC:CRS84)"},
            "p.element",
            "geometry(OGC:CRS84)",
        ),
        (
            {"type": "struct", "fields": [{"id": 9, "name": "g", "required": False, "type": "geometry(OGC:CRS84)"}]},
            "p.g",
            "geometry(OGC:CRS84)",
        ),
    ],
)
def test_the_error_names_the_column_and_its_type(tmp_path, kind, column, named):
    with pytest.raises(NotSupportedError) as caught:
        load_with(tmp_path, kind)
    assert f"The column '{column}' has the type {named}, " in caught.value.message
    assert "not damaged" in str(caught.value)


@pytest.mark.parametrize(
    "kind", ["timestamp_ns", "timestamptz_ns", "time", "unknown", "geometry", "geography", "variant"]
)
def test_other_types_of_version_3_load(tmp_path, kind):
    load_with(tmp_path, kind)


@pytest.mark.parametrize("kind", ["varian", "lonh", 7, {"type": "list"}])
def test_what_is_no_type_is_damage(tmp_path, kind):
    with pytest.raises(CorruptFileError):
        load_with(tmp_path, kind)
