"""What several ranks were put to, and what averaging costs, as tables: ``results/ranks.json``, ``averaging.json``."""

from collections.abc import Iterable, Sequence
from typing import Any

MIB = 1 << 20

Record = dict[str, Any]


def ranks_table(runs: Sequence[Record]) -> list[str]:
    """Return how far ranks are from one process, and the peak of each beside that of a process with its share alone."""

    def row(run: Record) -> list[str]:
        apart = f"losses within {run['furthest_from_parts']:.1g}"
        peaks = [f"{peak / MIB:.1f}" for peak in (min(run["peaks_bytes"]), max(run["peaks_bytes"]))]
        return [
            run["case"],
            "equal to the bit" if run["equal_to_parts"] else apart,
            f"within {run['furthest_from_whole']:.1g}" if "furthest_from_whole" in run else "other masks",
            " to ".join(dict.fromkeys(peaks)),
            f"{run['share_peak_bytes'] / MIB:.1f}",
        ]

    whole, peak = "losses, the whole batch", "peak of a rank, MiB"
    head = ["run", "losses and tensors, one process in as many parts", whole, peak, "of its share alone"]
    return _table(head, map(row, runs))


def parts_table(parts: Sequence[Record]) -> list[str]:
    """Return the peak of several parts of one size."""
    counts = list(parts[0]["peaks_bytes"])

    def row(each: Record) -> list[str]:
        peaks = [f"{each['peaks_bytes'][count] / MIB:.2f}" for count in counts]
        return [_policy(each), *peaks, f"{each['ratio']:.3f}"]

    return _table(["policy", *(f"{count} parts, MiB" for count in counts), "most over least"], map(row, parts))


def lost_ranks_table(kills: Sequence[Record]) -> list[str]:
    """Return what became of runs of which a rank was killed."""

    def row(each: Record) -> list[str]:
        named, good = ("yes" if each["named"] else "NO"), ("" if each["good"] else "NOT as it should be")
        return [each["case"], f"{each['seconds']:.1f}", named, f"{each['step']:,}", str(each["goes_on_with"]), good]

    return _table(["killed", "the others ended after, s", "named", "saved step", "goes on with", ""], map(row, kills))


def averaging_table(policies: Sequence[Record]) -> list[str]:
    """Return what a step takes with averaging and without."""

    def row(each: Record) -> list[str]:
        seconds = [f"{each['seconds'][name]:.2f}" for name in ("together", "alone", "averaging")]
        peaks = [f"{max(peak[name] for peak in each['peaks_bytes']) / MIB:.1f}" for name in ("together", "alone")]
        gradients = f"{each['gradient_bytes'] / MIB:.1f}"
        return [_policy(each), *seconds[:2], f"{each['efficiency']:.2f}", seconds[2], gradients, *peaks]

    head = ["policy", "step, s", "without averaging, s", "efficiency", "averaging alone, s", "gradients, MiB"]
    return _table([*head, "peak of a rank, MiB", "without averaging, MiB"], map(row, policies))


def _policy(record: Record) -> str:
    """Return the policy that a case is named after."""
    return str(record["case"]).rpartition(" ")[2]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
