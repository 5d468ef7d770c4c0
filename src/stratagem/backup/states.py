"""State of other callbacks: what of it is saved, and how it is restored.

A callback with `get_state` and `set_state` decides itself. For any other, the backup holds the attributes that training
has changed and that are plain data (`encode`), and the values of Keras variables, metrics and seed
generators. What the program set and training did not change is not saved, so a resumed run may be given another
`patience`.
"""

from __future__ import annotations

import base64
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import keras
import numpy as np

from stratagem.checkpoint import storage
from stratagem.checkpoint.objects import has_state
from stratagem.core.errors import InputError
from stratagem.core.log import logger

Arrays = dict[str, np.ndarray]

_DISPLAY = (keras.callbacks.ProgbarLogger,)
"""Callbacks that only show."""

_DERIVED = {
    # Keras gives it a sign when it first learns what is monitored, which it does again after a restart.
    "min_delta": (keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau, keras.callbacks.ModelCheckpoint),
    # The number of epochs, and of steps of the present one.
    "params": (keras.callbacks.Callback,),
}
"""Attributes that Keras and its callbacks change, but that are no state."""

_NOTHING = object()


class CallbackStates:
    """The callbacks of a `fit`, as they were when it began.

    Args:
        callbacks: All but the one that saves, after their `on_train_begin`.
        before: Those of a part of the same `fit` before this one; what has begun with it began then.
    """

    def __init__(self, callbacks: Sequence[Any], before: CallbackStates | None = None) -> None:
        self._named = _named(callbacks)
        begun = {} if before is None else {id(each): before._at_begin[name] for name, each in before._named.items()}
        self._at_begin = {
            name: begun[id(callback)] if id(callback) in begun else _attributes(callback)
            for name, callback in self._named.items()
        }

    def save(self, arrays: Arrays) -> dict[str, Any]:
        """Return the state of each callback as JSON; its arrays go to `arrays`.

        Raises:
            InputError: What a `get_state` returned cannot be saved.
        """
        return {name: self._saved(name, callback, arrays) for name, callback in self._named.items()}

    def restore(self, said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Give callbacks the state they had.

        Args:
            said: What `save` returned.
            arrays: The arrays it put away.
        """
        for name, state in said.items():
            if name in self._named:
                _restore(self._named[name], state, arrays)

    def report_missing(self, said: Mapping[str, Any]) -> None:
        """Say which callbacks a backup knows that are not there now."""
        missing = sorted(name for name, state in said.items() if name not in self._named and any(state.values()))
        if missing:
            logger.warning(
                "The backup holds the state of callbacks that this fit does not have: %s", ", ".join(missing)
            )

    def _saved(self, name: str, callback: Any, arrays: Arrays) -> dict[str, Any]:
        if has_state(callback):
            try:
                return {"state": encode(callback.get_state(), f"callbacks/{name}", arrays)}
            except NotPlainError as error:
                raise InputError(
                    f"get_state() of the callback {type(callback).__name__} returned {error}.",
                    "Return numbers, strings, bytes, None and arrays, or lists, tuples, sets and dictionaries of "
                    "these.",
                ) from None
        changed = {
            attribute: encode(value, f"callbacks/{name}/{attribute}", arrays)
            for attribute, value in _attributes(callback).items()
            if not same(value, self._at_begin[name].get(attribute, _NOTHING))
        }
        variables = {}
        for attribute, held in _variables(callback).items():
            for i, variable in enumerate(held):
                key = f"callbacks/{name}/{attribute}/variable {i}"
                arrays[key] = np.array(variable.value)
                variables.setdefault(attribute, []).append(key)
        return {"attributes": changed, "variables": variables}


def check_decodable(said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """See that `CallbackStates.restore` will understand all of a backup, before it changes anything.

    Args:
        said: What `save` returned.
        arrays: The arrays it put away.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: It will not.
    """
    for state in said.values():
        decode(state.get("state"), arrays)
        decode([*state.get("attributes", {}).values()], arrays)
        for key in itertools.chain.from_iterable(state.get("variables", {}).values()):
            arrays[key]


def _named(callbacks: Sequence[Any]) -> dict[str, Any]:
    """Return callbacks by class and place, those that only show left out."""
    counts: Counter[str] = Counter()
    named = {}
    for callback in callbacks:
        if isinstance(callback, _DISPLAY):
            continue
        kind = f"{type(callback).__module__}.{type(callback).__qualname__}"
        named[f"{kind} {counts[kind]}"] = callback
        counts[kind] += 1
    return named


def _attributes(callback: Any) -> dict[str, Any]:
    """Return copies of the attributes that hold plain data."""
    if has_state(callback):
        return {}
    plain = {}
    for attribute, value in vars(callback).items():
        if isinstance(callback, _DERIVED.get(attribute, ())):
            continue
        arrays: Arrays = {}
        try:
            plain[attribute] = decode(encode(value, "", arrays), arrays)
        except NotPlainError:
            continue
    return plain


def _variables(callback: Any) -> dict[str, list[Any]]:
    """Return the Keras variables that a callback holds itself, by attribute."""
    found = {}
    for attribute, value in vars(callback).items():
        if isinstance(value, keras.Variable):
            found[attribute] = [value]
        elif isinstance(value, keras.random.SeedGenerator):
            found[attribute] = [value.state]
        elif isinstance(value, keras.Metric):
            found[attribute] = list(value.variables)
    return found


def _restore(callback: Any, state: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    if "state" in state and has_state(callback):
        callback.set_state(decode(state["state"], arrays))
    for attribute, said in state.get("attributes", {}).items():
        _assign(callback, attribute, decode(said, arrays))
    held = _variables(callback)
    for attribute, keys in state.get("variables", {}).items():
        for variable, key in zip(held.get(attribute, ()), keys, strict=False):
            variable.assign(arrays[key])


def _assign(callback: Any, attribute: str, value: Any) -> None:
    """Set an attribute; a list, dictionary or set keeps its identity, as others may hold it too."""
    current = getattr(callback, attribute, None)
    if type(current) is not type(value):
        setattr(callback, attribute, value)
    elif isinstance(current, list):
        current[:] = value
    elif isinstance(current, dict | set):
        current.clear()
        current.update(value)
    else:
        setattr(callback, attribute, value)


# Plain values of a program as JSON and arrays, and back as they were ----------------------------------


class NotPlainError(Exception):
    """A value is none of those that `encode` knows. The message says what it is."""


def encode(value: Any, name: str, arrays: Arrays) -> Any:
    """Return a value as JSON; its arrays go to `arrays`.

    Known are None, bool, int, float, str, bytes, lists, tuples, sets and dictionaries of these, and
    arrays and numbers of NumPy and JAX. Subclasses are not: they could not be made again.

    Args:
        value: The value. The result shares no memory with it.
        name: What its arrays are called, with a number behind it.
        arrays: Where they are put.

    Raises:
        NotPlainError: A part of the value is something else.

    Example:
        >>> encode((1, [None, 2.5]), "state", {})
        {'tuple': [1, [None, 2.5]]}
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [encode(entry, name, arrays) for entry in value]
    if kind in (tuple, set):
        return {kind.__name__: [encode(entry, name, arrays) for entry in value]}
    if kind is dict:
        return {"dict": [[encode(k, name, arrays), encode(v, name, arrays)] for k, v in value.items()]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.array(value)
        if storage.can_hold(array.dtype):
            key = f"{name}/{len(arrays)}"
            arrays[key] = array
            return {"number" if isinstance(value, np.generic) else "array": key}
    raise NotPlainError(f"{str(value)[:80]!r} of type {kind.__name__}")


def decode(said: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the value that `encode` was given.

    Args:
        said: What it returned.
        arrays: The arrays it put away.

    Example:
        >>> decode(encode({3: (1, {2})}, "state", {}), {})
        {3: (1, {2})}
    """
    if isinstance(said, list):
        return [decode(entry, arrays) for entry in said]
    if not isinstance(said, dict):
        return said
    ((kind, content),) = said.items()
    return _DECODERS[kind](content, arrays)


_DECODERS: dict[str, Callable[[Any, Mapping[str, np.ndarray]], Any]] = {
    "tuple": lambda content, arrays: tuple(decode(content, arrays)),
    "set": lambda content, arrays: set(decode(content, arrays)),
    "dict": lambda content, arrays: {decode(k, arrays): decode(v, arrays) for k, v in content},
    "bytes": lambda content, _: base64.b64decode(content),
    "array": lambda content, arrays: arrays[content].copy(),
    "number": lambda content, arrays: arrays[content][()],
}


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal; a NaN equals a NaN.

    Example:
        >>> same([1.0, np.zeros(2)], [1.0, np.zeros(2)]), same([1], (1,))
        (True, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic | jax.Array):
        return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))
