"""Transfers between the rows of a table of accounts: whatever writers do at once, the sum of balances never changes."""

import random
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ACCOUNTS", "BALANCE", "FILES", "Transfer", "mode_change"]

ACCOUNTS = 40
BALANCE = 1000
FILES = 4
LARGEST = 100

UPDATE = """
UPDATE {table} SET balance = balance + CASE WHEN id = {source} THEN -{amount} ELSE {amount} END, key = '{key}'
WHERE id IN ({source}, {target})
"""
# Nothing is ever inserted: unless an account were missing, and then the sum would tell.
MERGE = """
MERGE INTO {table} t
USING (SELECT * FROM VALUES ({source}L, -{amount}L), ({target}L, {amount}L) AS v(id, amount)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET balance = t.balance + s.amount, key = '{key}'
WHEN NOT MATCHED THEN INSERT (id, balance, key) VALUES (s.id, s.amount, '{key}')
"""
MODE = "ALTER TABLE {table} SET TBLPROPERTIES ('write.{command}.mode' = '{mode}')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A statement that moves an amount from one account to another.

    Attributes:
        key: Its idempotency key; the rows that it changes get it as well.
        command: `update` or `merge`.
        source: The account that pays.
        target: The account that is paid.
        amount: How much.
    """

    key: str
    command: str
    source: int
    target: int
    amount: int

    @staticmethod
    def chosen(key: str, draw: random.Random) -> "Transfer":
        """A random one."""
        source, target = draw.sample(range(ACCOUNTS), 2)
        command = draw.choice(("update", "merge"))
        return Transfer(key=key, command=command, source=source, target=target, amount=draw.randint(1, LARGEST))

    def statement(self, table: str) -> str:
        """Its SQL."""
        text = UPDATE if self.command == "update" else MERGE
        return text.format(table=table, **self.facts())

    def facts(self) -> dict[str, Any]:
        """Its fields, for a log."""
        return asdict(self)

    def applied(self, rows: dict[int, tuple[int, str]]) -> dict[int, tuple[int, str]]:
        """Accounts after it: balance and last key by id."""
        paid = {self.source: -self.amount, self.target: self.amount}
        return rows | {account: (rows[account][0] + amount, self.key) for account, amount in paid.items()}


def mode_change(table: str, draw: random.Random) -> str:
    """A statement that gives one of the two commands one of the two modes; merge-on-read more often."""
    mode = draw.choice(("merge-on-read", "merge-on-read", "copy-on-write"))
    return MODE.format(table=table, command=draw.choice(("update", "merge")), mode=mode)
