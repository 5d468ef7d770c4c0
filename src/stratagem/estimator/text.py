"""Text in the features and labels of an Estimator.

Devices compute with numbers. So each word of a batch becomes its 64-bit fingerprint before the batch goes to the
devices, where it can be compared and looked up in a vocabulary; and class names that a model predicts are numbers
until they are back in host memory.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.dataset import Dataset
from stratagem.mesh.mesh import Tree
from stratagem.mesh.values import DistributedValues

_KEY: Final = "\0text"
"""Key of a dictionary that stands for text in a batch: datasets know arrays and dictionaries only."""

_PADDING: Final = -1
"""Fills up rows with fewer numbers than others; rows of text get empty words."""


@jax.tree_util.register_dataclass
@dataclass(eq=False)
class Text:
    """A tensor of words, as their fingerprints. In a model_fn, `features["sex"] == "male"` is a tensor of booleans.

    Args:
        words: uint32, of the tensor's shape and two more; zeros for an empty word.
    """

    words: Any

    dtype = "string"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.words.shape[:-1])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def reshape(self, *shape: Any) -> Text:
        """Return the words in another shape."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        return Text(jnp.reshape(self.words, (*sizes, 2)))

    def __getitem__(self, item: Any) -> Text:
        return Text(self.words[(*item, Ellipsis, slice(None)) if isinstance(item, tuple) else item])

    def __eq__(self, other: Any) -> Any:
        words = other.words if isinstance(other, Text) else jnp.asarray(fingerprints(np.asarray(other)))
        return jnp.all(self.words == words, axis=-1)

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __jax_array__(self) -> Any:
        raise InputError(
            f"A tensor of text, of shape {self.shape}, was used in a computation.",
            "Devices compute with numbers.",
            'Compare it, features["sex"] == "male", or convert it to numbers with a categorical column of '
            "stratagem.estimator.feature_column, or in input_fn.",
        )


@jax.tree_util.register_dataclass
@dataclass
class Names:
    """Words of a list, as their numbers: what a model predicts when it predicts names.

    Args:
        numbers: Integers of any shape.
        vocabulary: The words.
    """

    numbers: Any
    vocabulary: tuple[bytes, ...] = field(metadata={"static": True})

    def words(self) -> np.ndarray:
        """Return them in host memory, as bytes."""
        table = np.empty(len(self.vocabulary), object)
        table[:] = self.vocabulary
        return table[np.asarray(self.numbers)]


def as_bytes(word: Any) -> bytes:
    """Return a word as bytes; what pandas writes for a missing one (None, NaN) as an empty one."""
    if isinstance(word, bytes):
        return word
    if isinstance(word, str):
        return word.encode()
    return b"" if word is None or word != word else str(word).encode()


