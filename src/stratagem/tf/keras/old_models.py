"""Attributes and arguments of Keras 2 models, most of them for training steps that a program writes itself."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Final

import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.fit.records import strategy_of
from stratagem.replica.context import current_strategy, strategy_scope
from stratagem.strategy.base import one_replica
from stratagem.strategy.default import get_strategy
from stratagem.tf.keras import freezing, learning_phase, making_layers, old_layers, old_results, on_host, weights
from stratagem.tf.keras.layers import added
from stratagem.tf.keras.layers.compat import compute_output_spec, input_layer_of


def _compiled_loss(
    model: Any, y_true: Any, y_pred: Any, sample_weight: Any = None, regularization_losses: Any = None
) -> Any:
    """Return the loss that `compile` was given, and count it in the model's `loss` (`Model.compiled_loss`).

    Args:
        model: The model.
        y_true: Targets.
        y_pred: Outputs.
        sample_weight: A weight for each example.
        regularization_losses: What is added to it, usually `self.losses`.
    """
    loss = model._compile_loss(y_true, y_pred, sample_weight)
    for addend in regularization_losses or ():
        loss = loss + keras.ops.cast(addend, loss.dtype)
    rows = keras.tree.flatten(y_pred)[0].shape[0]
    model._loss_tracker.update_state(loss, sample_weight=rows)
    return loss


class _NoMetrics:
    """Stands for the metrics of a model that was compiled without."""

    metrics: Final[list[Any]] = []

    def update_state(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    def reset_state(self) -> None:
        """Do nothing."""


_HINTS: Final = ("max_queue_size", "use_multiprocessing", "workers")
_COUNTS: Final = ("steps", "steps_per_epoch", "validation_steps")


def _taking_old_arguments(name: str) -> Callable[..., Any]:
    """Return a method that passes over hints; of 3.5 steps the half one was a step too. Training is as compiled."""
    training: Any = freezing.as_compiled if name in ("fit", "train_on_batch") else contextlib.nullcontext

    @functools.wraps(getattr(keras.Model, name))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs = {name: value for name, value in kwargs.items() if name not in _HINTS}
        for count in _COUNTS:
            if isinstance(kwargs.get(count), float | np.floating):
                kwargs[count] = math.ceil(kwargs[count])
        with training(self):
            return getattr(super(OldModel, self), name)(*args, **kwargs)

    return method


def _of_generator(name: str, *order: str) -> Callable[..., Any]:
    """Return a method that had a name of its own for generators, which takes its arguments in another order.

    Args:
        name: The method that takes them now.
        order: The names of the arguments that follow the generator, by position.
    """

    def method(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(generator, **dict(zip(order, args, strict=False)), **kwargs)

    method.__doc__ = f"`{name}` by its old name."
    return method


_AFTER_GENERATOR: Final = ("steps", "callbacks", "max_queue_size", "workers", "use_multiprocessing", "verbose")


class OldModel:
    """A base of Keras's models, with attributes of Keras 2.

    `fit`, `evaluate` and `predict` were told how to read a `Sequence`; in Keras 3 it knows itself.
    """

    loss: Any
    call: Any
    metrics: list[Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        model: Any = super().__new__(cls, *args, **kwargs)
        added.give_method(model)
        making_layers.give_method(model)
        old_layers.give_method(model)
        weights.give_method(model)
        if type(model).build is keras.Model.build:
            object.__setattr__(model, "build", _building_by_a_call(model))
        return model

    @property
    def compiled_loss(self) -> Callable[..., Any]:
        """The loss that was given to `compile`, as a function that also updates the mean of the loss."""
        return functools.partial(_compiled_loss, self)

    @property
    def compiled_metrics(self) -> Any:
        """The metrics that were given to `compile`, as one metric."""
        metrics = self._compile_metrics  # pyright: ignore[reportAttributeAccessIssue]
        return _NoMetrics() if metrics is None else metrics

    @property
    def distribute_strategy(self) -> Any:
        """The strategy of the model; the default strategy if it has none."""
        return strategy_of(self) or one_replica()

    @property
    def metrics_names(self) -> list[str]:
        """The names of the numbers that `evaluate` returns as a list."""
        return old_results.names_of(self.metrics)

    def _flatten_metrics_in_order(self, logs: dict[str, Any]) -> Any:
        names = self.metrics_names
        values = [logs[name] for name in names if name in logs]
        values += [logs[name] for name in sorted(logs) if name not in names]
        return values[0] if len(values) == 1 else values

    @property
    def losses(self) -> list[Any]:
        """The losses of layers and regularisers, and those that were given to `add_loss`."""
        model: Any = super()
        return added.with_functions(self, model.losses)

    def add_loss(self, losses: Any) -> None:
        """Add losses in a call of the model.

        A symbolic loss is ignored. It comes from `self.call(symbolic_inputs)`, for example in a `summary` that the
        program defines, and each call of the model computes it again. A functional model has its own `add_loss`.

        Args:
            losses: One loss or a list of losses.
        """
        layer: Any = super()
        kept = [loss for loss in keras.tree.flatten(losses) if not isinstance(loss, keras.KerasTensor)]
        if kept:
            layer.add_loss(kept)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Return the loss that `compile` was given (`Model.compute_loss`), of targets that are broadcast as in Keras 2.

        Targets of shape (n,) are a column there: with outputs of shape (n, 10), a mean squared error compares each
        target with all ten outputs. Targets that are classes have one class for each row of outputs, in any shape.
        """
        trainer: Any = super()
        targets = _as_in_keras_2(self.loss, y, y_pred)
        loss = trainer.compute_loss(x=x, y=targets, y_pred=y_pred, sample_weight=sample_weight, training=training)
        old_results.note_loss(self, loss, y_pred)
        return loss

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the results of the metrics, for the same targets as the loss.

        In a training step that the program writes itself they include the loss of `compute_loss`, as in Keras 2.
        """
        trainer: Any = super()
        old_results.count_noted_loss(self)
        return trainer.compute_metrics(x, _as_in_keras_2(self.loss, y, y_pred), y_pred, sample_weight)

    def get_metrics_result(self) -> dict[str, Any]:
        """Return the results of the metrics, without those of `compile` that the program's own step does not update.

        Keras 3 fails on such metrics, because they are not built.
        """
        of_compile: Any = self._compile_metrics  # pyright: ignore[reportAttributeAccessIssue]
        results: dict[str, Any] = {}
        for metric in self.metrics:
            if metric is not of_compile or metric.built:
                result = metric.result()
                results |= result if isinstance(result, dict) else {metric.name: result}
        return results

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, as in `model(x, True)`. Without `training`, `K.set_learning_phase` decides."""
        layer: Any = super()
        args, kwargs = old_layers.by_name(self, args, kwargs)
        if on_host.begins_on_host(self) and not (on_host.are_symbols(args) or on_host.is_of_host(*args[:1])):
            return on_host.outputs_for(self, *args, **kwargs)
        with learning_phase.of_call(kwargs) as missing:
            return layer.__call__(*map(_as_tensors, args), **kwargs, **missing)

    def predict_proba(self, x: Any, batch_size: int | None = None, verbose: Any = 0) -> Any:
        """Return the result of `predict`: an old name."""
        return self.predict(x, batch_size=batch_size, verbose=verbose)

    def predict_classes(self, x: Any, batch_size: int | None = None, verbose: Any = 0) -> Any:
        """Return the class of each row: that of the greatest probability, or whether a single probability is above 0.5.

        Args:
            x: Inputs.
            batch_size: The number of rows of a batch.
            verbose: Whether to show the progress.
        """
        probabilities = self.predict(x, batch_size=batch_size, verbose=verbose)
        if probabilities.shape[-1] > 1:
            return probabilities.argmax(axis=-1)
        return (probabilities > 0.5).astype("int32")

    def reset_states(self) -> None:
        """Reset layers that keep a state between batches, such as `LSTM(stateful=True)`."""
        for layer in self._flatten_layers(include_self=False):  # pyright: ignore[reportAttributeAccessIssue]
            if getattr(layer, "stateful", False) and hasattr(layer, "reset_state"):
                layer.reset_state()

    def begins_on_host(self) -> bool:
        """Whether a part of the model computes on the host: lookups of text. See `feed.on_host`."""
        return on_host.begins_on_host(self)

    def host_part(self, example: Any) -> Callable[[Any], Any]:
        """Return the function of a batch of inputs that the host computes before the step. See `feed.on_host`."""
        return on_host.host_part(self, example)

    fit = _taking_old_arguments("fit")
    evaluate = _taking_old_arguments("evaluate")
    predict = _taking_old_arguments("predict")
    train_on_batch = _taking_old_arguments("train_on_batch")
    fit_generator = _of_generator(
        "fit",
        *("steps_per_epoch", "epochs", "verbose", "callbacks", "validation_data", "validation_steps"),
        *("validation_freq", "class_weight", "max_queue_size", "workers", "use_multiprocessing", "shuffle"),
        "initial_epoch",
    )
    evaluate_generator = _of_generator("evaluate", *_AFTER_GENERATOR)
    predict_generator = _of_generator("predict", *_AFTER_GENERATOR)


