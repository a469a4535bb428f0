"""Prepare the source of a MERGE: its rows, read once, and its join keys for the target's scan. Driver.

Input: the USING clause. Output: its columns, and a DataFrame behind a placeholder unless the driver reads it; if the ON
condition has equalities, the keys of the source, so that only target rows that can match cross into the JVM, and files
without such rows are pruned.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.types import BooleanType, DateType, IntegerType, LongType, NestedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from dml import limits
from dml.engine.delta_query import lacks_fields
from dml.engine.join_keys import PruningKey, pruning_key
from dml.engine.scanned_rows import DriverRows, PlainRows
from dml.engine.target import refuse_internal_names
from dml.model.columns import INTERNAL_PREFIX
from dml.model.scan_task import KeyFilter
from dml.plan.merge import when_clauses
from dml.plan.predicates import equi_keys
from dml.plan.row_delta_plan import JoinKey, MergeSource, PlanContext, ThroughSpark
from dml.spark.jobs import cancel_on_interrupt
from dml.spark.runtime import Runtime
from dml.spark.task_frames import estimated_bytes, literal_row_limit
from dml.spark.types import iceberg_type
from dml.spark.versions import arrow_table
from dml.sqlparse.quoting import quoted, unquoted
from dml.sqlparse.statements import (
    DeleteAction,
    Fragment,
    MergeStatement,
)
from dml.views import StatementViews

__all__ = [
    "MergeSourceFrame",
    "SourceKeys",
    "describe_source",
    "prepare_source",
    "source_fragment",
    "source_fragments",
    "source_frame",
    "source_keys",
]


INTEGERS: Final = (IntegerType, LongType, DateType)


PLAIN_NAME: Final = re.compile(r"\w+|`(?:[^`]|``)+`")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKeys:
    """The join keys of a source.

    Attributes:
        key_filter: The keys, for the reader; None if they only prune files, or are too many.
        row_filter: A filter for the target's rows that may match a key, for pruning files.
        rows: The number of source rows that have a key.
    """

    key_filter: KeyFilter | None
    row_filter: BooleanExpression
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSourceFrame:
    """The source of one MERGE, and the owner of its cached rows, which `release` frees.

    Attributes:
        described: Its placeholder, alias and columns.
        schema: Spark's types of its columns.
        rows: Its rows as a DataFrame; None if the driver reads the source.
        scan: The same rows as RowDelta's own scan reads them or as the statement spells them out, or the reason why
            only Spark can.
        pushable: Target columns and names of source columns that the ON condition equates, where keys may be pushed.
        pruning_keys: The keys by which the equalities prune files, those of `pushable` first.
        may_be_kept: Whether to cache the rows if they may be read twice: nothing else caches them.
        prunes: Whether target rows without a match stay unchanged.
        known_rows: The maximum number of rows, if Spark makes them from its plan alone: evaluating them again returns
            the same rows, and costs less than caching them.
        resources: Resources to release with the source.
    """

    described: MergeSource
    schema: spark.StructType
    rows: DataFrame | None
    scan: PlainRows | DriverRows | ThroughSpark
    pushable: tuple[tuple[NestedField, str], ...] = ()
    pruning_keys: tuple[PruningKey, ...] = ()
    may_be_kept: bool = False
    prunes: bool = True
    known_rows: int | None = None
    resources: ExitStack = field(default_factory=ExitStack, repr=False, compare=False)

    @property
    def frame(self) -> DataFrame:
        """Its rows as a DataFrame, which a source that the driver reads does not have."""
        assert self.rows is not None
        return self.rows

    @property
    def key_expressions(self) -> tuple[str, ...]:
        """The SQL of `pruning_keys`, in the types of the target's columns."""
        return tuple(key.sql for key in self.pruning_keys)

    @property
    def null_safe(self) -> tuple[int, ...]:
        """Indices of the keys of `pushable` in which NULL matches NULL."""
        return tuple(place for place, key in enumerate(self.pruning_keys[: len(self.pushable)]) if key.null_safe)

    @property
    def is_repeatable(self) -> bool:
        """Whether the source returns the same rows when it is read again after `keep`."""
        return self.rows is None or self.may_be_kept or self.known_rows is not None or self.frame.is_cached

    def keep(self) -> None:
        """Mark the rows for caching, so that Spark caches them at the first evaluation, until `release`."""
        if self.may_be_kept and not self.frame.is_cached:
            self.frame.persist()
            self.resources.callback(uncache, self.frame)

    def keys(self) -> SourceKeys | None:
        """Evaluate the source once, cache its rows, and collect its keys on the driver; None if they cannot prune.

        If there are more keys than `most_keys`, the driver gets only the least and the greatest.
        """
        if not self.pruning_keys or not self.prunes:
            return None
        self.keep()
        columns = [f"{key.sql} AS {key_name(place)}" for place, key in enumerate(self.pruning_keys)]
        needed = [f"{key_name(place)} IS NOT NULL" for place, key in enumerate(self.pruning_keys) if not key.null_safe]
        selected = self.frame.selectExpr(*columns).where(" AND ".join(needed) or "TRUE")
        most = most_keys([column for column, _ in self.pushable], self.frame.sparkSession)
        with cancel_on_interrupt(self.frame.sparkSession):
            keys = arrow_table(selected.limit(most + 1))
            if keys.num_rows > most:
                return self.ends_of(selected)
        return source_keys(self, keys)

    def ends_of(self, keys: DataFrame) -> SourceKeys:
        """Return a filter from the least and the greatest of the keys, if they are too many for the driver."""
        aggregates = [sql for place, key in enumerate(self.pruning_keys) for sql in key.ends(key_name(place), place)]
        ends = arrow_table(keys.selectExpr("count(*) AS rows", *aggregates))
        filters = (key.row_filter(key.between(ends, place)) for place, key in enumerate(self.pruning_keys))
        return SourceKeys(key_filter=None, row_filter=reduce(And, filters), rows=int(ends.column("rows")[0].as_py()))

    def release(self) -> None:
        """Free the cached rows."""
        self.resources.close()


