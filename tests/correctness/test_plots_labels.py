"""Labels of a picture stand apart, near what they name, and on nothing."""

import itertools
import math

import pytest

from tinygpt.report.plots.labels import spread

HEIGHTS = {
    "far apart": [0.0, 20.0, 40.0],
    "all at one place": [5.0, 5.0, 5.0, 5.0],
    "a pair and one": [0.0, 1.0, 50.0],
    "one": [3.0],
    "none": [],
}


@pytest.mark.parametrize("heights", HEIGHTS.values(), ids=HEIGHTS)
def test_spread_keeps_labels_apart_and_near(heights):
    """Labels end a gap apart, those that were stay where they were, and a crowd keeps its middle."""
    found = spread(heights, 10.0)

    assert all(after - before >= 10 - 1e-9 for before, after in itertools.pairwise(found))
    assert math.isclose(sum(found), sum(heights), abs_tol=1e-9)
    if all(after - before >= 10 for before, after in itertools.pairwise(heights)):
        assert found == heights


def test_labels_do_not_overlap():
    """Labels of a crowd of points stand on neither another label nor a point, and inside the axes."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    from tinygpt.report.plots.labels import Label, place  # noqa: PLC0415

    figure = Figure(figsize=(7, 5))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    points = [(0.5 + 0.02 * (n % 3), 0.5 + 0.03 * (n // 3)) for n in range(9)]

    place(axes, [Label(f"policy:{n}", x, y, "black") for n, (x, y) in enumerate(points)])

    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 9
    assert [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)] == []
    assert [box for box in boxes for x, y in axes.transData.transform(points) if box.contains(x, y)] == []
    assert all(axes.bbox.contains(*corner) for box in boxes for corner in box.corners())
