"""The network in PyTorch and the loop around its step, for whatever combines the gradients of workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from network import ROWS_PER_WORKER
from torch import nn  # pyright: ignore[reportMissingImports]
from turns import Turns

LEARNING_RATE = 0.001


def network() -> nn.Module:
    """Return the model of network.py."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(26 * 26 * 32, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def train_in_turns(
    turns: Turns, rank: int, workers: int, model: Any, optimizer: Any, all_reduce: Callable[[Any], Any]
) -> None:
    """Train an epoch a turn; its loss is read once, like the metrics of `fit`.

    Args:
        turns: When to run an epoch.
        rank: Of this worker.
        workers: How many there are.
        model: The network, perhaps wrapped.
        optimizer: Its optimizer, perhaps wrapped.
        all_reduce: Returns the sum of a tensor over the workers.
    """
    x, y = (torch.from_numpy(rows) for rows in turns.rows(ROWS_PER_WORKER * workers))
    loss_function = nn.CrossEntropyLoss()
    while True:
        totals = torch.zeros(2)
        for first in range(rank * ROWS_PER_WORKER, len(x), workers * ROWS_PER_WORKER):
            images, labels = x[first : first + ROWS_PER_WORKER], y[first : first + ROWS_PER_WORKER]
            optimizer.zero_grad()
            logits = model(images)
            loss = loss_function(logits, labels)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                totals += torch.stack([loss, (logits.argmax(1) == labels).float().mean()])
        if not turns.finish(all_reduce(totals)[0].item() / turns.steps / workers):
            break
