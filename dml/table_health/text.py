"""Lay out a health report for a terminal. Driver.

Input: the parts of a report. Output: a renderable of rich, which fits the width of its console.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dml.table_health.figures import Advice
from dml.table_health.view import Chart, Fact, Part, TextTable, printable

__all__ = ["WIDTH", "layout"]

WIDTH: Final = 80
"""The width of the printed form, in columns."""

LABEL_WIDTH: Final = 24
BAR_WIDTH: Final = 28


def layout(title: str, subtitle: str, verdict: str, advice: Sequence[Advice], parts: Sequence[Part]) -> RenderableType:
    """Lay out a report: the heading, the recommendations, then each part.

    Args:
        title: The heading.
        subtitle: The line below it.
        verdict: The heading of the recommendations.
        advice: The recommendations.
        parts: The parts.
    """
    rows: list[RenderableType] = [text(title, "bold"), text(subtitle, "dim")]
    rows += [Text(), *advice_rows(verdict, advice)]
    for part in parts:
        rows += [Text(), Rule(text(part.title, "bold"), align="left", characters="─", style="dim")]
        if part.facts:
            rows.append(facts_grid(part.facts))
        rows += [Padding(ChartBars(chart), (1, 0, 0, 0)) for chart in part.charts]
        rows += [Padding(text_table(table), (1, 0, 0, 0)) for table in part.tables]
    return Group(*rows)


def text(value: str, style: str = "") -> Text:
    """Return text without markup, folded where it does not fit."""
    return Text(printable(value), style=style, overflow="fold")


def advice_rows(verdict: str, advice: Sequence[Advice]) -> Iterator[RenderableType]:
    yield text(verdict, "bold" if advice else "green")
    for number, one in enumerate(advice, 1):
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=2, justify="right")
        grid.add_column(overflow="fold")
        grid.add_row(text(f"{number}."), Text.assemble(text(one.action, "yellow"), ": ", text(one.reason)))
        yield grid


def facts_grid(facts: Sequence[Fact]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=LABEL_WIDTH, overflow="fold")
    grid.add_column(overflow="fold")
    for fact in facts:
        value = text(fact.value)
        if fact.note:
            value = Text.assemble(value, "  ", text(fact.note, "dim"), overflow="fold")
        grid.add_row(text(fact.name, "cyan"), value)
    return grid


class ChartBars:
    """A chart whose bars use the characters that the console can print.

    Args:
        chart: The chart.
    """

    def __init__(self, chart: Chart) -> None:
        self._chart = chart

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title and the bars."""
        chart, block, line = self._chart, *(("#", "-") if options.ascii_only else ("█", "─"))
        yield text(chart.title, "dim")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=LABEL_WIDTH, overflow="fold")
        grid.add_column(width=BAR_WIDTH)
        grid.add_column(overflow="fold")
        for number, bar in enumerate(chart.bars):
            if number == chart.mark:
                grid.add_row(Text(line * LABEL_WIDTH, "dim"), Text(line * BAR_WIDTH, "dim"), text(chart.mark_text))
            # A number above 0 has a visible bar.
            length = -(-bar.length * BAR_WIDTH // chart.longest)
            style = "green" if bar.is_good else "yellow"
            grid.add_row(text(bar.label), Text(block * length, style), text(bar.text))
        yield grid


def text_table(table: TextTable) -> RenderableType:
    grid = Table(*table.columns[:1], box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.columns[0].overflow = "fold"
    for name in table.columns[1:]:
        grid.add_column(name, justify="right", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(text, row))
    return Group(text(table.title, "dim"), grid)
