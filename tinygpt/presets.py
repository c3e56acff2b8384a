"""The named models, as a table: tiny trains anywhere, behemoth is where memory runs out, titan is where it has.

Source: the shapes behind the table of the project's seed document, and its batch x context rows. Dropout is 0.
"""

import dataclasses
import re
from typing import NamedTuple

from tinygpt.config import GPTConfig
from tinygpt.errors import ConfigError


class Row(NamedTuple):
    """A batch of ``batch`` sequences of ``context`` tokens, on which a preset is measured."""

    preset: str
    batch: int
    context: int

    @property
    def config(self) -> GPTConfig:
        """The preset's configuration, with as many positions as the row needs."""
        config = PRESETS[self.preset]
        return dataclasses.replace(config, context=max(config.context, self.context))

    def __str__(self) -> str:
        """Return the row as it is written in reports: ``behemoth 4x1024``."""
        return f"{self.preset} {self.batch}x{self.context}"


# fmt: off
PRESETS: dict[str, GPTConfig] = {
    #                     blocks     heads      width         hidden       tokens
    "tiny":     GPTConfig(n_layer=4,  n_head=4,  n_embd=128,  n_mlp=512,  context=128),
    "huge":     GPTConfig(n_layer=12, n_head=8,  n_embd=256,  n_mlp=1024, context=256),
    "mega":     GPTConfig(n_layer=24, n_head=8,  n_embd=512,  n_mlp=2048, context=1024),
    "behemoth": GPTConfig(n_layer=32, n_head=16, n_embd=1024, n_mlp=4096, context=1024),
    "titan":    GPTConfig(n_layer=48, n_head=24, n_embd=1536, n_mlp=6144, context=1024),
}
# fmt: on

ROWS: tuple[Row, ...] = (
    Row("tiny", 8, 128),
    Row("huge", 8, 256),
    Row("huge", 4, 1024),
    Row("mega", 2, 1024),
    Row("behemoth", 1, 1024),
    Row("behemoth", 2, 1024),
    Row("behemoth", 3, 1024),
    Row("behemoth", 4, 1024),
)


def row(text: str) -> Row:
    """Return the row that is written so: ``behemoth 4x1024``.

    Raises:
        ConfigError: It is no row, or there is no such preset.
    """
    match = re.fullmatch(r"(\S+) ([1-9]\d*)x([1-9]\d*)", text, re.ASCII)
    if match is None:
        raise ConfigError(f"[preset] row: got {text!r}, expected a preset, batch and context like 'tiny 8x128'")
    preset(match[1])
    return Row(match[1], int(match[2]), int(match[3]))


def preset(name: str) -> GPTConfig:
    """Return the configuration of that name.

    Raises:
        ConfigError: There is no preset of that name.
    """
    if name not in PRESETS:
        raise ConfigError(f"[preset] name: got {name!r}, expected one of {', '.join(PRESETS)}")
    return PRESETS[name]
