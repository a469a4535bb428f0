"""Lay out a health report as HTML. Driver.

Input: the parts of a report. Output: a fragment for notebooks, or a page with a head. Both are self-contained and have
no scripts. Colors derive from the color of the surrounding text, so the fragment fits light and dark notebooks.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from dml.table_health.figures import Advice
from dml.table_health.view import Chart, Fact, Part, TextTable, printable

__all__ = ["fragment", "render_page"]

STYLE: Final = """.rowdelta-health{--line:color-mix(in srgb,currentColor 18%,transparent);
--soft:color-mix(in srgb,currentColor 65%,transparent);
--fill:color-mix(in srgb,currentColor 6%,transparent);--good:#2f9e6e;--bad:#d9822b;
font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;font-variant-numeric:tabular-nums;
max-width:1120px;overflow-wrap:anywhere;text-align:left;
& * {box-sizing:border-box}
h1 {font-size:22px;line-height:1.25;font-weight:650;margin:0}
h2 {font-size:15px;font-weight:650;margin:0 0 8px}
h3 {font-size:12.5px;font-weight:500;color:var(--soft);margin:14px 0 5px}
p {margin:3px 0 14px;color:var(--soft)}
.parts {columns:2 400px;column-gap:14px}
section {border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:0 0 14px;break-inside:avoid}
.advice {background:var(--fill);border-left:4px solid var(--bad)}
.none {border-left-color:var(--good)}
ol {margin:0;padding-left:20px}
li {margin:3px 0}
code {font:12.5px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:inherit;background:var(--fill);
border:0;padding:1px 5px;border-radius:4px}
dl {display:grid;grid-template-columns:minmax(110px,38%) 1fr;gap:3px 12px;margin:0}
dt {color:var(--soft);font-weight:400;margin:0}
dd {margin:0}
small {color:var(--soft);font-size:12.5px;display:block}
.chart {display:grid;grid-template-columns:minmax(70px,auto) minmax(60px,1fr) auto;gap:3px 10px;align-items:center;
font-size:12.5px}
.chart span {white-space:nowrap}
.chart i {display:block;height:12px;border-radius:2px;background:var(--bad)}
.chart .good {background:var(--good)}
.mark {grid-column:1/-1;display:flex;align-items:center;gap:8px;color:var(--soft);height:14px}
.mark::before {content:"";flex:1;border-top:1px dashed currentColor}
table {border-collapse:collapse;width:100%;font-size:12.5px;margin:0;border:0;color:inherit;background:none}
th,td {text-align:right;padding:3px 0 3px 12px;border:0;border-bottom:1px solid var(--line);font-weight:400;
vertical-align:top;white-space:nowrap;background:none}
th {color:var(--soft)}
:is(th,td):first-child {text-align:left;padding-left:0;white-space:normal}
}
"""

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

HEAD: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>:root{{color-scheme:light dark}}body{{margin:24px;background:Canvas;color:CanvasText}}
.rowdelta-health{{margin:0 auto}}@media (max-width:480px){{body{{margin:12px}}}}</style>
</head>
<body>
"""


def render_page(title: str, content: str) -> str:
    """Return a page.

    Args:
        title: The title of its tab.
        content: Its HTML.
    """
    head = HEAD.format(policy=escape(POLICY), title=safe(title))
    return f"{head}{content}\n</body>\n</html>\n"


def fragment(title: str, subtitle: str, verdict: str, advice: Sequence[Advice], parts: Sequence[Part]) -> str:
    """Return the report as an element with its own styles.

    Args:
        title: The heading.
        subtitle: The line below it.
        verdict: The heading of the recommendations.
        advice: The recommendations.
        parts: The parts.
    """
    lines = [
        f'<div class="rowdelta-health"><style>{STYLE}</style>',
        f"<h1>{safe(title)}</h1><p>{safe(subtitle)}</p>",
        *advice_html(verdict, advice),
        '<div class="parts">',
        *(line for part in parts for line in part_html(part)),
        "</div></div>",
    ]
    return "\n".join(lines)


def safe(value: str) -> str:
    return escape(printable(value))


def advice_html(verdict: str, advice: Sequence[Advice]) -> Iterator[str]:
    if not advice:
        yield f'<section class="advice none"><h2>{safe(verdict)}</h2></section>'
        return
    yield f'<section class="advice"><h2>{safe(verdict)}</h2><ol>'
    yield from (f"<li><code>{safe(one.action)}</code> {safe(one.reason)}</li>" for one in advice)
    yield "</ol></section>"


def part_html(part: Part) -> Iterator[str]:
    yield f"<section><h2>{safe(part.title)}</h2>"
    if part.facts:
        yield f"<dl>{''.join(map(fact_html, part.facts))}</dl>"
    for chart in part.charts:
        yield from chart_html(chart)
    for table in part.tables:
        yield from table_html(table)
    yield "</section>"


def fact_html(fact: Fact) -> str:
    note = f"<small>{safe(fact.note)}</small>" if fact.note else ""
    return f"<dt>{safe(fact.name)}</dt><dd>{safe(fact.value)}{note}</dd>"


def chart_html(chart: Chart) -> Iterator[str]:
    yield f'<h3>{safe(chart.title)}</h3><div class="chart">'
    for number, bar in enumerate(chart.bars):
        if number == chart.mark:
            yield f'<div class="mark">{safe(chart.mark_text)}</div>'
        # A number above 0 has a visible bar.
        width = max(100 * bar.length / chart.longest, 0.7) if bar.length else 0
        kind = ' class="good"' if bar.is_good else ""
        yield f'<span>{safe(bar.label)}</span><div><i{kind} style="width:{width:.1f}%"></i></div>'
        yield f"<span>{safe(bar.text)}</span>"
    yield "</div>"


def table_html(table: TextTable) -> Iterator[str]:
    names = "".join(f'<th scope="col">{safe(name)}</th>' for name in table.columns)
    yield f"<h3>{safe(table.title)}</h3><table><thead><tr>{names}</tr></thead><tbody>"
    for row in table.rows:
        yield f"<tr>{''.join(f'<td>{safe(cell)}</td>' for cell in row)}</tr>"
    yield "</tbody></table>"
