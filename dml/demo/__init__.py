"""The demo: real flights, corrected by every row-level statement in every mode, checked by other engines. Driver."""

from dml.demo.story import run

__all__ = ["run"]
