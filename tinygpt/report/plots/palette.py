"""Colours, markers and dashes that tell curves apart, in print and for the colour-blind.

Source: Okabe and Ito, Color Universal Design, 2008, https://jfly.uni-koeln.de/color/. Grey stands for its
yellow, which cannot be seen on white.
"""

from collections.abc import Sequence
from dataclasses import dataclass

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8A8A8A"

INK, SOFT, FAINT, RULE = "#222222", "#595959", "#9A9A9A", "#E4E4E4"


@dataclass(frozen=True)
class Style:
    """How a policy is drawn: a colour, a marker, and dashes as lengths in points, none for a solid line."""

    colour: str
    marker: str
    dashes: tuple[float, ...] = ()

    @property
    def text_colour(self) -> str:
        """The colour, dark enough to be read as text."""
        channels = (int(self.colour[start : start + 2], 16) for start in (1, 3, 5))
        return "#" + "".join(f"{round(channel * 0.72):02X}" for channel in channels)


# One policy looks the same in every picture.
KINDS = {
    "none": Style(BLACK, "o"),
    "all": Style(BLUE, "s"),
    "selective": Style(VERMILION, "^"),
    "attention": Style(GREEN, "D"),
    "halves": Style(PURPLE, "v"),
    "sqrt": Style(ORANGE, "P"),
    "segments": Style(SKY, "X"),
    "every": Style(GREY, "<", (4.0, 1.5)),
}
MORE = [
    Style(colour, marker, dashes)
    for dashes in ((4.0, 1.5), (1.0, 1.5), (6.0, 1.5, 1.0, 1.5))
    for colour, marker in zip((ORANGE, SKY, GREEN, PURPLE, BLUE, VERMILION, BLACK), "<>phHd*", strict=True)
]


def styles(policies: Sequence[str]) -> dict[str, Style]:
    """Return a style for each policy; ``segments:4`` looks like its kind unless another of its kind came first."""
    chosen: dict[str, Style] = {}
    others = 0
    for policy in policies:
        style = KINDS.get(policy.partition(":")[0])
        if style is None or style in chosen.values():
            style, others = MORE[others % len(MORE)], others + 1
        chosen[policy] = style
    return chosen
