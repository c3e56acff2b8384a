"""Examine many models, each in a process that may die of it, a few at a time."""

import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from tinygpt.audit.finding import REFUSED, Finding
from tinygpt.audit.worker import Worker
from tinygpt.environment import describe
from tinygpt.errors import AuditError

TOOL = "tinygpt audit"
WORKERS = min(os.cpu_count() or 1, 8)

Say = Callable[[str], object]
Record = dict[str, Any]
Task = tuple[str, str, str]  # model, training, mode


def audit(
    names: Sequence[str],
    wrappers: Sequence[str],
    *,
    trainings: Iterable[str] = ("full",),
    modes: Iterable[str] = ("eager",),
    say: Say = lambda _: None,
) -> Record:
    """Examine models under wrappers.

    Args:
        names: As ``tinygpt.audit.specimen.specimen`` takes them.
        wrappers: Of ``tinygpt.audit.wrapping.WRAPPERS``.
        trainings: Of ``full``, ``lora``, ``qlora``.
        modes: Of ``eager``, ``compiled``.
        say: Called with a line for each model, as it is done.

    Returns:
        Ready for JSON: ``environment``, the version of ``mlx_lm``, ``seconds``, and ``findings`` in order.
    """
    begin = perf_counter()
    tasks = [(name, training, mode) for training, mode, name in product(trainings, modes, names)]
    found: list[Record] = []
    with ExitStack() as stack:
        idle: SimpleQueue[Worker] = SimpleQueue()
        pool = ThreadPoolExecutor(WORKERS)
        stack.callback(pool.shutdown, cancel_futures=True)
        for _ in range(min(WORKERS, len(tasks))):
            worker = Worker()
            stack.callback(worker.close)  # before it is waited for: on Ctrl-C nobody waits for a model
            idle.put(worker)
        for number, records in enumerate(pool.map(lambda task: _examined(idle, task, wrappers), tasks), start=1):
            found += records
            say(f"[{number}/{len(tasks)}] {_line(records)}")
    return {
        "tool": TOOL,
        "environment": describe(),
        "mlx_lm": _mlx_lm(),
        "seconds": round(perf_counter() - begin, 1),
        "findings": found,
    }


def _examined(idle: "SimpleQueue[Worker]", task: Task, wrappers: Sequence[str]) -> list[Record]:
    """Return what is found of one model; where it takes the process down, one wrapper after another tells which."""
    worker = idle.get()
    try:
        return worker.examine(task[0], wrappers, *task[1:])
    except AuditError as error:
        if len(wrappers) > 1:
            return list(_one_by_one(worker, task, wrappers))
        return [_died(task, wrappers[0], error)]
    finally:
        idle.put(worker)


def _one_by_one(worker: Worker, task: Task, wrappers: Sequence[str]) -> Iterator[Record]:
    for wrapper in wrappers:
        try:
            yield from worker.examine(task[0], [wrapper], *task[1:])
        except AuditError as error:
            yield _died(task, wrapper, error)


def _died(task: Task, wrapper: str, error: AuditError) -> Record:
    name, training, mode = task
    return Finding(name, wrapper, training, mode, REFUSED, str(error)).as_dict()


def _line(records: Sequence[Record]) -> str:
    first = records[0]
    said = ", ".join(f"{each['wrapper']} {each['verdict']}" for each in records)
    return f"{first['model']} ({first['training']}, {first['mode']}): {said}"


def _mlx_lm() -> str:
    try:
        return importlib.metadata.version("mlx-lm")
    except importlib.metadata.PackageNotFoundError:
        return ""
