"""Parse a statement by its first keywords, and split scripts into statements. Pure; driver.

Input: the text. Output: `Parsed`, the statement and its table references with their scopes. `split_statements` splits a
script at the semicolons outside of strings, quoted names and comments. A compound statement (`BEGIN ... END`) contains
semicolons: it is one statement, and the last one of its text.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from dml.errors import DmlError, NotSupportedError, SqlError
from dml.sqlparse.alter_table import read_alter_table
from dml.sqlparse.catalog_statements import (
    read_analyze_table,
    read_call,
    read_comment_on_column,
    read_comment_on_namespace,
    read_comment_on_table,
    read_create_namespace,
    read_describe,
    read_drop_namespace,
    read_refresh_table,
    read_set_catalog,
    read_show_columns,
    read_show_create_table,
    read_show_namespaces,
    read_show_partitions,
    read_show_properties,
    read_show_table_extended,
    read_show_tables,
    read_use,
)
from dml.sqlparse.create_table import read_create_table, read_drop_table
from dml.sqlparse.cursor import Cursor, LeftToSpark
from dml.sqlparse.definitions import read_clustering
from dml.sqlparse.diagnosis import near_keyword
from dml.sqlparse.fragments import FragmentReader
from dml.sqlparse.insert import read_insert
from dml.sqlparse.merge import read_merge
from dml.sqlparse.relations import Relation, read_ctes
from dml.sqlparse.row_level import read_delete, read_truncate, read_update
from dml.sqlparse.statements import CurveTerm, Explain, Fragment, Query, Statement, TransformTerm, UnknownStatement
from dml.sqlparse.tokens import Source, Token, first_keyword, read_source, tokenize, words

__all__ = [
    "Parsed",
    "ScriptStatement",
    "check_first_word",
    "is_terminated",
    "parse",
    "parse_sort_order",
    "read_statement",
    "split_statements",
]

Reader = Callable[[Cursor, FragmentReader], Statement]
RowLevelReader = Callable[[Cursor, FragmentReader, Fragment | None], Statement]

ROW_LEVEL: dict[str, RowLevelReader] = {
    "DELETE": read_delete,
    "UPDATE": read_update,
    "MERGE": read_merge,
    "INSERT": read_insert,
}
END_OF_STATEMENT = ""
TRANSACTION_STARTS: Final[tuple[tuple[str, ...], ...]] = (
    ("BEGIN", END_OF_STATEMENT),
    *((begin, word) for begin in ("BEGIN", "START") for word in ("TRAN", "TRANSACTION", "WORK")),
    ("BEGIN", "ISOLATION", "LEVEL"),
    *(("BEGIN", "READ", word) for word in ("ONLY", "WRITE")),
    *(("BEGIN", kind, word) for kind in ("DEFERRED", "EXCLUSIVE", "IMMEDIATE") for word in ("", "TRANSACTION")),
)
"""How transactions begin in other engines. In Spark, BEGIN begins a compound statement."""


def refuse_transaction(cursor: Cursor, _reader: FragmentReader) -> Statement:
    """Refuse BEGIN, COMMIT, ROLLBACK or SAVEPOINT.

    Raises:
        NotSupportedError: Always.
    """
    raise NotSupportedError(
        "Transactions of several statements are not supported: each statement commits by itself",
        sql=cursor.source.sql,
        position=cursor.start(),
        length=len(cursor.key()),
        hint="Change one table in a single MERGE; to publish several statements at once, run them on a branch and "
        "then call fast_forward",
    )


NAMESPACE = ("NAMESPACE", "SCHEMA", "DATABASE")
NAMESPACES = ("NAMESPACES", "SCHEMAS", "DATABASES")
HEADS: tuple[tuple[tuple[str, ...], Reader], ...] = (
    (("TRUNCATE",), read_truncate),
    (("CREATE", "TABLE"), read_create_table),
    (("CREATE", "OR", "REPLACE", "TABLE"), read_create_table),
    (("REPLACE", "TABLE"), read_create_table),
    (("DROP", "TABLE"), read_drop_table),
    *((("CREATE", word), read_create_namespace) for word in NAMESPACE),
    *((("DROP", word), read_drop_namespace) for word in NAMESPACE),
    (("SHOW", "TABLES"), read_show_tables),
    (("SHOW", "TABLE", "EXTENDED"), read_show_table_extended),
    *((("SHOW", word), read_show_namespaces) for word in NAMESPACES),
    (("SHOW", "TBLPROPERTIES"), read_show_properties),
    (("SHOW", "CREATE", "TABLE"), read_show_create_table),
    (("SHOW", "COLUMNS"), read_show_columns),
    (("SHOW", "PARTITIONS"), read_show_partitions),
    (("COMMENT", "ON", "TABLE"), read_comment_on_table),
    (("COMMENT", "ON", "COLUMN"), read_comment_on_column),
    *((("COMMENT", "ON", word), read_comment_on_namespace) for word in NAMESPACE),
    (("REFRESH", "TABLE"), read_refresh_table),
    (("ANALYZE", "TABLE"), read_analyze_table),
    (("DESCRIBE",), read_describe),
    (("DESC",), read_describe),
    (("USE",), read_use),
    (("SET", "CATALOG"), read_set_catalog),
    (("ALTER", "TABLE"), read_alter_table),
    (("CALL",), read_call),
    *(((word,), refuse_transaction) for word in ("COMMIT", "ROLLBACK", "SAVEPOINT")),
    *((("SET", "TRANSACTION", word), refuse_transaction) for word in ("ISOLATION", "READ")),
    *((start, refuse_transaction) for start in TRANSACTION_STARTS),
)
QUERIES = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM"})
FIRST_WORDS = QUERIES | set(ROW_LEVEL) | {head[0] for head, _ in HEADS} | {"EXPLAIN"}
OTHER_FIRST_WORDS: Final = words(
    "ADD CACHE CLEAR CLOSE DECLARE DFS EXECUTE EXPORT FETCH GRANT IMPORT LIST LOAD LOCK MAP MSCK OPEN REDUCE REPAIR "
    "RESET REVOKE UNCACHE UNLOCK"
)
"""Other first words in the grammar of Spark 3.5 to 4.3, including those of statements that Spark rejects."""
EXPLAIN_MODES = frozenset({"EXTENDED", "CODEGEN", "COST", "FORMATTED", "LOGICAL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A statement and the tables that it names.

    Attributes:
        statement: The statement.
        source: Its tokens; None for a statement that goes to Spark.
        relations: Its table references, in order of position.
    """

    statement: Statement
    source: Source | None = None
    relations: tuple[Relation, ...] = ()


