"""What a Python worker of Spark does once in its life. Worker.

PySpark collects garbage after every task, and a collection walks all objects: those of the imported modules, some
hundred thousand, never die. Kept apart they no longer cost 20 ms a task.
"""

import gc
from functools import cache

__all__ = ["settle"]


@cache
def settle() -> None:
    """Keep all that is imported by now out of later collections; only the first call in a process does something."""
    gc.collect()
    gc.freeze()
