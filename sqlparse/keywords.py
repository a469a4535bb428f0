"""Sets of keywords. Pure; driver. Input: words in one string; output: a set of them."""

__all__ = ["words"]


def words(text: str) -> frozenset[str]:
    """The words of a text, upper case as keywords are compared."""
    return frozenset(text.upper().split())
