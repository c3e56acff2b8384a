"""The pytest plugin: the marker ``memory`` and its table; ``--subject`` and the report of a judgement.

Light: MLX is not imported when it is loaded, because an installed plugin is loaded by every pytest run on the machine.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROW_PROPERTY = "tinygpt_row"
CHECK_PROPERTY = "tinygpt_check"

DEFAULT_BUDGET_S = 15.0
SCALES = {"quick": 0.1, "auto": 1.0, "full": math.inf}  # of the budget


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
    group.addoption(
        "--scale",
        choices=list(SCALES),
        default="auto",
        help="quick: a tenth of the budget; full: every row whole that the memory holds (default: %(default)s)",
    )
    judge = parser.getgroup("tinygpt-conformance", "judging a checkpoint wrapper")
    judge.addoption(
        "--subject",
        action="append",
        default=[],
        metavar="NAME",
        help="judge a wrapper, beside the tests; may be repeated",
    )
    judge.addoption("--rules", action="append", default=[], metavar="GLOB", help="rules that --subject is held to")
    judge.addoption(
        "--conformance-report",
        type=Path,
        metavar="FILE",
        help="write what was judged as JSON; for several subjects, FILE-NAME.json for each",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and collect rows where the session is held together."""
    config.addinivalue_line("markers", "memory: measures the memory of training; pytest -m memory")
    for option in ("--memory-report", "--conformance-report"):
        path = config.getoption(option)
        if path is not None and not path.parent.is_dir():
            raise pytest.UsageError(f"[{option}] {path}: got no such folder, expected a file to write to")
    if config.getoption("--rules") and not config.getoption("--subject"):
        raise pytest.UsageError("[--rules] got no --subject, expected one that is held to them")
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist sends its reports on
        config.pluginmanager.register(_MemoryTable(config), "tinygpt-memory-table")
    if config.getoption("--conformance-report") is not None:
        config.pluginmanager.register(_Judgement(config), "tinygpt-judgement")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add one test for each run of a check of each ``--subject``."""
    subjects = config.getoption("--subject")
    if not subjects:
        return
    from tinygpt.conformance.parametrize import calls  # noqa: PLC0415  (MLX only when it is needed)
    from tinygpt.errors import SubjectError  # noqa: PLC0415

    sys.path.insert(0, str(config.invocation_params.dir))  # as tinygpt check finds them
    try:
        found = calls(subjects, config.getoption("--rules") or ["*"])
    except SubjectError as error:
        raise pytest.UsageError(str(error)) from None
    items += [_CheckItem.from_parent(session, name=call.id, call=call) for call in found]


class _CheckItem(pytest.Item):
    """A run of a check that no file holds."""

    def __init__(self, *, call: Any, **more: Any) -> None:
        super().__init__(**more)
        self.check_call = call

    def runtest(self) -> None:
        """Run the check."""
        self.check_call()

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """Return what the check says, without the code that says it."""
        from tinygpt.errors import ConformanceError, InconclusiveError  # noqa: PLC0415

        if isinstance(excinfo.value, ConformanceError | InconclusiveError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where it stands: nowhere."""
        return self.path, None, self.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Hand on what a check found; a worker of pytest-xdist can send nothing but properties of a test."""
    call = _check_call(item)
    found = call.found() if call is not None else {}
    if found and not any(name == CHECK_PROPERTY for name, _ in item.user_properties):
        item.user_properties.append((CHECK_PROPERTY, found))
    return (yield)


def _check_call(item: pytest.Item) -> Any:
    """Return the run of a check that a test is about, if it is about one."""
    if isinstance(item, _CheckItem):
        return item.check_call
    specification = getattr(item, "callspec", None)
    call = specification.params.get("check") if specification else None
    return call if hasattr(call, "check") and hasattr(call, "expectations") else None


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


class _Judgement:
    """Collects what checks found, and writes one report for each subject."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._path: Path = config.getoption("--conformance-report")
        self._expected: dict[str, Any] = {}
        self._found: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist was to run."""
        self._expected.update(getattr(node, "workeroutput", {}).get(CHECK_PROPERTY, {}))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note every check that is to run, before any has."""
        self._expected = {call.id: call.expected() for call in map(_check_call, items) if call is not None}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a check found."""
        for name, value in report.user_properties:
            if name == CHECK_PROPERTY:
                found: Any = value
                self._found[found["id"]] = found

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Write the reports; what was to run and did not is in them, as not run."""
        if hasattr(self._config, "workerinput"):
            self._config.workeroutput[CHECK_PROPERTY] = self._expected  # type: ignore[attr-defined]
        else:
            from tinygpt.conformance.parametrize import write_reports  # noqa: PLC0415

            write_reports(self._path, self._expected, self._found)
        return (yield)
