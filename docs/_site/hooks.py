"""What MkDocs does with a page before it is rendered."""

import re
from typing import Any

# The words after a block's language are for the tests that run it: see tests/docs/examples.py.
FLAGGED = re.compile(r"^( *```(?:sql|python|sh)) [a-z -]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave the words for tests out of a page."""
    return FLAGGED.sub(r"\1", markdown)
