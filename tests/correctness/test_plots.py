"""The pictures come from their JSON alone: complete, the same every time, or one line that says why not."""

import copy
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tinygpt.errors import ReportError
from tinygpt.report.plots import draw

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
ROW = "behemoth 4x1024"
PNG = b"\x89PNG\r\n\x1a\n"

# One row in both frameworks, another that is too small for a frontier, and a run that ended in an error; attention is
# behind selective in both time and memory.
WHOLE = json.loads(Path(__file__).with_name("files").joinpath("plots.json").read_text())
RECORDS, DEPTHS, TIMELINES = (WHOLE[name] for name in ("records", "depths", "timelines"))
SOURCE = {name: WHOLE[name] for name in ("environment", "date")}
LEFT_OUT = (
    f"records[9]: {ROW} torch full has an error and no reading",
    "frontier-tiny-8x128: fewer than 2 policies",
)


def record(framework, wrapper, policy, peak_gib, step_s, **other):
    """Return a reading as a benchmark writes it."""
    return {
        "row": ROW,
        "framework": framework,
        "wrapper": wrapper,
        "policy": policy,
        "compiled": framework == "mlx",
        "clip_norm": 1.0,
        "dtype": "float32",
        "peak_bytes": int(peak_gib * GIB),
        "estimate_bytes": None,
        "floor_bytes": None,
        "step_s": step_s,
    } | other


# The words that each picture must carry besides its footer.
PICTURES = {
    "frontier-behemoth-4x1024": [
        "Peak memory against step time: behemoth 4x1024",
        "MLX compiled, float32, gradients clipped at norm 1",
        "step time, \N{MULTIPLICATION SIGN} the plain step",
        "peak memory, GiB",
        "of the plain peak, %",
        *("plain", "all", "selective", "attention", "sqrt", "mlx.nn"),
    ],
    "side-by-side": [
        "peak memory, GiB (logarithmic)",
        "MLX compiled, PyTorch eager, float32",
        "Missing: 8 of 14 bars",
        *("behemoth 4x1024", "tiny 8x128"),
        *("plain MLX", "tinygpt, all", "mlx.nn", "torch plain", "torch selective"),
        *("20.0 GiB", "8.0 GiB   0.40\N{MULTIPLICATION SIGN}", "15.0 GiB   0.68\N{MULTIPLICATION SIGN}", "102.4 MiB"),
    ],
    "depth-behemoth-4x1024": [
        "n_layer, blocks",
        "peak memory, GiB",
        "Points are measured, lines are the arithmetic estimate.",
        *("none: 1,024.0 MiB a block", "all: 256.0 MiB a block", "mine: 512.0 MiB a block"),
    ],
    "timeline-behemoth-4x1024": [
        "time since the step began, ms",
        "active memory, GiB",
        *("none: 9.0 GiB", "all: 5.0 GiB"),
    ],
}


@pytest.fixture(scope="module")
def drawn():
    """Return what is drawn from everything at once."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    return draw(WHOLE, file="measured.json")


def texts(svg):
    """Return the texts of a picture."""
    root = ElementTree.fromstring(svg)
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_draw_makes_every_kind_in_both_formats(drawn):
    """Each picture is there as SVG and as PNG, and what could not be drawn is told."""
    assert set(drawn.files) == {f"{name}.{form}" for name in PICTURES for form in ("svg", "png")}
    assert all(data.startswith(PNG) for name, data in drawn.files.items() if name.endswith(".png"))
    assert drawn.left_out == LEFT_OUT


@pytest.mark.parametrize("name", PICTURES)
def test_picture_says_what_it_shows(drawn, name):
    """Labels, axes with units, the machine, the release, the file and the date are in the SVG as text."""
    shown = "\n".join(texts(drawn.files[f"{name}.svg"]))

    footer = ["NVIDIA H200 (cuda)", "MLX_MAX_MB_PER_BUFFER=10", "mlx 0.32.4", "file measured.json", "2026-11-30"]
    assert [words for words in PICTURES[name] + footer if words not in shown] == []


def test_picture_without_a_date_has_the_environment_only():
    """A file that has no date gets none."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    value = {name: entry for name, entry in WHOLE.items() if name not in ("date", "records", "depths")}

    files = draw(value, file="measured.json").files

    assert set(files) == {"timeline-behemoth-4x1024.svg", "timeline-behemoth-4x1024.png"}
    assert not re.search(r"20\d\d-", files["timeline-behemoth-4x1024.svg"].decode())
    assert "mlx 0.32.4; file measured.json" in texts(files["timeline-behemoth-4x1024.svg"])


@pytest.mark.parametrize("policy", ["full", "all"])
def test_side_by_side_is_linear_where_rows_are_alike(policy):
    """Without a tenfold difference the bars start at 0, and say so by having no logarithm."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")

    files = draw(SOURCE | {"records": [*RECORDS[:-2], record("torch", "torch", policy, 9, 1.0)]}, file="x").files

    assert "peak memory, GiB" in texts(files["side-by-side.svg"])
    assert {"0", "torch full"} <= set(texts(files["side-by-side.svg"]))


def test_settings_are_not_mixed():
    """Compiled and eager, or two types, are pictures of their own, named for their setting."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    eager = [record(r["framework"], r["wrapper"], r["policy"], 1, 1.0, compiled=False) for r in RECORDS[:6]]

    files = draw(SOURCE | {"records": RECORDS[:6] + eager}, file="x").files

    assert {name for name in files if name.endswith(".svg")} == {
        f"{kind}-float32-{mode}-clip-1.svg"
        for kind in ("frontier-behemoth-4x1024", "side-by-side")
        for mode in ("compiled", "eager")
    }


