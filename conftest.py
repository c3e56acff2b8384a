"""The suite's own set-up: the plugin, also where it is not installed, and the machine that the tests run on."""

import os
import signal
import tempfile
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase, MultiplexedDatabase, ReadOnlyDatabase

from tinygpt.environment import describe
from tinygpt.memory.in_flight import small_command_buffers
from tinygpt.pytest_plugin import SCALES
from tinygpt.savings import Machine, this_machine
from tinygpt.train.compiler import can_compile

pytest_plugins = ["tinygpt.pytest_plugin"]

WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER:  # MLX compiles into one folder for all processes, and one may load what another is still writing
    os.environ["TMPDIR"] = str(Path(tempfile.gettempdir()) / f"tinygpt-{WORKER}")
    Path(os.environ["TMPDIR"]).mkdir(exist_ok=True)

small_command_buffers()

# quick is for every run; thorough for a release: pytest --hypothesis-profile thorough
EXAMPLES = DirectoryBasedExampleDatabase(Path(__file__).parent / "tests" / "correctness" / "examples")
for name, count in (("quick", 40), ("thorough", 5000)):
    settings.register_profile(
        name,
        max_examples=count,
        deadline=None,  # the first example of a shape compiles
        database=MultiplexedDatabase(DirectoryBasedExampleDatabase(".hypothesis/examples"), ReadOnlyDatabase(EXAMPLES)),
    )
settings.load_profile("quick")

# Files whose tests may run in any process: they are many, and share nothing that takes long to make.
SPREAD = ("test_equality.py", "test_policy.py", "test_resume.py", "test_variants.py")

COMPILES = can_compile()
if not COMPILES:  # here and in every process that a test starts; the report's header says so
    mx.disable_compile()
    os.environ["MLX_DISABLE_COMPILE"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    """Register the suite's own markers, and hear Ctrl-C, which a shell takes from what it runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and not hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # every process that a test starts inherits that
    config.addinivalue_line("markers", "distributed: several processes that train together, on this machine")
    config.addinivalue_line("markers", "asked: a benchmark that runs only where -m or --benchmark-only asks for it")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the benchmarks that nobody has asked for, and say what stays together in one of several processes."""
    _leave_out(config, items)
    if hasattr(config, "workerinput"):
        _group(items)


def _group(items: list[pytest.Item]) -> None:
    """Begin with all that measures memory, in one process; keep the tests of a file together, which share fixtures."""
    items.sort(key=lambda item: item.get_closest_marker("memory") is None)
    for item in items:
        if item.get_closest_marker("memory"):
            item.add_marker(pytest.mark.xdist_group("memory"))
        elif item.path.name not in SPREAD:
            item.add_marker(pytest.mark.xdist_group(item.path.name))


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the benchmarks that nobody has asked for; pytest counts them."""
    if "benchmark" in config.option.markexpr or config.getoption("benchmark_only", False):
        return
    left_out = [item for item in items if item.get_closest_marker("asked")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("asked")]


def pytest_report_header() -> list[str]:
    """Name what the results are about."""
    environment = describe()
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    variables = " ".join(f"{name}={value}" for name, value in environment["variables"].items())
    lines = [f"tinygpt: {packages} on {environment['backend']} ({environment['device']}) {variables}".rstrip()]
    if not COMPILES:
        lines.append("tinygpt: no C++ compiler, so nothing is compiled, also where a test says that it is")
    return lines


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Machine:
    """The speed and the memory of this machine."""
    scale = SCALES[request.config.getoption("--scale")]
    return this_machine(scale * request.config.getoption("--memory-budget"))
