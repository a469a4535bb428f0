"""What Spark tells of a query before it is planned: columns, conditions, counts. Driver, classic Spark only.

Input: calls of the optimizer, in this order: predicates, aggregates, columns. Output: a `SparkScan`; of counts,
least and greatest values, where the manifests know them, a row that no job has to make.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.types import NestedField

from dml.connector.aggregated_scan import AggregatedScan, partial_aggregation
from dml.connector.conditions import pushable_trees, pushed_down
from dml.connector.expressions import condition_trees, has_marked
from dml.connector.java import array, java_class, simple_name
from dml.connector.known_values import Function, KnownAggregate, KnownRow, aggregates_of, is_wanted, known_row
from dml.connector.plans import counts_no_values
from dml.connector.proxies import Proxy
from dml.connector.scan import FILTER_PREDICATE, ScanRead, SparkScan
from dml.connector.workers import has_python_readers, runs_our_tasks
from dml.engine.engine import Engine, StatementSettings
from dml.model.columns import METADATA_COLUMNS
from dml.plan.condition import Condition
from dml.plan.predicates import MAX_DEPTH
from dml.scan.planner import ScanPlan
from dml.spark.internals import works
from dml.spark.jvm import scala_list

__all__ = ["SparkScanBuilder", "cheapest", "scan_builder"]

CATALYST_FILTERS: Final = "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters"
CHEAP: Final = ("boolean", "int", "date", "long", "float", "double", "timestamp", "timestamptz")
"""Types of columns, from those that are read fastest."""


class SparkScanBuilder(Proxy):
    """Learns what Spark needs of a table.

    Args:
        engine: The session and its catalogs.
        read: What is read if Spark needs all of it.
        settings: Those of the statement; None for the session's as they are when Spark plans.
        options: Those of the reader.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.ScanBuilder",
        "read.SupportsPushDownV2Filters",
        "read.SupportsPushDownRequiredColumns",
        "read.SupportsPushDownAggregates",
    )

    def __init__(
        self,
        engine: Engine,
        read: ScanRead,
        settings: StatementSettings | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.engine = engine
        self.read = read
        self.settings = settings
        self.options = options
        self.is_whole = isinstance(read.row_filter, AlwaysTrue)
        self.known: KnownRow | None = None
        self.groups: AggregatedScan | None = None
        self.plan: ScanPlan | None = None
        self._counts_no_values: bool | None = None
        self._answered: tuple[tuple[KnownAggregate, ...], KnownRow | None] | None = None

    def pushPredicates(self, predicates: Sequence[JavaObject]) -> Sequence[JavaObject]:
        """Take conditions into account.

        Returns:
            Those that Spark has to ask of every row: all, but where the files that are left hold no other rows.
        """
        if not len(predicates):
            return predicates
        settings = self.settings or StatementSettings.of(self.engine.spark)
        schema = self.read.state.schema
        found = pushed_down(predicates, schema, time_zone=settings.time_zone, catalogs=self.engine.registry.catalogs)
        self._ask(found)
        return array(FILTER_PREDICATE, ()) if self.is_whole else predicates

    def _ask(self, found: Condition) -> None:
        """Read only files in which a row may be for which conditions are true."""
        self.read = replace(self.read, row_filter=both(self.read.row_filter, found.pruning))
        self.plan = self.read.plan(find_whole_files=found.pruning_is_exact)
        self.is_whole = found.pruning_is_exact and self.plan.covers_whole_files

    def pushedPredicates(self) -> JavaObject:
        """None by Spark's names: the scan's description has the filter."""
        return array(FILTER_PREDICATE, ())

    def supportsIterativePushdown(self) -> bool:
        """Once is enough."""
        return False

    def supportCompletePushDown(self, aggregation: JavaObject) -> bool:
        """Whether an aggregation needs nothing more from Spark: where the manifests know the answer."""
        return self._known_row(aggregation) is not None

    def pushAggregation(self, aggregation: JavaObject) -> bool:
        """Answer by the manifests, or group by group in the tasks, where every file counts whole."""
        self.known = self._known_row(aggregation)
        if self.known is None and self._may_aggregate(aggregation):
            self.groups = self._groups(aggregation)
        return self.known is not None or self.groups is not None

    def _groups(self, aggregation: JavaObject) -> AggregatedScan | None:
        found = partial_aggregation(aggregation, self.read) if has_python_readers() else None
        if found is None:
            return None
        read, partial = found
        groups = AggregatedScan(SparkScan(self.engine, read, self.plan, self.settings, self.options), partial)
        if groups.is_worthwhile and runs_our_tasks(self.engine.spark):
            return groups
        self.plan = groups.scan.plan
        return None

    def _may_aggregate(self, aggregation: JavaObject) -> bool:
        is_plain = self.is_whole and not self.read.metadata_columns and is_wanted(self.engine.spark)
        return is_plain and self._counts_what_it_says(aggregation)

    def _counts_what_it_says(self, aggregation: JavaObject) -> bool:
        """False where a count of rows may be one of different values of a constant."""
        if all(simple_name(asked) != Function.ROWS for asked in aggregation.aggregateExpressions()):
            return True
        if self._counts_no_values is None:
            self._counts_no_values = counts_no_values(self.engine.spark)
        return self._counts_no_values

    def _known_row(self, aggregation: JavaObject) -> KnownRow | None:
        asked = aggregates_of(aggregation, self.read.state.schema) if self._may_aggregate(aggregation) else None
        if asked is None:
            return None
        if self._answered is None or self._answered[0] != asked:
            self.plan = self.plan or self.read.plan()
            self._answered = (asked, known_row(self.read, self.plan, asked))
        return self._answered[1]

    def pruneColumns(self, wanted: JavaObject) -> None:
        """Leave out the columns that Spark does not need; of none, one stays, or no row would be counted."""
        names = set(map(str, wanted.fieldNames()))
        fields = self.read.state.schema.fields
        own = {field.name for field in fields}
        columns = tuple(field.field_id for field in fields if field.name in names)
        metadata: tuple[str, ...] = tuple(name for name in METADATA_COLUMNS if name in names - own)
        if not columns and not metadata:
            columns, metadata = self._cheapest()
        self.read = replace(self.read, columns=columns, metadata_columns=metadata)

    def _cheapest(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """One column of those that Spark knows of, which are all or those that a statement names."""
        read = self.read
        if not read.columns:
            return (), read.metadata_columns[:1]
        return (cheapest([read.state.schema.find_field(known) for known in read.columns]).field_id,), ()

    def build(self) -> Proxy:
        """The scan."""
        return self.known or self.groups or SparkScan(self.engine, self.read, self.plan, self.settings, self.options)


def both(first: BooleanExpression, second: BooleanExpression) -> BooleanExpression:
    """Two filters that must both be true: what each asks is asked once, of long ones of the first not all."""
    asked = {repr(part) for part in conjuncts(second)}
    rest = [part for part in conjuncts(first) if repr(part) not in asked]
    return reduce(And, rest[: max(0, MAX_DEPTH - len(asked))], second)


def conjuncts(expression: BooleanExpression) -> Iterator[BooleanExpression]:
    """The parts of a filter that must all be true."""
    stack = [expression]
    while stack:
        part = stack.pop()
        if isinstance(part, And):
            stack += [part.right, part.left]
        else:
            yield part


def cheapest(fields: Sequence[NestedField]) -> NestedField:
    """The column that is read where only the number of rows matters."""
    costs = {kind: cost for cost, kind in enumerate(CHEAP)}
    return min(
        fields, key=lambda field: costs.get(str(field.field_type), len(CHEAP) + (not field.field_type.is_primitive))
    )


class ConditionScanBuilder(SparkScanBuilder):
    """The same, where calls of Iceberg's functions are looked for in conditions: it gets Spark's own expressions."""

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.ScanBuilder",
        CATALYST_FILTERS,
        "read.SupportsPushDownRequiredColumns",
        "read.SupportsPushDownAggregates",
    )

    def pushFilters(self, filters: JavaObject) -> JavaObject:
        """Take conditions into account, a `Seq[Expression]`; Spark asks those of it that are left, as ever."""
        if not int(filters.size()):
            return filters
        settings = self.settings or StatementSettings.of(self.engine.spark)
        found = pushable_trees(
            condition_trees(filters),
            self.read.state.schema,
            time_zone=settings.time_zone,
            catalogs=self.engine.registry.catalogs,
        )
        self._ask(replace(found, pruning_is_exact=found.pruning_is_exact and int(filters.size()) <= MAX_DEPTH))
        return scala_list(()) if self.is_whole else filters

    def pushedFilters(self) -> JavaObject:
        """None by Spark's names: the scan's description has the filter."""
        return array(FILTER_PREDICATE, ())


def scan_builder(
    engine: Engine,
    read: ScanRead,
    settings: StatementSettings | None = None,
    options: Mapping[str, str] | None = None,
) -> SparkScanBuilder:
    """A builder, as fits the conditions that there can be; the arguments are its own."""
    kind = ConditionScanBuilder if has_marked() and takes_catalyst_filters() else SparkScanBuilder
    return kind(engine, read, settings, options)


def takes_catalyst_filters() -> bool:
    """Return whether this Spark passes its own expressions to scan builders."""
    return works(
        CATALYST_FILTERS,
        lambda: java_class("java.lang.Class").forName(CATALYST_FILTERS),
        "conditions on Iceberg's functions prune no files in DataFrames",
    )
