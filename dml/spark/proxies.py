"""Java objects whose methods are Python's: what Spark's interfaces are implemented with. Driver, classic Spark only.

Input: a Python class and the names of the Java interfaces that it implements. Output: instances that py4j hands to the
JVM as objects of these interfaces. What a method answers stays alive until the JVM has taken it; what it raises arrives
as the Java exception that stands for it.

py4j sends every call of an interface to Python, also of the methods that have a body in Java. Those that a class here
does not define run that body, so that methods which Spark adds later do no harm.
"""

from collections.abc import Callable
from functools import cache, partial, wraps
from types import FunctionType
from typing import Any, ClassVar

from py4j.java_gateway import JavaObject

from dml.spark.java import CONNECTOR, array, java_class, java_error, static
from dml.spark.jvm import CallbackError, carried, gateway, kept

__all__ = ["Proxy"]


class Proxy:
    """An object of Java interfaces. A class below names them in `interfaces` and defines their methods.

    A method of Java's name takes what Java gives and returns a Java object, a proxy, or a value that py4j converts.
    Methods that only Python calls begin with an underscore.
    """

    interfaces: ClassVar[tuple[str, ...]] = ()

    class Java:
        """What py4j needs to know; each class has its own."""

        implements: ClassVar[list[str]] = []

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.Java = type("Java", (), {"implements": [full_name(name) for name in cls.interfaces]})  # type: ignore[assignment,misc]
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, answering(method))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if hasattr(type(self), name):  # a property that fails for want of an attribute says so itself
            return object.__getattribute__(self, name)  # type: ignore[no-any-return]
        if name.startswith("_"):  # py4j probes its own names to tell Java objects from Python ones
            raise AttributeError(name)
        return answering(partial(default_method, self, name))

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two of a class equal; values define it, others are equal to themselves alone."""
        return (id(self),)

    def toString(self) -> str:
        """Its class and identity, by which Java's references to proxies are distinguished."""
        return f"{type(self).__name__}{self.identity!r}"

    def hashCode(self) -> int:
        """Of equal ones the same, in the range of Java's int."""
        return hash(self.identity) & 0x7FFFFFFF

    def equals(self, other: object) -> bool:
        """Whether the other, which Java gives as a proxy of its own, is of the same class and identity."""
        return isinstance(other, Proxy | JavaObject) and str(other.toString()) == self.toString()


def full_name(interface: str) -> str:
    """The full name of an interface that is given as Spark's connector API has it: `read.Scan`."""
    return interface if interface.startswith(("java.", "org.", "scala.")) else CONNECTOR + interface


def answering(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method as the JVM calls it."""

    @wraps(method)
    def call(*arguments: Any) -> Any:
        try:
            return kept(method(*arguments))
        except CallbackError:
            raise
        except Exception as error:
            raise carried(error) from error

    call.__doc__ = getattr(method, "__doc__", None)
    return call


def default_method(proxy: Proxy, name: str, *arguments: Any) -> Any:
    """Run the body that a method has in Java.

    Raises:
        CallbackError: it has none: Java's UnsupportedOperationException.
    """
    found = [
        method
        for method in default_methods(gateway(), tuple(proxy.Java.implements), name, len(arguments))
        if not arguments
        or all(fits(kind, value) for kind, value in zip(method.getParameterTypes(), arguments, strict=True))
    ]
    if not found:
        raise java_error("java.lang.UnsupportedOperationException", f"{type(proxy).__name__} has no {name}")
    given = array("java.lang.Object", arguments)
    return static("java.lang.reflect.InvocationHandler", "invokeDefault")(proxy, found[0], given)


@cache
def default_methods(_: object, interfaces: tuple[str, ...], name: str, count: int) -> tuple[JavaObject, ...]:
    """The methods of a name and a number of parameters that have a body, of a gateway's JVM."""
    return tuple(
        method
        for interface in interfaces
        for method in java_class("java.lang.Class").forName(interface).getMethods()
        if method.getName() == name and method.getParameterCount() == count and method.isDefault()
    )


def fits(kind: JavaObject, value: object) -> bool:
    """Whether a value that py4j may have converted is one for a parameter: overloads differ by more than numbers."""
    if value is None or isinstance(value, JavaObject):
        return value is None or bool(kind.isInstance(value))
    if isinstance(value, str):
        return bool(kind.isAssignableFrom(java_class("java.lang.Class").forName("java.lang.String")))
    return bool(kind.isPrimitive()) or not isinstance(value, int | float | bool)
