"""Judging in a process of its own: it may die, hang and print, and the judge goes on."""

import os
import signal
import sys
import threading
import time

import mlx.nn as nn
import pytest

from tinygpt.conformance import Subject, check_checkpoint
from tinygpt.conformance.worker import Worker
from tinygpt.errors import SubjectError


def dies(*_):
    """Take the interpreter down."""
    os.kill(os.getpid(), signal.SIGKILL)


def leaves(*_):
    """End the process as though all were well."""
    os._exit(0)


def hangs(*_):
    """Never come back."""
    time.sleep(1000)


def prints(*_):
    """Print what looks like an answer."""
    sys.stdout.write('{"status": "pass", "message": ""}\n')
    sys.stdout.flush()
    os.write(1, b'{"status": "pass", "message": ""}\n')
    return lambda *_: 1 / 0


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [(dies, "the interpreter died (SIGKILL)"), (leaves, "exit code 0"), (hangs, "no answer came in 3 s")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_wrapper_that_kills_the_process_fails_the_check_and_no_other(wrapper, words):
    """The next check runs in a new process."""
    subject = Subject("killer", wrapper, "wrap")

    report = check_checkpoint(subject, rules=["V1", "V2"], jobs=1, timeout_s=3)

    assert {result.status for result in report.results} == {"fail"}
    assert all(words in result.message for result in report.results)


def test_a_time_that_is_too_short_for_plain_mlx_too_is_inconclusive():
    """Then it says nothing about the wrapper."""
    report = check_checkpoint("plain", rules="V2", jobs=1, timeout_s=0.0001)

    assert report.counts["required"] == {"inconclusive": 1}
    assert report.exit_code == 2


def test_what_a_wrapper_prints_is_no_answer():
    """Answers go through a channel of their own."""
    (result,) = check_checkpoint(Subject("printer", prints, "wrap"), rules="V2").results

    assert result.status == "fail"
    assert "ZeroDivisionError" in result.message


@pytest.mark.parametrize(("times", "status"), [(1, "pass"), (9, "fail")])
def test_a_check_that_met_a_half_written_kernel_is_judged_again(tmp_path, monkeypatch, times, status):
    """Another process was compiling the same; what does not go away is a failure all the same."""
    seen = tmp_path / "seen"
    monkeypatch.setattr("tinygpt.conformance.worker.WAITS_S", (0,) * 5)

    def unlucky(module, fn=None):
        count = len(seen.read_text()) if seen.exists() else 0
        seen.write_text("x" * (count + 1))
        if count < times:
            raise RuntimeError("Could not load C++ shared library /tmp/mlx/x.so: file too short")
        return nn.utils.checkpoint(module, fn)

    with Worker() as worker:
        answer = worker.judge(Subject("unlucky", unlucky, "wrap"), "V2.structure[eager]")

    assert answer["status"] == status


def test_a_process_is_started_once_for_many_checks():
    """Only a death costs a new one."""
    with Worker() as worker:
        for check in ("V1.outputs[eager]", "V2.structure[eager]", "G1.parameters[eager]"):
            assert worker.judge(Subject("mlx.nn", nn.utils.checkpoint), check)["status"] == "pass"

        assert worker.started == 1


def test_a_subject_that_cannot_be_sent_is_refused():
    """A lock, for example, has no other place to be."""
    lock = threading.Lock()

    def holds(*_):
        return lock

    with Worker() as worker, pytest.raises(SubjectError, match=r"expected what can be sent to another process"):
        worker.judge(Subject("holder", holds, "wrap"), "V2.structure[eager]")


def test_the_environment_is_the_process_own():
    """It names MLX and the settings that matter."""
    with Worker() as worker:
        worker.start()

        assert worker.environment["packages"]["mlx"]
        assert worker.environment["variables"]["MLX_MAX_OPS_PER_BUFFER"] == "1"
