"""``tinygpt estimate``: the peak of a training step before it is run, and what other policies would need."""

import argparse
import json
from typing import Any

from tinygpt.errors import UsageError
from tinygpt.units import format_bytes

BAR = 30


def add(estimate: argparse.ArgumentParser) -> None:
    """Add the options of the command: those of ``tinygpt train`` that change the memory."""
    from tinygpt.cli import train  # noqa: PLC0415

    train.add_run(estimate)
    add = estimate.add_argument
    add("--backend", choices=("cpu", "cuda", "metal"), help="where (default: what MLX computes on here)")
    add("--memory-limit", type=memory, metavar="SIZE", help="such as 16GiB: say what fits")
    add("--json", action="store_true", help="print peak_bytes, its parts and all policies as JSON")
    estimate.set_defaults(run=_estimate)


def memory(text: str) -> int:
    """Return a size in bytes: ``16GiB``, ``900MiB``, or a number of bytes.

    Raises:
        UsageError: It is none, or not positive.
    """
    number = text.strip()
    for unit, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1)):
        if number.endswith(unit):
            number, scale = number.removesuffix(unit).strip(), factor
            break
    else:
        scale = 1
    try:
        size = float(number) * scale
    except ValueError:
        size = -1.0
    if not 1 <= size < 1 << 62:
        raise UsageError(f"[memory-limit] size: got {text!r}, expected one like 16GiB or 900MiB")
    return int(size)


def _estimate(arguments: argparse.Namespace) -> int:
    from tinygpt.cli.train import new_run  # noqa: PLC0415
    from tinygpt.environment import backend  # noqa: PLC0415
    from tinygpt.train.choice import AUTO, candidates, cannot_help, chosen  # noqa: PLC0415  (MLX when it is needed)
    from tinygpt.train.expected import expected  # noqa: PLC0415

    where = getattr(arguments, "backend", None) or backend()
    limit = getattr(arguments, "memory_limit", None)
    config = new_run(vars(arguments))
    if config.policy == AUTO and limit is None:
        raise UsageError("[estimate] --grad-checkpoint: got auto, expected --memory-limit with it")
    config = chosen(config, limit or 0, backend=where)
    estimate = expected(config, backend=where)
    others = candidates(config, backend=where)
    if getattr(arguments, "json", False):
        print(json.dumps(_record(config.policy, where, estimate, others), indent=1))
        return 0
    print(f"{config.batch}x{config.context} tokens, {config.dtype}, AdamW, policy {config.policy}, on {where}")
    for name, size in estimate.parts.items():
        bar = "█" * round(BAR * size / estimate.peak_bytes)
        print(f"  {name.replace('_', ' '):10} {format_bytes(size):>10}  {bar}".rstrip())
    print(f"  {'peak':10} {format_bytes(estimate.peak_bytes):>10}  no order needs less than "
          f"{format_bytes(estimate.floor_bytes)}")  # fmt: skip
    print(f"{'policy':20} {'peak':>10} {'of none':>8} {'step time':>10}")
    plain = next(other for other in others if other.policy == "none")
    for other in others:
        size = other.estimate.peak_bytes
        fits = "" if limit is None else "  fits" if size <= limit else "  too large"
        share = size / plain.estimate.peak_bytes
        print(f"{other.policy:20} {format_bytes(size):>10} {share:8.2f} {other.time:10.2f}{fits}")
    if reason := cannot_help(config, backend=where):
        print(reason)
    return 0


def _record(policy: str, backend: str, estimate: Any, others: Any) -> dict[str, Any]:
    return {
        "policy": policy,
        "backend": backend,
        "peak_bytes": estimate.peak_bytes,
        "floor_bytes": estimate.floor_bytes,
        "parts": estimate.parts,
        "policies": [
            {
                "policy": other.policy,
                "peak_bytes": other.estimate.peak_bytes,
                "floor_bytes": other.estimate.floor_bytes,
                "relative_step_time": other.time,
            }
            for other in others
        ],
    }
