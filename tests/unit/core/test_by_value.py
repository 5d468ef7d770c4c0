"""Tests of functions that travel by value."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable

from stratagem.core.by_value import dumps


def test_a_function_and_one_inside_it_keep_their_file_and_lines() -> None:
    def outer() -> Callable[[], int]:
        def inner() -> int:
            return 3

        return inner

    there = pickle.loads(dumps(outer))
    assert there is not outer
    assert there()() == 3
    for sent, received in ((outer, there), (outer(), there())):
        assert received.__code__.co_filename == sent.__code__.co_filename == __file__
        assert received.__code__.co_firstlineno == sent.__code__.co_firstlineno
    assert inspect.getsource(there) == inspect.getsource(outer)


def test_a_class_keeps_the_file_of_its_methods() -> None:
    class Doubled:
        def of(self, value: int) -> int:
            return 2 * value

    there = pickle.loads(dumps(Doubled()))
    assert there.of(4) == 8
    assert type(there).of.__code__.co_filename == __file__
