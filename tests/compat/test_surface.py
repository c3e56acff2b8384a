"""MLX does what tinygpt stands on, in the releases that say so, and in no other: a fix turns this red, too."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

PATH = Path(__file__).with_name("surface.py")
spec = importlib.util.spec_from_file_location("surface", PATH)
surface = importlib.util.module_from_spec(spec)
sys.modules["surface"] = surface
spec.loader.exec_module(surface)

HERE = Version(mx.__version__).base_version


@pytest.mark.parametrize("behaviour", surface.SURFACE, ids=lambda each: each.name.replace(" ", "-"))
def test_mlx_does_what_its_release_says(behaviour):
    """What holds, holds where it is said to; what does not has a link where somebody can see whether it was mended."""
    expected = SpecifierSet(behaviour.releases).contains(HERE)
    device = mx.default_device()

    assert behaviour.holds() == expected, behaviour.link
    assert expected or behaviour.releases != "<0" or behaviour.link.startswith("https://github.com/")
    assert mx.default_device() == device


def test_surface_runs_by_itself():
    """Without pytest and without tinygpt, every line is true or false, and none is an error."""
    done = subprocess.run([sys.executable, PATH], capture_output=True, text=True, check=True)

    found = json.loads(done.stdout)["holds"]

    assert len(found) == len(surface.SURFACE) > 15
    assert set(found.values()) == {True, False}