def parse(sql: str, *, case_sensitive: bool = False) -> Statement:
    """Parse one statement.

    Args:
        sql: The text; a final semicolon is allowed.
        case_sensitive: True if `a` and `A` are two columns (`spark.sql.caseSensitive`). Only affects duplicate checks.

    Returns:
        The statement; `UnknownStatement` for statements that RowDelta leaves to Spark.

    Raises:
        SqlError: The text is empty, or it begins like a statement of RowDelta and is invalid. The error has the
            position and what was expected there.
    """
    return read_statement(sql, case_sensitive=case_sensitive).statement


def parse_sort_order(text: str) -> tuple[TransformTerm | CurveTerm, ...]:
    """Parse the sort order of `rewrite_data_files`: `day, bucket(4, id) DESC` or `zorder(a, b)`.

    Raises:
        SqlError: It is none.
    """
    source = read_source(text)
    if source.problem is not None:
        raise source.problem
    cursor = Cursor(source)
    terms = read_clustering(cursor)
    cursor.finish()
    return terms


def read_statement(sql: str, *, case_sensitive: bool = False) -> Parsed:
    """Parse one statement, with the tokens and table references for `render`; arguments and errors as of `parse`."""
    if first_keyword(sql) not in FIRST_WORDS:
        check_not_empty(sql)
        return Parsed(statement=UnknownStatement(text=sql))
    source = read_source(sql)
    reader = FragmentReader(source)
    statement = read_by_family(Cursor(source, case_sensitive=case_sensitive), reader)
    if isinstance(statement, UnknownStatement):
        return Parsed(statement=statement)
    relations = {relation.reference.span: relation for relation in reader.relations}
    return Parsed(statement=statement, source=source, relations=tuple(relations[span] for span in sorted(relations)))


def check_first_word(sql: str) -> None:
    """Reject a statement that begins with a misspelled keyword, as Spark's own parser does.

    Other unknown words are left to Spark, whose extensions may add statements.

    Raises:
        SqlError: The first word is similar to a keyword of Spark, but is not one.
    """
    source = read_source(sql)
    word = source.word(0)
    if word and source.end > 1 and source.tokens[1].key == ":":  # a label
        return
    if word and word not in FIRST_WORDS | OTHER_FIRST_WORDS and near_keyword(word, FIRST_WORDS) is not None:
        Cursor(source).fail(keywords=FIRST_WORDS)


def check_not_empty(sql: str) -> None:
    source = read_source(sql)
    if source.end == 0:
        if source.problem is not None:
            raise source.problem
        raise SqlError("The statement is empty", sql=sql, position=0 if sql else None, expected="a statement")


def read_by_family(cursor: Cursor, reader: FragmentReader) -> Statement:
    source, begin = cursor.source, cursor.index
    read = find_reader(cursor)
    if read is not None:
        if source.problem is not None:
            raise source.problem
        try:
            return read(cursor, reader)
        except LeftToSpark:
            pass
    return UnknownStatement(text=source.sql[source.tokens[begin].start :] if begin else source.sql)


def find_reader(cursor: Cursor) -> Reader | None:
    key = cursor.key()
    if key == "EXPLAIN":
        return explain
    if key in ROW_LEVEL:
        return row_level
    if cursor.source.query_start[cursor.index] or key in {"SELECT", "WITH", "VALUES"}:
        return query_or_with
    return next((read for head, read in HEADS if cursor.at(*head)), None)


