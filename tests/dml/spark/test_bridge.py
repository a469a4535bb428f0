"""The internals that RowDelta uses are there in the PySpark that runs this."""

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.sql_formatter import SQLStringFormatter

from dml.spark.bridge.internals import Internal, JavaField, PrivateField, SparkClass, UnknownInternalsError, find_class
from dml.spark.bridge.names import (
    CATALOGS,
    INTERNALS,
    JAVA_READER,
    JAVA_WRITER,
    STREAM_READER_FORMAT,
    STREAM_WRITER_FORMAT,
)
from dml.spark.bridge.sessions import session_state

pytestmark = [pytest.mark.spark, pytest.mark.oldest]

CONNECT = "pyspark.sql.connect."


def used(kind: type[Internal]) -> list[Any]:
    """Return the internals of a kind that RowDelta uses on this PySpark, as parameters."""
    return [
        pytest.param(one, id=name.lower()) for name, one in INTERNALS.items() if isinstance(one, kind) and one.is_used
    ]


def java_classes(name: str) -> Iterable[Any]:
    """Yield a class and its Scala object."""
    yield find_class(name)
    try:
        yield find_class(f"{name}$")
    except UnknownInternalsError:
        return


def has_member(name: str, member: str) -> bool:
    """Return whether a class has a method or a constructor with a number of arguments."""
    method, _, arity = member.rpartition("/")
    for kind in java_classes(name):
        found = kind.getConstructors() if method == "new" else [m for m in kind.getMethods() if m.getName() == method]
        counts = [int(each.getParameterCount()) for each in found]
        if any(count >= int(arity[:-1]) if arity.endswith("+") else count == int(arity) for count in counts):
            return True
    return False


@pytest.mark.parametrize("one", used(SparkClass))
def test_spark_has_the_class(spark: SparkSession, one: SparkClass) -> None:
    assert [member for member in one.members.split() if not has_member(one.name, member)] == []


def test_missing_members_are_found(spark: SparkSession) -> None:
    """So that the test above can fail."""
    assert has_member("java.lang.String", "concat/1")
    assert not has_member("java.lang.String", "concat/2")
    assert not has_member("java.lang.String", "new/9+")
    with pytest.raises(UnknownInternalsError, match="does not exist"):
        has_member("org.apache.spark.OfLater", "new/0")


def holders(spark: SparkSession) -> dict[str, tuple[Any, ...]]:
    """Return objects of classic PySpark and its JVM, by their class in the list."""
    frame, stream = spark.range(1), spark.readStream.format("rate").load()
    return {
        "pyspark.SparkContext": (spark.sparkContext,),
        "pyspark.sql.Column": (frame.id,),
        "pyspark.sql.DataFrame": (frame,),
        "pyspark.sql.DataFrameReader": (spark.read, spark.readStream),
        "pyspark.sql.DataFrameWriter": (frame.write, stream.writeStream),
        "pyspark.sql.SparkSession": (spark,),
        "pyspark.sql.SparkSession.Builder": (SparkSession.builder,),
        "pyspark.sql.sql_formatter.SQLStringFormatter": (SQLStringFormatter(spark),),
        CATALOGS.owner: (session_state(spark).catalogManager(),),
        STREAM_READER_FORMAT.owner: (JAVA_READER.of(spark.readStream),),
        STREAM_WRITER_FORMAT.owner: (JAVA_WRITER.of(stream.writeStream),),
    }


@pytest.mark.parametrize("one", [*used(PrivateField), *used(JavaField)])
def test_objects_have_the_attribute(spark: SparkSession, one: PrivateField | JavaField) -> None:
    if one.owner.startswith(CONNECT):  # without a server there are no objects
        module, _, name = one.owner.rpartition(".")
        assert f"self.{one.name}" in inspect.getsource(getattr(importlib.import_module(module), name))
    else:
        for holder in holders(spark)[one.owner]:
            one.of(holder)
