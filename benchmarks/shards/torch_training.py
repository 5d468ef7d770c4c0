"""The network in PyTorch and the loop around its step, for whatever rests in shards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from network import CLASSES, LAYERS, ROWS, WIDTH, first_weights
from torch import nn  # pyright: ignore[reportMissingImports]
from turns import Turns


def joined() -> tuple[int, int]:
    """Join the cluster over Gloo; return this worker's number, and how many there are."""
    tf_config = json.loads(os.environ["TF_CONFIG"])
    workers, rank = tf_config["cluster"]["worker"], tf_config["task"]["index"]
    dist.init_process_group("gloo", init_method=f"tcp://{workers[0]}", world_size=len(workers), rank=rank)
    return rank, len(workers)


def network() -> nn.Sequential:
    """Return the model with the first weights that all have."""
    hidden = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(WIDTH, CLASSES))
    with torch.no_grad():
        for own, value in zip(model.parameters(), first_weights(), strict=True):
            own.copy_(torch.from_numpy(value).T)
    return model


def train_in_turns(rank: int, workers: int, model: Callable[[Any], Any], optimizer: Any) -> None:
    """Train an epoch a turn; its loss is read once, like that of `fit`.

    Args:
        rank: Of this worker.
        workers: How many there are.
        model: The network, wrapped.
        optimizer: Its optimizer.
    """
    turns = Turns(torch=torch.__version__)
    x, y = (torch.from_numpy(rows) for rows in turns.rows(ROWS * workers))
    loss_function = nn.CrossEntropyLoss()
    while True:
        total = torch.zeros(())
        for first in range(rank * ROWS, len(x), workers * ROWS):
            optimizer.zero_grad()
            loss = loss_function(model(x[first : first + ROWS]), y[first : first + ROWS])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if not turns.finish(total.item() / turns.steps / workers):
            break
    dist.destroy_process_group()
