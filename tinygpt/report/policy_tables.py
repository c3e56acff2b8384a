"""What each policy takes, as tables: from the JSON files of ``tinygpt.savings.benchmark`` and ``torch_rows``."""

from collections.abc import Sequence
from typing import Any

MIB = 1 << 20

Record = dict[str, Any]


def policies_table(records: Sequence[Record]) -> list[str]:
    """Return peak, estimate, floor and step time of every policy of every row, beside the plain step."""
    lines = [
        "| row | policy | peak, MiB | of plain | estimate / peak | peak / floor | step, ms | of plain |",
        "|---" * 8 + "|",
    ]
    for record in records:
        plain = next(r for r in records if _same(r, record) and r["wrapper"] == "plain")
        peak, step = record["peak_bytes"], record["step_s"]
        cells = [
            record["row"],
            record["policy"],
            f"{peak / MIB:,.0f}",
            f"{peak / plain['peak_bytes']:.2f}",
            f"{record['estimate_bytes'] / peak:.3f}",
            f"{peak / record['floor_bytes']:.2f}",
            f"{step * 1e3:.0f}",
            f"{step / plain['step_s']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def estimates_table(readings: Sequence[Record]) -> list[str]:
    """Return estimate over measured peak of every row and policy, a column for each way to run it."""
    ways = list(dict.fromkeys(map(_way, readings)))
    found = {(r["row"], r["policy"], _way(r)): r["estimate_bytes"] / r["peak_bytes"] for r in readings}
    lines = [f"| row | policy | {' | '.join(ways)} |", "|---" * (2 + len(ways)) + "|"]
    for row, policy in dict.fromkeys((r["row"], r["policy"]) for r in readings):
        shares = [found.get((row, policy, way)) for way in ways]
        cells = ["" if share is None else f"{share:.3f}" for share in shares]
        lines.append(f"| {row} | {policy} | {' | '.join(cells)} |")
    return lines


def auto_table(runs: Sequence[Record]) -> list[str]:
    """Return what ``auto`` chose at every limit, and what that took."""
    lines = ["| limit | policy | predicted, MiB | measured, MiB | tokens/s |", "|---" * 5 + "|"]
    for run in runs:
        if "refused" in run:
            lines.append(f"| {run['limit']} | refused, exit code {run['exit_code']} | | | |")
            continue
        sizes = [f"{run[name] / MIB:,.0f}" for name in ("predicted_bytes", "peak_bytes")]
        lines.append(f"| {run['limit']} | {run['policy']} | {' | '.join(sizes)} | {run['tokens_per_s']:,.0f} |")
    return lines


def _way(record: Record) -> str:
    return f"{record['backend']} {record['dtype']} {'compiled' if record['compiled'] else 'eager'}"


def frameworks_table(records: Sequence[Record]) -> list[str]:
    """Return the peaks of every row in MLX, plain and checkpointed by ours, and in PyTorch, in MiB."""
    columns = {
        "plain": ("mlx", "none"),
        "tinygpt, all": ("mlx", "all"),
        "tinygpt, selective": ("mlx", "selective"),
        "torch plain": ("torch", "none"),
        "torch full": ("torch", "full"),
        "torch selective": ("torch", "selective"),
    }
    ours = [r for r in records if r["wrapper"] in ("plain", "tinygpt", "torch")]
    lines = [f"| row | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for row in dict.fromkeys(record["row"] for record in ours):
        found = {(r["framework"], r["policy"]): r for r in ours if r["row"] == row and "peak_bytes" in r}
        cells = [f"{found[key]['peak_bytes'] / MIB:,.0f}" if key in found else "not run" for key in columns.values()]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _same(one: Record, other: Record) -> bool:
    return all(one[name] == other[name] for name in ("row", "compiled", "dtype", "clip_norm"))
