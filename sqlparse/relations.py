"""Find the tables that a part of a statement names, by its tokens. Pure; driver.

Input: a range of tokens and the CTEs that are visible there. Output: `Relation`s, and whether the range contains a
query or reads columns without naming them. Tokens are used instead of a syntax tree because spans must be exact, and no
table may be missed if there is no tree. `extract(year FROM x)` is not a FROM clause, as it has no SELECT.
"""

from dataclasses import dataclass, field

from dml.sqlparse.names import is_alias, read_table
from dml.sqlparse.statements import Span, TableReference
from dml.sqlparse.tokens import Source, TokenKind, words

__all__ = ["Block", "Relation", "RelationScan", "read_ctes", "scan_expression", "scan_query", "scan_relation"]

SET_OPERATORS = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS", "SETMINUS"})
AFTER_FROM = words("WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW QUALIFY SELECT REDUCE MAP")


@dataclass(slots=True)
class Block:
    """The part of a query in which its tables' columns can be named; `end` is set when scanning leaves it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table reference and its scope.

    Attributes:
        reference: The table, view or CTE.
        block: The part of the statement in which its columns can be named.
        alias_place: Offset for an alias; None where none is allowed (`TABLE t`, the target of INSERT).
    """

    reference: TableReference
    block: Block
    alias_place: int | None


@dataclass(slots=True)
class RelationScan:
    """The findings in a range of tokens."""

    relations: list[Relation] = field(default_factory=list)
    has_subquery: bool = False
    has_star: bool = False
    has_insert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    kind: str
    start: int
    end: int
    ctes: frozenset[str]
    block: Block | None = None


