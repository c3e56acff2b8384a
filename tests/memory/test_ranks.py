"""The memory of several ranks: each takes what its share takes alone, and the log says so rank by rank."""

import pytest

from tinygpt.durability.launched import started
from tinygpt.durability.runs import peak_bytes, records, train

pytestmark = [pytest.mark.memory, pytest.mark.distributed]

RUN = ("--preset", "tiny", "--n-layer", "2", "--context", "64", "--steps", "2", "--no-compile")
ROWS = 4


@pytest.mark.parametrize("policy", ["none", "all"])
def test_rank_takes_what_its_share_takes_alone(tmp_path, policy):
    """Within two percent, where activations outweigh the gradients that are averaged."""
    words = (*RUN, "--grad-checkpoint", policy)
    with started(2, *words, "--batch", 2 * ROWS, "--json", tmp_path / "ranks.json", cwd=tmp_path) as process:
        out, said = process.communicate(timeout=300)
    train(*words, "--batch", ROWS, "--json", tmp_path / "alone.json")

    peaks = [each["peak_bytes"] for each in records(tmp_path / "ranks.json")[-1]["ranks"]]
    alone = peak_bytes(tmp_path / "alone.json")

    assert [line.split(":")[0] for line in out.splitlines()[-2:]] == ["memory of rank 0", "memory of rank 1"], said
    assert len(peaks) == 2
    assert max(peaks) <= 1.02 * alone
    assert min(peaks) >= 0.98 * alone
