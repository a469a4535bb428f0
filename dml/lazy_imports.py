"""Classes and functions of modules that a statement may not need, without importing them first. Worker-safe."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names", "loaded_class"]


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its modules when their names are first used.

    Args:
        package: The package.
        modules: The module of each public name.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return find


def loaded_class(module: str, name: str) -> type[Any] | tuple[()]:
    """Return a class for `isinstance`, or `()` if its module has not been imported, so that no object can be of it."""
    found: type[Any] | tuple[()] = getattr(sys.modules.get(module), name, ())
    return found
