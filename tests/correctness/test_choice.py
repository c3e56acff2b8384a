"""The peak before the run: what is refused, what is chosen, and what the command says."""

import dataclasses
import json
import subprocess
import sys

import pytest

from tinygpt.checkpointing import plan
from tinygpt.cli.estimate import memory
from tinygpt.errors import GuardError, UsageError
from tinygpt.memory.guard import guard
from tinygpt.memory.work import relative_time
from tinygpt.presets import PRESETS
from tinygpt.train.choice import candidates, cannot_help, check, chosen
from tinygpt.train.expected import expected
from tinygpt.train_config import TrainConfig
from tinygpt.units import GIB
from tinygpt.variants import VARIANTS, combined

BEHEMOTH = TrainConfig(model=PRESETS["behemoth"], steps=1, batch=4, context=1024)


def test_guard_allows_a_run_at_the_limit():
    """At the estimate, to the byte, the run goes on."""
    estimate = expected(BEHEMOTH, backend="cuda")

    guard(estimate, estimate.peak_bytes)


def test_guard_refuses_a_run_one_byte_over_the_limit():
    """One byte less, and it is refused, with every part named."""
    estimate = expected(BEHEMOTH, backend="cuda")

    with pytest.raises(GuardError) as caught:
        guard(estimate, estimate.peak_bytes - 1, fitting="policy all would fit")

    assert str(caught.value).startswith("[guard] peak: got 25.0 GiB by estimate (weights 1.5 GiB, moments 3.0 GiB, ")
    assert str(caught.value).endswith("expected at most 25.0 GiB; policy all would fit; --force goes on")


def test_refusal_names_the_policies_that_fit():
    """Each with its peak and its time, the fastest first."""
    with pytest.raises(GuardError) as caught:
        check(BEHEMOTH, 8 * GIB, backend="cuda")

    message = str(caught.value)
    assert "--grad-checkpoint first:20+selective (8.0 GiB, time 1.18) or first:24+selective (7.3 GiB, ti" in message
    assert " selective (11" not in message


LIMITS = {26: "none", 20: "attention", 16: "selective", 12: "selective", 10: "first:12+selective"}


@pytest.mark.parametrize(("limit", "policy"), LIMITS.items())
def test_auto_takes_the_fastest_policy_that_fits(limit, policy):
    """Behemoth 4x1024 on a GPU: the more memory, the less is recomputed."""
    found = chosen(dataclasses.replace(BEHEMOTH, policy="auto"), limit * GIB, backend="cuda")

    assert found.policy == policy
    assert expected(found, backend="cuda").peak_bytes <= limit * GIB


def test_auto_fits_into_8_5_gib_and_refuses_6():
    """Weights, moments and gradients alone are 6.03 GiB."""
    auto = dataclasses.replace(BEHEMOTH, policy="auto")

    assert chosen(auto, int(8.5 * GIB), backend="cuda").policy == "first:20+selective"
    with pytest.raises(GuardError, match=r"\[guard\] auto: got a limit of 6\.0 GiB, expected at least 7\.\d GiB"):
        chosen(auto, 6 * GIB, backend="cuda")


def test_candidates_are_sorted_and_recomputing_costs_time():
    """Plain comes first; whatever saves memory takes longer."""
    found = candidates(BEHEMOTH, backend="cuda")

    assert [candidate.time for candidate in found] == sorted(candidate.time for candidate in found)
    assert found[0].policy == "none"
    assert found[0].time == 1
    assert all(candidate.time > 1 for candidate in found[1:])


@pytest.mark.parametrize("variant", VARIANTS)
def test_time_and_peak_are_known_for_every_variant(variant):
    """No kind of block is left out of the arithmetic."""
    config = TrainConfig(model=combined(variant, base=PRESETS["tiny"]), steps=1, batch=2, context=64, compile=False)

    found = candidates(config, backend="cpu")

    assert len(found) > 5
    assert all(1 <= candidate.time < 1.6 and candidate.estimate.peak_bytes > 0 for candidate in found)


