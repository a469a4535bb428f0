"""Calls of `df.mergeInto`, one after the other on one table."""

from typing import Any

from tests.programs.program import Program, calls_of

__all__ = ["CALLS"]

ON = "accounts.id = s.id"
COLUMNS = "id BIGINT, owner STRING, amount INT"


def accounts(p: Program) -> Any:
    rows = p.frame([(1, "Ann", 10), (2, "Bob", 20), (3, "Eve", 30), (4, "Kim", 40)], COLUMNS)
    rows.writeTo(p.name("accounts")).using("iceberg").create()
    return p.spark.table(p.name("accounts"))


def merge_update(p: Program) -> Any:
    source = p.frame([(1, "x", 5), (9, "y", 1)], COLUMNS).alias("s")
    p.merge(source, p.name("accounts"), ON, [("matched", None, "update", {"amount": "accounts.amount + s.amount"})])
    return p.spark.table(p.name("accounts"))


def merge_insert_all(p: Program) -> Any:
    source = p.frame([(1, "no", 0), (5, "Dan", 50)], COLUMNS).alias("s")
    p.merge(source, p.name("accounts"), ON, [("not matched", None, "insert", None)])
    return p.spark.table(p.name("accounts"))


def merge_update_all_and_insert_all(p: Program) -> Any:
    source = p.frame([(2, "Bea", 25), (6, "Zoe", 60)], COLUMNS).alias("s")
    p.merge(source, p.name("accounts"), ON, [("matched", None, "update", None), ("not matched", None, "insert", None)])
    return p.spark.table(p.name("accounts"))


def merge_delete_by_a_condition(p: Program) -> Any:
    source = p.frame([(2, "x", 0), (3, "x", 1)], COLUMNS).alias("s")
    p.merge(source, p.name("accounts"), ON, [("matched", "s.amount = 0", "delete", None)])
    return p.spark.table(p.name("accounts"))


def merge_clauses_in_their_order(p: Program) -> Any:
    source = p.frame([(1, "Ann", 0), (3, "Eva", 1), (7, "Max", 70), (8, "Nix", -1)], COLUMNS).alias("s")
    clauses = [
        ("matched", "s.amount = 0", "delete", None),
        ("matched", None, "update", {"owner": "s.owner"}),
        ("not matched", "s.amount > 0", "insert", {"id": "s.id", "amount": "s.amount"}),
    ]
    p.merge(source, p.name("accounts"), ON, clauses)
    return p.spark.table(p.name("accounts"))


def merge_not_matched_by_source(p: Program) -> Any:
    source = p.frame([(3, "x", 0), (4, "x", 0), (5, "x", 0)], COLUMNS).alias("s")
    clauses = [
        ("not matched by source", "accounts.owner IS NULL", "delete", None),
        ("not matched by source", None, "update", {"amount": "0"}),
    ]
    p.merge(source, p.name("accounts"), ON, clauses)
    return p.spark.table(p.name("accounts"))


def merge_of_two_source_rows_for_one(p: Program) -> Any:
    source = p.frame([(3, "x", 0), (3, "y", 0)], COLUMNS).alias("s")
    p.merge(source, p.name("accounts"), ON, [("matched", None, "update", {"owner": "s.owner"})])


def merge_of_a_missing_column(p: Program) -> Any:
    source = p.frame([(3, "x", 0)], COLUMNS).alias("s")
    p.merge(source, p.name("accounts"), ON, [("matched", None, "update", {"owner": "s.nobody"})])


def after_refused_merges(p: Program) -> Any:
    return p.spark.table(p.name("accounts"))


CALLS = calls_of(globals())
