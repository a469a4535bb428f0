"""Pushdown of columns, conditions and aggregates into scans. Driver, classic Spark only.

Input: calls of the optimizer, in this order: predicates, aggregates, columns. Output: a `SparkScan`; or, if the
manifests can answer counts, minima and maxima, a single row, which needs no job.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import ClassVar, Final

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.types import NestedField
from pyspark.sql import SparkSession

from dml import limits
from dml.model.columns import METADATA_COLUMNS
from dml.plan.condition import Condition
from dml.rows.program import TRUE, all_of
from dml.scan.planner import ScanPlan
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import works
from dml.spark.bridge.names import CATALYST_FILTERS
from dml.spark.bridge.proxies import Proxy
from dml.spark.bridge.values import array, scala_list
from dml.spark_scan.aggregated_scan import AggregatedScan
from dml.spark_scan.conditions import pushable_trees, pushed_down
from dml.spark_scan.expressions import condition_trees, has_marked_calls
from dml.spark_scan.known_values import KnownRow
from dml.spark_scan.read import Aggregation, SparkRead
from dml.spark_scan.readers import GroupedRead, KnownValues, Reader, ReaderCapabilities, choose_reader, reader_text
from dml.spark_scan.running_query import record_scan
from dml.spark_scan.scan import FILTER_PREDICATE, SparkScan

__all__ = ["SparkScanBuilder", "cheapest", "scan_builder"]

CHEAP: Final = ("boolean", "int", "date", "long", "float", "double", "timestamp", "timestamptz")
"""Column types, fastest to read first."""

MakeScan = Callable[[SparkSession, SparkRead, ScanPlan | None], SparkScan]


class SparkScanBuilder(Proxy):
    """Collects what Spark pushes down, and builds the scan.

    Args:
        spark: The session.
        read: The read without pushdown.
        make_scan: Builds the scan of rows.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.ScanBuilder",
        "read.SupportsPushDownV2Filters",
        "read.SupportsPushDownRequiredColumns",
        "read.SupportsPushDownAggregates",
    )

    def __init__(
        self,
        spark: SparkSession,
        read: SparkRead,
        make_scan: MakeScan = SparkScan,
    ) -> None:
        self.spark = spark
        self.read = read
        self.make_scan = make_scan
        self.is_whole = isinstance(read.row_filter, AlwaysTrue) and read.row_predicate == TRUE
        self.plan: ScanPlan | None = None
        self.pushed_reader: Reader | None = None
        self._last_choice: tuple[Aggregation, Reader] | None = None

    @cached_property
    def capabilities(self) -> ReaderCapabilities:
        """What the session allows and can do."""
        return ReaderCapabilities.of(self.spark)

    def pushPredicates(self, predicates: Sequence[JavaObject]) -> Sequence[JavaObject]:
        """Prune by conditions.

        Returns:
            The predicates that Spark must evaluate for each row: none if the remaining files hold only matches, else
            all.
        """
        if not len(predicates):
            return predicates
        self._narrow(pushed_down(predicates, self.read.schema, self.read.rules))
        return array(FILTER_PREDICATE, ()) if self.is_whole else predicates

    def _narrow(self, found: Condition) -> None:
        """Narrow the read to rows that may satisfy the conditions, and plan its files."""
        self.read = replace(
            self.read,
            row_filter=combine_filters(self.read.row_filter, found.pruning),
            row_predicate=all_of((self.read.row_predicate, found.rows_beyond_pruning)),
        )
        self.plan = self.read.plan(find_whole_files=found.pruning_is_exact)
        self.is_whole = found.pruning_is_exact and self.plan.covers_whole_files

    def pushedPredicates(self) -> JavaObject:
        """Return none: the filter is in the scan's description."""
        return array(FILTER_PREDICATE, ())

    def supportsIterativePushdown(self) -> bool:
        """Return False: one round of pushdown is enough."""
        return False

    def supportCompletePushDown(self, aggregation: JavaObject) -> bool:
        """Return True if the manifests answer the aggregation completely."""
        return isinstance(self._reader_of(aggregation), KnownValues)

    def pushAggregation(self, aggregation: JavaObject) -> bool:
        """Answer from the manifests, or aggregate partially in tasks. Both need all rows of the remaining files."""
        self.pushed_reader = self._reader_of(aggregation)
        return isinstance(self.pushed_reader, KnownValues | GroupedRead)

    def _reader_of(self, asked: JavaObject) -> Reader | None:
        """Choose the reader of an aggregation; None if Spark must aggregate rows."""
        aggregation = Aggregation.of(asked, self.read.schema) if self.is_whole else None
        if aggregation is None:
            return None
        if self._last_choice is None or self._last_choice[0] != aggregation:
            self.plan = self.plan or self.read.plan()
            reader = choose_reader(replace(self.read, aggregation=aggregation), self.plan, self.capabilities)
            self._last_choice = aggregation, reader
        return self._last_choice[1]

    def pruneColumns(self, wanted: JavaObject) -> None:
        """Drop the columns that Spark does not need. If it needs none, keep one so that rows are still counted."""
        names = set(map(str, wanted.fieldNames()))
        fields = self.read.schema.fields
        own = {field.name for field in fields}
        columns = tuple(field.field_id for field in fields if field.name in names)
        metadata: tuple[str, ...] = tuple(name for name in METADATA_COLUMNS if name in names - own)
        if not columns and not metadata:
            columns, metadata = self._cheapest()
        self.read = replace(self.read, columns=columns, metadata_columns=metadata)

    def _cheapest(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the cheapest column among those that Spark may project."""
        read = self.read
        if not read.columns:
            return (), read.metadata_columns[:1]
        return (cheapest([read.schema.find_field(known) for known in read.columns]).field_id,), ()

    def build(self) -> Proxy:
        """Return the scan."""
        match self.pushed_reader:
            case KnownValues() as known:
                return record_scan(KnownRow(self.read, known.calls, known.values, reader_text(known)))
            case GroupedRead() as grouped:
                return record_scan(AggregatedScan(self.spark, self.read, self.plan, grouped))
        return record_scan(self.make_scan(self.spark, self.read, self.plan))


def combine_filters(first: BooleanExpression, second: BooleanExpression) -> BooleanExpression:
    """Return the conjunction of two filters without duplicates; conjuncts of the first above the limit are dropped."""
    kept = {repr(part) for part in conjuncts(second)}
    rest = [part for part in conjuncts(first) if repr(part) not in kept]
    return reduce(And, rest[: max(0, limits.MAX_CONDITION_DEPTH - len(kept))], second)


def conjuncts(expression: BooleanExpression) -> Iterator[BooleanExpression]:
    """Yield the conjuncts of a filter."""
    stack = [expression]
    while stack:
        part = stack.pop()
        if isinstance(part, And):
            stack += [part.right, part.left]
        else:
            yield part


def cheapest(fields: Sequence[NestedField]) -> NestedField:
    """Return the column to read if only the number of rows matters."""
    costs = {kind: cost for cost, kind in enumerate(CHEAP)}
    return min(
        fields, key=lambda field: costs.get(str(field.field_type), len(CHEAP) + (not field.field_type.is_primitive))
    )


class ConditionScanBuilder(SparkScanBuilder):
    """A builder that receives Catalyst expressions, to recognize calls of Iceberg's functions in conditions."""

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.ScanBuilder",
        CATALYST_FILTERS.name,
        "read.SupportsPushDownRequiredColumns",
        "read.SupportsPushDownAggregates",
    )

    def pushFilters(self, filters: JavaObject) -> JavaObject:
        """Prune by conditions, a `Seq[Expression]`, and return those that Spark must evaluate."""
        if not int(filters.size()):
            return filters
        found = pushable_trees(condition_trees(filters), self.read.schema, self.read.rules)
        is_short = int(filters.size()) <= limits.MAX_CONDITION_DEPTH
        self._narrow(replace(found, pruning_is_exact=found.pruning_is_exact and is_short))
        return scala_list(()) if self.is_whole else filters

    def pushedFilters(self) -> JavaObject:
        """Return none: the filter is in the scan's description."""
        return array(FILTER_PREDICATE, ())


def scan_builder(spark: SparkSession, read: SparkRead, make_scan: MakeScan = SparkScan) -> SparkScanBuilder:
    """Return the scan builder for the kind of conditions that may occur. The arguments are those of its constructor."""
    kind = ConditionScanBuilder if has_marked_calls() and takes_catalyst_filters() else SparkScanBuilder
    return kind(spark, read, make_scan)


def takes_catalyst_filters() -> bool:
    """Return whether this version of Spark passes Catalyst expressions to scan builders."""
    return works(CATALYST_FILTERS.name, CATALYST_FILTERS.find, CATALYST_FILTERS.fallback)
