"""Java values that Spark's connector API takes and gives: classes, arrays, schemas, exceptions. Driver, classic only.

Each call of the JVM takes some tenth of a millisecond, and planning a query may take no more than a blink: values are
made in as few calls as possible, and constants once.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from py4j.java_gateway import JavaObject
from pyspark.sql.types import StructType

from dml.spark.jvm import CallbackError, gateway, jvm_view, kept

__all__ = [
    "CATALOG",
    "CONNECTOR",
    "array",
    "constant",
    "java_class",
    "java_error",
    "java_map",
    "none",
    "optional_long",
    "python_schema",
    "simple_name",
    "strings",
    "struct_type",
]

CONNECTOR: Final = "org.apache.spark.sql.connector."
CATALOG: Final = CONNECTOR + "catalog."


def java_class(name: str) -> Any:
    """A class of the JVM by its full name; `java.lang.Class` stands for itself.

    Input is its name with `$` before the name of a nested class.
    """
    return cached_class(gateway(), name)


@cache
def cached_class(_: object, name: str) -> Any:
    """A class of a gateway's JVM."""
    return getattr(jvm_view(), name)


def constant(enumeration: str, name: str) -> JavaObject:
    """A constant of an enumeration."""
    return cached_constant(gateway(), enumeration, name)


@cache
def cached_constant(_: object, enumeration: str, name: str) -> JavaObject:
    """A constant of an enumeration of a gateway's JVM."""
    return java_class(enumeration).valueOf(name)


def array(kind: str, items: Iterable[Any]) -> JavaObject:
    """A Java array."""
    values = list(items)
    made = gateway().new_array(java_class(kind), len(values))
    for index, value in enumerate(values):
        if hasattr(value, "Java"):  # py4j takes a Python object as an argument, but not as an element
            java_class("java.lang.reflect.Array").set(made, index, value)
        else:
            made[index] = value
    return made


def strings(items: Iterable[str]) -> JavaObject:
    """A `String[]`."""
    return array("java.lang.String", items)


def none() -> JavaObject:
    """Scala's `None`."""
    return java_class("scala.Option").empty()


def optional_long(value: int) -> JavaObject:
    """An `OptionalLong`."""
    return java_class("java.util.OptionalLong").of(value)


def java_map(values: Mapping[str, str]) -> JavaObject:
    """A `Map<String, String>`."""
    made = java_class("java.util.HashMap")()
    for key, value in values.items():
        made.put(key, value)
    return made


def struct_type(schema: StructType) -> JavaObject:
    """A schema as Java's."""
    return java_class("org.apache.spark.sql.types.DataType").fromJson(schema.json())


def python_schema(schema: JavaObject) -> StructType:
    """A schema as Python's."""
    return StructType.fromJson(json.loads(schema.json()))


def simple_name(value: JavaObject) -> str:
    """The name of an object's class, without its package."""
    return str(value.getClass().getSimpleName())


def java_error(exception: str, *arguments: Any) -> CallbackError:
    """An exception to raise, which arrives in the JVM as a Java one.

    Args:
        exception: Its class.
        *arguments: What its constructor takes.
    """
    return CallbackError("", kept(java_class(exception)(*arguments)))
