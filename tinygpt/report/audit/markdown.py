"""Audits as Markdown: a table for each release of mlx-lm, what is wrong below it, and what changed."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from tinygpt.report.audit.sheet import Column, Sheet
from tinygpt.report.audit.text import Record, beside, counts, kind, rank, share, short

SIGNS = {
    "right": "✓",
    "right but for order": "≈",
    "wrong": "✗",
    "nan": "NaN",
    "error": "!",
    "saves nothing": "0",
    "not trainable plain": "-",
    "not built": "∅",
}
NUMBERS = "Two numbers are the peak, and what a further block costs, as shares of plain's."
PLAIN = ("not trainable plain", "not built")  # whatever the wrapper
MOST = 20  # models that fail alike and are told one by one
LEGEND = ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items())


def as_markdown(found: Sheet) -> str:
    """Return everything, the newest release first, and after each what is otherwise than in the one before it."""
    lines = ["# Other people's models under checkpointing", "", f"{LEGEND}.", NUMBERS]
    for release, before in zip_longest(found.releases, list(found.releases)[1:]):
        lines += ["", *_of_release(found, release)]
        if before is not None:
            lines += ["", *_changes(found, release, before)]
    return "\n".join(lines) + "\n"


def _of_release(found: Sheet, release: str) -> Iterator[str]:
    columns = [column for column in found.columns if column.release == release]
    findings = found.of(release)
    head = [f"{wrapper} {column.label}" for column in columns for wrapper in found.wrappers]
    yield f"## {title(found, release)}"
    yield ""
    yield f"{len({each['model'] for each in findings})} models in {found.seconds[release] / 60:.0f} minutes."
    yield ""
    for line in counts(findings):
        yield f"- {line}"
    yield ""
    yield f"| model | blocks | {' | '.join(head)} |"
    yield "|---" * (2 + len(head)) + "|"
    for model in found.models:
        row = [found.findings.get((wrapper, model, column)) for column in columns for wrapper in found.wrappers]
        known = [each for each in row if each]
        if known:
            blocks = max(each["blocks"] for each in known)
            yield f"| {model} | {blocks or ''} | {' | '.join(_cell(each) if each else '' for each in row)} |"
    yield ""
    yield from _reasons(findings)


def _reasons(findings: Sequence[Record]) -> Iterator[str]:
    """Yield what is to be said of every finding that is not right: once for all that fail in the same way."""
    alike: dict[tuple[str, ...], list[Record]] = {}
    for each in sorted(findings, key=rank):
        if each["verdict"] in PLAIN:
            alike.setdefault((each["verdict"], short(each["message"])), []).append(each)
        elif not each["verdict"].startswith("right"):
            alike.setdefault((each["verdict"], each["wrapper"], kind(each)), []).append(each)
    for records in alike.values():
        if records[0]["verdict"] in PLAIN:
            names = ", ".join(f"**{each}**" for each in dict.fromkeys(f"{r['model']}{kind(r)}" for r in records))
            yield f"- {names}: {records[0]['verdict']}. {_escaped(short(records[0]['message']))}"
        elif len(records) > MOST:
            first, wrong = records[0], [each["wrong"] / (each["leaves"] or 1) for each in records]
            yield (
                f"- {len(records)} models under {first['wrapper']}{kind(first)}: {first['verdict']}, in "
                f"{min(wrong):.0%} to {max(wrong):.0%} of their leaves. **{first['model']}**, for one: "
                f"{_escaped(short(first['message']))}"
            )
        else:
            for each in records:
                yield from _reason(each)


def _reason(record: Record) -> Iterator[str]:
    yield (
        f"- **{record['model']}** under {record['wrapper']}{kind(record)}: {record['verdict']}{share(record)}. "
        f"{_escaped(short(record['message']))}"
    )
    for line in beside(record):
        yield f"  - {_escaped(line)}"


def _cell(record: Record) -> str:
    """Return a verdict, how many blocks ran again if not all of them, and the share of plain's peak and slope."""
    parts = [SIGNS[record["verdict"]]]
    if record["wrong"]:
        parts.append(f"{record['wrong']}/{record['leaves']} leaves")
    if record["recomputed"] != record["blocks"]:
        parts.append(f"{record['recomputed']}/{record['blocks']} blocks")
    return " ".join([*parts, *ratios(record)])


def ratios(record: Record) -> Sequence[str]:
    """Return the peak, and what a further block costs, as shares of plain's, where they were read."""
    pairs = [("peak_bytes", "plain_bytes"), ("slope", "plain_slope")]
    return [f"{record[ours] / record[plain]:.2f}" for ours, plain in pairs if record[plain]]


def _changes(found: Sheet, new: str, old: str) -> Iterator[str]:
    """Yield what is otherwise in a release than in the one before it."""
    names = [{each["model"] for each in found.of(release)} for release in (new, old)]
    yield f"### From mlx-lm {old} to {new}"
    yield ""
    for what, models in (("New", names[0] - names[1]), ("Gone", names[1] - names[0])):
        if models:
            yield f"- {what}: {', '.join(sorted(models))}."
    moved: dict[tuple[str, ...], list[str]] = {}
    for (wrapper, model, column), each in sorted(found.findings.items(), key=lambda pair: pair[0][:2]):
        before = found.findings.get((wrapper, model, Column(old, column.training, column.mode)))
        if column.release == new and before and before["verdict"] != each["verdict"]:
            moved.setdefault((wrapper, kind(each), before["verdict"], each["verdict"]), []).append(model)
    for (wrapper, how, was, now), moving in moved.items():
        yield f"- Under {wrapper}{how}, {was} -> {now}: {', '.join(moving)}."
    if not moved:
        yield "- No verdict is another."


def title(found: Sheet, release: str) -> str:
    """Return the name of a release, with that of MLX."""
    return f"mlx-lm {release} on MLX {found.releases[release]}" if release else "Models of one's own"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
