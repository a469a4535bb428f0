"""Exceptions of Spark that have only private constructors. Driver, classic Spark only."""

from collections.abc import Mapping
from typing import Final

from dml.spark.bridge.gateway import JavaObject, gateway, jvm_view
from dml.spark.bridge.names import CURRENT_ORIGIN, PARSE_EXCEPTION, PYTHON_UTILS

__all__ = ["parse_exception"]

STRING: Final = "java.lang.String"


def parse_exception(text: str, condition: str, parameters: Mapping[str, str]) -> JavaObject:
    """Create a ParseException with a given text, which only its private constructor accepts."""
    jvm = jvm_view()
    java = PARSE_EXCEPTION.find()
    constructor = next(
        found for found in java.getDeclaredConstructors() if str(found.getParameterTypes()[1].getName()) == STRING
    )
    constructor.setAccessible(True)
    options = iter((jvm.scala.Option.empty(), jvm.scala.Option.apply(condition)))  # the command, the condition
    values = gateway().new_array(jvm.java.lang.Object, constructor.getParameterCount())
    for index, kind in enumerate(constructor.getParameterTypes()):
        match str(kind.getSimpleName()):
            case "Option":
                values[index] = next(options)
            case "String":
                values[index] = f"[{condition}] {text}"
            case "Origin":
                values[index] = CURRENT_ORIGIN.call("get")
            case "Map":
                values[index] = PYTHON_UTILS.call("toScalaMap", dict(parameters))
            case _:  # query contexts: none
                values[index] = jvm.java.lang.reflect.Array.newInstance(kind.getComponentType(), 0)
    return constructor.newInstance(values)
