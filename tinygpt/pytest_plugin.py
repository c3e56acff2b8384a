"""The pytest plugin: the marker ``memory``, its options, and the table at the end.

Light: MLX is not imported when it is loaded, because an installed plugin is loaded by every pytest run on the machine.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROW_PROPERTY = "tinygpt_row"

DEFAULT_BUDGET_S = 15.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tinygpt", "memory of checkpointed training")
    group.addoption("--memory-report", type=Path, metavar="FILE", help="write the memory table as JSON")
    group.addoption(
        "--memory-budget",
        type=float,
        default=DEFAULT_BUDGET_S,
        metavar="SECONDS",
        help="longest training step; what takes longer is projected from fewer blocks (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and collect rows where the session is held together."""
    config.addinivalue_line("markers", "memory: measures the memory of training; pytest -m memory")
    path = config.getoption("--memory-report")
    if path is not None and not path.parent.is_dir():
        raise pytest.UsageError(f"[--memory-report] {path}: got no such folder, expected a file to write to")
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist sends its reports on
        config.pluginmanager.register(_MemoryTable(config), "tinygpt-memory-table")


@pytest.fixture
def record_row(request: pytest.FixtureRequest) -> Any:
    """Return a function that puts a record of ``tinygpt.savings.table`` into the table at the end."""

    def record(row: dict[str, Any]) -> None:
        request.node.user_properties.append((ROW_PROPERTY, row))

    return record


class _MemoryTable:
    """Collects rows from test reports, prints them, and writes them to a file."""

    def __init__(self, config: pytest.Config) -> None:
        self._path: Path | None = config.getoption("--memory-report")
        self._rows: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the rows of a test that has run."""
        if report.when == "call":
            self._rows += [value for name, value in report.user_properties if name == ROW_PROPERTY]  # type: ignore[misc]

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Write the file, also when no row has run."""
        if self._path is not None:
            from tinygpt.environment import describe  # noqa: PLC0415  (MLX only when it is needed)

            report = {"environment": describe(), "rows": self._rows}
            self._path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        return (yield)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table."""
        if self._rows:
            from tinygpt.savings.table import as_lines  # noqa: PLC0415

            terminalreporter.section("memory of a training step, compiled, float32, gradients clipped")
            for line in as_lines(self._rows):
                terminalreporter.write_line(line)
