"""A picture of a named case: seconds over what grows, a line for each engine, as SVG.

Input: points. Output: text. Nothing but lines, circles and texts: no library is needed for that.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

__all__ = ["Points", "picture"]

Points = Sequence[tuple[float, float]]
"""What grows, and seconds."""

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 150, 44, 52
COLORS = {
    "RowDelta": "#0b6e4f",
    "RowDelta, rewritten": "#7a7a7a",
    "RowDelta, copied": "#7a7a7a",
    "RowDelta, merge-on-read": "#a16207",
    "delta-rs": "#c2410c",
    "Iceberg Java": "#1d4ed8",
    "Sail": "#be185d",
}
OTHER = "#7e22ce"
TICKS = 5
LABEL_HEIGHT = 15
LABEL_WIDTH = 50


def picture(title: str, axis: str, lines: Mapping[str, Points], *, logarithmic: bool = False) -> str:
    """A picture as SVG.

    Args:
        title: Above it.
        axis: What grows.
        lines: By engine, its points, in order.
        logarithmic: Whether the axis of what grows is.
    """
    places = sorted({at for points in lines.values() for at, _ in points})
    most = max(seconds for points in lines.values() for _, seconds in points)
    step = nice(most / TICKS)
    top = step * math.ceil(most / step)

    def scale(value: float) -> float:
        return math.log10(value) if logarithmic else value

    span = scale(places[-1]) - scale(places[0]) or 1.0

    def x(at: float) -> float:
        return LEFT + (scale(at) - scale(places[0])) / span * (WIDTH - LEFT - RIGHT)

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - seconds / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 24, title, size=15),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, axis, anchor="middle"),
        text(LEFT - 8, TOP - 14, "seconds", anchor="end"),
    ]
    for number in range(round(top / step) + 1):
        at = y(number * step)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#e0e0e0"/>')
        parts.append(text(LEFT - 8, at + 4, f"{number * step:g}", anchor="end"))
    parts += [text(x(at), HEIGHT - BOTTOM + 18, short(at), anchor="middle") for at in labelled(places, x)]
    ends = spread({name: y(points[-1][1]) for name, points in lines.items()})
    for name, points in lines.items():
        color = COLORS.get(name, OTHER)
        path = " ".join(f"{x(at):.1f},{y(seconds):.1f}" for at, seconds in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(at):.1f}" cy="{y(found):.1f}" r="3" fill="{color}"/>' for at, found in points]
        parts.append(text(x(points[-1][0]) + 10, ends[name] + 4, name, fill=color))
    return "\n".join([*parts, "</svg>", ""])


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, fill: str = "#333333") -> str:
    """Words at a place."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{fill}">{escape(words)}</text>'


def labelled(places: Sequence[float], x: Callable[[float], float]) -> list[float]:
    """Return the places on the axis whose labels do not overlap; always includes the first."""
    found = list(places[:1])
    for at in places[1:]:
        if x(at) - x(found[-1]) >= LABEL_WIDTH:
            found.append(at)
    return found


def nice(value: float) -> float:
    """A round number that is not less."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * 0.999)


def short(number: float) -> str:
    """A number in few letters."""
    for limit, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            return f"{number / limit:g} {letter}"
    return f"{number:g}"


def spread(places: Mapping[str, float]) -> dict[str, float]:
    """The places of labels, moved apart where they would cover each other."""
    found: dict[str, float] = {}
    free = -math.inf
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        free = max(place, free + LABEL_HEIGHT)
        found[name] = free
    return found
