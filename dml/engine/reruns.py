"""Rerun a statement whose commit had a conflict. Driver.

Input: a statement, and the conflict of its commit, which changed nothing. Output: its result on the newest snapshot, or
the last conflict. A compaction changes no row, so a statement that conflicts with one runs again automatically. After
other conflicts, it runs again only if the table, the session or the caller allows it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame

from dml.ddl import DdlResult
from dml.engine.engine import Engine, StatementSettings
from dml.errors import CommitConflictError
from dml.options import integer, num_reruns, num_reruns_after_compaction
from dml.plan.condition_checks import NON_DETERMINISTIC
from dml.result import Result
from dml.sqlparse import Statement
from dml.sqlparse.statements import DeleteStatement, InsertStatement, MergeStatement, Truncate, UpdateStatement
from dml.sqlparse.tokens import TokenKind, tokenize

__all__ = ["run_with_reruns"]

LOG = logging.getLogger(__name__)

SESSION_RERUNS: Final = "num-reruns"
"""The name of the session setting, without the prefix `spark.sql.iceberg.`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunLimits:
    """How often a statement may run again.

    Attributes:
        conflicts: After any conflict.
        compactions: After conflicts with compactions alone.
    """

    conflicts: int
    compactions: int

    @staticmethod
    def of(engine: Engine, statement: Statement, text: str, asked: int | None) -> "RerunLimits":
        """Return the limits of a statement: the caller's override the session's, which override the table's."""
        if asked is not None:
            return RerunLimits(conflicts=asked, compactions=asked)
        session = StatementSettings.of(engine).iceberg
        if SESSION_RERUNS in session:
            count = integer(session, SESSION_RERUNS, 0)
            return RerunLimits(conflicts=count, compactions=count)
        properties = properties_of(engine, statement)
        compactions = 0 if may_differ(text) else num_reruns_after_compaction(properties)
        return RerunLimits(conflicts=num_reruns(properties), compactions=compactions)

    def allow(self, error: CommitConflictError, reruns: int) -> bool:
        """Return whether the statement may run again."""
        if reruns < self.conflicts:
            return True
        found = error.context.get("conflicts", ())
        return reruns < self.compactions and bool(found) and all(one.is_compaction for one in found)


def run_with_reruns(
    engine: Engine,
    statement: Statement,
    text: str,
    run: Callable[[], DataFrame | DdlResult | Result],
    reruns: int | None = None,
) -> DataFrame | DdlResult | Result:
    """Run a statement, and rerun it after conflicts up to its limits.

    Args:
        engine: The session and its catalogs.
        statement: The statement.
        text: Its text.
        run: Runs it on the newest snapshot.
        reruns: The maximum number of reruns; None for the limits of the session or the table.

    Raises:
        CommitConflictError: The last run had a conflict, too.
        DmlError: A run failed for another reason.
    """
    reasons: list[str] = []
    while True:
        try:
            outcome = run()
        except CommitConflictError as error:
            if not RerunLimits.of(engine, statement, text, reruns).allow(error, len(reasons)):
                if reasons:
                    error.context["reruns"] = len(reasons)
                raise
            reasons.append(error.message)
            LOG.info("The statement runs again: %s", error.message)
            continue
        return replace(outcome, reruns=tuple(reasons)) if reasons and isinstance(outcome, Result) else outcome


def properties_of(engine: Engine, statement: Statement) -> Mapping[str, str]:
    """Return the properties of the table that a statement changes."""
    match statement:
        case (
            DeleteStatement(target=table)
            | UpdateStatement(target=table)
            | MergeStatement(target=table)
            | InsertStatement(target=table)
            | Truncate(target=table)
        ):
            resolved = engine.registry.resolve(table.parts)
            return {} if resolved is None else resolved.table.properties
        case _:
            return {}


def may_differ(text: str) -> bool:
    """Return whether a statement calls a function whose results differ from run to run, or samples rows."""
    names = {token.key.lower() for token in tokenize(text)[0] if token.kind is TokenKind.WORD}
    return not names.isdisjoint(NON_DETERMINISTIC | {"tablesample"})
