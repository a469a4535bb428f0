"""The type `variant` of format version 3, which PyIceberg 0.12 lacks: for PyIceberg, and in Arrow. Worker-safe.

Input: nothing; whoever imports this module can load tables with columns of the type. Output: the type, and the Arrow
types of its values. Spec: "Semi-structured Types", "Schemas" in Appendix C; Parquet's `VariantEncoding.md`.

PyIceberg reads the name of a type in one function, which each of its models holds a compiled reference to: no subclass
and no argument reaches it. So that function, and nothing else of PyIceberg, learns one name that was an error before.
Why so, and what else was tried: docs/decisions/031-a-type-that-pyiceberg-lacks.md. A test fails as soon as PyIceberg
knows the name itself, so that this goes away.
"""

from types import FunctionType
from typing import Any, Final, Literal

import pyarrow as pa
from pydantic import Field, ValidatorFunctionWrapHandler
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IcebergType, PrimitiveType

__all__ = ["METADATA", "TYPED_VALUE", "VALUE", "VARIANT_ARROW", "VARIANT_FOR_SPARK", "VariantType", "is_variant"]

METADATA: Final = "metadata"
VALUE: Final = "value"
TYPED_VALUE: Final = "typed_value"
"""What the parts of a variant are called wherever it is a group: they have no field ids, and any order."""

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


MARK: Final = {b"variant": b"true"}
"""By this metadata of the part `metadata` Spark, in Python and in the JVM, tells a variant from a struct."""

METADATA_FIELD: Final = pa.field(METADATA, pa.binary(), nullable=False, metadata=MARK)
VALUE_FIELD: Final = pa.field(VALUE, pa.binary(), nullable=False)

VARIANT_ARROW: Final = pa.struct([METADATA_FIELD, VALUE_FIELD])
"""As files have it, not shredded."""

VARIANT_FOR_SPARK: Final = pa.struct([VALUE_FIELD, METADATA_FIELD])
"""As Spark has it, which takes the parts by their places."""


def is_variant(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of the two, and not a struct whose fields are called so."""
    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    return any(kind.field(place).name == METADATA and (kind.field(place).metadata or {}) == MARK for place in (0, 1))
