"""Ragged and sparse tensors as trees of their parts, for JAX.

The shape of a sparse tensor is a part of the tree's structure where it is known: a function that is compiled knows it
then, as it knows those of dense tensors, and is compiled for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.data.ragged import RaggedTensor
from stratagem.data.sparse import SparseTensor


def _parts(sparse: SparseTensor) -> tuple[tuple[Any, ...], tuple[int, ...] | None]:
    shape = sparse.dense_shape
    if isinstance(shape, np.ndarray):
        return (sparse.indices, sparse.values), tuple(shape.tolist())
    return (sparse.indices, sparse.values, shape), None


def _sparse(shape: tuple[int, ...] | None, parts: tuple[Any, ...]) -> SparseTensor:
    known = () if shape is None else (np.array(shape, np.int64).view(EagerArray),)
    return SparseTensor.of_parts(*parts, *known)


def all_parts(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the arrays of a ragged or sparse tensor, and the function that makes one of such.

    The shape of a sparse tensor is among them: replicas may have different ones.
    """
    if isinstance(tree, SparseTensor):
        return [tree.indices, tree.values, tree.dense_shape], lambda parts: SparseTensor.of_parts(*parts)
    leaves, structure = jax.tree.flatten(tree)
    return leaves, structure.unflatten


def register() -> None:
    """Let JAX take the tensors apart."""
    jax.tree_util.register_pytree_node(
        RaggedTensor, lambda ragged: ((ragged.values, ragged.row_splits), None), lambda _, parts: RaggedTensor(*parts)
    )
    jax.tree_util.register_pytree_node(SparseTensor, _parts, _sparse)
