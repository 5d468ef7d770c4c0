"""The networks of sequences.py layer by layer in PyTorch."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from sequences import ITEMS, LENGTH, USERS, WORDS
from torch import nn  # pyright: ignore[reportMissingImports]
from torch_images import Attention


class Recurrent(nn.Module):
    """A classifier of text: an embedding and a recurrent layer in both directions."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        self.cell = cell(64, 64, batch_first=True, bidirectional=True)
        self.last = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        _, state = self.cell(self.words(words))
        ends = state[0] if isinstance(state, tuple) else state
        return self.last(torch.cat([ends[0], ends[1]], 1))


def lstm() -> nn.Module:
    """Return the classifier with an LSTM."""
    return Recurrent(nn.LSTM)


def gru() -> nn.Module:
    """Return the classifier with a GRU."""
    return Recurrent(nn.GRU)


def fed_forward() -> nn.Sequential:
    """Two dense layers with a GELU between them."""
    return nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))


class GPT(nn.Module):
    """A small GPT."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 128), nn.Parameter(torch.randn(LENGTH, 128) * 0.05)
        self.attend = nn.ModuleList(nn.Sequential(nn.LayerNorm(128, 1e-3), Attention(causal=True)) for _ in range(2))
        self.dense = nn.ModuleList(nn.Sequential(nn.LayerNorm(128, 1e-3), fed_forward()) for _ in range(2))
        self.last = nn.Sequential(nn.LayerNorm(128, 1e-3), nn.Linear(128, WORDS))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places
        for attend, dense in zip(self.attend, self.dense, strict=True):
            x = x + attend(x)
            x = x + dense(x)
        return self.last(x).transpose(1, 2)


class BERT(nn.Module):
    """An encoder as BERT's."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 128), nn.Parameter(torch.randn(LENGTH, 128) * 0.05)
        self.attend = nn.ModuleList(Attention() for _ in range(4))
        self.dense = nn.ModuleList(fed_forward() for _ in range(4))
        self.normal = nn.ModuleList(nn.LayerNorm(128, 1e-3) for _ in range(9))
        self.last = nn.Sequential(nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        first, *normal = self.normal
        x, attended = first(self.words(words) + self.places), mask[:, None, None, :]
        for number, (attend, dense) in enumerate(zip(self.attend, self.dense, strict=True)):
            x = normal[2 * number](x + attend(x, attended))
            x = normal[2 * number + 1](x + dense(x))
        return self.last(x[:, 0])


class Recommender(nn.Module):
    """A recommender."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, 32), nn.Embedding(ITEMS, 32)
        self.dense = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.user(user), self.item(item)], 1))


def tabular() -> nn.Module:
    """Return the perceptron for tables."""
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
