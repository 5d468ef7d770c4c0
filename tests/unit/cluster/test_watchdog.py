from __future__ import annotations

import pytest

from stratagem.cluster import watchdog
from stratagem.cluster.hello import Peer
from stratagem.cluster.spec import Task
from stratagem.cluster.watchdog import COMPILING_SECONDS, PATIENCE_SECONDS, Hang, Standing, find_hang, patience
from stratagem.core.progress import Phase

SECONDS = 30.0


def group(*tasks: tuple[Phase, int, float]) -> list[Standing]:
    """Return the standings of workers 0, 1, ... from (phase, steps, seconds in it)."""
    return [
        Standing(Peer(Task("worker", index), "host", 100 + index), phase, steps, seconds)
        for index, (phase, steps, seconds) in enumerate(tasks)
    ]


@pytest.mark.parametrize(
    ("tasks", "stuck"),
    [
        # All in one step: a collective that does not end.
        ([(Phase.STEP, 7, 31), (Phase.STEP, 7, 32)], (0, 1)),
        ([(Phase.STEP, 7, 31), (Phase.STEP, 7, 29)], None),
        # One is alive and stuck between steps, or still in the step before.
        ([(Phase.STEP, 7, 31), (Phase.OUTSIDE, 7, 31), (Phase.STEP, 7, 31)], (1,)),
        ([(Phase.STEP, 7, 31), (Phase.STEP, 6, 33)], (1,)),
        # It may yet come: it came out of its last step only now.
        ([(Phase.STEP, 7, 31), (Phase.OUTSIDE, 7, 5)], None),
        # A slow input pipeline: each batch is a sign of life. One that stands still holds everybody.
        ([(Phase.STEP, 7, 31), (Phase.INPUT, 7, 29)], None),
        ([(Phase.STEP, 7, 31), (Phase.INPUT, 7, 31)], (1,)),
        ([(Phase.INPUT, 0, 31), (Phase.INPUT, 0, 2)], (0,)),
        # A slow compilation, of everybody or of one for whom the others wait.
        ([(Phase.COMPILING, 0, 500), (Phase.COMPILING, 0, 500)], None),
        ([(Phase.STEP, 7, 500), (Phase.COMPILING, 7, 500)], None),
        ([(Phase.STEP, 7, COMPILING_SECONDS + 1), (Phase.COMPILING, 7, COMPILING_SECONDS + 1)], (0, 1)),
        # In the first step one waits inside what it compiled, for one that does not come.
        ([(Phase.COMPILING, 0, 31), (Phase.OUTSIDE, 0, 31)], (1,)),
        # Nobody waits for anybody: each may do what it likes.
        ([(Phase.OUTSIDE, 7, 5000), (Phase.OUTSIDE, 7, 5000)], None),
        # Meetings have deadlines of their own.
        ([(Phase.MEETING, 7, 50), (Phase.OUTSIDE, 7, 50)], None),
        # A task that has ended will not come; that is sure at once.
        ([(Phase.STEP, 7, 3), (Phase.ENDED, 7, 3)], (1,)),
        ([(Phase.MEETING, 7, 3), (Phase.ENDED, 7, 3)], (1,)),
        ([(Phase.STEP, 7, 1), (Phase.ENDED, 7, 1)], None),
        # It has ended after the step that the other one is still in.
        ([(Phase.STEP, 6, 3), (Phase.ENDED, 7, 3)], None),
        ([(Phase.OUTSIDE, 7, 5000), (Phase.ENDED, 7, 5000)], None),
    ],
)
def test_who_holds_up_the_group(tasks: list[tuple[Phase, int, float]], stuck: tuple[int, ...] | None) -> None:
    hang = find_hang(group(*tasks), SECONDS)
    assert (None if hang is None else hang.stuck) == stuck
    assert hang is None or hang.has_ended == any(tasks[i][0] is Phase.ENDED for i in hang.stuck)


def test_a_silent_task_is_named_whatever_it_said_last() -> None:
    peers = [Peer(Task("worker", index), "host", 100 + index) for index in (0, 1)]
    standings = [
        Standing(peers[0], Phase.STEP, steps=7, seconds=10.0),
        Standing(peers[1], Phase.OUTSIDE, steps=7, seconds=31.0, silence=31.0),
    ]
    assert find_hang(standings, SECONDS) == Hang(
        (1,),
        "No progress for 30 s because of worker 1:\n"
        "    worker 0 (host host, pid 100) has been in a step for 10 s (step 8)\n"
        "    worker 1 (host host, pid 101) has been silent for 31 s (last heard after step 7)",
    )
    assert find_hang(standings, 31.0) is None


def test_a_large_group_is_not_listed_whole() -> None:
    hang = find_hang(group(*[(Phase.STEP, 7, 31.0)] * 1000), SECONDS)
    assert hang is not None
    assert len(hang.stuck) == 1000
    assert hang.found.count("\n") == 17
    assert hang.found.endswith("\n    and 984 more")


def test_patience_follows_the_steps_of_the_program_unless_the_user_says() -> None:
    peer = Peer(Task("worker", 0), "host", 1)
    assert patience(None, []) == PATIENCE_SECONDS == 600
    assert patience(None, [Standing(peer, longest_step=45.0), Standing(peer, longest_step=2.0)]) == 900
    assert patience(5.0, [Standing(peer, longest_step=45.0)]) == 5
    assert patience(0.1, []) == 3  # a task speaks every second


@pytest.mark.parametrize("phase", [Phase.STEP, Phase.MEETING])
def test_a_thousand_tasks_are_not_each_set_beside_each(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Standing] = []
    is_behind = watchdog._is_behind
    monkeypatch.setattr(watchdog, "_is_behind", lambda task, other: compared.append(task) or is_behind(task, other))
    late = group(*[(phase, 7, 1.0 + index / 100) for index in range(1023)], (Phase.ENDED, 7, 10.0))
    hang = find_hang(late, SECONDS)
    assert hang is not None
    assert hang.stuck == (1023,)
    assert len(compared) == 1024
