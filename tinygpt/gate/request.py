"""What a gate is asked: whom to judge, by which rules, and how much more a candidate may need."""

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinygpt.environment import VARIABLES
from tinygpt.gate.compare import DEFAULT_LIMITS, PLAIN, Limits
from tinygpt.gate.fingerprint import fingerprint, source_of

PACKAGES = {"mlx-lm": ("mlx-lm",)}  # what a subject comes from, if not from MLX or tinygpt


@dataclass(frozen=True)
class Request:
    """What a gate is asked.

    Attributes:
        subjects: Whom to judge.
        rules: Patterns of rules; all if empty.
        limits: How much more a candidate may need.
        packages: Requirements that go into every environment.
        cache: Where environments are kept.
        raced: Whether training steps are raced.
        tested: Whether the judge is judged in every environment.
    """

    subjects: Sequence[str]
    cache: Path
    rules: Sequence[str] = ()
    limits: Limits = DEFAULT_LIMITS
    packages: Sequence[str] = ()
    raced: bool = True
    tested: bool = True

    @property
    def everybody(self) -> list[str]:
        """The subjects, and plain MLX, which tells what is MLX's from what is the wrapper's."""
        return list(dict.fromkeys([PLAIN, *self.subjects]))

    @property
    def installed(self) -> list[str]:
        """All requirements that go into every environment, those of the subjects included."""
        return [*(name for subject in self.subjects for name in PACKAGES.get(subject, ())), *self.packages]

    @property
    def key(self) -> dict[str, Any]:
        """What a report depends on, beside the release and the subject's name."""
        return {
            "rules": list(self.rules),
            "packages": self.installed,
            "tinygpt": fingerprint(),
            "subjects": {name: source_of(name) for name in self.subjects if ":" in name},
            "python": sys.version,
            "system": f"{platform.system()} {platform.machine()}",
            "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        }
