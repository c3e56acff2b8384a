"""What is known of a model under a wrapper."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TRAININGS = ("full", "lora", "qlora")
MODES = ("eager", "compiled")

# Verdicts.
WRONG, NAN, REFUSED, USELESS, ROUNDED, RIGHT = "wrong", "nan", "error", "saves nothing", "right but for order", "right"
UNTRAINABLE, NOT_BUILT = "not trainable plain", "not built"


@dataclass(frozen=True)
class Finding:
    """What is known of a model under a wrapper.

    Attributes:
        model: Its name.
        wrapper: Whose.
        training: ``full``, ``lora`` or ``qlora``.
        mode: ``eager`` or ``compiled``.
        verdict: One of those above.
        message: What was said, or which leaves are wrong and how far.
        wrong: How many gradients are unlike plain.
        leaves: How many there are.
        blocks: How many blocks there are.
        recomputed: How many of them ran again for the gradient.
        plain_bytes: Peak of a plain step, above what was there; 0 if it was not read.
        peak_bytes: That under the wrapper.
        plain_slope: What each further block adds to the plain peak, in bytes; 0 if it was not read.
        slope: What it adds to that under the wrapper.
        handovers: What blocks leave for others beside their results, as ``Handover.as_dict`` returns it.
    """

    model: str
    wrapper: str
    training: str
    mode: str
    verdict: str
    message: str = ""
    wrong: int = 0
    leaves: int = 0
    blocks: int = 0
    recomputed: int = 0
    plain_bytes: int = 0
    peak_bytes: int = 0
    plain_slope: int = 0
    slope: int = 0
    handovers: Sequence[Mapping[str, Any]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)
