"""Which policy is chosen, and what the log says of it."""

from __future__ import annotations

import pytest

from stratagem.core.errors import InputError
from stratagem.data import AutoShardPolicy, Dataset, Options
from stratagem.data.experimental import SHARD_HINT
from stratagem.data.sharding.autoshard import choose_policy

PLAIN = Dataset.range(8).batch(4)
HINTED = Dataset.range(8).shard(SHARD_HINT, SHARD_HINT).batch(4)


def options(policy: AutoShardPolicy) -> Options:
    out = Options()
    out.experimental_distribute.auto_shard_policy = policy
    return out


@pytest.mark.parametrize(
    ("policy", "dataset", "workers", "chosen", "reason"),
    [
        (
            AutoShardPolicy.AUTO,
            PLAIN,
            2,
            AutoShardPolicy.DATA,
            "auto-shard DATA (AUTO, as there are no files): each of 2 workers reads its rows of every batch",
        ),
        (
            AutoShardPolicy.DATA,
            PLAIN,
            3,
            AutoShardPolicy.DATA,
            "auto-shard DATA: each of 3 workers reads its rows of every batch",
        ),
        (
            AutoShardPolicy.OFF,
            PLAIN,
            2,
            AutoShardPolicy.OFF,
            "auto-shard OFF: each of 2 workers reads the whole dataset",
        ),
        (
            AutoShardPolicy.HINT,
            HINTED,
            2,
            AutoShardPolicy.HINT,
            "auto-shard HINT: each of 2 workers reads the part that shard(SHARD_HINT, SHARD_HINT) gives it",
        ),
        (
            AutoShardPolicy.DATA,
            PLAIN,
            1,
            AutoShardPolicy.DATA,
            "auto-shard DATA: the only worker reads its rows of every batch",
        ),
    ],
)
def test_choice(policy: AutoShardPolicy, dataset: Dataset, workers: int, chosen: AutoShardPolicy, reason: str) -> None:
    assert choose_policy(options(policy), dataset, workers)[:2] == (chosen, reason)


@pytest.mark.parametrize(
    ("policy", "found", "remedy"),
    [
        (AutoShardPolicy.FILE, "FILE, but the dataset is not made of files; 2 workers", "DATA or AUTO"),
        (AutoShardPolicy.HINT, r"HINT, but the dataset has no shard\(SHARD_HINT", r"Write dataset\.shard\("),
    ],
)
def test_impossible(policy: AutoShardPolicy, found: str, remedy: str) -> None:
    with pytest.raises(InputError, match=rf"(?s){found}.*\n  What to do: .*{remedy}"):
        choose_policy(options(policy), PLAIN, 2)
