"""``tinygpt info``: what a ``.tinygpt`` file says about itself, and whether it is whole."""

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

from tinygpt.printable import printable
from tinygpt.units import format_bytes


def add(info: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    info.add_argument("file", type=Path, metavar="FILE", help="a .tinygpt file")
    info.add_argument("--json", action="store_true", help="print the header and the sizes as JSON")
    info.set_defaults(run=_info)


def _info(arguments: argparse.Namespace) -> int:
    from tinygpt.tinygpt_file import outline, verify  # noqa: PLC0415  (MLX only when it is needed)

    found = outline(arguments.file)
    sizes = {
        part: sum(tensor.size_bytes for name, tensor in found.layout.items() if name.startswith(part))
        for part in ("model", "optimizer", "random")
    }
    header = found.header.as_dict()
    if arguments.json:
        print(json.dumps({"header": header, "tensors": len(found.layout), "sizes_bytes": sizes}, indent=1))
        verify(arguments.file)
        return 0
    for line in _lines(header):
        print(textwrap.fill(printable(line), 80, subsequent_indent="  ", break_long_words=False))
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
    print(f"tensors: {len(found.layout)} ({parts}), file {format_bytes(arguments.file.stat().st_size)}", flush=True)
    verify(arguments.file)
    print(f"checksum: {found.stored[:16]}… agrees with every byte")
    return 0


def _lines(header: dict[str, Any]) -> list[str]:
    """Return a line for each entry, the small ones of an object on one line together."""
    lines = []
    for name, value in header.items():
        if isinstance(value, dict):
            lines.append(f"{name}: {_entries(value)}")
        elif isinstance(value, list):
            lines += [f"{name}: {_entries(entry)}" for entry in value] or [f"{name}: none"]
        else:
            lines.append(f"{name}: {value}")
    return lines


def _entries(value: dict[str, Any]) -> str:
    return ", ".join(f"{name} {'-' if entry is None else entry}" for name, entry in value.items())
