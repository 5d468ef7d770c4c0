from __future__ import annotations

import pytest
from tests.clock import HandClock

from stratagem.core.progress import Mark, Phase, Progress, as_saving
from stratagem.core.progress import progress as process_progress
from stratagem.core.spent import Spent


def test_phases_nest_and_steps_count_when_they_end_well() -> None:
    clock = HandClock(100.0)
    progress = Progress(clock)
    with progress.during(Phase.COMPILING, steps=1):
        clock.time = 150.0
    assert (progress.mark, progress.longest_step) == (Mark(Phase.OUTSIDE, 1, 150.0), 0.0)
    with progress.during(Phase.STEP, steps=3):
        with progress.during(Phase.MEETING):
            assert progress.mark == Mark(Phase.MEETING, 1, 150.0)
        assert progress.mark.phase is Phase.STEP
        clock.time = 157.0
    assert (progress.mark, progress.longest_step) == (Mark(Phase.OUTSIDE, 4, 157.0), 7.0)
    with pytest.raises(ValueError, match="boom"), progress.during(Phase.STEP, steps=1):
        raise ValueError("boom")
    assert progress.mark == Mark(Phase.OUTSIDE, 4, 157.0)


def test_a_mark_says_where_and_in_which_method() -> None:
    progress = Progress(HandClock())
    with progress.calling("fit"), progress.during(Phase.STEP, 1, "train_step", is_joint=True):
        with progress.calling("evaluate"), progress.during(Phase.MEETING, place="agreement 'a'", is_joint=True):
            assert progress.mark == Mark(Phase.MEETING, 0, 0.0, 2, "agreement 'a'", True, "evaluate")
        assert progress.mark == Mark(Phase.STEP, 0, 0.0, 3, "train_step", True, "fit")
    assert progress.mark == Mark(Phase.OUTSIDE, 1, 0.0, 3)


def test_one_long_step_hardly_changes_the_usual_one() -> None:
    clock = HandClock()
    progress = Progress(clock)
    for seconds in [2.0] * 5 + [60.0]:
        with progress.during(Phase.STEP):
            clock.time += seconds
    assert (progress.longest_step, progress.usual_step) == (60.0, pytest.approx(2 + 0.1 * 58))


def test_seconds_are_added_up_by_phase() -> None:
    clock = HandClock(10.0)
    progress = Progress(clock)
    clock.time += 2.0  # imports
    with progress.during(Phase.COMPILING, steps=1):
        clock.time += 3.0
        progress.exchanged(1.0, 0.5)  # others may compile longer
    with progress.during(Phase.INPUT) as reading:
        clock.time += 0.5
        with progress.during(Phase.COPYING):
            clock.time += 0.25
    assert reading.seconds == 0.75
    with progress.during(Phase.STEP, steps=1):
        clock.time += 1.0
        progress.exchanged(0.5, 0.375)
        with progress.during(Phase.MEETING):
            clock.time += 0.125
    clock.time += 4.0
    with progress.during(Phase.SAVING):
        clock.time += 5.0
        spent = progress.spent
    assert spent == Spent(2.0, 3.0, 0.5, 0.25, 0.5, 0.125, 0.5, 4.0, 5.0)
    assert spent.total == clock.time - 10.0


def test_what_saves_counts_as_saving() -> None:
    before = process_progress.spent.saving

    @as_saving
    def write(path: str, *, text: str) -> str:
        assert process_progress.mark.phase is Phase.SAVING
        return path + text

    assert write("a", text="b") == "ab"
    assert process_progress.spent.saving > before
