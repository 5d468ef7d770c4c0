"""Arrays of a batch: in host memory, as blocks on the devices, and as rows on the way back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.ragged import RaggedTensor
from stratagem.data.sparse import SparseTensor
from stratagem.data.specs import RaggedTensorSpec, SparseTensorSpec, TensorSpec
from stratagem.data.structure import Composite, is_composite, no_rows_of
from stratagem.feed import compat
from stratagem.mesh.blocks import in_blocks
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.mesh.split import Split

Adapt = Callable[[Tree], Tree]
"""What is done to the arrays of each batch."""


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
    leaves, structure = jax.tree.flatten(local)  # half of the time that jax.tree.map takes
    return GlobalBatch(structure.unflatten([mesh.shard_blocks(arranged(leaf)) for leaf in leaves]), split)


def place_together(mesh: ReplicaMesh, splits: Sequence[Split], parts: Sequence[Tree]) -> GlobalBatch | None:
    """Put this worker's rows of the global batches of several steps on its devices at once.

    Args:
        mesh: Where to.
        splits: The shares of the replicas at each step; at least one.
        parts: For each step, the rows that `place_batch` takes.

    Returns:
        The batches as one; None if they are not alike, or some replica would get more rows than another.
    """
    split = splits[0]
    if not split.even or any(other != split for other in splits):
        return None
    if any(_shapes(local) != _shapes(parts[0]) for local in parts):  # text may be padded batch by batch
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
        alike = same and (leaf.dtype, leaf.strides) == (first.dtype, first.strides)
        if not alike or leaf.ctypes.data != begin + i * first.nbytes:
            return np.stack(leaves)
    shape, strides = (len(leaves), *first.shape), (first.nbytes, *first.strides)
    return np.lib.stride_tricks.as_strided(first, shape, strides, writeable=False)


def _shapes(local: Tree) -> list[tuple[int, ...]]:
    leaves = jax.tree.leaves(local, is_leaf=is_composite)
    return [leaf.shape if is_composite(leaf) else np.shape(leaf) for leaf in leaves]


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
    if isinstance(leaf, Composite):
        return np.asarray(leaf.dense())
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
    shapes = _shapes(data)
    if not shapes or any(len(shape) == 0 for shape in shapes):
        raise InputError(
            f"A batch of shapes {shapes} was given: not every array has a batch dimension.",
            "Batch the dataset with the global batch size: `dataset.batch(GLOBAL_BATCH_SIZE)`.",
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise InputError(
            f"The arrays of a batch have shapes {shapes}: their first dimensions differ.",
            "Give arrays with the same number of rows. A dataset of single examples has to be batched first: "
            "`dataset.batch(GLOBAL_BATCH_SIZE)`.",
        )
    return shapes[0][0]


_NO_NUMBERS: Final = {
    "U": "text",
    "S": "bytes",
    "O": "Python objects",
    "T": "text",
    "M": "dates",
    "m": "spans of time",
}
"""Kinds of NumPy's dtypes that no device holds, and what arrays of them hold."""

_AS_NUMBERS: Final = {
    "Python objects": 'Write numpy.asarray({0}.tolist(), dtype="float32"); rows of unequal length are padded first.',
    "dates": 'Write ({0} - {0}.min()) / numpy.timedelta64(1, "D"), a number of days.',
    "spans of time": 'Write {0} / numpy.timedelta64(1, "s"), a number of seconds.',
}
_TEXT_AS_NUMBERS: Final = (
    "Give classes numbers, numpy.unique({0}, return_inverse=True)[1]; turn text into numbers before the model, with "
    "keras.layers.StringLookup or TextVectorization in dataset.map(...)."
)


def _is_text(leaf: Any) -> bool:
    """Whether an array of objects, or the spec of one in a dataset, is one of text."""
    return not isinstance(leaf, np.ndarray) or all(isinstance(item, str | bytes) for item in leaf.flat[:1])


def check_numbers(name: str, data: Tree) -> None:
    """Make sure that a device can hold what a model is given.

    Args:
        name: What the data is, for the error message.
        data: Structure of arrays, or of `TensorSpec`.

    Raises:
        InputError: An array holds text, bytes, dates or Python objects.
    """
    for path, leaf in keras.tree.flatten_with_path(data):
        if isinstance(leaf, RaggedTensor | SparseTensor | RaggedTensorSpec | SparseTensorSpec):
            raise InputError(
                f"{name} holds a ragged or sparse tensor of shape {leaf.shape}.",
                "A model computes with dense tensors.",
                "Write dataset.map(...) with batch.to_tensor(), or tf.sparse.to_dense(batch), in its function.",
            )
        dtype = getattr(leaf, "dtype", None)
        held = _NO_NUMBERS.get(dtype.kind) if isinstance(dtype, np.dtype) else None
        if held == _NO_NUMBERS["O"] and _is_text(leaf):
            held = "text"
        if held is not None:
            which = name + "".join(f"[{key!r}]" for key in path)
            raise InputError(
                f"{which} holds {held} (dtype {dtype}).",
                "A model computes with numbers on devices, which hold nothing else.",
                _AS_NUMBERS.get(held, _TEXT_AS_NUMBERS).format(which if which.isidentifier() else "values"),
            )


def example_of(element_spec: Tree, rows: int = 1) -> Tree:
    """Return zeros like an element of a structure of `TensorSpec`.

    Args:
        element_spec: The structure.
        rows: The first size where it is not known; other sizes that are not known are 1.
    """

    def zeros(spec: TensorSpec) -> Any:
        sizes = [rows, *[1] * len(spec.shape or ())]
        shape = [other if size is None else size for size, other in zip(spec.shape or (), sizes, strict=False)]
        if isinstance(spec, SparseTensorSpec):
            return SparseTensor(np.zeros((0, len(shape))), np.zeros(0, spec.dtype), shape)
        if isinstance(spec, RaggedTensorSpec):
            lengths = [np.zeros(count, np.int64) for count in (rows, *[0] * (spec.ragged_rank - 1))]
            values = np.zeros((0, *shape[spec.ragged_rank + 1 :]), spec.dtype)
            return RaggedTensor.from_nested_row_lengths(values, lengths)
        return np.zeros(shape, spec.dtype)

    return jax.tree.map(zeros, element_spec, is_leaf=lambda leaf: hasattr(leaf, "shape"))


def batch_spec_of(batch: Tree) -> Tree:
    """Return the structure of `TensorSpec` of batches like one, of any number of rows."""
    return jax.tree.map(lambda leaf: TensorSpec((None, *np.shape(leaf)[1:]), leaf.dtype), batch)


def no_rows(batch: Tree) -> Tree:
    """Return arrays like those of a batch with no rows."""
    return jax.tree.map(no_rows_of, batch, is_leaf=is_composite)


def weighing(class_weight: dict[int, float] | None) -> Adapt:
    """Return a function that multiplies the weights of classes into the sample weights of a batch, if there are any."""
    return as_it_is if class_weight is None else functools.partial(with_class_weight, class_weight=class_weight)


def with_class_weight(data: Tree, class_weight: dict[int, float]) -> Tree:
    """Return a batch with the weights of classes multiplied into its sample weights."""
    x, y, sample_weight = compat.unpack(data)
    weights = np.asarray(compat.class_weight_to_sample_weights(y, class_weight))
    return x, y, weights if sample_weight is None else weights * np.asarray(sample_weight)


def as_it_is(data: Tree) -> Tree:
    """Return a batch as it is."""
    return data
