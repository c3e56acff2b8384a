"""Nobody waits for a rank that is gone, and nobody is ended who need not be."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from tinygpt.train.ranks import Ranks
from tinygpt.train.stop import StopRequest
from tinygpt.train.team import Team
from tinygpt.train.watch import EXIT_LOST, Watch, is_alive

pytestmark = pytest.mark.distributed


@pytest.fixture
def process():
    """Return a process that waits for its end."""
    found = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield found
    found.kill()
    found.communicate()


def test_process_that_has_ended_is_gone(process):
    """It is alive until then."""
    assert is_alive(process.pid)

    process.kill()
    process.wait()

    assert not is_alive(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is found in /proc")
def test_process_that_nobody_has_asked_for_is_gone(process):
    """A zombie is not alive."""
    process.kill()
    time.sleep(0.5)

    assert not is_alive(process.pid)


def test_who_waits_for_the_dead_is_ended(process, capsys):
    """With the name of the rank, after its grace; not while it saves."""
    left = threading.Event()
    codes = []

    def leave(code):
        codes.append(code)
        left.set()

    with Watch({1: process.pid}, grace_s=0.5, leave=leave) as watch:
        watch.kept = "run.tinygpt has step 7"
        watch.done(8)
        process.kill()
        process.wait()
        with watch.paused():
            assert not left.wait(2)
        assert left.wait(10)

    assert codes == [EXIT_LOST]
    assert capsys.readouterr().err == (
        "[ranks] rank 1: got the end of its process after step 8, expected it to go on; run.tinygpt has step 7; "
        "waited 0.5 s\n"
    )


def test_who_is_asked_to_stop_and_waits_is_ended(process):
    """No rank of this machine is gone, and yet nobody answers; not at once, for the first may be saving."""
    for others in ({1: process.pid}, {}):
        left = threading.Event()

        with Watch(others, stopped=lambda: True, grace_s=0.1, patience_s=2.0, leave=lambda _, left=left: left.set()):
            assert not left.wait(1)
            assert left.wait(10)


def test_nobody_is_ended_while_all_live(process):
    """However long a step takes."""
    left = threading.Event()

    with Watch({1: process.pid}, grace_s=0.1, leave=lambda _: left.set()):
        assert not left.wait(2)


def test_second_signal_waits_for_a_saving_of_several_ranks():
    """MLX's launcher sends it when another rank has ended; of a process alone it ends the run at once."""
    request, several = StopRequest(), Ranks()
    several.size = 2
    team = Team(several, {}, request, Watch({}))
    request.receive(signal.SIGTERM, None)

    with team.saving():
        request.receive(signal.SIGTERM, None)
    with pytest.raises(SystemExit):
        request.receive(signal.SIGTERM, None)
