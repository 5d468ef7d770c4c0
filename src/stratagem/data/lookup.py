"""`StringLookup` and `IntegerLookup`: numbers for words and other tokens, in functions of datasets.

Keras's layers of these names compute through TensorFlow on every backend. These take the same arguments and give the
same numbers, on NumPy arrays: call them in `Dataset.map`, or on arrays before `predict`. They are not layers: a model
that JAX compiles cannot contain text. Those of `tf.keras.layers` are, and their models look up on the host
(`stratagem.tf.keras.on_host`).

Source of the semantics: https://keras.io/api/layers/preprocessing_layers/
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError, UsageError
from stratagem.data.category_vectors import category_vectors, rows_of_last_axis, vectors_shape
from stratagem.data.ragged import RaggedTensor
from stratagem.data.structure import encoded

Output = Literal["int", "one_hot", "multi_hot", "count", "tf_idf"]

_OUTPUTS: Final = ("int", "one_hot", "multi_hot", "count", "tf_idf")


class Lookup:
    """A table from tokens to numbers: what the lookups share.

    Args:
        max_tokens: The most numbers there are, those of special tokens included; None for as many as there are words.
        num_oov_indices: How many numbers unknown tokens share; 0 makes them an error.
        mask_token: The token that means nothing: its number is 0, and it is in no vector; None for none.
        oov_token: What stands for unknown tokens in the vocabulary.
        vocabulary: The tokens, in the order of their numbers, with or without the special ones; or a file of them, one
            a line. None where `adapt` is to learn them.
        idf_weights: A weight for each token, for "tf_idf".
        invert: Whether to look up tokens by numbers instead.
        output_mode: "int" gives numbers. The others give one vector for the tokens of the last axis: "multi_hot" with 1
            where a token is, "count" with how often, "tf_idf" with that times the token's weight. "one_hot" gives a
            vector for each token.
        pad_to_max_tokens: Whether vectors have `max_tokens` entries, though there are fewer tokens.
        sparse: Must be False.
        options: Accepted as in Keras (`name`, `dtype`, `encoding`).

    Raises:
        InputError: An argument cannot be used.
    """

    _cast: Callable[[Any], Any]
    """Makes a token of what is given for it."""

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: Any = None,
        oov_token: Any = "[UNK]",
        vocabulary: Sequence[Any] | str | os.PathLike[str] | None = None,
        idf_weights: Sequence[float] | None = None,
        invert: bool = False,
        output_mode: Output = "int",
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        **options: Any,
    ) -> None:
        _check(self, output_mode, sparse, invert, num_oov_indices)
        self.max_tokens = max_tokens
        self.output_mode = output_mode
        self.invert = invert
        self.name = options.get("name")
        self._unknown = num_oov_indices
        self._oov_token = oov_token
        self._mask = mask_token
        self._pads = pad_to_max_tokens
        self._tokens: list[Any] | None = None
        self._numbers: dict[Any, int] = {}
        self._weights: np.ndarray | None = None
        self.reset_state()
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)

    # The vocabulary ------------------------------------------------------------------------------

    def adapt(self, data: Any, batch_size: int | None = None, steps: int | None = None) -> None:
        """Learn the vocabulary: the tokens of data, the most frequent first.

        Args:
            data: An array, a list, or a dataset, batched or not, of tokens.
            batch_size: Accepted as in Keras.
            steps: How many elements of a dataset to read; None for all.
        """
        self.reset_state()
        for element in _elements(data, steps):
            self.update_state(element)
        self.finalize_state()

    def reset_state(self) -> None:
        """Forget what `update_state` was given."""
        self._counts: Counter[Any] = Counter()
        self._documents: Counter[Any] = Counter()
        self._seen = 0

    def update_state(self, data: Any) -> None:
        """Count the tokens of a batch."""
        array = np.asarray(data)
        rows = rows_of_last_axis(array) if array.ndim > 1 else array.reshape(-1, 1)
        for row in rows:
            tokens = [token for token in map(self._plain, row) if token != self._mask]
            self._counts.update(tokens)
            self._documents.update(set(tokens))
        self._seen += len(rows)

    def finalize_state(self) -> None:
        """Make the vocabulary of what was counted. Of tokens that are equally frequent the greater comes first."""
        ordered = sorted(self._counts, key=lambda token: (self._counts[token], token), reverse=True)
        most = None if self.max_tokens is None else self.max_tokens - self._first
        ordered = ordered[:most]
        weights = [float(np.log(1 + self._seen / (1 + self._documents[token]))) for token in ordered]
        self.set_vocabulary(ordered, weights if self.output_mode == "tf_idf" else None)

    def set_vocabulary(self, vocabulary: Any, idf_weights: Sequence[float] | None = None) -> None:
        """Use these tokens, in the order of their numbers.

        Args:
            vocabulary: As of the constructor.
            idf_weights: A weight for each token, for "tf_idf".

        Raises:
            InputError: A token is there twice, there are more than `max_tokens`, or weights are missing.
        """
        tokens = self._without_special(_read(vocabulary))
        found = self._first + len(tokens)
        if len(set(tokens)) < len(tokens) or (self.max_tokens is not None and found > self.max_tokens):
            twice = [token for token, count in Counter(tokens).items() if count > 1]
            what = f"{twice[0]!r} twice" if twice else f"{found} entries, and max_tokens={self.max_tokens}"
            raise InputError(
                f"The vocabulary of {type(self).__name__} has {what}.",
                "Give each token once. Together with the special tokens, there may be at most max_tokens.",
            )
        if self.output_mode == "tf_idf":
            self._weights = self._with_weights(tokens, idf_weights)
        self._tokens = tokens
        self.number_tokens()

    def number_tokens(self) -> None:
        """Give the tokens their numbers."""
        self._numbers = {token: number for number, token in enumerate(self._tokens or (), self._first)}

    def get_vocabulary(self, include_special_tokens: bool = True) -> list[Any]:
        """Return the tokens in the order of their numbers.

        Args:
            include_special_tokens: Whether with those for nothing and for unknown tokens.
        """
        return [*(self._special() if include_special_tokens else []), *(self._tokens or [])]

    def vocabulary_size(self) -> int:
        """Return how many numbers there are."""
        return self._first + len(self._tokens or [])

    vocab_size = vocabulary_size

    def _special(self) -> list[Any]:
        masked = self._mask is not None and self.output_mode == "int"
        return [*([self._mask] if masked else []), *[self._oov_token] * self._unknown]

    @property
    def _first(self) -> int:
        """The number of the first token that is no special one."""
        return len(self._special())

    def _without_special(self, tokens: Sequence[Any]) -> list[Any]:
        plain = [self._plain(token) for token in tokens]
        special = self._special()
        return plain[len(special) :] if special and plain[: len(special)] == special else plain

    def _with_weights(self, tokens: Sequence[Any], weights: Sequence[float] | None) -> np.ndarray:
        if weights is None or len(weights) != len(tokens):
            raise InputError(
                f'{type(self).__name__} with output_mode="tf_idf" was given {len(tokens)} tokens and '
                f"{0 if weights is None else len(weights)} idf_weights.",
                "Give idf_weights, one for each token; or call adapt, which learns them.",
            )
        average = float(np.mean(weights)) if len(weights) else 0.0  # what an unknown token counts
        return np.array([*[average] * self._first, *weights], np.float32)

    # Looking up ----------------------------------------------------------------------------------

    def output_spec(self, shape: Sequence[int | None]) -> tuple[tuple[int | None, ...], str]:
        """Return the shape and the dtype of what a call returns for inputs of a shape.

        Args:
            shape: Sizes; None where one is not known.
        """
        shape = tuple(shape)
        if self.invert or self.output_mode == "int":
            return shape, "string" if self.invert else "int64"
        return vectors_shape(shape, self._width, self.output_mode), "float32"

    def __call__(self, inputs: Any) -> Any:
        """Return the numbers of tokens, or the tokens of numbers.

        Args:
            inputs: Tokens, as an array of any shape, a list, a ragged tensor, or one.

        Returns:
            int64 numbers, of the same shape; or vectors of float32 (`output_mode`). Tokens are bytes.

        Raises:
            InputError: A token is unknown, and `num_oov_indices` is 0.
            UsageError: There is no vocabulary; or it is called on the input of a model.
        """
        if isinstance(inputs, RaggedTensor) and self.output_mode == "int":
            return inputs.with_flat_values(self(inputs.flat_values))
        check_values(self, inputs)
        if self._tokens is None:
            raise UsageError(
                f"{type(self).__name__} was called before it had a vocabulary.",
                "Call adapt(data) before, or give vocabulary=[...].",
            )
        array = np.asarray(inputs)
        if self.invert:
            return self._inverted(array).view(EagerArray)
        numbers = np.array([self._number(self._plain(token)) for token in array.reshape(-1)], np.int64)
        numbers = numbers.reshape(array.shape)
        return (numbers if self.output_mode == "int" else self._encoded(numbers)).view(EagerArray)

    def _number(self, token: Any) -> int:
        number = self._numbers.get(token)
        if number is not None:
            return number
        if token == self._mask:
            return 0 if self.output_mode == "int" else -1
        if self._unknown == 0:
            raise InputError(
                f"{type(self).__name__} was given {token!r}, which is not in its vocabulary of {len(self._numbers)}.",
                "Add it to the vocabulary, or write num_oov_indices=1.",
            )
        begin = self._first - self._unknown
        return begin + (zlib.crc32(repr(token).encode()) % self._unknown if self._unknown > 1 else 0)

    def _inverted(self, numbers: np.ndarray) -> np.ndarray:
        vocabulary, known = self.get_vocabulary(), range(self.vocabulary_size())
        found = [vocabulary[int(n)] if int(n) in known else self._oov_token for n in numbers.reshape(-1)]
        return encoded(found).reshape(numbers.shape)

    def _encoded(self, numbers: np.ndarray) -> np.ndarray:
        """Return vectors for numbers (`output_mode`)."""
        vectors = category_vectors(numbers, self._width, self.output_mode)
        if self._weights is not None:
            vectors[..., : len(self._weights)] *= self._weights
        return vectors

    @property
    def _width(self) -> int:
        """Number of entries of a vector (`output_mode`)."""
        return self.max_tokens if self._pads and self.max_tokens is not None else self.vocabulary_size()

    def _plain(self, token: Any) -> Any:
        return self._cast(token.item() if isinstance(token, np.generic | np.ndarray) else token)


def text_of(token: Any) -> str:
    """Return a token as text."""
    return token.decode("utf-8") if isinstance(token, bytes) else str(token)


class StringLookup(Lookup):
    """Map words to numbers (`tf.keras.layers.StringLookup`).

    Takes the arguments of Keras's layer. With several `num_oov_indices`, unknown words are hashed to them, but with
    another hash than TensorFlow's.

    Example:
        >>> lookup = StringLookup(vocabulary=["a", "b"])
        >>> lookup(["b", "z", "a"]).tolist(), lookup.get_vocabulary()
        ([2, 0, 1], ['[UNK]', 'a', 'b'])
    """

    _cast = staticmethod(text_of)


class IntegerLookup(Lookup):
    """Map integers to consecutive numbers (`tf.keras.layers.IntegerLookup`).

    Takes the arguments of Keras's layer.

    Example:
        >>> lookup = IntegerLookup()
        >>> lookup.adapt([[12], [30], [12]])
        >>> lookup([12, 7, 30]).tolist(), lookup.get_vocabulary()
        ([1, 0, 2], [-1, 12, 30])
    """

    _cast = staticmethod(int)

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: int | None = None,
        oov_token: int = -1,
        **arguments: Any,
    ) -> None:
        super().__init__(max_tokens, num_oov_indices, mask_token, oov_token, **arguments)


def _read(vocabulary: Any) -> list[Any]:
    """Return a vocabulary, from its file if it is one."""
    if isinstance(vocabulary, str | os.PathLike):
        return Path(vocabulary).read_text(encoding="utf-8").splitlines()
    return list(vocabulary)


def _elements(data: Any, steps: int | None) -> Iterator[Any]:
    """Yield what there is to learn from: an array whole, of a dataset its elements."""
    if isinstance(data, np.ndarray | list | tuple | str | bytes) or hasattr(data, "__array__"):
        yield data
        return
    iterable: Iterable[Any] = data.as_numpy_iterator() if hasattr(data, "as_numpy_iterator") else data
    for number, element in enumerate(iterable):
        if number == steps:
            return
        yield element


def check_values(lookup: Any, inputs: Any) -> None:
    """Refuse what has no values: the input of a model, or of a function that is compiled."""
    if not isinstance(inputs, list | tuple) and (
        type(inputs).__name__ == "KerasTensor" or "Tracer" in type(inputs).__name__
    ):
        raise UsageError(
            f"{type(lookup).__name__} was called inside a model or a compiled function.",
            "It looks up tokens in Python, but tokens have no values in a compiled function.",
            "Call it in the dataset: dataset.map(lambda x, y: (lookup(x), y)). The model then gets numbers.",
        )


DERIVED: Final = ("_counts", "_documents", "_numbers", "_seen")
"""Attributes that a lookup computes of the rest, or needs while it learns alone."""


def plain(kind: type[Any], state: dict[str, Any]) -> Any:
    """Return an object of a class with the attributes of another one: what a process gets that needs no Keras."""
    made = object.__new__(kind)
    vars(made).update(state)
    return made


def restored(kind: type[Lookup], state: dict[str, Any]) -> Lookup:
    """Return a lookup of a class with attributes that were saved, without what follows from them."""
    made = plain(kind, state)
    made.reset_state()
    made.number_tokens()
    return made


def _check(lookup: Any, output_mode: str, sparse: bool, invert: bool, unknown: int) -> None:
    faults = [
        (output_mode not in _OUTPUTS, f"output_mode={output_mode!r}", f"Write one of {', '.join(_OUTPUTS)}."),
        (sparse, "sparse=True", "Leave it out: vectors are arrays."),
        (invert and output_mode != "int", f"invert=True and output_mode={output_mode!r}", 'Write output_mode="int".'),
        (unknown < 0, f"num_oov_indices={unknown}", "Write 0 or more."),
    ]
    for wrong, found, remedy in faults:
        if wrong:
            raise InputError(f"{type(lookup).__name__} was given {found}.", remedy)
