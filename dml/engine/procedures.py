"""The procedures of CALL: their parameters, and what they do. Driver.

Source: Iceberg's Spark procedures (`RemoveOrphanFilesProcedure`, `ProcedureInput`), whose names and order of parameters
those of `remove_orphan_files` are. `verify` is RowDelta's own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from dml.engine.engine import Engine
from dml.engine.orphan_files import remove_orphans
from dml.engine.verification import verify_table
from dml.maintenance import RemoveOrphanFiles, prefix_mismatch_mode

__all__ = ["PROCEDURES", "Parameter", "Procedure"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a procedure.

    Attributes:
        name: Its name.
        kind: Its type, as messages call it.
        accepts: Types of Spark that are taken for it.
        conversion: The value in SQL, `{}` being the argument: what Python gets does not depend on its time zone.
        refused: Why it is not taken; None where it is.
    """

    name: str
    kind: str
    accepts: tuple[type[DataType], ...]
    conversion: str = "{}"
    refused: str | None = None


TEXT: Final = (StringType,)
WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
MOMENT: Final = (TimestampType, TimestampNTZType, DateType, StringType)
STRINGS: Final = "map_filter(CAST({} AS MAP<STRING, STRING>), (name, one) -> one IS NOT NULL)"
TABLE: Final = Parameter(name="table", kind="a string", accepts=TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure on a table.

    Attributes:
        name: Its name in the namespace `system`.
        parameters: In their order; the first one is the table.
        run: Runs it: the session's means, the table's name, the values of the other arguments.
    """

    name: str
    parameters: tuple[Parameter, ...]
    run: Callable[[Engine, tuple[str, ...], Mapping[str, Any]], DataFrame]


ORPHAN_PARAMETERS: Final = (
    TABLE,
    Parameter(name="older_than", kind="a timestamp", accepts=MOMENT, conversion="unix_micros(CAST({} AS TIMESTAMP))"),
    Parameter(name="location", kind="a string", accepts=TEXT),
    Parameter(name="dry_run", kind="true or false", accepts=(BooleanType,)),
    Parameter(name="max_concurrent_deletes", kind="a whole number", accepts=WHOLE),
    Parameter(
        name="file_list_view",
        kind="a string",
        accepts=TEXT,
        refused="Files are listed anew each time: what is deleted is not left to a list made elsewhere",
    ),
    Parameter(name="equal_schemes", kind="a map of strings", accepts=(MapType,), conversion=STRINGS),
    Parameter(name="equal_authorities", kind="a map of strings", accepts=(MapType,), conversion=STRINGS),
    Parameter(name="prefix_mismatch_mode", kind="a string", accepts=TEXT),
    Parameter(
        name="prefix_listing",
        kind="true or false",
        accepts=(BooleanType,),
        refused="Folders are always listed in the way that suits their storage",
    ),
)

VERIFY_PARAMETERS: Final = (
    TABLE,
    Parameter(name="snapshot_id", kind="a whole number", accepts=WHOLE),
    Parameter(name="every_file", kind="true or false", accepts=(BooleanType,)),
)


def run_remove_orphan_files(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> DataFrame:
    """One row for each orphan file, with its location."""
    given = dict(values)
    if "older_than" in given:
        given["older_than"] = EPOCH + timedelta(microseconds=given["older_than"])
    if "prefix_mismatch_mode" in given:
        given["prefix_mismatch_mode"] = prefix_mismatch_mode(given["prefix_mismatch_mode"])
    locations = remove_orphans(engine, parts, RemoveOrphanFiles(**given))
    return engine.spark.createDataFrame([(location,) for location in locations], "orphan_file_location string")


def run_verify(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> DataFrame:
    """One row for each number of the snapshot's summary, and one for each problem."""
    found = verify_table(engine, parts, **values)
    counts = [(count.name, count.said, count.counted, None) for count in found.counts]
    problems = [(None, None, None, problem) for problem in found.problems]
    return engine.spark.createDataFrame(
        [*counts, *problems], "name string, said bigint, counted bigint, problem string"
    )


PROCEDURES: Final = {
    procedure.name: procedure
    for procedure in (
        Procedure(name="remove_orphan_files", parameters=ORPHAN_PARAMETERS, run=run_remove_orphan_files),
        Procedure(name="verify", parameters=VERIFY_PARAMETERS, run=run_verify),
    )
}
