"""Whom to judge: names, addresses, and the shapes that a signature tells."""

import functools
import importlib.metadata
import sys
from contextlib import contextmanager

import mlx.core as mx
import mlx.nn as nn
import pytest

from tinygpt.conformance.subjects import BUILT_IN, Subject, as_subject, subject
from tinygpt.errors import NotApplicableError, SubjectError


def wrap(module, fn=None):
    """Wrap as nn.utils.checkpoint does."""


def wrap_fn(fn):
    """Wrap as mx.checkpoint does."""


@contextmanager
def enable(model):  # noqa: ARG001  (the name is the point)
    """Enable as mlx-lm does."""
    yield


def odd(one, two, three):
    """Nobody can tell."""


class Holder:
    @staticmethod
    def wrap(module, fn=None):
        """Hide in a class."""


@pytest.mark.parametrize(
    ("judged", "shape"),
    [
        (wrap, "wrap"),
        (wrap_fn, "wrap_fn"),
        (enable, "enable"),
        (nn.utils.checkpoint, "wrap"),
        (functools.partial(wrap), "wrap"),
        (Holder.wrap, "wrap"),
        (lambda f: f, "wrap_fn"),
        (lambda block: block, "wrap"),
    ],
    ids=["wrap", "wrap_fn", "enable", "MLX's own", "a partial", "a method", "a lambda of f", "a lambda of a block"],
)
def test_the_shape_is_told_from_the_parameters(judged, shape):
    """Three shapes, by the names that people give."""
    assert as_subject(judged).shape == shape


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "mlx-lm"])
def test_built_in_subjects_are_found(name):
    """Each has a name, and a version of the package that it comes from."""
    found = subject(name)

    assert (found.name, bool(found.version)) == (name, True)


def test_an_address_is_imported():
    """package.module:attribute, dots in the attribute too."""
    assert subject("mlx.nn:utils.checkpoint").function is nn.utils.checkpoint


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody", "expected one of tinygpt, mlx.nn"),
        ("no_such_module:wrap", "expected to import no_such_module"),
        ("mlx.nn:nothing", "got no 'nothing' in mlx.nn"),
        ("mlx.nn:__name__", "got str, expected a callable"),
        ("json:dumps", "or name the shape"),
        ("", "expected one of"),
        (":wrap", "or package.module:attribute"),
        ("mlx.nn:", "or package.module:attribute"),
    ],
)
def test_what_is_no_subject_is_refused(name, words):
    """One line that says what would be one."""
    with pytest.raises(SubjectError) as caught:
        subject(name)

    assert words in str(caught.value)
    assert str(caught.value).startswith("[subject] ")


def test_a_shape_that_does_not_exist_is_refused():
    """And the three that do are named."""
    with pytest.raises(SubjectError, match="expected one of wrap, wrap_fn, enable"):
        Subject("mine", wrap, "decorate")


def test_a_subject_tells_its_own_shape():
    """The name of its parameter is enough, as it is without a Subject around it."""
    assert [Subject("mine", each).shape for each in (wrap, wrap_fn, enable)] == ["wrap", "wrap_fn", "enable"]


@pytest.mark.parametrize("text", ["1 +", "raise KeyError('x')", "import sys; sys.exit(0)", "x = '\0'; \0"])
def test_a_module_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch, text):
    """Whatever it does while it is imported."""
    (tmp_path / "broken_wrapper.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_wrapper", raising=False)

    with pytest.raises(SubjectError, match=r"^\[subject\] broken_wrapper:wrap: got ") as caught:
        subject("broken_wrapper:wrap")

    assert "\n" not in str(caught.value)


def test_a_shape_that_is_given_is_taken():
    """A signature may be odd."""
    assert as_subject(odd, shape="wrap").shape == "wrap"


def test_a_registered_subject_is_found(monkeypatch):
    """Other packages register theirs through the entry-point group."""
    entry = importlib.metadata.EntryPoint("theirs", "mlx.nn.utils:checkpoint", "tinygpt.subjects")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [entry] if group == "tinygpt.subjects" else []
    )

    found = subject("theirs")

    assert (found.name, found.address) == ("theirs", "mlx.nn.utils:checkpoint")


def test_a_wrapper_of_whole_modules_is_asked_for_no_function():
    """What it cannot be given says nothing about it."""
    with Subject("whole", lambda module: module).applied(nn.Linear(2, 2)) as wrap:
        assert isinstance(wrap(nn.Linear(2, 2)), nn.Linear)
        with pytest.raises(NotApplicableError, match="wraps whole modules"):
            wrap(nn.Linear(2, 2), lambda x: x)


def test_parameters_are_put_back_around_a_wrapped_function():
    """The adapter for functions leaves the module as it was: a fault of the kit would be blamed on the wrapper."""
    module = nn.Linear(2, 2)
    before = module.weight
    with Subject("doubling", lambda fn: lambda parameters, x: fn({"weight": 2 * parameters["weight"]}, x)).applied(
        module
    ) as wrapped:
        doubled = wrapped(module)(mx.eye(2))

    assert module.weight is before
    assert mx.allclose(doubled - module.bias, 2 * before.T)
