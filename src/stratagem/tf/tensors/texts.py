"""Text (`tf.strings`): NumPy arrays of bytes, in functions of datasets and outside; never in compiled functions.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/strings
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stratagem.data.fingerprints import fingerprint
from stratagem.data.ragged import RaggedTensor
from stratagem.data.structure import encoded
from stratagem.tf.tensors.operation import held, hosted, is_text, operation, refusal, tensor


def _each(text: Any, change: Callable[..., Any], dtype: Any = object, *others: Any) -> Any:
    """Return the results of a function for each text, and each element of other arrays; for a single text, bytes."""
    found = np.frompyfunc(change, 1 + len(others), 1)(np.asarray(encoded(text), object), *others)
    return hosted(found if dtype is object else np.asarray(found, dtype))


def _bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(np.asarray(text, object).item())


def lower(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """Return text in lower case (`tf.strings.lower`): only ASCII letters, or all letters with encoding="utf-8"."""
    return _each(input, (lambda t: t.decode().lower().encode()) if encoding else bytes.lower)


def upper(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """Return text in upper case (`tf.strings.upper`): only ASCII letters, or all letters with encoding="utf-8"."""
    return _each(input, (lambda t: t.decode().upper().encode()) if encoding else bytes.upper)


def strip(input: Any, name: str | None = None) -> Any:
    """Return text without white space at its ends (`tf.strings.strip`)."""
    return _each(input, bytes.strip)


def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """Return the lengths of texts, in units of "BYTE" or "UTF8_CHAR" (`tf.strings.length`)."""
    return _each(input, len if unit == "BYTE" else (lambda t: len(t.decode())), np.int32)


def substr(input: Any, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """Return `len` units of texts from a position; a negative position counts from the end (`tf.strings.substr`).

    Args:
        input: Texts.
        pos: The first position, for all texts or for each text.
        len: The number of units, for all texts or for each text. A negative number leaves out units at the end.
        unit: "BYTE" or "UTF8_CHAR".
        name: No effect.

    Raises:
        InputError: A text is shorter than the first position.
    """

    def cut(text: bytes, start: int, count: int) -> bytes:
        units: Any = text if unit == "BYTE" else text.decode()
        size = builtins.len(units)
        if not -size <= start <= size:
            raise refusal(f"substr was asked to begin at {start} in a text of length {size}.", "Correct pos.")
        start = start + size if start < 0 else start
        part = units[start : start + count if count >= 0 else size]
        return part if unit == "BYTE" else part.encode()

    return _each(input, cut, object, np.asarray(pos), np.asarray(len))


def to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Any:
    """Return for each text a number below `num_buckets`, the same as in TensorFlow (`tf.strings.to_hash_bucket_fast`).

    Args:
        input: Texts.
        num_buckets: The number of buckets.
        name: No effect.

    Raises:
        InputError: The number of buckets is less than 1.

    Example:
        >>> to_hash_bucket_fast(["foo", "bar"], 1000003).tolist()
        [403268, 120966]
    """
    if num_buckets < 1:
        raise refusal(f"to_hash_bucket_fast was given {num_buckets} buckets.", "Write 1 or more.")
    return _each(input, lambda text: fingerprint(text) % num_buckets, np.int64)


def regex_replace(input: Any, pattern: str, rewrite: str, replace_global: bool = True, name: str | None = None) -> Any:
    r"""Return texts with the matches of a pattern replaced (`tf.strings.regex_replace`).

    Args:
        input: Texts.
        pattern: A regular expression.
        rewrite: The replacement; `\1` means the first group.
        replace_global: Whether to replace all matches, or only the first.
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

    Raises:
        InputError: There are arrays of different shapes. Single texts fit all arrays.

    Example:
        >>> join(["a", "b"], "-")
        b'a-b'
    """
    parts = [np.asarray(encoded(text), object) for text in inputs]
    if len({part.shape for part in parts if part.ndim}) > 1:
        raise refusal(
            f"join was given shapes {', '.join(str(part.shape) for part in parts)}.", "Give texts of one shape."
        )
    first, *rest = parts or [b""]
    return _each(first, lambda *texts: _bytes(separator).join(texts), object, *rest)


def reduce_join(
    inputs: Any, axis: Any = None, keepdims: bool = False, separator: str = "", name: str | None = None
) -> Any:
    """Return texts joined along axes, in the order in which the axes are named (`tf.strings.reduce_join`).

    Args:
        inputs: Texts.
        axis: An axis, or several; None for all, the last first.
        keepdims: Whether the axes stay, with size 1.
        separator: The text between two texts.
        name: No effect.
    """
    if isinstance(inputs, RaggedTensor):
        if inputs.ragged_rank != 1 or axis not in (1, -1):
            raise refusal("reduce_join was given a ragged tensor.", "Give a ragged tensor of two axes, and axis=-1.")
        rows = [_bytes(separator).join(np.asarray(row, object).tolist()) for row in inputs]
        return hosted(np.array([[row] for row in rows] if keepdims else rows, object))
    array = np.asarray(encoded(inputs), object)
    named = range(array.ndim)[::-1] if axis is None else np.atleast_1d(axis).tolist()
    along = [each % array.ndim for each in reversed(named)]
    others = [each for each in range(array.ndim) if each not in along]
    count = int(np.prod([array.shape[each] for each in along]))
    rows = np.transpose(array, [*others, *along]).reshape(*(array.shape[each] for each in others), count)
    joined = np.asarray(join([rows[..., i] for i in range(count)], separator).tolist(), object)
    if keepdims:
        joined = joined.reshape([1 if each in along else size for each, size in enumerate(array.shape)])
    return hosted(joined.item() if joined.ndim == 0 else joined)


def split(input: Any, sep: str | None = None, maxsplit: int = -1, name: str | None = None) -> Any:
    """Return the words of one text (`tf.strings.split`), or a ragged tensor of the words of several texts.

    Args:
        input: One text, or an array of texts.
        sep: The text between words; None for white space.
        maxsplit: The greatest number of splits; -1 for all.
        name: No effect.

    Example:
        >>> split("to be").tolist()
        [b'to', b'be']
    """
    mark = None if sep in (None, "") else _bytes(sep)
    return _parts(input, lambda text: text.split(mark, maxsplit), object)


def to_number(input: Any, out_type: Any = "float32", name: str | None = None) -> Any:
    """Return texts as numbers (`tf.strings.to_number`).

    Raises:
        InputError: A text is not a number of that dtype.
    """
    kind = np.dtype(held(out_type))

    def read(text: bytes) -> Any:
        try:
            if b"_" in text:
                raise ValueError
            return int(text) if kind.kind in "iu" else float(text)
        except ValueError:
            raise refusal(f"{text!r} cannot be read as a number of {kind}.", "Correct the text, or out_type.") from None

    return tensor(np.asarray(_each(input, read, np.int64 if kind.kind in "iu" else np.float64)), kind)


@operation
def as_string(
    input: Any, precision: int = -1, scientific: bool = False, shortest: bool = False, width: int = -1, fill: str = ""
) -> Any:
    """Return numbers as text (`tf.strings.as_string`).

    Args:
        input: Numbers or booleans.
        precision: The number of digits after the point; -1 for 6.
        scientific: Whether to write exponents.
        shortest: Whether to write as few digits as are needed.
        width: The least number of characters; -1 for any number.
        fill: The character before shorter numbers: "0" or " ".

    Example:
        >>> as_string(3), as_string(2.5, precision=2)
        (b'3', b'2.50')
    """
    given = tensor(input)
    array = np.asarray(given, object if is_text(given) else None)

    def shown(value: Any) -> bytes:
        return _shown(value, array.dtype, precision, scientific, shortest, width, fill).encode()

    return hosted(np.frompyfunc(shown, 1, 1)(array))


def _shown(value: Any, dtype: np.dtype, precision: int, scientific: bool, shortest: bool, width: int, fill: str) -> str:
    if isinstance(value, bytes):
        text = value.decode()
    elif dtype == np.bool_:
        text = "true" if value else "false"
    elif dtype.kind == "c":
        kind = np.dtype(float)
        parts = [_shown(part, kind, precision, scientific, shortest, -1, "") for part in (value.real, value.imag)]
        text = f"({','.join(parts)})"
    else:
        kind = "d" if dtype.kind in "iu" else "g" if shortest else "e" if scientific else "f"
        digits = "" if precision == -1 or kind == "d" else f".{precision}"
        text = f"{int(value):d}" if kind == "d" else f"{float(value):{digits}{kind}}"
        if fill == "0" and width != -1:
            return text.zfill(width)
    if width == -1:
        return text
    plus = "+" if fill == "+" and not text.startswith("-") and dtype.kind in "iuf" else ""
    return text.ljust(width) if fill == "-" else (plus + text).rjust(width)


def format(template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None) -> Any:
    """Return a text with tensors in place of its placeholders (`tf.strings.format`).

    Args:
        template: The text.
        inputs: A tensor, or a tuple or list of tensors, one for each placeholder.
        placeholder: The text that tensors replace.
        summarize: The number of elements to show at each end of an axis; -1 for all.
        name: No effect.

    Example:
        >>> format("{} of {}", ([1.5, 2.0], "x"))
        b'[1.5 2] of "x"'
    """
    parts = template.split(placeholder)
    values = list(inputs) if isinstance(inputs, list | tuple) and len(inputs) == len(parts) - 1 else [inputs]
    if len(values) != len(parts) - 1:
        raise refusal(
            f"format was given {len(values)} tensors for {len(parts) - 1} places.", "Give one for each place."
        )
    shown = [shown_tensor(tensor(value), summarize) for value in values]
    return hosted("".join(part + text for part, text in zip(parts, [*shown, ""], strict=True)).encode())


def shown_tensor(value: Any, summarize: int) -> str:
    """Return a tensor as TensorFlow prints it: with the fewest digits for each number, long axes shortened."""
    array = np.asarray(value, object if is_text(value) else None)
    if array.ndim == 0:
        return _shown_number(array[()])
    rows = list(range(len(array)))
    left_out = summarize != -1 and len(rows) > 2 * summarize
    if left_out:
        rows = rows[:summarize] + rows[len(rows) - summarize :]
    parts = [shown_tensor(array[row], summarize).replace("\n", "\n ") for row in rows]
    if left_out:
        parts.insert(summarize, "...")
    return f"[{(' ' if array.ndim == 1 else chr(10) * (array.ndim - 1) + ' ').join(parts)}]"


def _shown_number(value: Any) -> str:
    if isinstance(value, bytes):
        return f'"{value.decode(errors="replace")}"'
    if value.dtype.kind in "biu":
        return str(int(value))
    if value.dtype.kind == "c":
        return str(value)
    short, digits = f"{float(value):.6g}", 15 if value.dtype == np.float64 else 9
    return short if value.dtype.type(float(short)) == value or value != value else f"{float(value):.{digits}g}"


def _parts(input: Any, cut: Callable[[bytes], Any], dtype: Any) -> Any:
    """Return the parts of one text; of several texts a ragged tensor."""
    array = np.asarray(encoded(input), object)
    found = [np.array(cut(text), dtype) for text in array.ravel()]
    if array.ndim == 0:
        return hosted(found[0])
    values = hosted(np.concatenate([np.zeros(0, dtype), *found]))
    rows = RaggedTensor.from_row_lengths(values, np.array([len(each) for each in found], np.int64))
    for size in array.shape[:0:-1]:
        rows = RaggedTensor.from_row_lengths(rows, np.full(len(rows) // size if size else 0, size, np.int64))
    return rows


def bytes_split(input: Any, name: str | None = None) -> Any:
    """Return the single bytes of a text (`tf.strings.bytes_split`), or a ragged tensor for several texts."""
    return _parts(input, lambda text: [text[i : i + 1] for i in range(len(text))], object)


@operation
def unicode_split(input: Any, input_encoding: str, errors: str = "replace", replacement_char: int = 65533) -> Any:
    """Return the single characters of a text (`tf.strings.unicode_split`), or a ragged tensor for several texts."""
    read = _decoder(input_encoding, errors, replacement_char)
    return _parts(input, lambda text: [letter.encode() for letter in read(text)], object)


@operation
def unicode_decode(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
) -> Any:
    """Return the code points of a text (`tf.strings.unicode_decode`), or a ragged tensor for several texts."""
    read = _decoder(input_encoding, errors, replacement_char)

    def cut(text: bytes) -> list[int]:
        points = [ord(letter) for letter in read(text)]
        return [replacement_char if replace_control_characters and point < 32 else point for point in points]

    return _parts(input, cut, np.int32)


def _decoder(encoding: str, errors: str, replacement: int) -> Callable[[bytes], str]:
    return lambda text: bytes(text).decode(encoding, errors).replace("\ufffd", chr(replacement))
