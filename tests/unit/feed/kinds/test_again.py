"""Inputs that are read from their beginning: looking at the first batch, and going on after a restart."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.unit.feed.kinds.kinds import ROWS, alone, generator, model

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
    with pytest.raises(UsageError, match="pass 1 of a list was to be restored, of which 4 passes"):
        again.begin([2], 0)


def test_an_iterator_goes_on_from_pass_to_pass_and_is_not_closed() -> None:
    batches = (number for number in range(3))
    once = ReadAgain(batches)
    first = once.begin([], 0)
    assert next(first) == 0
    first.close()
    assert list(once.begin([1], 0)) == [1, 2]
    with pytest.raises(UsageError, match="generator found it used up"):
        list(once.begin([1, 2], 0))


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_generator_that_is_used_up_is_not_an_empty_epoch() -> None:
    with pytest.raises(UsageError, match=r"found it used up(.|\n)*steps_per_epoch"):
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
    with pytest.raises(UsageError, match="Make it anew"):
        next(source.batches(state=state))
    with pytest.raises(InputError, match="is 3"):
        source.resume(3)
