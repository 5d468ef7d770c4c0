"""The table of custom loops: the same program with a strategy and without one.

With one it is the tutorials': `run`, a tape, `apply_gradients`, metrics. Without, it is plain Keras and JAX, written
here with nothing of Stratagem. A record is flat, as in `table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from tests.conformance import inputs, models
from tests.conformance.inputs import Examples
from tests.conformance.table import FLOAT16, FLOAT32, Record, Tolerance, named, value_of

import stratagem
from stratagem.data import Dataset

SEED = 7


@dataclass(frozen=True)
class Loop:
    """One row of the table.

    Args:
        name: Its name in test reports.
        build: Returns the model, compiled: its optimizer is the one that the loop applies.
        examples: Makes its data.
        batch: Rows of a global batch.
        rows: Rows of an epoch.
        plain: Builds the model of the reference where plain Keras needs another one.
        float32: Tolerance in single precision.
        float64: Whether the row also means something in double precision.
    """

    name: str
    build: Callable[[], keras.Model]
    examples: Examples = inputs.labelled
    batch: int = inputs.BATCH
    rows: int = 6 * inputs.BATCH + 5
    plain: Callable[[], keras.Model] | None = None
    float32: Tolerance = FLOAT32
    float64: bool = True

    def uneven(self) -> Loop:
        """Return the row where no batch divides by 2, 3 or 4, and the last one has a single row."""
        return replace(self, name=f"{self.name}, uneven", batch=11, rows=6 * 11 + 1)


def _mlp(optimizer: str, **arguments: Any) -> Callable[[], keras.Model]:
    return lambda: models.mlp(getattr(keras.optimizers, optimizer)(**arguments))


def _scaled() -> keras.Model:
    """The loss scale only grows, by powers of two: nothing is rounded."""
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    return models.mlp(keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=5))


def _overflowing(rows: int) -> tuple[Any, Any]:
    arguments = inputs.overflowing(inputs.labelled, plain=False)
    return arguments["x"][:rows], arguments["y"][:rows]


_ADAM = Loop("adam", models.mlp)
_REGULARISED = Loop("kernel_regularizer", models.penalised)
_SYNCHRONIZED = Loop(
    "synchronized batch norm",
    partial(models.batch_norm, synchronized=True),
    plain=partial(models.batch_norm, synchronized=False),
)
_MASKED = Loop(
    "masked, synchronized batch norm",
    partial(models.masked_batch_norm, synchronized=True),
    inputs.labelled_sentences,
    plain=partial(models.masked_batch_norm, synchronized=False),
)

LOOPS = {
    loop.name: loop
    for loop in [
        _ADAM,
        _ADAM.uneven(),
        Loop("sgd, momentum", _mlp("SGD", learning_rate=0.1, momentum=0.9)),
        Loop("clipnorm", _mlp("SGD", learning_rate=0.1, clipnorm=0.05)),
        Loop("global_clipnorm", _mlp("Adam", learning_rate=0.01, global_clipnorm=0.05)),
        Loop("clipvalue", _mlp("SGD", learning_rate=0.1, clipvalue=0.02)),
        _REGULARISED,
        _REGULARISED.uneven(),
        _SYNCHRONIZED,
        _SYNCHRONIZED.uneven(),
        _MASKED,
        _MASKED.uneven(),
        Loop("loss scale", _scaled),
        Loop(
            "loss scale shrinks and grows",
            partial(models.mixed_float16, initial_scale=2.0**12, dynamic_growth_steps=4),
            _overflowing,
            float32=FLOAT16,
            float64=False,
        ),
        Loop("accumulation", partial(models.mlp, accumulate=3)),
        Loop("averaged weights, schedule, weight decay", models.averaged_weights),
    ]
}
"""What does not depend on the number of replicas."""

PER_REPLICA = {
    loop.name: loop
    for loop in [
        Loop("batch norm", partial(models.batch_norm, synchronized=False)),
        Loop("batch norm", partial(models.batch_norm, synchronized=False)).uneven(),
    ]
}
"""What each replica does by itself: it equals one device that does the shares of a batch one after another."""

DROPOUT = Loop("dropout", models.dropout)


def _begin() -> None:
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(SEED)


def _crossentropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)


def _record(losses: list[Any], metrics: list[keras.Metric], model: Any, optimizer: Any) -> Record:
    record: dict[str, Any] = {"history/loss": losses}
    record |= {f"history/{metric.name}": metric.result() for metric in metrics}
    record |= named("optimizer", [(v.path, value_of(v)) for v in optimizer.variables])
    record |= named("weights", [(v.path, value_of(v)) for v in model.variables])
    return {name: np.asarray(value) for name, value in record.items()}


# With a strategy -----------------------------------------------------------------------------------


def run_loop(loop: Loop, strategy: stratagem.Strategy) -> Record:
    """Train as the tutorials do, and record everything that must not depend on the strategy."""
    _begin()
    with strategy.scope():
        model = loop.build()
        optimizer: Any = model.optimizer
        crossentropy = _crossentropy()
        accuracy, mean_loss = keras.metrics.SparseCategoricalAccuracy(), keras.metrics.Mean("mean_loss")
    dataset = Dataset.from_tensor_slices(loop.examples(loop.rows)).batch(loop.batch)
    dist_dataset = strategy.experimental_distribute_dataset(dataset)

    def train_step(batch: Any) -> Any:
        x, y = batch
        with stratagem.GradientTape() as tape:
            logits = model(x, training=True)
            per_example_loss: Any = crossentropy(y, logits)
            loss = stratagem.nn.compute_average_loss(per_example_loss)
            loss += stratagem.nn.scale_regularization_loss(model.losses)
            scaled_loss = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(y, logits)
        mean_loss.update_state(per_example_loss)
        return loss

    @stratagem.function
    def distributed_train_step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(train_step, args=(batch,)), axis=None)

    losses = [distributed_train_step(batch) for _ in range(inputs.EPOCHS) for batch in dist_dataset]
    return _record(losses, [accuracy, mean_loss], model, optimizer)


# Without ---------------------------------------------------------------------------------------------


def run_plain(loop: Loop, shares: int = 1) -> Record:
    """Train on one device with plain Keras and JAX, and record the same.

    Args:
        loop: What to train.
        shares: Into how many parts each batch is cut; the model runs on one after another.
    """
    _begin()
    model: Any = (loop.plain or loop.build)()
    optimizer: Any = model.optimizer
    crossentropy = _crossentropy()
    accuracy, mean_loss = keras.metrics.SparseCategoricalAccuracy(), keras.metrics.Mean("mean_loss")
    with keras.name_scope(optimizer.name, caller=optimizer):
        optimizer.build(model.trainable_variables)
    weights, others, slots = (
        [variable.value for variable in group]
        for group in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    )

    def objective(weights: Any, others: Any, slots: Any, batch: list[tuple[Any, Any]]) -> Any:
        parts = [model.stateless_call(weights, others, x, training=True, return_losses=True) for x, _ in batch]
        per_example = jnp.concatenate(
            [crossentropy(y, logits) for (_, y), (logits, *_) in zip(batch, parts, strict=True)]
        )
        loss = jnp.mean(per_example) + sum(parts[0][2])
        with keras.StatelessScope(state_mapping=list(zip(optimizer.variables, slots, strict=True))):
            scaled = optimizer.scale_loss(loss)
        share_of_rows = [len(y) / len(per_example) for _, y in batch]
        new_others = [
            sum(share * value for share, value in zip(share_of_rows, values, strict=True))
            for values in zip(*(others for _, others, _ in parts), strict=True)
        ]
        return scaled, (loss, per_example, jnp.concatenate([logits for logits, *_ in parts]), new_others)

    @jax.jit
    def step(weights: Any, others: Any, slots: Any, batch: Any) -> Any:
        gradient_of = jax.value_and_grad(objective, has_aux=True)
        (_, (loss, per_example, logits, others)), gradients = gradient_of(weights, others, slots, batch)
        weights, slots = optimizer.stateless_apply(slots, gradients, weights)
        return loss, per_example, logits, weights, others, slots

    losses = []
    for batch in _batches(loop, shares):
        loss, per_example, logits, weights, others, slots = step(weights, others, slots, batch)
        losses.append(loss)
        accuracy.update_state(np.concatenate([y for _, y in batch]), logits)
        mean_loss.update_state(per_example)
    for variables, values in (
        (model.trainable_variables, weights),
        (model.non_trainable_variables, others),
        (optimizer.variables, slots),
    ):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    return _record(losses, [accuracy, mean_loss], model, optimizer)


def _batches(loop: Loop, shares: int) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    x, y = loop.examples(loop.rows)
    for _ in range(inputs.EPOCHS):
        for start in range(0, loop.rows, loop.batch):
            rows = slice(start, start + loop.batch)
            parts = zip(np.array_split(x[rows], shares), np.array_split(y[rows], shares), strict=True)
            yield [(x, y) for x, y in parts if len(y)]
