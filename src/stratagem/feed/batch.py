"""A global batch on the devices, and its rows on the way back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.mesh.blocks import in_blocks
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.mesh.split import Split


@dataclass(frozen=True)
class GlobalBatch:
    """One batch over all replicas, or those of several steps: arrays on the mesh, and how the rows are shared.

    Args:
        data: Structure of global arrays; the first axis has `split.block` rows for each replica,
            valid ones first. Those of several steps have an axis of the steps before it.
        split: The shares of the replicas, at each of the steps.
        steps: How many steps.
    """

    data: Tree
    split: Split
    steps: int = 1


def place_batch(mesh: ReplicaMesh, split: Split, local: Tree) -> GlobalBatch:
    """Put this worker's rows of a global batch on its devices.

    Args:
        mesh: Where to.
        split: The shares of the replicas.
        local: Structure of NumPy arrays that hold the shares of this worker's replicas one after another.

    Returns:
        The batch. Where shares are unequal, short ones are filled up with copies of a row; the step
        cuts them off again before anything is computed.
    """
    shares = split.shares
    arranged = in_blocks([shares[replica] for replica in mesh.local_replicas], split.block)
    return GlobalBatch(jax.tree.map(lambda leaf: mesh.shard_blocks(arranged(leaf)), local), split)


def place_together(mesh: ReplicaMesh, splits: Sequence[Split], parts: Sequence[Tree]) -> GlobalBatch | None:
    """Put this worker's rows of the global batches of several steps on its devices at once.

    Args:
        mesh: Where to.
        splits: The shares of the replicas at each step; at least one.
        parts: For each step, the rows that `place_batch` takes.

    Returns:
        The batches as one; None if they are not alike, or some replica would get more rows than another.
    """
    split, first = splits[0], parts[0]
    if not split.even or any(other != split for other in splits):
        return None
    shapes = _shapes(first)
    if any(_shapes(local) != shapes for local in parts):  # rows of one batch may be longer than those of another
        return None
    data = jax.tree.map(lambda *leaves: mesh.shard_blocks(_stacked(leaves), steps=True), *parts)
    return GlobalBatch(data, split, len(splits))


def _stacked(leaves: Sequence[Any]) -> np.ndarray:
    """Return arrays of one shape along a new first axis; as a view where each lies behind the one before."""
    first = leaves[0]
    if not isinstance(first, np.ndarray) or first.base is None or not first.flags.c_contiguous:
        return np.stack(leaves)
    begin = first.ctypes.data
    for i, leaf in enumerate(leaves):
        same = isinstance(leaf, np.ndarray) and leaf.base is first.base
        if not same or leaf.dtype != first.dtype or leaf.strides != first.strides:
            return np.stack(leaves)
        if leaf.ctypes.data != begin + i * first.nbytes:
            return np.stack(leaves)
    shape, strides = (len(leaves), *first.shape), (first.nbytes, *first.strides)
    return np.lib.stride_tricks.as_strided(first, shape, strides, writeable=False)


def _shapes(local: Tree) -> list[tuple[int, ...]]:
    return [np.shape(leaf) for leaf in jax.tree.leaves(local)]


def valid_rows(split: Split) -> np.ndarray:
    """Return which rows of blocks put side by side are rows of the batch, in order."""
    return np.concatenate(
        [np.arange(share) + replica * split.block for replica, share in enumerate(split.shares)]
    ).astype(np.intp)


def as_numpy(batch: Tree) -> Tree:
    """Return a batch with its arrays in host memory: those of any library, sparse and ragged ones made dense.

    Args:
        batch: Structure of arrays; None entries stay.
    """
    return keras.tree.map_structure(_as_numpy, batch)


def _as_numpy(leaf: Any) -> Any:
    if leaf is None or isinstance(leaf, np.ndarray):
        return leaf
    if hasattr(leaf, "toarray"):  # SciPy
        return leaf.toarray()
    if hasattr(leaf, "todense"):  # jax.experimental.sparse
        return np.asarray(leaf.todense())
    if hasattr(leaf, "row_splits"):  # tf.RaggedTensor: filled up with zeros, as Keras does
        return leaf.to_tensor().numpy()
    if hasattr(leaf, "dense_shape"):  # tf.SparseTensor
        return sys.modules["tensorflow"].sparse.to_dense(leaf).numpy()
    return _from_torch(leaf) if hasattr(leaf, "detach") else np.asarray(leaf)


def _from_torch(tensor: Any) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.layout is not sys.modules["torch"].strided:
        tensor = tensor.to_dense()
    if tensor.dtype is sys.modules["torch"].bfloat16:  # which NumPy cannot name
        return tensor.view(sys.modules["torch"].uint16).numpy().view(jnp.bfloat16)
    return tensor.numpy()


def count_rows(data: Tree) -> int:
    """Return the number of rows of a batch: the first dimension of its arrays.

    Args:
        data: Structure of arrays; None entries are passed over.

    Raises:
        InputError: An array has no dimension, or the arrays differ in it.
    """
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(data)]
    if not shapes or any(len(shape) == 0 for shape in shapes):
        raise InputError(
            f"A batch of shapes {shapes} was given: not every array has a batch dimension.",
            "The rows could not be shared by the replicas.",
            "Batch the dataset with the global batch size: `dataset.batch(GLOBAL_BATCH_SIZE)`.",
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise InputError(
            f"The arrays of a batch have shapes {shapes}: their first dimensions differ.",
            "Inputs and targets would be paired wrongly.",
            "Give arrays with the same number of rows. A dataset of single examples has to be batched first: "
            "`dataset.batch(GLOBAL_BATCH_SIZE)`.",
        )
    return shapes[0][0]
