"""Switches of TensorFlow's runtime: what JAX has is set, the rest is accepted and said once.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/config
"""

from __future__ import annotations

import os
from typing import Any, Final

import jax

from stratagem.core.log import announce_once

_XLA_FLAGS: Final = "XLA_FLAGS"
_DETERMINISTIC: Final = "--xla_gpu_deterministic_ops=true"


def without_effect(name: str, why: str) -> None:
    """Say once that a call has no effect.

    Args:
        name: The call.
        why: The reason, as the end of a sentence.
    """
    announce_once(f"{name} has no effect: {why}.")


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Accept the switch, without effect: `tf.function` compiles, as `strategy.run` does.

    Args:
        run_eagerly: As in TensorFlow.
    """
    if run_eagerly:
        without_effect(
            "tf.config.run_functions_eagerly(True)", "functions are compiled; look at values with tf.print or jax.debug"
        )


def functions_run_eagerly() -> bool:
    """Return False: functions are compiled.

    Example:
        >>> functions_run_eagerly()
        False
    """
    return False


experimental_run_functions_eagerly = run_functions_eagerly
experimental_functions_run_eagerly = functions_run_eagerly


def set_soft_device_placement(enabled: bool) -> None:
    """Accept the switch: the strategy places everything."""


def get_soft_device_placement() -> bool:
    """Return True: nothing fails for where it is placed.

    Example:
        >>> get_soft_device_placement()
        True
    """
    return True


def experimental_connect_to_cluster(cluster_spec_or_resolver: Any, **options: Any) -> None:
    """Accept the call: a strategy connects to its cluster when it is made."""


def experimental_connect_to_host(remote_host: Any = None, job_name: str = "worker") -> None:
    """Accept the call: a strategy connects to its cluster when it is made."""


def enable_op_determinism() -> None:
    """Let XLA choose only operations that give the same result each time; on the CPU they do anyway.

    Call it at the top of the program, and `tf.keras.utils.set_random_seed`.
    """
    flags = os.environ.get(_XLA_FLAGS, "")
    if _DETERMINISTIC not in flags:
        os.environ[_XLA_FLAGS] = f"{flags} {_DETERMINISTIC}".strip()


def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Let products of float32 matrices be computed in TensorFloat-32 where the device has it, or not.

    Args:
        enabled: True, JAX's default, or False: all bits of float32.

    Example:
        >>> enable_tensor_float_32_execution(False)
        >>> tensor_float_32_execution_enabled()
        False
        >>> enable_tensor_float_32_execution(True)
    """
    jax.config.update("jax_default_matmul_precision", None if enabled else "float32")


def tensor_float_32_execution_enabled() -> bool:
    """Return whether TensorFloat-32 may be used."""
    config: Any = jax.config  # its flags are made at run time: a checker does not see them
    return config.jax_default_matmul_precision not in ("float32", "highest")


def set_synchronous_execution(enable: bool | None) -> None:
    """Accept the switch: JAX computes in the background, and waits where a value is read."""


def get_synchronous_execution() -> bool:
    """Return False: JAX computes in the background."""
    return False


def set_device_policy(device_policy: str | None) -> None:
    """Accept the switch: JAX moves arrays by itself."""


def get_device_policy() -> str:
    """Return "silent": JAX moves arrays by itself."""
    return "silent"


def enable_mlir_bridge() -> None:
    """Accept the switch of TensorFlow's compiler."""


def disable_mlir_bridge() -> None:
    """Accept the switch of TensorFlow's compiler."""
