"""`TextVectorization`: numbers for the words of texts, in functions of datasets. See `lookup`, on which it builds.

Source of the semantics: https://keras.io/api/layers/preprocessing_layers/text/text_vectorization/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from stratagem.core.eager import EagerArray
from stratagem.core.errors import InputError
from stratagem.data.lookup import Lookup, Output, check_values, text_of

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

    _cast = staticmethod(text_of)

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
        check_values(self, inputs)
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
        return [self._joined([text_of(word) for word in words]) for words in split], alone

    def _joined(self, words: list[str]) -> list[str]:
        if tuple(self._ngrams) == (1,):
            return words
        return [" ".join(words[i : i + n]) for n in self._ngrams for i in range(len(words) - n + 1)]


def _texts_of(texts: Any) -> list[Any]:
    """Return texts as a list; rows of words stay lists."""
    return [row if isinstance(row, list) else text_of(row) for row in np.asarray(texts, object).tolist()]


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
