"""Text (`tf.strings`): NumPy arrays of bytes, in functions of datasets and outside; never in compiled functions.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/strings
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stratagem.data.structure import encoded
from stratagem.tf.tensors.operation import held, hosted, is_text, tensor


def _each(text: Any, change: Callable[[bytes], Any], dtype: Any = object) -> Any:
    """Return what a function makes of each text; of one text alone, bytes."""
    array: Any = np.asarray(encoded(text), object)
    made = np.empty(array.shape, dtype)
    for place in np.ndindex(array.shape):
        made[place] = change(array[place])
    return made.item() if dtype is object and made.ndim == 0 else hosted(made)


def _bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(np.asarray(text, object).item())


def lower(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """Return text in small letters (`tf.strings.lower`): those of ASCII, or all with encoding="utf-8"."""
    return _each(input, (lambda t: t.decode().lower().encode()) if encoding else bytes.lower)


def upper(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """Return text in capitals (`tf.strings.upper`): those of ASCII, or all with encoding="utf-8"."""
    return _each(input, (lambda t: t.decode().upper().encode()) if encoding else bytes.upper)


def strip(input: Any, name: str | None = None) -> Any:
    """Return text without white space at its ends (`tf.strings.strip`)."""
    return _each(input, bytes.strip)


def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """Return how long texts are, in units of "BYTE" or "UTF8_CHAR" (`tf.strings.length`)."""
    return _each(input, len if unit == "BYTE" else (lambda t: len(t.decode())), np.int32)


def substr(input: Any, pos: int, len: int, unit: str = "BYTE", name: str | None = None) -> Any:
    """Return `len` units of texts from a position, negative from the end (`tf.strings.substr`)."""

    def cut(text: Any) -> Any:
        start = max(pos + _length(text), 0) if pos < 0 else pos
        return text[start : start + len]

    return _each(input, cut if unit == "BYTE" else (lambda t: cut(t.decode()).encode()))


_length = len


def regex_replace(input: Any, pattern: str, rewrite: str, replace_global: bool = True, name: str | None = None) -> Any:
    r"""Return texts with what matches a pattern replaced (`tf.strings.regex_replace`).

    Args:
        input: Texts.
        pattern: A regular expression.
        rewrite: What to write; `\1` stands for the first group.
        replace_global: Whether to replace all that matches, not only the first.
        name: No effect.

    Example:
        >>> regex_replace("a-b-c", "-", " ")
        b'a b c'
    """
    known, new = re.compile(_bytes(pattern)), re.sub(rb"\\(\d)", rb"\\g<\1>", _bytes(rewrite))
    return _each(input, lambda text: known.sub(new, text, 0 if replace_global else 1))


def regex_full_match(input: Any, pattern: str, name: str | None = None) -> Any:
    """Return whether texts match a pattern as a whole (`tf.strings.regex_full_match`)."""
    known = re.compile(_bytes(pattern))
    return _each(input, lambda text: known.fullmatch(text) is not None, np.bool_)


def join(inputs: Sequence[Any], separator: str = "", name: str | None = None) -> Any:
    """Return texts one after the other, element by element (`tf.strings.join`).

    Example:
        >>> join(["a", "b"], "-")
        b'a-b'
    """
    arrays: Any = np.broadcast_arrays(*(np.asarray(encoded(text), object) for text in inputs))
    places = np.empty(arrays[0].shape, object)
    for place in np.ndindex(arrays[0].shape):
        places[place] = _bytes(separator).join(array[place] for array in arrays)
    return places.item() if places.ndim == 0 else hosted(places)


def reduce_join(
    inputs: Any, axis: int | None = None, keepdims: bool = False, separator: str = "", name: str | None = None
) -> Any:
    """Return texts along an axis joined, None for all (`tf.strings.reduce_join`)."""
    array = np.asarray(encoded(inputs), object)
    if axis is None:
        return _bytes(separator).join(array.ravel().tolist())
    parts = [np.take(array, i, axis) for i in range(array.shape[axis])]
    joined = join(parts, separator)
    return hosted(np.expand_dims(np.asarray(joined, object), axis)) if keepdims else joined


def split(input: Any, sep: str | None = None, maxsplit: int = -1, name: str | None = None) -> Any:
    """Return the words of one text (`tf.strings.split`); of several texts a list of them.

    Args:
        input: One text, or an array of texts (where TensorFlow gives a ragged tensor, a list of arrays).
        sep: What stands between words; None for white space.
        maxsplit: The most times to split; -1 for all.
        name: No effect.

    Example:
        >>> split("to be").tolist()
        [b'to', b'be']
    """
    array = np.asarray(encoded(input), object)
    mark = None if sep in (None, "") else _bytes(sep)
    parts = [hosted(np.array(text.split(mark, maxsplit), object)) for text in array.ravel()]
    return parts[0] if array.ndim == 0 else parts


def to_number(input: Any, out_type: Any = "float32", name: str | None = None) -> Any:
    """Return the numbers that texts tell (`tf.strings.to_number`)."""
    return tensor(np.asarray(_each(input, float, np.float64)), held(out_type))


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Any:
    """Return numbers as text (`tf.strings.as_string`).

    Args:
        input: Numbers or booleans.
        precision: Digits after the point; -1 for 6.
        scientific: Whether to write exponents.
        shortest: Whether to write as few digits as do.
        width: The least number of characters; -1 for any.
        fill: What stands before shorter ones: "0" or " ".
        name: No effect.

    Example:
        >>> as_string(3), as_string(2.5, precision=2)
        (b'3', b'2.50')
    """
    array = np.asarray(tensor(input))
    digits = "" if precision == -1 else f".{precision}"
    kind = "d" if array.dtype.kind in "iu" else "g" if shortest else "e" if scientific else "f"
    wide = "" if width == -1 else f"{'0' if fill == '0' else ''}{width}"
    made = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        value = array[place].item()
        text = str(value).lower() if array.dtype == np.bool_ else f"{value:{wide}{digits if kind != 'd' else ''}{kind}}"
        made[place] = text.encode()
    return made.item() if made.ndim == 0 else hosted(made)


def format(template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None) -> bytes:
    """Return a text with tensors in its places (`tf.strings.format`)."""
    values = inputs if isinstance(inputs, list | tuple) else [inputs]
    for value in values:
        shown = _bytes(value).decode() if is_text(value) else np.array2string(np.asarray(tensor(value)))
        template = template.replace(placeholder, shown, 1)
    return template.encode()


def bytes_split(input: Any, name: str | None = None) -> Any:
    """Return the bytes of one text apart (`tf.strings.bytes_split`)."""
    text = _bytes(input)
    return hosted(np.array([text[i : i + 1] for i in range(len(text))], object))


def unicode_split(input: Any, input_encoding: str = "UTF-8", name: str | None = None) -> Any:
    """Return the characters of one text apart (`tf.strings.unicode_split`)."""
    return hosted(np.array([letter.encode() for letter in _bytes(input).decode(input_encoding)], object))


def unicode_decode(input: Any, input_encoding: str = "UTF-8", name: str | None = None) -> Any:
    """Return the code points of one text (`tf.strings.unicode_decode`)."""
    return hosted(np.array([ord(letter) for letter in _bytes(input).decode(input_encoding)], np.int32))
