"""State of a training loop of the program's own at a moment: held in memory, and given to other workers.

It keeps references to the values of variables. JAX's arrays do not change, and the programs of loops give no buffer
away, so nothing is copied.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import keras
import numpy as np

from stratagem.backup.snapshot import random_state_of, set_random_state
from stratagem.backup.states import Arrays, NotPlainError, decode, encode
from stratagem.checkpoint import objects
from stratagem.core.errors import InputError, UnsupportedError, name_some
from stratagem.feed.distributed import DistributedIterator, begin_passes, next_passes
from stratagem.mesh.divided import is_in_shards
from stratagem.mesh.given import Given
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.program.compat import stored_value
from stratagem.replica.on_read import has_parts

_SHOWN: Final = 5
_IMMUTABLE: Final = (bool, int, float, str, type(None))


class Stateful(NamedTuple):
    """Objects with state, among those that the program gave and their parts.

    Args:
        variables: The Keras variables, by name.
        others: What tells its state itself, such as iterators, and plain values in tuples, by name.
    """

    variables: dict[str, Any]
    others: dict[str, Any]


class Commit(NamedTuple):
    """State of a loop.

    Args:
        plain: Copies of the attributes that are plain data: a list or an array may change.
        given: The other attributes: objects with state.
        stateful: What has a state among these and their parts.
        values: The values of the variables.
        states: The states of the others, by name.
        passes: Where the next passes of distributed datasets begin, which need not be in the state.
        generators: The states of Python's and NumPy's random generators, as these return them.
    """

    plain: dict[str, Any]
    given: dict[str, Any]
    stateful: Stateful
    values: list[jax.Array]
    states: dict[str, Any]
    passes: dict[int, Any]
    generators: tuple[Any, Any]

    def put_back(self, mesh: ReplicaMesh) -> None:
        """Give objects and generators the state that they had.

        Args:
            mesh: Where variables lie now.
        """
        for variable, value in zip(self.stateful.variables.values(), self.values, strict=True):
            # Shards of other workers than there are now come anew from those (`mesh.changing`).
            is_there = mesh.is_replicated(value) or is_in_shards(value)
            variable.assign(value if is_there else mesh.keep(np.asarray(value.addressable_data(0))))
        begin_passes(self.passes)
        _put(self.stateful.others, self.states)
        python, numpy = self.generators
        random.setstate(python)
        np.random.set_state(numpy)

    def as_given(self) -> Given:
        """Return it as workers send it to each other."""
        arrays = Arrays()
        names = self.stateful.variables
        said = {
            "variables": [_described(name, value) for name, value in zip(names, self.values, strict=True)],
            "states": encode(self.states, "states", arrays),
            "passes": encode(self.passes, "passes", arrays),
            "plain": encode(self.plain, "plain", arrays),
            "generators": encode(random_state_of(*self.generators), "generators", arrays),
            "arrays": [*arrays],
        }
        return Given(said, [*(np.asarray(value.addressable_data(0)) for value in self.values), *arrays.values()])


class _Parts(objects.Holder):
    """Objects by name, as a graph that begins with them."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        vars(self).update(parts)


def commit_of(attributes: Mapping[str, Any], mesh: ReplicaMesh, before: Commit | None) -> Commit:
    """Return the state of a loop as it is now.

    Args:
        attributes: What the loop holds, by name.
        mesh: Where its variables lie.
        before: The last one, which knows what has a state as long as the objects are the same.

    Raises:
        InputError: An attribute has no state that can be taken.
        UnsupportedError: A worker holds a part of the state alone.
    """
    known = {} if before is None else before.given
    plain, given = {}, {}
    for name, value in attributes.items():
        if name in known and known[name] is value:
            given[name] = value
            continue
        try:
            plain[name] = copied(value)
        except NotPlainError:
            given[name] = value
    is_same = known.keys() == given.keys() and all(known[name] is value for name, value in given.items())
    stateful = before.stateful if before is not None and is_same else stateful_in(given, mesh)
    values = [stored_value(variable) for variable in stateful.variables.values()]
    jax.block_until_ready(values)  # a step that fails does so before it counts
    states = {name: _state_of(value) for name, value in stateful.others.items()}
    generators = random.getstate(), np.random.get_state(legacy=False)
    return Commit(plain, given, stateful, values, states, next_passes(), generators)


def taken(given: Given, own: Commit, mesh: ReplicaMesh) -> dict[str, Any]:
    """Give the objects of this worker the state of another worker, and return the attributes that are plain data.

    Args:
        given: What the other worker's `as_given` returned.
        own: The state of this worker.
        mesh: Where variables lie.

    Raises:
        UnsupportedError: It is the state of other objects.
    """
    said, (variables, others) = given.said, own.stateful
    count = len(said["variables"])
    arrays = dict(zip(said["arrays"], given.arrays[count:], strict=True))
    states = decode(said["states"], arrays)
    described = [_described(name, value) for name, value in zip(variables, own.values, strict=True)]
    if described != said["variables"] or others.keys() != states.keys():
        theirs = [f"{name} {dtype}{shape}" for name, dtype, shape in said["variables"]]
        ours = [f"{name} {dtype}{shape}" for name, dtype, shape in described]
        differ = sorted({*theirs, *states} ^ {*ours, *others})
        raise UnsupportedError(
            f"The ElasticState of a new worker is not that of the other workers. They differ in "
            f"{name_some(differ, _SHOWN)}.",
            "The new worker cannot take their state.",
            "Let every worker make the same objects, and give them to ElasticState under the same names.",
        )
    for variable, array in zip(variables.values(), given.arrays, strict=False):
        variable.assign(mesh.keep_given(array))
    begin_passes(decode(said["passes"], arrays))
    _put(others, states)
    set_random_state(decode(said["generators"], arrays), random, np.random)
    return decode(said["plain"], arrays)


