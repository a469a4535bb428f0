"""Modules and classes that few statements need, imported on first use. Worker-safe."""

import sys
from collections.abc import Callable, Collection
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["lazy_modules", "loaded_class"]


def lazy_modules(package: str, names: Collection[str]) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a package that imports some of its modules on first access.

    Args:
        package: The name of the package.
        names: The modules, as attributes of the package.
    """

    def find(name: str) -> ModuleType:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return find


def loaded_class(module: str, name: str) -> type[Any] | tuple[()]:
    """Return a class for `isinstance`, or `()` if its module is not imported: it has no instances then."""
    found: type[Any] | tuple[()] = getattr(sys.modules.get(module), name, ())
    return found
