"""A worker that is told to end leaves its run."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from stratagem.core.errors import InputError
from stratagem.elastic.leaving import GRACE_SECONDS, grace_seconds, leaves_at_sigterm

pytestmark = pytest.mark.usefixtures("default_sigterm")


def member() -> tuple[Any, list[float]]:
    left: list[float] = []
    return SimpleNamespace(leaves=left.append), left


def test_a_worker_leaves_at_the_first_signal_and_ends_at_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATAGEM_GRACE", "12")
    membership, left = member()
    with leaves_at_sigterm(membership):
        signal.raise_signal(signal.SIGTERM)
        assert left == [12.0]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_signal_does_what_it_did_when_training_is_over() -> None:
    membership, left = member()
    with pytest.raises(ValueError, match="a mistake"), leaves_at_sigterm(membership):
        raise ValueError("a mistake")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert left == []


def test_a_handler_of_the_program_stays() -> None:
    def own(number: int, frame: Any) -> None: ...

    signal.signal(signal.SIGTERM, own)
    with leaves_at_sigterm(member()[0]):
        assert signal.getsignal(signal.SIGTERM) is own
    assert signal.getsignal(signal.SIGTERM) is own


def test_nothing_is_handled_outside_the_main_thread() -> None:
    found: list[Any] = []

    def train() -> None:
        with leaves_at_sigterm(member()[0]):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(10.0)
    assert found == [signal.SIG_DFL]


def test_nobody_has_to_say_how_long_a_worker_lives() -> None:
    assert grace_seconds({}) == GRACE_SECONDS == 30.0
    assert grace_seconds({"STRATAGEM_GRACE": "0"}) == 0.0


@pytest.mark.parametrize("written", ["soon", "-1", "inf", "nan", ""])
def test_a_time_that_is_none_is_refused(written: str) -> None:
    with pytest.raises(InputError, match=f"STRATAGEM_GRACE is '{written}'"):
        grace_seconds({"STRATAGEM_GRACE": written})
