"""Objects that Python advances at each step, such as iterators over data, and who is told before one advances."""

from __future__ import annotations

from collections.abc import Callable


class AdvancedByPython:
    """Base of objects that Python advances at each step; a function that is given one runs uncompiled.

    Traced first, it could meet other uses of Python that no trace can do before it asks for an element:
    `for _ in tf.range(steps): step(next(iterator))`.
    """


_ask: list[Callable[[bool], bool]] = []


def ask_before_reading(question: Callable[[bool], bool]) -> None:
    """Have a function called before Python reads data for the program: its elements would be constants of a trace.

    Args:
        question: Given whether each pass over the data has the same elements, returns whether they become constants
            of the function that is being compiled, or raises what leaves it.
    """
    _ask.append(question)


def becomes_constant(repeats: bool) -> bool:
    """Return whether the elements that are about to be read become constants of a function that is being compiled.

    Args:
        repeats: Whether each pass over the data has the same elements.
    """
    return any(question(repeats) for question in _ask)
