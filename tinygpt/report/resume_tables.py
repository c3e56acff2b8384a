"""What a ``.tinygpt`` file was put to, as tables: from the JSON files in ``results/resume/``."""

from collections.abc import Sequence
from typing import Any

MIB = 1 << 20

Record = dict[str, Any]


def resumes_table(resumes: Sequence[Record]) -> list[str]:
    """Return the matrix of policies before and after a resume: equal or not, and the peak after it, in MiB."""
    policies = list(dict.fromkeys(cell["after"] for cell in resumes))
    lines = [f"| mode | dropout | before | {' | '.join(f'after: {name}' for name in policies)} |", "|---" * 6 + "|"]
    for compiled, dropout, before in dict.fromkeys((c["compiled"], c["dropout"], c["before"]) for c in resumes):
        cells = {
            c["after"]: f"{'equal' if c['losses_equal'] and c['tensors_equal'] else 'UNLIKE'}, "
            f"{c['peak_bytes'] / MIB:.1f}"
            for c in resumes
            if (c["compiled"], c["dropout"], c["before"]) == (compiled, dropout, before)
        }
        mode = "compiled" if compiled else "eager"
        lines.append(f"| {mode} | {dropout:g} | {before} | {' | '.join(cells[name] for name in policies)} |")
    return lines


def kills_table(record: Record) -> list[str]:
    """Return how often what was left of a killed run."""
    end = "equal to the run that nobody killed" if record["equal"] else "UNLIKE the run that nobody killed"
    return [
        "| what the kill left | times |",
        "|---|---|",
        *(f"| {outcome} | {count} |" for outcome, count in record["outcomes"].items()),
        f"| in the end, after {record['steps']} steps | {end} |",
    ]


def damage_table(record: Record) -> list[str]:
    """Return how many files of each kind of damage were read, with one error of each."""
    lines = ["| damage | files | an error of it |", "|---" * 3 + "|"]
    for kind, count in record["files"].items():
        example = next(text for name, text in record["messages"].items() if name.startswith(kind))
        lines.append(f"| {kind} | {count:,} | {example.replace('|', '/')} |")
    problems, seconds = len(record["problems"]), record["slowest_s"]
    memory = record["process_peak_bytes"] / MIB
    return [
        *lines,
        f"| all | {sum(record['files'].values()):,} | {problems} that did not end so; slowest {seconds:.2f} s; "
        f"peak of the process {memory:.0f} MiB |",
    ]


def releases_table(crossings: Sequence[Record]) -> list[str]:
    """Return what came of files that were written under one release and resumed under another."""
    lines = [
        "| written by MLX | resumed by | mode | state | plain and checkpointed | first loss differs by | any loss |",
        "|---" * 7 + "|",
    ]
    for c in crossings:
        equal = ["equal" if c[name] else "UNLIKE" for name in ("state_equal", "policies_equal")]
        cells = [c["written_by"], c["resumed_by"], "compiled" if c["compiled"] else "eager", *equal]
        lines.append(f"| {' | '.join(cells)} | {c['first_difference']:.1g} | {c['largest_difference']:.1g} |")
    return lines