def _as_tensors(inputs: Any) -> Any:
    """Return inputs of which some are tensors and others NumPy's, such as a batch of a dataset, as tensors alone."""
    leaves = keras.tree.flatten(inputs) if isinstance(inputs, list | tuple | dict) else []
    are_of_numpy = [isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "OSU" for leaf in leaves]
    if all(are_of_numpy) or not any(are_of_numpy):
        return inputs
    tensors = [
        keras.ops.convert_to_tensor(leaf) if is_of_numpy else leaf
        for leaf, is_of_numpy in zip(leaves, are_of_numpy, strict=True)
    ]
    return keras.tree.pack_sequence_as(inputs, tensors)


_ELEMENTWISE: Final = (
    *("mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_error", "mean_squared_logarithmic_error"),
    *("binary_crossentropy", "hinge", "huber", "log_cosh", "poisson", "squared_hinge"),
)
"""Losses that compare targets with outputs number by number."""


def _as_in_keras_2(loss: Any, y: Any, y_pred: Any) -> Any:
    """Return targets in the shape that Keras 2 compared with outputs, which Keras 3 refuses or takes otherwise.

    Targets of one number for each row are columns, where outputs have several and the loss compares all. Classes lie
    as the outputs' rows do, where there are as many: (n, 1) or (n,) beside outputs of shape (n, 1, 1, 10).

    Args:
        loss: What `compile` was given.
        y: Targets.
        y_pred: Outputs.
    """
    shapes: list[tuple[Any, ...]] = [tuple(getattr(each, "shape", ())) for each in (y, y_pred)]
    targets, outputs = shapes
    if not targets or len(outputs) < 2:
        return y
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    function = inspect.unwrap(getattr(loss, "fn", loss))
    if function is keras.losses.sparse_categorical_crossentropy:
        rows = outputs[:-1]
        known = int(None in (targets[0], rows[0]))  # the first axis that has a size
        sizes = (*targets[known:], *rows[known:])
        if targets in (rows, (*rows, 1)) or None in sizes or math.prod(targets[known:]) != math.prod(rows[known:]):
            return y
        return keras.ops.reshape(y, (-1, *rows[1:]))
    if len(targets) != 1 or len(outputs) != 2 or outputs[1] == 1:
        return y
    is_elementwise = any(function is getattr(keras.losses, name) for name in _ELEMENTWISE)
    return keras.ops.expand_dims(y, -1) if is_elementwise else y


