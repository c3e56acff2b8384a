"""The depth: how the peak of each policy grows with the number of blocks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinygpt.report.plots.contents import Depth, Source
from tinygpt.report.plots.labels import Label, beside
from tinygpt.report.plots.palette import styles
from tinygpt.report.plots.sheet import sheet
from tinygpt.units import GIB, format_mib

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def depth(depths: Sequence[Depth], row: str, source: Source) -> "Figure":
    """Draw the peak over ``n_layer``: measured points, and the estimate as a line."""
    figure = sheet(f"Peak memory over depth: {row}", "Points are measured, lines are the arithmetic estimate.", source)
    axes = figure.add_subplot()
    labels = []
    chosen = styles(list(dict.fromkeys(d.policy for d in depths)))
    for policy, style in chosen.items():
        own = sorted((d for d in depths if d.policy == policy), key=lambda d: d.n_layer)
        axes.plot(
            [d.n_layer for d in own], [d.peak_bytes / GIB for d in own], style.marker, color=style.colour, markersize=6,
            markeredgecolor="white", markeredgewidth=0.7, zorder=4, clip_on=False,
        )  # fmt: skip
        estimated = [(d.n_layer, d.estimate_bytes / GIB) for d in own if d.estimate_bytes is not None]
        if estimated:
            (line,) = axes.plot(*zip(*estimated, strict=True), color=style.colour, linewidth=1.3, zorder=3)
            line.set_dashes(style.dashes) if style.dashes else None
        labels.append(Label(_text(own), own[-1].n_layer, own[-1].peak_bytes / GIB, style.text_colour))
    axes.set_ylim(0, axes.get_ylim()[1])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(sorted({d.n_layer for d in depths}))
    axes.set_xlabel("n_layer, blocks")
    axes.set_ylabel("peak memory, GiB")
    beside(axes, labels)
    return figure


def _text(own: Sequence[Depth]) -> str:
    """Return the policy with what a block adds between its least and its greatest depth."""
    first, last = own[0], own[-1]
    if first.n_layer == last.n_layer:
        return first.policy
    slope = (last.peak_bytes - first.peak_bytes) / (last.n_layer - first.n_layer)
    return f"{first.policy}: {format_mib(slope)} a block"
