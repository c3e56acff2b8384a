"""``tinygpt audit``: other people's models under checkpointing. Exit code 0 all right, 1 not, 3 bad input."""

import argparse
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

from tinygpt.audit.finding import MODES, TRAININGS
from tinygpt.errors import ReportError, UsageError
from tinygpt.report.audit.markdown import as_markdown
from tinygpt.report.audit.sheet import sheet
from tinygpt.report.audit.text import as_text, exit_code

MLX_LM = "mlx-lm"


def add(audit: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = audit.add_argument
    add("target", metavar="TARGET", help="mlx-lm, a folder with a model of mlx-lm's, or package.module:build")
    add("--model", action="append", metavar="NAME", help="an architecture of mlx-lm (default: all); may be repeated")
    add(
        "--wrapper",
        action="append",
        choices=("mlx-lm", "tinygpt", "mlx.nn"),
        help="whose (default: mlx-lm and tinygpt); may be repeated",
    )
    add("--training", action="append", choices=TRAININGS, help="what is trained (default: full); may be repeated")
    add("--compiled", action="store_true", help="inside mx.compile, too")
    add("--mlx-lm", metavar="VERSION", help="another release of mlx-lm, in an environment of its own")
    add("--report", type=Path, metavar="FILE", help="write everything as JSON")
    add("--markdown", type=Path, metavar="FILE", help="write the table")
    audit.set_defaults(run=_audit)


def _audit(arguments: argparse.Namespace) -> int:
    if arguments.mlx_lm is not None:
        return _under(arguments)
    from tinygpt.audit.audit import audit  # noqa: PLC0415  (MLX only when it is needed)

    report = audit(
        _names(arguments),
        list(dict.fromkeys(arguments.wrapper or ["mlx-lm", "tinygpt"])),
        trainings=list(dict.fromkeys(arguments.training or TRAININGS[:1])),
        modes=MODES if arguments.compiled else MODES[:1],
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(as_text(report))
    if arguments.report is not None:
        _write(arguments.report, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    if arguments.markdown is not None:
        _write(arguments.markdown, as_markdown(sheet({str(arguments.report or ""): report})))
    return exit_code(report)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReportError(f"[audit] {path}: got {error.strerror}, expected a file to write to") from error


def _under(arguments: argparse.Namespace) -> int:
    """Do the same under another release of mlx-lm, with the MLX that is here."""
    from tinygpt.gate.environments import default_cache, environment  # noqa: PLC0415
    from tinygpt.gate.release import release  # noqa: PLC0415

    if arguments.target != MLX_LM:
        raise UsageError(f"[audit] --mlx-lm {arguments.mlx_lm}: got it with {arguments.target}, expected {MLX_LM}")
    here = release(importlib.metadata.version("mlx"))
    there = environment(here, cache=default_cache(), packages=[f"mlx-lm=={arguments.mlx_lm}"])
    words = [MLX_LM, *(["--compiled"] if arguments.compiled else [])]
    for option in ("model", "wrapper", "training"):
        words += [word for value in getattr(arguments, option) or [] for word in (f"--{option}", value)]
    for option in ("report", "markdown"):
        path = getattr(arguments, option)
        words += [f"--{option}", str(path.absolute())] if path is not None else []
    return subprocess.run(there.command("tinygpt", "audit", *words), env=there.variables, check=False).returncode


def _names(arguments: argparse.Namespace) -> list[str]:
    """Return the names of the models to examine."""
    from tinygpt.audit.configurations import architectures  # noqa: PLC0415

    for path in (arguments.report, arguments.markdown):
        if path is not None and not path.parent.is_dir():
            raise UsageError(f"[audit] {path}: got no such folder, expected a file to write to")
    if arguments.target != MLX_LM:
        if arguments.model:
            raise UsageError(f"[audit] --model {arguments.model[0]}: got it with {arguments.target}, expected mlx-lm")
        if ":" not in arguments.target and not (Path(arguments.target) / "config.json").is_file():
            raise UsageError(
                f"[audit] {arguments.target}: got no folder with a config.json, expected mlx-lm, a folder or an address"
            )
        return [arguments.target]
    known = architectures()
    unknown = [name for name in arguments.model or [] if name not in known]
    if unknown:
        raise UsageError(f"[audit] --model {unknown[0]}: got no such architecture, expected one of {', '.join(known)}")
    return list(dict.fromkeys(arguments.model or known))
