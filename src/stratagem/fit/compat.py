"""Private parts of Keras that `fit` stands on.

Checked on Keras 3.15.1 (`make test-floor` checks the oldest version named in pyproject.toml).
Everything here is a thin accessor or an installation; what is installed stands in the other files.

Nothing of Keras is changed when Stratagem is imported. `install` runs when the first strategy is
made. What it wraps does what Keras does for models that belong to no strategy; files are written whole or not at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
import keras
from keras.src import backend
from keras.src.backend import compute_output_spec
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.jax import trainer as jax_trainer
from keras.src.layers.normalization import batch_normalization
from keras.src.losses import loss as loss_module
from keras.src.trainers import data_adapters, epoch_iterator
from keras.src.trainers import trainer as base_trainer

from stratagem.feed.compat import unpack
from stratagem.mesh.mesh import Tree

Trainer: Any = getattr(jax_trainer, "JAXTrainer", None) or vars(jax_trainer)["Trainer"]  # since Keras 3.16
"""Keras's trainer on JAX: the base of every model."""

BaseTrainer: Any = getattr(base_trainer, "BaseTrainer", None) or base_trainer.Trainer  # the first since Keras 3.16
"""Where `compile` is. `load_model` compares a model's `compile` with this one to see whether it is Keras's own."""

BUILDING: Final = [
    (BaseTrainer, "_symbolic_build"),
    *([(Trainer, "_maybe_symbolic_build")] if hasattr(Trainer, "_maybe_symbolic_build") else []),  # since Keras 3.16
]
"""Methods by which Keras's loops build a model from a batch. The second takes a batch of the data for it."""

STATE_SYNC: Final = "state_sync" if hasattr(Trainer, "state_sync") else "jax_state_sync"  # the first since Keras 3.16
"""The method by which Keras gives a model's variables the values that its loop keeps."""

__all__ = [
    "BUILDING",
    "STATE_SYNC",
    "BaseTrainer",
    "Trainer",
    "accumulates",
    "accumulator_indices",
    "add_slot",
    "applied_to",
    "begin_at_epoch",
    "build_from_batch",
    "built_for",
    "count_steps",
    "iterations_index",
    "layers_of",
    "mask_of",
    "replace",
    "set_mask",
    "without",
]

_originals: dict[tuple[Any, str], Any] = {}

mask_of = get_keras_mask
set_mask = set_keras_mask


def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace an attribute by its wrapped self, once.

    Args:
        owner: Class or module.
        name: The attribute.
        wrap: Function from the original to what takes its place.
    """
    if (owner, name) not in _originals:
        original = getattr(owner, name)
        _originals[owner, name] = original
        setattr(owner, name, wrap(original))


def seam_points() -> dict[str, tuple[Any, str]]:
    """Name the private places that the seam stands on."""
    return {
        "data_adapter": (data_adapters, "get_data_adapter"),
        "epoch_iterator": (jax_trainer.JAXEpochIterator, "_get_iterator"),
        "steps_of_epoch": (epoch_iterator.EpochIterator, "_enumerate_iterator"),
        "reduce_values": (loss_module, "reduce_values"),
        "apply_mask": (loss_module, "apply_mask"),
        "moments": (getattr(backend, "ops", backend).nn, "moments"),  # the first since Keras 3.16
        "masked_moments": (batch_normalization.BatchNormalization, "_moments"),
        "batch_normalization": (batch_normalization.BatchNormalization, "__init__"),
    }


# Where `fit` begins ------------------------------------------------------------------------------


def begin_at_epoch(model: Any, epoch: int | None) -> None:
    """Let `fit` begin at an epoch instead of `initial_epoch`, as Keras's own BackupAndRestore does; None ends that."""
    model._initial_epoch = epoch


def count_steps(iterator: Any, steps: int) -> None:
    """Let Keras count steps of the current pass over the data that an earlier epoch did."""
    iterator._steps_seen += steps


# Optimizers --------------------------------------------------------------------------------------


def accumulates(optimizer: Any) -> bool:
    """Whether the optimizer itself accumulates gradients over steps."""
    return bool(optimizer.gradient_accumulation_steps)


