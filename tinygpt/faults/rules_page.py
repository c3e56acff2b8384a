"""The page of all rules, made of the docstrings of checks and faults: ``python -m tinygpt.faults.rules_page``."""

from pathlib import Path

from tinygpt.conformance.rules import FAMILIES, RULE_SET, UNTESTED, Check, all_checks
from tinygpt.faults.fault import all_faults

PAGE = Path("docs/rules.md")

HEAD = f"""# The rules

What a checkpoint wrapper promises on MLX, rule set {RULE_SET}.
This page is made of the docstrings of the checks and of the planted faults: `python -m tinygpt.faults.rules_page`.

"Plain" is the same model without a wrapper, under the same seed. "Equal" is to the bit.
Every batch has more than one sequence, and steps are taken twice, because some faults show in the second only.
A check runs eagerly, inside `mx.compile`, or both.
Footprint and recompute verdicts count only where value and gradients of the same run are plain's.
Otherwise they fail as *gated*.
An optional rule that is not kept is listed, and does not count against a wrapper.
Where plain MLX itself cannot run a case, the rule is not applicable, in MLX's own words.

A planted fault is a wrapper that is wrong in one way; the check that it stands below must fail it, in fixed words.
"""


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for family in FAMILIES:
        parts.append(f"## {family.replace('_', ' ').capitalize()}\n")
        parts += [_section(check) for check in all_checks() if check.family == family]
    parts.append("## Untested\n")
    parts += [f"### {rule} ({level}) untested\n\n{words}\n\n{why}\n" for rule, (level, words, why) in UNTESTED.items()]
    return "\n".join(parts)


def _section(check: Check) -> str:
    described = {fault.name: fault.description for fault in all_faults()}
    faults = [f"- `{name}`: {described[name].replace('``', '`')}" for name in check.faults]
    lines = [
        f"### {check.rule} ({check.level}) `{check.name}`, {' and '.join(check.modes)}",
        "",
        check.statement.replace("``", "`"),
        "",
        f"Source: {check.source.replace('``', '`')}",
        "",
        "Faults:",
        "",
        *faults,
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