class Scanner:
    """Works through a stack of ranges instead of recursing: parentheses may be nested a thousand deep."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scan = RelationScan()
        self.jobs: list[Job] = []

    def run(self, job: Job) -> RelationScan:
        self.jobs.append(job)
        while self.jobs:
            job = self.jobs.pop()
            if job.kind == "expression":
                self.read_expression(job)
            else:
                QueryReader(self, job).run()
        self.scan.relations.sort(key=lambda relation: relation.reference.span)
        return self.scan

    def bracket(self, index: int, ctes: frozenset[str]) -> int:
        """Queue the content of the bracket at `index`; return the index after it."""
        close = self.source.partner.get(index)
        if close is None:
            return index + 1
        trims = self.source.tokens[index].key == "(" and index > 0 and self.source.tokens[index - 1].key == "TRIM"
        if self.source.query_start[index] and not trims:
            self.scan.has_subquery = True
            self.jobs.append(Job(kind="query", start=index + 1, end=close, ctes=ctes))
        else:
            self.jobs.append(Job(kind="expression", start=index + 1, end=close, ctes=ctes))
        return close + 1

    def read_expression(self, job: Job) -> None:
        source, index = self.source, job.start
        while index < job.end:
            key = source.word(index)
            if key in {"(", "["} and source.query_start[index]:
                index = self.bracket(index, job.ctes)
            elif key == "TABLE" and self.begins_argument(index):
                index = self.table_argument(index, job.ctes)
            else:
                index += 1

    def begins_argument(self, index: int) -> bool:
        source = self.source
        names_table = source.query_start[index] or source.tokens[index + 1].key == "("
        return names_table and source.tokens[index - 1].key in {"(", ",", "=>"}

    def table_argument(self, index: int, ctes: frozenset[str]) -> int:
        """Read `TABLE t` or `TABLE(t)`: all columns of a table, as a query or as an argument of a table function."""
        source, place = self.source, index + 1
        closed = source.tokens[place].key == "(" and source.is_name(place + 1)
        if source.query_start[place]:
            return self.bracket(place, ctes)
        place += closed
        if not source.is_name(place):
            return index + 1
        self.scan.has_star = True
        found = read_table(source, place, aliased=False)
        self.add(found.reference, ctes, Block(found.reference.span.start, found.reference.span.end), None)
        return found.index

    def add(self, reference: TableReference, ctes: frozenset[str], block: Block, alias_place: int | None) -> None:
        if len(reference.parts) == 1 and reference.parts[0].lower() in ctes:
            return
        if reference.column_aliases:
            self.scan.has_star = True  # column aliases name columns by position
        self.scan.relations.append(Relation(reference=reference, block=block, alias_place=alias_place))


class QueryReader:
    """Reads one query, or the parentheses of a FROM clause, without the nested brackets."""

    def __init__(self, scanner: Scanner, job: Job) -> None:
        self.scanner = scanner
        self.source = scanner.source
        self.index = job.start
        self.end = job.end
        self.ctes = job.ctes
        self.owns_block = job.block is None
        self.block = job.block or self.new_block()
        self.state = "relation" if job.kind == "relation" else "start"
        self.selects = job.kind == "relation"
        self.reads_from = False

    def new_block(self) -> Block:
        tokens = self.source.tokens
        return Block(tokens[self.index].start, tokens[max(self.index, self.end - 1)].end)

    def run(self) -> None:
        while self.index < self.end:
            key = self.source.word(self.index)
            if self.state == "start":
                self.read_start(key)
            elif self.state == "relation":
                self.read_relation(key)
            else:
                self.read_clause(key)
        self.note_block_end()

    def note_block_end(self) -> None:
        if self.reads_from and not self.selects:
            self.scanner.scan.has_star = True  # FROM t, with no SELECT, returns all columns

    def read_start(self, key: str) -> None:
        self.state = "clause"
        if key == "WITH":
            self.index, self.ctes = read_ctes(self.source, self.index, self.ctes, self.scanner.jobs)
            self.state = "start"
        elif key == "(":
            self.index = self.scanner.bracket(self.index, self.ctes)
        elif key == "TABLE":
            self.selects = True
            self.index = self.scanner.table_argument(self.index, self.ctes)
        elif key in {"SELECT", "FROM"}:
            if key == "FROM":
                self.state, self.reads_from = "relation", True
            self.selects = self.selects or key == "SELECT"
            self.index += 1
        elif key in {"ALL", "DISTINCT"}:
            self.state = "start"
            self.index += 1
        else:
            self.selects = self.selects or key == "VALUES"
            self.index += 1

    def read_clause(self, key: str) -> None:
        source = self.source
        if key in {"(", "["}:
            self.index = self.scanner.bracket(self.index, self.ctes)
            return
        if source.tokens[self.index].kind is TokenKind.QUOTED and self.state == "values":
            self.state = "from"
        if not key:
            self.index += 1
            return
        after_operand = source.clause_at(self.index)
        if key == "FROM" and not self.is_distinct_from():
            self.state, self.reads_from = "relation", True
        elif key == "|>":
            self.state = "pipe"
        elif key in SET_OPERATORS and after_operand and source.tokens[self.index - 1].key != "*":
            self.close_block()
        elif key == "SELECT":
            self.selects, self.state = True, "clause"
        elif key == "INSERT" and self.reads_from and after_operand:
            self.scanner.scan.has_insert = True
        elif self.state in {"from", "pipe", "values"}:
            self.read_in_from(key, after_operand)
        self.index += 1

    def read_in_from(self, key: str, after_operand: bool) -> None:
        following = self.source.tokens[self.index + 1].key
        if key == "JOIN" or (key == "," and self.state == "from"):
            self.state = "relation"
        elif key == "NATURAL":
            self.scanner.scan.has_star = True
        elif key in {"PIVOT", "UNPIVOT"} and following in {"(", "INCLUDE", "EXCLUDE"}:
            self.scanner.scan.has_star = True  # they group by, or return, columns that are not named
        elif (key == "LATERAL" and following == "VIEW") or (
            key in AFTER_FROM and after_operand and self.state != "pipe"
        ):
            self.state = "clause"
        elif self.state == "values" and (key == "AS" or (key.isidentifier() and after_operand)):
            self.state = "from"

    def is_distinct_from(self) -> bool:
        source = self.source
        return source.word(self.index - 1) == "DISTINCT" and source.word(self.index - 2) in {"IS", "NOT"}

    def close_block(self) -> None:
        self.note_block_end()
        if self.owns_block:
            self.block.end = self.source.tokens[self.index - 1].end
            self.block = Block(self.source.tokens[self.index].end, self.source.tokens[self.end - 1].end)
        self.selects = self.reads_from = False
        self.state = "start"

    def read_relation(self, key: str) -> None:
        source = self.source
        streams = key == "STREAM" and is_alias(source, self.index + 1)
        if key == "LATERAL" or streams:
            self.index += 1
            return
        self.state = "from"
        if key == "(":
            close = source.partner.get(self.index, self.index)
            if source.query_start[self.index] or close == self.index:
                self.index = self.scanner.bracket(self.index, self.ctes)
            else:
                job = Job(kind="relation", start=self.index + 1, end=close, ctes=self.ctes, block=self.block)
                self.scanner.jobs.append(job)
                self.index = close + 1
        elif key == "VALUES" and source.query_start[self.index]:
            self.state = "values"
            self.index += 1
        elif self.index < self.end and source.is_name(self.index):
            self.read_named()
        else:
            self.index += 1

    def read_named(self) -> None:
        found = read_table(self.source, self.index, aliased=True)
        if found.is_function:
            self.index = found.index  # its arguments are read next, like any bracket
        else:
            self.scanner.add(found.reference, self.ctes, self.block, found.alias_place)
            self.index = found.index


def read_ctes(
    source: Source, index: int, ctes: frozenset[str], jobs: list[Job] | None = None
) -> tuple[int, frozenset[str]]:
    """Read `WITH [RECURSIVE] a [(x)] AS (query), ...`.

    Args:
        source: The statement.
        index: The token WITH.
        ctes: Lower-case names of the CTEs visible before.
        jobs: Receives the ranges of the queries to read.

    Returns:
        The index after the last query, and the names that are visible from there. The list ends at the first part that
        is not a CTE.
    """
    index += 1
    recursive = source.word(index) == "RECURSIVE" and source.is_name(index + 1)
    index += recursive
    while index < source.end and source.is_name(index):
        name, place = source.name(index).lower(), index + 1
        if source.tokens[place].key == "(" and place in source.partner and not source.query_start[place]:
            place = source.partner[place] + 1
        if source.word(place) == "MAX" and source.word(place + 1) == "RECURSION":
            place += 4
        if place < source.end and source.word(place) == "AS":
            place += 1
        close = source.partner.get(place)
        if close is None or source.tokens[place].key != "(":
            break
        if jobs is not None:
            inner = ctes | {name} if recursive else ctes
            jobs.append(Job(kind="query", start=place + 1, end=close, ctes=inner))
        ctes, index = ctes | {name}, close + 1
        if source.tokens[index].key != ",":
            break
        index += 1
    return index, ctes


def scan_expression(source: Source, start: int, end: int, ctes: frozenset[str]) -> RelationScan:
    """Find the tables in the subqueries of an expression.

    Args:
        source: The statement.
        start: First token.
        end: Token after the last one.
        ctes: Lower-case names of the CTEs that are visible.
    """
    return Scanner(source).run(Job(kind="expression", start=start, end=end, ctes=ctes))


def scan_query(source: Source, start: int, end: int, ctes: frozenset[str]) -> RelationScan:
    """Find the tables of a query; arguments and result as of `scan_expression`."""
    scan = Scanner(source).run(Job(kind="query", start=start, end=end, ctes=ctes))
    scan.has_subquery = True
    return scan


def scan_relation(source: Source, start: int, end: int, ctes: frozenset[str], scope: Span) -> RelationScan:
    """Find the tables of one item of a FROM clause, or of the source of MERGE, whose columns are visible in `scope`."""
    block = Block(scope.start, scope.end)
    return Scanner(source).run(Job(kind="relation", start=start, end=end, ctes=ctes, block=block))
