"""Java values for Spark's connector API: classes, arrays, schemas, exceptions. Driver, classic only.

A JVM call takes about a tenth of a millisecond, and planning a query must be fast. So values are created in as few
calls as possible, and constants once per gateway.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Final

from pyspark.sql.types import DataType, StructType

from dml import limits
from dml.spark.bridge.gateway import CallbackError, JavaObject, gateway, java_class, keep_alive

__all__ = [
    "CATALOG",
    "CONNECTOR",
    "array",
    "capabilities",
    "companion",
    "constant",
    "data_type",
    "elements",
    "java_class",
    "java_collection",
    "java_error",
    "java_map",
    "optional_long",
    "options_of",
    "python_schema",
    "scala_list",
    "scala_none",
    "scala_tuple",
    "simple_name",
    "static_method",
    "string_array",
    "struct_type",
]

CONNECTOR: Final = "org.apache.spark.sql.connector."
CATALOG: Final = CONNECTOR + "catalog."


def static_method(kind: str, method: str) -> Any:
    """Return a static method of a class, cached: py4j looks it up in the JVM on each attribute access."""
    return cached_static(gateway(), kind, method)


@cache
def cached_static(_: object, kind: str, method: str) -> Any:
    return getattr(java_class(kind), method)


def companion(name: str) -> Any:
    """Return a Scala object by its full name."""
    return getattr(java_class(f"{name}$"), "MODULE$")


def constant(enumeration: str, name: str) -> JavaObject:
    """Return a constant of a Java enumeration."""
    return cached_constant(gateway(), enumeration, name)


@cache
def cached_constant(_: object, enumeration: str, name: str) -> JavaObject:
    return java_class(enumeration).valueOf(name)


def capabilities(*names: str) -> JavaObject:
    """Return a shared set of `TableCapability`s, which Spark only reads."""
    return cached_capabilities(gateway(), names)


@cache
def cached_capabilities(_: object, names: tuple[str, ...]) -> JavaObject:
    made = java_class("java.util.HashSet")()
    for name in names:
        made.add(constant(CATALOG + "TableCapability", name))
    return made


def array(kind: str, items: Iterable[Any]) -> JavaObject:
    """Create a Java array of a class's elements."""
    values = list(items)
    if not values:
        return empty_array(gateway(), kind)
    made = gateway().new_array(java_class(kind), len(values))
    for index, value in enumerate(values):
        if hasattr(value, "Java"):  # py4j takes a Python object as an argument, but not as an element
            static_method("java.lang.reflect.Array", "set")(made, index, value)
        else:
            made[index] = value
    return made


@cache
def empty_array(_: object, kind: str) -> JavaObject:
    """Return an empty Java array, which is immutable and so can be shared."""
    return gateway().new_array(java_class(kind), 0)


def string_array(items: Iterable[str]) -> JavaObject:
    """Create a `String[]`."""
    return array("java.lang.String", items)


def scala_none() -> JavaObject:
    """Return Scala's `None`."""
    return static_method("scala.Option", "empty")()


def optional_long(value: int | None) -> JavaObject:
    """Create an `OptionalLong`, empty for None."""
    return (
        static_method("java.util.OptionalLong", "empty")()
        if value is None
        else static_method("java.util.OptionalLong", "of")(value)
    )


def java_map(values: Mapping[str, str]) -> JavaObject:
    """Create a `Map<String, String>`."""
    made = java_class("java.util.HashMap")()
    for key, value in values.items():
        made.put(key, value)
    return made


def options_of(options: JavaObject) -> dict[str, str]:
    """Convert a `Map<String, String>` to a dict.

    py4j iterates until Java raises an exception, and PySpark needs some eighty commands to convert that. An array of
    the keys avoids it.
    """
    return {} if options.isEmpty() else {str(key): str(options.get(key)) for key in options.keySet().toArray()}


def struct_type(schema: StructType) -> JavaObject:
    """Convert a schema to a Java `StructType`."""
    return cached_type(gateway(), schema.json())


def data_type(kind: DataType) -> JavaObject:
    """Convert a type to a Java `DataType`, cached: the types of metadata columns are needed for every table."""
    return cached_type(gateway(), kind.json())


@lru_cache(maxsize=limits.CACHED_JAVA_TYPES)
def cached_type(_: object, text: str) -> JavaObject:
    return static_method("org.apache.spark.sql.types.DataType", "fromJson")(text)


def python_schema(schema: JavaObject) -> StructType:
    """Convert a Java `StructType` to a Python one."""
    return StructType.fromJson(json.loads(schema.json()))


def simple_name(value: JavaObject) -> str:
    """Return the name of an object's class, without its package."""
    return str(value.getClass().getSimpleName())


def java_error(exception: str, *arguments: Any) -> CallbackError:
    """Return an exception to raise from a callback, which arrives in the JVM as a Java exception.

    Args:
        exception: The Java class.
        *arguments: The arguments of its constructor.
    """
    return CallbackError("", keep_alive(java_class(exception)(*arguments)))


def scala_list(items: Iterable[Any]) -> JavaObject:
    """Convert items to an immutable Scala list."""
    listed = java_class("java.util.ArrayList")()
    for item in items:
        listed.add(item)
    return java_class("scala.jdk.javaapi.CollectionConverters").asScala(listed).toList()


def java_collection(collection: JavaObject) -> Any:
    """Convert a Scala sequence or map to a Java one, which Python can iterate over."""
    return java_class("scala.jdk.javaapi.CollectionConverters").asJava(collection)


def elements(sequence: JavaObject) -> list[JavaObject]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(place) for place in range(sequence.size())]


def scala_tuple(first: Any, second: Any) -> JavaObject:
    """Create a Scala pair."""
    return java_class("scala.Tuple2")(first, second)
