"""The FileIO through which files are written and deleted. Worker-safe."""

from dml.files.file_io import file_io

__all__ = ["file_io"]
