"""MkDocs hooks that change a page before and after it is rendered."""

import re
from typing import Any

# The words after a block's language are for the tests that run it: see tests/docs/examples.py.
FLAGGED = re.compile(r"^( *```(?:sql|python|sh)) [a-z -]+$", re.MULTILINE)
LONG_NAME = re.compile(r"(?<=<code>)[\w.-]{20,}(?=</code>)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave the words for tests out of a page."""
    return FLAGGED.sub(r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Allow line breaks after the dots of long property names, so that tables do not break them inside a word."""
    return LONG_NAME.sub(lambda name: name[0].replace(".", ".<wbr>"), html)
