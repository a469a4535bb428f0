"""The parts of a health report, without a layout. Driver (plain data).

`dml.table_health.text` lays them out for a terminal, `dml.table_health.page` as HTML. Names and paths come from users
and other engines: each layout escapes them, after `printable` has made control characters visible.
"""

from dataclasses import dataclass

__all__ = ["Bar", "Chart", "Fact", "Part", "TextTable", "bytes_text", "days_text", "plural", "printable"]

DAY_MS = 24 * 60 * 60 * 1000
UNITS = (("TB", 2**40), ("GB", 2**30), ("MB", 2**20), ("kB", 2**10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A labelled figure.

    Attributes:
        name: The label.
        value: The figure as text, with "about" or "at most" if it is not exact.
        note: An explanation; may be empty.
    """

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a chart.

    Attributes:
        label: The name of the number.
        length: The number that it shows.
        text: The number, with a unit or details.
        is_good: True if the number is in its recommended range.
    """

    label: str
    length: int
    text: str
    is_good: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Horizontal bars.

    Attributes:
        title: The subject of the bars.
        bars: The bars, from top to bottom.
        mark: The index of the bar above which to draw a line; None for no line.
        mark_text: The label of the line.
    """

    title: str
    bars: tuple[Bar, ...]
    mark: int | None = None
    mark_text: str = ""

    @property
    def longest(self) -> int:
        """The greatest length, at least 1."""
        return max([1, *(bar.length for bar in self.bars)])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A small table. The first column is text, the others are numbers.

    Attributes:
        title: The subject of the rows.
        columns: The names of the columns.
        rows: The cells.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a report.

    Attributes:
        title: Its subject.
        facts: Its figures.
        charts: Its charts.
        tables: Its tables.
    """

    title: str
    facts: tuple[Fact, ...]
    charts: tuple[Chart, ...] = ()
    tables: tuple[TextTable, ...] = ()


def printable(text: str) -> str:
    r"""Replace unprintable characters, such as line breaks and terminal codes, with escapes such as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def bytes_text(size: int) -> str:
    """Format bytes, as in `2.1 MB`, in units of 1,024."""
    for unit, scale in UNITS:
        if size >= scale:
            return f"{size / scale:,.1f}".removesuffix(".0") + f" {unit}"
    return plural(size, "byte")


def days_text(millis: int | None) -> str:
    """Format a duration, as in `2.5 days`."""
    if millis is None:
        return "unknown"
    if abs(millis) >= 2 * DAY_MS:
        return f"{millis / DAY_MS:,.1f} days"
    return f"{millis / DAY_MS * 24:.1f} hours" if abs(millis) >= DAY_MS // 24 else f"{millis / 60_000:.0f} minutes"


def plural(number: int, one: str, many: str = "") -> str:
    """Format a count, as in `1 file` and `2,000 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
