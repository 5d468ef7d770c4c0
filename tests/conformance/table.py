"""The table of the equivalence suite: models x data shapes, what a run of a row records, how records compare.

The same row runs on plain Keras, on virtual devices and on the workers of a cluster. A record is flat: it maps
names such as `history/val_loss` or `weights/3 dense/bias` to arrays.
"""

# Keras's arguments bear the types of their defaults: `verbose` that of "auto".
# pyright: reportArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np
from tests.conformance import inputs, models
from tests.conformance.inputs import Examples

import stratagem
from stratagem.mesh.divided import is_divided
from stratagem.mesh.lending import put_together_by_xla

Record = dict[str, np.ndarray]
Shape = Callable[[Examples, bool], dict[str, Any]]


@dataclass(frozen=True)
class Tolerance:
    """Largest difference from the reference, relative to the largest magnitude in the array."""

    losses: float
    weights: float

    def of(self, entry: str) -> float:
        return self.losses if entry.startswith(("history/", "evaluate/", "on_batch/")) else self.weights


# Rounding grows over some 20 steps; a wrong rule shows in the first digits.
FLOAT32 = Tolerance(losses=1e-5, weights=1e-4)
FLOAT64 = Tolerance(losses=1e-9, weights=1e-9)
# The activations and gradients of the layer in float16 have 11 bits: 5e-4 for each rounding. Shares of a batch
# are summed in float16 before they are added up, so differences of a few of these are no wrong rule.
FLOAT16 = Tolerance(losses=2e-3, weights=2e-3)


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        name: Its name in test reports.
        build: Returns the compiled model.
        examples: Makes its data.
        shape: How `fit` gets the data.
        plain: Builds the model of the reference where plain Keras needs another one.
        inference: Whether `evaluate` and `predict` are called too; rows that share a model need not repeat them.
        on_batch: Whether `train_on_batch` and its siblings are called too.
        float32: Tolerance in single precision.
        float64: Whether the row also means something in double precision.
    """

    name: str
    build: Callable[[], keras.Model]
    examples: Examples = inputs.labelled
    shape: Shape = inputs.tail
    plain: Callable[[], keras.Model] | None = None
    inference: bool = False
    on_batch: bool = False
    float32: Tolerance = FLOAT32
    float64: bool = True


def _optimizer(name: str, **arguments: Any) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        return models.mlp(getattr(keras.optimizers, name)(**arguments))

    return build


_MODELS = [
    Row("cnn", models.cnn, inputs.images, inference=True),
    Row("regularised", models.regularised, on_batch=True, inference=True),
    Row("built by fit", models.built_by_fit, inference=True),
    Row(
        "two inputs, two outputs",
        models.two_inputs_two_outputs,
        inputs.numbers_and_words,
        inference=True,
        on_batch=True,
    ),
    Row("add_loss", models.adds_loss, inference=True),
    Row("own compute_loss", models.own_compute_loss),
    Row("own train_step", models.own_train_step, inference=True),
    Row("masked lstm", models.masked_lstm, inputs.sentences, inference=True),
    Row("gru", models.gru, inputs.labelled_sentences, inference=True),
    Row(
        "synchronized batch norm",
        partial(models.batch_norm, synchronized=True),
        plain=partial(models.batch_norm, synchronized=False),
        inference=True,
    ),
    Row("mixed_float16", models.mixed_float16, inference=True, float32=FLOAT16, float64=False),
    Row(
        "loss scale shrinks and grows",
        partial(models.mixed_float16, initial_scale=2.0**12, dynamic_growth_steps=4),
        shape=inputs.overflowing,
        float32=FLOAT16,
        float64=False,
    ),
    Row("clipnorm", _optimizer("SGD", learning_rate=0.1, clipnorm=0.05)),
    Row("global_clipnorm", _optimizer("Adam", learning_rate=0.01, global_clipnorm=0.05)),
    Row("clipvalue", _optimizer("SGD", learning_rate=0.1, clipvalue=0.02)),
    Row("averaged weights, schedule, weight decay", models.averaged_weights),
    Row("frozen base", models.frozen),
    Row("sum", partial(models.mlp, reduction="sum")),
]

_SHAPES = [
    Row("even", models.mlp, shape=inputs.even),
    Row("uneven", models.mlp, shape=inputs.uneven, inference=True, on_batch=True),
    Row("sample_weight", models.regularised, shape=inputs.sample_weighted),
    Row("class_weight", models.mlp, shape=inputs.class_weighted),
    Row("steps_per_execution", partial(models.mlp, steps_per_execution=4), inference=True),
    Row("accumulation", partial(models.mlp, accumulate=3), shape=inputs.tail),
    Row("shuffled dataset", models.mlp, shape=inputs.shuffled_dataset),
    Row("repeated dataset", models.mlp, shape=inputs.repeated_dataset),
    Row("generator", models.mlp, shape=inputs.generated),
    Row("validation_data", models.mlp, shape=inputs.validated),
    Row("validation_split", models.mlp, shape=inputs.validation_split),
]

_BOTH = [
    Row(
        "masked lstm, sample_weight",
        models.masked_lstm,
        inputs.sentences,
        lambda examples, plain: {
            **inputs.uneven(examples, plain),
            "sample_weight": np.repeat(inputs.weights(67)[:, None], models.LENGTH, axis=1),
        },
    ),
    Row("add_loss, uneven", models.adds_loss, shape=inputs.uneven),
    Row("own compute_loss, uneven", models.own_compute_loss, shape=inputs.uneven),
    Row("own train_step, uneven", models.own_train_step, shape=inputs.uneven),
    Row(
        "own train_step, steps_per_execution",
        partial(models.own_train_step, steps_per_execution=4),
        shape=inputs.tail,
    ),
    Row(
        "two outputs, sample_weight",
        models.two_inputs_two_outputs,
        inputs.numbers_and_words,
        inputs.sample_weighted_outputs,
    ),
    Row(
        "synchronized batch norm, uneven",
        partial(models.batch_norm, synchronized=True),
        shape=inputs.uneven,
        plain=partial(models.batch_norm, synchronized=False),
    ),
    Row(
        "masked, synchronized batch norm, uneven",
        partial(models.masked_batch_norm, synchronized=True),
        inputs.labelled_sentences,
        inputs.uneven,
        plain=partial(models.masked_batch_norm, synchronized=False),
    ),
    Row("sum, sample_weight", partial(models.mlp, reduction="sum"), shape=inputs.sample_weighted),
    Row(
        "mean_with_sample_weight",
        partial(models.mlp, reduction="mean_with_sample_weight"),
        shape=inputs.sample_weighted,
    ),
    Row("accumulation, uneven", partial(models.mlp, accumulate=2), shape=inputs.uneven),
    Row(
        "accumulation, steps_per_execution",
        partial(models.mlp, accumulate=2, steps_per_execution=4),
        shape=inputs.even,
    ),
]

_METRICS = [
    Row("binary metrics", models.measured_binary, inputs.binary, inputs.sample_weighted, inference=True),
    Row("one-hot metrics", models.measured_one_hot, inputs.one_hot, inputs.sample_weighted),
    Row("sparse metrics", models.measured_sparse, shape=inputs.uneven),
    Row("regression metrics", models.measured_regression, inputs.regression, inputs.sample_weighted),
]

ROWS = {row.name: row for row in [*_MODELS, *_SHAPES, *_BOTH, *_METRICS]}
"""What does not depend on the number of replicas."""

SHAPES = {row.name for row in _SHAPES}
"""The rows that are there for the shape of their data."""

EXCEPTIONS = {
    row.name: row
    for row in [
        Row("dropout", models.dropout),
        Row("dropout, uneven", models.dropout, shape=inputs.uneven),
        Row("batch norm", partial(models.batch_norm, synchronized=False)),
        Row("batch norm, uneven", partial(models.batch_norm, synchronized=False), shape=inputs.uneven),
    ]
}
"""The stated exceptions: they depend on the number of replicas, but not on where these run."""

ALL = {**ROWS, **EXCEPTIONS}


def run(row: Row, strategy: stratagem.Strategy | None) -> Record:
    """Train, evaluate and predict, and record everything that must not depend on the strategy.

    Args:
        row: What to run.
        strategy: Where; None is plain Keras.
    """
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(7)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = ((strategy is None and row.plain) or row.build)()
    arguments = row.shape(row.examples, strategy is None)
    history = model.fit(**arguments, shuffle=False, verbose=0).history
    record: dict[str, Any] = {f"history/{name}": values for name, values in history.items()}
    record |= named("optimizer", [(v.path, value_of(v)) for v in model.optimizer.variables])
    if row.inference:
        x, y = row.examples(2 * inputs.BATCH + 1)  # the last batch has one row
        record |= _logs("evaluate", model.evaluate(x, y, batch_size=inputs.BATCH, verbose=0, return_dict=True))
        x, _ = row.examples(inputs.BATCH + 2)
        record |= named("predict", _leaves(model.predict(x, batch_size=inputs.BATCH, verbose=0)))
    if row.on_batch:
        x, y = row.examples(7)
        record |= _logs("on_batch/train", model.train_on_batch(x, y, return_dict=True))
        record |= _logs("on_batch/train again", model.train_on_batch(x, y, return_dict=True))
        record |= _logs("on_batch/test", model.test_on_batch(x, y, return_dict=True))
        record |= named("predict_on_batch", _leaves(model.predict_on_batch(x)))
    record |= named("weights", [(v.path, value_of(v)) for v in model.variables])
    return {name: np.asarray(value) for name, value in record.items()}


def value_of(variable: keras.Variable) -> np.ndarray:
    """Return a variable's value; first make sure that the replicas of this process hold the very same of it."""
    value = variable.value
    parts: dict[str, np.ndarray] = {}
    for piece in value.addressable_shards:
        part = np.asarray(piece.data)
        first = parts.setdefault(str(piece.index), part)
        np.testing.assert_array_equal(part, first, err_msg=f"replicas differ in {variable.path}")
    if not is_divided(value):
        return np.asarray(value)
    found: dict[int, np.ndarray] = {}
    put_together_by_xla([value], found.__setitem__)
    return found[0]


