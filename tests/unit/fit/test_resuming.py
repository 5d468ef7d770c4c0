"""What `fit` asks of the callback that lets it begin in the middle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stratagem.core import log
from stratagem.core.errors import UsageError
from stratagem.fit import resuming
from stratagem.fit.resuming import current_session, put_resumer_last, resumer_among, running


class Resumer:
    others: Any = None

    def begin_session(self, session: Any, callbacks: Any) -> None: ...

    def end_session(self) -> None: ...

    def set_others(self, callbacks: Any) -> None:
        self.others = callbacks


def test_one_callback_may_resume() -> None:
    one = Resumer()
    assert resumer_among(None) is None
    assert resumer_among([object(), one]) is one
    assert resumer_among(one) is one
    with pytest.raises(UsageError, match="given 2 BackupAndRestore callbacks"):
        resumer_among([one, Resumer()])


def test_it_comes_last_and_hears_of_the_others() -> None:
    one, first, second = Resumer(), object(), object()
    callbacks = SimpleNamespace(callbacks=[first, one, second])
    put_resumer_last(callbacks)
    assert callbacks.callbacks == [first, second, one]
    assert one.others == [first, second]


def test_of_two_the_second_hears_of_the_first_too() -> None:
    """Where workers may change: what keeps backups, and what knows the state of all for a new worker."""
    keeps, place, other, last = Resumer(), Resumer(), object(), object()
    callbacks = SimpleNamespace(callbacks=[keeps, other, place, last])
    put_resumer_last(callbacks)
    assert callbacks.callbacks == [other, last, keeps, place]
    assert keeps.others == [other, last]
    assert place.others == [other, last, keeps]


def test_sessions_are_nested() -> None:
    outer, inner = (SimpleNamespace() for _ in range(2))
    assert current_session() is None
    with running(outer):  # pyright: ignore[reportArgumentType]
        with running(inner):  # pyright: ignore[reportArgumentType]
            assert current_session() is inner
        assert current_session() is outer
    assert current_session() is None


def test_steps_that_were_done_before_are_counted_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Adapter:
        taken = (2, 7)
        num_batches = 4

        def take_skipped(self) -> tuple[int, int]:
            taken, self.taken = self.taken, (0, 0)
            return taken

    monkeypatch.setattr(resuming, "ShareAdapter", Adapter)
    epoch = SimpleNamespace(data_adapter=Adapter(), _steps_seen=0, _num_batches=9, steps_per_epoch=None)
    steps = resuming.skipping_steps(lambda _: iter([(0, 0, "a"), (1, 1, "b"), (2, 2, "c"), (3, 3, "d")]))
    assert list(steps(epoch)) == [(2, 2, "c"), (3, 3, "d")]
    assert epoch._steps_seen == 7
    assert epoch._num_batches == 4  # that of this pass
    assert len(list(steps(epoch))) == 4  # the next epoch begins at its beginning
    assert epoch._steps_seen == 7


@pytest.mark.parametrize(
    ("num_batches", "steps_per_epoch", "is_said"), [(None, None, True), (None, 20_000, False), (20_000, None, False)]
)
def test_an_input_without_an_end_is_said_once(
    num_batches: int | None,
    steps_per_epoch: int | None,
    is_said: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    adapter = SimpleNamespace(num_batches=num_batches, take_skipped=lambda: (0, 0))
    monkeypatch.setattr(resuming, "ShareAdapter", SimpleNamespace)
    monkeypatch.setattr(log, "_said", set())
    given = [(step, step, "batch") for step in range(resuming.MANY_STEPS + 5)]
    steps = resuming.skipping_steps(lambda _: iter(given))
    assert list(steps(SimpleNamespace(data_adapter=adapter, steps_per_epoch=steps_per_epoch))) == given
    said = "stratagem: An epoch has had 10000 steps, and its input does not say where it ends."
    assert capsys.readouterr().err.count(said) == is_said
