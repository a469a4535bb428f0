"""The names nearest to one that is not there, as the hint of an error. Pure; driver."""

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]

LISTED = 8


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names what could have been meant.

    Args:
        name: What was written.
        known: The names that exist.

    Returns:
        `Did you mean 'id'?`, or the first names that exist where none is near.
    """
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    if near is not None:
        return near
    if not names:
        return "There are none"
    listed = ", ".join(f"'{candidate}'" for candidate in names[:LISTED])
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"There {'is only' if len(names) == 1 else 'are'} {listed}{more}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """As `did_you_mean`, where names that are not near are no help: None then."""
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower(), candidate)
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)
    if not close:
        return None
    return "Did you mean " + " or ".join(f"'{folded[match]}'" for match in close) + "?"
