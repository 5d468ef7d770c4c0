"""Timers of hooks."""

from __future__ import annotations

import pytest
from tests.clock import HandClock

from stratagem.core.errors import InputError
from stratagem.estimator import (
    SecondOrStepTimer,
)


def test_timer() -> None:
    clock = HandClock()
    timer = SecondOrStepTimer(every_secs=10, clock=clock)
    assert timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(1) == (None, None)
    clock.time = 9.0
    assert not timer.should_trigger_for_step(5)
    clock.time = 10.0
    assert timer.should_trigger_for_step(6)
    assert not timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(6) == (10.0, 5)
    with pytest.raises(InputError, match="either seconds or steps"):
        SecondOrStepTimer()
