"""What a gate found, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tinygpt.gate.compare import EXIT_UNDECIDED, Transition, exit_code


@dataclass(frozen=True)
class Outcome:
    """What a gate found.

    Attributes:
        labels: The releases, from the oldest.
        steps: For each neighbouring pair, what changed.
        seconds: How long each part took.
        unproven: What the self-test of an environment has against the judge there.
    """

    labels: Sequence[str]
    steps: Sequence[Sequence[Transition]]
    seconds: Mapping[str, float]
    unproven: Mapping[str, Sequence[str]]

    @property
    def transitions(self) -> list[Transition]:
        """All of them."""
        return [each for step in self.steps for each in step]

    @property
    def exit_code(self) -> int:
        """0 where the candidate may come, 1 where something stands against it, 2 where nothing can be said."""
        found = exit_code(self.transitions)
        return EXIT_UNDECIDED if not found and any(self.unproven.values()) else found

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {
            "releases": list(self.labels),
            "transitions": [
                {"from": old, "to": new, **asdict(each)}
                for old, new, step in zip(self.labels, self.labels[1:], self.steps, strict=False)
                for each in step
            ],
            "unproven": dict(self.unproven),
            "seconds": dict(self.seconds),
            "exit_code": self.exit_code,
        }
