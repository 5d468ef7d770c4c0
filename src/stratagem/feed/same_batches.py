"""Check that workers which read whole batches read the same ones: else each takes its rows of another batch."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from stratagem.core.errors import PeerError
from stratagem.mesh.mesh import Tree
from stratagem.replica.context import StrategyLike

_TOLERANCE = 1e-3
"""Part of a row's size by which processors of two kinds may differ, when they compute floats."""


def check_alike(strategy: StrategyLike, batch: Tree, remedy: str) -> None:
    """Compare a batch with what the other workers read. All workers must call it at the same point.

    Workers tell each other a digest; only where these differ, they compare row by row, as machines of two kinds may
    compute the last bits of a float differently.

    Args:
        strategy: Whose workers.
        batch: Structure of arrays, each with the rows along its first axis.
        remedy: What to write so that all read the same.

    Raises:
        PeerError: The batches differ; the message names the workers.
    """
    digests = strategy.from_all("digest of the first batch", _digest(batch))
    if len(set(digests)) == 1:
        return
    rows = strategy.from_all("rows of the first batch", _row_sketches(batch))
    groups: list[list[int]] = []
    for worker, sketch in enumerate(rows):
        like = next((group for group in groups if _close(rows[group[0]], sketch)), None)
        if like is None:
            groups.append([worker])
        else:
            like.append(worker)
    if len(groups) > 1:
        named = "; ".join(f"worker{'s' * (len(group) > 1)} {', '.join(map(str, group))}" for group in groups)
        raise PeerError(
            f"The first batch of this pass is not the same on all workers. Those that read alike: {named}.",
            "Each worker takes its rows of the batch that it reads: examples would be trained on twice, and others "
            "never.",
            remedy,
        )


def _digest(batch: Tree) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(batch):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode())
        # By its bytes: not every dtype, such as bfloat16, has a buffer of its own.
        values = repr(leaf.tolist()).encode() if leaf.dtype.hasobject else np.ascontiguousarray(leaf).reshape(-1)
        digest.update(values if isinstance(values, bytes) else values.view(np.uint8).data)
    return digest.hexdigest()


def _row_sketches(batch: Tree) -> list[list[list[float]]]:
    """Return, for each array and each of its rows, a number that depends on all values in their order, and the size."""
    sketches = []
    for leaf in jax.tree.leaves(batch):
        try:
            values = leaf.reshape(len(leaf), -1).astype(np.float64)
        except (TypeError, ValueError):  # text
            values = np.array([[zlib.crc32(repr(row).encode())] for row in leaf.tolist()], np.float64)
        along = np.cos(np.arange(values.shape[1]) + 1.0)
        sketches.append([(values @ along).tolist(), np.linalg.norm(values, axis=1).tolist()])
    return sketches


def _close(one: Sequence[Any], other: Sequence[Any]) -> bool:
    if [len(sums) for sums, _ in one] != [len(sums) for sums, _ in other]:
        return False
    return all(
        bool(np.all(np.abs(np.subtract(a, b)) <= _TOLERANCE * np.maximum(size_a, size_b)))
        for (a, size_a), (b, size_b) in zip(one, other, strict=True)
    )
