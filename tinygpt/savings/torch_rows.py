"""The same rows in PyTorch, plain and under ``torch.utils.checkpoint``: ``python -m tinygpt.savings.torch_rows``.

The model of ``tinygpt.reference``, eager, with AdamW and gradient clipping, on CUDA. *full* recomputes every block;
*selective* keeps the results of linear layers, as PyTorch's own policies do, and recomputes the rest: attention maps,
activation functions and norms.
"""

import argparse
import functools
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import mlx.core as mx
import torch
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts, noop_context_fn

from tinygpt.environment import describe
from tinygpt.model import GPT
from tinygpt.presets import ROWS, Row, row
from tinygpt.reference.gradients import weights_of
from tinygpt.reference.routing import Routes
from tinygpt.reference.torch_gpt import forward
from tinygpt.train.data import Batches, read_corpus

CLIP_NORM = 1.0
WARM_UP_ROUNDS = 2


def _keeps_linear(_: Any, operation: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    linear = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if operation in linear else CheckpointPolicy.PREFER_RECOMPUTE


POLICIES: dict[str, dict[str, Any]] = {
    "none": {},
    "full": {"checkpointed": True, "saving": noop_context_fn},
    "selective": {
        "checkpointed": True,
        "saving": functools.partial(create_selective_checkpoint_contexts, _keeps_linear),
    },
}


def torch_row(chosen: Row, policy: str, *, rounds: int) -> dict[str, Any]:
    """Train a row in PyTorch and return its record: peak in bytes, and the median step time in seconds."""
    with mx.stream(mx.cpu):
        mx.random.seed(0)
        drawn = weights_of(GPT(chosen.config))
    weights = {name: torch.tensor(weight, device="cuda", requires_grad=True) for name, weight in drawn.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=1e-4)
    text = Batches(read_corpus(None), batch=chosen.batch, context=chosen.context, seed=0)
    peaks, seconds = [], []
    for number in range(WARM_UP_ROUNDS + rounds):
        tokens = torch.tensor(text.at(number), dtype=torch.int64, device="cuda")
        peak, step_s = _step(chosen, weights, optimizer, tokens, POLICIES[policy])
        if number >= WARM_UP_ROUNDS:
            peaks.append(peak)
            seconds.append(step_s)
    return {
        "row": str(chosen),
        "framework": "torch",
        "wrapper": "plain" if policy == "none" else "torch",
        "policy": policy,
        "compiled": False,
        "clip_norm": CLIP_NORM,
        "dtype": "float32",
        "peak_bytes": min(peaks),
        "step_s": statistics.median(seconds),
        "peaks_bytes": peaks,
        "steps_s": seconds,
    }


def _step(
    chosen: Row, weights: dict[str, Any], optimizer: Any, tokens: Any, policy: dict[str, Any]
) -> tuple[int, float]:
    """Train one step; return its peak in bytes and its time in seconds."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = perf_counter()
    optimizer.zero_grad(set_to_none=True)
    logits, _ = forward(chosen.config, weights, tokens[:, :-1], routes=Routes(), **policy)
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    del logits
    loss.backward()  # type: ignore[no-untyped-call,unused-ignore]
    torch.nn.utils.clip_grad_norm_(weights.values(), CLIP_NORM)
    optimizer.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated(), perf_counter() - start


def main(argv: Sequence[str] | None = None) -> int:
    """Run all rows, print a line for each, and write them; a row that fails is written with its error."""
    parser = argparse.ArgumentParser(prog="python -m tinygpt.savings.torch_rows", description=__doc__)
    parser.add_argument("--rows", nargs="+", type=row, default=list(ROWS), metavar="ROW")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", required=True)
    arguments = parser.parse_args(argv)
    torch.set_default_device("cuda")
    mx.set_default_device(mx.Device(mx.cpu))
    records: list[dict[str, Any]] = []
    for chosen in arguments.rows:
        for policy in POLICIES:
            records.append(_tried(chosen, policy, functools.partial(torch_row, rounds=arguments.rounds)))
            print(json.dumps({k: v for k, v in records[-1].items() if not k.endswith("s")}), flush=True)
            torch.cuda.empty_cache()
        where = {**describe(), "backend": "cuda", "device": torch.cuda.get_device_name(), "torch": torch.__version__}
        arguments.json.write_text(json.dumps({"environment": where, "records": records}, indent=1) + "\n")
    return 0


def _tried(chosen: Row, policy: str, run: Callable[[Row, str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return run(chosen, policy)
    except torch.cuda.OutOfMemoryError as error:
        return {"row": str(chosen), "framework": "torch", "policy": policy, "error": str(error).splitlines()[0]}


if __name__ == "__main__":
    sys.exit(main())
