"""``tinygpt train``: train a model on a text."""

import argparse
import dataclasses
from pathlib import Path

from tinygpt.config import GPTConfig
from tinygpt.presets import preset

# Fields of GPTConfig that change a preset, with what they hold and what they mean.
MODEL_OPTIONS: tuple[tuple[str, type, str, str], ...] = (
    ("n_layer", int, "N", "blocks"),
    ("dropout", float, "P", "probability of dropping an activation"),
    ("position", str, "KIND", "learned or rotary positions"),
    ("norm", str, "KIND", "layer or rms"),
    ("attention", str, "KIND", "softmax or differential"),
    ("n_kv_head", int, "N", "key and value heads, shared by groups of query heads"),
    ("window", int, "T", "how many tokens a token sees, itself included"),
    ("feed_forward", str, "KIND", "gelu or swiglu"),
    ("n_expert", int, "N", "feed-forwards in a block, among which a router chooses"),
    ("top_k", int, "K", "how many of them a token visits"),
    ("expert_products", str, "KIND", "auto, gather (chosen experts only) or dense (all)"),
    ("balance_weight", float, "X", "weight of the load-balance loss"),
    ("router_z_weight", float, "X", "weight of the router z-loss"),
    ("mod_capacity", float, "P", "share of the tokens that every second block processes"),
    ("capacity_weight", float, "X", "weight of the loss that teaches this choice"),
)


def add(train: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
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
    model = train.add_argument_group("the model, where it is not the preset's")
    for name, kind, metavar, meaning in MODEL_OPTIONS:
        option = f"--{name.replace('_', '-')}"
        model.add_argument(option, type=kind, metavar=metavar, default=argparse.SUPPRESS, help=meaning)
    model.add_argument(
        "--yoco", action="store_true", default=argparse.SUPPRESS, help="one shared cache for the second half"
    )
    train.set_defaults(run=_train)


def _train(arguments: argparse.Namespace) -> int:
    from tinygpt.train import TrainConfig  # noqa: PLC0415  (MLX only when it is needed)
    from tinygpt.train.run import run  # noqa: PLC0415

    fields = {field.name for field in dataclasses.fields(GPTConfig)}
    changes = {name: value for name, value in vars(arguments).items() if name in fields and name != "context"}
    model = dataclasses.replace(preset(arguments.preset), **changes)
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
