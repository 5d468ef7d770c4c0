"""The line that shows a cluster with parameter servers, by an injected clock."""

from __future__ import annotations

from tests.clock import HandClock

from stratagem.strategy.progress_line import ProgressLine


def test_rates_are_those_of_the_last_second_or_longer() -> None:
    clock, asked, up = HandClock(100.0), [], [3]
    counts = {"finished": 10, "updates": 40, "staleness": 8}

    def count() -> dict[str, int]:
        asked.append(clock.time)
        return dict(counts)

    sight = ProgressLine(lambda: up[0], 4, count, clock)
    assert sight.line() == "3/4 workers"
    counts.update({"finished": 60, "updates": 240, "staleness": 308})
    clock.time += 0.5
    up[0] = 2  # whether a worker is there is told at once
    assert sight.line() == "2/4 workers"
    up[0] = 3
    clock.time += 2.0
    assert sight.line() == "3/4 workers, 20.0 steps/s, staleness 1.5"
    up[0] = 4
    clock.time += 1.0
    assert sight.line() == "4/4 workers"  # nothing was done
    assert asked == [100.0, 102.5, 103.5]
