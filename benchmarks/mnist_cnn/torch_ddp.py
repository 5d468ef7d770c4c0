"""The same network and the same work for each step under PyTorch's DistributedDataParallel over Gloo."""

from __future__ import annotations

import json
import os

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch_training import LEARNING_RATE, network, train_in_turns
from turns import Turns

tf_config = json.loads(os.environ["TF_CONFIG"])
workers, rank = tf_config["cluster"]["worker"], tf_config["task"]["index"]
dist.init_process_group("gloo", init_method=f"tcp://{workers[0]}", world_size=len(workers), rank=rank)
turns = Turns(torch=torch.__version__)


def all_reduce(values: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(values)
    return values


model = torch.nn.parallel.DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
train_in_turns(turns, rank, len(workers), model, optimizer, all_reduce)
dist.destroy_process_group()
