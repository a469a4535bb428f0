"""The one change to PyIceberg itself: it learns the type `variant` of format version 3, which 0.12 lacks. Worker-safe.

It takes effect on import. PyIceberg reads the name of a type in one function, to which each of its compiled models has
a reference; a subclass or an argument does not reach it. That function alone is changed, for a name that was an error
before. Alternatives that failed: docs/decisions/031-a-type-that-pyiceberg-lacks.md. A test fails once PyIceberg knows
the name; this module goes then.

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
    """Iceberg's semi-structured type: a leaf for PyIceberg's visitors, but nothing that is ordered or hashed."""

    root: Literal["variant"] = Field(default="variant")

    @property
    def is_primitive(self) -> bool:
        """False: it is no source of transforms, no sort key and no identifier."""
        return False

    def minimum_format_version(self) -> TableVersion:
        """Format version 3."""
        return FORMAT_VERSION


def teach_pyiceberg() -> None:
    """Let PyIceberg read the name `variant` as the type; every other name is read by its own function, as before.

    Compiled models call the function object that they were made with, so it is this object's code that changes: it asks
    for the one name first, and leaves the rest to a copy of what it was.
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


teach_pyiceberg()
