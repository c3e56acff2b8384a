"""Side by side: the peak of every row under each wrapper and each framework."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinygpt.report.plots.contents import Record, Setting, Source
from tinygpt.report.plots.palette import BLUE, GREEN, ORANGE, SKY, SOFT, VERMILION
from tinygpt.report.plots.sheet import BOTTOM_IN, SIZE_IN, TIMES, TOP_IN, sheet
from tinygpt.units import GIB, format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Series:
    """One bar of every row: which record it is, and how it looks."""

    name: str
    framework: str
    wrapper: str
    policies: tuple[str, ...]
    colour: str


SERIES = (
    Series("plain MLX", "mlx", "plain", ("none",), "#4D4D4D"),
    Series("tinygpt, all", "mlx", "tinygpt", ("all",), BLUE),
    Series("mlx.nn", "mlx", "mlx.nn", ("all",), SKY),
    Series("seed-recipe", "mlx", "seed-recipe", ("all",), GREEN),
    Series("torch plain", "torch", "", ("none",), "#A6A6A6"),
    Series("torch full", "torch", "", ("full", "all"), VERMILION),
    Series("torch selective", "torch", "", ("selective",), ORANGE),
)

ONE_COLUMN_UP_TO = 3  # rows; more of them stand in two columns
BAR_IN, ROW_EXTRA_IN = 0.19, 0.34
NAMES_IN, VALUES_IN, EDGE_IN = 1.25, 1.15, 0.2  # beside the bars
ORDER_OF_MAGNITUDE = 10

Bars = dict[Series, Record]


def settings(records: Sequence[Record]) -> list[Setting]:
    """Return what deserves a picture of its own: the settings of MLX, PyTorch's only where there is no MLX."""
    ours = [record for record in records if record.framework == "mlx"] or records
    return list(dict.fromkeys(record.setting for record in ours))


def rows_of(records: Sequence[Record], setting: Setting) -> dict[str, Bars]:
    """Return the bars of every row that has one. PyTorch's may be eager where MLX is compiled, or the other way."""
    found: dict[str, Bars] = {}
    for row in dict.fromkeys(record.row for record in records):
        bars = {}
        for series in SERIES:
            fitting = [r for r in records if r.row == row and _fits(r, series, setting)]
            if fitting:
                bars[series] = min(fitting, key=lambda r: r.setting != setting)
        if bars:
            found[row] = bars
    return found


def side_by_side(rows: dict[str, Bars], setting: Setting, source: Source) -> "Figure":
    """Draw the bars of every row, on one axis of bytes, which is logarithmic where rows differ tenfold.

    Args:
        rows: As ``rows_of`` returns them; not empty.
        setting: That of the MLX records.
        source: For the footer.
    """
    columns = 1 if len(rows) <= ONE_COLUMN_UP_TO else 2
    lines = math.ceil(len(rows) / columns)
    tallest = max(map(len, rows.values()))
    height = TOP_IN + BOTTOM_IN + 0.3 + lines * (tallest * BAR_IN + ROW_EXTRA_IN)
    width = SIZE_IN[0] if columns == 1 else 10.0
    figure = sheet("Peak memory side by side", _subtitle(rows, setting), source, (width, height))
    figure.subplots_adjust(
        left=NAMES_IN / width, right=1 - EDGE_IN / width, top=1 - (TOP_IN + 0.3) / height,
        wspace=NAMES_IN / _axes_in(width, columns),
        hspace=ROW_EXTRA_IN / (tallest * BAR_IN),
    )  # fmt: skip
    shared = None
    for index, (row, bars) in enumerate(rows.items()):
        # Down the first column, then down the second.
        shared = axes = figure.add_subplot(lines, columns, index % lines * columns + index // lines + 1, sharex=shared)
        _draw(axes, bars, tallest)
        axes.set_title(row, loc="left", fontsize=9, fontweight="bold", pad=3)
        last = index % lines == lines - 1 or index == len(rows) - 1
        axes.tick_params(axis="x", which="major", labelbottom=last, length=3 if last else 0)
        axes.tick_params(axis="x", which="minor", length=1.5 if last else 0)
        axes.spines["bottom"].set_visible(last)
        axes.set_xlabel("peak memory, GiB" if last else "")
    peaks = [record.peak_bytes / GIB for bars in rows.values() for record in bars.values()]
    _scale(figure.axes, peaks, VALUES_IN / _axes_in(width, columns))
    return figure


def _axes_in(width_in: float, columns: int) -> float:
    """Return how wide the axes of one row are."""
    return (width_in - columns * NAMES_IN - EDGE_IN) / columns


def _fits(record: Record, series: Series, setting: Setting) -> bool:
    if record.framework != series.framework or record.policy not in series.policies:
        return False
    if (record.setting.clip_norm, record.setting.dtype) != (setting.clip_norm, setting.dtype):
        return False
    return record.framework == "torch" or (record.wrapper, record.setting) == (series.wrapper, setting)


def _subtitle(rows: dict[str, Bars], setting: Setting) -> str:
    shown = [record for bars in rows.values() for record in bars.values()]
    names = (("mlx", "MLX"), ("torch", "PyTorch"))
    modes = [
        f"{name} {' and '.join(sorted({r.setting.mode for r in shown if r.framework == key}))}"
        for key, name in names
        if any(r.framework == key for r in shown)
    ]
    missing = {s.name: sum(s not in bars for bars in rows.values()) for s in SERIES}
    gaps = ", ".join(f"{count} {name}" for name, count in missing.items() if count)
    counted = (
        f"Missing: {sum(missing.values())} of {len(SERIES) * len(rows)} bars ({gaps})."
        if gaps
        else "No bar is missing."
    )
    return f"{', '.join(modes)}, {setting.rest}. Ratios are to the plain run of the same framework.\n{counted}"


def _draw(axes: "Axes", bars: Bars, tallest: int) -> None:
    plain = {series.framework: record.peak_bytes for series, record in bars.items() if "none" in series.policies}
    for place, (series, record) in enumerate(bars.items()):
        axes.barh(place, record.peak_bytes / GIB, height=0.78, color=series.colour)
        ratio = record.peak_bytes / plain[series.framework] if series.framework in plain else None
        text = format_bytes(record.peak_bytes)
        if ratio is not None and "none" not in series.policies:
            text += f"   {ratio:.2f}{TIMES}"
        axes.annotate(
            text,
            (record.peak_bytes / GIB, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            zorder=1.5,
        )
    axes.set_yticks(range(len(bars)), [series.name for series in bars], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(tallest - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_color(SOFT)


def _scale(every_axes: Sequence["Axes"], peaks_gib: Sequence[float], free: float) -> None:
    """Set the axis that all share; so much of its width stays free for the values behind the longest bar."""
    low, high = min(peaks_gib), max(peaks_gib)
    first = every_axes[0]  # the others share its axis
    if high < ORDER_OF_MAGNITUDE * low:
        first.set_xlim(0, high / (1 - free))
        return
    for axes in every_axes:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set_xlabel(axes.get_xlabel() and "peak memory, GiB (logarithmic)")
    first.set_xlim(low / 2, high * (2 * high / low) ** (free / (1 - free)))
