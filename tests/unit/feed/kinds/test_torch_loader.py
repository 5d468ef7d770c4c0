"""Loaders of torch: seeds, generators of the user, resuming, and what is refused."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from tests.unit.feed.kinds.kinds import (
    BATCH,
    ROWS,
    alone,
    batch,
    read,
    torch_loader,
)

from stratagem.core.errors import InputError
from stratagem.data.batches import whole
from stratagem.feed.batch import as_numpy
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.whole_batches import WholeBatches


def test_the_order_of_torch_is_the_chiefs_and_another_one_in_each_pass() -> None:
    torch = pytest.importorskip("torch")
    loader = torch_loader(shuffle=True)
    sampler, state = loader.sampler, torch.get_rng_state()
    assert read(loader, seed=3) == read(torch_loader(shuffle=True), seed=3) != read(loader, seed=4)
    source = WholeBatches(input_of(loader, lambda _, __: 3, 2), alone(), rows_of=whole)
    passes = [[rows.data[1].tolist() for rows in source.batches()] for _ in range(2)]
    assert passes[0] == read(loader, seed=3) != passes[1]
    assert loader.sampler is sampler
    assert sampler.generator is None
    # One number is drawn from torch's own generator for all passes, as torch does for each.
    torch.set_rng_state(state)
    drawn = []
    input_of(loader, lambda _, seed: drawn.append(seed) or seed, 2)
    torch.set_rng_state(state)
    assert drawn == [int(torch.empty((), dtype=torch.int64).random_())]


def test_a_generator_of_the_users_gives_torchs_own_order() -> None:
    torch = pytest.importorskip("torch")
    loaders = [torch_loader(shuffle=True, generator=torch.Generator().manual_seed(8)) for _ in range(2)]
    source = WholeBatches(input_of(loaders[0], lambda _, __: 1, 2), alone(), rows_of=whole)
    for _ in range(2):
        assert [rows.data[1].tolist() for rows in source.batches()] == [y.tolist() for _, y in loaders[1]]


def test_a_resumed_torch_loader_decodes_nothing_twice() -> None:
    data = pytest.importorskip("torch.utils.data")

    class Noting(list):
        read: ClassVar[list[int]] = []

        def __getitem__(self, index: Any) -> Any:
            self.read.append(index)
            return super().__getitem__(index)

    examples = Noting(batch(row) for row in range(ROWS))
    batches = input_of(data.DataLoader(examples, batch_size=BATCH), lambda _, __: 1, 1)
    source = WholeBatches(batches, alone(), rows_of=whole)
    source.resume({"passes": [3, 3], "batches": 2, "seed": 1, "generators": []})
    assert [rows.data[1].tolist() for rows in source.batches()] == [[8, 9]]
    assert examples.read == [8, 9]


def test_torch_loaders_that_are_no_global_order() -> None:
    data = pytest.importorskip("torch.utils.data")
    with pytest.raises(InputError, match="Leave in_order out"):
        read(torch_loader(in_order=False))
    sampler = data.DistributedSampler(range(ROWS), num_replicas=2, rank=0)
    with pytest.raises(InputError, match="2 workers has a DistributedSampler"):
        read(torch_loader(sampler=sampler))
    assert len(input_of(torch_loader(sampler=sampler), lambda _, __: 1, 1).sample([], 0)) == 2  # a worker's own


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    values = {
        "narrow": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "learned": torch.ones(2, requires_grad=True),
        "sparse": torch.tensor([[0.0, 3.0]]).to_sparse(),
    }
    arrays = as_numpy(values)
    assert arrays["narrow"].dtype == "bfloat16"
    assert arrays["narrow"].astype("float32").tolist() == [1.5, -2.0]
    assert arrays["learned"].tolist() == [1, 1]
    assert arrays["sparse"].tolist() == [[0, 3]]
