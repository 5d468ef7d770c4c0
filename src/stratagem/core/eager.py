"""Arrays that answer `.numpy()`: elements of datasets and components of replicas, which programs look at.

Text is bytes here, as in TensorFlow, and compares with a str as with its bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np


def _is_text(value: Any) -> bool:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, str | bytes) or (isinstance(value, np.ndarray) and value.dtype.kind in "OSU")


def _encoded(value: Any) -> np.ndarray:
    """Return text as a plain array of plain bytes, without axes for one text."""
    array = np.asarray(np.array(value, object))
    made = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        text = array[place]
        made[place] = text.encode() if isinstance(text, str) else bytes(text) if isinstance(text, EagerText) else text
    return made


def _compared(texts: Any, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
    """Return where texts are (not) equal; one False where shapes do not fit, as for tensors."""
    if not _is_text(other):
        return NotImplemented
    try:
        found = compare(_encoded(texts), _encoded(other))
    except ValueError:
        found = compare is operator.ne
    return np.asarray(found, bool).view(EagerArray)


def _joined(first: Any, second: Any) -> Any:
    if not (_is_text(first) and _is_text(second)):
        return NotImplemented
    made = np.asarray(_encoded(first) + _encoded(second), object)
    return EagerText(made.item()) if made.ndim == 0 else made.view(EagerArray)


def _ordered(name: str) -> Callable[[Any, Any], Any]:
    """Return a comparison of arrays, which text refuses."""

    def compare(array: np.ndarray, other: Any) -> Any:
        if array.dtype.kind == "O":
            raise TypeError("Text has no order among tensors; compare the bytes of .numpy().")
        return getattr(np.ndarray, name)(array, other)

    return compare


class EagerText(np.bytes_):
    """One text: bytes with `.numpy()`, equal to a str of the same characters.

    NumPy makes no arrays of other subclasses of `bytes`. Its own class leaves out zeros at the end, so what shows or
    sends them is done here.

    Example:
        >>> text = EagerText(b"eel")
        >>> bool(text == "eel"), text.numpy(), text + "s"
        (True, b'eel', b'eels')
    """

    __slots__ = ()

    def numpy(self) -> bytes:
        """Return the plain bytes (`tf.Tensor.numpy`)."""
        return bytes(self)

    def item(self, *args: Any) -> bytes:
        """Return the plain bytes."""
        return bytes(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return EagerText, (bytes(self),)

    def __repr__(self) -> str:
        return repr(bytes(self))

    def __str__(self) -> str:
        return str(bytes(self))

    def __eq__(self, other: object) -> Any:
        return _compared(self, other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return _compared(self, other, operator.ne)

    __hash__ = bytes.__hash__

    def __add__(self, other: Any) -> Any:
        return _joined(self, other)

    def __radd__(self, other: Any) -> Any:
        return _joined(other, self)


def _named(plain: type) -> type:
    """Return the class of numbers of this class that answer; it is found by its name, to be pickled."""

    def numpy(self: Any) -> Any:
        """Return the plain number (`tf.Tensor.numpy`)."""
        return np.ndarray((), plain.__name__, self.tobytes())[()]

    made = type(f"Eager_{plain.__name__}", (plain,), {"__module__": __name__, "numpy": numpy})
    globals()[made.__name__] = made
    return made


_NUMBERS: Final[dict[type, Callable[[Any], Any]]] = {
    plain: _named(plain)
    for plain in (
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64),
    )
}
"""For each class of NumPy's numbers the one that answers; NumPy lets bool have none."""


def _element(found: Any) -> Any:
    """Return an element of an array as one that answers; a part of it as it is."""
    if type(found) is bytes:
        return EagerText(found)
    answers = _NUMBERS.get(type(found))
    return found if answers is None else answers(found)


class EagerArray(np.ndarray):
    """A NumPy array with `.numpy()`, for programs written for eager tensors.

    Results of arithmetic are such arrays too; elements are numbers of NumPy that answer. They lie in the memory of the
    host. Training code never meets this class. Elements of an array of text are `EagerText`, and comparisons and
    sums take a str for its bytes.
    """

    stands_for_tensors: bool = False
    """Whether a program is written for tensors, so that functions of datasets get arrays of numbers as these too."""

    _copy_of: str | None = None

    @classmethod
    def of_device(cls, array: np.ndarray, device: str) -> EagerArray:
        """Return an array that says that it lies on a device, of which it is a copy.

        Args:
            array: What was copied.
            device: The device's name.
        """
        made = np.asarray(array).view(cls)
        made._copy_of = device
        return made

    @property
    def device(self) -> Any:
        """The device that it lies on (`tf.Tensor.device`): the memory of the host, or where a replica computed it."""
        return self._copy_of or "/job:localhost/replica:0/task:0/device:CPU:0"

    @property
    def backing_device(self) -> str:
        """The same (`tf.Tensor.backing_device`)."""
        return self.device

    def numpy(self) -> Any:
        """Return the plain array, or the NumPy scalar when there is no axis (`tf.Tensor.numpy`)."""
        value = self.view(np.ndarray)[()]
        return bytes(value) if isinstance(value, bytes) else value

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(EagerArray)

    def __format__(self, form: str) -> str:
        return format(self.numpy(), form)

    def __getitem__(self, key: Any) -> Any:
        return _element(super().__getitem__(key))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self))) if self.ndim == 1 else super().__iter__()

    def __eq__(self, other: object) -> Any:
        return _compared(self, other, operator.eq) if self.dtype.kind in "OSU" else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return _compared(self, other, operator.ne) if self.dtype.kind in "OSU" else super().__ne__(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    __lt__, __le__, __gt__, __ge__ = map(_ordered, ("__lt__", "__le__", "__gt__", "__ge__"))

    def __add__(self, other: Any) -> Any:
        return _joined(self, other) if self.dtype.kind == "O" else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return _joined(other, self) if self.dtype.kind == "O" else super().__radd__(other)


class EagerCopy(EagerArray):
    """Copy of a variable that a replica holds. A program may read it as it reads a variable.

    Example:
        >>> EagerCopy.of_device(np.ones(2), "CPU:1").read_value().tolist()
        [1.0, 1.0]
    """

    def read_value(self) -> EagerArray:
        """Return the value (`tf.Variable.read_value`)."""
        return EagerArray.of_device(self, self.device)


def answering(value: Any) -> Any:
    """Return text and arrays of text as these; all else as it is. Tuples and dicts stay what they are.

    Where a program is written for tensors, arrays of numbers are these too: it may ask `x.set_shape(...)` of them.
    """
    if type(value) is bytes or type(value) is np.bytes_:
        return EagerText(value)
    if type(value) is np.ndarray:
        return value.view(EagerArray) if EagerArray.stands_for_tensors or value.dtype.kind in "OSU" else value
    if type(value) is tuple:
        return tuple(answering(part) for part in value)
    if type(value) is dict:
        return {name: answering(part) for name, part in value.items()}
    return value
