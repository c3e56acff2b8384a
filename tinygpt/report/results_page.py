"""The tables in the pages, from the JSON files in ``results/``: ``python -m tinygpt.report.results_page``.

A number in the page that no file holds cannot appear: each table stands between two comments that name it, and is
rendered anew from its file.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from tinygpt.report.audit.fine_tune import fine_tune_table
from tinygpt.report.policy_tables import auto_table, estimates_table, frameworks_table, policies_table
from tinygpt.report.rank_tables import averaging_table, lost_ranks_table, parts_table, ranks_table
from tinygpt.report.resume_tables import damage_table, kills_table, releases_table, resumes_table

MIB = 1 << 20

PAGES = ("README.md", "docs/results.md")

# The table that this project grew from: MLX-Swift 0.25 on an M5 Pro, checkpointed over plain peak.
SEED_RATIOS = {
    "tiny 8x128": 1.17,
    "huge 8x256": 0.89,
    "huge 4x1024": 0.82,
    "mega 2x1024": 0.74,
    "behemoth 1x1024": 0.79,
    "behemoth 2x1024": 0.70,
    "behemoth 3x1024": 0.67,
    "behemoth 4x1024": 0.64,
}
LEVELS = ("required", "optional")
WRAPPERS = ("tinygpt", "mlx.nn", "seed-recipe")

Record = dict[str, Any]


def rows_table(records: Sequence[Record], *, clip_norm: float) -> list[str]:
    """Return peaks and step times of every row under every wrapper, as Markdown."""
    chosen = {(r["row"], r["wrapper"]): r for r in records if r["clip_norm"] == clip_norm}
    lines = [
        f"| row | plain, MiB | {' | '.join(f'{w}, MiB' for w in WRAPPERS)} | {' | '.join(WRAPPERS)} | seed's own |"
        f" time {' | time '.join(WRAPPERS)} |",
        "|---" * (3 + 3 * len(WRAPPERS)) + "|",
    ]
    for row, seed in SEED_RATIOS.items():
        plain = chosen[row, "plain"]
        ours = [chosen[row, wrapper] for wrapper in WRAPPERS]
        cells = [
            row,
            _mib(plain),
            *map(_mib, ours),
            *(f"{record['peak_bytes'] / plain['peak_bytes']:.2f}" for record in ours),
            f"{seed:.2f}",
            *(f"{record['step_s'] / plain['step_s']:.2f}" for record in ours),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def in_flight_table(records: Sequence[Record]) -> list[str]:
    """Return peak and step time under each setting of command buffers and waiting, as Markdown."""
    rows = list(dict.fromkeys(record["row"] for record in records))
    settings = list(dict.fromkeys((r["operations"], r["megabytes"], r["limit"]) for r in records))
    found = {(r["operations"], r["megabytes"], r["limit"], r["row"], r["policy"]): r for r in records}
    lines = [f'| operations, "MB" | waits | {" | ".join(rows)} |', "|---" * (2 + len(rows)) + "|"]
    for setting in settings:
        pairs = [[found[(*setting, row, policy)] for policy in ("none", "all")] for row in rows]
        cells = [
            f"{_mib(plain)} / {_mib(ours)} MiB, {plain['step_s'] * 1e3:.0f} / {ours['step_s'] * 1e3:.0f} ms"
            for plain, ours in pairs
        ]
        waits = "at the estimate" if setting[2] == "estimate" else setting[2]
        lines.append(f"| {setting[0]}, {setting[1]} | {waits} | {' | '.join(cells)} |")
    return lines


def orders_table(peaks: dict[str, dict[str, dict[str, int]]]) -> list[str]:
    """Return the peaks of the evaluation orders at every width of the traversal, as Markdown."""
    schedules = list(peaks[""]["plain"])
    lines = [f"| width | wrapper | {' | '.join(schedules)} |", "|---" * (2 + len(schedules)) + "|"]
    for width, by_wrapper in peaks.items():
        for wrapper, sizes in by_wrapper.items():
            cells = " | ".join(f"{sizes[name] / 1e6:.1f}" for name in schedules)
            lines.append(f"| {width or 'default'} | {wrapper} | {cells} |")
    return lines


def memory_table(rows: Sequence[Record]) -> list[str]:
    """Return the table of ``pytest -m memory``, as Markdown."""
    lines = ["| row | as run | plain, MiB | checkpointed, MiB | ratio | threshold | verdict |", "|---" * 7 + "|"]
    for row in rows:
        mark = "" if row["whole"] else "~"
        plain, ours = (f"{mark}{row[name] / MIB:,.0f}" for name in ("plain_bytes", "checkpointed_bytes"))
        cells = [
            row["row"],
            row["as_run"],
            plain,
            ours,
            f"{row['ratio']:.3f}",
            f"{row['threshold']:.2f}",
            row["verdict"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def wrapper_table(records: Sequence[Record]) -> list[str]:
    """Return peaks and step times of one row under its wrappers, as Markdown."""
    plain = records[0]
    lines = ["| wrapper | peak, MiB | over plain | step, ms | over plain |", "|---" * 5 + "|"]
    for record in records:
        peak, step = record["peak_bytes"] / plain["peak_bytes"], record["step_s"] / plain["step_s"]
        lines.append(
            f"| {record['wrapper']} | {_mib(record)} | {peak:.2f} | {record['step_s'] * 1e3:.0f} | {step:.2f} |"
        )
    return lines


def verdicts_table(reports: Sequence[Record]) -> list[str]:
    """Return the counts of each level of the judgement of every subject under the newest release, as Markdown."""
    lines = ["| subject | MLX | backend | rule set | required | optional | exit code |", "|---" * 7 + "|"]
    newest: dict[tuple[str, str], Record] = {}
    for report in (each for each in reports if "subject" in each):  # and no self-test
        key = (report["subject"]["name"], report["environment"]["backend"])
        newest[key] = max(report, newest.get(key, report), key=_release)
    for (subject, backend), report in sorted(newest.items(), key=lambda item: (item[0][0] != "tinygpt", item[0][::-1])):
        footer = report["footer"]
        counts = [
            ", ".join(f"{n} {s.replace('_', ' ')}" for s, n in footer["counts"][level].items()) for level in LEVELS
        ]
        cells = [subject, report["environment"]["packages"]["mlx"], backend, str(report["rule_set"]), *counts]
        lines.append(f"| {' | '.join(cells)} | {footer['exit_code']} |")
    return lines


def _release(report: Record) -> Version:
    return Version(report["environment"]["packages"]["mlx"])


def variants_table(reports: Sequence[Record]) -> list[str]:
    """Return every variant's row out of the reports of curves, cases, footprints and precision, as Markdown."""
    found = {key: report[key] for report in reports for key in report}
    lines = [
        "| variant | equal cases | far from float64 | bound | share of a bound | in training "
        "| checkpointed/plain | a block adds | plain adds | loss |",
        "|---" * 10 + "|",
    ]
    precise = {record["variant"]: record for record in found["precision"]}
    for name, curve in found["variants"].items():
        cases = [record["verdict"] for record in found["cases"] if name in record["case"].split()[0].split("+")]
        eager, compiled = (f for f in found["footprints"] if f["variant"] == name)
        ours = precise.get(name)
        cells = [
            name,
            f"{cases.count('equal')} of {len(cases)}",
            *(_precision(ours) if ours else ["-"] * 4),  # PyTorch draws other random numbers
            " / ".join(f"{f['checkpointed_bytes'] / f['plain_bytes']:.2f}" for f in (eager, compiled)),
            " / ".join(f"{f['slope_bytes'] / f['boundary_bytes']:.2f}" for f in (eager, compiled)),
            f"{eager['plain_slope_bytes'] / eager['boundary_bytes']:.0f}",
            f"{curve['plain'][0]['loss']:.2f} to {curve['plain'][-1]['loss']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def precision_table(records: Sequence[Record]) -> list[str]:
    """Return how far every variant is from the reference, as Markdown."""
    lines = ["| variant | far from float64 | bound | share of a bound | in training |", "|---" * 5 + "|"]
    return lines + [f"| {' | '.join([record['variant'], *_precision(record)])} |" for record in records]


def _precision(record: Record) -> list[str]:
    return [
        f"{record['difference']:.1e}",
        f"{record['bound']:.1e}",
        f"{record['share']:.2f}",
        f"{record['curve_share']:.2f}",
    ]


# A pattern that matches several files gives the table a list of their contents.
TABLES: dict[str, tuple[str, Callable[[Any], list[str]]]] = {
    "conformance": ("*/c[pu][ud]*-*.json", verdicts_table),  # cpu or cuda, in any folder
    "variants": ("variants/*.json", variants_table),
    "h200-precision": ("h200-precision.json", lambda content: precision_table(content["precision"])),
    "h200-rows": ("h200-rows.json", lambda content: rows_table(content["records"], clip_norm=1.0)),
    "h200-rows-unclipped": ("h200-rows.json", lambda content: rows_table(content["records"], clip_norm=0.0)),
    "h200-memory": ("h200-memory.json", lambda content: memory_table(content["rows"])),
    "h200-eager": ("h200-eager.json", lambda content: wrapper_table(content["records"])),
    "h200-bf16": ("h200-bf16.json", lambda content: wrapper_table(content["records"])),
    "h200-in-flight": ("h200-in-flight.json", lambda content: in_flight_table(content["records"])),
    "h200-policies": ("h200-policies.json", lambda content: policies_table(content["records"])),
    "h200-policy-rows": ("h200-policy-rows.json", lambda content: policies_table(content["records"])),
    "h200-policies-large": ("h200-policies-large.json", lambda content: policies_table(content["records"])),
    "h200-policies-eager": ("h200-policies-eager.json", lambda content: policies_table(content["records"])),
    "h200-policies-bf16": ("h200-policies-bf16.json", lambda content: policies_table(content["records"])),
    "estimates": ("estimates.json", lambda content: estimates_table(content["readings"])),
    "h200-auto": ("h200-auto.json", lambda content: auto_table(content["runs"])),
    "h200-frameworks": ("h200-side-by-side.json", lambda content: frameworks_table(content["records"])),
    "resumes": ("resume/resumes.json", lambda content: resumes_table(content["resumes"])),
    "kills": ("resume/kills.json", kills_table),
    "damage": ("resume/damage.json", damage_table),
    "releases": ("resume/releases.json", lambda content: releases_table(content["crossings"])),
    "fine-tune": ("fine-tune.json", lambda content: fine_tune_table(content["runs"])),
    "ranks": ("ranks.json", lambda content: ranks_table(content["runs"])),
    "parts": ("ranks.json", lambda content: parts_table(content["parts"])),
    "averaging": ("averaging.json", lambda content: averaging_table(content["policies"])),
    "lost-ranks": ("ranks.json", lambda content: lost_ranks_table(content["kills"])),
    "cpu-orders": ("cpu-orders.json", lambda content: orders_table(content["peaks_bytes"])),
    "cpu-memory": ("cpu-memory.json", lambda content: memory_table(content["rows"])),
    "cpu-rows": ("cpu-rows.json", lambda content: wrapper_table(content["records"][:5])),
}


def rendered(page: str, results: Path) -> str:
    """Return a page with every named table rendered from its file.

    Args:
        page: Markdown with ``<!-- table: NAME -->`` and ``<!-- end -->`` around each table.
        results: The folder of the JSON files.
    """

    def table(match: re.Match[str]) -> str:
        file, render = TABLES[match["name"]]
        contents = [json.loads(path.read_text()) for path in sorted(results.glob(file))]
        lines = render(contents if "*" in file else contents[0])
        return "\n".join([match["start"], "", *lines, "", "<!-- end -->"])

    return re.sub(r"(?P<start><!-- table: (?P<name>[\w-]+) -->).*?<!-- end -->", table, page, flags=re.DOTALL)


def main() -> int:
    """Render the pages of this checkout in place."""
    for page in map(Path, PAGES):
        page.write_text(rendered(page.read_text(), Path("results")))
    return 0


def _mib(record: Record) -> str:
    return f"{record['peak_bytes'] / MIB:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
