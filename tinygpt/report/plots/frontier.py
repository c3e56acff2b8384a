"""The frontier: what each policy of a row costs in time for what it saves in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinygpt.report.plots.contents import Record, Source
from tinygpt.report.plots.labels import Label, place
from tinygpt.report.plots.palette import BLUE, FAINT, INK, SOFT
from tinygpt.report.plots.sheet import TIMES, sheet
from tinygpt.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_POLICIES = 2
RIGHT = 0.905  # of the width; the second axis stands beyond


@dataclass(frozen=True)
class Point:
    """A policy: its step over the plain step, its peak in GiB, and whether the wrapper is ours or plain MLX."""

    name: str
    time: float
    peak_gib: float
    ours: bool


def plain_of(records: Sequence[Record]) -> Record | None:
    """Return the plain run among the records of MLX, if there is one."""
    plain = [r for r in records if r.framework == "mlx" and r.wrapper == "plain"]
    none = [r for r in records if r.framework == "mlx" and r.wrapper == "tinygpt" and r.policy == "none"]
    return next(iter(plain + none), None)


def lacks(records: Sequence[Record]) -> str:
    """Return why the records of a row make no frontier, or nothing if they do."""
    if plain_of(records) is None:
        return "no plain run of MLX"
    policies = {r.policy for r in records if r.wrapper == "tinygpt" and r.policy != "none"}
    return "" if len(policies) >= LEAST_POLICIES else f"fewer than {LEAST_POLICIES} policies"


def pareto(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in both time and peak, from the fastest to the smallest."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.time, p.peak_gib)):
        if not best or point.peak_gib < best[-1].peak_gib:
            best.append(point)
    return best


def frontier(records: Sequence[Record], source: Source) -> "Figure":
    """Draw peak against step time, a point a policy, the Pareto frontier as a line.

    Args:
        records: Of one row and one setting, with a plain run of MLX among them. PyTorch is left out: its plain step is
            another one.
        source: For the footer.
    """
    plain = plain_of(records)
    if plain is None:
        raise ValueError("[plots] frontier: got no plain run of MLX, expected one")
    points = [
        Point(_name(r), r.step_s / plain.step_s, r.peak_bytes / GIB, r.wrapper in ("tinygpt", "plain"))
        for r in records
        if r.framework == "mlx"
    ]
    figure = sheet(
        f"Peak memory against step time: {plain.row}",
        f"MLX {plain.setting.mode}, {plain.setting.rest}. Lower left is better; on the line, "
        "nothing is both smaller and faster.",
        source,
    )
    figure.subplots_adjust(right=RIGHT)
    axes = figure.add_subplot()
    _limits(axes, points)
    best = pareto(points)
    stairs = _stairs(best, axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot(*zip(*stairs, strict=True), color=BLUE, linewidth=1.3, alpha=0.75, zorder=3, solid_joinstyle="miter")
    for point in points:
        colour = BLUE if point in best else SOFT
        axes.plot(
            point.time, point.peak_gib, "o", color=colour if point.ours else "white", markeredgecolor=colour,
            markeredgewidth=1.3, markersize=6.5, zorder=5,
        )  # fmt: skip
    place(axes, [_label(point, point in best) for point in sorted(points, key=lambda p: p not in best)], [stairs])
    axes.set_xlabel(f"step time, {TIMES} the plain step")
    axes.set_ylabel("peak memory, GiB")
    _shares(axes, plain.peak_bytes / GIB)
    return figure


def _name(record: Record) -> str:
    if record.wrapper == "tinygpt":
        return record.policy
    return record.wrapper if record.policy in ("none", "all") else f"{record.wrapper} {record.policy}"


def _label(point: Point, on_line: bool) -> Label:
    return Label(point.name, point.time, point.peak_gib, INK if on_line else SOFT, "bold" if on_line else "normal")


def _limits(axes: "Axes", points: Sequence[Point]) -> None:
    """Leave room for the labels around the points."""
    for low, high, set_limits, more in (
        (min(p.time for p in points), max(p.time for p in points), axes.set_xlim, (0.08, 0.16)),
        (min(p.peak_gib for p in points), max(p.peak_gib for p in points), axes.set_ylim, (0.12, 0.10)),
    ):
        width = (high - low) or high * 0.1
        set_limits(max(0.0, low - more[0] * width), high + more[1] * width)


def _stairs(best: Sequence[Point], right: float, top: float) -> list[tuple[float, float]]:
    """Return the frontier as stairs: between two policies, the memory of the faster one is what can be had."""
    stairs = [(best[0].time, top)]
    for before, point in zip([None, *best], best, strict=False):
        stairs += [(point.time, before.peak_gib)] if before else []
        stairs.append((point.time, point.peak_gib))
    return [*stairs, (right, best[-1].peak_gib)]


def _shares(axes: "Axes", plain_gib: float) -> None:
    """Add the peak as a share of plain on the right."""

    def share(peak_gib: Any) -> Any:
        return peak_gib / plain_gib * 100

    def peak(share: Any) -> Any:
        return share * plain_gib / 100

    right = axes.secondary_yaxis("right", functions=(share, peak))
    right.set_ylabel("of the plain peak, %")
    right.spines["right"].set_visible(False)
    right.tick_params(color=FAINT)
