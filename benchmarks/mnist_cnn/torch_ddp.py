"""The same network and the same work for each step under PyTorch's DistributedDataParallel over Gloo."""

from __future__ import annotations

import json
import os

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from network import ROWS_PER_WORKER
from torch import nn  # pyright: ignore[reportMissingImports]
from turns import Turns

tf_config = json.loads(os.environ["TF_CONFIG"])
workers, rank = tf_config["cluster"]["worker"], tf_config["task"]["index"]
dist.init_process_group("gloo", init_method=f"tcp://{workers[0]}", world_size=len(workers), rank=rank)
turns = Turns(torch=torch.__version__)
x, y = (torch.from_numpy(rows) for rows in turns.rows(ROWS_PER_WORKER * len(workers)))

model = nn.parallel.DistributedDataParallel(
    nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(26 * 26 * 32, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
)
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)


def epoch() -> float:
    """Train an epoch; return its loss, read once like the metrics of `fit`."""
    totals = torch.zeros(2)
    for first in range(rank * ROWS_PER_WORKER, len(x), len(workers) * ROWS_PER_WORKER):
        images, labels = x[first : first + ROWS_PER_WORKER], y[first : first + ROWS_PER_WORKER]
        optimizer.zero_grad()
        logits = model(images)
        loss = loss_function(logits, labels)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            totals += torch.stack([loss, (logits.argmax(1) == labels).float().mean()])
    dist.all_reduce(totals)
    return totals[0].item() / turns.steps / len(workers)


while turns.finish(epoch()):
    pass
dist.destroy_process_group()
