"""One check on one subject: the runs that it compares.

Plain and wrapped are run in the same way from the same seed. A control that fails says something about MLX, not about
the subject: the rule is not applicable then, with MLX's own words.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from tinygpt.conformance.cases import Case
from tinygpt.conformance.compare import Difference, differences
from tinygpt.conformance.subjects import PLAIN, Subject, Wrap
from tinygpt.conformance.tolerances import ATOMIC_ADDITIONS, Tolerance
from tinygpt.environment import backend
from tinygpt.errors import ConformanceError, InconclusiveError, MeasureError, NotApplicableError

SEED = 3
STEPS = 2
SHOWN = 3
PLAIN_RUNS = 16
# MLX's CPU backend compiles in one folder for all processes, and loads or compiles what another one is still writing.
# Then the check is judged again, when that one may have come to its end.
HALF_WRITTEN = ("Could not load C++ shared library", "[Compile::eval_cpu] Failed to compile function")
WAITS_S = (0, 1, 2, 4, 8)
NOTHING_COMPILED = (
    "mx.compile compiles nothing: it is switched off (MLX_DISABLE_COMPILE or mx.disable_compile), or MLX's CPU backend "
    "finds no g++"
)
LONGEST = 600  # characters of an error that are shown

# What MLX raises where it cannot do something.
MLX_ERRORS = (RuntimeError, ValueError)
# What a check raises itself passes through; everything else that is raised is the subject's.
VERDICTS = (ConformanceError, NotApplicableError, InconclusiveError, MeasureError)


@dataclass(frozen=True)
class Measurement:
    """What a check read, beside its verdict.

    Attributes:
        measured: Numbers by name; sizes end in ``_bytes``.
        bound: What they had to keep.
        schedule: In which order it was evaluated; a footprint means nothing without it.
    """

    measured: Mapping[str, Any]
    bound: str = ""
    schedule: str = ""


@dataclass(frozen=True)
class Trial:
    """A subject, and the mode in which a check runs it.

    Attributes:
        subject: Who is judged.
        mode: ``eager`` or ``compiled``.
    """

    subject: Subject
    mode: str = "eager"

    @property
    def compiled(self) -> bool:
        """Whether steps are compiled."""
        return self.mode == "compiled"

    def expect_equal(self, case: Case, *parts: str, tolerance: Tolerance | None = None) -> None:
        """Raise unless parts of what two steps leave behind equal the plain run's.

        Args:
            case: What to run.
            parts: ``values``, ``gradients``, ``module`` or ``draw``; see ``observe``.
            tolerance: How far every leaf may be off; to the bit if not given.

        Raises:
            ConformanceError: Naming the case and the first leaves that differ.
            NotApplicableError: Plain MLX cannot run the case.
        """
        expected = control(case, self.compiled)
        with self.guarded(f"case '{case}'"):
            got = observe(case, self.subject, compiled=self.compiled)
        found = {NAMES[p]: self._differences(case, p, got[p], expected[p], tolerance=tolerance) for p in parts}
        self._raise_for(case, {name: unlike for name, unlike in found.items() if unlike})

    def expect_same_results(self, case: Case) -> None:
        """Raise unless a case's function returns what it returns plain; nothing is differentiated around it."""
        with plainly(f"case '{case}'"):
            expected = results(case, PLAIN, compiled=self.compiled)
        with self.guarded(f"case '{case}'"):
            got = results(case, self.subject, compiled=self.compiled)
        found = differences(got, expected)
        self._raise_for(case, {"results": found} if found else {})

    @contextmanager
    def wrapping(self, model: nn.Module, place: str) -> Iterator[Wrap]:
        """Yield the subject's wrapper for the parts of a model; an exception inside is the subject's failure."""
        with self.guarded(place), self.subject.applied(model) as wrap:
            yield wrap

    @contextmanager
    def guarded(self, place: str) -> Iterator[None]:
        """Turn an exception of the subject into a failure: where this is used, plain MLX has none."""
        try:
            yield
        except VERDICTS:
            raise
        except Exception as error:
            said = in_a_line(error)
            raise ConformanceError(
                f"{place}: got {type(error).__name__}: {said}{where(error)}, expected no exception"
            ) from error

    def _raise_for(self, case: Case, found: dict[str, list[Difference]]) -> None:
        """Raise with the leaves of the first part that is unlike plain, and the names of the others."""
        if not found:
            return
        (what, unlike), *others = found.items()
        shown = "; ".join(map(str, unlike[:SHOWN])) + ("; …" if len(unlike) > SHOWN else "")
        also = f" (and so are {' and '.join(name for name, _ in others)})" if others else ""
        raise ConformanceError(f"case '{case}': {what} unlike plain{also}: {shown}")

    def _differences(
        self, case: Case, part: str, got: Any, expected: Any, *, tolerance: Tolerance | None
    ) -> list[Difference]:
        if tolerance is not None:
            return differences(got, expected, loose=Everything(), tolerance=tolerance)
        found = differences(got, expected)
        if not found or backend() != "cuda":
            return found
        # Atomic additions: leaves in which plain runs differ among themselves, though often two of them agree.
        again = [observe(case, PLAIN, compiled=self.compiled)[part] for _ in range(PLAIN_RUNS)]
        loose = {difference.leaf for other in again for difference in differences(other, expected)}
        return differences(got, expected, loose=loose, tolerance=ATOMIC_ADDITIONS)


