"""The timeline of a load in HTML: a strip for each quantity, on one clock, and a table of what is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from doctor.core.load import Series, Timeline
from doctor.report.document import text
from doctor.report.svg import Chart, Line, Spot, draw

__all__ = ["timeline"]

#: Strips on a page, and points in each: a run of an hour has 3600 of them.
_STRIPS_MAX = 24
_POINTS_MAX = 120
_ORDER = ("client", "engine", "gpu")
_MARKS_MAX = 40


def timeline(value: Timeline) -> Iterator[str]:
    """A section, or nothing where nothing was recorded."""
    shown = sorted(value.series, key=lambda series: _ORDER.index(series.source))[:_STRIPS_MAX]
    told = [(series, spots) for series in shown if (spots := _thinned(series))]
    if not told:
        return
    begin = min(spots[0].x for _, spots in told)
    end = max(spots[-1].x for _, spots in told)
    yield "<section><h2>Timeline</h2>"
    if len(value.series) > len(shown):
        yield f"<p>{len(shown)} of {len(value.series)} quantities are shown.</p>"
    yield from _marks(value)
    for n, (series, spots) in enumerate(told):
        title = f"{series.name} ({series.source})"
        chart = Chart(
            title=title,
            x_name="seconds since the start",
            y_name=series.unit or "count",
            lines=(Line(name=series.name, spots=tuple(spots), has_marks=False),),
            marks=value.marks[:_MARKS_MAX],
            x_range=(begin, end),
            height=170,
        )
        yield f"<figure><figcaption>{text(title)}</figcaption>{draw(chart, name=f'time-{n}')}</figure>"
        yield from _table(series, spots)
    yield "</section>"


def _thinned(series: Series) -> list[Spot]:
    """At most 120 points: the mean of each piece of time, with its least and greatest value."""
    pairs = [
        (t, v)
        for t, v in zip(series.t_s, series.values, strict=False)
        if v is not None and isfinite(v) and isfinite(t)
    ]
    pairs.sort()
    size = -(-len(pairs) // _POINTS_MAX)
    spots = []
    for n in range(0, len(pairs), size or 1):
        piece = pairs[n : n + size]
        values = [v for _, v in piece]
        at = sum(t for t, _ in piece) / len(piece)
        spread = (min(values), max(values)) if size > 1 else (None, None)
        spots.append(Spot(x=at, y=sum(values) / len(values), low=spread[0], high=spread[1]))
    return spots


def _marks(value: Timeline) -> Iterator[str]:
    if value.marks:
        rows = "".join(f"<li>{at:.1f} s: {text(word)}</li>" for at, word in value.marks[:_MARKS_MAX])
        yield f"<p>Events:</p><ul>{rows}</ul>"


def _table(series: Series, spots: list[Spot]) -> Iterator[str]:
    """What is drawn, in figures: least and greatest where points stand for several."""
    unit = text(series.unit or "count")
    yield f'<details><summary>{text(series.name)} as a table</summary><div class="scroll"><table>'
    yield f'<thead><tr><th scope="col">s</th><th scope="col">{unit}</th>'
    yield '<th scope="col">least</th><th scope="col">greatest</th></tr></thead><tbody>'
    for spot in spots:
        low = spot.y if spot.low is None else spot.low
        high = spot.y if spot.high is None else spot.high
        cells = "".join(f"<td>{value:.6g}</td>" for value in (spot.y, low, high))
        yield f'<tr><th scope="row">{spot.x:.2f}</th>{cells}</tr>'
    yield "</tbody></table></div></details>"
