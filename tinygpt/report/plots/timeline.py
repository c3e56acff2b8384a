"""The timeline: the memory that each policy holds in the course of one step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinygpt.report.plots.contents import Source, Timeline
from tinygpt.report.plots.labels import Label, beside
from tinygpt.report.plots.palette import styles
from tinygpt.report.plots.sheet import sheet
from tinygpt.units import GIB, format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONG_S = 10.0  # from here on in seconds, below in milliseconds


def timeline(timelines: Sequence[Timeline], row: str, source: Source) -> "Figure":
    """Draw the active memory over the time of one step, a curve a policy, each named at the height of its peak."""
    last_s = max(time_s for each in timelines for time_s, _ in each.samples)
    unit, per_unit = ("s", 1.0) if last_s >= LONG_S else ("ms", 1e3)
    figure = sheet(
        f"Active memory during one step: {row}",
        "Each curve is named at the height of its peak, which is marked.",
        source,
    )
    axes = figure.add_subplot()
    chosen = styles([each.policy for each in timelines])
    curves, labels = [], []
    for each in timelines:
        style = chosen[each.policy]
        curve = [(time_s * per_unit, size_bytes / GIB) for time_s, size_bytes in each.samples]
        (line,) = axes.plot(*zip(*curve, strict=True), color=style.colour, linewidth=1.4, zorder=3)
        line.set_dashes(style.dashes) if style.dashes else None
        time, peak = max(curve, key=lambda sample: sample[1])
        axes.plot(
            time, peak, style.marker, color=style.colour, markersize=6, markeredgecolor="white", markeredgewidth=0.7,
            zorder=5,
        )  # fmt: skip
        curves.append(curve)
        labels.append(Label(f"{each.policy}: {format_bytes(peak * GIB)}", time, peak, style.text_colour))
    axes.set_xlim(min(x for curve in curves for x, _ in curve), last_s * per_unit * 1.02)
    axes.set_ylim(0, max(y for curve in curves for _, y in curve) * 1.12)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"time since the step began, {unit}")
    axes.set_ylabel("active memory, GiB")
    beside(axes, labels)
    return figure
