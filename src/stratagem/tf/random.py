"""`tf.random`: random tensors."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    "Generator": "stratagem.tf.tensors.draws:Generator",
    "categorical": "stratagem.tf.tensors.draws:categorical",
    "experimental": "stratagem.tf.tensors.draws",
    "fold_in": "stratagem.tf.tensors.draws:stateless_fold_in",
    "gamma": "stratagem.tf.tensors.draws:gamma",
    "get_global_generator": "stratagem.tf.tensors.draws:get_global_generator",
    "normal": "stratagem.tf.tensors.draws:normal",
    "poisson": "stratagem.tf.tensors.draws:poisson",
    "set_global_generator": "stratagem.tf.tensors.draws:set_global_generator",
    "set_seed": "stratagem.tf.tensors.seeds:set_seed",
    "shuffle": "stratagem.tf.tensors.draws:shuffle",
    "split": "stratagem.tf.tensors.draws:stateless_split",
    "stateless_categorical": "stratagem.tf.tensors.draws:stateless_categorical",
    "stateless_normal": "stratagem.tf.tensors.draws:stateless_normal",
    "stateless_truncated_normal": "stratagem.tf.tensors.draws:stateless_truncated_normal",
    "stateless_uniform": "stratagem.tf.tensors.draws:stateless_uniform",
    "truncated_normal": "stratagem.tf.tensors.draws:truncated_normal",
    "uniform": "stratagem.tf.tensors.draws:uniform",
}
"""Where each name lives."""

__getattr__, __dir__ = lazy(__name__, _NAMES)