def row_level(cursor: Cursor, reader: FragmentReader, ctes: Fragment | None = None) -> Statement:
    if cursor.source.open_case is not None:
        token = cursor.source.tokens[cursor.source.open_case]
        raise SqlError(
            "CASE has no END", sql=cursor.source.sql, position=token.start, length=4, expected="END after it"
        )
    return ROW_LEVEL[cursor.key()](cursor, reader, ctes)


def query_or_with(cursor: Cursor, reader: FragmentReader) -> Statement:
    source, begin = cursor.source, cursor.index
    if cursor.at("WITH"):
        index, names = read_ctes(source, begin, frozenset())
        if source.word(index) in ROW_LEVEL:
            ctes = reader.with_clause(begin, index)
            reader.ctes = names
            cursor.index = index
            return row_level(cursor, reader, ctes)
    query = reader.query(begin, source.end)
    if reader.has_insert:
        raise LeftToSpark
    return Query(fragment=query)


def explain(cursor: Cursor, reader: FragmentReader) -> Statement:
    begin = cursor.index
    cursor.expect("EXPLAIN")
    mode = ""
    if cursor.key() in EXPLAIN_MODES:
        mode = cursor.key().lower()
        cursor.index += 1
    if cursor.at_end():
        cursor.fail(expected="a statement to explain")
    if cursor.at("EXPLAIN"):
        cursor.fail(expected="a statement that can be explained")
    prefix = cursor.source.sql[cursor.source.tokens[begin].start : cursor.start()]
    return Explain(statement=read_by_family(cursor, reader), mode=mode, prefix=prefix)


SENTENCE_ENDS: Final = (".", "?", "!")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStatement:
    """One statement of a script.

    Attributes:
        text: The statement, without its semicolon; the whole script if it is the only one.
        start: Offset of the statement in the script.
        number: Its number in the script, from 1.
        count: The number of statements in the script.
        script: The whole text.
    """

    text: str
    start: int
    number: int
    count: int
    script: str

    @contextmanager
    def report_position(self, *, ran: int | None = None) -> Iterator[None]:
        """Add the number of the failed statement, and of those that ran before it, to errors raised in the block.

        Args:
            ran: The number of statements that have run; None for all before this one.
        """
        try:
            yield
        except DmlError as error:
            if self.count > 1:
                self._report(error, self.number - 1 if ran is None else ran)
            raise

    def _report(self, error: DmlError, ran: int) -> None:
        if error.sql == self.text:
            error.sql = self.script
            if error.position is not None:
                error.position += self.start
        before = "no statement ran" if ran == 0 else f"{ran} statement{'' if ran == 1 else 's'} ran before it"
        place = f"Statement {self.number} of {self.count} failed; {before}"
        end = "" if error.hint is None or error.hint.endswith(SENTENCE_ENDS) else "."
        error.hint = place if error.hint is None else f"{error.hint}{end} {place}"
        error.context |= {"statement": self.number, "statements_run": ran}


def split_statements(script: str) -> tuple[ScriptStatement, ...]:
    """Split a text into its statements, and check the syntax of each if there are several.

    A single statement is returned unchanged and unchecked.

    Raises:
        SqlError: the text has several statements, and one of them is wrong.
    """
    pieces: list[list[Token]] = []
    if ";" in script.rstrip("; \t\r\n"):  # most scripts are one statement, some of megabytes: skip tokenizing
        tokens, problem = tokenize(script)
        pieces.extend(statement_tokens(tokens))
        if len(pieces) > 1 and problem is not None:
            raise problem
    if len(pieces) < 2:
        return (ScriptStatement(text=script, start=0, number=1, count=1, script=script),)
    statements = tuple(
        ScriptStatement(
            text=script[piece[0].start : piece[-1].end],
            start=piece[0].start,
            number=number,
            count=len(pieces),
            script=script,
        )
        for number, piece in enumerate(pieces, 1)
    )
    for statement in statements:
        with statement.report_position(ran=0):
            parse(statement.text)
    return statements


def is_terminated(script: str) -> bool:
    """Return True if a semicolon ends the last statement of a text, outside of strings, quoted names and comments."""
    tokens, problem = tokenize(script)
    if problem is not None or not tokens or tokens[-1].key != ";":
        return False
    *_, last = [[], *statement_tokens(tokens)]
    return not is_compound(last) or last[-2].key == "END"


def statement_tokens(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement, without semicolons; empty statements are skipped."""
    piece: list[Token] = []
    for token in tokens:
        if token.key == ";" and not is_compound(piece):
            if piece:
                yield piece
            piece = []
        else:
            piece.append(token)
    if piece:
        yield piece


def is_compound(piece: list[Token]) -> bool:
    """Return whether a statement begins with `BEGIN` or `label: BEGIN`, and does not begin a transaction."""
    first, *after = keys = (*(token.key for token in piece[:3]), END_OF_STATEMENT, END_OF_STATEMENT)[:3]
    if after == [":", "BEGIN"]:
        return True
    return first == "BEGIN" and all(keys[: len(start)] != start for start in TRANSACTION_STARTS)
