"""The next batch goes to the devices while a step runs there."""

from __future__ import annotations

from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import lax
from tests.gpu.conftest import kind

from stratagem import MirroredStrategy
from stratagem.data import Dataset
from stratagem.feed.feed import Feed
from stratagem.fit.steps import Step

pytestmark = pytest.mark.gpu

ROWS: Final = 4
STEPS: Final = 5
WIDTH: Final = {"gpu": 4096, "cpu": 512}
TURNS: Final = {"gpu": 200, "cpu": 60}
"""Products of a step: they take a tenth of a second on an H100, some tenths on a core of a CPU."""


class Long(keras.layers.Layer):
    """Takes long beside what it takes to copy a few rows to a device."""

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs: Any) -> Any:
        width = WIDTH[kind()]
        # By the inputs, so that XLA computes nothing of it before the step.
        square = jnp.eye(width) * (1 + 0 * lax.stop_gradient(inputs[0, 0]))
        # So many turns and no others: where XLA did not know how many, it would ask the device after each.
        turned = lax.fori_loop(0, TURNS[kind()], lambda _, x: x @ square, square)
        return inputs * self.scale * turned[0, 0]


def compiled(names: list[str]) -> keras.Model:
    strategy = MirroredStrategy(names)
    # A GPU does so by itself; on the CPU there is nothing to gain, and it is switched on for the rehearsal.
    assert strategy.mesh.fetches_ahead is (kind() == "gpu")
    strategy.mesh.fetches_ahead = True
    # In the rehearsal several CPU devices would wait for each step, lest two of them be in flight.
    strategy.mesh.waits_for_steps = False
    with strategy.scope():
        model = keras.Sequential([keras.Input((ROWS,)), Long()])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


def rows() -> Dataset:
    x = np.ones((STEPS * ROWS, ROWS), np.float32)
    return Dataset.from_tensor_slices((x, x)).batch(ROWS)


def test_each_batch_but_the_first_is_there_before_it_is_asked_for(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are taken in `take`; they are copied there only where nothing was copied ahead."""
    events: list[str] = []
    place, take, fetch, step = Feed._place, Feed.take, Feed.fetch_ahead, Step.__call__

    def placing(feed: Feed, count: int) -> Any:
        batches = place(feed, count)
        events.append("copied" if batches else "end")
        return batches

    def taking(feed: Feed, count: int) -> Any:
        events.append("asked for")
        return take(feed, count)

    def fetching(feed: Feed, count: int) -> None:
        events.append("ahead")
        fetch(feed, count)

    def stepping(*args: Any) -> Any:
        events.append("step")
        return step(*args)

    model = compiled(names)
    for owner, name, function in (
        (Feed, "_place", placing),
        (Feed, "take", taking),
        (Feed, "fetch_ahead", fetching),
        (Step, "__call__", stepping),
    ):
        monkeypatch.setattr(owner, name, function)
    model.fit(rows(), verbose=0)
    first, each, last = ["asked for", "copied", "step"], ["ahead", "copied", "asked for", "step"], ["ahead", "end"]
    assert events == first + (STEPS - 1) * each + last
    assert events.count("copied") == events.count("step") == STEPS


def test_a_batch_arrives_on_the_devices_before_the_step_in_front_of_it_ends(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step takes a tenth of a second or more, the copy is of a few bytes: which of them ends first is no race.

    One device of a CPU takes the rows as they lie in the host's memory; there nothing is copied.
    """
    step, fetch = Step.__call__, Feed.fetch_ahead
    found: list[tuple[bool, set[str]]] = []
    running: list[Any] = []

    def stepping(*args: Any) -> Any:
        results = step(*args)
        running[:] = jax.tree.leaves(results)
        return results

    def fetching(feed: Feed, count: int) -> None:
        fetch(feed, count)
        arrays = jax.tree.leaves([batch.data for batch in feed._placed or []])
        jax.block_until_ready(arrays)
        if arrays:
            on = {device.platform for each in arrays if isinstance(each, jax.Array) for device in each.devices()}
            found.append((any(leaf.is_ready() for leaf in running), on or {"cpu"}))
        jax.block_until_ready(running)  # no step is begun behind another: that one would be waited for, too

    model = compiled(names)
    model.fit(rows(), verbose=0)  # compiles: the first run of a program ends before it returns
    monkeypatch.setattr(Step, "__call__", stepping)
    monkeypatch.setattr(Feed, "fetch_ahead", fetching)
    model.fit(rows(), verbose=0)
    assert found == [(False, {kind()})] * (STEPS - 1)