def _leaves(tree: Any) -> list[tuple[str, np.ndarray]]:
    return [("/".join(map(str, path)), np.asarray(leaf)) for path, leaf in keras.tree.flatten_with_path(tree)]


def named(group: str, values: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {f"{group}/{i} {name}": value for i, (name, value) in enumerate(values)}


def _logs(group: str, logs: dict[str, Any]) -> dict[str, Any]:
    return {f"{group}/{name}": value for name, value in logs.items()}


def differences(record: Record, reference: Record, tolerance: Tolerance | None) -> list[str]:
    """Describe every entry that differs from the reference by more than the tolerance; None means in any bit."""
    if list(record) != list(reference):
        return [f"entries {[*record]} instead of {[*reference]}"]
    found = []
    for entry, expected in reference.items():
        value = record[entry]
        if value.shape != expected.shape or value.dtype != expected.dtype:
            found.append(f"{entry}: {value.dtype}{value.shape} instead of {expected.dtype}{expected.shape}")
        elif tolerance is None:
            if not np.array_equal(value, expected, equal_nan=True):
                found.append(f"{entry}: {value!r} instead of {expected!r}")
        elif (difference := _relative(value, expected)) > tolerance.of(entry):
            found.append(f"{entry}: off by {difference:.1e}: {value!r} instead of {expected!r}")
    return found


def _relative(value: np.ndarray, expected: np.ndarray) -> float:
    if value.size == 0:
        return 0.0
    wide, wide_expected = value.astype("float64"), expected.astype("float64")
    if not np.isfinite(wide_expected).all():
        return float("inf")  # the table must not hold a row that proves nothing
    largest = np.abs(wide_expected).max()
    difference = np.abs(wide - wide_expected).max()
    return float(difference / largest) if largest else float(difference)
