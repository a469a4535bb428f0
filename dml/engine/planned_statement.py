"""A row-level statement between planning and commit. Driver."""

from dataclasses import dataclass

from dml.engine.merge_source import MergeSourceFrame
from dml.engine.settings import StatementSettings
from dml.engine.target import Target
from dml.options import RowLevelOperationMode
from dml.plan.row_delta_plan import RowDeltaPlan
from dml.views import StatementViews

__all__ = ["PlannedStatement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStatement:
    """A row-level statement, planned, with what it takes to run it.

    Attributes:
        plan: The plan.
        target: The table.
        mode: Copy-on-write or merge-on-read.
        settings: The session's settings.
        views: The statement's views.
        target_view: Placeholder of the target's scan in the plan's query.
        source: The source of a MERGE.
    """

    plan: RowDeltaPlan
    target: Target
    mode: RowLevelOperationMode
    settings: StatementSettings
    views: StatementViews
    target_view: str
    source: MergeSourceFrame | None = None

    @property
    def reads_itself(self) -> bool:
        """Whether the target stands in the statement a second time: in a subquery, or as the source."""
        name = (self.target.resolved.catalog_name, *self.target.resolved.identifier)
        return sum(named == name for named in self.views.full_names.values()) > 1
