"""Run checks in worker processes, side by side, and put what they found into a report."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinygpt.conformance.bound import BoundCheck
from tinygpt.conformance.expectations import Expectation, applied, check_known, overdue
from tinygpt.conformance.results import Report, Result
from tinygpt.conformance.rules import RULE_SET, UNTESTED, all_checks, select
from tinygpt.conformance.subjects import Subject, as_subject
from tinygpt.conformance.subjects import subject as named_subject
from tinygpt.conformance.worker import TIMEOUT_S, Worker
from tinygpt.errors import SubjectError

JOBS = 2

Listener = Callable[[Result], object]


def iter_checks(subject: Any, rules: str | Iterable[str] = "*") -> Iterator[BoundCheck]:
    """Yield every run of a check for a subject, in the order of the rules; nothing runs yet.

    Args:
        subject: A wrapper, a ``Subject``, or the name of one; see ``tinygpt.conformance.subjects.subject``.
        rules: Patterns of rules, checks or families: ``"G*"``, ``["R1", "footprint"]``.

    Raises:
        SubjectError: There is no such subject, or no such rule.
    """
    judged = named_subject(subject) if isinstance(subject, str) else as_subject(subject)
    check_declines(judged)
    for check, mode in select([rules] if isinstance(rules, str) else rules):
        yield BoundCheck(check, mode, judged)


def check_declines(subject: Subject) -> None:
    """Raise unless everything that a subject declines exists, and has a reason.

    Raises:
        SubjectError: Naming what it declines.
    """
    known = {name for entry in all_checks() for run in entry.ids() for name in (entry.rule, run.partition("[")[0], run)}
    declined = subject.declines
    if not isinstance(declined, Mapping):
        raise SubjectError(
            f"[subject] declines of {subject.name}: got {declined!r}, expected a dict of reasons by rule"
        )
    for name, reason in declined.items():
        if name not in known:
            raise SubjectError(f"[subject] declines of {subject.name}: got {name!r}, expected a rule or a check")
        if not isinstance(reason, str) or not reason.strip():
            raise SubjectError(f"[subject] reason to decline {name}: got {reason!r}, expected a text")


def check_checkpoint(
    subject: Any,
    *,
    rules: str | Iterable[str] = "*",
    expectations: Sequence[Expectation] = (),
    jobs: int = JOBS,
    timeout_s: float = TIMEOUT_S,
    listener: Listener = lambda _: None,
) -> Report:
    """Judge a checkpoint wrapper.

    Args:
        subject: ``wrap(module, fn=None)``, ``wrap_fn(fn)``, ``enable(model)``, a ``Subject``, or the name of one.
        rules: Patterns of rules, checks or families; all if not given.
        expectations: Failures that are known.
        jobs: Processes side by side.
        timeout_s: Longest time for one check, in seconds.
        listener: Called with each result as it comes.

    Returns:
        The report; ``report.exit_code`` is 0 where the wrapper conforms.

    Raises:
        SubjectError: There is no such subject, no such rule, or it cannot be sent to another process.
        ExpectationError: An expectation is about no check at all.

    Source:
        The rules: ``docs/rules.md``.
    """
    checks = list(iter_checks(subject, rules))
    check_known(expectations, [run for entry in all_checks() for run in entry.ids()])
    judged = checks[0].subject
    found, environment = judge_all(checks, jobs=jobs, timeout_s=timeout_s, listener=listener, expectations=expectations)
    results = {result.check: result for _, result in found}
    return Report(
        subject=described(judged),
        environment=environment,
        rule_set=RULE_SET,
        expected=[check.id for check in checks],
        results=[results.get(check.id) or not_run(check) for check in checks],
        untested=untested(),
        overdue=overdue(expectations),
    )


def described(subject: Subject) -> dict[str, Any]:
    """Return what a report says about a subject."""
    names = ("name", "version", "shape", "address")
    return {**{name: getattr(subject, name) for name in names}, "declines": dict(subject.declines)}


def not_run(check: BoundCheck) -> Result:
    """Return the result of a check that did not report."""
    return check.result("not_run", "the check did not report")


def untested() -> dict[str, str]:
    """Return the rules without a check, and why."""
    return {rule: why for rule, (_, _, why) in UNTESTED.items()}


def judge_all(
    checks: Sequence[BoundCheck],
    *,
    jobs: int = JOBS,
    timeout_s: float = TIMEOUT_S,
    listener: Listener = lambda _: None,
    expectations: Sequence[Expectation] = (),
) -> tuple[list[tuple[BoundCheck, Result]], dict[str, Any]]:
    """Run checks side by side; return each with what it found, and the environment of the processes."""
    ahead: queue.SimpleQueue[BoundCheck] = queue.SimpleQueue()
    for check in checks:
        ahead.put(check)
    found: list[tuple[BoundCheck, Result]] = []
    environments: list[dict[str, Any]] = []
    errors: list[BaseException] = []
    lock = threading.Lock()

    def work() -> None:
        with Worker(timeout_s) as worker:
            worker.start()
            environments.append(worker.environment)
            while not errors:
                try:
                    check = ahead.get_nowait()
                except queue.Empty:
                    return
                result = applied(judged_by(worker, check), expectations, check.subject.name, worker.environment)
                with lock:
                    found.append((check, result))
                    listener(result)

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, daemon=True) for _ in range(min(jobs, len(checks)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt as error:
        errors.append(error)
        raise
    for found_error in errors:
        raise found_error
    return found, environments[0]


def judged_by(worker: Worker, check: BoundCheck) -> Result:
    """Return the result of one run of a check, by a worker."""
    declined = check.reason_to_decline()
    if declined is not None:
        return check.result("not_applicable", f"declined: {declined}")
    answer = worker.judge(check.subject, check.id)
    return replace(check.result(answer["status"], answer["message"]), **answer)
