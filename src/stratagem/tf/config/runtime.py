"""Switches of TensorFlow's runtime: those that JAX has are set, the others are accepted and reported once.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/config
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import jax

from stratagem.cluster.compat import backends_started
from stratagem.core import environment
from stratagem.core.log import announce_once

_XLA_FLAGS: Final = "XLA_FLAGS"
_DETERMINISTIC: Final = "--xla_gpu_deterministic_ops=true"


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Accept the switch, without effect: `tf.function` compiles, as `strategy.run` does.

    Args:
        run_eagerly: As in TensorFlow.
    """
    if run_eagerly:
        announce_once(
            "tf.config.run_functions_eagerly(True) has no effect: functions are compiled; look at values with tf.print "
            "or jax.debug."
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
    """Return True: no operation fails because of its place.

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
    """Let XLA choose only operations that give the same result each time. On the CPU all operations do.

    Call it at the top of the program, together with `tf.keras.utils.set_random_seed`.
    """
    flags = os.environ.get(_XLA_FLAGS, "")
    if _DETERMINISTIC not in flags:
        os.environ[_XLA_FLAGS] = f"{flags} {_DETERMINISTIC}".strip()


def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Allow or forbid TensorFloat-32 for products of float32 matrices, on devices that have it.

    Args:
        enabled: True, which is JAX's default; or False, to use all bits of float32.

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
    """Accept the switch: JAX computes in the background, and waits when a value is read."""


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


def set_jit(enabled: bool | str) -> None:
    """Accept the switch, without effect: XLA compiles everything.

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
    announce_once("tf.config.optimizer.set_experimental_options has no effect: XLA optimizes by its own rules.")


def get_experimental_options() -> dict[str, Any]:
    """Return an empty dictionary: there are no options.

    Example:
        >>> get_experimental_options()
        {}
    """
    return {}


def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Accept the number: XLA has one pool of threads, whose size `set_intra_op_parallelism_threads` sets."""
    announce_once("tf.config.threading.set_inter_op_parallelism_threads has no effect: XLA has one pool of threads.")


def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Set the number of threads with which XLA computes on the CPU; 0 means one for each core.

    Call it at the top of the program: it has no effect after JAX has started.

    Args:
        num_threads: The number of threads.
    """
    if num_threads > 0 and not backends_started():
        os.environ[environment.THREAD_COUNTS[0]] = str(num_threads)
    elif num_threads > 0:
        announce_once(
            "tf.config.threading.set_intra_op_parallelism_threads was called after JAX had started; it has no effect."
        )


def get_inter_op_parallelism_threads() -> int:
    """Return 0: the runtime decides.

    Example:
        >>> get_inter_op_parallelism_threads()
        0
    """
    return 0


def get_intra_op_parallelism_threads() -> int:
    """Return the number of threads with which XLA computes on the CPU; 0 means one for each core of the process.

    Example:
        >>> get_intra_op_parallelism_threads() >= 0
        True
    """
    return int(os.environ.get(environment.THREAD_COUNTS[0], "0"))
