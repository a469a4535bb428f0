"""Phrases that no page, error message or help text uses, and the texts that are checked for them."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

from tests.docs.examples import prose_of

__all__ = ["BANNED", "MOST_WORDS", "banned_phrases", "code_texts", "long_sentences"]

BANNED: Final = {
    r"(?:no|some|any)body|whoever": "name the actor: the scan, the writer, Spark, a user, another commit",
    r"anew": "again",
    r"(?:of|than) ours": "RowDelta's",
    r"(?<!long )(?<!far )as (?:it|they) (?:is|are|was|were)(?! (?:\w+(?:ed|en|nt|ad|wn)|when)\b)": "unchanged",
    r"(?:is|are|was|were|be|been) told": "receives, is called with",
    r"told apart": "distinguished",
    r"(?:has|have|had) not(?! (?:been|yet|run|read|\w+(?:ed|en))\b)": "does not have, lacks",
    r"(?:stands?|stood)(?! (?:for|in)\b)": "is, remains, applies",
    r"(?:say|says|said)(?: of \w+)? (?:what|how|which|whether|where|who|when|why|that|so|nothing|it)": "name, report",
    r"(?:is|are) said|nothing says": "the page shows, the metadata records",
    r"gone": "removed, missing",
    r"lets? us": "allows access",
    r"what is little": "small outputs",
    r"(?:is|are|was|were) (?:not|already) there|there already|not there": "does not exist, exists",
    r"lost? the race|race for": "was rejected because another commit landed first",
    r"(?:becomes?|became|comes?|came) of (?:it|them|the|that|what|which)": "happens to",
    r"belongs? into": "belongs in",
    r"(?:goes|go|went) on": "continues",
    r"what of": "which",
    r"how manieth|so many": "the number of",
    r"of that kind": "name the kind",
    r"speaks? against|of one mind": "unless you have a reason not to, in sync",
    r"asked again|(?:is|are) asked (?:about|for|of|only|where|whether|which)": "read again, evaluated",
    r"(?:is|are|be) believed": "trusted",
    r"looked at": "read, checked",
    r"however (?:many|often)": "any number of, regardless of the number",
    r"of the moment|all in all|in the place of": "current, in total, instead of",
    r"ha(?:s|ve) to be there": "must exist",
    r"more of that": "more",
}
"""Patterns of whole words, and what to write instead."""

MOST_WORDS: Final = 30
"""The words of the longest sentence, or part of one that a colon or semicolon ends."""


def banned_phrases(text: str) -> list[str]:
    """Return the banned phrases of a text outside of backquotes, each with its context and what to write instead."""
    text = " ".join(re.sub(r"`[^`]*`", "``", text).split())
    return [
        f"'{text[max(0, found.start() - 40) : found.end() + 40]}': write {instead}"
        for pattern, instead in BANNED.items()
        for found in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    ]


def long_sentences(path: Path) -> list[str]:
    """Return the sentences of a page with more than `MOST_WORDS` words; a cell of a table is a text of its own."""
    blocks = re.split(r"\n\s*\n|\n(?=[-*#] |\d+\. )|^\||\|$| \| ", prose_of(path), flags=re.MULTILINE)
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split())) for block in blocks)
    sentences = (sentence for text in texts for sentence in re.split(r"(?<=[.!?:;])\s+", text))
    return [sentence for sentence in sentences if len(sentence.split()) > MOST_WORDS]


@cache
def code_texts(path: Path) -> tuple[tuple[int, str], ...]:
    """Return the line and text of each string of a module and its docstrings, with `...` for values of f-strings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts: set[int] = set()
    texts: list[tuple[int, str]] = []
    for node in ast.walk(tree):  # an f-string comes before its parts
        match node:
            case ast.JoinedStr(values=values):
                parts.update(map(id, ast.walk(node)))
                text = "".join(str(one.value) if isinstance(one, ast.Constant) else "..." for one in values)
                texts.append((node.lineno, text))
            case ast.Constant(value=str(text)) if id(node) not in parts:
                texts.append((node.lineno, text))
    return tuple(texts)
