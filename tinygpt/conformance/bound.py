"""A check bound to a subject and a mode: what ``iter_checks`` yields, what pytest parametrizes, what a worker runs."""

import time
from dataclasses import asdict, dataclass

import mlx.core as mx

from tinygpt.conformance.results import Result
from tinygpt.conformance.rules import Check, check_id
from tinygpt.conformance.subjects import BUILT_IN, Subject, told_shape
from tinygpt.conformance.trial import SEED, Measurement, Trial, in_a_line, require_compile, where
from tinygpt.errors import ConformanceError, InconclusiveError, MeasureError, NotApplicableError


@dataclass(frozen=True)
class BoundCheck:
    """One run of a check that can be asked for.

    Attributes:
        check: The check.
        mode: ``eager`` or ``compiled``.
        subject: Who is judged.
    """

    check: Check
    mode: str
    subject: Subject

    @property
    def id(self) -> str:
        """The id of the run: ``G1.parameters[eager]``."""
        return check_id(self.check, self.mode)

    @property
    def again(self) -> str:
        """The one line that repeats it: a command, or Python for a wrapper that no other process can import."""
        name = self.subject.name if self.subject.name in BUILT_IN else self.subject.address
        if not name:
            return f"check_checkpoint({self.subject.name}, rules='{self.id}')"
        shape = "" if self.subject.shape == told_shape(self.subject.function) else f" --shape {self.subject.shape}"
        return f"tinygpt check {name}{shape} --rules '{self.id}'"

    def reason_to_decline(self) -> str | None:
        """Return why the subject declines it, if it does: by rule, by check or by run."""
        for name in (self.id, self.id.partition("[")[0], self.check.rule):
            if name in self.subject.declines:
                return self.subject.declines[name]
        return None

    def result(
        self, status: str, message: str = "", measurement: Measurement | None = None, seconds: float = 0.0
    ) -> Result:
        """Return a result of this run."""
        found = asdict(measurement) if measurement else {}
        return Result(
            rule=self.check.rule,
            check=self.id,
            level=self.check.level,
            status=status,
            message=message,
            again=self.again,
            seconds=round(seconds, 3),
            **{name: found[name] for name in ("measured", "bound", "schedule") if name in found},
        )

    def judge(self) -> Result:
        """Run the check here, in this process, and return what it found; a wrapper may take the process down."""
        declined = self.reason_to_decline()
        if declined is not None:
            return self.result("not_applicable", f"declined: {declined}")
        begin = time.perf_counter()
        status, message, measurement = self._run()
        return self.result(status, message, measurement, time.perf_counter() - begin)

    def _run(self) -> tuple[str, str, Measurement | None]:
        mx.random.seed(SEED)
        try:
            trial = Trial(self.subject, self.mode)
            if trial.compiled:
                require_compile()
            return "pass", "", self.check.run(trial)
        except NotApplicableError as error:
            return "not_applicable", str(error), None
        except (InconclusiveError, MeasureError) as error:
            return "inconclusive", str(error), None
        except ConformanceError as error:
            return "fail", in_a_line(error), None
        except Exception as error:
            return "error", f"the kit broke: {type(error).__name__}: {in_a_line(error)}{where(error)}", None