def accumulator_indices(optimizer: Any) -> list[int]:
    """Return where the gradient accumulators stand among the optimizer's variables, in gradient order."""
    positions = {id(variable): i for i, variable in enumerate(optimizer.variables)}
    return [positions[id(variable)] for variable in optimizer._accumulated_gradients]


def iterations_index(optimizer: Any) -> int:
    """Return where the count of steps stands among the optimizer's variables."""
    return next(i for i, variable in enumerate(optimizer.variables) if variable is optimizer._iterations)


def built_for(optimizer: Any, trainable_variables: Sequence[Any] | None) -> Sequence[Any]:
    """Build an optimizer for variables, unless it is built, and return the variables it is applied to."""
    if trainable_variables is None:
        return optimizer._trainable_variables
    if not optimizer.built:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(list(trainable_variables))
    return trainable_variables


def add_slot(optimizer: Any, variable: Any, name: str, shape: Sequence[int]) -> Any:
    """Give an optimizer a variable of its own, of float32 zeros.

    Args:
        optimizer: A Keras optimizer.
        variable: The model's variable that it belongs to.
        name: What it is; it follows the path of `variable`.
        shape: Its shape.
    """
    name = f"{variable.path.replace('/', '_')}_{name}"
    return optimizer.add_variable(tuple(shape), initializer="zeros", dtype="float32", name=name)


@contextlib.contextmanager
def without(optimizer: Any, variables: Sequence[Any]) -> Iterator[None]:
    """Let an optimizer not have some of its own variables, in this context."""
    known = optimizer._variables
    before, left_out = list(known), {id(variable) for variable in variables}
    known[:] = [variable for variable in before if id(variable) not in left_out]
    try:
        yield
    finally:
        known[:] = before


def applied_to(optimizer: Any) -> Sequence[Any]:
    """Return the variables that an optimizer was built for, in the order of `stateless_apply`."""
    return optimizer._trainable_variables


# Models ------------------------------------------------------------------------------------------


def build_from_batch(model: Any, batch: Tree, *, inputs_only: bool) -> None:
    """Create all variables of a model, its metrics and its optimizer from the shapes of a batch.

    Args:
        model: The model.
        batch: Structure of arrays (x, y, sample_weight), as `fit` gets it.
        inputs_only: Whether only the layers must be built, as for `predict`.
    """
    batch = jax.tree.map(_as_on_devices, batch)
    if not inputs_only:
        # Keras's own, also where the seam has put something in its place.
        _originals.get((BaseTrainer, "_symbolic_build"), BaseTrainer._symbolic_build)(model, data_batch=batch)
    elif not all(layer.built for layer in layers_of(model)):
        x, _, _ = unpack(batch)
        specs = keras.tree.map_structure(
            lambda leaf: keras.KerasTensor(leaf.shape, keras.backend.standardize_dtype(leaf.dtype)), x
        )
        compute_output_spec(model, specs, training=False)


def _as_on_devices(leaf: Any) -> Any:
    """Return the shape of an array and the dtype that devices hold it in; JAX warns where it is asked for another."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(keras.backend.standardize_dtype(leaf.dtype)))


def layers_of(model: Any) -> Sequence[Any]:
    """Return a model's layers, and those inside them."""
    return list(model._flatten_layers())


def flattened_callbacks(callbacks: Any) -> Sequence[Any]:
    """Return callbacks as a list, whatever `fit` was given."""
    if callbacks is None:
        return []
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks.callbacks
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]


def give_back_state(model: Any) -> None:
    """Give the variables of this process the values that Keras keeps while its loops run; leave out those elsewhere."""
    if getattr(model, "_jax_state", None) and not model._jax_state_synced:
        optimizer = getattr(model, "optimizer", None)
        groups = {"optimizer_variables": optimizer.variables if optimizer is not None else []}
        for group, values in model._jax_state.items():
            for variable, value in zip(groups.get(group) or getattr(model, group), values or (), strict=False):
                if not hasattr(variable, "residence"):
                    variable.assign(value)
    model._jax_state_synced = True


def put_back_state(model: Any, variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Give variables the values that Keras has taken from them for a step that failed; it would lose them."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    model._jax_state_synced = True
