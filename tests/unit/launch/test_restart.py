from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stratagem.core import exits
from stratagem.core.errors import ClusterError
from stratagem.launch.restart import Generation, History, Next, Restarts
from stratagem.launch.supervise import Failure


def live(history: History, *ends: tuple[int, int], workers: int = 2) -> list[Next | None]:
    """Let generations end with (exit code, steps); return what followed each."""
    following: list[Next | None] = []
    for code, steps in ends:
        failure = Failure("worker 1", code, 5.0) if code else None
        number = len(history.generations) + 1
        following.append(history.next_after(Generation(number, workers, 5.0, steps, failure, failed_after_step=steps)))
        workers = following[-1].workers if following[-1] else workers
    return following


def test_without_restarts_the_first_failure_is_the_end() -> None:
    assert live(History(Restarts(), 2), (1, 10)) == [None]


def test_so_many_failures_are_followed_by_another_generation_at_once() -> None:
    ends = [(1, 10), (-signal.SIGKILL, 20), (exits.HUNG, 30)]
    assert live(History(Restarts(at_most=2), 2), *ends) == [Next(2, 0.0), Next(2, 0.0), None]
    assert live(History(Restarts(at_most=2), 2), (1, 10), (0, 20)) == [Next(2, 0.0), None]


def test_tasks_that_are_started_again_alone_count_too() -> None:
    history, failure = History(Restarts(at_most=3), 2), Failure("chief 0", 1, 5.0)
    assert history.restarts_left == 3
    assert history.next_after(Generation(1, 2, 5.0, 10, failure, num_replaced=1)) == Next(2, 0.0)
    assert history.restarts_left == 1
    assert history.next_after(Generation(2, 2, 5.0, 10, failure, num_replaced=1)) is None
    assert history.restarts_left == 0


@pytest.mark.parametrize(
    ("code", "goes_on"),
    [(1, False), (2, False), (7, False), (exits.PEER_LOST, True), (exits.HUNG, True), (-signal.SIGSEGV, True)],
)
def test_restart_on_retryable_leaves_out_errors_of_the_program(code: int, goes_on: bool) -> None:
    following = live(History(Restarts(at_most=1, on="retryable"), 2), (code, 10))
    assert (following != [None]) == goes_on
    assert live(History(Restarts(at_most=1, on="any"), 2), (code, 10)) != [None]


def test_preemptions_do_not_count_where_the_run_gets_on() -> None:
    preempted = [(exits.PREEMPTED, 10)] * 5
    assert None not in live(History(Restarts(at_most=1), 2), *preempted)
    assert live(History(Restarts(at_most=1), 2), *preempted, (1, 10), (1, 10))[-2:] == [Next(2, 0.0), None]
    assert live(History(Restarts(at_most=1), 2), *[(exits.PREEMPTED, 0)] * 2) == [Next(2, 1.0), None]


def test_pauses_double_while_nothing_gets_on() -> None:
    restarts = Restarts(at_most=20, backoff_seconds=2.0)
    following = live(History(restarts, 2), (1, 0), (1, 0), (1, 0), (1, 5), (1, 0))
    assert [each.pause_seconds for each in following if each] == [2.0, 4.0, 8.0, 0.0, 2.0]
    following = live(History(restarts, 2), *[(1, 0)] * 12)
    assert following[-1] == Next(2, 300.0)


def test_a_worker_that_cannot_come_back_is_left_out_until_the_run_gets_on() -> None:
    restarts = Restarts(at_most=20, min_workers=1)
    ends = [(1, 10), (1, 0), (1, 0), (1, 7), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0)]
    following = live(History(restarts, 3), *ends, workers=3)
    assert [each.workers for each in following if each] == [3, 3, 2, 3, 3, 2, 2, 1, 1]
    assert {each.workers for each in live(History(Restarts(at_most=20), 3), *ends, workers=3) if each} == {3}


def test_summary() -> None:
    history = History(Restarts(at_most=1), 2)
    failure = Failure("worker 1", -signal.SIGKILL, 12.3)
    history.next_after(Generation(1, 2, 12.34, 121, failure, failed_after_step=120, log=Path("logs/worker-1.log")))
    history.next_after(Generation(2, 1, 20.0, 400))
    assert history.summary == (
        "\n== 2 generations\n"
        "generation 1, 2 workers: worker 1 was ended by SIGKILL after 12.3 s, after step 120 (logs/worker-1.log)\n"
        "generation 2, 1 worker: ended well after 20.0 s, after step 400"
    )


@pytest.mark.parametrize(
    ("restarts", "workers", "nodes", "message"),
    [
        (Restarts(at_most=1, min_workers=3), 2, 1, "--min-workers is 3, --workers is 2"),
        (Restarts(at_most=1, min_workers=0), 2, 1, "--min-workers is 0"),
        (Restarts(min_workers=1), 2, 1, "there is no --max-restarts"),
        (Restarts(at_most=1, min_workers=1), 2, 2, "--min-workers is 1, --nodes is 2"),
    ],
)
def test_what_cannot_be_done_is_refused(restarts: Restarts, workers: int, nodes: int, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        restarts.check(workers, nodes)


def test_what_can_be_done_is_not() -> None:
    Restarts(at_most=3, min_workers=2).check(workers=2, nodes=1)
    Restarts(at_most=1).check(workers=2, nodes=2)
