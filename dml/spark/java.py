"""Java values that Spark's connector API takes and gives: classes, arrays, schemas, exceptions. Driver, classic only.

Each call of the JVM takes some tenth of a millisecond, and planning a query may take no more than a blink: values are
made in as few calls as possible, and constants once.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Final

from py4j.java_gateway import JavaObject
from pyspark.sql.types import DataType, StructType

from dml import limits
from dml.spark.jvm import CallbackError, gateway, jvm_view, kept

__all__ = [
    "CATALOG",
    "CONNECTOR",
    "array",
    "capabilities",
    "companion",
    "constant",
    "data_type",
    "java_class",
    "java_error",
    "java_map",
    "none",
    "optional_long",
    "options_of",
    "python_schema",
    "simple_name",
    "static",
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


def static(kind: str, method: str) -> Any:
    """A static method of a class: py4j asks the JVM for it each time that it is named."""
    return cached_static(gateway(), kind, method)


@cache
def cached_static(_: object, kind: str, method: str) -> Any:
    """A static method of a class of a gateway's JVM."""
    return getattr(java_class(kind), method)


def companion(name: str) -> Any:
    """An object of Scala's."""
    return getattr(java_class(f"{name}$"), "MODULE$")


def constant(enumeration: str, name: str) -> JavaObject:
    """A constant of an enumeration."""
    return cached_constant(gateway(), enumeration, name)


@cache
def cached_constant(_: object, enumeration: str, name: str) -> JavaObject:
    """A constant of an enumeration of a gateway's JVM."""
    return java_class(enumeration).valueOf(name)


def capabilities(*names: str) -> JavaObject:
    """A set of `TableCapability`s; it is Spark's to read, and made once."""
    return cached_capabilities(gateway(), names)


@cache
def cached_capabilities(_: object, names: tuple[str, ...]) -> JavaObject:
    """A set of a gateway's JVM."""
    made = java_class("java.util.HashSet")()
    for name in names:
        made.add(constant(CATALOG + "TableCapability", name))
    return made


def array(kind: str, items: Iterable[Any]) -> JavaObject:
    """A Java array."""
    values = list(items)
    if not values:
        return empty_array(gateway(), kind)
    made = gateway().new_array(java_class(kind), len(values))
    for index, value in enumerate(values):
        if hasattr(value, "Java"):  # py4j takes a Python object as an argument, but not as an element
            static("java.lang.reflect.Array", "set")(made, index, value)
        else:
            made[index] = value
    return made


@cache
def empty_array(_: object, kind: str) -> JavaObject:
    """The Java array without elements, which nobody can change, of a gateway's JVM."""
    return gateway().new_array(java_class(kind), 0)


def strings(items: Iterable[str]) -> JavaObject:
    """A `String[]`."""
    return array("java.lang.String", items)


def none() -> JavaObject:
    """Scala's `None`."""
    return static("scala.Option", "empty")()


def optional_long(value: int | None) -> JavaObject:
    """An `OptionalLong`, empty for None."""
    return (
        static("java.util.OptionalLong", "empty")() if value is None else static("java.util.OptionalLong", "of")(value)
    )


def java_map(values: Mapping[str, str]) -> JavaObject:
    """A `Map<String, String>`."""
    made = java_class("java.util.HashMap")()
    for key, value in values.items():
        made.put(key, value)
    return made


def options_of(options: JavaObject) -> dict[str, str]:
    """A `Map<String, String>` as Python's.

    It is not gone through as py4j does, until Java raises: PySpark asks in some eighty commands what such an error is.
    """
    return {} if options.isEmpty() else {str(key): str(options.get(key)) for key in options.keySet().toArray()}


def struct_type(schema: StructType) -> JavaObject:
    """A schema as Java's."""
    return cached_type(gateway(), schema.json())


def data_type(kind: DataType) -> JavaObject:
    """A type as Java's; those of metadata columns are asked for with each table."""
    return cached_type(gateway(), kind.json())


@lru_cache(maxsize=limits.CACHED_JAVA_TYPES)
def cached_type(_: object, text: str) -> JavaObject:
    """The type of a gateway's JVM that a text in JSON stands for."""
    return static("org.apache.spark.sql.types.DataType", "fromJson")(text)


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
