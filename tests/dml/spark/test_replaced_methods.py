"""Replaced methods of PySpark: a failed question never fails a call that is not ours."""

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from dml.errors import ExecutionError, SqlError
from dml.patches import PATCHES
from dml.spark import handlers, replaced_methods
from dml.spark.bridge.internals import UnknownInternalsError
from dml.spark.callbacks import wrap_conversion
from dml.spark.handlers import Enabled, StatementHandler
from dml.spark.replaced_methods import Replacement, replace_methods
from dml.spark.runtime import SessionKind

REPLACEMENTS = list(
    {(entry.owner_class, entry.name): entry for entry in PATCHES if entry.owner_class is not None}.values()
)
ARGUMENTS = {"sqlQuery": "SELECT * FROM lake.db.t", "dbName": "lake.db", "catalogName": "lake", "source": "iceberg"}
TABLE = "lake.db.t"
RESULT = object()


def replacement_id(replacement: Replacement) -> str:
    owner = replacement.owner_class
    return f"{owner.__module__.removeprefix('pyspark.sql.')}.{owner.__name__}.{replacement.name}"


@pytest.fixture
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable a session of another thread; classes are restored afterwards."""
    handler = StatementHandler(
        handles=lambda _: True,
        run=lambda *_: pytest.fail("it is not ours"),
        is_query=lambda _: False,
        bequeath=lambda: pytest.fail("nothing is inherited"),
    )
    monkeypatch.setattr(handlers, "ENABLED", {"other": Enabled(handler=handler, application="app")})
    monkeypatch.setattr(replaced_methods, "ORIGINALS", {})
    monkeypatch.setattr(replaced_methods, "WARNED", set())


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[[Replacement], list[tuple[Any, ...]]]:
    """Replace a method by one that records its arguments instead of running PySpark's."""

    def record(replacement: Replacement) -> list[tuple[Any, ...]]:
        owner, calls = replacement.owner_class, []
        original = vars(owner)[replacement.name]

        @functools.wraps(original)
        def noting(*given: Any, **named: Any) -> Any:
            calls.append((given, named))
            return None if replacement.name == "__init__" else RESULT

        monkeypatch.setattr(owner, replacement.name, noting)
        replace_methods([replacement])
        return calls

    return record


def blank(owner: Any) -> Any:
    """Return an object of PySpark without its private state."""
    return owner.__new__(owner)


def call_arguments(replacement: Replacement) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments for a call about a table that may be ours."""
    parameters = list(inspect.signature(getattr(replacement.owner_class, replacement.name)).parameters.values())[1:]
    required = [
        entry.name for entry in parameters if entry.default is entry.empty and entry.kind is not entry.VAR_KEYWORD
    ]
    required = [name for name in required if name not in {"options", "properties"}]
    given = [ARGUMENTS.get(name, TABLE) for name in required]
    named = {"path": TABLE, "format": "iceberg"} if any(entry.name == "path" for entry in parameters) else {}
    return given, named


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize("replacement", REPLACEMENTS, ids=replacement_id)
def test_private_state_that_is_not_there_leaves_the_call_to_pyspark(
    replacement: Replacement, recorded: Callable[[Replacement], list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """PySpark may rename private attributes at any time: its users' calls must still work."""
    given, named = call_arguments(replacement)
    calls = recorded(replacement)
    subject = blank(replacement.owner_class)
    if replacement.name == "overwritePartitions":
        subject.rowdelta_target = object(), TABLE
    outcomes = [getattr(subject, replacement.name)(*given, **named) for _ in range(2)]
    assert calls == [((subject, *given), named)] * 2
    assert outcomes == ([None] * 2 if replacement.name == "__init__" else [RESULT] * 2)
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert "RowDelta could not tell" in warning


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize("replacement", REPLACEMENTS, ids=replacement_id)
def test_parameters_that_we_do_not_know_are_pysparks(
    replacement: Replacement, recorded: Callable[[Replacement], list[Any]]
) -> None:
    """A parameter that a later PySpark adds, and calls that PySpark refuses."""
    given, named = call_arguments(replacement)
    calls = recorded(replacement)
    subject = blank(replacement.owner_class)
    getattr(subject, replacement.name)(*given, **named, added_later=1)
    getattr(subject, replacement.name)(*[None] * 12)
    assert calls == [((subject, *given), {**named, "added_later": 1}), ((subject, *[None] * 12), {})]


