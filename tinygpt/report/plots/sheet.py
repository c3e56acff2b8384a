"""The sheet that every picture is drawn on: its fonts, title, footer, and how it becomes bytes.

The only module that loads matplotlib. Nothing of the user's own settings, the clock or chance reaches the bytes, so
that the same numbers give the same file.
"""

import io
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tinygpt.errors import ReportError
from tinygpt.report.plots.contents import Source
from tinygpt.report.plots.labels import EM
from tinygpt.report.plots.palette import FAINT, INK, RULE, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")

SIZE_IN = (7.2, 4.8)
LEFT_IN, TOP_IN, BOTTOM_IN = 0.75, 0.70, 1.02
EDGE_IN = 0.16
FOOTER_POINTS = 6.5
TIMES = "\N{MULTIPLICATION SIGN}"

LOOK: dict[Any, Any] = {
    # DejaVu comes with matplotlib, so that a PNG is the same everywhere; Verdana is as wide, for an SVG without it.
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 8.5,
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.labelpad": 6,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "svg.hashsalt": "tinygpt",
}


@contextmanager
def look() -> Iterator[None]:
    """Draw in the look of these pictures; matplotlib's own settings are as before afterwards.

    Raises:
        ReportError: matplotlib is not installed, or cannot be loaded.
    """
    try:
        import matplotlib  # noqa: PLC0415  (only who draws needs it)
        import matplotlib.backends.backend_agg  # noqa: PLC0415
        import matplotlib.figure  # noqa: PLC0415
    except ImportError as error:
        got = "none" if error.name == "matplotlib" else (str(error).splitlines() or ["none"])[0]
        raise ReportError(
            f"[plots] matplotlib: got {got}, expected 3.9 or later: pip install 'tinygpt[plots]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(LOOK)
        yield


def sheet(title: str, subtitle: str, source: Source, size_in: tuple[float, float] = SIZE_IN) -> "Figure":
    """Return an empty figure with its title above and its source below; the middle is left for the axes.

    Args:
        title: What is shown, of what.
        subtitle: How to read it.
        source: Where the numbers come from.
        size_in: Width and height in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.lines import Line2D  # noqa: PLC0415

    width, height = size_in
    figure = Figure(figsize=size_in, facecolor="white")
    FigureCanvasAgg(figure)  # measures texts
    figure.subplots_adjust(left=LEFT_IN / width, right=0.97, top=1 - TOP_IN / height, bottom=BOTTOM_IN / height)
    left = EDGE_IN / width
    figure.text(left, 1 - 0.15 / height, title, va="top", fontsize=11.5, fontweight="bold")
    figure.text(left, 1 - 0.40 / height, subtitle, va="top", fontsize=8, color=SOFT)
    columns = int((width - 2 * EDGE_IN) * 72 / (FOOTER_POINTS * EM))
    figure.text(
        left, EDGE_IN / height, _footer(source, columns), va="bottom", fontsize=FOOTER_POINTS, color=SOFT,
        linespacing=1.45,
    )  # fmt: skip
    rule = (EDGE_IN + 0.36) / height
    figure.add_artist(Line2D([left, 1 - left], [rule, rule], color=FAINT, linewidth=0.4))
    return figure


def rendered(figure: "Figure", title: str) -> dict[str, bytes]:
    """Return the picture in each format, without the time and without matplotlib's release."""
    without = {"svg": {"Title": title, "Date": None, "Creator": None}, "png": {"Title": title, "Software": None}}
    found = {}
    for form in FORMATS:
        stream = io.BytesIO()
        figure.savefig(stream, format=form, metadata=without[form])
        found[form] = stream.getvalue()
    return found


def _footer(source: Source, columns: int) -> str:
    """Return two lines: the machine, then releases, file and date."""
    second = ["; ".join(part for part in (source.packages, f"file {source.file}", source.date) if part)]
    return "\n".join(textwrap.shorten(line, columns, placeholder="…") for line in (source.machine, *second))
