"""Opening a data or delete file by its format. Worker-safe.

Input: a location and a format. Output: a `DataFile`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping

from dml.errors import NotSupportedError
from dml.files.file_io import check_size, file_errors, open_file
from dml.read.avro_file import AvroFile
from dml.read.data_file import DataFile
from dml.read.orc_file import OrcFile
from dml.read.parquet_file import ParquetFile

__all__ = ["open_data_file"]


@contextmanager
def open_data_file(
    io: FileIO, location: str, file_format: str, name_mapping: NameMapping | None, *, size: int
) -> Iterator[DataFile]:
    """The file, until the block ends; what goes wrong in the block is reported with the file's name.

    Args:
        io: The FileIO.
        location: The file.
        file_format: As its manifest says.
        name_mapping: Ids for files that have none.
        size: The file's bytes, as its manifest says.

    Raises:
        CorruptFileError: the file is not there, has another size, or its content breaks its format.
        NotSupportedError: the format is none that tables hold rows in.
        ExecutionError: the storage failed.
    """
    with file_errors(location, io.properties), open_file(io, location) as stream:
        check_size(stream, location, size)
        match file_format.lower():
            case "parquet":
                local = "://" not in location or location.startswith("file:")
                yield ParquetFile(stream, name_mapping, local=local)
            case "orc":
                yield OrcFile(stream, name_mapping)
            case "avro":
                yield AvroFile(stream, name_mapping)
            case _:
                raise NotSupportedError(
                    f"The file '{location}' has the format '{file_format}'",
                    hint="Rows are read from Parquet, ORC and Avro files",
                    file=location,
                )
