"""A network in PyTorch: `with_torch.py DATA STEPS NETWORK`; under DistributedDataParallel where there is TF_CONFIG."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
import torch_images
import torch_sequences
import torch_wgan
from catalogue import LEARNING_RATE, NETWORKS, SEED
from torch import nn  # pyright: ignore[reportMissingImports]
from turns import Turns

NETWORKS_HERE: dict[str, Callable[[], nn.Module]] = {
    "mnist_cnn": torch_images.mnist_cnn,
    "resnet18": torch_images.resnet18,
    "resnet50": torch_images.resnet50,
    "mobilenet": torch_images.mobilenet,
    "unet": torch_images.UNet,
    "vit": torch_images.ViT,
    "lstm": torch_sequences.lstm,
    "gru": torch_sequences.gru,
    "gpt": torch_sequences.GPT,
    "bert": torch_sequences.BERT,
    "recommender": torch_sequences.Recommender,
    "tabular": torch_sequences.tabular,
}
LOSSES = {"classes": nn.CrossEntropyLoss(), "binary": nn.BCEWithLogitsLoss(), "number": nn.MSELoss()}

name = sys.argv[3]
tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
workers = tf_config["cluster"]["worker"] if tf_config else ["alone"]
rank = tf_config["task"]["index"] if tf_config else 0
if tf_config:
    dist.init_process_group("gloo", init_method=f"tcp://{workers[0]}", world_size=len(workers), rank=rank)
torch.manual_seed(SEED)
turns = Turns(torch=torch.__version__)


def tensors(array: object) -> torch.Tensor:
    """Return rows as a tensor, images with their channels first."""
    tensor = torch.from_numpy(array)
    return tensor.permute(0, 3, 1, 2).contiguous() if tensor.ndim == 4 else tensor


def distributed(model: nn.Module) -> nn.Module:
    """Return a network that takes part on several workers, where there are several."""
    return nn.parallel.DistributedDataParallel(model) if tf_config else model


def stepping() -> Callable[[tuple[torch.Tensor, ...], torch.Tensor], torch.Tensor]:
    """Return the step of the network, which returns its loss."""
    if name == "wgan":
        step = torch_wgan.loop(distributed)
        return lambda x, y: step(*x)
    model, loss_function = distributed(NETWORKS_HERE[name]()), LOSSES[NETWORKS[name].loss]
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, eps=1e-7)

    def step_of_one(x: tuple[torch.Tensor, ...], y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_function(model(*x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step_of_one


rows = NETWORKS[name].rows
inputs, targets = turns.inputs_and_targets(rows * len(workers))
x = tuple(map(tensors, inputs.values() if isinstance(inputs, dict) else [inputs]))
y = torch.from_numpy(targets)
y = y.long() if NETWORKS[name].loss == "classes" else y
step = stepping()


def epoch() -> float:
    """Train an epoch; return its loss, read once like the metrics of `fit`."""
    total = torch.zeros(())
    for first in range(rank * rows, len(y), len(workers) * rows):
        own = slice(first, first + rows)
        total += step(tuple(each[own] for each in x), y[own])
    if tf_config:
        dist.all_reduce(total)
    return total.item() / turns.steps / len(workers)


while turns.finish(epoch()):
    pass
if tf_config:
    dist.destroy_process_group()
