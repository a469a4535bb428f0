"""The names nearest to one that is not there, as the hint of an error. Pure; driver."""

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]

LISTED = 8


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names what could have been meant.

    Args:
        name: What was written.
        known: The names that exist.

    Returns:
        `Did you mean 'id'?`, or the first names that exist where none is near.
    """
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower(), candidate)
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    if close:
        return "Did you mean " + " or ".join(f"'{folded[match]}'" for match in close) + "?"
    if not folded:
        return "There are none"
    names = list(folded.values())
    listed = ", ".join(f"'{candidate}'" for candidate in names[:LISTED])
    return f"There are {listed}" + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