def uncache(frame: DataFrame) -> None:
    """Remove the rows of a DataFrame from Spark's cache."""
    with suppress(Exception):  # the statement has been committed by now, or raises its own error
        frame.unpersist()


def prepare_source(
    statement: MergeStatement,
    context: PlanContext,
    views: StatementViews,
    scan: PlainRows | ThroughSpark,
    target_bytes: int,
) -> MergeSourceFrame:
    """Prepare the source of a statement.

    A source whose keys are pushed into the scan may be read twice, so its rows are cached: it is evaluated once, even
    if it is not deterministic. Keys that only prune files are left out if the source is too large for that to pay.

    Args:
        statement: The statement.
        context: Its context.
        views: Its views.
        scan: As in `MergeSourceFrame`.
        target_bytes: The size of the target's data files, 0 if unknown.
    """
    frame = source_frame(statement, views)
    source = describe_source(statement, context, views, frame.schema, scan)
    pairs, keys = source.pushable, source.pruning_keys
    if keys and not pairs:
        size = estimated_bytes(frame)
        if size is not None and size > max(
            limits.MAX_PRUNING_SOURCE_BYTES, target_bytes // limits.PRUNING_SOURCE_DIVISOR
        ):
            keys = ()
    known_rows = literal_row_limit(frame) if keys and isinstance(scan, ThroughSpark) else None
    return replace(
        source,
        rows=frame,
        pruning_keys=keys,
        may_be_kept=bool(keys) and known_rows is None and not frame.is_cached and not is_cached_by_user(frame),
        known_rows=known_rows,
    )


