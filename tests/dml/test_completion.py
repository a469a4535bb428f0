"""Completion of names and keywords at a cursor, which `|` marks in these texts."""

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType, StructType

from dml.catalog import create_namespace
from dml.catalog.registry import CatalogRegistry
from dml.completion import CatalogNames, complete
from dml.errors import ExecutionError


@pytest.fixture
def names(catalog: Catalog) -> CatalogNames:
    """The tables `flights`, `airports` and `my table` in `db`, and the namespace `db.raw`."""
    create_namespace(catalog, ("db", "raw"))
    place = StructType(NestedField(4, "city", StringType(), required=False))
    fields = [("id", IntegerType()), ("carrier", StringType()), ("order", StringType()), ("place", place)]
    schema = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(fields, 10)))
    catalog.create_table(("db", "flights"), schema)
    catalog.create_table(("db", "airports"), Schema(NestedField(1, "faa", StringType(), required=False)))
    catalog.create_table(("db", "my table"), Schema(NestedField(1, "ä", StringType(), required=False)))
    return CatalogNames(CatalogRegistry(catalogs={"lake": catalog}, current_catalog="lake"))


def texts(marked: str, names: CatalogNames, *kinds: str) -> list[str]:
    """The completions at the mark, of these kinds; all without kinds."""
    cursor = marked.index("|")
    found = list(complete(marked.replace("|", ""), cursor, names))
    return [candidate.text for candidate in found if not kinds or candidate.kind in kinds]


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("SELECT * FROM d|", ["db"]),
        ("SELECT * FROM |", ["db", "lake"]),
        ("SELECT * FROM la|", ["lake"]),
        ("SELECT * FROM lake.|", ["db"]),
        ("SELECT * FROM db.|", ["airports", "flights", "`my table`", "raw"]),
        ("SELECT * FROM lake.db.F|", ["flights"]),
        ("UPDATE db.a|", ["airports"]),
        ("MERGE INTO db.flights t USING db.a|", ["airports"]),
        ("SELECT * FROM db.flights.sn|", ["snapshots"]),
        ("SELECT * FROM lake.db.flights.po|", ["position_deletes"]),
        ("SELECT * FROM db.absent.|", []),
        ("USE |", ["db", "lake"]),
        ("USE db.|", ["raw"]),
        ("DROP NAMESPACE lake.db.r|", ["raw"]),
    ],
)
def test_names_of_tables_and_namespaces(marked: str, expected: list[str], names: CatalogNames) -> None:
    assert texts(marked, names) == expected


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("SELECT | FROM db.flights", ["id", "carrier", "`order`", "place"]),
        ("SELECT * FROM db.flights WHERE ca|", ["carrier"]),
        ("SELECT f.| FROM db.flights AS f", ["id", "carrier", "`order`", "place"]),
        ("SELECT F.c| FROM lake.db.flights f JOIN db.airports a ON f.id = a.faa", ["carrier"]),
        ("SELECT a.| FROM lake.db.flights f JOIN db.airports a ON f.id = a.faa", ["faa"]),
        ("SELECT flights.i| FROM db.flights WHERE true", ["id"]),
        ("SELECT db.flights.i| FROM db.flights", ["id"]),
        ("SELECT | FROM db.`my table`", ["`ä`"]),
        ("DELETE FROM db.flights; UPDATE db.airports SET |", ["faa"]),
        ("UPDATE db.airports SET f| ; SELECT id FROM db.flights", ["faa"]),
        ("MERGE INTO db.flights t USING db.airports s ON t.|", ["id", "carrier", "`order`", "place"]),
        ("SELECT | FROM db.absent", []),
    ],
)
def test_columns_of_the_tables_of_the_statement(marked: str, expected: list[str], names: CatalogNames) -> None:
    assert texts(marked, names, "column") == expected


def test_keywords_follow_the_case_of_what_is_typed(names: CatalogNames) -> None:
    assert texts("sel|", names) == ["select"]
    assert texts("SELECT * FROM db.flights WHER|", names) == ["WHERE"]
    assert texts("SELECT |", names) == []
    assert "FROM" not in texts("SELECT * FROM F|", names)


@pytest.mark.parametrize(
    "marked", ["SELECT 'd|", "SELECT 1 -- d|", "SELECT /* d|", "SELECT * FROM `d|", "SELECT 'a' 'd|"]
)
def test_nothing_is_completed_in_strings_and_comments(marked: str, names: CatalogNames) -> None:
    assert texts(marked, names) == []


def test_aliases_are_completed_too(names: CatalogNames) -> None:
    assert texts("SELECT fl| FROM db.flights flown", names) == ["flown"]


def test_names_are_looked_up_once_until_they_may_have_changed(
    names: CatalogNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    catalog = names.registry.catalogs["lake"]
    list_tables = catalog.list_tables

    def count(namespace: tuple[str, ...]) -> object:
        asked.append(namespace)
        return list_tables(namespace)

    monkeypatch.setattr(catalog, "list_tables", count)
    for _ in range(3):
        assert texts("SELECT * FROM db.fl|", names) == ["flights"]
    assert asked.count(("db",)) == 1
    names.forget()
    assert texts("SELECT * FROM db.fl|", names) == ["flights"]
    assert asked.count(("db",)) == 2


def test_a_catalog_that_fails_is_asked_once_and_gives_no_names(
    names: CatalogNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fail(*_: object) -> list[str]:
        asked.append("tables")
        raise ExecutionError("the server is away")

    monkeypatch.setattr("dml.completion.list_relations", fail)
    for _ in range(3):
        assert texts("SELECT * FROM db.|", names) == ["raw"]
    assert asked == ["tables"]