def _building_by_a_call(model: Any) -> Callable[..., None]:
    """Return the `build` of a model, which made the variables of one whose layers do not exist yet by a call of it.

    Keras 3 marks such a model as built although it has no variables. If a call with floating-point inputs of these
    shapes fails, Keras's `build` runs, and warns.

    Args:
        model: One that is being made, whose `build` is Keras's.
    """
    original = model.build

    @functools.wraps(original)  # it is one that Keras takes for "no build of its own"
    def build(input_shape: Any) -> None:
        if any(not layer.built for layer in model.layers):
            inputs = keras.tree.map_shape_structure(keras.KerasTensor, input_shape)
            with contextlib.suppress(Exception), keras.name_scope(model.name, caller=model):
                compute_output_spec(model.call, inputs)
        original(input_shape)

    return build


@functools.wraps(keras.Input)
def Input(shape: Any = None, batch_size: int | None = None, *args: Any, **kwargs: Any) -> Any:
    """Return a symbolic input (`tf.keras.Input`).

    The shape may be one number, as in `Input((4))`. The batch size is that of all replicas together.

    Raises:
        InputError: In the scope of a strategy, `batch_size` is not divisible by the number of replicas.
    """
    replicas = get_strategy().num_replicas_in_sync
    if batch_size and batch_size % replicas:
        raise InputError(
            f"The `batch_size` argument ({batch_size}) must be divisible by the number of replicas ({replicas}).",
            "The model would be built for one number of rows, but replicas would have different numbers of rows.",
            f"Give a multiple of {replicas}, or leave batch_size out to accept any number of rows.",
        )
    made = keras.Input((shape,) if isinstance(shape, int | np.integer) else shape, batch_size, *args, **kwargs)
    making_layers.note_shapes(input_layer_of(made), [made], [made])
    return made


