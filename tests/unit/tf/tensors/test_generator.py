"""`tf.random.Generator`: positions in its stream, and draws of several kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

import stratagem.tf as tf


def test_positions() -> None:
    one, two = tf.random.Generator.from_seed(3), tf.random.Generator.from_seed(3)
    start = one.state.numpy()
    draws = [one.uniform([2]).numpy().tolist() for _ in range(3)]
    two.skip(2)
    assert two.uniform([2]).numpy().tolist() == draws[2]
    one.reset(start)
    assert [one.uniform([2]).numpy().tolist() for _ in range(3)] == draws


def test_kinds_of_draws() -> None:
    generator = tf.random.Generator.from_seed(1)
    whole = generator.uniform_full_int([4000], "uint32").numpy()
    assert whole.dtype == np.uint32
    assert abs(whole.mean() / 2**32 - 0.5) < 0.02
    assert (generator.uniform_full_int([4000], tf.int32).numpy() < 0).mean() > 0.45
    counts = generator.binomial([4000], counts=10.0, probs=0.3).numpy()
    assert counts.dtype == np.int32
    assert (abs(counts.mean() - 3.0) < 0.1, counts.min() >= 0, counts.max() <= 10) == (True, True, True)


def test_one_that_is_made_in_a_compiled_function_begins_anew_at_each_call() -> None:
    def draws() -> Any:
        generator = tf.random.Generator.from_seed(5)
        return generator.normal([2]), generator.uniform([1])

    eager = [draw.numpy().tolist() for draw in draws()]
    compiled = tf.function(draws)
    assert [[draw.tolist() for draw in compiled()] for _ in range(2)] == [eager, eager]
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    runs = [
        [[part.tolist() for part in strategy.experimental_local_results(draw)] for draw in strategy.run(draws)]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert [draw[0] for draw in runs[0]] == eager
    assert all(first != second for first, second in runs[0])


def test_streams_that_are_split_in_a_compiled_function() -> None:
    def first_of_each() -> Any:
        return [each.normal([]) for each in tf.random.Generator.from_seed(5).split(2)]

    assert [float(x) for x in tf.function(first_of_each)()] == [float(x) for x in first_of_each()]


def test_a_generator_that_a_function_makes_once_goes_on() -> None:
    kept: dict[str, Any] = {}

    @tf.function
    def draw() -> Any:
        if "generator" not in kept:
            kept["generator"] = tf.random.Generator.from_seed(1)
        return kept["generator"].normal([])

    draws = [float(draw()) for _ in range(3)]
    outside = tf.random.Generator.from_seed(1)
    assert draws == [float(outside.normal([])) for _ in range(3)]
    assert float(kept["generator"].normal([])) == float(outside.normal([]))


def test_a_generator_that_a_function_makes_each_time_begins_anew() -> None:
    draw = tf.function(lambda: tf.random.Generator.from_seed(1).normal([]))
    assert float(draw()) == float(draw()) == float(tf.random.Generator.from_seed(1).normal([]))