def test_names_are_shown_as_they_are():
    """Dollars, angle brackets and ampersands are no markup."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    names = ["$x_1$", "<b>&amp;</b>"]
    value = SOURCE | {"row": "a $row$", "timelines": [t | {"policy": n} for t, n in zip(TIMELINES, names, strict=True)]}

    shown = texts(draw(value, file="$file$.json").files["timeline-a-row.svg"])

    assert {"$x_1$: 9.0 GiB", "<b>&amp;</b>: 5.0 GiB", "Active memory during one step: a $row$"} <= set(shown)
    assert "mlx 0.32.4; file $file$.json; 2026-11-30" in shown


def test_draw_leaves_matplotlib_as_it_was(drawn):
    """The look of the pictures is theirs alone, after success and after an error."""
    matplotlib = pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    same_file_twice = [*RECORDS[:6], *(r | {"row": "behemoth-4x1024"} for r in RECORDS[:6])]

    with pytest.raises(ReportError, match="two pictures of this name"):
        draw(SOURCE | {"records": same_file_twice}, file="x")

    assert drawn.files
    assert matplotlib.rcParams["svg.hashsalt"] is None
    assert matplotlib.rcParams["font.size"] == matplotlib.rcParamsDefault["font.size"]


def changed(path, value):
    """Return the whole JSON with one entry replaced, or removed if the value is ``...``."""
    whole = copy.deepcopy(WHOLE)
    *way, last = path
    entry = whole
    for step in way:
        entry = entry[step]
    if value is ...:
        del entry[last]
    else:
        entry[last] = value
    return whole


BAD = {
    "no object": ([], "[plots] file: got [], expected an object"),
    "nothing to draw": (SOURCE, "[plots] file: got neither records nor depths nor timelines, expected one of them"),
    "no environment": (changed(["environment"], ...), "[plots] environment: got no such entry, expected one"),
    "no packages": (
        changed(["environment", "packages"], {}),
        "[plots] environment.packages: got {}, expected an object with the release of mlx",
    ),
    "no row": (changed(["row"], ...), "[plots] row: got no such entry, expected one"),
    "no records": (changed(["records"], []), "[plots] records: got [], expected a list of 1 or more"),
    "no depths": (changed(["depths"], []), "[plots] depths: got [], expected a list of 1 or more"),
    "no timelines": (changed(["timelines"], None), "[plots] timelines: got null, expected a list of 1 or more"),
    "no samples": (
        changed(["timelines", 1, "samples"], [[0, 1]]),
        "[plots] timelines[1].samples: got [[0, 1]], expected a list of 2 or more",
    ),
    "a sample alone": (
        changed(["timelines", 0, "samples", 1], 3),
        "[plots] timelines[0].samples[1]: got 3, expected a list of 2 or more",
    ),
    "time backwards": (
        changed(["timelines", 0, "samples", 2, 0], 0.1),
        "[plots] timelines[0].samples[2][0]: got 0.1, expected a time not before the one before it, 0.25",
    ),
    "no peak": (changed(["records", 3, "peak_bytes"], ...), "[plots] records[3].peak_bytes: got no such entry"),
    "peak of 0": (
        changed(["records", 3, "peak_bytes"], 0),
        "[plots] records[3].peak_bytes: got 0, expected a whole number above 0",
    ),
    "peak that is no number": (
        changed(["depths", 0, "peak_bytes"], True),
        "[plots] depths[0].peak_bytes: got true, expected a whole number above 0",
    ),
    "step of NaN": (
        changed(["records", 0, "step_s"], math.nan),
        "[plots] records[0].step_s: got NaN, expected a finite number above 0",
    ),
    "unknown framework": (
        changed(["records", 0, "framework"], "jax"),
        '[plots] records[0].framework: got "jax", expected one of mlx, torch',
    ),
    "name of two lines": (
        changed(["timelines", 0, "policy"], "a\nb"),
        '[plots] timelines[0].policy: got "a\\nb", expected 1 to 60 printable characters',
    ),
    "the same twice": (
        changed(["depths", 1], DEPTHS[0]),
        "[plots] depths[1]: got the same case as depths[0], expected each once",
    ),
    "no bar and no frontier": (
        SOURCE | {"records": [record("mlx", "tinygpt", "sqrt", 1, 1.0)]},
        "[plots] records: got nothing to draw (frontier-behemoth-4x1024: no plain run of MLX; side-by-side: no bar)",
    ),
}


@pytest.mark.parametrize(("value", "message"), BAD.values(), ids=BAD)
def test_bad_json_is_one_line(value, message):
    """Whatever is missing, empty or of another kind is named with its place."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")

    with pytest.raises(ReportError) as caught:
        draw(value, file="measured.json")

    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