def choosing_no_kernel(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `BatchNormalization.__init__`, which was told which of TensorFlow's kernels to use.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)  # Keras reads the signature, to save what the layer was made with
    def __init__(self: Any, *args: Any, fused: bool | None = None, **kwargs: Any) -> None:
        original(self, *args, **kwargs)

    return __init__


def taking_metrics_third(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `compile`, whose third argument was `metrics`, and is `loss_weights`; numbers are weights in either place.

    Args:
        original: Keras's.
    """

    @functools.wraps(original)
    def compile(self: Any, optimizer: Any = "rmsprop", loss: Any = None, *args: Any, **kwargs: Any) -> None:
        if args:
            first_two = [*args[:2], None][:2]
            if _are_metrics(first_two[0]) or _are_numbers(first_two[1]):
                first_two.reverse()
            args = (*first_two, *args[2:])
        steps = kwargs.pop("experimental_steps_per_execution", None)
        if steps is not None:
            kwargs["steps_per_execution"] = steps
        named = {name: value for name, value in kwargs.items() if value is not None and name not in _PASSED_OVER}
        args = (*args[:1], *(old_results.for_each_output(self, each) for each in args[1:3]), *args[3:])
        for name in {"metrics", "weighted_metrics"} & named.keys():
            named[name] = old_results.for_each_output(self, named[name])
        of_losses = args[0] if args else named.get("loss_weights")
        if isinstance(of_losses, list | tuple) and not isinstance(loss, list | tuple | dict):
            loss = [loss] * len(of_losses)  # one loss for all outputs, each with its weight
        strategy = strategy_of(self)
        outside = current_strategy() is None
        with strategy_scope(strategy) if strategy is not None and outside else contextlib.nullcontext():
            original(self, optimizer, loss, *args, **named)
        freezing.note_trainable(self)

    return compile


_PASSED_OVER: Final = ("cloning", "experimental_run_tf_function", "pss_evaluation_shards")
"""Arguments of `compile` that said how TensorFlow was to run."""


def _are_metrics(value: Any) -> bool:
    leaves = keras.tree.flatten(value)
    return any(isinstance(leaf, str | keras.metrics.Metric) or callable(leaf) for leaf in leaves)


def _are_numbers(value: Any) -> bool:
    leaves = keras.tree.flatten(value)
    return bool(leaves) and all(isinstance(leaf, int | float) for leaf in leaves)
