"""A global batch on the devices, and its rows on the way back."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError, explain
from stratagem.replica.blocks import in_blocks
from stratagem.replica.mesh import ReplicaMesh, Tree
from stratagem.replica.split import Split


@dataclass(frozen=True)
class GlobalBatch:
    """One batch over all replicas: arrays on the mesh, and how its rows are shared.

    Args:
        data: Structure of global arrays; the first axis has `split.block` rows for each replica,
            valid ones first.
        split: The shares of the replicas.
    """

    data: Tree
    split: Split


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
    blocks = in_blocks(local, [split.shares[replica] for replica in mesh.local_replicas], split.block)
    return GlobalBatch(jax.tree.map(mesh.shard_blocks, blocks), split)


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
            explain(
                f"A batch of shapes {shapes} was given: not every array has a batch dimension.",
                "The rows could not be shared by the replicas.",
                "Batch the dataset with the global batch size: `dataset.batch(GLOBAL_BATCH_SIZE)`.",
            )
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise InputError(
            explain(
                f"The arrays of a batch have shapes {shapes}: their first dimensions differ.",
                "Inputs and targets would be paired wrongly.",
                "Give arrays with the same number of rows. A dataset of single examples has to be batched first: "
                "`dataset.batch(GLOBAL_BATCH_SIZE)`.",
            )
        )
    return shapes[0][0]
