"""Line charts as inline SVG: points with intervals; lines have a mark and a dash beside their colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, isfinite, log10

import msgspec

from doctor.report.document import text

__all__ = ["Chart", "Line", "Spot", "draw", "ticks"]

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 68, 16, 34, 44
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_SIZE_MAX = 1e15
#: Lines in one chart that are told apart: more go into another chart.
_LINES_MAX = 4


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """A value, and its interval where it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Spots in rising order of x; a gap where a value is missing is one line more."""

    name: str
    spots: tuple[Spot, ...]
    has_marks: bool = True


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn; `marks` are vertical lines with a word."""

    title: str
    x_name: str
    y_name: str
    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...] = ()
    x_range: tuple[float, float] | None = None
    height: int = 300
    is_log: bool = False
    """The y axis; values of 0 and less are not drawn then."""


class _Frame(msgspec.Struct, frozen=True):
    """From values to places on the page."""

    x0: float
    x1: float
    y0: float
    y1: float
    height: int
    is_log: bool

    def x(self, value: float) -> str:
        share = (value - self.x0) / (self.x1 - self.x0)
        return f"{_LEFT + share * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def y(self, value: float) -> str:
        at = log10(value) if self.is_log else value
        share = min(1.0, max(0.0, (at - self.y0) / (self.y1 - self.y0)))
        return f"{self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM):.1f}"


def draw(chart: Chart, *, name: str) -> str:
    """The chart as an SVG element, its ids made unique by `name`; empty when there is nothing to draw."""
    frame = _frame(chart)
    if frame is None:
        return ""
    label = f'role="img" aria-labelledby="{name}-t {name}-d"'
    body = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {chart.height}" {label}>',
        f'<title id="{name}-t">{text(chart.title)}</title>',
        f'<desc id="{name}-d">{text(_described(chart))}; the same values are in the table below</desc>',
        *_axes(chart, frame),
        *_marks(chart, frame),
    ]
    for n, line in enumerate(chart.lines[:_LINES_MAX]):
        body += _line(line, n, frame)
    body += _legend(chart.lines[:_LINES_MAX])
    return "\n".join([*body, "</svg>"])


def _described(chart: Chart) -> str:
    return f"{', '.join(line.name for line in chart.lines)} against {chart.x_name}"


def _frame(chart: Chart) -> _Frame | None:
    spots = [spot for line in chart.lines for spot in line.spots if _drawn(spot, is_log=chart.is_log)]
    if not spots:
        return None
    xs = [spot.x for spot in spots]
    ys = [y for spot in spots for y in (spot.y, spot.low, spot.high) if y is not None and isfinite(y)]
    low_x, high_x = chart.x_range or (min(0.0, *xs, 0.0), max(xs))
    if chart.is_log:
        ys = [log10(y) for y in ys if y > 0]
        low_y, high_y = float(floor(min(ys))), float(ceil(max(ys)))
    else:
        low_y, high_y = min(0.0, *ys, 0.0), max(ys)
    low_x, high_x = _apart(low_x, high_x)
    low_y, high_y = _apart(low_y, high_y)
    top = high_y if chart.is_log else low_y + (high_y - low_y) * 1.05
    return _Frame(low_x, high_x, low_y, top, chart.height, chart.is_log)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Two ends that differ: where all values are the same, the axis has the length of their size."""
    size = max(abs(low), abs(high))
    return (low, high) if high - low > 1e-9 * size else (low, low + (size or 1.0))


def _drawn(spot: Spot, *, is_log: bool) -> bool:
    """Beyond these sizes nothing was measured, and sums of them overflow."""
    sizes = [abs(value) for value in (spot.x, spot.y, spot.low or 0.0, spot.high or 0.0)]
    return all(isfinite(size) and size < _SIZE_MAX for size in sizes) and (spot.y > 0 or not is_log)


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round values between two, at steps of 1, 2 or 5."""
    rough = (high - low) / wanted
    power = 10.0 ** floor(log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
    first = ceil(low / step - 1e-9)
    return [n * step for n in range(first, floor(high / step + 1e-9) + 1)]


def _label(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _axes(chart: Chart, frame: _Frame) -> Iterator[str]:
    bottom = chart.height - _BOTTOM
    values = (
        [10.0**n for n in range(int(frame.y0), int(frame.y1) + 1)]
        if chart.is_log
        else ticks(frame.y0, frame.y1, 5)
    )
    for value in values:
        y = frame.y(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y}" dy="4" text-anchor="end">{_label(value)}</text>'
    for value in ticks(frame.x0, frame.x1, 8):
        x = frame.x(value)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}"/>'
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{_label(value)}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    foot = f'x="{middle}" y="{chart.height - 8}" text-anchor="middle"'
    yield f'<text class="faint" {foot}>{text(chart.x_name)}</text>'
    yield f'<text class="faint" x="8" y="16">{text(chart.y_name)}</text>'


def _marks(chart: Chart, frame: _Frame) -> Iterator[str]:
    for at, word in chart.marks:
        if frame.x0 <= at <= frame.x1:
            x = frame.x(at)
            yield f'<line class="mark" x1="{x}" x2="{x}" y1="{_TOP}" y2="{chart.height - _BOTTOM}"/>'
            end = ' text-anchor="end"' if float(x) > _WIDTH * 0.7 else ""
            place = f'x="{x}" dx="{-4 if end else 4}" y="{_TOP + 10}"{end}'
            yield f'<text class="faint" {place}>{text(word[:60])}</text>'


def _line(line: Line, n: int, frame: _Frame) -> Iterator[str]:
    spots = [spot for spot in line.spots if _drawn(spot, is_log=frame.is_log)]
    dash = f' stroke-dasharray="{_DASHES[n]}"' if _DASHES[n] else ""
    if len(spots) > 1:
        path = " ".join(f"{frame.x(spot.x)},{frame.y(spot.y)}" for spot in spots)
        yield f'<polyline class="line s{n}"{dash} points="{path}"/>'
    for spot in spots:
        if spot.low is not None and spot.high is not None and (spot.low > 0 or not frame.is_log):
            x, low, high = frame.x(spot.x), frame.y(spot.low), frame.y(spot.high)
            yield f'<path class="span s{n}" d="M{x} {low}V{high}m-4 0h8M{x} {low}m-4 0h8"/>'
        if line.has_marks or len(spots) == 1:
            yield _mark(n, float(frame.x(spot.x)), float(frame.y(spot.y)))


def _mark(n: int, x: float, y: float) -> str:
    """A disc, a square, a triangle, a diamond: told apart without their colour."""
    shapes = (
        f'<circle class="s{n}" cx="{x}" cy="{y}" r="4"/>',
        f'<rect class="s{n}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>',
        f'<path class="s{n}" d="M{x} {y - 5:.1f}l5 9h-10z"/>',
        f'<path class="s{n}" d="M{x} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>',
    )
    return shapes[n]


def _legend(lines: Sequence[Line]) -> Iterable[str]:
    x = _WIDTH - _RIGHT - 130 * len(lines)
    for n, line in enumerate(lines):
        yield _mark(n, x + 6, 14)
        yield f'<text x="{x + 16}" y="18">{text(line.name[:20])}</text>'
        x += 130
