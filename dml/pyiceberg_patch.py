"""Patch PyIceberg to support the type `variant` of format version 3, which 0.12 lacks. Worker-safe.

The patch is applied on import. PyIceberg parses type names in one function, to which each of its compiled models holds
a reference, so a subclass or an argument cannot replace it. The patch changes only this function, and only for a name
that was an error before. docs/decisions/031-a-type-that-pyiceberg-lacks.md lists alternatives that failed. A test fails
once PyIceberg supports the name; then delete this module.

Spec: "Semi-structured Types", and "Schemas" in Appendix C.
"""

from types import FunctionType
from typing import Any, Final, Literal

from pydantic import Field, ValidatorFunctionWrapHandler
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IcebergType, PrimitiveType

__all__ = ["VariantType"]

FORMAT_VERSION: Final = 3


class VariantType(PrimitiveType):
    """Iceberg's semi-structured type: a leaf for PyIceberg's visitors whose values are neither ordered nor hashed."""

    root: Literal["variant"] = Field(default="variant")

    @property
    def is_primitive(self) -> bool:
        """False, because the type cannot be a source of transforms, a sort key or an identifier field."""
        return False

    def minimum_format_version(self) -> TableVersion:
        """Return format version 3."""
        return FORMAT_VERSION


def patch_pyiceberg() -> None:
    """Make PyIceberg parse the name `variant`. Its own function still parses every other name.

    Compiled models call the function object that they were built with, so this replaces the object's code: the new code
    checks for `variant` first and delegates all other names to a copy of the original.
    """
    function: Any = getattr(IcebergType.handle_primitive_type, "__func__")  # noqa: B009 - a classmethod's function
    original = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)

    def handle(
        cls: type[IcebergType],
        v: Any,
        handler: ValidatorFunctionWrapHandler,
        _original: Any = original,
        _classes: Any = (IcebergType, VariantType),
    ) -> Any:
        return _classes[1]() if v == "variant" and cls in _classes else _original(cls, v, handler)

    function.__code__, function.__defaults__ = handle.__code__, handle.__defaults__


patch_pyiceberg()
