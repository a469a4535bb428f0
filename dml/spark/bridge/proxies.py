"""Implement Java interfaces of Spark in Python. Driver, classic Spark only.

Input: a Python class and the names of the Java interfaces that it implements. Output: instances that py4j passes to the
JVM as objects of these interfaces. A method's result stays alive until the JVM has received it. Its exceptions arrive
as Java exceptions.

py4j sends every call of an interface to Python, even of Java's default methods. If a class does not define such a
method, its default runs, so methods that later versions of Spark add do no harm.
"""

from collections.abc import Callable
from functools import cache, partial, wraps
from types import FunctionType
from typing import Any, ClassVar

from dml.spark.bridge.gateway import CallbackError, JavaObject, gateway, keep_alive, to_callback_error
from dml.spark.bridge.values import CONNECTOR, array, java_class, java_error, static_method

__all__ = ["Proxy"]


class Proxy:
    """A Python object that implements Java interfaces: subclasses name them in `interfaces` and define their methods.

    A method with a Java name receives Java's arguments and returns a Java object, a proxy, or a value that py4j
    converts. Methods that only Python calls begin with an underscore.
    """

    interfaces: ClassVar[tuple[str, ...]] = ()

    class Java:
        """The Java interfaces, for py4j; each subclass has its own."""

        implements: ClassVar[list[str]] = []

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.Java = type("Java", (), {"implements": [full_name(name) for name in cls.interfaces]})  # type: ignore[assignment,misc]
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and not name.startswith("_"):
                setattr(cls, name, wrap_callback(method))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if hasattr(type(self), name):  # a property raised an AttributeError: raise it again
            return object.__getattribute__(self, name)  # type: ignore[no-any-return]
        if name.startswith("_"):  # py4j probes its own names to tell Java objects from Python ones
            raise AttributeError(name)
        return wrap_callback(partial(default_method, self, name))

    @property
    def identity(self) -> tuple[object, ...]:
        """The key by which instances of a class are equal. By default an instance equals only itself."""
        return (id(self),)

    def toString(self) -> str:
        """Return the class and identity, by which `equals` compares Java's references to proxies."""
        return f"{type(self).__name__}{self.identity!r}"

    def hashCode(self) -> int:
        """Return the hash of the identity, in the range of Java's int."""
        return hash(self.identity) & 0x7FFFFFFF

    def equals(self, other: object) -> bool:
        """Return True if `other`, which may be a Java reference to a proxy, has the same class and identity."""
        return isinstance(other, Proxy | JavaObject) and str(other.toString()) == self.toString()


def full_name(interface: str) -> str:
    """Complete the name of an interface that is relative to Spark's connector API: `read.Scan`."""
    return interface if interface.startswith(("java.", "org.", "scala.")) else CONNECTOR + interface


def wrap_callback(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method for calls from the JVM: keep its result alive, and convert its exceptions."""

    @wraps(method)
    def call(*arguments: Any) -> Any:
        try:
            return keep_alive(method(*arguments))
        except CallbackError:
            raise
        except Exception as error:
            raise to_callback_error(error) from error

    call.__doc__ = getattr(method, "__doc__", None)
    return call


def default_method(proxy: Proxy, name: str, *arguments: Any) -> Any:
    """Run Java's default method.

    Raises:
        CallbackError: there is none: Java's UnsupportedOperationException.
    """
    found = [
        method
        for method in default_methods(gateway(), tuple(proxy.Java.implements), name, len(arguments))
        if not arguments
        or all(is_argument_for(kind, value) for kind, value in zip(method.getParameterTypes(), arguments, strict=True))
    ]
    if not found:
        raise java_error("java.lang.UnsupportedOperationException", f"{type(proxy).__name__} has no {name}")
    given = array("java.lang.Object", arguments)
    return static_method("java.lang.reflect.InvocationHandler", "invokeDefault")(proxy, found[0], given)


@cache
def default_methods(_: object, interfaces: tuple[str, ...], name: str, count: int) -> tuple[JavaObject, ...]:
    """Return the default methods with a name and a number of parameters."""
    return tuple(
        method
        for interface in interfaces
        for method in java_class("java.lang.Class").forName(interface).getMethods()
        if method.getName() == name and method.getParameterCount() == count and method.isDefault()
    )


def is_argument_for(kind: JavaObject, value: object) -> bool:
    """Return True if a value, which py4j may have converted, can be an argument for a parameter's class.

    Kinds of numbers are not distinguished: no overloads differ by them alone.
    """
    if value is None or isinstance(value, JavaObject):
        return value is None or bool(kind.isInstance(value))
    if isinstance(value, str):
        return bool(kind.isAssignableFrom(java_class("java.lang.Class").forName("java.lang.String")))
    return bool(kind.isPrimitive()) or not isinstance(value, int | float | bool)
