"""PySpark's calls on RowDelta tables, as values. Driver.

`dml.spark.connect_calls` reads them from PySpark's readers and writers, and `dml.remote` runs them.
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
        transform: The transform as in SQL, in lower case: `identity`, `bucket`, `year`, `month`, `day`, `hour`.
        column: The path of the column, outermost first.
        argument: The number of buckets; None for other transforms.
    """

    transform: str
    column: tuple[str, ...]
    argument: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """A write of a DataFrame's writer into a table.

    Attributes:
        rows: The rows.
        table: The table's name, catalog first.
        action: The kind of write.
        by_name: Whether columns match by name, or by position.
        condition: The rows to replace, for `OVERWRITE_WHERE`.
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
    """A write of a stream's writer into a table.

    Attributes:
        rows: The stream.
        table: The table's name, catalog first.
        start: Starts the query, with the function for each micro-batch.
        output_mode: The writer's output mode, such as `append`; empty if it is not set.
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
    """The handlers of one session's calls.

    Attributes:
        table_name: Qualifies a table name as written, catalog first; returns an empty tuple for other tables.
        namespace_name: The same for a namespace; an empty name is the current one.
        read: Returns the DataFrame of a table, from its name and the options of a reader.
        write: Runs a write.
        stream: Starts a stream.
        catalog: Handlers of methods of `spark.catalog`, by method name. Each takes the name of a table or namespace,
            and the method's other arguments.
        current: Handlers of methods of `spark.catalog` about current, or all, catalogs and namespaces, by method name.
            Each takes the arguments of a call and returns a function that runs it, given PySpark's own method; None
            for calls that are Spark's.
    """

    table_name: Callable[[tuple[str, ...]], tuple[str, ...]]
    namespace_name: Callable[[tuple[str, ...]], tuple[str, ...]]
    read: Callable[[tuple[str, ...], Mapping[str, str]], DataFrame]
    write: Callable[[WriteCall], None]
    stream: Callable[[StreamCall], StreamingQuery]
    catalog: Mapping[str, Callable[..., Any]]
    current: Mapping[str, Callable[..., Any]]
