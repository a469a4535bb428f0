"""The demo: real flights, corrected by statements and streams in every mode, checked by other engines. Driver."""

from dml.demo.story import run

__all__ = ["run"]
