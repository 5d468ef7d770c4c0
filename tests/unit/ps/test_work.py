"""Scheduled work without a network: who waits, what they are told, which shared values are held."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from stratagem.core.counters import CountersFile
from stratagem.core.errors import UnavailableError
from stratagem.core.progress import Progress
from stratagem.ps import work as module
from stratagem.ps.dispatch import Broken, Commit, Dispatch, Failed, Finished, Send, WorkerUp
from stratagem.ps.shared import Shared
from stratagem.ps.synchronous.rounds import Rounds
from stratagem.ps.work import Job, Work


class Noted(Work):
    """Work whose instructions are only noted."""

    def __init__(self, dispatch: Dispatch | None = None) -> None:
        super().__init__(dispatch or Dispatch())
        self.told: list[Send | Commit] = []
        self._handle(WorkerUp(0))

    def _carry_out(self, instruction: Send | Commit) -> None:
        self.told.append(instruction)

    def happen(self, *events: Any) -> None:
        with self._changed:
            for event in events:
                self._handle(event)


def job(needs: frozenset[Shared] = frozenset()) -> Job:
    return Job(b"", needs)


def test_work_is_done_when_all_has_run() -> None:
    work = Noted()
    for _ in range(2):
        work.schedule(job())
    assert work.told == [Send(0, 0)]
    assert not work.done()
    work.happen(Finished(0, 0), Finished(0, 1))
    work.join()
    counts = work.counts()
    assert (counts["scheduled"], counts["finished"], counts["queued"], counts["workers up"]) == (2, 2, 0, 1)
    assert counts["rounds"] == 0


def test_others_see_how_many_closures_have_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "counters"
    monkeypatch.setattr(module, "progress", Progress(file=CountersFile(path)))
    work = Noted()
    found = []
    for _ in range(3):
        work.schedule(job())
        found.append(CountersFile.read(path).pending)
    for closure in range(3):
        del work._jobs[closure]  # whoever takes in the answer has ended it
        work.happen(Finished(0, closure))
        found.append(CountersFile.read(path).pending)
    assert found == [1, 2, 3, 2, 1, 0]


def test_an_error_aborts_what_waits_and_is_raised_once() -> None:
    work, waiting = Noted(), job()
    work.schedule(job())
    work.schedule(waiting)
    work.happen(Failed(0, 0, ValueError("of the program")))
    assert waiting.result.cancelled()
    assert list(work._jobs) == [0]  # whoever takes in the answer has ended it
    with pytest.raises(ValueError, match="of the program"):
        work.schedule(job())
    work.join()
    assert not work.has_told_of_loss


def test_a_loss_stays_and_is_noted_when_told() -> None:
    work = Noted()
    work.raise_if_broken()
    work.happen(Broken(UnavailableError("ps 0 is lost.")))
    assert not work.has_told_of_loss
    for _ in range(2):
        with pytest.raises(UnavailableError, match="ps 0"):
            work.join()
    with pytest.raises(UnavailableError, match="ps 0"):
        work.raise_if_broken()
    assert work.has_told_of_loss


def test_nothing_is_read_while_servers_apply_a_round() -> None:
    work = Noted(Dispatch(rounds=Rounds(size=1, needed=1)))
    work.schedule(job())
    assert work.wait_for(lambda: True, 0.0)
    work.happen(Finished(0, 0, "a"))
    assert work.told[-1] == Commit(1, ("a",))
    assert not work.wait_for(lambda: True, 0.0)


def test_who_waits_ends_a_round_that_gets_no_more() -> None:
    work = Noted(Dispatch(rounds=Rounds(size=2, needed=2)))
    work.schedule(job())
    work.happen(Finished(0, 0, "a"))
    assert work.told == [Send(0, 0)]
    assert not work.done()
    assert work.told[-1] == Commit(1, ("a",))


@pytest.mark.thorough
def test_shared_values_live_as_long_as_something_needs_them() -> None:
    work = Noted()
    model = work.share(b"model", to_call=False)
    dataset = work.share(b"dataset", frozenset([model]), to_call=True)
    work.schedule(job(needs=frozenset([dataset])))
    number = model.number
    del model, dataset
    gc.collect()
    assert number in work._shared
    assert len(work._shared) == 2
    work._jobs.clear()
    gc.collect()
    assert len(work._shared) == 0
