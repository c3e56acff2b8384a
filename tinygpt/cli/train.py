"""``tinygpt train``: train a model on a text."""

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any

from tinygpt.cli.estimate import memory
from tinygpt.errors import UsageError
from tinygpt.presets import preset
from tinygpt.train_config import TrainConfig

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


# What a new run does unless told otherwise; one that goes on does what its file says.
DEFAULTS: dict[str, Any] = {"steps": 20, "batch": 8, "policy": "none"}
PRESET = "tiny"


def add(train: argparse.ArgumentParser) -> None:
    """Add the options of the command; an option that is not given leaves no trace."""
    train.set_defaults(run=_train)
    add_run(train)
    add = train.add_argument
    add("--memory-limit", type=memory, metavar="SIZE", help="such as 16GiB: refuse what would take more (default: all)")
    add("--force", action="store_true", help="go on where the estimate is above the limit")
    add("--json", type=Path, metavar="FILE", help="write a JSON line for each step, and a summary")
    _add_file(train.add_argument_group("the .tinygpt file"))


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is trained."""
    parser.argument_default = argparse.SUPPRESS
    add = parser.add_argument
    add("--preset", metavar="P", help=f"tiny, huge, mega, behemoth or titan (default: {PRESET})")
    add("--steps", type=int, metavar="N", help=f"optimizer steps in all (default: {DEFAULTS['steps']})")
    add(
        "--batch",
        type=int,
        metavar="B",
        help=f"sequences in a step, of all ranks together (default: {DEFAULTS['batch']})",
    )
    add(
        "--accumulate", type=int, metavar="K",
        help="parts that the batch, or a rank's share of it, is divided into, one after another (default: 1)",
    )  # fmt: skip
    add("--context", type=int, metavar="T", help="tokens in a sequence (default: the preset's)")
    add("--corpus", type=Path, metavar="FILE", help="a UTF-8 text (default: the source of Python's standard library)")
    add(
        "--grad-checkpoint", dest="policy", nargs="?", const="all", metavar="POLICY",
        help="recompute activations instead of keeping them: none, all, every:K (the first of every K blocks), "
        "first:N, segments:K, sqrt, attention, selective, halves, first:N+selective and the like, or auto (the "
        "fastest that fits); all if given without a policy",
    )  # fmt: skip
    add("--no-grad-checkpoint", dest="policy", action="store_const", const="none", help="keep them all (default)")
    add("--wrapper", metavar="NAME", help="tinygpt, mlx.nn, mlx.core or seed-recipe (default: tinygpt)")
    add(
        "--compile", action=argparse.BooleanOptionalAction,
        help="compile the step, which on the CPU needs a C++ compiler (default: yes)",
    )  # fmt: skip
    add("--dtype", metavar="DTYPE", help="float32 or bfloat16 (default: float32)")
    add("--clip-norm", type=float, metavar="X", help="largest norm of the gradients, 0 for no clipping (default: 1.0)")
    add("--lr", dest="learning_rate", type=float, metavar="X", help="learning rate of AdamW (default: 0.001)")
    add("--seed", type=int, metavar="N", help="of weights, dropout and choice of text (default: 0)")
    _add_model(parser.add_argument_group("the model, where it is not the preset's"))


def new_run(given: dict[str, Any]) -> TrainConfig:
    """Return the run that the options describe."""
    asked, model = _asked(given)
    shape = dataclasses.replace(preset(given.get("preset", PRESET)), **model)
    return TrainConfig(model=shape, **{**DEFAULTS, "context": shape.context, **asked})


def _asked(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of ``TrainConfig`` and those of ``GPTConfig`` that were given."""
    asked = {field.name: given[field.name] for field in dataclasses.fields(TrainConfig) if field.name in given}
    return asked, {name: given[name] for name in (*(option[0] for option in MODEL_OPTIONS), "yoco") if name in given}


def _add_file(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--out", type=Path, metavar="FILE", help="save the run at its end, and when a signal stops it")
    add("--save-every", type=int, metavar="N", help="and after every N steps; the file before it is kept as .previous")
    add("--resume", type=Path, metavar="FILE", help="go on from a file, and save to it unless --out says otherwise")
    add("--allow-corpus-change", action="store_true", help="go on with another text")


def _add_model(group: argparse._ArgumentGroup) -> None:
    for name, kind, metavar, meaning in MODEL_OPTIONS:
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=meaning)
    group.add_argument("--yoco", action="store_true", help="one shared cache for the second half")


def _train(arguments: argparse.Namespace) -> int:
    from tinygpt.train.output import Output  # noqa: PLC0415  (MLX only when it is needed)
    from tinygpt.train.run import Limit, resume, run  # noqa: PLC0415

    given = vars(arguments)
    output = Output(json=given.get("json"), file=_real(given.get("out")), save_every=given.get("save_every"))
    limit = Limit(given.get("memory_limit"), force="force" in given)
    if "resume" in given:
        asked, model = _asked(given)
        if "preset" in given:
            model = dataclasses.asdict(dataclasses.replace(preset(given["preset"]), **model))
        return resume(
            given["resume"],
            output,
            asked=asked,
            model=model,
            limit=limit,
            allow_corpus_change="allow_corpus_change" in given,
        )
    if "allow_corpus_change" in given:
        raise UsageError("[train] --allow-corpus-change: got no --resume, expected one with it")
    return run(new_run(given), output, limit)


def _real(path: Path | None) -> Path | None:
    """Return where a path leads: what is saved under a link goes where the link points."""
    return None if path is None else Path(os.path.realpath(path))
