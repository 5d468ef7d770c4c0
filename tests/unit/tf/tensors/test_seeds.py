"""Seeds of the program."""

from __future__ import annotations

import random

import stratagem.tf as tf


def _drawn() -> list[float]:
    return [*tf.random.uniform([2]).numpy().tolist(), random.random()]


def test_no_seed_takes_an_earlier_one_back() -> None:
    tf.random.set_seed(3)
    seeded = _drawn()
    tf.random.set_seed(None)
    first = _drawn()
    tf.random.set_seed(None)
    second = _drawn()
    assert len({*seeded, *first, *second}) == 9
    tf.random.set_seed(3)
    assert _drawn() == seeded
