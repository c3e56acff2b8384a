"""Read thousands of damaged files: ``python -m tinygpt.durability.damage --report FILE``.

Each must end in one ``TinyGPTFileError`` of one line that names the file, in under 2 seconds; the process that has read
them all must have stayed under 200 MiB.
"""

import argparse
import collections
import os
import random
import resource
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from tinygpt import evidence
from tinygpt.durability.edits import ENTRY_EDITS, HEADER_EDITS, TEXTS
from tinygpt.durability.forgery import Parts, edited, sealed
from tinygpt.durability.small import write_small_file
from tinygpt.errors import TinyGPTFileError
from tinygpt.tinygpt_file import load
from tinygpt.units import MIB

MOST_SECONDS = 2.0
MOST_BYTES = 200 * MIB

Make = Callable[[Path], None]


def damages(whole: bytes, *, flips: int) -> Iterator[tuple[str, str, Make]]:
    """Yield kind, name, and what makes the file, for every kind of damage.

    Args:
        whole: A file without fault.
        flips: How many single bits are flipped, anywhere.
    """
    for length in range(len(whole)):
        yield "cut", f"after {length} bytes", _writes(whole[:length])
    for longer in (b"\0", b"\0" * 4096, whole):
        yield "longer", f"by {len(longer)} bytes", _writes(whole + longer)
    places = random.Random(0).sample(range(8 * len(whole)), flips)
    for place in places:
        yield "bit", f"{place % 8} of byte {place // 8}", _writes(_flipped(whole, place))
    for name, edit in HEADER_EDITS.items():
        yield "header", name, _writes(edited(whole, edit))
    for name, edit in ENTRY_EDITS.items():
        yield "layout", name, _writes(edited(whole, edit))
    for name, text in TEXTS.items():
        yield "text", name, _writes(sealed(text, Parts(whole)))
    for length in (1 << 20, 1 << 32, (1 << 63) - 1, (1 << 64) - 1):
        yield "length", f"of {length}", _writes(length.to_bytes(8, "little") + whole[8:])
    yield from _no_files()


def _no_files() -> Iterator[tuple[str, str, Make]]:
    yield "no file", "nothing", lambda _: None
    yield "no file", "a directory", Path.mkdir
    yield "no file", "a pipe", os.mkfifo
    yield "no file", "a symlink loop", lambda path: path.symlink_to(path)
    yield "no file", "a symlink to nothing", lambda path: path.symlink_to(path.with_name("nowhere"))
    yield "no file", "a device", lambda path: path.symlink_to("/dev/zero")
    yield "no file", "a socket", _socket
    yield "no file", "a sparse file of 1 TiB", _sparse


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _writes(content: bytes) -> Make:
    def make(path: Path) -> None:
        path.write_bytes(content)

    return make


def _flipped(whole: bytes, place: int) -> bytes:
    flipped = bytearray(whole)
    flipped[place // 8] ^= 1 << place % 8
    return bytes(flipped)


@contextmanager
def _made(make: Make) -> Iterator[Path]:
    """Make a damaged file in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.tinygpt"
        make(path)
        yield path


def problem(make: Make) -> tuple[str, str, float]:
    """Read one damaged file.

    Returns:
        What is wrong with how that ended, or nothing; the error; and the seconds it took.
    """
    with _made(make) as path:
        start = perf_counter()
        try:
            load(path)
        except TinyGPTFileError as error:
            message = str(error)
        except BaseException as error:
            return f"got {type(error).__name__}: {error}", "", perf_counter() - start
        else:
            return "got a file that loads", "", perf_counter() - start
        seconds = perf_counter() - start
        if not message.startswith(f"[{path}] ") or "\n" in message:
            return f"got {message!r}, expected one line that names the file", message, seconds
        if seconds > MOST_SECONDS:
            return f"took {seconds:.1f} s", message, seconds
        return "", message.removeprefix(f"[{path}] "), seconds


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage counts the process that started this one too
        return 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of macOS, in bytes


def main(argv: Sequence[str] | None = None) -> int:
    """Read all damaged files, print a line for each kind, and return 1 if one does not end as it should."""
    options = evidence.parser("durability.damage", __doc__)
    options.add_argument("--flips", type=int, default=2000, metavar="N", help="single bits (default: %(default)s)")
    return evidence.main(options, _read_all, argv)


def _read_all(arguments: argparse.Namespace) -> tuple[bool, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "whole.tinygpt"
        write_small_file(path)
        whole = path.read_bytes()
    before = peak_bytes()
    counts: collections.Counter[str] = collections.Counter()
    examples: dict[str, str] = {}
    problems, slowest = [], 0.0
    for kind, name, make in damages(whole, flips=arguments.flips):
        wrong, message, seconds = problem(make)
        counts[kind] += 1
        examples.setdefault(f"{kind} {name}" if kind not in ("cut", "bit") else kind, message)
        slowest = max(slowest, seconds)
        if wrong:
            problems.append(f"{kind} {name}: {wrong}")
            print(problems[-1], flush=True)
    for kind, count in counts.items():
        print(f"{kind}: {count} files")
    peak = peak_bytes()
    print(f"{len(problems)} problems; slowest {slowest:.3f} s, peak of the process {peak / MIB:.0f} MiB")
    return not problems and peak < MOST_BYTES, {
        "size_bytes": len(whole),
        "files": counts,
        "problems": problems,
        "slowest_s": slowest,
        "process_before_bytes": before,
        "process_peak_bytes": peak,
        "messages": examples,
    }


if __name__ == "__main__":
    sys.exit(main())
