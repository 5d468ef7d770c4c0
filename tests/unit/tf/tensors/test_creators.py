"""`tf.variable_creator_scope`: what TensorFlow 2.21 does in the same programs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import stratagem.tf as tf

GIVEN = {
    *("aggregation", "caching_device", "constraint", "dtype", "experimental_enable_variable_lifting", "import_scope"),
    *("initial_value", "name", "shape", "synchronization", "trainable", "validate_shape", "variable_def"),
}


def noting(calls: list[Any], name: str) -> Callable[..., Any]:
    def creator(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        calls.append((name, set(arguments)))
        return next_creator(**arguments)

    return creator


def test_the_innermost_is_called_first_with_all_arguments() -> None:
    calls: list[Any] = []
    with tf.variable_creator_scope(noting(calls, "outer")), tf.variable_creator_scope(noting(calls, "inner")):
        variable = tf.Variable(1.0, name="a")
    assert calls == [("inner", GIVEN), ("outer", GIVEN)]
    assert (variable.name, variable.numpy()) == ("a", 1.0)
    tf.Variable(1.0)
    assert len(calls) == 2


def test_a_creator_changes_arguments() -> None:
    def doubled(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        return next_creator(**{**arguments, "initial_value": arguments["initial_value"] * 2, "trainable": False})

    with tf.variable_creator_scope(doubled):
        variable = tf.Variable(3.0)
    assert (variable.numpy(), variable.trainable) == (6.0, False)


def test_what_a_creator_returns_is_what_the_program_gets() -> None:
    with tf.variable_creator_scope(lambda next_creator, **arguments: "another"):
        assert tf.Variable(1.0) == "another"


def test_creators_take_part_inside_and_outside_of_the_scope_of_a_strategy() -> None:
    calls: list[Any] = []
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope(), tf.variable_creator_scope(noting(calls, "inside")):
        mirrored = tf.Variable(1.0)
    with tf.variable_creator_scope(noting(calls, "outside")), strategy.scope():
        tf.Variable(1.0)
    assert [name for name, _ in calls] == ["inside", "outside"]
    assert len(strategy.experimental_local_results(mirrored)) == 2


def test_creators_are_those_of_a_thread() -> None:
    calls: list[Any] = []
    with tf.variable_creator_scope(noting(calls, "here")):
        thread = threading.Thread(target=lambda: tf.Variable(1.0))
        thread.start()
        thread.join()
    assert calls == []
