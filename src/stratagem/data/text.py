"""Numbers for words and other tokens, in functions of datasets.

Keras's `StringLookup`, `IntegerLookup` and `TextVectorization` compute through TensorFlow on every backend. These take
the same arguments and give the same numbers, on NumPy arrays: call them in `Dataset.map`, or on arrays before
`predict`. They are not layers: a model that JAX compiles cannot contain text. Those of `tf.keras.layers` are, and
their models look up on the host (`stratagem.tf.keras.on_host`).

Source of the semantics: https://keras.io/api/layers/preprocessing_layers/
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError, UsageError
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
        rows = _rows(array) if array.ndim > 1 else array.reshape(-1, 1)
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
        if self.output_mode == "one_hot":
            return (*(shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape), self._width), "float32"
        return (*shape[:-1], self._width), "float32"

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
        _check_values(self, inputs)
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
        if self.output_mode == "one_hot":
            numbers = numbers[..., 0] if numbers.ndim > 1 and numbers.shape[-1] == 1 else numbers
            return (numbers[..., np.newaxis] == np.arange(self._width)).astype(np.float32)
        rows = _rows(np.atleast_1d(numbers))
        counts = np.zeros((len(rows), self._width), np.float32)
        np.add.at(counts, (np.nonzero(rows >= 0)[0], rows[rows >= 0]), 1)
        if self.output_mode == "multi_hot":
            counts = (counts > 0).astype(np.float32)
        if self._weights is not None:
            counts[:, : len(self._weights)] *= self._weights
        return counts.reshape(*numbers.shape[:-1], self._width)

    @property
    def _width(self) -> int:
        """How many numbers a vector has (`output_mode`)."""
        return self.max_tokens if self._pads and self.max_tokens is not None else self.vocabulary_size()

    def _plain(self, token: Any) -> Any:
        return self._cast(token.item() if isinstance(token, np.generic | np.ndarray) else token)


def _text_of(token: Any) -> str:
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

    _cast = staticmethod(_text_of)


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


def _rows(array: np.ndarray) -> np.ndarray:
    """Return an array as rows of its last axis; -1 would not do where a row is empty."""
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


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


def _check_values(lookup: Any, inputs: Any) -> None:
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


def plain(kind: type[Lookup], state: dict[str, Any]) -> Lookup:
    """Return a lookup of a class with the attributes of another one: what a process gets that needs no Keras."""
    made = kind.__new__(kind)
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


_PUNCTUATION: Final = re.compile(r"[!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']")

Texts = Callable[[Any], Any]


class TextVectorization(Lookup):
    """Map texts to numbers, one for each word (`tf.keras.layers.TextVectorization`).

    Texts are standardized (`standardize`), split into words (`split`), joined to n-grams (`ngrams`), and looked up.
    Call it in `Dataset.map` or on arrays. Number 0 is padding, and number 1 is any unknown word. Source of the
    semantics: https://keras.io/api/layers/preprocessing_layers/text/text_vectorization/

    Args:
        max_tokens: Largest size of the vocabulary, including the two special numbers.
        standardize: "lower_and_strip_punctuation", "lower", "strip_punctuation", None, or a function of an array of
            texts.
        split: "whitespace", "character", None for texts that are one word each, or a function of an array of texts
            that returns a list of words for each.
        ngrams: Lengths of n-grams to add to single words: a number for all lengths up to it, or a tuple of numbers.
        output_mode: "int" for the number of each word; "multi_hot", "count" or "tf_idf" for one vector for each text.
        output_sequence_length: Number of numbers for each text; None means that of the longest text of the batch.
        pad_to_max_tokens: Whether vectors have `max_tokens` entries, even if there are fewer words.
        vocabulary: The words, or a file with them. None lets `adapt` learn them.
        idf_weights: A weight for each word, for "tf_idf".
        sparse: Must be False.
        ragged: Must be False.
        options: Accepted as in Keras (`name`, `encoding`).

    Raises:
        InputError: An argument cannot be used.

    Example:
        >>> vectorize = TextVectorization(output_sequence_length=4)
        >>> vectorize.adapt(["The cat.", "the dog"])
        >>> vectorize(["The dog, the bird!"]).tolist(), vectorize.get_vocabulary()
        ([[2, 3, 2, 1]], ['', '[UNK]', 'the', 'dog', 'cat'])
    """

    _cast = staticmethod(_text_of)

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: str | Texts | None = "lower_and_strip_punctuation",
        split: str | Texts | None = "whitespace",
        ngrams: int | Sequence[int] | None = None,
        output_mode: Output = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: Any = None,
        idf_weights: Sequence[float] | None = None,
        sparse: bool = False,
        ragged: bool = False,
        **options: Any,
    ) -> None:
        for name, value, known in (("standardize", standardize, _STANDARDS), ("split", split, _SPLITS)):
            _check_known(name, value, known)
        self._standardize, self._split = standardize, split
        self._ngrams = tuple(range(1, ngrams + 1) if isinstance(ngrams, int) else ngrams or (1,))
        self._length = output_sequence_length
        if ragged or output_mode == "one_hot":
            what = "ragged=True" if ragged else 'output_mode="one_hot"'
            raise InputError(f"TextVectorization was given {what}.", "Leave it out: rows are padded with zeros.")
        super().__init__(
            max_tokens,
            mask_token="",
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            output_mode=output_mode,
            pad_to_max_tokens=pad_to_max_tokens,
            sparse=sparse,
            name=options.get("name"),
        )

    def update_state(self, data: Any) -> None:
        """Count the words of texts."""
        for words in self._words(data)[0]:
            super().update_state(np.array([words], object))

    def __call__(self, inputs: Any) -> np.ndarray:
        """Return the numbers of the words of texts.

        Args:
            inputs: Texts, as an array of shape (batch,) or (batch, 1), a list, or one text.

        Returns:
            int64 of shape (batch, words), with split=None that of the inputs; or float32 of shape (batch, vocabulary).
            Without the first axis for one text.

        Raises:
            UsageError: There is no vocabulary; or it is called on the input of a model.
        """
        _check_values(self, inputs)
        texts, alone = self._words(inputs)
        look_up = super().__call__
        if self._split is None and self._length is None and self.output_mode == "int":
            return look_up(np.array([words[0] for words in texts], object).reshape(np.shape(inputs)))
        if self.output_mode == "int":
            length = self._length if self._length is not None else max(map(len, texts), default=0)
            padded = [[*words[:length], *[""] * (length - len(words))] for words in texts]
            rows = look_up(np.array(padded, object).reshape(len(texts), length))
        else:
            rows = np.concatenate([look_up(np.array([words], object)) for words in texts]).view(EagerArray)
        return rows[0] if alone else rows

    def output_spec(self, shape: Sequence[int | None]) -> tuple[tuple[int | None, ...], str]:
        """Return the shape and dtype of the result for texts of a shape; see `Lookup.output_spec`."""
        if self.output_mode != "int":
            return (*shape[:1], self._width), "float32"
        if self._split is None and self._length is None:
            return tuple(shape), "int64"
        return (*shape[:1], self._length), "int64"

    def _words(self, texts: Any) -> tuple[list[list[str]], bool]:
        """Return the tokens of each text, and whether there is only one text, not a batch."""
        alone = np.ndim(texts) == 0
        array = np.atleast_1d(np.asarray(texts))
        array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        made = _applied(self._standardize, _STANDARDS, array)
        split = _applied(self._split, _SPLITS, made)
        return [self._joined([_text_of(word) for word in words]) for words in split], alone

    def _joined(self, words: list[str]) -> list[str]:
        if tuple(self._ngrams) == (1,):
            return words
        return [" ".join(words[i : i + n]) for n in self._ngrams for i in range(len(words) - n + 1)]


def _texts_of(texts: Any) -> list[Any]:
    """Return texts as a list; rows of words stay lists."""
    return [row if isinstance(row, list) else _text_of(row) for row in np.asarray(texts, object).tolist()]


_STANDARDS: Final[dict[str | None, Texts]] = {
    "lower_and_strip_punctuation": lambda texts: [_PUNCTUATION.sub("", text.lower()) for text in texts],
    "lower": lambda texts: [text.lower() for text in texts],
    "strip_punctuation": lambda texts: [_PUNCTUATION.sub("", text) for text in texts],
    None: lambda texts: texts,
}

_SPLITS: Final[dict[str | None, Texts]] = {
    "whitespace": lambda texts: [text.split() for text in texts],
    "character": lambda texts: [list(text) for text in texts],
    None: lambda texts: [text if isinstance(text, list) else [text] for text in texts],
}


def _applied(how: str | Texts | None, known: dict[str | None, Texts], texts: Any) -> Any:
    return how(texts) if callable(how) else known[how](_texts_of(texts))


def _check_known(name: str, value: Any, known: dict[str | None, Texts]) -> None:
    if not callable(value) and value not in known:
        raise InputError(
            f"TextVectorization was given {name}={value!r}.",
            f"Write one of {', '.join(map(repr, known))}, or a function of an array of texts.",
        )
