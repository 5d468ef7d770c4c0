"""A network in plain PyTorch, on one device: `with_torch.py DATA STEPS NETWORK PLACE ROWS`.

With one more argument, `compile`, its step goes through torch.compile.
"""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("networks", "mnist_cnn"):
    sys.path.append(str(Path(__file__).parents[1] / folder))

import torch  # pyright: ignore[reportMissingImports]
import torch_images
import torch_training
from torch import nn  # pyright: ignore[reportMissingImports]
from torch_gpt2 import GPT2
from turns import Turns
from workloads import LEARNING_RATE, SEED, WORKLOADS, Size

name, place, rows = sys.argv[3], sys.argv[4], int(sys.argv[5])
if place == "gpu" and not torch.cuda.is_available():
    sys.exit(f"torch {torch.__version__} finds no GPU: install one that is built for CUDA.")
device = torch.device("cuda" if place == "gpu" else "cpu")
torch.manual_seed(SEED)
torch.backends.cudnn.benchmark = True  # XLA tries kernels before it chooses too
torch.set_float32_matmul_precision("high")  # TF32, as JAX computes products of float32 on a GPU


def made(size: Size) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a network on the device, and its optimizer."""
    if name == "gpt2":
        model = GPT2(size).to(device)
        return model, torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.1)
    model = torch_images.resnet50(size.classes) if name == "resnet50" else torch_training.network()
    model = model.to(device, memory_format=torch.channels_last if name == "resnet50" else torch.preserve_format)
    momentum = 0.9 if name == "resnet50" else 0.0
    return model, torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=momentum)


title = torch.cuda.get_device_name() if place == "gpu" else "cpu"
turns = Turns(torch=torch.__version__, device=title)
x, y = (torch.from_numpy(each).to(device) for each in turns.inputs_and_targets(rows))
y = y.long()
if name == "resnet50":
    x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
size = WORKLOADS[name].size_on(place, rows)
model, optimizer = made(size)
model.train()
compute = torch.compile(model) if sys.argv[6:] == ["compile"] else model
loss_function = nn.CrossEntropyLoss()


def step() -> torch.Tensor:
    """Train on the batch; return the loss, which stays on the device."""
    optimizer.zero_grad()
    with torch.autocast(device.type, torch.bfloat16, enabled=name != "mnist"):
        inputs = x.float() / 127.5 - 1 if name == "resnet50" else x
        loss = loss_function(compute(inputs), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def epoch() -> float:
    """Train an epoch; return its loss, read once like the metrics of `fit`."""
    total = torch.zeros((), device=device)
    for _ in range(turns.steps):
        total += step()
    return total.item() / turns.steps


while turns.finish(epoch()):
    pass
