"""Refuse a run before its first allocation if it would not fit: the estimate against the limit.

The seed's guard did not know of checkpointing; this one is handed the estimate of the policy that will run.
"""

from tinygpt.errors import GuardError
from tinygpt.memory.estimate import Estimate
from tinygpt.units import format_bytes


def guard(estimate: Estimate, limit_bytes: int, *, fitting: str = "") -> None:
    """Go on if a step fits into the limit, and refuse if it is a byte above.

    Args:
        estimate: Of the step's peak.
        limit_bytes: What may be allocated.
        fitting: What would fit, for the error.

    Raises:
        GuardError: The estimated peak is above the limit.
    """
    if estimate.peak_bytes <= limit_bytes:
        return
    parts = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in estimate.parts.items() if size)
    raise GuardError(
        f"[guard] peak: got {format_bytes(estimate.peak_bytes)} by estimate ({parts}), "
        f"expected at most {format_bytes(limit_bytes)}; {fitting or 'no policy would fit'}; --force goes on"
    )
