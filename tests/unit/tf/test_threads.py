"""`tf.train.Coordinator`: what TensorFlow 2.21 does in the same programs."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import stratagem.tf as tf


def failing(coordinator: tf.train.Coordinator, error: BaseException) -> threading.Thread:
    def work() -> None:
        with coordinator.stop_on_exception():
            raise error

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def waiting(event: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=event.wait, name="slow", daemon=True)
    thread.start()
    return thread


def told(error: BaseException, *, as_tuple: bool) -> Any:
    try:
        raise error
    except type(error) as caught:
        return sys.exc_info() if as_tuple else caught


def test_join_raises_the_error_of_a_thread_and_ends_the_others() -> None:
    coordinator = tf.train.Coordinator()
    other = threading.Thread(target=coordinator.wait_for_stop)
    other.start()
    with pytest.raises(ValueError, match="a"):
        coordinator.join([failing(coordinator, ValueError("a")), other])
    assert (coordinator.joined, coordinator.should_stop(), other.is_alive()) == (True, True, False)
    with pytest.raises(ValueError, match="a"):
        coordinator.join()
    with pytest.raises(ValueError, match="a"):
        coordinator.raise_requested_exception()


@pytest.mark.parametrize("as_tuple", [True, False])
def test_after_join_an_error_is_raised_at_once(as_tuple: bool) -> None:
    coordinator = tf.train.Coordinator()
    coordinator.request_stop()
    coordinator.join()
    with pytest.raises(KeyError, match="late"):
        coordinator.request_stop(told(KeyError("late"), as_tuple=as_tuple))
    coordinator.clear_stop()
    assert (coordinator.joined, coordinator.should_stop()) == (False, False)
    coordinator.request_stop(told(KeyError("again"), as_tuple=as_tuple))
    with pytest.raises(KeyError, match="again"):
        coordinator.join()


def test_the_first_request_counts() -> None:
    coordinator = tf.train.Coordinator()
    coordinator.request_stop()
    coordinator.request_stop(told(KeyError("second"), as_tuple=False))
    coordinator.join()
    coordinator.raise_requested_exception()


@pytest.mark.parametrize("kinds", [None, [StopIteration]])
def test_clean_errors_stop_and_are_not_raised(kinds: Any) -> None:
    coordinator = tf.train.Coordinator(clean_stop_exception_types=kinds)
    clean = tf.errors.OutOfRangeError("The data has ended.") if kinds is None else StopIteration()
    coordinator.join([failing(coordinator, clean)])
    assert coordinator.should_stop()


def test_threads_that_go_on_are_named_after_the_grace_period() -> None:
    coordinator, event = tf.train.Coordinator(), threading.Event()
    slow = waiting(event)
    coordinator.register_thread(slow)
    coordinator.request_stop()
    with pytest.raises(RuntimeError, match="Coordinator stopped with threads still running: slow"):
        coordinator.join(stop_grace_period_secs=0.0)
    coordinator.join(stop_grace_period_secs=0.0)  # it is registered no more
    coordinator.join([slow], stop_grace_period_secs=0.0, ignore_live_threads=True)
    event.set()


def test_join_without_a_request_waits_for_the_threads() -> None:
    coordinator, event = tf.train.Coordinator(), threading.Event()
    slow = waiting(event)
    threading.Thread(target=event.set).start()
    coordinator.join([slow])
    assert not slow.is_alive()
    assert (coordinator.should_stop(), coordinator.wait_for_stop(0.0)) == (False, False)


def test_what_is_no_error_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="request_stop was given 'no'"):
        tf.train.Coordinator().request_stop("no")  # type: ignore[arg-type]
