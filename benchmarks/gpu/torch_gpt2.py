"""GPT-2 of in_keras.py, layer by layer in PyTorch."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from workloads import Size


class Attention(nn.Module):
    """Causal attention of a sequence to itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inwards, self.outwards = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inwards(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outwards(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, and two dense layers, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attend = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        dense = [nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)]
        self.dense = nn.Sequential(nn.LayerNorm(width), *dense)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(x)
        return x + self.dense(x)


class GPT2(nn.Module):
    """GPT-2 without dropout; the weights of the embedding also compute the logits."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(size.classes, size.width), nn.Embedding(size.length, size.width)
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.blocks)))
        self.normal = nn.LayerNorm(size.width)
        for each in self.parameters():
            if each.ndim > 1:
                nn.init.normal_(each, std=0.02)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        x = self.normal(self.blocks(self.words(words) + self.places(places)))
        return nn.functional.linear(x, self.words.weight).transpose(1, 2)
