"""What several ranks were put to, and what averaging costs, as tables: ``results/ranks.json``, ``averaging.json``."""

from collections.abc import Sequence
from typing import Any

MIB = 1 << 20

Record = dict[str, Any]


def ranks_table(runs: Sequence[Record]) -> list[str]:
    """Return how far ranks are from one process, and the peak of each beside that of a process with its share alone."""
    lines = [
        "| run | losses and tensors, one process in as many parts | losses, the whole batch | peak of a rank, MiB "
        "| of its share alone |",
        "|---" * 5 + "|",
    ]
    for run in runs:
        apart = f"losses within {run['furthest_from_parts']:.1g}"
        peaks = [f"{peak / MIB:.1f}" for peak in (min(run["peaks_bytes"]), max(run["peaks_bytes"]))]
        cells = [
            run["case"],
            "equal to the bit" if run["equal_to_parts"] else apart,
            f"within {run['furthest_from_whole']:.1g}" if "furthest_from_whole" in run else "other masks",
            " to ".join(dict.fromkeys(peaks)),
            f"{run['share_peak_bytes'] / MIB:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def parts_table(parts: Sequence[Record]) -> list[str]:
    """Return the peak of several parts of one size."""
    counts = list(parts[0]["peaks_bytes"])
    lines = [f"| policy | {' | '.join(f'{count} parts, MiB' for count in counts)} | most over least |"]
    lines.append("|---" * (2 + len(counts)) + "|")
    for each in parts:
        peaks = [f"{each['peaks_bytes'][count] / MIB:.2f}" for count in counts]
        lines.append(f"| {each['case'].rpartition(' ')[2]} | {' | '.join(peaks)} | {each['ratio']:.3f} |")
    return lines


def lost_ranks_table(kills: Sequence[Record]) -> list[str]:
    """Return what became of runs of which a rank was killed."""
    lines = ["| killed | the others ended after, s | named | saved step | goes on with | |", "|---" * 6 + "|"]
    for each in kills:
        named, good = ("yes" if each["named"] else "NO"), ("" if each["good"] else "NOT as it should be")
        cells = [each["case"], f"{each['seconds']:.1f}", named, f"{each['step']:,}", str(each["goes_on_with"]), good]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def averaging_table(policies: Sequence[Record]) -> list[str]:
    """Return what a step takes with averaging and without."""
    lines = [
        "| policy | step, s | without averaging, s | efficiency | averaging alone, s | gradients, MiB "
        "| peak of a rank, MiB | without averaging, MiB |",
        "|---" * 8 + "|",
    ]
    for each in policies:
        seconds = each["seconds"]
        peaks = [max(peak[name] for peak in each["peaks_bytes"]) / MIB for name in ("together", "alone")]
        cells = [
            each["case"].rpartition(" ")[2],
            f"{seconds['together']:.2f}",
            f"{seconds['alone']:.2f}",
            f"{each['efficiency']:.2f}",
            f"{seconds['averaging']:.2f}",
            f"{each['gradient_bytes'] / MIB:.1f}",
            *(f"{peak:.1f}" for peak in peaks),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
