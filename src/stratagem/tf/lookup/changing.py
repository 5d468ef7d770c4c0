"""Tables that a program changes (`tf.lookup.experimental`), and that checkpoints hold.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/lookup/experimental
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from stratagem.core.changing import Changing
from stratagem.core.errors import InputError, UsageError
from stratagem.program.tracing import leave_tracing
from stratagem.replica.context import inside_step
from stratagem.tf.lookup.initializers import typed
from stratagem.tf.lookup.tables import Table, exported, flat, refuse_traced
from stratagem.tf.tensors.operation import tensor


class MutableHashTable(Table, Changing):
    """A table that a program changes (`tf.lookup.experimental.MutableHashTable`). A checkpoint saves its entries.

    A `tf.function` that uses the table runs as Python. Reader processes and workers of parameter servers get a copy. It
    has the entries of the time when it was made, and does not change. A function that is scheduled after a change of
    the table gets a new copy.

    Args:
        key_dtype: The dtype of the keys.
        value_dtype: The dtype of the values.
        default_value: The value for keys that are not in the table; all values have its shape.
        name: The name of the table.
        checkpoint: Whether checkpoints save the table.
        experimental_is_anonymous: No effect.

    Raises:
        InputError: The keys are neither text nor whole numbers.

    Example:
        >>> table = MutableHashTable("string", "int64", default_value=-1)
        >>> table.insert(["a", "b"], [1, 2])
        >>> table.remove(["a"])
        >>> table.lookup(["a", "b"]).tolist(), int(table.size())
        ([-1, 2], 1)
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        name: str | None = None,
        checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ) -> None:
        super().__init__(key_dtype, value_dtype, name)
        self._default = typed(default_value, self.value_dtype)[0][()]
        self._entries: dict[Any, Any] = {}
        self._saved = _Saved(self._entries, self) if checkpoint else None
        self._is_copy = False

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_is_copy": True}

    def size(self, name: str | None = None) -> Any:
        """Return how many keys there are."""
        _leave_compiled()
        return tensor(np.int64(len(self._entries)))

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Return all keys and their values."""
        _leave_compiled()
        return exported(self, self._entries)

    def lookup(self, keys: Any, dynamic_default_values: Any = None, name: str | None = None) -> Any:
        """Return the values of keys.

        Args:
            keys: The keys, of any shape.
            dynamic_default_values: A value for each key that is not in the table, or one value for all; None for the
                default value of the table.
            name: No effect.

        Raises:
            InputError: The keys have another dtype.
            UsageError: The method is called in `strategy.run` or in a step of `fit`.
        """
        flat_keys, shape = self._known(keys)
        whole = (*shape, *np.shape(self._default))
        given = self._default if dynamic_default_values is None else typed(dynamic_default_values, self.value_dtype)[0]
        defaults = np.broadcast_to(given, whole).reshape(len(flat_keys), *np.shape(self._default))
        found = [self._entries.get(key, default) for key, default in zip(flat_keys, defaults, strict=True)]
        return self.tensor_of(found, whole)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> None:
        """Set the values of keys, and replace those that they have.

        Args:
            keys: The keys, of any shape.
            values: The value of each.
            name: No effect.

        Raises:
            InputError: The numbers of keys and values differ, or they have another dtype.
            UsageError: The method is called in `strategy.run`, in a step of `fit`, or on a copy.
        """
        flat_keys, shape = self._changed(keys)
        refuse_traced(values, _CHANGES, _OUTSIDE)
        array = typed(values, self.value_dtype)[0]
        if array.shape != (*shape, *np.shape(self._default)):
            raise InputError(
                f"insert was given keys of shape {shape} and values of shape {array.shape}.",
                f"Give each key one value of shape {np.shape(self._default)}.",
            )
        self.changes += 1
        self._entries.update(zip(flat_keys, array.reshape(len(flat_keys), *np.shape(self._default)), strict=True))

    def remove(self, keys: Any, name: str | None = None) -> None:
        """Remove keys. Keys that are not in the table are ignored.

        Args:
            keys: The keys, of any shape.
            name: No effect.

        Raises:
            InputError: The keys have another dtype.
            UsageError: The method is called in `strategy.run`, in a step of `fit`, or on a copy.
        """
        flat_keys = self._changed(keys)[0]
        self.changes += 1
        for key in flat_keys:
            self._entries.pop(key, None)

    def checkpoint_parts(self) -> dict[str, Any]:
        """Return what a checkpoint saves."""
        return {} if self._saved is None else {"entries": self._saved}

    def _known(self, keys: Any) -> tuple[list[Any], tuple[int, ...]]:
        """Return keys one after the other, and their shape."""
        _leave_compiled()
        given = self.given(keys)
        refuse_traced(given, _CHANGES, _OUTSIDE)
        return flat(given), np.shape(given)

    def _changed(self, keys: Any) -> tuple[list[Any], tuple[int, ...]]:
        if self._is_copy:
            raise UsageError(
                "A copy of a table was changed. Reader processes and workers of parameter servers get copies.",
                "The table of the program would not change.",
                "Return the new entries from the function, and change the table in the program itself.",
            )
        return self._known(keys)


_CHANGES: Final = "The table can change between calls, but a compiled function would keep its present entries."
_OUTSIDE: Final = (
    "Call it outside strategy.run and fit, or in Dataset.map; a tf.lookup.StaticHashTable of numbers may be used there."
)


def _leave_compiled() -> None:
    """Let the function that is being traced run as Python.

    Raises:
        UsageError: It runs on replicas.
    """
    if inside_step():
        raise UsageError("A table that can change was used in strategy.run or in a step of fit.", _CHANGES, _OUTSIDE)
    leave_tracing()


class DenseHashTable(MutableHashTable):
    """A table that a program changes (`tf.lookup.experimental.DenseHashTable`), with two keys that it never has.

    `export` returns the keys of the table; in TensorFlow it also returns the empty places.

    Args:
        key_dtype: The dtype of the keys.
        value_dtype: The dtype of the values.
        default_value: The value for keys that are not in the table; all values have its shape.
        empty_key: A key that is never used.
        deleted_key: Another one.
        initial_num_buckets: No effect.
        name: The name of the table.
        checkpoint: Whether checkpoints save the table.
        experimental_is_anonymous: No effect.

    Raises:
        InputError: The two keys are the same; or later, a call names one of them.

    Example:
        >>> table = DenseHashTable("int64", "int64", default_value=-1, empty_key=0, deleted_key=-2)
        >>> table.insert([11, 12], [1, 2])
        >>> table.lookup([12, 13]).tolist()
        [2, -1]
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        name: str | None = None,
        checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ) -> None:
        super().__init__(key_dtype, value_dtype, default_value, name, checkpoint)
        names = ("empty_key", "deleted_key")
        self._reserved = dict(zip(flat(typed([empty_key, deleted_key], self.key_dtype)[0]), names, strict=False))
        if len(self._reserved) < len(names):
            raise InputError(
                f"empty_key and deleted_key are both {empty_key!r}.", "Choose two different keys that never occur."
            )

    def _known(self, keys: Any) -> tuple[list[Any], tuple[int, ...]]:
        found, shape = super()._known(keys)
        for key in found:
            if key in self._reserved:
                raise InputError(
                    f"A table was asked for {key!r}, which is its {self._reserved[key]}.",
                    "Choose an empty_key and a deleted_key that never occur.",
                )
        return found, shape

    erase = MutableHashTable.remove


class _Saved:
    """The entries of a table, as a checkpoint holds them.

    Args:
        entries: Values by key.
        of: The table.
    """

    def __init__(self, entries: dict[Any, Any], of: Changing) -> None:
        self._entries = entries
        self._of = of

    def get_state(self) -> list[list[Any]]:
        """Return keys and values; text as a str with a character for each byte."""
        return [[_plain(key), _plain(value)] for key, value in self._entries.items()]

    def set_state(self, state: list[list[Any]]) -> None:
        """Take keys and values, in place of those that are there."""
        self._of.changes += 1
        self._entries.clear()
        self._entries.update((_from_plain(key), np.asarray(_from_plain(value))[()]) for key, value in state)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {"text": value.decode("latin-1")} if isinstance(value, bytes) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_plain(each) for each in value]
    return value["text"].encode("latin-1") if isinstance(value, dict) else value