def stateful_in(given: Mapping[str, Any], mesh: ReplicaMesh) -> Stateful:
    """Return what has a state among some objects and their parts.

    Args:
        given: The objects, by name.
        mesh: Where their variables lie.

    Raises:
        InputError: One has none that can be taken, or is not built.
        UnsupportedError: A worker holds a part of the state alone.
    """
    for name, value in given.items():
        if isinstance(value, list | dict) or not (isinstance(value, tuple) or objects.can_be_saved(value)):
            raise InputError(
                f"ElasticState.{name} is {str(value)[:80]!r} of type {type(value).__name__}.",
                "Its state cannot be taken: a new worker would continue with another one.",
                "Give Keras models, layers, optimizers, metrics, variables, seed generators, iterators of distributed "
                "datasets, or tuples of these; or plain data.",
            )
    nodes = objects.graph_of(_Parts(given))
    unbuilt = [node.name for node in nodes if _is_unbuilt(node)]
    if unbuilt:
        raise InputError(
            f"ElasticState holds objects that are not built yet: {name_some(unbuilt, _SHOWN)}.",
            "A new worker would make their variables when the others have trained them.",
            "Build them first: model.build(input_shape), optimizer.build(model.trainable_variables).",
        )
    variables, others = {}, {}
    for node in nodes:
        if objects.is_leaf(node.value):
            _check_shared(node, mesh)
            (variables if objects.is_variable(node.value) else others)[node.name] = node.value
    return Stateful(variables, others)


def is_plain(value: Any) -> bool:
    """Return whether a value is plain data: numbers, strings, None, arrays, and collections of these."""
    try:
        copied(value)
    except NotPlainError:
        return False
    return True


def copied(value: Any) -> Any:
    """Return a copy of plain data.

    Args:
        value: The data.

    Raises:
        NotPlainError: It is something else.

    Example:
        >>> copied([1, (2.0, "three")])
        [1, (2.0, 'three')]
    """
    if type(value) in _IMMUTABLE or isinstance(value, jax.Array):
        return value
    arrays = Arrays()
    return decode(encode(value, "", arrays), arrays)


class PlainData:
    """Plain data of a loop, as a part of a checkpoint.

    Args:
        get: Returns them, by name.
        set_: Takes others.
    """

    def __init__(self, get: Callable[[], dict[str, Any]], set_: Callable[[dict[str, Any]], object]) -> None:
        self._get, self._set = get, set_

    def get_state(self) -> dict[str, Any]:
        """Return the data as JSON."""
        arrays = Arrays()
        said = encode(self._get(), "plain", arrays)
        written = {name: [array.dtype.name, array.shape, _in_text(array)] for name, array in arrays.items()}
        return {"data": said, "arrays": written}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take data that `get_state` returned."""
        self._set(decode(state["data"], {name: _from_text(*array) for name, array in state["arrays"].items()}))


def _in_text(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _from_text(dtype: str, shape: Sequence[int], text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), jax.numpy.dtype(dtype)).reshape(shape).copy()


def _described(name: str, value: jax.Array) -> list[Any]:
    return [name, value.dtype.name, list(value.shape)]


def _state_of(value: Any) -> Any:
    return value.get() if isinstance(value, objects.PlainValue) else value.get_state()


def _put(others: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    for name, value in others.items():
        (value.set if isinstance(value, objects.PlainValue) else value.set_state)(states[name])


def _is_unbuilt(node: objects.Node) -> bool:
    """Whether variables are still to be made: of an optimizer, or of what the program gave."""
    is_given = "/" not in node.name
    return objects.is_unbuilt(node.value) and (is_given or isinstance(node.value, keras.Optimizer))


def _check_shared(node: objects.Node, mesh: ReplicaMesh) -> None:
    value = node.value
    if objects.is_variable(value) and has_parts(value, mesh):
        raise UnsupportedError(
            f"{node.name} of an ElasticState has another value on each replica.",
            "What a worker holds alone is lost when it dies.",
            "Use variables that all replicas hold alike.",
        )
    if isinstance(value, DistributedIterator) and not value.fits_other_workers:
        raise UnsupportedError(
            f"{node.name} of an ElasticState reads a dataset that was made from a function, a generator or data of "
            "another library.",
            "What the other workers have read of it is not known.",
            "Give strategy.experimental_distribute_dataset a stratagem.data.Dataset.",
        )
