"""Plant regressions into a copy of MLX's wheel, and see the gate close: ``python -m tinygpt.gate.planted``.

A release is gated against itself with another ``mlx.nn.utils.checkpoint``: one that is wrong, one that is slower, one
that needs more memory. Each must be caught under its own name, with exit code 1.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinygpt import evidence
from tinygpt.errors import GateError
from tinygpt.gate.compare import EXIT_CLOSED, PEAK, REGRESSION, TIME, Limits
from tinygpt.gate.outcome import Outcome
from tinygpt.gate.pair import pair
from tinygpt.gate.release import release
from tinygpt.gate.request import Request
from tinygpt.gate.session import Session

SUBJECT = "mlx.nn"
PATCHED = "mlx/nn/utils.py"
RULES = ("V1", "G1", "C1")


@dataclass(frozen=True)
class Regression:
    """A fault that is planted into MLX.

    Attributes:
        name: What it is.
        code: Appended to ``mlx/nn/utils.py``.
        kind: How the gate must call it.
        what: What it must name: a check, or a reading; the beginning is enough.
    """

    name: str
    code: str
    kind: str
    what: str


REGRESSIONS = (
    Regression(
        "wrong",
        """
def checkpoint(module, fn=None):
    return mx.checkpoint(module if fn is None else fn)  # the parameters are captured, and have no gradient
""",
        REGRESSION,
        "G1.parameters",
    ),
    Regression(
        "slower",
        """
_checkpoint = checkpoint

def checkpoint(module, fn=None):
    return _checkpoint(module, _checkpoint(module, _checkpoint(module, fn)))  # recomputed three times
""",
        TIME,
        "time of a step",
    ),
    Regression(
        "hungrier",
        """
def checkpoint(module, fn=None):
    return module if fn is None else fn  # nothing is recomputed
""",
        PEAK,
        "peak of a step",
    ),
)


def patched_wheel(version: str, code: str, folder: Path) -> Path:
    """Return a wheel of a release to whose ``mlx/nn/utils.py`` some code is added.

    Args:
        version: Of MLX.
        code: Python.
        folder: Where it is written to.

    Raises:
        GateError: The wheel cannot be fetched.
    """
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"mlx=={version}", "--dest", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(name).glob("mlx-*.whl"))
        if done.returncode or len(wheels) != 1:
            said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise GateError(f"[gate] wheel of mlx {version}: got {said}, expected a wheel to patch")
        patched = folder / wheels[0].name
        with zipfile.ZipFile(wheels[0]) as old, zipfile.ZipFile(patched, "w", zipfile.ZIP_DEFLATED) as new:
            for item in old.infolist():
                content = old.read(item)
                new.writestr(item, content + code.encode() if item.filename == PATCHED else content)
    return patched


def caught(regression: Regression, outcome: Outcome) -> bool:
    """Return whether a gate has closed, and named a regression."""
    named = [
        each
        for each in outcome.transitions
        if (each.kind, each.subject) == (regression.kind, SUBJECT) and each.what.startswith(regression.what)
    ]
    return outcome.exit_code == EXIT_CLOSED and bool(named) and not any(each.mlx for each in named)


def main(argv: Sequence[str] | None = None) -> int:
    """Plant every regression, print a line for each, and return 1 if one is not caught."""
    options = evidence.parser("gate.planted", __doc__)
    options.add_argument("--release", required=True, metavar="R", help="such as 0.32.4")
    return evidence.main(options, _all, argv)


def _all(arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    found = []
    for regression in REGRESSIONS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            wheel = patched_wheel(arguments.release, regression.code, folder)
            limits = Limits(fail_time=regression.kind == TIME)
            # A patched wheel is a release of its own, and its environment goes with it.
            request = Request(subjects=[SUBJECT], cache=folder / "cache", rules=RULES, limits=limits, tested=False)
            base, candidate = release(arguments.release), release(str(wheel))
            with Session(request, folder / "reports", {"planted": regression.name}, say=lambda _: None) as session:
                outcome = pair(session, base, candidate)
        found.append({"regression": regression.name, "caught": caught(regression, outcome), **outcome.as_dict()})
        told = [f"{t.kind}: {t.what}" for t in outcome.transitions if t.subject == SUBJECT]
        verdict = "caught" if found[-1]["caught"] else "NOT CAUGHT"
        print(f"{regression.name}: {verdict}, exit code {outcome.exit_code}; {'; '.join(told)}", flush=True)
    return all(each["caught"] for each in found), {"release": arguments.release, "regressions": found}


if __name__ == "__main__":
    sys.exit(main())
