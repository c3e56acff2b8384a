"""The command line: ``tinygpt train``.

Whatever goes wrong is one line on stderr and an exit code: 2 for bad input, 3 for training that cannot go on.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tinygpt.errors import TinyGPTError, TrainingError, UsageError
from tinygpt.presets import preset

EXIT_USAGE = 2
EXIT_TRAINING = 3
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise UsageError(f"[{self.prog}] {message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        arguments = parser().parse_args(argv)
        return int(arguments.run(arguments))
    except TinyGPTError as error:
        print(error, file=sys.stderr)
        return EXIT_TRAINING if isinstance(error, TrainingError) else EXIT_USAGE
    except ImportError as error:
        if not (error.name or "").startswith("mlx") and "mlx" not in str(error):
            raise
        print(
            f"[mlx] import: got {error}, expected MLX with a backend: pip install 'mlx[cpu]' on Linux", file=sys.stderr
        )
        return EXIT_USAGE
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
