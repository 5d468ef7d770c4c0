"""Inputs of every kind on two workers: alike, found out where they are not, and read by processes of their own."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.feed.kinds.kinds import BATCH, KINDS, ROWS, batch, tensorflow, torch_loader

from stratagem.core.errors import InputError, PeerError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def _worker() -> int:
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def _own_order() -> Iterator[Any]:
    order = np.random.default_rng(_worker())
    while True:
        yield batch(order.permutation(ROWS)[:BATCH])


def _nearly_equal() -> Iterator[Any]:
    """Yield what two kinds of processors might compute."""
    x, y = batch(np.arange(BATCH))
    yield x * np.float32(1 + 1e-6 * _worker()), y


class _Augmented(keras.utils.PyDataset):
    """Changes examples by random numbers that each worker draws for itself."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        x, y = batch(np.arange(BATCH))
        return x + random.random(), y


def _sharded_grain() -> Any:
    grain = pytest.importorskip("grain")
    return grain.MapDataset.range(ROWS)[_worker() :: 2].map(batch).batch(BATCH)


def _sharded_torch() -> Any:
    data = pytest.importorskip("torch.utils.data")
    rows = list(range(ROWS))
    return torch_loader(sampler=data.DistributedSampler(rows, num_replicas=2, rank=_worker()))  # type: ignore[arg-type]


def _as_it_comes() -> Any:
    dataset = tensorflow()
    options = pytest.importorskip("tensorflow").data.Options()
    options.deterministic = False
    return dataset.with_options(options)


APART = "is not the same on all workers. Workers that read the same batch: worker 0; worker 1(.|\n)*"
DIFFERING = {
    "generator": (_own_order, APART + "same seed"),
    "PyDataset": (_Augmented, APART + "use the index as their seed"),
    "grain": (_sharded_grain, APART + "Do not shard"),
    "torch": (_sharded_torch, "2 workers has a DistributedSampler(.|\n)*shuffle=True"),
    "tf.data": (lambda: tensorflow(seed=None), "without a seed(.|\n)*seed=1"),
    "tf.data as it comes": (_as_it_comes, "deterministic = False"),
}
"""Inputs that are another on each worker, and what is said."""


def _available(make: Any) -> bool:
    try:
        make()
    except pytest.skip.Exception:
        return False
    return True


def every_kind() -> dict[str, Any]:
    import stratagem

    strategy = stratagem.MultiWorkerMirroredStrategy()
    random.seed(_worker())
    np.random.seed(_worker())  # torch and TensorFlow have random numbers of their own on each worker anyway
    seen, said = {}, {}
    for name, make in KINDS.items():
        if _available(make):
            iterator = iter(strategy.experimental_distribute_dataset(make()))
            seen[name] = [
                np.asarray(strategy.gather(y, axis=0)).tolist() for _, (_, y) in zip(range(4), iterator, strict=False)
            ]
            state = iterator.get_state()
            iterator.close()
            assert state["batches"] == len(seen[name])
    for name, (make, _) in DIFFERING.items():
        if _available(make):
            with pytest.raises((PeerError, InputError)) as error:
                next(iter(strategy.experimental_distribute_dataset(make())))
            said[name] = str(error.value)
    close = strategy.experimental_distribute_dataset(_nearly_equal())
    return {"seen": seen, "said": said, "close": len(list(close))}


def test_every_kind_is_alike_on_two_workers() -> None:
    first, second = (result.value for result in run_workers(every_kind, 2))
    assert first["seen"] == second["seen"]
    assert len(first["seen"]) >= 8
    for name, batches in first["seen"].items():
        rows = [row for rows in batches[:3] for row in rows]
        if not any(word in name for word in ("repeated", "endless", "sampler", "generator")):
            assert len(set(rows)) == len(rows) <= ROWS, name
    for said in (first["said"], second["said"]):
        assert said.keys() >= {"generator", "PyDataset"}
        for name, message in said.items():
            assert re.search(DIFFERING[name][1], message), message
    assert first["close"] == second["close"] == 1


PROGRAM = Path(__file__).parent / "reads_in_processes.py"


@pytest.mark.parametrize("args", [[], ["unguarded"]], ids=["guarded", "unguarded"])
def test_processes_that_read_are_no_workers(args: list[str]) -> None:
    for result in run_workers(PROGRAM, 2, args=args):
        # 0 + 1 + ... + 15 = 120, twice: Keras tells of an end before the first epoch. In the second three times as
        # much, by processes that hear of it.
        assert [line for line in result.output.splitlines() if line.startswith("epoch")] == [
            "epoch 0: 240",
            "epoch 1: 360",
        ]


def test_a_program_without_a_main_guard_is_told_so() -> None:
    pytest.importorskip("grain")
    results = run_workers(PROGRAM, 2, args=["unguarded", "grain"], check=False)
    assert {result.returncode for result in results} <= {1, 43}
    said = "".join(result.output for result in results)
    assert "A strategy is made while process" in said  # by the process that reads
    assert "A process that reads batches of a Grain dataset has ended" in said  # by the worker that started it
    assert 'if __name__ == "__main__":' in said
