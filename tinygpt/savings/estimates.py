"""The estimate of today beside every peak that was measured: ``python -m tinygpt.savings.estimates FILE …``.

A reading keeps its worth when the arithmetic changes: the files of ``tinygpt.savings.benchmark`` hold the peaks, and
this computes the estimate of each anew, on any machine.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tinygpt import evidence
from tinygpt.checkpointing import plan
from tinygpt.errors import ReportError
from tinygpt.memory.estimate import estimate_peak
from tinygpt.presets import row
from tinygpt.train_config import ITEMSIZE

OURS = ("plain", "tinygpt")


@dataclass(frozen=True)
class Estimated:
    """A peak that was measured, and what arithmetic says of it.

    Attributes:
        row: Preset, batch and context.
        policy: What was recomputed.
        backend: ``cpu``, ``cuda`` or ``metal``.
        compiled: Whether the step was compiled.
        dtype: Of weights, activations and moments.
        peak_bytes: Measured.
        estimate_bytes: Computed.
        in_flight_bytes: The part of it that a GPU may have in flight, and need not.
    """

    row: str
    policy: str
    backend: str
    compiled: bool
    dtype: str
    peak_bytes: int
    estimate_bytes: int
    in_flight_bytes: int


def estimated(path: Path) -> list[Estimated]:
    """Return every reading of a file of ``tinygpt.savings.benchmark`` beside its estimate.

    Raises:
        ReportError: The file is none of these.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        backend = content["environment"]["backend"]
        return [_beside(record, backend) for record in content["records"] if record["wrapper"] in OURS]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(f"[estimates] {path}: got {error!r}, expected a file of tinygpt.savings.benchmark") from error


def _beside(record: dict[str, Any], backend: str) -> Estimated:
    chosen = row(record["row"])
    expected = estimate_peak(
        chosen.config,
        plan(record["policy"], chosen.config.n_layer, cuts=chosen.config.cuts),
        batch=chosen.batch,
        context=chosen.context,
        itemsize=ITEMSIZE[record["dtype"]],
        backend=backend,
    )
    names = ("row", "policy", "compiled", "dtype", "peak_bytes")
    return Estimated(
        **{name: record[name] for name in names},
        backend=backend,
        estimate_bytes=expected.peak_bytes,
        in_flight_bytes=expected.in_flight,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write all readings and estimates to a file."""
    options = evidence.parser("savings.estimates", __doc__)
    options.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of tinygpt.savings.benchmark")
    return evidence.main(options, _all, argv)


def _all(arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    found = [each for path in arguments.files for each in estimated(path)]
    return True, {"files": [path.name for path in arguments.files], "readings": [asdict(each) for each in found]}


if __name__ == "__main__":
    sys.exit(main())
