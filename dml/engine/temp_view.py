"""CREATE TEMPORARY VIEW over our tables. Driver.

Spark's view would keep the text and look for the tables itself; here the view is a DataFrame, so it goes on reading the
snapshots that were current when it was created. A view that names none of our tables is Spark's own.
"""

import re
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dml.engine.engine import Engine
from dml.engine.query import run_query
from dml.errors import AlreadyExistsError
from dml.spark.types import quoted
from dml.sqlparse import parse
from dml.sqlparse.statements import Query

__all__ = ["TemporaryView", "create_view", "temporary_view"]

FORM: Final = re.compile(
    r"\s*CREATE\s+(?P<replace>OR\s+REPLACE\s+)?TEMP(?:ORARY)?\s+VIEW\s+(?P<name>\w+|`(?:[^`]|``)+`)\s+AS\s+(?P<query>.+)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryView:
    """A statement that creates one.

    Attributes:
        name: Its name, without quotes.
        replace: Whether one of the name may be there.
        query: Its query; places are offsets in `text`.
        text: The text of the query.
    """

    name: str
    replace: bool
    query: Query
    text: str


def temporary_view(text: str) -> TemporaryView | None:
    """The statement, if the text is of this form."""
    found = FORM.fullmatch(text)
    if found is None:
        return None
    query = parse(found["query"])
    if not isinstance(query, Query):
        return None
    name = found["name"]
    return TemporaryView(
        name=name[1:-1].replace("``", "`") if name.startswith("`") else name,
        replace=found["replace"] is not None,
        query=query,
        text=found["query"],
    )


def create_view(engine: Engine, view: TemporaryView) -> DataFrame:
    """Create the view.

    Raises:
        AlreadyExistsError: there is one of the name, and the statement does not say OR REPLACE.
    """
    catalog = engine.spark.catalog
    name = quoted(view.name)
    if not view.replace and catalog.tableExists(name) and catalog.getTable(name).isTemporary:
        raise AlreadyExistsError(
            f"The temporary view '{view.name}' is there already", hint="Use CREATE OR REPLACE TEMPORARY VIEW"
        )
    run_query(engine, view.query, view.text).createOrReplaceTempView(view.name)
    return engine.spark.createDataFrame([], StructType([]))
