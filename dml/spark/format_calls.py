"""`format("iceberg")` with the name of a table of ours in the place of a path. Driver; classic Spark and Spark Connect.

Input: `spark.read.format("iceberg").load(name)` and `df.write.format("iceberg").save(name)`, as programs for Iceberg's
JAR have them. Output: the calls that mean the same and name a table: `table`, `writeTo`, `saveAsTable`. Where the path
is no name with a catalog of ours in front, PySpark's own methods go on.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from dml.errors import NotSupportedError
from dml.spark.connect_plans import frame_of_plan
from dml.spark.handlers import calls_of, find_calls, is_classic
from dml.spark.replaced_methods import Action, Method, Question, Replacement, replace_methods
from dml.spark.versions import Feature, has
from dml.sqlparse.names import name_parts

__all__ = ["format_replacements", "is_name", "loading", "names_ours", "take_format_calls"]

ICEBERG: Final = "iceberg"


def take_format_calls(spark: SparkSession, register: Callable[[SparkSession], None]) -> None:
    """Let `load` and `save` look whether a table of ours is meant; before Spark 4.0 no such call finds our tables.

    Args:
        spark: A session.
        register: Lets a classic session have the format, when a writer names it.
    """
    if has(Feature.DATA_SOURCE_V2):
        replace_methods(format_replacements(register, is_classic=is_classic(spark)))


def format_replacements(register: Callable[[SparkSession], None], *, is_classic: bool) -> tuple[Replacement, ...]:
    """Return the replacements for methods of readers and writers.

    Args:
        register: Registers the format in a classic session.
        is_classic: Whether to replace methods of classic Spark, or of Spark Connect.
    """
    readwriter = f"pyspark.sql{'' if is_classic else '.connect'}.readwriter"
    table_loaded, load = loading(state_of_reader)
    names = Replacement(f"{readwriter}.DataFrameWriter", "format", functools.partial(registering, register), no_action)
    return (
        Replacement(f"{readwriter}.DataFrameReader", "load", table_loaded, load),
        Replacement(f"{readwriter}.DataFrameWriter", "save", table_saved, save),
        *((names,) if is_classic else ()),
    )


def registering(register: Callable[[SparkSession], None], self: Any, source: str, /) -> None:
    """Register the format before PySpark's `df.write.format(source)` looks it up."""
    if str(source).lower() == ICEBERG and calls_of(self._spark) is not None:
        register(self._spark)


def no_action(original: Method, _: Any, /, *given: Any, **named: Any) -> Any:
    """Leave a call to PySpark."""
    return original(*given, **named)


def loading(state: Callable[[Any], tuple[Any, str | None, bool]]) -> tuple[Question, Action]:
    """Return the question and the action for `spark.read.load(path)`, or for `spark.readStream.load(path)`.

    Args:
        state: Returns the state of a reader: the session, the format, and whether a schema was given.
    """

    def table_loaded(
        self: Any,
        path: Any = None,
        format: str | None = None,  # noqa: A002  PySpark's name
        *_: Any,
        **__: Any,
    ) -> bool | None:
        if not is_name(path):
            return None
        session, source, has_schema = state(self)
        return has_schema if names_ours(session, path, format or source) else None

    def load(
        _: Method,
        has_schema: bool,
        /,
        self: Any,
        path: Any = None,
        format: str | None = None,  # noqa: A002, ARG001  PySpark's name
        schema: Any = None,
        **options: Any,
    ) -> DataFrame:
        if schema is not None or has_schema:
            raise NotSupportedError(
                f"The table '{path}' has its schema", hint="Leave the schema out, and select the columns"
            )
        return self.options(**options).table(path)  # type: ignore[no-any-return]

    return table_loaded, load


def table_saved(
    self: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002  PySpark's name
    *_: Any,
    **__: Any,
) -> str | None:
    """Return the name of the table if `df.write.save(path)` names one of ours."""
    if path is None or not is_name(path):
        return None
    state = state_of_writer(self)
    return path if names_ours(state.session, path, format or state.source) else None


def save(
    _: Method,
    table: str,
    /,
    self: Any,
    path: str | None = None,  # noqa: ARG001
    format: str | None = None,  # noqa: A002, ARG001  PySpark's name
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: N803  PySpark's name
    **options: Any,
) -> None:
    """Run `df.write.save(name)`."""
    self.mode(mode).options(**options)
    if partitionBy is not None:
        self.partitionBy(partitionBy)
    state = state_of_writer(self)
    writer = state.rows.writeTo(table).options(**state.options)
    if state.mode == "append":
        writer.append()
    elif state.mode == "overwrite":
        writer.overwrite(lit(True))
    else:
        self.saveAsTable(table)


def is_name(path: object) -> bool:
    """Whether a path may be a table's name with its catalog: those of files are not."""
    return isinstance(path, str) and len(name_parts(path)) > 1


def names_ours(spark: Any, path: str, source: str | None) -> bool:
    """Whether a name is that of a table of ours, in the format that is ours."""
    return (source or "").lower() == ICEBERG and find_calls(spark, name_parts(path)) is not None


def state_of_reader(reader: Any) -> tuple[Any, str | None, bool]:
    """The session of a reader, its format, and whether it was given a schema."""
    if hasattr(reader, "_jreader"):
        java = reader._jreader  # noqa: SLF001  no public name
        return reader._spark, str(java.source()), bool(java.userSpecifiedSchema().isDefined())  # noqa: SLF001
    return reader._client, reader._format, bool(reader._schema)  # noqa: SLF001


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterState:
    """What a writer was told.

    Attributes:
        session: Its session.
        rows: Its rows.
        source: Its format.
        mode: Its mode, in lower case.
        options: Its options.
    """

    session: Any
    rows: DataFrame
    source: str | None
    mode: str
    options: Mapping[str, str]


def state_of_writer(writer: Any) -> WriterState:
    """What a writer was told: classic ones keep it in the JVM."""
    if hasattr(writer, "_jwrite"):
        java = writer._jwrite  # noqa: SLF001  no public name
        given = java.extraOptions().originalMap().iterator()
        options = {}
        while given.hasNext():
            pair = given.next()
            options[str(pair._1())] = str(pair._2())  # noqa: SLF001  Scala's names
        return WriterState(
            session=writer._spark,  # noqa: SLF001
            rows=writer._df,  # noqa: SLF001
            source=str(java.source()),
            mode=str(java.curmode().name()).lower(),
            options=options,
        )
    told = writer._write  # noqa: SLF001
    return WriterState(
        session=writer._spark,  # noqa: SLF001
        rows=frame_of_plan(writer._df, writer._spark),  # noqa: SLF001
        source=told.source,
        mode=(told.mode or "error").lower(),
        options={key: value for key, value in told.options.items() if value is not None},
    )
