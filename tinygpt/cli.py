"""The command line: ``tinygpt train``, ``tinygpt check``, ``tinygpt report``.

Whatever goes wrong is one line on stderr and an exit code. Training: 2 for bad input, 3 where it cannot go on. Judging:
0 conforms, 1 does not, 2 inconclusive or incomplete, 3 for bad input.
"""

import argparse
import dataclasses
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tinygpt.errors import TinyGPTError, TrainingError, UsageError
from tinygpt.presets import preset

EXIT_USAGE = 2
EXIT_TRAINING = 3
EXIT_JUDGE_USAGE = 3
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise UsageError(f"[{self.prog}] {message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign still shows the rest
    words = sys.argv[1:] if argv is None else list(argv)
    usage = EXIT_JUDGE_USAGE if words[:1] in (["check"], ["report"]) else EXIT_USAGE
    try:
        arguments = parser().parse_args(words)
        return int(arguments.run(arguments))
    except TinyGPTError as error:
        print(error, file=sys.stderr)
        return EXIT_TRAINING if isinstance(error, TrainingError) else usage
    except ImportError as error:
        if not (error.name or "").startswith("mlx") and "mlx" not in str(error):
            raise
        print(
            f"[mlx] import: got {error}, expected MLX with a backend: pip install 'mlx[cpu]' on Linux", file=sys.stderr
        )
        return usage
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it leaves
        return EXIT_PIPE_CLOSED


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; it needs neither MLX nor the machine."""
    top = _Parser(prog="tinygpt", description="A GPT on MLX whose gradient checkpointing is verified.")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    _add_train(commands.add_parser("train", help="train a preset on a text", description="Train a preset on a text."))
    _add_check(
        commands.add_parser("check", help="judge a checkpoint wrapper", description="Judge a checkpoint wrapper.")
    )
    _add_report(
        commands.add_parser("report", help="show a stored judgement", description="Show a judgement that was stored.")
    )
    return top


def _add_train(train: argparse.ArgumentParser) -> None:
    add = train.add_argument
    add("--preset", default="tiny", metavar="P", help="tiny, huge, mega, behemoth or titan (default: %(default)s)")
    add("--steps", type=int, default=20, metavar="N", help="optimizer steps (default: %(default)s)")
    add("--batch", type=int, default=8, metavar="B", help="sequences in a step (default: %(default)s)")
    add("--context", type=int, metavar="T", help="tokens in a sequence (default: the preset's)")
    add("--corpus", type=Path, metavar="FILE", help="a UTF-8 text (default: the source of Python's standard library)")
    add(
        "--grad-checkpoint", nargs="?", const="all", default="none", metavar="POLICY",
        help="recompute activations instead of keeping them: none or all (all if given without a policy)",
    )  # fmt: skip
    add(
        "--wrapper",
        default="tinygpt",
        metavar="NAME",
        help="tinygpt, mlx.nn, mlx.core or seed-recipe (default: %(default)s)",
    )
    add("--no-compile", action="store_true", help="run every operation on its own; needs no C++ compiler on the CPU")
    add("--dtype", default="float32", metavar="DTYPE", help="float32 or bfloat16 (default: %(default)s)")
    add(
        "--dropout",
        type=float,
        default=0.0,
        metavar="P",
        help="probability of dropping an activation (default: %(default)s)",
    )
    add(
        "--clip-norm",
        type=float,
        default=1.0,
        metavar="X",
        help="largest norm of the gradients, 0 for no clipping (default: %(default)s)",
    )
    add("--lr", type=float, default=1e-3, metavar="X", help="learning rate of AdamW (default: %(default)s)")
    add(
        "--seed", type=int, default=0, metavar="N", help="of weights, dropout and choice of text (default: %(default)s)"
    )
    add("--json", type=Path, metavar="FILE", help="write a JSON line for each step, and a summary")
    train.set_defaults(run=_train)


def _train(arguments: argparse.Namespace) -> int:
    from tinygpt.train import TrainConfig  # noqa: PLC0415  (MLX only when it is needed)
    from tinygpt.train.run import run  # noqa: PLC0415

    model = dataclasses.replace(preset(arguments.preset), dropout=arguments.dropout)
    config = TrainConfig(
        model=model,
        steps=arguments.steps,
        batch=arguments.batch,
        context=model.context if arguments.context is None else arguments.context,
        corpus=arguments.corpus,
        policy=arguments.grad_checkpoint,
        wrapper=arguments.wrapper,
        compile=not arguments.no_compile,
        dtype=arguments.dtype,
        clip_norm=arguments.clip_norm,
        learning_rate=arguments.lr,
        seed=arguments.seed,
    )
    run(config, arguments.json)
    return 0


FORMATS = ("text", "markdown", "json", "html")


def _add_check(check: argparse.ArgumentParser) -> None:
    add = check.add_argument
    add(
        "subject",
        nargs="?",
        metavar="SUBJECT",
        help="tinygpt, mlx.nn, mlx.core, mlx-lm, seed-recipe, plain, a registered name, or package.module:attribute",
    )
    add("--shape", metavar="S", help="wrap, wrap_fn or enable (default: told from the parameters)")
    add(
        "--rules",
        action="append",
        metavar="GLOB",
        help="rules, checks or families: R1, 'G*', footprint, '*[compiled]' (default: all); may be repeated",
    )
    add("--report", type=Path, metavar="FILE", help="write everything as JSON")
    add("--format", choices=FORMATS, default="text", help="what is printed (default: %(default)s)")
    add("--expect", type=Path, metavar="FILE", help="failures that are known, as TOML")
    add("--timeout", type=float, default=300.0, metavar="S", help="seconds for each check (default: %(default).0f)")
    add("--self-test", action="store_true", help="judge the judge: every planted fault must be caught by its check")
    check.set_defaults(run=_check)


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument("file", type=Path, metavar="FILE", help="what tinygpt check --report has written")
    report.add_argument("--format", choices=FORMATS, default="text", help="what is printed (default: %(default)s)")
    report.set_defaults(run=_report)


def _check(arguments: argparse.Namespace) -> int:
    sys.path.insert(0, str(Path.cwd()))  # package.module:attribute, as python -m would find it
    if arguments.report is not None and not arguments.report.parent.is_dir():
        raise UsageError(f"[check] --report {arguments.report}: got no such folder, expected a file to write to")
    if arguments.timeout <= 0:
        raise UsageError(f"[check] --timeout: got {arguments.timeout:g}, expected seconds above 0")
    if arguments.self_test:
        return _self_test(arguments)
    if arguments.subject is None:
        raise UsageError("[check] SUBJECT: got none, expected one; see tinygpt check --help")
    from tinygpt.conformance.expectations import read  # noqa: PLC0415  (MLX only when it is needed)
    from tinygpt.conformance.results import save  # noqa: PLC0415
    from tinygpt.conformance.runner import check_checkpoint, iter_checks  # noqa: PLC0415
    from tinygpt.conformance.subjects import subject  # noqa: PLC0415

    rules = arguments.rules or ["*"]
    judged = subject(arguments.subject, shape=arguments.shape)
    total = sum(1 for _ in iter_checks(judged, rules))
    known = read(arguments.expect) if arguments.expect else ()
    with _progress(total) as listener:
        report = check_checkpoint(
            judged, rules=rules, expectations=known, timeout_s=arguments.timeout, listener=listener
        )
    if arguments.report is not None:
        save(report, arguments.report)
    _show(report.as_dict(), arguments.format)
    return report.exit_code


def _report(arguments: argparse.Namespace) -> int:
    from tinygpt.conformance.results import load  # noqa: PLC0415

    report = load(arguments.file)
    _show(report.as_dict(), arguments.format)
    return report.exit_code


def _self_test(arguments: argparse.Namespace) -> int:
    from tinygpt.faults.self_test import cells, self_test  # noqa: PLC0415

    if arguments.subject is not None or arguments.expect is not None or arguments.shape is not None:
        raise UsageError("[check] --self-test: got a subject, a shape or expectations, expected none of them")
    rules = arguments.rules or ["*"]
    with _progress(cells(rules)) as listener:
        matrix = self_test(rules, timeout_s=arguments.timeout, listener=listener)
    if arguments.report is not None:
        try:
            arguments.report.write_text(json.dumps(matrix.as_dict(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"[check] --report {arguments.report}: got {error.strerror}, expected a file to write to"
            ) from error
    print(json.dumps(matrix.as_dict(), indent=1) if arguments.format == "json" else matrix.as_text())
    return 0 if matrix.proven else 1


def _show(report: dict[str, Any], form: str) -> None:
    from tinygpt.report.judgement import FORMATS as PAGES  # noqa: PLC0415

    print(json.dumps(report, indent=1, ensure_ascii=False) if form == "json" else PAGES[form](report).rstrip("\n"))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[object], None]]:
    """Yield what counts results on a bar, on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checks", total=total)
        yield lambda _: bar.advance(task)
