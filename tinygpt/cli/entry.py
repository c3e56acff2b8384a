"""All commands behind one entry point.

Whatever goes wrong is one line on stderr and an exit code. Training: 2 for bad input, 3 where it cannot go on,
4 where it would not fit. Judging:
0 conforms, 1 does not, 2 inconclusive or incomplete, 3 for bad input; a comparison of reports and a gate likewise.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from tinygpt.cli import audit, audit_page, benchmark, estimate, gate, info, judge, matrix, plots, train
from tinygpt.errors import GuardError, OutputError, RanksError, SaveError, TinyGPTError, TrainingError, UsageError
from tinygpt.printable import printable

EXIT_USAGE = 2
EXIT_TRAINING = 3
EXIT_GUARD = 4
EXIT_JUDGE_USAGE = 3
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141

# Commands of two words, by what adds their options. A file that is called like the second word is ./NAME.
PAIRS: dict[tuple[str, ...], Callable[[argparse.ArgumentParser], None]] = {
    ("report", "audit"): audit_page.add,
    ("report", "benchmark"): benchmark.add,
    ("report", "matrix"): matrix.add,
    ("report", "plots"): plots.add,
    ("gate", "compare"): gate.add_compare,
}
JUDGES = ("check", "report", "gate", "audit")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise UsageError(f"[{self.prog}] {message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  (until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign still shows the rest
    words = sys.argv[1:] if argv is None else list(argv)
    usage = EXIT_JUDGE_USAGE if words[:1] and words[0] in JUDGES else EXIT_USAGE
    try:
        arguments = _parsed(words)
        return int(arguments.run(arguments))
    except TinyGPTError as error:
        _tell(error)
        if isinstance(error, GuardError):
            return EXIT_GUARD
        return EXIT_TRAINING if isinstance(error, TrainingError | SaveError | OutputError | RanksError) else usage
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
        _silence()
        return EXIT_PIPE_CLOSED
    except OSError as error:
        _silence()
        _tell(f"[output] {error.filename or 'stdout'}: got {error.strerror or error}, expected to be able to use it")
        return EXIT_TRAINING


def _tell(error: object) -> None:
    """Print an error on one line of stderr, whatever is in it."""
    with suppress(OSError):
        print(printable(error), file=sys.stderr)


def _silence() -> None:
    """Let nothing more reach stdout, or Python complains about it when it leaves."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _parsed(words: list[str]) -> argparse.Namespace:
    add = PAIRS.get(tuple(words[:2]))
    if add is None:
        return parser().parse_args(words)
    own = _Parser(prog=" ".join(["tinygpt", *words[:2]]))
    add(own)
    return own.parse_args(words[2:])


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; it needs neither MLX nor the machine."""
    top = _Parser(prog="tinygpt", description="A GPT on MLX whose gradient checkpointing is verified.")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    train.add(commands.add_parser("train", help="train a model on a text", description="Train a model on a text."))
    estimate.add(
        commands.add_parser("estimate", help="predict the peak of a step", description="Predict the peak of a step.")
    )
    info.add(commands.add_parser("info", help="show a .tinygpt file", description="Show a .tinygpt file."))
    judge.add_check(
        commands.add_parser("check", help="judge a checkpoint wrapper", description="Judge a checkpoint wrapper.")
    )
    judge.add_report(
        commands.add_parser(
            "report",
            help="show a stored judgement",
            description="Show a judgement that was stored.",
            epilog=f"Other reports: {_others('report')}.",
        )
    )
    gate.add(
        commands.add_parser(
            "gate",
            help="may we bump MLX?",
            description="Judge a wrapper under two MLX releases, or all of them, and tell what changed.",
            epilog=f"Without a network: {_others('gate')}.",
        )
    )
    audit.add(
        commands.add_parser(
            "audit",
            help="judge other people's models",
            description="Compare models of mlx-lm, or your own, plain and checkpointed.",
        )
    )
    return top


def _others(command: str) -> str:
    return ", ".join(f"tinygpt {' '.join(words)} --help" for words in PAIRS if words[0] == command)