@pytest.mark.parametrize("replacement", REPLACEMENTS, ids=replacement_id)
def test_without_an_enabled_session_nothing_is_asked(
    replacement: Replacement,
    recorded: Callable[[Replacement], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(handlers, "ENABLED", {})
    monkeypatch.setattr(replaced_methods, "ORIGINALS", {})
    given, named = call_arguments(replacement)
    calls = recorded(replacement)
    getattr(blank(replacement.owner_class), replacement.name)(*given, **named)
    assert len(calls) == 1
    assert caplog.records == []


class Reader:
    """A stand-in for a class of PySpark."""

    def table(self, name: str) -> str:
        """Read a table."""
        if name == "unknown":
            raise AnalysisException(message="no such table", errorClass="TABLE_OR_VIEW_NOT_FOUND", messageParameters={})
        if name == "refused":
            raise ValueError("a mistake in the call")
        return f"PySpark's {name}"


@pytest.fixture
def reader(enabled: None) -> Callable[[Callable[..., Any]], Reader]:
    """A function that makes a reader with a question."""

    def make(question: Callable[..., Any]) -> Reader:
        kind = type("Reader", (Reader,), {"table": Reader.table})
        replace_methods([Replacement(kind, "table", question, lambda *_: "ours", SessionKind.CLASSIC)])
        return kind()

    return make


def fails(error: Exception) -> Callable[..., Any]:
    def question(*_: Any) -> None:
        raise error

    return question


@pytest.mark.parametrize("name", ["theirs", "unknown"])
def test_a_catalog_that_fails_is_an_error_and_spark_is_not_asked(reader, caplog, name):
    """Spark may have a table of the same name, which would be read, or dropped, instead of ours."""
    failing = reader(fails(ExecutionError("The catalog 'lake' does not answer")))
    with pytest.raises(ExecutionError, match="does not answer"):
        failing.table(name)
    assert caplog.records == []


def test_what_is_unknown_of_sparks_insides_is_no_error(reader, caplog):
    failing = reader(fails(UnknownInternalsError("Spark has no class of the name")))
    assert failing.table("theirs") == "PySpark's theirs"
    with pytest.raises(ValueError, match="a mistake") as refused:
        failing.table("refused")
    assert "no class of the name" in "".join(refused.value.__notes__)
    assert len(caplog.records) == 1


def test_what_is_not_an_error_of_ours_never_replaces_that_of_spark(reader):
    failing = reader(fails(AttributeError("_client")))
    with pytest.raises(AnalysisException, match="no such table"):
        failing.table("unknown")


def test_an_answer_takes_the_call_and_its_errors_are_raised(reader):
    assert reader(lambda *_: True).table("t") == "ours"
    kind = type("Reader", (Reader,), {"table": Reader.table})
    replace_methods(
        [Replacement(kind, "table", lambda *_: True, fails(SqlError("wrong", sql="", position=0)), SessionKind.CLASSIC)]
    )
    with pytest.raises(SqlError):
        kind().table("t")


def test_classes_and_methods_that_a_pyspark_does_not_have_are_left_out(enabled):
    replace_methods(
        [
            Replacement(
                "pyspark.sql.readwriter.Later", "table", fails(KeyError()), fails(KeyError()), SessionKind.CLASSIC
            ),
            Replacement(
                "pyspark.sql.later.DataFrameReader", "table", fails(KeyError()), fails(KeyError()), SessionKind.CLASSIC
            ),
            Replacement(Reader, "later", fails(KeyError()), fails(KeyError()), SessionKind.CLASSIC),
        ]
    )
    assert not hasattr(Reader, "later")


def test_exceptions_of_java_are_converted_also_where_their_causes_cannot_be_read(monkeypatch):
    """The JVM may be gone by then."""
    monkeypatch.setattr("dml.spark.bridge.gateway.CARRIED", {1: ValueError()})
    expected = RuntimeError("of PySpark")
    assert wrap_conversion(lambda _: expected)(object()) is expected