def describe_source(
    statement: MergeStatement,
    context: PlanContext,
    views: StatementViews,
    schema: spark.StructType,
    scan: PlainRows | DriverRows | ThroughSpark,
) -> MergeSourceFrame:
    """Describe the source of a statement, without rows.

    Args:
        statement: The statement.
        context: Its context.
        views: Its views.
        schema: Spark's types of the source's columns.
        scan: As in `MergeSourceFrame`.
    """
    alias = source_alias(statement, views)
    refuse_internal_names(schema.names, "the source")
    by_source = bool(statement.not_matched_by_source)
    pairs, keys = join_keys(statement, context, alias, schema)
    if by_source:
        keys = keys[: len(pairs)]
    return MergeSourceFrame(
        described=MergeSource(
            view=views.free_placeholder(),
            alias=alias,
            columns=tuple(schema.names),
            qualifiers=source_qualifiers(statement, views),
            lacking=lacking_columns(statement, context, schema),
            fields=source_fields(schema, context),
            keys=tuple(
                JoinKey(
                    field_id=column.field_id,
                    source_column=context.names.folded(unquoted(name)),
                    null_safe=key.null_safe,
                )
                for (column, name), key in zip(pairs, keys, strict=False)
            ),
        ),
        schema=schema,
        rows=None,
        scan=scan,
        pushable=pairs,
        pruning_keys=keys,
        prunes=not by_source,
    )


def source_fields(schema: spark.StructType, context: PlanContext) -> tuple[NestedField, ...]:
    """Return the columns of a source that have a primitive type of Iceberg, as `MergeSource.fields`."""
    columns = schema.fields
    names = Counter(context.names.folded(column.name) for column in columns)
    kinds = ((place, column.name, iceberg_type(column.dataType)) for place, column in enumerate(columns, start=1))
    return tuple(
        NestedField(place, name, kind, required=False)
        for place, name, kind in kinds
        if kind is not None and names[context.names.folded(name)] == 1  # Spark reports the others as ambiguous
    )


def lacking_columns(statement: MergeStatement, context: PlanContext, schema: spark.StructType) -> frozenset[str]:
    """Return the source columns whose structs lack fields of the target's, which schema evolution allows."""
    if not statement.with_schema_evolution:
        return frozenset()
    columns = ((column, context.names.column(column.name)) for column in schema.fields)
    return frozenset(
        column.name
        for column, target in columns
        if target is not None and lacks_fields(column.dataType, target.field_type, context.names.folded)
    )


def is_cached_by_user(frame: DataFrame) -> bool:
    """Return whether the user has cached the same rows: then RowDelta must not release them."""
    level = frame.storageLevel
    return bool(level.useMemory or level.useDisk)


def source_frame(statement: MergeStatement, views: StatementViews) -> DataFrame:
    """Return the rows of the source."""
    columns = ", ".join(quoted(name) for name in statement.source_column_aliases)
    head = "" if statement.ctes is None else views.text(statement.ctes) + " "
    renamed = f" AS {quoted(source_alias(statement, views))}({columns})" if columns else ""
    return views.sql(f"{head}SELECT * FROM {views.text(statement.source)}{renamed}")


def source_fragments(statement: MergeStatement, sql: str) -> tuple[Fragment | None, Fragment]:
    """Return the fragments that the source's rows are computed from: the CTEs (or None) and the source."""
    return statement.ctes, source_fragment(statement, sql)


def source_fragment(statement: MergeStatement, sql: str) -> Fragment:
    """Return the source; if it is a bare table, with the names of its columns that the statement may read."""
    source = statement.source
    if not (source.tables and source.tables[0].span == source.span):
        return source
    star = any(
        not isinstance(when.action, DeleteAction) and when.action.assignments is None
        for when in when_clauses(statement)
    )
    named = frozenset(unquoted(name).lower() for name in PLAIN_NAME.findall(sql))
    return replace(source, names=source.names | named, has_star=star or source.has_star)


