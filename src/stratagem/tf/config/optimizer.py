"""`tf.config.optimizer`: switches of TensorFlow's graph optimizer, which is not here; XLA compiles everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stratagem.core.log import announce_once
from stratagem.tf.namespace import explaining


def set_jit(enabled: bool | str) -> None:
    """Accept the switch: XLA compiles everything, whatever it says.

    Args:
        enabled: True, False or "autoclustering".
    """
    if not enabled:
        announce_once("tf.config.optimizer.set_jit(False) has no effect: XLA compiles everything.")


def get_jit() -> str:
    """Return "autoclustering": XLA compiles everything.

    Example:
        >>> get_jit()
        'autoclustering'
    """
    return "autoclustering"


def set_experimental_options(options: Mapping[str, Any]) -> None:
    """Accept options of TensorFlow's graph optimizer.

    Args:
        options: As in TensorFlow.
    """
    announce_once("tf.config.optimizer.set_experimental_options has no effect: XLA optimizes by rules of its own.")


def get_experimental_options() -> dict[str, Any]:
    """Return no options: there are none.

    Example:
        >>> get_experimental_options()
        {}
    """
    return {}


__getattr__ = explaining(__name__)
