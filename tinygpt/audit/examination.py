"""One model under one wrapper: what two steps leave behind, beside what the plain steps leave."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from tinygpt.audit.finding import NAN, NOT_BUILT, REFUSED, RIGHT, ROUNDED, UNTRAINABLE, USELESS, WRONG, Finding
from tinygpt.audit.handover import handovers
from tinygpt.audit.specimen import LENGTH, Specimen, can_be_deeper, specimen
from tinygpt.audit.wrapping import wrapped
from tinygpt.checkpointing import blocks_of
from tinygpt.conformance.compare import Difference, differences
from tinygpt.conformance.tolerances import OTHER_ORDER
from tinygpt.conformance.trial import Everything, held_arrays, in_a_line, value_and_grad, where
from tinygpt.errors import AuditError
from tinygpt.leaves import leaves
from tinygpt.memory.measure import measure

STEPS = 2
SHOWN = 3
LONG = 8 * LENGTH  # tokens of a sequence where memory is read
MEMORY_TRIALS = 2  # the first also compiles; all later ones read the same
DEPTH = 2  # times as deep, for what a further block costs


@dataclass(frozen=True)
class _Seen:
    """What steps leave behind."""

    values: Mapping[str, Any]
    gradients: Mapping[str, Any]
    rest: Mapping[str, Any]  # buffers, and the next random draw
    runs: Sequence[int]


def examine(name: str, wrappers: Sequence[str], *, training: str = "full", mode: str = "eager") -> list[Finding]:
    """Judge a model under some wrappers.

    Args:
        name: As ``specimen`` takes it.
        wrappers: Of ``tinygpt.audit.wrapping.WRAPPERS``.
        training: ``full``, ``lora`` or ``qlora``.
        mode: ``eager`` or ``compiled``.
    """
    try:
        built = specimen(name, training)
    except Exception as error:
        return [Finding(name, wrapper, training, mode, NOT_BUILT, _said(error)) for wrapper in wrappers]
    try:
        plain = _seen(built, "plain", mode)
    except Exception as error:
        return [Finding(name, wrapper, training, mode, UNTRAINABLE, _said(error)) for wrapper in wrappers]
    found = [_judged(name, wrapper, training, mode, plain) for wrapper in wrappers]
    if training != "full" or mode != "eager":
        return found
    return _with_more(found, name)


def _with_more(found: Sequence[Finding], name: str) -> list[Finding]:
    """Return findings with what blocks leave beside their results, and peaks; a verdict stands where that fails."""
    try:
        beside = [each.as_dict() for each in handovers(specimen(name))]
        peaks = _peaks(name, "plain")
        return [_with_peaks(replace(each, handovers=beside), peaks) for each in found]
    except Exception as error:
        said = f"more could not be read: {_said(error)}"
        return [replace(each, message="; ".join(filter(None, [each.message, said]))) for each in found]


def _judged(name: str, wrapper: str, training: str, mode: str, plain: _Seen) -> Finding:
    found = Finding(name, wrapper, training, mode, RIGHT, leaves=len(plain.gradients) // STEPS, blocks=len(plain.runs))
    try:
        seen = _seen(specimen(name, training), wrapper, mode)
    except Exception as error:
        return replace(found, verdict=REFUSED, message=_said(error))
    found = replace(found, recomputed=sum(a > b for a, b in zip(seen.runs, plain.runs, strict=True)))
    unlike = _differences(seen, plain)
    far = _differences(seen, plain, loose=Everything(), tolerance=OTHER_ORDER) if unlike else []
    if far:
        shown = "; ".join(map(str, far[:SHOWN])) + ("; …" if len(far) > SHOWN else "")
        gradients = differences(seen.gradients, plain.gradients, loose=Everything(), tolerance=OTHER_ORDER)
        wrong = {each.leaf.partition(".")[2] for each in gradients}  # whatever the step
        return replace(found, verdict=_kind(seen, plain), message=shown, wrong=len(wrong))
    if not found.recomputed:
        return replace(found, verdict=USELESS, message="no block ran again")
    return replace(found, verdict=ROUNDED, message=str(unlike[0])) if unlike else found


def _with_peaks(found: Finding, plain: Sequence[int]) -> Finding:
    """Return a finding with peaks; where gradients are wrong, a peak says nothing.

    Args:
        found: Without them.
        plain: What ``_peaks`` gives for the plain model.
    """
    if found.verdict not in (RIGHT, ROUNDED):
        return found
    (plain_bytes, *plain_deep), (bytes_, *deep) = plain, _peaks(found.model, found.wrapper)
    found = replace(found, plain_bytes=plain_bytes, peak_bytes=bytes_)
    if deep:
        further = (DEPTH - 1) * found.blocks
        found = replace(
            found, plain_slope=(plain_deep[0] - plain_bytes) // further, slope=(deep[0] - bytes_) // further
        )
    got, expected = (found.slope, found.plain_slope) if deep else (bytes_, plain_bytes)
    if got < expected:
        return found
    what = "a further block" if deep else "a step"
    return replace(found, verdict=USELESS, message=f"{what} takes {got} bytes, and {expected} plain")


def _peaks(name: str, wrapper: str) -> list[int]:
    """Return the peak of a model, and that of one ``DEPTH`` times as deep if there is one."""
    return [peak_bytes(name, wrapper, times=times) for times in ((1, DEPTH) if _is_deeper(name) else (1,))]


def _is_deeper(name: str) -> bool:
    """Return whether a model that is asked for several times as deep has as many times the blocks."""
    if not can_be_deeper(name):
        return False
    once, more = (len(blocks_of(specimen(name, times=times).model)) for times in (1, DEPTH))
    return more == DEPTH * once


def _said(error: Exception) -> str:
    if isinstance(error, AuditError):
        return str(error)
    return f"{type(error).__name__}: {in_a_line(error)}{where(error)}"


def _differences(seen: _Seen, plain: _Seen, **how: Any) -> list[Difference]:
    """Return how what was left behind differs, as ``differences`` is asked for it."""
    pairs = [(seen.values, plain.values), (seen.gradients, plain.gradients), (seen.rest, plain.rest)]
    return [each for got, expected in pairs for each in differences(got, expected, **how)]


def _kind(seen: _Seen, plain: _Seen) -> str:
    """Return whether what is wrong is no number where plain MLX has one."""
    finite = [
        all(bool(mx.all(mx.isfinite(array)).item()) for array in [*each.values.values(), *each.gradients.values()])
        for each in (seen, plain)
    ]
    return NAN if finite == [False, True] else WRONG


def _seen(found: Specimen, wrapper: str, mode: str) -> _Seen:
    with wrapped(found.model, wrapper) as runs:
        step = _step(found, mode)
        mx.random.seed(STEPS)
        results = []
        for _ in range(STEPS):
            results.append(step(*found.batch))
            mx.eval(results[-1], found.model.state)
    gradients = {
        f"step {number}.{leaf}": array
        for number, (_, tree) in enumerate(results, start=1)
        for leaf, array in leaves(tree).items()
    }
    return _Seen(
        {f"step {number}.loss": value for number, (value, _) in enumerate(results, start=1)},
        gradients,
        {"buffers": held_arrays(found.model), "draw": mx.random.uniform(shape=(4,))},
        [len(each) for each in runs],
    )


def _step(found: Specimen, mode: str) -> Any:
    return value_and_grad(found.model, lambda *batch: found.loss(found.model, *batch), compiled=mode == "compiled")


def peak_bytes(name: str, wrapper: str, *, times: int = 1) -> int:
    """Return the peak of an eager step of all parameters, above what was there.

    Args:
        name: As ``specimen`` takes it; of a tiny model the sequences are long, so that activations outweigh gradients.
        wrapper: Of ``WRAPPERS``.
        times: How many times as deep.
    """
    found = specimen(name, length=LONG, times=times)
    with wrapped(found.model, wrapper):
        step = _step(found, "eager")

        def work() -> Any:
            result = step(*found.batch)
            mx.eval(result)
            return result

        return measure(work, schedule="whole tree", trials=MEMORY_TRIALS).peak_bytes
