"""PySpark's calls on tables of ours, as values. Driver.

What `dml.spark.connect_calls` reads off PySpark's readers and writers, and `dml.remote` runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PartitionTerm", "StreamCall", "TableCalls", "WriteAction", "WriteCall"]


class WriteAction(Enum):
    """What a writer does with its rows."""

    APPEND = auto()
    APPEND_OR_CREATE = auto()
    OVERWRITE = auto()
    OVERWRITE_WHERE = auto()
    OVERWRITE_PARTITIONS = auto()
    CREATE = auto()
    CREATE_IF_NOT_EXISTS = auto()
    REPLACE = auto()
    CREATE_OR_REPLACE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTerm:
    """A partition field of a new table.

    Attributes:
        transform: As in SQL, in lower case: `identity`, `bucket`, `year`, `month`, `day`, `hour`.
        column: The column, outermost first.
        argument: The number of buckets.
    """

    transform: str
    column: tuple[str, ...]
    argument: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """Rows that a DataFrame's writer gives to a table.

    Attributes:
        rows: The rows.
        table: The table's name, catalog first.
        action: What becomes of them.
        by_name: Whether they go to the table's columns by their names, or by their places.
        condition: Of `OVERWRITE_WHERE`, the rows that they replace.
        options: The writer's options.
        properties: Properties of a new table.
        provider: The format that the writer names.
        partitioning: The partition fields of a new table.
    """

    rows: DataFrame
    table: tuple[str, ...]
    action: WriteAction
    by_name: bool = True
    condition: Column | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    provider: str | None = None
    partitioning: tuple[PartitionTerm, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCall:
    """A stream that its writer is to bring into a table.

    Attributes:
        rows: The stream.
        table: The table's name, catalog first.
        start: Starts the query, with what each micro-batch is given to.
        output_mode: `append` and so on, as the writer was told; empty where it was told nothing.
        options: The writer's options.
        provider: The format that the writer names.
        partitioning: The columns by which a new table is partitioned.
    """

    rows: DataFrame
    table: tuple[str, ...]
    start: Callable[[Callable[[DataFrame, int], None]], StreamingQuery]
    output_mode: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    provider: str | None = None
    partitioning: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCalls:
    """What takes the calls of one session.

    Attributes:
        table_name: The name of a table as written, with its catalog first; empty where the table is none of ours.
        namespace_name: The same for a namespace; that of no name is the current one's.
        read: The DataFrame of a table, of its name and the options of a reader.
        write: Takes rows.
        stream: Takes a stream.
        catalog: What answers methods of `spark.catalog`, by their names: of the name of a table or namespace, and the
            method's other arguments.
        current: By the names of methods of `spark.catalog` about current, or all, catalogs and namespaces. Each takes
            the arguments of a call and returns a function that runs it, given PySpark's own method; None for calls
            that are Spark's.
    """

    table_name: Callable[[tuple[str, ...]], tuple[str, ...]]
    namespace_name: Callable[[tuple[str, ...]], tuple[str, ...]]
    read: Callable[[tuple[str, ...], Mapping[str, str]], DataFrame]
    write: Callable[[WriteCall], None]
    stream: Callable[[StreamCall], StreamingQuery]
    catalog: Mapping[str, Callable[..., Any]]
    current: Mapping[str, Callable[..., Any]]
