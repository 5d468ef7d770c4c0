"""Timers for what is done every so many steps or seconds."""

from __future__ import annotations

from stratagem.core.clock import Clock
from stratagem.core.errors import InputError
from stratagem.estimator.hooks.base import Session


class SecondOrStepTimer:
    """Tell when a number of steps or seconds has passed (`tf.estimator.SecondOrStepTimer`).

    Args:
        every_secs: Seconds between two triggers, or None.
        every_steps: Steps between two triggers, or None.
        clock: The source of time, for tests.

    Raises:
        InputError: Not exactly one of the two is given.

    Example:
        >>> timer = SecondOrStepTimer(every_steps=10)
        >>> timer.should_trigger_for_step(3), timer.update_last_triggered_step(3)
        (True, (None, None))
        >>> [step for step in range(4, 30) if timer.should_trigger_for_step(step)][0]
        13
    """

    def __init__(
        self, every_secs: float | None = None, every_steps: int | None = None, *, clock: Clock | None = None
    ) -> None:
        if (every_secs is None) == (every_steps is None):
            raise InputError(
                f"A hook was given {every_secs!r} seconds and {every_steps!r} steps.",
                "Give either seconds or steps, and not both.",
            )
        self.every_secs = every_secs
        self.every_steps = every_steps
        self._clock = clock or Clock()
        self.reset()

    def reset(self) -> None:
        """Reset the timer, so that the next step triggers it."""
        self._last_step: int | None = None
        self._last_time = 0.0

    def should_trigger_for_step(self, step: int) -> bool:
        """Return whether the timer triggers at this step."""
        if self._last_step is None:
            return True
        if self._last_step == step:
            return False
        if self.every_secs is not None:
            return self._clock.now() >= self._last_time + self.every_secs
        return step >= self._last_step + (self.every_steps or 0)

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that the timer was triggered at this step.

        Returns:
            (seconds, steps) since the last time; (None, None) the first time.
        """
        now = self._clock.now()
        passed = (None, None) if self._last_step is None else (now - self._last_time, step - self._last_step)
        self._last_step, self._last_time = step, now
        return passed

    def last_triggered_step(self) -> int | None:
        """Return the step of the last trigger; None before the first."""
        return self._last_step


class CommonTimer(SecondOrStepTimer):
    """Tells all workers alike whether something is due, although their clocks differ.

    What workers do together, such as saving, needs one answer. By steps all know it; by seconds the chief's clock
    counts. The chief is asked at most about once in a fiftieth of the interval, because asking costs about 1 ms.
    """

    _next = 0
    _asked: tuple[int, float] | None = None

    def is_due(self, session: Session) -> bool:
        """Whether it is due after this step."""
        strategy, step = session.program.strategy, session.global_step
        if strategy.worker_count == 1 or self.every_secs is None:
            return self.should_trigger_for_step(step)
        if step < self._next:
            return False
        told = strategy.from_chief("hook due", [self.should_trigger_for_step(step), self._steps(step)])
        due, self._next = bool(told[0]), step + int(told[1])
        return due

    def _steps(self, step: int) -> int:
        """Return after how many steps to ask again, by the pace since the last time."""
        now = self._clock.now()
        asked, self._asked = self._asked, (step, now)
        if asked is None or step == asked[0]:
            return 1
        pace = max((now - asked[1]) / (step - asked[0]), 1e-6)
        return max(1, int((self.every_secs or 0) / 50 / pace))
