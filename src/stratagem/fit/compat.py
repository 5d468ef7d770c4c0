"""Private parts of Keras that `fit` stands on.

Checked on Keras 3.15.1 (`make test-floor` checks the oldest version named in pyproject.toml).
Everything here is a thin accessor. What is replaced in Keras is listed in `core.patches`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import jax
import keras
from keras.src.backend import compute_output_spec
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.trainers import trainer

from stratagem.feed.compat import unpack
from stratagem.mesh.mesh import Tree

_symbolic_build: Any = (getattr(trainer, "BaseTrainer", None) or trainer.Trainer)._symbolic_build  # first: Keras 3.16
"""Keras's own building of a model from a batch, also while `fit` has put something in its place."""

CACHED: Final = "_use_cached_eval_dataset"
"""Argument of `evaluate` by which `fit` lets it use the iterator of the validation before."""

mask_of = get_keras_mask
set_mask = set_keras_mask


# Where `fit` begins ------------------------------------------------------------------------------


def begin_at_epoch(model: Any, epoch: int | None) -> None:
    """Let `fit` begin at an epoch instead of `initial_epoch`, as Keras's own BackupAndRestore does; None ends that."""
    model._initial_epoch = epoch


def forget_validation(model: Any) -> None:
    """Let `fit` make the iterator of its validation anew; it keeps one for all epochs."""
    model._eval_epoch_iterator = None


def count_steps(iterator: Any, steps: int) -> None:
    """Let Keras count steps of the current pass over the data that an earlier epoch did."""
    iterator._steps_seen += steps


def set_length(iterator: Any, batches: int) -> None:
    """Let Keras know how many batches the next pass over the data has."""
    iterator._num_batches = batches


# Optimizers --------------------------------------------------------------------------------------


def accumulates(optimizer: Any) -> bool:
    """Whether the optimizer itself accumulates gradients over steps."""
    return bool(optimizer.gradient_accumulation_steps)


def accumulators(optimizer: Any) -> Sequence[Any]:
    """Return the variables in which the optimizer accumulates gradients, in gradient order."""
    return optimizer._accumulated_gradients


def iterations_index(optimizer: Any) -> int:
    """Return where the count of steps stands among the optimizer's variables."""
    return next(i for i, variable in enumerate(optimizer.variables) if variable is optimizer._iterations)


def applied_to(optimizer: Any, trainable_variables: Sequence[Any] | None = None) -> Sequence[Any]:
    """Return the variables that an optimizer is applied to: these, for which it is built then; or those it knows."""
    if trainable_variables is None:
        return optimizer._trainable_variables
    if not optimizer.built:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(list(trainable_variables))
    return trainable_variables


def build_further(optimizer: Any, variables: Sequence[Any]) -> None:
    """Let an optimizer that is built take those of some variables that it does not know.

    Args:
        optimizer: A Keras optimizer.
        variables: What it is to be applied to.
    """
    places = optimizer._trainable_variables_indices
    further = [variable for variable in variables if id(variable) not in places]
    if not optimizer.built or not further:
        return
    known, lists = len(places), {name: value for name, value in vars(optimizer).items() if isinstance(value, list)}
    optimizer.built = False  # Keras builds once
    with keras.name_scope(optimizer.name, caller=optimizer):
        optimizer.build(further)
    places.update({id(variable): place for place, variable in enumerate(further, known)})
    for name, before in lists.items():
        after = vars(optimizer)[name]
        if after is not before:  # slots of each variable, in the order of the variables
            object.__setattr__(optimizer, name, [*before, *after])


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
        _symbolic_build(model, data_batch=batch)
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


def tell_in_turn(callback_list: Any) -> None:
    """Let a list tell its callbacks of the ends of batches in the thread of `fit`, behind those it has handed out."""
    callback_list._flush_futures()
    callback_list._async_train = callback_list._async_test = callback_list._async_predict = False


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
    """Give variables the values that Keras has taken from them for a step that failed; it would lose them.

    Where the batch could not be read there are fewer values: those of the last variables Keras has not taken.
    """
    for variable, value in zip(variables, values, strict=False):
        variable.assign(value)
    model._jax_state_synced = True
