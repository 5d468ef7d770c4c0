"""Step of a custom loop against the same step written by hand in JAX, side by side in one process on one core.

    python benchmarks/custom_loop.py [--devices 1] [--rows 64] [--steps 30] [--rounds 11]

The model is that of TensorFlow's tutorial "Custom training with tf.distribute.Strategy". Both contenders take
the same global batch, already on the devices, and return the loss; each waits for its last step. They
take turns, in every second round in reverse order; the ratio is the median of the rounds' own ratios.
Linux only: it binds the process to a core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from figures import Figure
from jax.sharding import PartitionSpec

import stratagem
from stratagem import keras
from stratagem.mesh.mesh import AXIS


class Measured(NamedTuple):
    """Of each contender the milliseconds of a step in each round and its loss; how often its function was traced.

    Args:
        times: In the order of the rounds.
        losses: After three steps.
        traced: Before what was measured.
        again: Meanwhile; anything but zero is a fault.
    """

    times: dict[str, list[float]]
    losses: dict[str, float]
    traced: int
    again: int

    @property
    def ratio(self) -> float:
        """Stratagem's time to that of JAX by hand: the median of the rounds' own."""
        return statistics.median(own / hand for own, hand in zip(self.times[OURS], self.times[HAND], strict=True))


HAND, OURS = "JAX by hand", "Stratagem"

Turn = Callable[[int], float]
"""Run so many steps and return the last loss."""


def make_model() -> keras.Model:
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def with_stratagem(strategy: stratagem.Strategy, batch: Any, bodies: list[int]) -> Turn:
    """Return the turn of the custom loop.

    Args:
        strategy: Where it runs.
        batch: A batch of a distributed dataset.
        bodies: Gets an entry each time Python runs the replica function, that is, traces it.
    """
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.Adam()
        loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)
        accuracy = keras.metrics.SparseCategoricalAccuracy()

    def train_step(inputs: Any) -> Any:
        bodies.append(1)
        images, labels = inputs
        with stratagem.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = stratagem.nn.compute_average_loss(loss_object(labels, predictions))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(labels, predictions)
        return loss

    @stratagem.function
    def step(inputs: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(train_step, args=(inputs,)), axis=None)

    def turn(steps: int) -> float:
        loss = 0.0
        for _ in range(steps):
            loss = step(batch)
        return float(loss)

    return turn


def by_hand(strategy: stratagem.Strategy, images: np.ndarray, labels: np.ndarray) -> Turn:
    """Return the turn of the step in plain JAX: `jit`, over several devices `shard_map`, state donated."""
    model, optimizer = make_model(), keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    mesh, rows = strategy.mesh, len(images)

    def loss_of(trainable: Any, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = model.stateless_call(trainable, [], x, training=True)[0]
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
        return -jnp.sum(picked) / rows, jnp.sum(jnp.argmax(logits, -1) == y)

    def step(state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, jax.Array]:
        trainable, slots, right, seen = state
        (loss, hits), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, x, y)
        if mesh.size > 1:
            loss, hits, gradients = jax.lax.psum((loss, hits, gradients), AXIS)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return (trainable, slots, right + hits, seen + rows), loss

    if mesh.size > 1:
        whole, spread = PartitionSpec(), PartitionSpec(AXIS)
        step = jax.shard_map(
            step, mesh=mesh.mesh, in_specs=(whole, spread, spread), out_specs=(whole, whole), check_vma=False
        )
    compiled = jax.jit(step, donate_argnums=0)
    values = [[v.value for v in model.trainable_variables], [v.value for v in optimizer.variables]]
    state = jax.tree.map(lambda value: mesh.replicate(np.asarray(value)), (*values, jnp.zeros(()), jnp.zeros(())))
    x, y = mesh.shard_blocks(images), mesh.shard_blocks(labels)

    def turn(steps: int) -> float:
        nonlocal state
        loss = jnp.zeros(())
        for _ in range(steps):
            state, loss = compiled(state, x, y)
            if mesh.waits_for_steps:  # XLA:CPU deadlocks with several steps in flight on virtual devices
                jax.block_until_ready(loss)
        return float(loss)

    return turn


def milliseconds(turn: Turn, steps: int) -> float:
    """Return the time of a step."""
    start = time.perf_counter()
    turn(steps)
    return (time.perf_counter() - start) / steps * 1000


def measured(devices: int, rows_of_device: int, steps: int, rounds: int) -> Measured:
    """Measure both, on the first core of this process.

    Args:
        devices: Virtual CPU devices.
        rows_of_device: Rows for each.
        steps: In a turn.
        rounds: Turns of each.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX starts its threads, which inherit it
    stratagem.testing.virtual_devices(devices)
    strategy = stratagem.MirroredStrategy()

    draw = np.random.default_rng(0)
    rows = rows_of_device * devices
    images = draw.random((rows, 28, 28, 1), "float32")
    labels = draw.integers(0, 10, rows).astype("int32")
    dataset = stratagem.data.Dataset.from_tensor_slices((images, labels)).batch(rows)
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))

    bodies: list[int] = []
    turns = {HAND: by_hand(strategy, images, labels), OURS: with_stratagem(strategy, batch, bodies)}
    losses = {name: turn(3) for name, turn in turns.items()}
    traced = len(bodies)
    times: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds):
        for name in list(turns)[:: -1 if number % 2 else 1]:
            times[name].append(milliseconds(turns[name], steps))
    return Measured(times, losses, traced, len(bodies) - traced)


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows."""
    found = measured(devices=1, rows_of_device=64, steps=20, rounds=7)
    if found.again:
        raise SystemExit(f"The replica function was traced {found.again} times more while it was measured.")
    hand, ours = (statistics.median(found.times[name]) for name in (HAND, OURS))
    what = "step of a custom loop with max-pooling, slow in XLA"
    return [Figure(what, HAND, hand, "ms"), Figure(what, OURS, ours, "ms", found.ratio, HAND)]


def main() -> int:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1, help="virtual CPU devices")
    parser.add_argument("--rows", type=int, default=64, help="rows for each device")
    parser.add_argument("--steps", type=int, default=30, help="steps in a turn")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    found = measured(options.devices, options.rows, options.steps, options.rounds)

    rows = options.rows * options.devices
    print(f"{options.devices} device(s), {rows} rows, {options.rounds} rounds of {options.steps} steps, one core")
    for name, times in found.times.items():
        low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
        loss = found.losses[name]
        print(f"{name:12} {middle:7.2f} ms/step, quartiles {low:.2f}-{high:.2f}, loss after 3 steps {loss:.5f}")
    print(f"ratio {found.ratio:.3f}; replica function traced {found.traced} times before, {found.again} while measured")
    return 1 if found.again else 0


if __name__ == "__main__":
    sys.exit(main())
