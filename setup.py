"""The description on PyPI: README.md with links to the documentation site, because PyPI lacks the repository's files.

Everything else about the package is in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

__all__ = ["description"]

ROOT = Path(__file__).parent


def description() -> str:
    """Return README.md with absolute links, and without links to files that the site lacks."""
    site = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Documentation"]
    text = (ROOT / "README.md").read_text("utf-8").replace("](CONTRIBUTING.md)", "](docs/contributing.md)")
    text = re.sub(r"\[([^\]]+)\]\([A-Z]+\.md\)", r"\1", text)
    text = re.sub(r"\]\(docs/(pictures/[^)]+)\)", rf"]({site}/\1)", text)
    text = re.sub(r"\]\(docs/index\.md", f"]({site}/", text)
    return re.sub(r"\]\(docs/(.+?)(?:/README)?\.md", rf"]({site}/\1/", text)


if __name__ == "__main__":
    from setuptools import setup

    setup(long_description=description(), long_description_content_type="text/markdown")
