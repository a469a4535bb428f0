"""The engine, which runs a statement through parse, plan, scan, write and commit; the stages meet only here. Driver.

The procedures and `maintain` are imported on first use: a DELETE from the shell should not wait for them.
"""

from typing import TYPE_CHECKING

from dml.lazy_imports import lazy_modules

if TYPE_CHECKING:
    from dml.engine import maintain, procedures

__all__ = ["maintain", "procedures"]

__getattr__ = lazy_modules(__name__, __all__)