@functools.lru_cache(1 << 18)
def _fingerprint(word: bytes) -> tuple[int, int]:
    if not word:
        return 0, 0
    digest = hashlib.blake2b(word, digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def fingerprints(words: np.ndarray) -> np.ndarray:
    """Return the fingerprints of words.

    Args:
        words: An array of str or bytes.

    Returns:
        uint32, of its shape and two more.

    Example:
        >>> text, same, empty = fingerprints(np.array(["a", b"a", ""], object)).tolist()
        >>> text == same, empty
        (True, [0, 0])
    """
    found = np.array([_fingerprint(as_bytes(word)) for word in words.ravel()], np.uint32)
    return found.reshape(*words.shape, 2)


def is_text(dtype: Any) -> bool:
    """Whether arrays of this dtype hold words (or objects, as those of varying length do)."""
    return np.dtype(dtype).kind in "OSUT"


def encoded(*components: Tree) -> Tree:
    """Return a batch with dictionaries of fingerprints in place of text, and rows of varying length filled up.

    Args:
        components: Arrays in dictionaries and tuples: the batch, or its components.
    """
    return jax.tree.map(_encoded_leaf, components[0] if len(components) == 1 else components)


def _encoded_leaf(leaf: Any) -> Any:
    if isinstance(leaf, str | bytes):
        leaf = np.asarray(leaf, object)
    if not hasattr(leaf, "dtype") or not is_text(leaf.dtype):
        return leaf
    rows = list(leaf) if leaf.ndim == 1 and len(leaf) and isinstance(leaf[0], list | tuple | np.ndarray) else None
    if rows is None:
        return {_KEY: fingerprints(leaf)}
    return _filled_up([np.asarray(row) for row in rows])


def _filled_up(rows: list[np.ndarray]) -> Any:
    """Return rows of varying length as one array: a power of two, so that few shapes are compiled for."""
    words = any(is_text(row.dtype) for row in rows)
    size = 1 << max(0, max(len(row) for row in rows) - 1).bit_length()
    filled = np.full((len(rows), size), "" if words else _PADDING, object if words else rows[0].dtype)
    for row, values in zip(filled, rows, strict=True):
        row[: len(values)] = values
    return {_KEY: fingerprints(filled)} if words else filled


def encoding(dataset: Any) -> Any:
    """Return a dataset whose batches are `encoded`, if there is text in them."""
    if isinstance(dataset, Iterator):
        return map(encoded, dataset)
    if not isinstance(dataset, Dataset):
        return dataset
    leaves = jax.tree.leaves(dataset.element_spec, is_leaf=lambda leaf: hasattr(leaf, "dtype"))
    if not any(is_text(leaf.dtype) for leaf in leaves):
        return dataset
    return dataset.map(encoded)


def restored(tree: Tree) -> Tree:
    """Return a batch with `Text` in place of dictionaries of fingerprints."""
    if isinstance(tree, dict):
        if tree.keys() == {_KEY}:
            return Text(tree[_KEY])
        return {key: restored(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple) and not hasattr(tree, "_fields"):
        return type(tree)(restored(value) for value in tree)
    return tree


def plain(tree: Tree) -> Tree:
    """Return a batch with dictionaries of fingerprints in place of `Text`: what messages between tasks can hold."""

    def leaf(value: Any) -> Any:
        return {_KEY: value.words} if isinstance(value, Text) else value

    return jax.tree.map(leaf, tree, is_leaf=lambda value: isinstance(value, Text))


def in_host_memory(predictions: Tree, own_value: Callable[[Any], Any]) -> Tree:
    """Return predictions as NumPy arrays, names as bytes.

    Args:
        predictions: What a step has predicted.
        own_value: Copies an array from the devices.
    """
    copied = jax.tree.map(own_value, predictions, is_leaf=lambda leaf: isinstance(leaf, DistributedValues))
    is_names = lambda leaf: isinstance(leaf, Names)  # noqa: E731
    return jax.tree.map(lambda leaf: leaf.words() if is_names(leaf) else leaf, copied, is_leaf=is_names)


class Vocabulary:
    """Words in order, to find the places of others in it.

    Args:
        words: The words, each once.

    Raises:
        InputError: A word occurs twice.
    """

    def __init__(self, words: Sequence[Any]) -> None:
        table = fingerprints(np.array([as_bytes(word) for word in words], object))
        order = np.lexsort((table[:, 1], table[:, 0]))
        self._table, self._order = table[order], order.astype(np.int32)
        same = (self._table[1:] == self._table[:-1]).all(axis=1)
        if same.any():
            raise InputError(
                f"A vocabulary has {words[int(self._order[same.argmax()])]!r} twice.",
                "The number of this word is not defined.",
                "Write each word once.",
            )
        firsts = np.unique(self._table[:, 0], return_counts=True)[1]
        self._alike = int(firsts.max(initial=1))
        """The most words that begin with the same half of a fingerprint."""

    def places(self, text: Text) -> jax.Array:
        """Return the place of each word, -1 for those that are not there."""
        first = jnp.searchsorted(self._table[:, 0], text.words[..., 0])
        found = jnp.full(text.shape, -1, "int32")
        for offset in range(self._alike):
            candidate = jnp.minimum(first + offset, len(self._table) - 1)
            same = jnp.all(jnp.asarray(self._table)[candidate] == text.words, axis=-1)
            found = jnp.where(same, jnp.asarray(self._order)[candidate], found)
        return found
