"""The suite's own set-up: the plugin, also where it is not installed, and the machine that the tests run on."""

import pytest

from tinygpt.environment import describe
from tinygpt.memory.in_flight import small_command_buffers
from tinygpt.savings import Machine, this_machine

pytest_plugins = ["tinygpt.pytest_plugin"]

small_command_buffers()


def pytest_report_header() -> str:
    """Name what the results are about."""
    environment = describe()
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    variables = " ".join(f"{name}={value}" for name, value in environment["variables"].items())
    return f"tinygpt: {packages} on {environment['backend']} ({environment['device']}) {variables}".rstrip()


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Machine:
    """The speed and the memory of this machine."""
    return this_machine(request.config.getoption("--memory-budget"))
