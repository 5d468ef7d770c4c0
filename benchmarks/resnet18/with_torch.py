"""The same network layer by layer in PyTorch, under DistributedDataParallel over Gloo where there is TF_CONFIG."""

from __future__ import annotations

import json
import os

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from rows import ROWS_PER_WORKER, colour_rows
from torch import nn  # pyright: ignore[reportMissingImports]
from turns import Turns


def convolution(inputs: int, outputs: int, size: int, strides: int = 1) -> nn.Sequential:
    """A convolution that keeps or halves the image, with batch normalization and Keras's momentum and epsilon."""
    layer = nn.Conv2d(inputs, outputs, size, strides, padding=size // 2)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.1))


class Block(nn.Module):
    """Two convolutions, and what comes in added to them."""

    def __init__(self, inputs: int, outputs: int, strides: int) -> None:
        super().__init__()
        self.body = nn.Sequential(convolution(inputs, outputs, 3, strides), nn.ReLU(), convolution(outputs, outputs, 3))
        self.shortcut = convolution(inputs, outputs, 1, strides) if strides != 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Module:
    """Return ResNet-18 for ten classes."""
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        layers += [Block(inputs, outputs, 1 if outputs == 64 else 2), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
workers = tf_config["cluster"]["worker"] if tf_config else ["alone"]
rank = tf_config["task"]["index"] if tf_config else 0
model = resnet()
if tf_config:
    dist.init_process_group("gloo", init_method=f"tcp://{workers[0]}", world_size=len(workers), rank=rank)
    model = nn.parallel.DistributedDataParallel(model)
turns = Turns(torch=torch.__version__)
images, labels = (torch.from_numpy(rows) for rows in colour_rows(turns, ROWS_PER_WORKER * len(workers)))
images = images.permute(0, 3, 1, 2).contiguous()
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001, eps=1e-7)


def epoch() -> float:
    """Train an epoch; return its loss, read once like the metrics of `fit`."""
    totals = torch.zeros(2)
    for first in range(rank * ROWS_PER_WORKER, len(images), len(workers) * ROWS_PER_WORKER):
        x, y = images[first : first + ROWS_PER_WORKER], labels[first : first + ROWS_PER_WORKER]
        optimizer.zero_grad()
        logits = model(x)
        loss = loss_function(logits, y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            totals += torch.stack([loss, (logits.argmax(1) == y).float().mean()])
    if tf_config:
        dist.all_reduce(totals)
    return totals[0].item() / turns.steps / len(workers)


while turns.finish(epoch()):
    pass
if tf_config:
    dist.destroy_process_group()
