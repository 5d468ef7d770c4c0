"""The network under PyTorch's FSDP2 over Gloo: each layer is gathered by itself, and its gradients summed in shards."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from network import EPSILON, LEARNING_RATE
from torch.distributed.device_mesh import init_device_mesh  # pyright: ignore[reportMissingImports]
from torch.distributed.fsdp import fully_shard  # pyright: ignore[reportMissingImports]
from torch_training import joined, network, train_in_turns

rank, workers = joined()
model, mesh = network(), init_device_mesh("cpu", (workers,))
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, eps=EPSILON, fused=True)
train_in_turns(rank, workers, model, optimizer)
