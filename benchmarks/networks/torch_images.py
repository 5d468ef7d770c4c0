"""The networks of images.py layer by layer in PyTorch; images come with their channels first."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from images import CLASSES
from torch import nn  # pyright: ignore[reportMissingImports]


class Beside(nn.Module):
    """A body, and what comes in added to what it returns."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.shortcut(x)


def convolution(inputs: int, outputs: int, size: int, strides: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution that keeps or halves the image, with batch normalization as Keras sets it."""
    layer = nn.Conv2d(inputs, outputs, size, strides, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01))


def head(width: int, classes: int = CLASSES) -> list[nn.Module]:
    """The mean over an image, and the classes."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]


def mnist_cnn() -> nn.Module:
    """Return the tutorial's two convolutions with pooling."""
    first = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(1600, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def resnet18() -> nn.Module:
    """Return ResNet-18."""
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        for block in range(2):
            strides = 2 if block == 0 and outputs > 64 else 1
            body = nn.Sequential(convolution(inputs, outputs, 3, strides), nn.ReLU(), convolution(outputs, outputs, 3))
            layers += [Beside(body, convolution(inputs, outputs, 1, strides) if strides == 2 else None), nn.ReLU()]
            inputs = outputs
    return nn.Sequential(*layers, *head(512))


def resnet50(classes: int = CLASSES) -> nn.Module:
    """Return ResNet-50 as `keras.applications` has it, which strides in the first convolution of a block."""

    def biased(inputs: int, outputs: int, size: int, strides: int = 1) -> nn.Sequential:
        layer = nn.Conv2d(inputs, outputs, size, strides, size // 2)
        return nn.Sequential(layer, nn.BatchNorm2d(outputs, eps=1.001e-5, momentum=0.01))

    layers: list[nn.Module] = [biased(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for filters, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            strides = 2 if block == 0 and filters > 64 else 1
            body = nn.Sequential(
                biased(inputs, filters, 1, strides),
                nn.ReLU(),
                biased(filters, filters, 3),
                nn.ReLU(),
                biased(filters, 4 * filters, 1),
            )
            layers += [Beside(body, biased(inputs, 4 * filters, 1, strides) if block == 0 else None), nn.ReLU()]
            inputs = 4 * filters
    return nn.Sequential(*layers, *head(inputs, classes))


def mobilenet() -> nn.Module:
    """Return MobileNetV2."""
    layers: list[nn.Module] = [convolution(3, 32, 3, 2), nn.ReLU6()]
    inputs = 32
    for factor, outputs, blocks, first in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(blocks):
            strides, wide = first if block == 0 else 1, factor * inputs
            widened = [convolution(inputs, wide, 1), nn.ReLU6()] if factor > 1 else []
            deep = [convolution(wide, wide, 3, strides, wide), nn.ReLU6(), convolution(wide, outputs, 1)]
            body = nn.Sequential(*widened, *deep)
            layers.append(Beside(body) if strides == 1 and inputs == outputs else body)
            inputs = outputs
    return nn.Sequential(*layers, convolution(320, 1280, 1), nn.ReLU6(), *head(1280))


class UNet(nn.Module):
    """A U-Net."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (32, 64, 128, 256)
        self.down = nn.ModuleList(
            self.twice(inputs, outputs) for inputs, outputs in zip((3, *sizes), sizes, strict=False)
        )
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(2 * size, size, 3, 2, 1, output_padding=1) for size in sizes[-2::-1]
        )
        self.up = nn.ModuleList(self.twice(2 * size, size) for size in sizes[-2::-1])
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(32, CLASSES, 1)

    @staticmethod
    def twice(inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for count in (inputs, outputs):
            layers += [nn.Conv2d(count, outputs, 3, padding=1), nn.BatchNorm2d(outputs, 1e-3, 0.01), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = []
        for block in self.down:
            x = block(self.pool(x) if skipped else x)
            skipped.append(x)
        for grow, block, skip in zip(self.grow, self.up, skipped[-2::-1], strict=True):
            x = block(torch.cat([grow(x), skip], 1))
        return self.last(x)


class ViT(nn.Module):
    """A Vision Transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 128, 4, 4)
        self.places = nn.Parameter(torch.randn(64, 128) * 0.05)
        self.blocks = nn.Sequential(*(self.block() for _ in range(4)))
        self.normal, self.last = nn.LayerNorm(128, 1e-6), nn.Linear(128, CLASSES)

    @staticmethod
    def block() -> nn.Sequential:
        dense = nn.Sequential(nn.LayerNorm(128, 1e-6), nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128))
        return nn.Sequential(Beside(nn.Sequential(nn.LayerNorm(128, 1e-6), Attention())), Beside(dense))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.last(self.normal(self.blocks(x)).mean(1))


class Attention(nn.Module):
    """Attention of a sequence of width 128 to itself, with four heads."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.inwards, self.outwards, self.causal = nn.Linear(128, 384), nn.Linear(128, 128), causal

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        parts = self.inwards(x).unflatten(-1, (3, 4, 32)).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask, is_causal=self.causal)
        return self.outwards(found.transpose(1, 2).flatten(2))
