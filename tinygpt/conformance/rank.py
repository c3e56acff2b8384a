"""One of several processes that train a case together, each on its own rows and with its own dropout masks.

The judge asks with one line of JSON and answers with another: the process says what gradients it has, and averages them
when all ranks have the same.
"""

import base64
import contextlib
import json
import os
import pickle
import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import Any

from tinygpt.conformance.packing import packed, unpacked
from tinygpt.conformance.subjects import Subject
from tinygpt.errors import ConformanceError, InconclusiveError, NotApplicableError

START = "from tinygpt.conformance.rank import serve; serve()"
CONNECT_S, ANSWERS_S = 60.0, 120.0  # for all ranks together; with both tries below the time that a check has
TRIES = 2
HOST = "127.0.0.1"

Json = dict[str, Any]


class Rank:
    """A process, one of several on this machine."""

    def __init__(self, number: int, hosts: Path) -> None:
        """Start it.

        Args:
            number: From 0.
            hosts: MLX's list of addresses.
        """
        self.number = number
        path = os.pathsep.join(each for each in sys.path if each)
        self._process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # MLX tells of sockets there
            text=True,
            env={**os.environ, "PYTHONPATH": path, "MLX_RANK": str(number), "MLX_HOSTFILE": str(hosts)},
        )

    def tell(self, request: Json) -> None:
        """Send a line."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()

    def hear(self, timeout_s: float) -> Json:
        """Return the next line, or ``death``: how the process ended, or that it says nothing in time."""
        stream = self._process.stdout
        if stream is None:
            return {"death": "a process without pipes"}
        with DefaultSelector() as selector:
            selector.register(stream, EVENT_READ)
            if not selector.select(timeout_s):
                return {"death": f"no answer within {timeout_s:.0f} s", "late": True}
        line = stream.readline()
        if not line:
            return {"death": f"an interpreter that died, {self._process.wait()}"}
        found: Json = json.loads(line)
        return found

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def connected(count: int) -> Iterator[list[Rank]]:
    """Start processes that MLX has connected, inside the context.

    Raises:
        InconclusiveError: They take too long to start.
        NotApplicableError: MLX cannot connect processes here.
    """
    said = ""
    for _ in range(TRIES):  # another process may take a port meanwhile
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            hosts = Path(folder) / "hosts.json"
            hosts.write_text(json.dumps([[f"{HOST}:{port}"] for port in free_ports(count)]), encoding="utf-8")
            found = [Rank(number, hosts) for number in range(count)]
            for each in found:
                stack.callback(each.stop)
            until = monotonic() + CONNECT_S
            answers = [each.hear(max(until - monotonic(), 0)) for each in found]
            said = next((str(answer["death"]) for answer in answers if "death" in answer), "")
            said = said or next((answer["error"] for answer in answers if "error" in answer), "")
            if not said:
                yield found
                return
            if all("late" in answer for answer in answers if "rank" not in answer):
                raise InconclusiveError(f"[rank] start of {count} processes: got {said}, expected them to connect")
    raise NotApplicableError(f"MLX cannot connect {count} processes here: {said}")


def free_ports(count: int) -> list[int]:
    """Return ports, one after another, that nobody has at the moment.

    Raises:
        InconclusiveError: There are none.
    """
    for _ in range(100):
        first = random.SystemRandom().randrange(20000, 60000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind((HOST, port))
            return list(range(first, first + count))
    raise InconclusiveError(f"[rank] ports: got none, expected {count} that nobody has")


def averaged(subject: Subject, case: str, *, compiled: bool, count: int) -> Sequence[Mapping[str, Any]]:
    """Return what each of several ranks has after two steps: values of its own, and averaged gradients.

    Args:
        subject: Who wraps.
        case: Name of one of ``tinygpt.conformance.distributed.CASES``.
        compiled: Whether steps are compiled.
        count: How many ranks.

    Raises:
        ConformanceError: A rank fails, or has other gradients than the first.
        NotApplicableError: MLX cannot connect processes here.
    """
    request = {"subject": packed(subject), "case": case, "compiled": compiled}
    with connected(count) as found:
        for rank in found:
            rank.tell(request)
        until = monotonic() + ANSWERS_S
        names = [_heard(rank, until)["leaves"] for rank in found]
        for rank, own in zip(found, names, strict=True):
            if own != names[0]:
                unlike = sorted(set(own) ^ set(names[0])) or ["their order"]
                raise ConformanceError(
                    f"rank {rank.number}: got {len(own)} gradients, unlike rank 0 in {unlike[0]}, expected the same"
                )
        for rank in found:
            rank.tell({"average": True})
        return [pickle.loads(base64.b64decode(_heard(rank, until)["arrays"])) for rank in found]


def _heard(rank: Rank, until: float) -> Json:
    answer = rank.hear(max(until - monotonic(), 0))
    problem = answer.get("death") or answer.get("error")
    if problem:
        raise ConformanceError(f"rank {rank.number}: got {problem}, expected a result")
    return answer


def serve() -> None:
    """Connect, then train one case."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: Json) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        import mlx.core as mx  # noqa: PLC0415  (in this process only)

        group = mx.distributed.init(strict=True)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})
        return
    say({"rank": group.rank()})
    asked: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    try:
        _train(json.loads(asked.get()), group, say, asked)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})


def _listen(asked: "SimpleQueue[str]") -> None:
    """Hand on what is asked; end where nobody is left that could ask, whatever this process waits for."""
    for line in sys.stdin:
        asked.put(line)
    os._exit(1)


def _train(request: Json, group: Any, say: Any, asked: "SimpleQueue[str]") -> None:
    import mlx.core as mx  # noqa: PLC0415
    import mlx.nn as nn  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    from tinygpt.conformance.distributed import CASES, share  # noqa: PLC0415
    from tinygpt.leaves import leaves  # noqa: PLC0415

    subject = unpacked(request["subject"])
    found = share(CASES[request["case"]], subject, group.rank(), group.size(), compiled=request["compiled"])
    say({"leaves": list(leaves(found["gradients"]))})
    asked.get()
    found["gradients"] = nn.average_gradients(found["gradients"], group)
    mx.eval(found["gradients"])
    flat = {part: {name: np.array(each) for name, each in leaves(found[part]).items()} for part in found}
    say({"arrays": base64.b64encode(pickle.dumps(flat)).decode()})
