"""The devices of this process (`tf.config.list_physical_devices`, ...).

Asking does not start JAX: a strategy of several workers, and a number of virtual devices, must come before that.
Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/config
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from stratagem.cluster.compat import backends_started
from stratagem.cluster.resolver import visible_gpus
from stratagem.core import environment
from stratagem.core.described import described_devices
from stratagem.core.errors import InputError, UsageError
from stratagem.core.log import announce_once
from stratagem.testing.devices import virtual_devices
from stratagem.tf.config.compat import tpu_chips


class PhysicalDevice(NamedTuple):
    """A device of the machine (`tf.config.PhysicalDevice`): "/physical_device:GPU:0", "GPU"."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """A device that programs run on (`tf.config.LogicalDevice`): "/device:CPU:0", "CPU"."""

    name: str
    device_type: str


class LogicalDeviceConfiguration:
    """One logical device of a physical one (`tf.config.LogicalDeviceConfiguration`).

    Args:
        memory_limit: In MB. It has no effect, because JAX has no limit for a device.
        experimental_priority: Accepted as in TensorFlow.
        experimental_device_ordinal: Accepted as in TensorFlow.

    Example:
        >>> LogicalDeviceConfiguration(memory_limit=1024).memory_limit
        1024
    """

    def __init__(
        self,
        memory_limit: float | None = None,
        experimental_priority: int | None = None,
        experimental_device_ordinal: int | None = None,
    ) -> None:
        self.memory_limit = memory_limit


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the devices of this machine.

    Args:
        device_type: "CPU", "GPU" or "TPU"; None for all.

    Example:
        >>> list_physical_devices("CPU")
        [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """
    counts = {"CPU": 1, "GPU": count_devices("GPU"), "TPU": count_devices("TPU")}
    return [
        PhysicalDevice(f"/physical_device:{kind}:{index}", kind)
        for kind, count in counts.items()
        for index in range(count)
        if device_type in (None, kind)
    ]


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Return the devices that a strategy may use.

    Args:
        device_type: "CPU", "GPU" or "TPU"; None for all.

    Example:
        >>> list_logical_devices("CPU")[0].name
        '/device:CPU:0'
    """
    return [
        LogicalDevice(f"/device:{kind}:{index}", kind)
        for kind in ("CPU", "GPU", "TPU")
        for index in range(count_devices(kind))
        if device_type in (None, kind)
    ]


def list_local_devices(session_config: Any = None) -> list[LogicalDevice]:
    """Return the devices of this process (`device_lib.list_local_devices`), as `list_logical_devices` does.

    Args:
        session_config: Accepted as in TensorFlow. It has no effect, because there are no sessions.

    Example:
        >>> [device.name for device in list_local_devices() if device.device_type == "CPU"][:1]
        ['/device:CPU:0']
    """
    return list_logical_devices()


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the devices of this machine that the process may use."""
    return list_physical_devices(device_type)


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Use only some devices.

    Args:
        devices: One or several devices of `list_physical_devices`; an empty list hides a kind.
        device_type: "GPU" or "CPU"; None for all kinds.

    Raises:
        InputError: The call would hide the CPU.
        UsageError: JAX has already started with other devices.

    Example:
        >>> set_visible_devices([], "GPU")
    """
    shown = [devices] if isinstance(devices, PhysicalDevice) else list(devices or [])
    chosen = [device.name.rpartition(":")[2] for device in shown if device.device_type == "GPU"]
    if device_type == "CPU":
        if not shown:
            raise InputError(
                "set_visible_devices([], 'CPU') was called.",
                "The program itself runs on the CPU.",
                "Leave the line out; name the devices of a strategy instead: MirroredStrategy(['GPU:0']).",
            )
        return
    if len(chosen) == count_devices("GPU") or described_devices() is not None:
        return
    _before_start("set_visible_devices")
    if chosen:
        visible = visible_gpus(os.environ)
        os.environ[environment.CUDA_VISIBLE_DEVICES] = ",".join(visible[int(index)] for index in chosen)
    else:
        jax.config.update("jax_platforms", "cpu")


def set_logical_device_configuration(
    device: PhysicalDevice, logical_devices: Sequence[LogicalDeviceConfiguration] | None
) -> None:
    """Make several devices of the CPU, to try strategies without accelerators.

    Args:
        device: The CPU. JAX makes one device of a GPU.
        logical_devices: One configuration for each device.

    Raises:
        InputError: Several devices of one GPU were asked for, or no devices at all.
        UsageError: JAX has already started with another number of devices.

    Example:
        >>> cpu, = list_physical_devices("CPU")
        >>> set_logical_device_configuration(cpu, [LogicalDeviceConfiguration()] * 4)
        >>> [device.name for device in list_logical_devices("CPU")]
        ['/device:CPU:0', '/device:CPU:1', '/device:CPU:2', '/device:CPU:3']
    """
    wanted = list(logical_devices or [LogicalDeviceConfiguration()])
    if device.device_type == "CPU":
        virtual_devices(len(wanted))
    elif len(wanted) > 1:
        raise InputError(
            f"set_logical_device_configuration was asked to make {len(wanted)} devices of {device.name}.",
            "JAX makes one device of a GPU. Several replicas cannot share it.",
            "Try several replicas on the CPU: set_logical_device_configuration("
            "tf.config.list_physical_devices('CPU')[0], [tf.config.LogicalDeviceConfiguration()] * 2).",
        )
    elif wanted[0].memory_limit is not None:
        announce_once(
            "tf.config: JAX has no memory limit for a device; memory_limit has no effect. "
            "XLA_PYTHON_CLIENT_MEM_FRACTION=.5 in the environment limits a process."
        )


def get_logical_device_configuration(device: PhysicalDevice) -> list[LogicalDeviceConfiguration] | None:
    """Return one configuration for each device that was made of the CPU; None if nothing was set."""
    count = count_devices("CPU") if device.device_type == "CPU" else 1
    return [LogicalDeviceConfiguration() for _ in range(count)] if count > 1 else None


def count_devices(kind: str) -> int:
    """Return how many devices of a kind JAX has, or will have."""
    described = described_devices()
    if described is not None:
        return sum(device.platform.upper() == kind for device in described) or int(kind == "CPU")
    config: Any = jax.config  # its flags are made at run time: a checker does not see them
    platforms = config.jax_platforms or ""
    if backends_started():
        try:
            return jax.local_device_count(kind.lower())
        except RuntimeError:  # no such platform here
            return 0
    if kind == "CPU":
        return max(1, config.jax_num_cpu_devices)
    if platforms and not {kind.lower(), "cuda" if kind == "GPU" else kind.lower()} & set(platforms.split(",")):
        return 0
    if kind == "TPU":
        return tpu_chips()
    return len(visible_gpus(os.environ)) if drives_gpus() else 0


def drives_gpus() -> bool:
    """Return whether the part of JAX for NVIDIA GPUs is installed."""
    return any(importlib.util.find_spec(f"jax_{plugin}") is not None for plugin in ("cuda12_plugin", "cuda13_plugin"))


def _before_start(what: str) -> None:
    if backends_started() and described_devices() is None:
        raise UsageError(
            f"tf.config.{what} was called after JAX had started.",
            "JAX fixes its devices at the first operation; the program would go on with the old ones.",
            "Call it at the top of the program, before anything computes.",
        )
