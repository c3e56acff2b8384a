"""What a verdict depends on in this package: the judge, tinygpt's own wrapper, and all that they import."""

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import tinygpt

ROOTS = ("conformance", "faults", "checkpointing")


def fingerprint() -> str:
    """Return what changes with every change of a file that a verdict depends on."""
    root = Path(tinygpt.__file__).parent
    digest = hashlib.sha256()
    for path in files():
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def source_of(address: str) -> str:
    """Return what changes with the source of a subject of the user's; empty if it is not found.

    Args:
        address: ``package.module:attribute``; all of the package counts.
    """
    top, *_ = address.partition(":")[0].split(".")
    for folder in [Path.cwd(), *(Path(each) for each in sys.path)]:
        found = [folder / f"{top}.py"] if (folder / f"{top}.py").is_file() else sorted((folder / top).rglob("*.py"))
        if found:
            return hashlib.sha256(b"\0".join(path.read_bytes() for path in found)).hexdigest()[:16]
    return ""


def files() -> list[Path]:
    """Return these files, in order."""
    root = Path(tinygpt.__file__).parent
    ahead = [path for name in ROOTS for path in (root / name).rglob("*.py")]
    found: set[Path] = set()
    while ahead:
        path = ahead.pop()
        if path not in found:
            found.add(path)
            ahead += _imported(path, root)
    return sorted(found)


def _imported(path: Path, root: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tinygpt."):
            place = root.joinpath(*(node.module or "").split(".")[1:])
            names = [place / f"{alias.name}.py" for alias in node.names]
            yield from (each for each in (place.with_suffix(".py"), place / "__init__.py", *names) if each.is_file())
