"""The whole program: its calls in their order, the answers of Iceberg's Java library, and what differs from them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.programs import catalogs, merges, reads, refusals, writes
from tests.programs.program import Call

__all__ = ["ANSWERS", "CALLS", "differences", "java_answers", "listed_differences"]

ANSWERS: Final = Path(__file__).with_name("answers.json")
LIMITS: Final = Path(__file__).parents[2] / "docs" / "known-limits.md"
ROW: Final = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (classic|Connect|both) \|", re.MULTILINE)

CALLS: Final[tuple[Call, ...]] = (*reads.CALLS, *writes.CALLS, *merges.CALLS, *catalogs.CALLS, *refusals.CALLS)


def java_answers() -> dict[str, Any]:
    """What `make_answers.py` wrote, by the names of calls."""
    found: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return found


def listed_differences(kind: str) -> set[str]:
    """The calls that known-limits lists as different.

    Args:
        kind: `classic` or `Connect`.
    """
    rows = ROW.findall(LIMITS.read_text(encoding="utf-8"))
    return {name for names, where in rows if where in {kind, "both"} for name in re.findall(r"\w+", names)}


def differences(found: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What Java answered, and what was answered here, where these are not the same.

    Args:
        found: Answers by the names of calls.
    """
    expected = java_answers()
    assert expected.keys() == found.keys(), "make_answers.py has to be run anew"
    same = {name: {key: part for key, part in each.items() if key != "text"} for name, each in found.items()}
    return {name: (expected[name], found[name]) for name in expected if expected[name] != same[name]}
