"""The network under PyTorch's DistributedDataParallel over Gloo, slots in shards by its ZeroRedundancyOptimizer."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from network import EPSILON, LEARNING_RATE
from torch.distributed.optim import ZeroRedundancyOptimizer  # pyright: ignore[reportMissingImports]
from torch.nn.parallel import DistributedDataParallel  # pyright: ignore[reportMissingImports]
from torch_training import joined, network, train_in_turns

rank, workers = joined()
model = DistributedDataParallel(network(), gradient_as_bucket_view=True)
optimizer = ZeroRedundancyOptimizer(
    model.parameters(),
    torch.optim.Adam,
    parameters_as_bucket_view=True,
    lr=LEARNING_RATE,
    eps=EPSILON,
    fused=True,
)
train_in_turns(rank, workers, model, optimizer)
