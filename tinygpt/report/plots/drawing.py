"""Every picture that a file has the numbers for."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tinygpt.errors import ReportError
from tinygpt.report.plots.contents import Contents, Setting, contents
from tinygpt.report.plots.depth import depth
from tinygpt.report.plots.frontier import frontier, lacks
from tinygpt.report.plots.sheet import look, rendered
from tinygpt.report.plots.side_by_side import rows_of, settings, side_by_side
from tinygpt.report.plots.timeline import timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawn:
    """The pictures of a file.

    Attributes:
        files: The bytes of each file, by its name.
        left_out: What could not be drawn, with the reason.
    """

    files: dict[str, bytes]
    left_out: tuple[str, ...]


def draw(value: Any, *, file: str) -> Drawn:
    """Draw everything that a JSON file holds, as SVG and as PNG.

    Args:
        value: The JSON: ``environment``, ``date`` if known, and ``records``, ``depths`` or ``timelines``.
        file: The name of the file, for the footers.

    Raises:
        ReportError: The JSON is not as expected, nothing can be drawn from it, or matplotlib is missing.
    """
    held = contents(value, file=file)
    left_out = list(held.failed)
    files: dict[str, bytes] = {}
    with look():
        for name, figure in _figures(held, left_out):
            if f"{name}.svg" in files:
                raise ReportError(
                    f"[plots] {name}: got two pictures of this name, expected rows that differ in letters"
                )
            files |= {f"{name}.{form}": data for form, data in rendered(figure, name).items()}
    if not files:
        raise ReportError(f"[plots] records: got nothing to draw ({'; '.join(left_out)}), expected a known wrapper")
    return Drawn(files, tuple(left_out))


def _figures(held: Contents, left_out: list[str]) -> Iterator[tuple[str, "Figure"]]:
    """Yield the pictures with their names, one at a time; what is left out is noted on the way."""
    several = len({record.setting for record in held.records if record.framework == "mlx"}) > 1
    for row, setting in dict.fromkeys((r.row, r.setting) for r in held.records if r.framework == "mlx"):
        chosen = [r for r in held.records if (r.row, r.setting) == (row, setting)]
        name = _name("frontier", row, setting if several else None)
        if reason := lacks(chosen):
            left_out.append(f"{name}: {reason}")
        else:
            yield name, frontier(chosen, held.source)
    for setting in settings(held.records) if held.records else ():
        name = _name("side-by-side", "", setting if several else None)
        if rows := rows_of(held.records, setting):
            yield name, side_by_side(rows, setting, held.source)
        else:
            left_out.append(f"{name}: no bar")
    if held.depths:
        yield _name("depth", held.row), depth(held.depths, held.row, held.source)
    if held.timelines:
        yield _name("timeline", held.row), timeline(held.timelines, held.row, held.source)


def _name(kind: str, row: str, setting: Setting | None = None) -> str:
    words = f"{kind} {row}"
    if setting is not None:
        words += f" {setting.dtype} {setting.mode} clip {setting.clip_norm:g}"
    return re.sub(r"[^\w.]+", "-", words).strip("-").lower()
