"""Which functions still mean what they mean to Spark, for the answers of servers that tests do not run."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from dml.spark import settings as settings_module
from dml.spark.settings import replaces_any
from dml.spark.versions import Feature

CLASSES = {
    "upper": "org.apache.spark.sql.catalyst.expressions.Upper",
    "mod": "org.apache.spark.sql.UDFRegistration$$Lambda$1379/0x00007f3cbc919408",
    "abs": "org.apache.hadoop.hive.ql.udf.UDFHex",
    "lower": None,
}


def session(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], *, has_path: bool) -> tuple[Any, list[str]]:
    """Return a session with these settings, and the list of the functions that it was asked for."""
    asked: list[str] = []

    def function(name: str) -> SimpleNamespace:
        asked.append(name)
        if name not in CLASSES:
            raise AnalysisException("no such function")
        return SimpleNamespace(className=CLASSES[name])

    monkeypatch.setattr(settings_module, "settings_of", lambda _: settings.get)
    runtime = SimpleNamespace(features={Feature.FUNCTION_PATH} if has_path else {})
    monkeypatch.setattr(settings_module, "Runtime", SimpleNamespace(of=lambda _: runtime))
    return SimpleNamespace(catalog=SimpleNamespace(getFunction=function)), asked


@pytest.mark.parametrize(
    ("names", "expected"), [(["upper"], False), (["mod"], True), (["abs"], True), (["lower"], True), (["len"], True)]
)
def test_a_server_without_a_path_is_asked(monkeypatch: pytest.MonkeyPatch, names: list[str], expected: bool) -> None:
    spark, asked = session(monkeypatch, {}, has_path=False)
    assert replaces_any(spark, names) is expected
    assert asked == names


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({settings_module.ORDER: "Second", settings_module.PATH: "false"}, False),
        ({settings_module.ORDER: "last"}, False),
        ({settings_module.ORDER: "FIRST"}, True),
        ({settings_module.PATH: "true"}, True),
    ],
)
def test_a_server_with_a_path_says_by_its_settings(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: bool
) -> None:
    spark, asked = session(monkeypatch, settings, has_path=True)
    assert replaces_any(spark, ["upper", "mod"]) is expected
    assert asked == []


def test_without_a_function_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, asked = session(monkeypatch, {settings_module.ORDER: "first"}, has_path=False)
    assert not replaces_any(spark, [])
    assert asked == []
