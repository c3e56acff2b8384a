"""The house keeps its order: imports point down, rooms stay small, errors and prints are where they belong."""

import ast
from pathlib import Path

import pytest

import tinygpt

ROOT = Path(tinygpt.__file__).parent

# From the cellar up; what stands in one line does not know its neighbours.
FLOORS = [
    ["errors", "leaves", "units", "plan", "printable"],
    ["config", "report"],
    ["presets", "variants", "environment", "train_config"],
    ["model", "evidence"],
    ["checkpointing", "memory"],
    ["tinygpt_file"],
    ["conformance", "train", "reference"],
    ["faults", "savings", "equality", "durability", "gate", "audit"],
    ["cli", "pytest_plugin"],
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

MODULES = sorted(
    path for path in ROOT.rglob("*.py") if path.name not in ("__init__.py", "__main__.py") or path.parent != ROOT
)


def room(path):
    """Return the sub-package or module, directly below tinygpt, that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path):
    """Return the rooms of the package that a module imports from."""
    tree = ast.parse(path.read_text())
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("tinygpt.")}


def test_every_room_has_its_floor():
    """A new room is entered here, or nobody knows what it may import."""
    assert len(MODULES) > 30
    assert {room(path) for path in MODULES} == set(FLOOR)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    """A module imports from floors below its own, and from its own room."""
    here = room(path)

    upwards = {other for other in imported_rooms(path) if other != here and FLOOR[other] >= FLOOR[here]}

    assert upwards == set()


def test_the_judge_does_not_know_the_accused():
    """Nothing in conformance reaches checkpointing, not even through another room."""
    reached, ahead = set(), ["conformance"]
    while ahead:
        here = ahead.pop()
        if here not in reached:
            reached.add(here)
            ahead += [other for path in MODULES if room(path) == here for other in imported_rooms(path)]

    assert "checkpointing" not in reached


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_are_small(path):
    """No module is above 400 lines, no function above 60, and none takes more than four arguments by position."""
    text = path.read_text()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    assert text.count("\n") <= 400
    assert [f.name for f in functions if f.end_lineno - f.lineno >= 60] == []
    assert [f.name for f in functions if len(f.args.args) > 5] == []


def test_memory_is_asked_for_in_one_file():
    """Only measure.py asks MLX for memory, and only it and in_flight.py set limits."""
    asking = {
        str(path.relative_to(ROOT))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.endswith(("_memory", "_cache", "memory_limit", "cache_limit"))
        if isinstance(node.value, ast.Name) and node.value.id == "mx"
    }

    assert asking == {"memory/in_flight.py", "memory/measure.py"}


def test_the_library_asserts_nothing():
    """Assertions are for tests: python -O drops them."""
    assert [
        path.name
        for path in MODULES
        if any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(path.read_text())))
    ] == []


def test_ids_are_the_same_in_every_process(request):
    """No test is named after an address: pytest-xdist refuses to run what its processes do not agree on."""
    assert [item.nodeid for item in request.session.items if " at 0x" in item.nodeid] == []
