"""Labels beside what they name, none on another: around points, and in a column at the ends of curves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from tinygpt.report.plots.palette import FAINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pixels = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top

RADII_POINTS = (7.0, 13.0, 21.0, 32.0, 46.0, 64.0)
ANGLES = (0, 45, -45, 90, -90, 135, -135, 180, 22, -22, 158, -158)
LEADER_FROM_POINTS = 8.0
MARGIN = 3.0  # pixels between a label and what it must not touch
MARKER = 6.0  # pixels from the centre of a point to its edge
CROSSING = 12.0  # what a leader across a curve costs, in points of distance
STEP = 4.0  # pixels between the samples of a curve
SIZE_POINTS = 8.0
GAP_POINTS = 11.0  # from line to line of a column
COLUMN_POINTS = 14.0  # on both sides of a column
EM = 0.6  # the width of a letter of DejaVu Sans over its size, about


@dataclass(frozen=True)
class Label:
    """A text and the point that it names, in the units of the axes."""

    text: str
    x: float
    y: float
    colour: str
    weight: str = "normal"


@dataclass
class _Taken:
    """What is already on the axes, in pixels: points of curves, boxes of labels and of markers."""

    points: list[Pixels]
    boxes: list[Box] = field(default_factory=list)

    def crossed(self, start: Pixels, end: Pixels) -> int:
        """Return how often the way from a marker to its label meets a curve, a label or another marker."""
        way = [point for point in _between(start, end) if math.dist(point, start) > 2 * MARKER]
        cells = {_cell(point) for point in self.points}
        return sum(_cell(point) in cells or any(_inside(point, box) for box in self.boxes) for point in way)

    def cost(self, box: Box, inside: Box) -> float:
        """Return how badly a box would cover what is there, or stand out of the axes."""
        out = sum(max(0.0, gap) for gap in (
            inside[0] - box[0], inside[1] - box[1], box[2] - inside[2], box[3] - inside[3],
        ))  # fmt: skip
        covered = sum(_overlap(box, other) for other in self.boxes)
        hidden = sum(_inside(point, box) for point in self.points)
        return 20 * out + 5 * covered + 30 * hidden


def place(axes: "Axes", labels: Sequence[Label], curves: Sequence[Sequence[tuple[float, float]]] = ()) -> None:
    """Put each label beside its point, off the other labels, the points and the curves; a far one gets a leader.

    Args:
        axes: Where they are; its limits are final.
        labels: In the order of choice: the first has the best place.
        curves: Lines that no label should stand on, in the units of the axes.
    """
    scale = axes.figure.dpi / 72
    bounds = axes.get_window_extent()
    inside = (bounds.x0, bounds.y0, bounds.x1, bounds.y1)
    points = [_pixels(axes, (label.x, label.y)) for label in labels]
    taken = _Taken(
        [sample for curve in curves for sample in _samples(axes, curve)],
        [(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in points],
    )
    for label, (x, y) in zip(labels, points, strict=True):
        text = axes.annotate(
            label.text, (label.x, label.y), (0, 0), textcoords="offset points", fontsize=SIZE_POINTS,
            color=label.colour, fontweight=label.weight, zorder=6, annotation_clip=False,
        )  # fmt: skip
        extent = text.get_window_extent()
        choices = []
        for radius in RADII_POINTS:
            for angle in ANGLES:
                box = _box((x, y), (extent.width, extent.height), radius * scale, angle)
                end = (min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3]))
                cost = taken.cost(_padded(box), inside) + radius + CROSSING * taken.crossed((x, y), end)
                choices.append((cost, radius, box, end))
        _, radius, box, end = min(choices, key=lambda choice: choice[0])
        text.set_position(((box[0] - x) / scale, (box[1] - y) / scale))
        taken.boxes.append(box)
        if radius > LEADER_FROM_POINTS:
            taken.points += _between((x, y), end)
            xy = axes.transData.inverted().transform(end)
            axes.plot([label.x, xy[0]], [label.y, xy[1]], color=FAINT, linewidth=0.6, zorder=2, scalex=False,
                      scaley=False)  # fmt: skip


def beside(axes: "Axes", labels: Sequence[Label]) -> None:
    """Put the labels in a column at the right of the axes, each as near the height of its point as the others allow.

    The axes become as narrow as the column needs.
    """
    scale = axes.figure.dpi / 72
    column_points = 2 * COLUMN_POINTS + EM * SIZE_POINTS * max(len(label.text) for label in labels)
    axes.figure.subplots_adjust(right=1 - column_points * scale / axes.figure.bbox.width)
    right = axes.get_window_extent().x1
    ordered = sorted(labels, key=lambda label: label.y)
    heights = [_pixels(axes, (label.x, label.y)) for label in ordered]
    for label, (x, y), height in zip(
        ordered, heights, spread([y for _, y in heights], GAP_POINTS * scale), strict=True
    ):
        offset = ((right - x) / scale + COLUMN_POINTS, (height - y) / scale)
        axes.annotate(
            label.text, (label.x, label.y), offset, textcoords="offset points", va="center", fontsize=SIZE_POINTS,
            color=label.colour, annotation_clip=False, zorder=1.5,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 5,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return the heights, ascending, moved as little as possible (in squares) until each is a gap above the one below.

    Heights less their share of gaps must not fall, and the nearest such sequence is the isotonic regression: whoever
    stands too low joins the group below, which stands at its mean.
    """
    groups: list[list[float]] = []
    for index, height in enumerate(heights):
        groups.append([height - index * gap])
        while len(groups) > 1 and _mean(groups[-2]) > _mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    level = [_mean(group) for group in groups for _ in group]
    return [height + index * gap for index, height in enumerate(level)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _pixels(axes: "Axes", point: tuple[float, float]) -> Pixels:
    x, y = axes.transData.transform(point)
    return float(x), float(y)


def _samples(axes: "Axes", curve: Sequence[tuple[float, float]]) -> list[Pixels]:
    ends = [_pixels(axes, point) for point in curve]
    return [sample for pair in pairwise(ends) for sample in _between(*pair)]


def _between(start: Pixels, end: Pixels) -> list[Pixels]:
    """Return points on the way from one to the other, close enough that no label fits between them."""
    count = max(1, math.ceil(math.dist(start, end) / STEP))
    return [
        (start[0] + (end[0] - start[0]) * step / count, start[1] + (end[1] - start[1]) * step / count)
        for step in range(count + 1)
    ]


def _box(point: Pixels, size: tuple[float, float], radius: float, angle: int) -> Box:
    """Return the box of a text whose nearest side is so far from the point, in that direction."""
    across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    left = point[0] + radius * across - size[0] * (1 - across) / 2
    bottom = point[1] + radius * up - size[1] * (1 - up) / 2
    return left, bottom, left + size[0], bottom + size[1]


def _cell(point: Pixels) -> tuple[int, int]:
    return round(point[0] / STEP), round(point[1] / STEP)


def _inside(point: Pixels, box: Box) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _padded(box: Box) -> Box:
    return box[0] - MARGIN, box[1] - MARGIN, box[2] + MARGIN, box[3] + MARGIN


def _overlap(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)
