"""Tracebacks of RowDelta's errors end at the user's call."""

import importlib
import inspect
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import dml
from dml import active_session, tracebacks
from dml.dataframe_writers import MergeIntoWriter
from dml.errors import AnalysisError, DataError, DmlError, ExecutionError, RowConservationError
from dml.merge_builder import MatchedAction, MergeBuilder, MergeClauses, NotMatchedAction
from dml.merge_stream import StreamMerge
from dml.session import Session
from dml.tracebacks import LIBRARIES, short_traceback

SOURCE = """
def run(step):
    return step()
"""


@pytest.fixture
def library() -> ModuleType:
    """A module whose frames are those of RowDelta, with one function that calls another."""
    module = ModuleType("dml.example")
    exec(compile(SOURCE, "example.py", "exec"), vars(module))
    return module


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROWDELTA_DEBUG", raising=False)
    monkeypatch.setattr(tracebacks, "without_libraries", tracebacks.without_libraries.__wrapped__)  # tests/conftest.py


def fail(error: BaseException, cause: BaseException | None = None) -> Callable[[], None]:
    """Return a user's function that raises an error."""

    def users_function() -> None:
        raise error from cause

    return users_function


def spark_error() -> AnalysisException:
    return AnalysisException(message="'Project ['amout]", errorClass="UNRESOLVED_COLUMN", messageParameters={})


def raised(library: ModuleType, step: Callable[[], None]) -> DmlError:
    """Raise an error three frames below a public function, and return it."""
    public = short_traceback(lambda: library.run(lambda: library.run(step)))
    with pytest.raises(DmlError) as found:
        public()
    return found.value


def frames(error: BaseException) -> list[str]:
    """Return the functions of a traceback, from the caller of the public function."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return names[names.index("raised") + 1 :] if "raised" in names else names


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_library_frames_are_removed_and_user_frames_are_kept(library: ModuleType) -> None:
    error = raised(library, fail(AnalysisError("There is no column 'amout'")))
    assert frames(error) == ["<lambda>", "<lambda>", "users_function"]
    assert "example.py" not in shown(error)
    assert "/dml/tracebacks.py" not in shown(error)


@pytest.mark.parametrize("error", [AnalysisError("No column"), DataError("No value")])
def test_sparks_exception_is_hidden_if_the_message_contains_it(error: DmlError, library: ModuleType) -> None:
    cause = spark_error()
    found = raised(library, fail(error, cause))
    assert "Project" not in shown(found)
    assert found.cause is cause
    assert pickle.loads(pickle.dumps(found)).cause is None


def test_other_causes_are_shown_with_the_frames_of_users(library: ModuleType) -> None:
    """The storage's exception, that of a user's function, and Spark's if Spark itself failed."""
    cause = OSError("disk full")
    for error in (ExecutionError("Writing failed"), DataError("The rows cannot be read")):
        cause.__traceback__ = None
        with pytest.raises(OSError, match="disk full"):
            library.run(fail(cause))
        found = raised(library, fail(error, cause))
        assert "OSError: disk full" in shown(found)
        assert "users_function" in frames(cause)
        assert "run" not in frames(cause)
        assert found.cause is found.__cause__ is cause
    assert "Project" in shown(raised(library, fail(ExecutionError("Spark failed"), spark_error())))


def test_the_error_of_an_inner_public_function_is_the_cause_of_an_outer_one(library: ModuleType) -> None:
    def upsert() -> None:
        try:
            short_traceback(fail(DataError("A source row matches twice"), spark_error()))()
        except DataError as error:
            raise DataError("Two new rows have the same id") from error

    found = raised(library, upsert)
    assert isinstance(found.cause, DataError)
    assert isinstance(found.cause.cause, AnalysisException)
    assert "twice" not in shown(found)


def test_tracebacks_are_complete_with_the_variable_and_for_row_conservation_errors(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = raised(library, fail(RowConservationError("Rows would be lost"), spark_error()))
    assert frames(evidence).count("run") == 2
    monkeypatch.setenv("ROWDELTA_DEBUG", "1")
    error = raised(library, fail(AnalysisError("No column"), spark_error()))
    assert frames(error).count("run") == 2
    assert "Project" in shown(error)


def test_other_exceptions_are_left_unchanged(library: ModuleType) -> None:
    with pytest.raises(AnalysisException) as found:
        short_traceback(lambda: library.run(fail(spark_error())))()
    assert [frame.name for frame in found.traceback][-2:] == ["run", "users_function"]


def public_functions() -> list[Any]:
    """Return what users call: functions of the module and methods and properties of its classes."""
    owners = (Session, MergeClauses, MatchedAction, NotMatchedAction, MergeBuilder, MergeIntoWriter, StreamMerge)
    members = [value for owner in owners for name, value in vars(owner).items() if not name.startswith("_")]
    functions = [value.fget if isinstance(value, property) else value for value in members]
    return functions + [getattr(active_session, name) for name in active_session.__all__ if name.islower()]


def test_each_public_function_has_short_tracebacks() -> None:
    functions = public_functions()
    assert len(functions) > 60
    long = [one.__qualname__ for one in functions if not hasattr(one, "__wrapped__")]
    assert long == ["disable", "enable"], "they take a session that exists and run nothing"


def test_each_library_is_a_module() -> None:
    assert all(inspect.ismodule(importlib.import_module(name)) for name in LIBRARIES)


@pytest.mark.spark
def test_errors_of_statements_end_at_the_users_call(spark: SparkSession, tmp_path: Path) -> None:
    with dml.connect(str(tmp_path), spark=spark, progress=False) as lake:
        lake.sql("CREATE NAMESPACE db; CREATE TABLE db.orders (id INT, amount INT)")
        calls: list[Callable[[], Any]] = [
            lambda: lake.sql("UPDATE db.orders SET amout = 1"),
            lambda: dml.sql("SELECT amout FROM db.orders"),
            lambda: lake.sql("SELEC 1"),
            lambda: lake.rollback_to_snapshot("db.orders", 1),
            lambda: spark.sql("UPDATE lake.db.orders SET amout = 1"),
        ]
        for call in calls:
            with pytest.raises(DmlError) as found:
                call()
            names = [Path(frame.filename).name for frame in traceback.extract_tb(found.value.__traceback__)]
            assert names == ["test_tracebacks.py"] * 2
            assert "JVM" not in shown(found.value)
            assert "pyspark" not in shown(found.value)
