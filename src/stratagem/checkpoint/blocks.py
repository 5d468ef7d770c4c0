"""Arrays in blocks of equal size: which worker writes each block, and what a checkpoint's file says of that."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from stratagem.checkpoint import storage

Box = tuple[slice, ...]
"""Rows, columns, ... of an array: a slice for each axis, with numbers at both ends."""


@dataclass(frozen=True)
class Blocks:
    """An array in blocks of equal size.

    Args:
        dtype: Its dtype.
        shape: Of all blocks together.
        grid: Number of blocks along each axis.
        workers: Which worker's file has each block, in the order of rows.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    grid: tuple[int, ...]
    workers: tuple[int, ...]

    @classmethod
    def of(cls, value: jax.Array) -> Blocks:
        """Return the blocks of an array as its devices hold them; each is the first process's that holds it."""
        size, grid = _sizes(value)
        owners: dict[int, int] = {}
        for device, index in value.sharding.devices_indices_map(value.shape).items():
            owners.setdefault(_number_of(index, size, grid), device.process_index)
        return cls(np.dtype(value.dtype), value.shape, grid, tuple(owners[i] for i in range(math.prod(grid))))

    def boxes(self) -> Iterator[Box]:
        """Yield where each block is."""
        size = [length // count for length, count in zip(self.shape, self.grid, strict=True)]
        for place in itertools.product(*map(range, self.grid)):
            yield tuple(slice(i * each, (i + 1) * each) for i, each in zip(place, size, strict=True))


def own_blocks(name: str, value: jax.Array, blocks: Blocks, worker: int) -> dict[str, jax.Array]:
    """Return what a worker writes of an array, by the names that the blocks have in its file.

    Args:
        name: What the array is called.
        value: It.
        blocks: Its blocks.
        worker: The process that this is.
    """
    size, grid = _sizes(value)
    held = {_number_of(shard.index, size, grid): shard.data for shard in value.addressable_shards}
    return {block_name(name, i): held[i] for i, owner in enumerate(blocks.workers) if owner == worker}


def block_name(name: str, number: int) -> str:
    """Return what a block of an array is called. No other array has that name: an array has no parts."""
    return f"{name}/{number}"


def _sizes(value: jax.Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of a block, and the number of blocks along each axis."""
    size = value.sharding.shard_shape(value.shape)
    return size, tuple(length // max(each, 1) for length, each in zip(value.shape, size, strict=True))


def _number_of(index: Sequence[slice], size: Sequence[int], grid: Sequence[int]) -> int:
    """Return the number of a block, given where it begins."""
    number = 0
    for part, each, count in zip(index, size, grid, strict=True):
        number = number * count + (part.start or 0) // max(each, 1)
    return number


# What a checkpoint's file says of them -----------------------------------------------------------------


def as_json(attempt: str, files: int, arrays: Mapping[str, Blocks]) -> dict[str, Any]:
    """Return what the checkpoint's file says of arrays in blocks.

    Args:
        attempt: The name of the attempt to save.
        files: How many files of workers there are.
        arrays: The arrays by name.
    """
    # Many arrays are divided alike: who has which block is said once for all of them.
    layouts = list(dict.fromkeys((blocks.grid, blocks.workers) for blocks in arrays.values()))
    return {
        "attempt": attempt,
        "files": files,
        "layouts": [{"grid": list(grid), "workers": list(workers)} for grid, workers in layouts],
        "arrays": {
            name: {
                "dtype": storage.code_of(name, blocks.dtype),
                "shape": list(blocks.shape),
                "layout": layouts.index((blocks.grid, blocks.workers)),
            }
            for name, blocks in arrays.items()
        },
    }


def from_json(said: Any) -> dict[str, Blocks]:
    """Return the arrays that a checkpoint's file lists.

    Args:
        said: What it says of them.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: It says what cannot be.
    """
    layouts = [(tuple(each["grid"]), tuple(each["workers"])) for each in said["layouts"]]
    found = {
        name: Blocks(storage.dtype_of(each["dtype"]), tuple(each["shape"]), *layouts[each["layout"]])
        for name, each in said["arrays"].items()
    }
    for blocks in found.values():
        counts = blocks.grid + blocks.workers
        fits = len(blocks.shape) == len(blocks.grid) and math.prod(blocks.grid) == len(blocks.workers)
        if not (fits and all(isinstance(each, int) for each in counts) and min(blocks.grid, default=1) > 0):
            raise ValueError(f"{blocks} is no grid")
        if any(length % count for length, count in zip(blocks.shape, blocks.grid, strict=True)):
            raise ValueError(f"{blocks.shape} is not divided by {blocks.grid}")
        if not all(0 <= worker < said["files"] for worker in blocks.workers):
            raise ValueError(f"it has {said['files']} files, and blocks on workers {blocks.workers}")
    return found
