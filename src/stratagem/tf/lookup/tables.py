"""Tables from keys to values (`tf.lookup`), in functions of datasets, outside functions and in compiled ones.

| table | keys and values | in a compiled function |
| --- | --- | --- |
| one that never changes | numbers | its entries are constants of the program |
| one that never changes | text | an error: no device holds text |
| one that is changed | any | the function runs as Python, as with an iterator; in `strategy.run` and `fit` an error |

A table goes to reader processes and to workers of parameter servers as a copy, with the entries that it has then.
Copies do not change: nobody would see it.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/lookup
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from stratagem.checkpoint.objects import Holder
from stratagem.core.errors import InputError, UsageError
from stratagem.data.fingerprints import fingerprint
from stratagem.program.tracing import is_traced
from stratagem.tf.dtypes import DType, as_dtype
from stratagem.tf.lookup.initializers import KeyValueTensorInitializer, TextFileInitializer, typed
from stratagem.tf.tensors.operation import hosted, tensor, xp

Contents = KeyValueTensorInitializer | TextFileInitializer

_KEYS: Final = ("string", "int32", "int64")


class Table(Holder):
    """A table: what all of them share.

    Args:
        key_dtype: The dtype of the keys.
        value_dtype: The dtype of the values.
        name: The name of the table.

    Raises:
        InputError: The keys are neither text nor whole numbers.
    """

    def __init__(self, key_dtype: Any, value_dtype: Any, name: str | None) -> None:
        self._key_dtype, self._value_dtype, self._name = as_dtype(key_dtype), as_dtype(value_dtype), name
        if self._key_dtype not in _KEYS:
            raise InputError(f"A table has keys of {self._key_dtype!r}.", f"Write one of {', '.join(_KEYS)}.")

    @property
    def key_dtype(self) -> DType:
        """The dtype of the keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> DType:
        """The dtype of the values."""
        return self._value_dtype

    @property
    def name(self) -> str | None:
        """The name of the table."""
        return self._name

    def checkpoint_parts(self) -> dict[str, Any]:
        """Return nothing: a restarted program makes a table that never changes again."""
        return {}

    def lookup(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the values of keys (`lookup`).

        Args:
            keys: The keys, of any shape.
            args: `name`, which has no effect; for tables that can change also `dynamic_default_values`.
            kwargs: The same by name.

        Raises:
            InputError: The keys have another dtype.
            UsageError: A compiled function computes the keys, and cannot use the table or its keys.
        """
        raise NotImplementedError

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)

    def given(self, keys: Any) -> Any:
        """Return keys as a tensor.

        Raises:
            InputError: The keys have another dtype.
        """
        found = tensor(keys, self.key_dtype if isinstance(keys, list | tuple | int | str | bytes) else None)
        kind = as_dtype(found.dtype) if hasattr(found, "dtype") else as_dtype("string")
        if (kind == "string") != (self.key_dtype == "string") or not (kind == "string" or kind.is_integer):
            raise InputError(
                f"A table with keys of {self.key_dtype!r} was asked for keys of {kind!r}.",
                "Convert the keys with tf.cast, tf.strings.as_string or tf.strings.to_number.",
            )
        return found

    def tensor_of(self, values: Any, shape: Sequence[int]) -> Any:
        """Return values as a tensor.

        Raises:
            InputError: A number needs more bits than JAX has.
        """
        array = np.asarray(values, self.value_dtype.as_numpy_dtype).reshape(shape)
        found = tensor(array[()] if array.dtype == object and not array.ndim else array, self.value_dtype)
        if self.value_dtype.is_integer and not np.array_equal(np.asarray(found), array):
            raise InputError(
                f"A table of {self.value_dtype!r} has the value {array.max()}, but JAX holds whole numbers in 32 bits.",
                "Look values up in Dataset.map, where NumPy holds all 64 bits, or give numbers that fit.",
            )
        return found


def _key(value: Any) -> Any:
    """Return a key as dictionaries hold it."""
    return value.encode() if isinstance(value, str) else bytes(value) if isinstance(value, bytes) else int(value)


def flat(keys: Any) -> list[Any]:
    """Return keys as dictionaries hold them, one after the other."""
    return [_key(key) for key in np.asarray(keys, object if isinstance(keys, bytes) else None).reshape(-1).tolist()]


def refuse_traced(keys: Any, why: str, instead: str) -> None:
    """Refuse keys that are not known yet.

    Raises:
        UsageError: A compiled function computes them.
    """
    if is_traced(keys):
        raise UsageError("A table was asked for keys that a compiled function computes.", why, instead)


class StaticHashTable(Table):
    """A table that never changes (`tf.lookup.StaticHashTable`).

    Args:
        initializer: The contents of the table.
        default_value: The value for keys that are not in the table.
        name: The name of the table.
        experimental_is_anonymous: No effect.

    Raises:
        UsageError: A key occurs twice, with different values.

    Example:
        >>> table = StaticHashTable(KeyValueTensorInitializer(["a", "b"], [1, 2]), default_value=-1)
        >>> table.lookup(["b", "z"]).tolist(), int(table.size())
        ([2, -1], 2)
    """

    def __init__(
        self,
        initializer: Contents,
        default_value: Any,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        super().__init__(initializer.key_dtype, initializer.value_dtype, name)
        self._default = typed(default_value, self.value_dtype)[0][()]
        self._entries = _entries_of(initializer)

    @property
    def default_value(self) -> Any:
        """The value for keys that are not in the table."""
        return self.tensor_of(self._default, ())

    def size(self, name: str | None = None) -> Any:
        """Return how many keys there are."""
        return tensor(np.int64(len(self._entries)))

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """Return all keys and their values."""
        return exported(self, self._entries)

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the values of keys; see `Table.lookup`."""
        given = self.given(keys)
        if self.key_dtype == "string" or self.value_dtype == "string":
            refuse_traced(
                given,
                "Its values are text, and no device holds text.",
                "Look them up outside the function, or in Dataset.map.",
            )
            return self.tensor_of([self._entries.get(key, self._default) for key in flat(given)], np.shape(given))
        return self._searched(given)

    def _searched(self, keys: Any) -> Any:
        """Look numbers up among numbers, in a compiled function too."""
        can_be = np.iinfo(np.dtype(keys.dtype))  # JAX's keys have 32 bits
        known = sorted(key for key in self._entries if can_be.min <= key <= can_be.max)
        if not known:
            return self.tensor_of(np.full(np.shape(keys), self._default), np.shape(keys))
        library, own = xp(keys), np.array(known, keys.dtype)
        values = self.tensor_of([*(self._entries[key] for key in known), self._default], (-1,))
        places = library.searchsorted(own, keys)
        there = library.take(library.asarray(own), library.minimum(places, len(own) - 1)) == keys
        found = library.take(values, library.where(there, places, len(own)))
        return hosted(found) if library is np else found


def _entries_of(initializer: Contents) -> dict[Any, Any]:
    entries: dict[Any, Any] = {}
    for key, value in zip(flat(initializer.keys), initializer.values.tolist(), strict=True):
        if entries.setdefault(key, value) != value:
            raise UsageError(
                f"A table has the values {entries[key]!r} and {value!r} for the key {key!r}.",
                "Give each key one value.",
            )
    return entries


def exported(table: Table, entries: Mapping[Any, Any]) -> tuple[Any, Any]:
    """Return the keys of a table and their values, as tensors."""
    keys = np.empty(len(entries), table.key_dtype.as_numpy_dtype)
    keys[:] = list(entries)
    shape = np.shape(next(iter(entries.values()), ()))
    return tensor(keys, table.key_dtype), table.tensor_of(list(entries.values()), (len(entries), *shape))


class StaticVocabularyTable(Table):
    """A table of numbers for words; unknown words share a few further numbers (`tf.lookup.StaticVocabularyTable`).

    An unknown word gets the number of a bucket by its fingerprint, the same number as in TensorFlow.

    Args:
        initializer: Keys and their numbers, int64; None for no known keys.
        num_oov_buckets: The number of buckets that unknown words share.
        lookup_key_dtype: The dtype of the keys that are looked up; None for that of the initializer.
        name: The name of the table.
        experimental_is_anonymous: No effect.

    Raises:
        InputError: `num_oov_buckets` is less than 1, or the values are not int64.

    Example:
        >>> known = KeyValueTensorInitializer(["e", "l"], [0, 1], value_dtype="int64")
        >>> StaticVocabularyTable(known, 3).lookup(["l", "foo", "King"]).tolist()
        [1, 2, 3]
    """

    def __init__(
        self,
        initializer: Contents | None,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        kind = "string" if initializer is None else initializer.key_dtype
        super().__init__(kind if lookup_key_dtype is None else lookup_key_dtype, "int64", name)
        if num_oov_buckets <= 0:
            raise InputError(f"num_oov_buckets is {num_oov_buckets}.", "Write 1 or more, or tf.lookup.StaticHashTable.")
        if initializer is not None and initializer.value_dtype not in ("int64", "int32"):
            raise InputError(f"The values have the dtype {initializer.value_dtype!r}.", "Give whole numbers: tf.int64.")
        self._buckets = num_oov_buckets
        self._entries = {} if initializer is None else _entries_of(initializer)

    def size(self, name: str | None = None) -> Any:
        """Return how many numbers there are, including those of the buckets."""
        return tensor(np.int64(len(self._entries) + self._buckets))

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """Return the numbers of keys; see `Table.lookup`."""
        given = self.given(keys)
        refuse_traced(
            given,
            "A key that is not in the table gets a number by its fingerprint, which is that of a text.",
            "Look keys up in Dataset.map, or outside the function.",
        )
        return self.tensor_of([self._number(key) for key in flat(given)], np.shape(given))

    def _number(self, key: Any) -> int:
        if key in self._entries:
            return self._entries[key]
        text = key if isinstance(key, bytes) else str(key).encode()
        return len(self._entries) + fingerprint(text) % self._buckets
