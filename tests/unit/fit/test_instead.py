"""Callbacks in the place of the program's own, while a step of it is run alone."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import pytest

from stratagem.fit.instead import give_others, giving

STOP, LOG = keras.callbacks.EarlyStopping(), keras.callbacks.CSVLogger("log.csv")


def test_nothing_changes_where_nobody_chooses() -> None:
    arguments: dict[str, Any] = {"callbacks": STOP, "verbose": 1}
    assert not give_others(arguments)
    assert arguments == {"callbacks": STOP, "verbose": 1}


@pytest.mark.parametrize("given", [[STOP, LOG], keras.callbacks.CallbackList([STOP, LOG])])
def test_the_chosen_ones_take_the_place_of_those_that_were_given(given: Any) -> None:
    seen: list[Any] = []

    def choose(callbacks: Any) -> tuple[Any, ...]:
        seen.extend(callbacks)
        return (LOG,)

    arguments: dict[str, Any] = {"callbacks": given, "verbose": 1}
    with giving(choose):
        assert give_others(arguments)
    assert arguments == {"callbacks": [LOG], "verbose": 1}
    assert seen == [STOP, LOG]


def test_one_within_another_chooses_until_it_ends() -> None:
    def chosen() -> list[Any]:
        arguments: dict[str, Any] = {"callbacks": None}
        return arguments["callbacks"] if give_others(arguments) else []

    with giving(lambda _: [STOP]):
        with contextlib.suppress(InterruptedError), giving(lambda _: [LOG]):
            assert chosen() == [LOG]
            raise InterruptedError
        assert chosen() == [STOP]
    assert chosen() == []
