"""The WGAN of wgan.py in PyTorch, with its loop."""

from __future__ import annotations

from collections.abc import Callable

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from wgan import NOISE, PENALTY


def critic() -> nn.Module:
    """Return the network that tells real images from generated ones."""
    first = [nn.Conv2d(1, 32, 5, 2, 2), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 5, 2, 2), nn.LeakyReLU(0.2)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(7 * 7 * 64, 1))


def generator() -> nn.Module:
    """Return the network that makes images of noise."""
    return nn.Sequential(
        nn.Linear(NOISE, 7 * 7 * 64, bias=False),
        nn.BatchNorm1d(7 * 7 * 64, 1e-3, 0.01),
        nn.LeakyReLU(0.2),
        nn.Unflatten(1, (64, 7, 7)),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(64, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32, 1e-3, 0.01),
        nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(32, 1, 3, padding=1),
        nn.Tanh(),
    )


def loop(wrapped: Callable[[nn.Module], nn.Module]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the step, which returns the critic's loss.

    Args:
        wrapped: Makes of each network one that takes part on several workers.
    """
    judge, maker = wrapped(critic()), wrapped(generator())
    judge_optimizer = torch.optim.Adam(judge.parameters(), 2e-4, (0.5, 0.999), 1e-7)
    maker_optimizer = torch.optim.Adam(maker.parameters(), 2e-4, (0.5, 0.999), 1e-7)

    def step(real: torch.Tensor) -> torch.Tensor:
        rows = len(real)
        with torch.no_grad():
            made = maker(torch.randn(rows, NOISE))
        between = (real + torch.rand(rows, 1, 1, 1) * (made - real)).requires_grad_()
        # One call for all three: DistributedDataParallel reduces once for each call.
        scores = judge(torch.cat([made, real, between]))
        (slope,) = torch.autograd.grad(scores[2 * rows :].sum(), between, create_graph=True)
        norm = (slope.square().sum((1, 2, 3)) + 1e-12).sqrt()
        loss = scores[:rows].mean() - scores[rows : 2 * rows].mean() + PENALTY * ((norm - 1) ** 2).mean()
        judge_optimizer.zero_grad()
        loss.backward()
        judge_optimizer.step()
        maker_optimizer.zero_grad()
        judge.requires_grad_(False)
        (-judge(maker(torch.randn(rows, NOISE))).mean()).backward()
        judge.requires_grad_(True)
        maker_optimizer.step()
        return loss.detach()

    return step