def source_alias(statement: MergeStatement, views: StatementViews) -> str:
    """Return the name by which the statement refers to its source."""
    if statement.source_alias is not None:
        return statement.source_alias
    if not statement.source.tables and PLAIN_NAME.fullmatch(statement.source.text):  # a CTE
        return unquoted(statement.source.text)
    if statement.source.tables and statement.source.tables[0].span == statement.source.span:
        reference = statement.source.tables[0]
        return views.alias(reference, reference.parts[-1])
    return "__source_rows"


def source_qualifiers(statement: MergeStatement, views: StatementViews) -> tuple[tuple[str, ...], ...]:
    """Return the full name of a source that is a table without an alias, and the name's suffixes."""
    tables = statement.source.tables
    if statement.source_alias is not None or not tables or tables[0].span != statement.source.span:
        return ()
    full = views.full_names.get(tables[0].span, tables[0].parts)
    return tuple(full[start:] for start in range(len(full)))


def join_keys(
    statement: MergeStatement, context: PlanContext, alias: str, schema: spark.StructType
) -> tuple[tuple[tuple[NestedField, str], ...], tuple[PruningKey, ...]]:
    """Return the equalities of the ON condition that tasks can decide row by row, and the keys of all for pruning."""
    described = MergeSource(view="", alias=alias, columns=tuple(schema.names))
    folded = context.names.folded
    types = {folded(field.name): field.dataType for field in schema.fields}
    pushable: list[tuple[NestedField, str]] = []
    of_pushable: list[PruningKey] = []
    others: list[PruningKey] = []
    for equality in equi_keys(statement.condition.ast, context.names, described):
        name, source = quoted(equality.source_column), types[folded(equality.source_column)]
        key = pruning_key(name, source, equality.target, null_safe=equality.null_safe)
        if key is None:
            continue
        if equality.field is not None and key.is_exact:
            pushable.append((equality.field, name))
            of_pushable.append(key)
        else:
            others.append(key)
    if all(isinstance(field.field_type, BooleanType) for field, _ in pushable):
        # Spark estimates one target row per key, and would broadcast all rows with either of two values.
        return (), (*of_pushable, *others)
    return tuple(pushable), (*of_pushable, *others)


def source_keys(source: MergeSourceFrame, keys: pa.Table) -> SourceKeys:
    """Return keys in the form that the reader and the planner take.

    Args:
        source: The source.
        keys: A column for each of `key_expressions`, without rows that cannot match.
    """
    if not source.prunes:
        return SourceKeys(key_filter=None, row_filter=AlwaysTrue(), rows=keys.num_rows)
    filters = (key.row_filter(key.ranges(keys.column(place))) for place, key in enumerate(source.pruning_keys))
    pushable = [column.field_id for column, _ in source.pushable]
    return SourceKeys(
        key_filter=key_filter(pushable, keys.select(range(len(pushable))), source.null_safe) if pushable else None,
        row_filter=reduce(And, filters),
        rows=keys.num_rows,
    )


def key_filter(column_ids: Sequence[int], keys: pa.Table, null_safe: tuple[int, ...]) -> KeyFilter:
    """Return keys in the form that the reader takes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as writer:
        writer.write_table(keys)
    return KeyFilter(column_ids=tuple(column_ids), values=sink.getvalue().to_pybytes(), null_safe=null_safe)


def key_name(place: int) -> str:
    """Return the column name of a key, which no expression of the user can refer to."""
    return f"{INTERNAL_PREFIX}k{place}"


def most_keys(columns: Sequence[NestedField], spark: SparkSession) -> int:
    """Return the maximum number of keys to send to tasks. A Connect client sends them with each plan to analyse."""
    is_integer = len(columns) == 1 and isinstance(columns[0].field_type, INTEGERS)
    return limits.MAX_INTEGER_SOURCE_KEYS if is_integer and not Runtime.of(spark).is_connect else limits.MAX_SOURCE_KEYS
