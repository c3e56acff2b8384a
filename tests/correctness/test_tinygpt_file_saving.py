"""How the file is written: a whole one is there at every moment, and nothing of others is touched."""

import resource
import signal
import stat
import subprocess
import sys

import mlx.core as mx
import pytest

from tinygpt.durability.kills import kill_once
from tinygpt.durability.small import trained, write_small_file
from tinygpt.errors import SaveError, TrainingError
from tinygpt.tinygpt_file import beside, load, remove_unfinished, save, sole_writer
from tinygpt.train.state import tensors


@pytest.fixture
def path(tmp_path):
    """A file without fault, in a folder of its own."""
    path = tmp_path / "run.tinygpt"
    write_small_file(path)
    return path


@pytest.fixture
def whole(path):
    """The bytes of that file."""
    return path.read_bytes()


def names(folder):
    """Return what is in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def test_saving_keeps_the_file_before_it(path, whole):
    """The old contents stand under .previous, the new ones under the name, and nothing else is there."""
    trained().save(path)

    assert beside(path, ".previous").read_bytes() == whole
    assert load(path)[0].step == 2
    assert names(path.parent) == ["run.tinygpt", "run.tinygpt.previous"]


def test_saving_can_leave_the_previous_file_alone(path):
    """What is damaged is not worth keeping: then .previous stays what it is."""
    previous = beside(path, ".previous")
    previous.write_bytes(b"good")

    trained().save(path, keep_previous=False)

    assert previous.read_bytes() == b"good"
    assert load(path)[0].step == 2


def test_saved_file_has_the_permissions_of_any_new_file(tmp_path):
    """Whoever may read what the user writes may read this too."""
    (tmp_path / "other").write_text("")
    trained().save(tmp_path / "run.tinygpt")

    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("other", "run.tinygpt")}

    assert len(modes) == 1


def test_full_disk_is_one_error_and_loses_nothing(path, whole):
    """Where no byte more can be written, the old file is whole and the unfinished one is gone."""
    trainer = trained()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, limits[1]))
    try:
        with pytest.raises(SaveError) as caught:
            trainer.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)

    assert str(caught.value) == f"[{path}] saving: got File too large, expected room for the file"
    assert path.read_bytes() == whole
    assert names(path.parent) == ["run.tinygpt"]


def test_file_that_could_not_be_read_again_is_not_written(path, whole):
    """A tensor too few is found before anything is written."""
    trainer = trained()
    arrays = tensors(trainer.model, trainer._optimizer)
    del arrays["random.key"]

    with pytest.raises(SaveError, match=r"tensor random\.key: got none, expected one"):
        save(path, trainer.header, arrays)

    assert path.read_bytes() == whole


CRASH = """
import os, signal, sys
from tinygpt.durability.small import write_small_file
from pathlib import Path

path, deadly = Path(sys.argv[1]), int(sys.argv[2])
seen = 0

def kill(event, arguments):
    global seen
    if event in ("open", "os.remove", "os.link", "os.rename") and str(path.parent) in str(arguments[:2]):
        seen += 1
        if seen == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
write_small_file(path)
"""


def test_death_before_any_file_operation_leaves_a_whole_file(path, tmp_path):
    """A trainer is killed before the first, the second, ... operation of a saving; each time a whole file is there."""
    before = load(path)[0].step
    deaths = 0
    for deadly in range(1, 20):
        done = subprocess.run([sys.executable, "-c", CRASH, path, str(deadly)], check=False)
        assert load(path)[0].step == before
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        deaths += 1
    assert deaths >= 5
    assert names(tmp_path) == ["run.tinygpt", "run.tinygpt.previous"]


def test_killed_trainer_goes_on(tmp_path):
    """Killed while it saves, once and again, a run has a whole file to go on from."""
    path, log = tmp_path / "run.tinygpt", tmp_path / "run.json"

    outcomes = [kill_once(path, log, 0.01 * number, saving=True) for number in range(3)]

    assert "lost" not in outcomes
    assert any("the file is whole" in outcome for outcome in outcomes[1:])


def test_only_one_writes(path):
    """A second writer is refused while the first is at it, and not afterwards, also after an exception."""
    refused = pytest.raises(SaveError, match="got another that writes this file, expected none")
    with sole_writer(path), refused, sole_writer(path):
        pytest.fail("two writers")
    with pytest.raises(KeyError), sole_writer(path):
        raise KeyError
    with sole_writer(path):
        pass
    assert names(path.parent) == ["run.tinygpt"]


def test_folder_that_cannot_be_written_is_one_error(tmp_path):
    """No such folder, or a file in its place."""
    (tmp_path / "file").write_text("")

    for folder, reason in (("nowhere", "No such file or directory"), ("file", "Not a directory")):
        with pytest.raises(SaveError) as caught, sole_writer(tmp_path / folder / "run.tinygpt"):
            pytest.fail("written")
        assert f"lock: got {reason}, expected a folder to write to" in str(caught.value)


def test_saving_keeps_the_permissions_of_the_file(path):
    """What only its owner may read stays so."""
    path.chmod(0o600)

    trained().save(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_numbers_that_are_not_finite_are_not_saved(path, whole):
    """From such weights no run could go on; the file before them is worth more."""
    trainer = trained()
    trainer.model.norm.weight = mx.array([1.0, float("nan")])

    with pytest.raises(TrainingError, match=r"model\.norm\.weight after step 2: got a number that is not finite"):
        trainer.save(path)

    assert path.read_bytes() == whole


@pytest.mark.parametrize("ending", [".previous", ".saving"])
def test_what_would_fail_at_the_first_saving_fails_before_training(path, ending):
    """A folder in the way is told while nothing is lost."""
    beside(path, ending).mkdir()

    with pytest.raises(SaveError, match=rf"run\.tinygpt\{ending}: got something that is no file, expected "):
        trained().check_savable(path)


def test_failed_exchange_leaves_nothing_behind(path, whole):
    """Where the last renaming fails, the unfinished file is gone and the old one whole."""
    beside(path, ".previous").mkdir()

    with pytest.raises(SaveError, match="saving: got Is a directory, expected a place to write to"):
        trained().save(path)

    assert path.read_bytes() == whole
    assert names(path.parent) == ["run.tinygpt", "run.tinygpt.previous"]


@pytest.mark.parametrize("content", [b"other", None], ids=["a file", "a folder"])
def test_what_others_have_left_is_not_removed(path, content):
    """Under the name of an unfinished file may stand something else: it is told, and stays."""
    there = beside(path, ".saving")
    there.mkdir() if content is None else there.write_bytes(b"precious, and not of ours" * 4)

    with pytest.raises(SaveError, match=r"run\.tinygpt\.saving: got something that no trainer has left"):
        remove_unfinished(path)

    assert there.exists()


def test_lock_of_somebody_else_is_not_touched(path):
    """A lock file with something in it is none of ours."""
    beside(path, ".lock").write_text("poetry")

    with pytest.raises(SaveError, match=r"run\.tinygpt\.lock, which is no lock of ours"), sole_writer(path):
        pytest.fail("taken")

    assert beside(path, ".lock").read_text() == "poetry"
