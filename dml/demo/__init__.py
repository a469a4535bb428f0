"""The demo: real flights, corrected by statements in every mode and by streams, checked by other engines. Driver."""

from dml.demo.story import run

__all__ = ["run"]