def where(error: BaseException) -> str:
    """Return the line of Python that an exception came from, as a part of a sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


class Everything:
    """A collection of all names."""

    def __contains__(self, name: object) -> bool:
        """Say yes."""
        return True


NAMES = {
    "values": "values",
    "gradients": "gradients",
    "module": "arrays left in the module",
    "draw": "the next random draw",
}


def observe(case: Case, subject: Subject, *, compiled: bool, steps: int = STEPS) -> dict[str, Any]:
    """Take loss and gradients of a case several times, and return everything that can be seen afterwards.

    Args:
        case: What to run.
        subject: Who wraps.
        compiled: Whether the step is compiled.
        steps: How often; the random state and the module's buffers go on from one to the next.

    Returns:
        Trees of arrays: ``values`` and ``gradients`` of each step; ``module``, all arrays that the model holds;
        ``draw``, the next random numbers.
    """
    mx.random.seed(SEED)
    model, batch = case.build()
    mx.eval(model.state, batch)
    with subject.applied(model) as wrap:
        step = value_and_grad(model, lambda *batch: case.loss(model, wrap, *batch), compiled=compiled)
        results = []
        for _ in range(steps):
            results.append(step(*batch))
            mx.eval(results[-1], model.state)
    return {
        "values": {f"step {number}": value for number, (value, _) in enumerate(results, start=1)},
        "gradients": {f"step {number}": gradients for number, (_, gradients) in enumerate(results, start=1)},
        "module": held_arrays(model),
        "draw": mx.random.uniform(shape=(4,)),
    }


def results(case: Case, subject: Subject, *, compiled: bool) -> Any:
    """Return what a case's function returns, evaluated, without differentiating it."""
    mx.random.seed(SEED)
    model, batch = case.build()
    mx.eval(model.state, batch)
    with subject.applied(model) as wrap:
        function: Callable[..., Any] = lambda *batch: case.loss(model, wrap, *batch)  # noqa: E731
        if compiled:
            function = mx.compile(function, inputs=[model.state, mx.random.state])
        found = function(*batch)
        mx.eval(found)
    return found


def value_and_grad(model: nn.Module, loss: Callable[..., Any], *, compiled: bool) -> Callable[..., Any]:
    """Return the step of a model: compiled, with everything it holds and the random state as inputs and outputs."""
    step: Callable[..., Any] = nn.value_and_grad(model, loss)
    if compiled:
        state = [model.state, mx.random.state]
        step = mx.compile(step, inputs=state, outputs=state)
    return step


@lru_cache(maxsize=512)
def control(case: Case, compiled: bool) -> dict[str, Any]:
    """Return what the plain run of a case leaves behind.

    Raises:
        NotApplicableError: Plain MLX cannot run the case.
    """
    with plainly(f"case '{case}'"):
        return observe(case, PLAIN, compiled=compiled)


@contextmanager
def plainly(place: str) -> Iterator[None]:
    """Turn MLX's error in a plain run into: not applicable, in its words. Any other is the kit's own fault."""
    try:
        yield
    except VERDICTS:
        raise
    except MLX_ERRORS as error:
        said = in_a_line(error)
        raise NotApplicableError(f"{place}: plain MLX {version('mlx')} cannot run it: {said}") from error


def require_compile() -> None:
    """Raise unless ``mx.compile`` compiles.

    Raises:
        NotApplicableError: What is called compiled would run eagerly; or the C++ compiler does not take what MLX's CPU
            backend writes.
    """
    reason = _why_not_compiled()
    if reason:
        raise NotApplicableError(reason)


@cache
def _why_not_compiled() -> str:
    """Return why nothing can be compiled; empty if it can."""
    calls = 4  # the very first compiled function of a process is traced twice on MLX 0.32.4
    for wait_s in WAITS_S:
        time.sleep(wait_s)
        traces: list[int] = []
        try:
            function = mx.compile(partial(_chain, traces))
            for _ in range(calls):
                mx.eval(function(mx.array(1.0)))
        except MLX_ERRORS as error:
            reason = f"plain MLX {version('mlx')} cannot compile here: {in_a_line(error)}"
            if HALF_WRITTEN[0] not in reason:
                break
        else:
            return "" if len(traces) < calls else NOTHING_COMPILED
    return reason


def _chain(traces: list[int], x: mx.array) -> mx.array:
    """Count the trace; a single operation would not be compiled."""
    traces.append(1)
    return mx.exp(-x) * x


def in_a_line(error: BaseException) -> str:
    """Return what an error says in one line, without its middle where it is long: a compiler prints pages."""
    said = " ".join(str(error).split())
    return said if len(said) <= LONGEST else f"{said[: LONGEST // 2]} … {said[-LONGEST // 2 :]}"


def held_arrays(model: nn.Module) -> dict[str, mx.array]:
    """Return every array that a module tree holds, private ones too, by its path."""
    return dict(_walk("", model))


def _walk(path: str, value: Any) -> Iterator[tuple[str, mx.array]]:
    if isinstance(value, mx.array):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(f"{path}.{key}".lstrip("."), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(f"{path}.{index}", item)
