"""Full names as in `stratagem.tf`: `tf.keras.layers.Dense`, however a program imports it."""

from __future__ import annotations

import re
from typing import Final

from stratagem.migrate.modules import Presence, constant, presence, public_names
from stratagem.tf import missing

_ROOTS: Final = {"tensorflow": "tf", "stratagem.tf": "tf", "tf_keras": "tf.keras", "keras": "tf.keras"}
"""The packages whose names `stratagem.tf` has, and where."""

_MOVED: Final = {
    "tf._api.v2": "tf",
    "tf.python.keras": "tf.keras",
    "tf.contrib.cluster_resolver": "tf.distribute.cluster_resolver",
    "tf.contrib.data": "tf.data.experimental",
    "tf.contrib.distribute": "tf.distribute",
    "tf.contrib.estimator": "tf.estimator.experimental",
    "tf.contrib.keras": "tf.keras",
    "tf.contrib.summary": "tf.summary",
    "tf.initializers": "tf.keras.initializers",
    "tf.losses": "tf.keras.losses",
    "tf.metrics": "tf.keras.metrics",
    "tf.optimizers": "tf.keras.optimizers",
    "tf.constant_initializer": "tf.keras.initializers.Constant",
    "tf.ones_initializer": "tf.keras.initializers.Ones",
    "tf.random_normal_initializer": "tf.keras.initializers.RandomNormal",
    "tf.random_uniform_initializer": "tf.keras.initializers.RandomUniform",
    "tf.zeros_initializer": "tf.keras.initializers.Zeros",
    "tf": "tf.compat.v1",
}
"""Modules to search for names that a module lacks; the last is for names of TensorFlow 1."""

_INNER: Final = re.compile(
    r"(tf\.keras\.(?:callbacks|layers|losses|metrics|models|optimizers|utils))\.[a-z_]\w*(\.\w+)"
)
"""A module inside a module of Keras 2: `tf.keras.utils.np_utils.to_categorical`."""


def package_of(module: str) -> str | None:
    """Return the package of TensorFlow or Keras that a module belongs to, or None if it belongs to neither.

    Example:
        >>> package_of("tensorflow.keras.layers"), package_of("tensorflow_datasets")
        ('tensorflow', None)
    """
    return next((root for root in _ROOTS if module == root or module.startswith(f"{root}.")), None)


def canonical(name: str) -> str | None:
    """Return a name of TensorFlow or Keras as programs with `stratagem.tf` write it; None for other names.

    Example:
        >>> canonical("tensorflow.keras.layers.Dense"), canonical("tf_keras.Model"), canonical("numpy.zeros")
        ('tf.keras.layers.Dense', 'tf.keras.Model', None)
    """
    root = package_of(name)
    return None if root is None else _ROOTS[root] + name.removeprefix(root)


def without_version(name: str) -> str:
    """Return a name as the tables of changes list it: `tf.compat.v2` is `tf`.

    Example:
        >>> without_version("tf.compat.v2.keras.layers.Dense")
        'tf.keras.layers.Dense'
    """
    return re.sub(r"^tf\.compat\.v2\b", "tf", name)


def is_there(name: str) -> Presence:
    """Return whether `stratagem.tf` has a name.

    Example:
        >>> is_there("tf.function"), is_there("tf.contrib.slim")
        (<Presence.PRESENT: 1>, <Presence.ABSENT: 2>)
    """
    _, *path = name.split(".")
    return presence("stratagem.tf", path) if path else Presence.PRESENT


def moved(name: str) -> str | None:
    """Return the new place of a name that does not exist here, or None if it has none.

    Example:
        >>> moved("tf.contrib.distribute.MirroredStrategy")
        'tf.distribute.MirroredStrategy'
    """
    if is_there(name) is not Presence.ABSENT:
        return None
    others = [new + name.removeprefix(old) for old, new in _MOVED.items() if f"{name}.".startswith(f"{old}.")]
    if (inner := _INNER.fullmatch(name)) is not None:
        others.append(inner[1] + inner[2])
    return next((other for other in others if is_there(other) is not Presence.ABSENT), None)


def repair(name: str) -> str:
    """Return what to write instead of a name that does not exist here.

    Example:
        >>> repair("tf.data.Datset")
        'Did you mean tf.data.Dataset?'
    """
    if (other := moved(name)) is not None:
        return f"Write {other}."
    module, _, leaf = name.rpartition(".")
    if module == "tf.data.Dataset" and leaf in (
        methods := constant("stratagem.data.missing_methods", "_INSTEAD") or {}
    ):
        return methods[leaf]
    return missing.repair(name, public_names(f"stratagem.{module}"))
