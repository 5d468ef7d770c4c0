"""Steps whose elements depend on those before them: one class each. Every worker reads all their elements, in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from stratagem.core.errors import InputError
from stratagem.core.log import logger
from stratagem.data.blocks import Block, hold
from stratagem.data.nodes import (
    UNKNOWN_CARDINALITY,
    FunctionStream,
    Key,
    Lasting,
    Node,
    Seeded,
    Stream,
    elements_of,
    stream_of,
)
from stratagem.data.specs import TensorSpec, spec_of
from stratagem.data.structure import Tree, as_array, as_arrays, flatten, map_leaves
from stratagem.data.transforms import call, name_of, verdict

_MOST_FAILURES: Final = 1000
"""Failures in a row before an element comes, after which none is expected: a file that is missing fails for ever."""


class OneByOne(Node):
    """Elements that are made one after another from those of the input."""

    in_memory = False

    @abstractmethod
    def made(self, elements: Iterator[Tree], key: Key) -> Iterator[Tree]:
        """Return the elements of a pass, given those of the input."""

    def stream(self, key: Key) -> Stream:
        return stream_of(Lasting(self.made(self.read(self.inputs[0].stream(key)), key)))

    def read(self, stream: Stream) -> Iterator[Tree]:
        """Yield the elements of the input."""
        return elements_of(stream)

    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


class Scan(OneByOne):
    """Elements that a function makes of a state and of an element; it returns the next state too.

    Args:
        inner: The elements.
        initial_state: The state before the first, a tree of arrays.
        function: Takes a state and an element; returns the next state and the new element.
    """

    def __init__(self, inner: Node, initial_state: Tree, function: Callable[[Any, Any], Any]) -> None:
        super().__init__([inner])
        self._initial = as_arrays(initial_state)
        self._function = function

    def made(self, elements: Iterator[Tree], key: Key) -> Iterator[Tree]:
        state = self._initial

        def next_element(element: Tree) -> Tree:
            nonlocal state
            state, made = self._after(state, element)
            return made

        return map(next_element, elements)  # no generator, which an error would end: as in TensorFlow the state stays

    def _after(self, state: Tree, element: Tree) -> tuple[Tree, Tree]:
        # Copies: the function may change a state in place, and the first one is needed again in the next pass.
        result = call(self._function, (map_leaves(lambda leaf: np.array(leaf)[()], state), element))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise InputError(
                f"The function {name_of(self._function)} given to scan returned {result!r}.",
                "Return two values: the next state, and the new element.",
            )
        (before, structure), (after, other) = flatten(state), flatten(as_arrays(result[0]))
        after = [np.asarray(leaf) for leaf in after]
        if structure != other or [leaf.dtype for leaf in after] != [np.asarray(leaf).dtype for leaf in before]:
            raise InputError(
                f"The function {name_of(self._function)} given to scan was called with a state of "
                f"{_dtypes(before)}, and returned one of {_dtypes(after)}.",
                "The dtypes of the state must not change, as in TensorFlow. Convert it with astype, or correct "
                "initial_state.",
            )
        return structure.unflatten([leaf[()] for leaf in after]), as_arrays(result[1])

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()

    def _make_spec(self) -> Tree:
        for element in elements_of(self.inputs[0].stream((0,))):
            return spec_of(self._after(self._initial, element)[1])
        raise InputError("The dataset given to scan() is empty.", "Give scan a dataset with at least one element.")


def _dtypes(leaves: Sequence[Any]) -> str:
    return ", ".join(str(np.asarray(leaf).dtype) for leaf in leaves) or "nothing"


class TakeWhile(Node):
    """The elements before the first for which `predicate` is false."""

    in_memory = False

    def __init__(self, inner: Node, predicate: Callable[..., Any]) -> None:
        super().__init__([inner])
        self._predicate = predicate

    def stream(self, key: Key) -> Stream:
        inner, ended = self.inputs[0].stream(key), False

        def pull(rows: int) -> Block | None:
            nonlocal ended
            # One at a time: nothing behind the last element is read, and the predicate sees none of it.
            block = None if ended else inner.pull(1)
            if block is None:
                return None
            block = hold(block)
            ended = not verdict(self._predicate, block.elements()[0])
            return None if ended else block

        return FunctionStream(pull)

    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


class Unique(OneByOne):
    """The elements that did not come before in the pass."""

    def made(self, elements: Iterator[Tree], key: Key) -> Iterator[Tree]:
        seen: set[Any] = set()
        for element in elements:
            leaves, _ = flatten(element)
            array = np.asarray(leaves[0]) if len(leaves) == 1 else np.empty(0)
            if array.dtype.kind not in "SUO" and array.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
                raise InputError(
                    f"unique() met an element of {len(leaves)} components, the first of dtype {_dtypes(leaves[:1])}.",
                    "It compares elements of one component: int32, int64 or text. Choose it with map, or convert it.",
                )
            found = (array.shape, tuple(array.ravel().tolist()))
            if found not in seen:
                seen.add(found)
                yield element


class IgnoreErrors(OneByOne):
    """The elements that can be read.

    Args:
        inner: The elements.
        log_warning: Whether the log names each error.
    """

    def __init__(self, inner: Node, log_warning: bool) -> None:
        super().__init__([inner])
        self._log_warning = log_warning

    def read(self, stream: Stream) -> Iterator[Tree]:
        failed = 0
        while True:
            block = None
            try:
                if (block := stream.pull(1)) is None:
                    return
                (element,) = block.elements()
            except Exception as error:
                # An element that is there and cannot be read is passed over, however many there are.
                failed = failed + 1 if block is None else 0
                if failed == _MOST_FAILURES:
                    raise InputError(
                        f"ignore_errors() met {failed} errors in a row without an element; the last was "
                        f"{type(error).__name__}: {error}",
                        "The dataset would continue forever without another element.",
                        "Fix the cause of this error.",
                    ) from error
                if self._log_warning:
                    logger.warning("ignore_errors() left out an element: %s: %s", type(error).__name__, error)
                continue
            failed = 0
            yield element

    def made(self, elements: Iterator[Tree], key: Key) -> Iterator[Tree]:
        return elements


class Resample(OneByOne, Seeded):
    """Pairs of a class and an element, of which some are left out so that the classes come as often as wanted.

    Args:
        inner: The elements.
        class_of: Returns the class of an element, a whole number.
        target: How often each class is to come.
        initial: How often it comes in the data; None estimates it from what was read so far.
        seed: See `Seeded`.
    """

    def __init__(
        self,
        inner: Node,
        class_of: Callable[..., Any],
        target: np.ndarray,
        initial: np.ndarray | None,
        seed: int | None,
    ) -> None:
        Seeded.__init__(self, [inner], seed)
        self._class_of = class_of
        self._target = target
        self._initial = initial

    def made(self, elements: Iterator[Tree], key: Key) -> Iterator[Tree]:
        bits = self.bits(key)
        seen = np.full(len(self._target), 10.0)  # TensorFlow begins its estimate so
        for element in elements:
            number = self._number(element)
            seen[number] += 1
            share = seen / seen.sum() if self._initial is None else self._initial
            ratio = np.divide(self._target, share, out=np.zeros_like(share), where=share > 0)
            drawn = (int(bits.random_raw()) >> 11) * 2.0**-53
            if drawn * ratio.max() < ratio[number]:
                yield np.int32(number), element

    def _number(self, element: Tree) -> int:
        number = np.asarray(call(self._class_of, element))
        if number.shape != () or number.dtype.kind not in "iu" or not 0 <= number < len(self._target):
            raise InputError(
                f"The function {name_of(self._class_of)} given to rejection_resample returned {number!r}.",
                f"Return one whole number from 0 to {len(self._target) - 1}, the number of a class in target_dist.",
            )
        return int(number)

    def _make_spec(self) -> Tree:
        return TensorSpec((), np.int32), self.inputs[0].spec


class Counted(Node):
    """The elements, which must be as many as promised.

    Args:
        inner: The elements.
        count: How many there are; -1 for no end.
    """

    def __init__(self, inner: Node, count: int) -> None:
        super().__init__([inner])
        self._count = count

    def stream(self, key: Key) -> Stream:
        inner, found = self.inputs[0].stream(key), 0

        def pull(rows: int) -> Block | None:
            nonlocal found
            block = inner.pull(rows)
            found += 0 if block is None else len(block)
            if found > self._count >= 0 or (block is None and found != self._count):
                more = "more" if block else f"{found}"
                raise InputError(
                    f"assert_cardinality({self._count}) was called, but a pass over the dataset has {more} elements.",
                    "Epochs do not have the length that the program expects.",
                    "Correct the number, or leave the line out.",
                )
            return block

        return FunctionStream(pull)

    def cardinality(self) -> int:
        return self._count


def shares(name: str, values: Any) -> np.ndarray:
    """Return how often each class comes, as fractions of 1.

    Raises:
        InputError: It is no list of numbers of at least 0 that sum to 1.
    """
    found = np.asarray(as_array(values), np.float64)
    if found.ndim != 1 or not len(found) or not (found >= 0).all() or not np.isclose(found.sum(), 1, atol=1e-3):
        raise InputError(
            f"{name} is {values!r}.", "Write a list with the share of each class. The shares must sum to 1."
        )
    return found
