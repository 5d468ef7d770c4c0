"""Inputs that are read from their beginning: looking at the first batch, and going on after a restart."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from tests.unit.feed.kinds.kinds import ROWS, alone, generator, model

import stratagem
from stratagem.core.errors import InputError, UsageError
from stratagem.data.batches import whole
from stratagem.feed.kinds.again import Peekable, ReadAgain
from stratagem.feed.kinds.choose import input_of
from stratagem.feed.whole_batches import WholeBatches


def test_a_batch_that_was_looked_at_stays_the_next() -> None:
    batches = Peekable(iter("abc"))
    assert (batches.peek(), batches.peek(), next(batches), batches.taken) == ("a", "a", "a", 1)
    batches.skip_to(3)
    assert (batches.peek(), batches.taken) == ("c", 3), "at the end the last one that was skipped"
    assert list(batches) == []
    with pytest.raises(InputError, match="no batch at all"):
        Peekable(iter(())).peek()
    with pytest.raises(InputError, match="ended before batch 4"):
        Peekable(iter("abc")).skip_to(4)


def test_batches_of_earlier_passes_are_read_again() -> None:
    passes = []

    def begin_pass() -> Any:
        passes.append([])
        return (passes[-1].append(number) or number for number in range(5))

    again = ReadAgain([], begin_pass=begin_pass)
    assert again.sample([2, 5], 1) == 1
    assert list(again.begin([2, 5], 1)) == [1, 2, 3, 4]
    assert passes == [[0, 1], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    assert list(again.begin([2, 5, 5], 0)) == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="pass 1 of a list was to be restored, but this program has begun 4 passes"):
        again.begin([2], 0)


def test_an_iterator_goes_on_from_pass_to_pass_and_is_not_closed() -> None:
    batches = (number for number in range(3))
    once = ReadAgain(batches)
    first = once.begin([], 0)
    assert next(first) == 0
    first.close()
    assert list(once.begin([1], 0)) == [1, 2]
    with pytest.raises(UsageError, match="generator was already used up"):
        list(once.begin([1, 2], 0))


def test_validation_data_begin_with_the_same_two_batches() -> None:
    """Keras looks at two batches of a generator, and begins each evaluation with them."""
    again = ReadAgain(number for number in range(6))
    again.keep_first()
    assert again.sample([], 0) == 0
    passes = []
    for earlier in ([], [2], [2, 3]):
        batches = again.begin(earlier, 0)
        passes.append(list(itertools.islice(batches, 3)))
    assert passes == [[0, 1, 2], [0, 1, 3], [0, 1, 4]]
    restarted = ReadAgain(number for number in range(6))
    restarted.keep_first()
    assert list(restarted.begin([3, 3], 0)) == [0, 1, 4, 5]


@pytest.mark.parametrize("steps", [2, 3])
def test_a_validation_generator_gives_the_numbers_of_keras(steps: int) -> None:
    def numbers() -> Iterator[Any]:
        for number in itertools.count(1):
            yield np.full((4, 3), number, np.float32), np.full((4, 1), number, np.float32)

    histories = []
    for strategy in (None, stratagem.MirroredStrategy(["cpu:0", "cpu:1"])):
        keras.utils.set_random_seed(1)
        with contextlib.nullcontext() if strategy is None else strategy.scope():
            trained = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            trained.compile(keras.optimizers.SGD(1e-4), "mse")
        options = {"steps_per_epoch": 2, "epochs": 3, "verbose": 0, "validation_steps": steps, "shuffle": False}
        histories.append(trained.fit(numbers(), validation_data=numbers(), **options).history)
    np.testing.assert_allclose(histories[1]["val_loss"], histories[0]["val_loss"], rtol=1e-5)
    np.testing.assert_allclose(histories[1]["loss"], histories[0]["loss"], rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_generator_that_is_used_up_is_not_an_empty_epoch() -> None:
    with pytest.raises(UsageError, match=r"was already used up(.|\n)*steps_per_epoch"):
        model().fit(itertools.islice(generator(), 4), epochs=2, verbose=0)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_class_weight_for_a_generator() -> None:
    history = [
        model().fit(itertools.islice(generator(), 2), class_weight=weights, verbose=0).history["loss"][0]
        for weights in (None, dict.fromkeys(range(ROWS), 0.0))
    ]
    assert history[0] > 0
    assert history[1] == 0


def test_a_position_behind_what_was_read_cannot_be_restored() -> None:
    source = WholeBatches(input_of(generator(), lambda _, seed: seed, 1), alone(), rows_of=whole)
    reader = source.batches()
    state = reader.get_state()
    next(reader)
    with pytest.raises(UsageError, match="Make it again"):
        next(source.batches(state=state))
    with pytest.raises(InputError, match="is 3"):
        source.resume(3)
