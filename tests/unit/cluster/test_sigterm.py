"""SIGTERM: who handles it, and who did before."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from stratagem.cluster.sigterm import give_sigterm_back, is_taken, take_sigterm

pytestmark = pytest.mark.usefixtures("default_sigterm")


def test_a_handler_gets_the_signal_until_it_is_given_back() -> None:
    heard: list[int] = []

    def hear(number: int, frame: Any) -> None:
        heard.append(number)

    assert not is_taken()
    before = take_sigterm(hear)
    assert is_taken()
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    give_sigterm_back(hear, before)
    assert not is_taken()


def test_a_handler_that_came_later_stays() -> None:
    def first(number: int, frame: Any) -> None: ...

    def second(number: int, frame: Any) -> None: ...

    before = take_sigterm(first)
    take_sigterm(second)
    give_sigterm_back(first, before)
    assert signal.getsignal(signal.SIGTERM) is second


def test_what_no_python_code_had_set_becomes_the_default() -> None:
    def hear(number: int, frame: Any) -> None: ...

    take_sigterm(hear)
    give_sigterm_back(hear, None)
    assert not is_taken()