def test_recomputing_everything_costs_about_a_forward():
    """A third of a step, less the product that nobody asks for."""
    config = PRESETS["behemoth"]

    assert 1.2 < relative_time(config, plan("all", 32), batch=4, context=1024) < 4 / 3


def test_policy_that_cannot_help_says_so():
    """Segments lose at the depth of any preset, and win in a model that is deep enough and keeps little."""
    sqrt = dataclasses.replace(BEHEMOTH, policy="sqrt")
    deep = dataclasses.replace(
        sqrt,
        batch=64,
        context=16,
        model=dataclasses.replace(PRESETS["tiny"], n_layer=2000, n_embd=16, n_head=1, n_mlp=1, context=16),
    )

    assert cannot_help(sqrt, backend="cuda") == (
        "policy sqrt cannot help at this depth: expected peak 10.1 GiB, and 7.2 GiB under all"
    )
    assert cannot_help(deep, backend="cpu") == ""
    assert cannot_help(BEHEMOTH, backend="cuda") == ""


SIZES = {"16GiB": 16 << 30, "1.5 MiB": 3 << 19, "900KiB": 900 << 10, "12": 12, "7B": 7, "1TiB": 1 << 40}


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_memory_sizes_are_binary(text, size):
    """As they are written everywhere here."""
    assert memory(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "16GB", "-1GiB", "0", "nan", "inf", "1e99TiB"])
def test_memory_sizes_that_mean_nothing_are_refused(text):
    """One error that shows how to write one."""
    with pytest.raises(UsageError, match=r"\[memory-limit\] size: got .*, expected one like 16GiB or 900MiB"):
        memory(text)


def tinygpt(*arguments):
    """Run the command and return what it did."""
    return subprocess.run([sys.executable, "-m", "tinygpt", *arguments], capture_output=True, text=True, timeout=300)


def test_estimate_prints_parts_and_policies():
    """A bar for each part, a line for each policy, 80 columns."""
    done = tinygpt("estimate", "--preset", "mega", "--batch", "2", "--backend", "cuda", "--memory-limit", "2GiB")

    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.startswith("2x1024 tokens, float32, AdamW, policy none, on cuda\n  weights ")
    assert "█" in done.stdout
    lines = {line.split()[0]: line.split()[-1] for line in done.stdout.partition("policy  ")[2].splitlines()}
    assert (lines["none"], lines["all"]) == ("large", "fits")


def test_estimate_as_json_agrees_with_the_library():
    """Bytes for scripts: the peak, its parts, and every policy."""
    done = tinygpt("estimate", "--preset", "behemoth", "--batch", "4", "--backend", "cuda", "--json")

    found = json.loads(done.stdout)
    assert found["peak_bytes"] == sum(found["parts"].values()) == expected(BEHEMOTH, backend="cuda").peak_bytes
    assert {"none", "all", "selective", "sqrt"} <= {policy["policy"] for policy in found["policies"]}


SMALL = ("train", "--batch", "2", "--context", "16", "--steps", "1", "--no-compile")


def test_run_that_does_not_fit_is_exit_code_4(tmp_path):
    """Refused before anything is made; --force goes on."""
    out = ("--out", str(tmp_path / "run.tinygpt"))

    refused = tinygpt(*SMALL, *out, "--memory-limit", "5MiB")
    forced = tinygpt(*SMALL, *out, "--memory-limit", "5MiB", "--force")

    assert refused.returncode == 4
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("[guard] peak: got 13.")
    assert refused.stderr.endswith("expected at most 5.0 MiB; no policy would fit; --force goes on\n")
    assert forced.returncode == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.tinygpt"]


def test_auto_is_resolved_and_recorded(tmp_path):
    """The file says which policy was taken; the memory line compares it with what it took."""
    path = tmp_path / "run.tinygpt"
    more = ("--context", "128", "--batch", "2")

    done = tinygpt(*SMALL, *more, "--grad-checkpoint", "auto", "--memory-limit", "20MiB", "--out", str(path))

    info = json.loads(tinygpt("info", str(path), "--json").stdout)
    assert done.returncode == 0, done.stderr
    assert info["header"]["policy"] not in ("auto", "none")
    assert "(training only), predicted " in done.stdout
