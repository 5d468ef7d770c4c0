"""Names of Keras 2 that `stratagem.tf.keras` adds to Keras's own classes.

A program that holds an optimizer, a metric or a model calls its methods; no namespace stands between them, and most
objects are made by Keras itself. So what is gone is put back into Keras's classes, when `stratagem.tf.keras` is first
used and once (`core.patches` lists it). It is what Keras 3 refuses (`Adam(lr=...)`, `model.save("folder")`) or has no
name for (`optimizer.lr`, `metric.reset_states()`); what Keras 3 accepts means what it meant. Private names: the HDF5
format of Keras 2 and its ways to prepare data, which Keras 3 has kept. Checked on Keras 3.15.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend import rnn
from keras.src.legacy.preprocessing.image import (
    DirectoryIterator,
    ImageDataGenerator,
    Iterator,
    NumpyArrayIterator,
    apply_affine_transform,
    apply_brightness_shift,
    apply_channel_shift,
    random_brightness,
    random_channel_shift,
    random_rotation,
    random_shear,
    random_shift,
    random_zoom,
)
from keras.src.legacy.preprocessing.sequence import TimeseriesGenerator, make_sampling_table, skipgrams
from keras.src.legacy.preprocessing.text import (
    Tokenizer,
    hashing_trick,
    one_hot,
    text_to_word_sequence,
    tokenizer_from_json,
)
from keras.src.legacy.saving.legacy_h5_format import save_weights_to_hdf5_group

from stratagem.core import patches
from stratagem.strategy.base import prepare_fit
from stratagem.tf.keras import (
    complex_losses,
    folders,
    making_layers,
    old_initializers,
    old_layers,
    old_losses,
    old_metrics,
    old_models,
    old_optimizers,
    weights,
)
from stratagem.tf.keras.derivatives import compat as derivatives

__all__ = [
    "DirectoryIterator",
    "ImageDataGenerator",
    "Iterator",
    "NumpyArrayIterator",
    "TimeseriesGenerator",
    "Tokenizer",
    "apply_affine_transform",
    "apply_brightness_shift",
    "apply_channel_shift",
    "hashing_trick",
    "make_sampling_table",
    "one_hot",
    "random_brightness",
    "random_channel_shift",
    "random_rotation",
    "random_shear",
    "random_shift",
    "random_zoom",
    "rnn",
    "skipgrams",
    "text_to_word_sequence",
    "tokenizer_from_json",
]


def _keeping_what_was_compiled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `Model.save`: Keras takes the optimizer out of what `compile` was given when it writes an HDF5 file.

    The next `.keras` file would lack it, and the model be loaded with another.
    """

    @functools.wraps(original)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = getattr(self, "_compile_config", None)
        before = {} if compiled is None else dict(compiled.config)
        try:
            return original(self, *args, **kwargs)
        finally:
            if compiled is not None:
                compiled.config.update(before)

    return save


def _saving(original: Callable[..., Any]) -> Callable[..., Any]:
    return folders.saving_to_folders(_keeping_what_was_compiled(original))


def install() -> None:
    """Give Keras's classes what `core.patches` lists. A second call does nothing."""
    prepare_fit()  # first: what follows stands round it
    complex_losses.install()
    derivatives.install()
    patches.install(
        __name__,
        {
            "Optimizer.__bases__": old_optimizers.OldOptimizer,
            "Metric.__bases__": old_metrics.OldMetric,
            "Layer.__init__": making_layers.taking_old_arguments,
            "Layer.__call__": old_layers.taking_arguments_by_place,
            "BatchNormalization.__init__": old_models.choosing_no_kernel,
            "Constant.__call__": old_initializers.filling_in_order,
            "Loss.__call__": old_losses.refusing_means,
            "CompileLoss.__call__": old_losses.counting_as_compiled,
            # There, not on `Model`: `load_model` asks whether a model's `compile` is this one.
            "BaseTrainer.compile": old_models.taking_metrics_third,
            "Model.__bases__": old_models.OldModel,
            "Model.save": _saving,
            "Model.save_weights": functools.partial(weights.saving_to_any_name, save_weights_to_hdf5_group),
        },
    )
    old_metrics.adapt(keras.metrics.Metric)  # whose subclasses the program may have made before


install()
