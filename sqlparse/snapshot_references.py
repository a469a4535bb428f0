"""Read CREATE, REPLACE and DROP BRANCH and TAG of ALTER TABLE. Pure; driver.

Input: a cursor at the verb. Output: `SetReference` or `DropReference`; None if neither a branch nor a tag follows, with
the cursor unmoved. Source: Iceberg's SQL extensions for Spark, `createReplaceBranchClause`, `createReplaceTagClause`.
"""

from typing import Final

from dml.sqlparse.cursor import Cursor
from dml.sqlparse.statements import DropReference, ReferenceKind, Retention, SetReference, Span
from dml.sqlparse.tokens import TokenKind

__all__ = ["read_drop_reference", "read_set_reference"]

VERBS: Final = (("CREATE", "OR", "REPLACE"), ("CREATE",), ("REPLACE",))
MILLISECONDS: Final = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000}
UNITS: Final = "DAYS, HOURS or MINUTES"
MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1


def read_set_reference(cursor: Cursor) -> SetReference | None:
    """Read `CREATE [OR REPLACE] | REPLACE BRANCH | TAG [IF NOT EXISTS] name ...`."""
    for verb in VERBS:
        for kind in ReferenceKind:
            if cursor.accept(*verb, kind.name):
                return set_reference(cursor, kind, create="CREATE" in verb, replace="REPLACE" in verb)
    if cursor.accept("CREATE"):
        cursor.fail(expected="BRANCH, TAG or OR REPLACE")
    return None


def read_drop_reference(cursor: Cursor) -> DropReference | None:
    """Read `DROP BRANCH | TAG [IF EXISTS] name`."""
    for kind in ReferenceKind:
        if cursor.accept("DROP", kind.name):
            if_exists = cursor.accept("IF", "EXISTS")
            name, span = read_name(cursor, kind)
            return DropReference(kind=kind, name=name, span=span, if_exists=if_exists)
    return None


def set_reference(cursor: Cursor, kind: ReferenceKind, *, create: bool, replace: bool) -> SetReference:
    if_not_exists = cursor.at("IF", "NOT", "EXISTS")
    if if_not_exists:
        if replace:
            cursor.fail(
                expected=f"the name of a {kind}", hint=f"A {kind} that is replaced does not need IF NOT EXISTS."
            )
        cursor.expect("IF", "NOT", "EXISTS")
    name, span = read_name(cursor, kind)
    snapshot_id, snapshot_span = None, None
    if cursor.accept("AS"):
        cursor.expect("OF", "VERSION")
        begin = cursor.index
        snapshot_id = read_number(cursor, "the id of a snapshot", MAX_LONG)
        snapshot_span = cursor.span_from(begin)
    max_ref_age_ms = read_age(cursor) if cursor.accept("RETAIN") else None
    min_snapshots, max_age_ms = None, None
    if kind is ReferenceKind.BRANCH and cursor.accept("WITH"):
        cursor.expect("SNAPSHOT", "RETENTION")
        if cursor.key(1) == "SNAPSHOTS":
            min_snapshots = read_number(cursor, "a number of snapshots", MAX_INT)
            cursor.expect("SNAPSHOTS")
        if min_snapshots is None or not cursor.at_end():
            max_age_ms = read_age(cursor, f"SNAPSHOTS, {UNITS}" if min_snapshots is None else UNITS)
    return SetReference(
        kind=kind,
        name=name,
        span=span,
        create=create,
        replace=replace,
        if_not_exists=if_not_exists,
        snapshot_id=snapshot_id,
        snapshot_span=snapshot_span,
        retention=Retention(
            max_ref_age_ms=max_ref_age_ms, min_snapshots_to_keep=min_snapshots, max_snapshot_age_ms=max_age_ms
        ),
    )


def read_name(cursor: Cursor, kind: ReferenceKind) -> tuple[str, Span]:
    begin = cursor.index
    return cursor.name(f"the name of a {kind}"), cursor.span_from(begin)


def read_age(cursor: Cursor, units: str = UNITS) -> int:
    begin = cursor.index
    number = read_number(cursor, "a number", MAX_LONG)
    scale = MILLISECONDS.get(cursor.key())
    if scale is None:
        cursor.fail(expected=units)
    cursor.index += 1
    if number * scale > MAX_LONG:
        cursor.fail_at(cursor.span_from(begin), "The age is longer than Iceberg can record", hint="Leave it out.")
    return number * scale


def read_number(cursor: Cursor, what: str, most: int) -> int:
    text = cursor.source.text(cursor.index).upper().removesuffix("L")  # parameters may be bound as 17L
    if cursor.source.tokens[cursor.index].kind is not TokenKind.NUMBER or not text.isdecimal():
        cursor.fail(expected=what)
    if not 0 < int(text) <= most:
        cursor.fail(f"{text} is out of range", expected=f"a number from 1 to {most}")
    cursor.index += 1
    return int(text)
