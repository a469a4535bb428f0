"""The part of docs/configuration.md that is made of the code: `python -m tests.docs.configuration` writes it anew."""

from pathlib import Path

from dml.engine.engine import ICEBERG_SETTINGS
from dml.engine.writes import PLACES

__all__ = ["BEGIN", "END", "PAGE", "made", "places_table"]

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
BEGIN = "<!-- made by tests/docs/configuration.py of dml/engine/writes.py -->\n"
END = "<!-- end of what is made -->\n"


def places_table() -> str:
    """A line for each setting that has more than one place."""
    lines = ["| write option | setting of the session | table property |", "| --- | --- | --- |"]
    for place in PLACES:
        option = f"`{place.name}`" if place.option else ""
        session = f"`{ICEBERG_SETTINGS}{place.name}`" if place.session else ""
        lines.append(f"| {option} | {session} | {', '.join(f'`{name}`' for name in place.properties)} |")
    return "\n".join(lines) + "\n"


def made(page: str) -> str:
    """The page, with what is made of the code as the code is now."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{places_table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
