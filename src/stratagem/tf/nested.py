"""Nested structures (`tf.nest`): Keras's functions of trees, with TensorFlow's arguments.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/nest
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import keras

from stratagem.core.errors import InputError, explain
from stratagem.mesh.trees import all_parts
from stratagem.mesh.values import DistributedValues

is_nested = keras.tree.is_nested


def _parts(leaf: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the arrays of a leaf, and the function that makes it of such: of a ragged or sparse tensor several."""
    if leaf is None or isinstance(leaf, DistributedValues) or jax.tree_util.all_leaves([leaf]):
        return [leaf], lambda parts: parts[0]
    return all_parts(leaf)


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Return the leaves of a structure; dictionaries are read in the order of their keys.

    Args:
        structure: Nested lists, tuples and dictionaries, or a leaf.
        expand_composites: Whether the arrays of a ragged or sparse tensor are leaves, instead of the tensor.

    Example:
        >>> flatten({"b": 1, "a": [2, 3]})
        [2, 3, 1]
    """
    leaves = keras.tree.flatten(structure)
    return [part for leaf in leaves for part in _parts(leaf)[0]] if expand_composites else leaves


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any], expand_composites: bool = False) -> Any:
    """Return a structure with other leaves.

    Args:
        structure: The structure.
        flat_sequence: The leaves, as `flatten` returns them.
        expand_composites: As for `flatten`.

    Raises:
        ValueError: There are too few leaves, or too many.
    """
    flat = list(flat_sequence)
    if not expand_composites:
        return keras.tree.pack_sequence_as(structure, flat)
    leaves, begin = [], 0
    for leaf in keras.tree.flatten(structure):
        own, made_of = _parts(leaf)
        if len(flat) < begin + len(own):
            raise InputError(
                f"pack_sequence_as was given {len(flat)} leaves.", "Give as many leaves as tf.nest.flatten returns."
            )
        leaves.append(made_of(flat[begin : begin + len(own)]))
        begin += len(own)
    return keras.tree.pack_sequence_as(structure, [*leaves, *flat[begin:]])


def map_structure(
    func: Callable[..., Any], *structure: Any, check_types: bool = True, expand_composites: bool = False
) -> Any:
    """Return a structure with a function applied to its leaves.

    Args:
        func: A function of as many leaves as there are structures; it is called for the leaves at each place.
        structure: The structures; they must have the same form.
        check_types: Whether to refuse a list in place of a tuple.
        expand_composites: As for `flatten`.

    Raises:
        TypeError: Types differ, for example a list in place of a tuple.
        ValueError: The structures have different forms.

    Example:
        >>> map_structure(lambda a, b: a + b, [1, {"x": 2}], [10, {"x": 20}])
        [11, {'x': 22}]
    """
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types)
    columns = zip(*(flatten(each, expand_composites) for each in structure), strict=True)
    return pack_sequence_as(structure[0], [func(*leaves) for leaves in columns], expand_composites)


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False) -> None:
    """Check that two structures have the same form.

    Args:
        nest1: The first structure.
        nest2: The second structure.
        check_types: Whether to refuse a list in place of a tuple.
        expand_composites: Whether ragged and sparse tensors must have as many arrays.

    Raises:
        TypeError: They differ only in types.
        ValueError: They differ.
    """
    if not _alike(_without_types(nest1), _without_types(nest2)):
        raise InputError(_DIFFERENT, f"The first is {nest1!r}, the second {nest2!r}.")
    if check_types and not _alike(nest1, nest2):
        differ = f"The first is {nest1!r}, the second {nest2!r}: the types of their parts differ."
        raise TypeError(explain(_DIFFERENT, differ, "Write check_types=False if the types do not matter."))
    counts = [[len(_parts(leaf)[0]) for leaf in keras.tree.flatten(nest)] for nest in (nest1, nest2)]
    if expand_composites and counts[0] != counts[1]:
        raise InputError(
            f"Leaves of two structures have {counts[0]} and {counts[1]} arrays.",
            "Give leaves of the same kind: dense, ragged or sparse tensors.",
        )


def _without_types(nest: Any) -> Any:
    if isinstance(nest, dict):
        return {key: _without_types(value) for key, value in nest.items()}
    return tuple(map(_without_types, nest)) if isinstance(nest, list | tuple) else 0


_DIFFERENT: Final = "The two structures don't have the same nested structure."


def _alike(nest1: Any, nest2: Any) -> bool:
    try:
        keras.tree.assert_same_structure(nest1, nest2)
    except ValueError:
        return False
    return True
