"""Memory of the accelerators (`tf.config.experimental.set_memory_growth`, ...)."""

from __future__ import annotations

import os
from typing import Any, Final

from stratagem.cluster.compat import backends_started
from stratagem.core.described import described_devices
from stratagem.core.errors import UsageError
from stratagem.strategy.devices import named_device
from stratagem.tf.config.devices import PhysicalDevice

_PREALLOCATE: Final = "XLA_PYTHON_CLIENT_PREALLOCATE"


def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
    """Take the memory of GPUs when it is needed, instead of most of it at the start. This applies to all GPUs.

    Args:
        device: One of `list_physical_devices("GPU")`.
        enable: Whether to do so.

    Raises:
        UsageError: JAX has already started, and taken the memory.
    """
    wanted = "false" if enable else "true"
    if os.environ.get(_PREALLOCATE) == wanted or device.device_type != "GPU":
        return
    if backends_started() and described_devices() is None:
        raise UsageError(
            "set_memory_growth was called after JAX had started.",
            "JAX has already taken the memory.",
            f"Call it at the top of the program, or set {_PREALLOCATE}={wanted} in the environment.",
        )
    os.environ[_PREALLOCATE] = wanted


def get_memory_growth(device: PhysicalDevice) -> bool:
    """Return whether memory is taken when it is needed.

    Example:
        >>> get_memory_growth(PhysicalDevice("/physical_device:CPU:0", "CPU"))
        True
    """
    return device.device_type != "GPU" or os.environ.get(_PREALLOCATE, "true") in ("false", "0")


def get_memory_info(device: str) -> dict[str, int]:
    """Return the bytes in use on a device, `current` and `peak`; zeros if JAX does not count, as on the CPU.

    Args:
        device: "GPU:0".
    """
    found = named_device(device).memory_stats() or {}
    return {"current": found.get("bytes_in_use", 0), "peak": found.get("peak_bytes_in_use", 0)}


def get_memory_usage(device: str) -> int:
    """Return the bytes in use on a device."""
    return get_memory_info(device)["current"]


def reset_memory_stats(device: str) -> None:
    """Raise an error: JAX counts the peak from the start of the process.

    Raises:
        UsageError: Always.
    """
    raise UsageError(
        f"reset_memory_stats({device!r}) was called.",
        "JAX measures the peak from the start of the process, and cannot begin a new measurement.",
        "Compare get_memory_info(device)['peak'] before and after.",
    )


def get_device_details(device: PhysicalDevice) -> dict[str, Any]:
    """Return `device_name`, and `compute_capability` of a GPU; nothing for the CPU. This starts JAX.

    Example:
        >>> get_device_details(PhysicalDevice("/physical_device:CPU:0", "CPU"))
        {}
    """
    if device.device_type == "CPU":
        return {}
    found = named_device(device.name.removeprefix("/physical_device:"))
    details: dict[str, Any] = {"device_name": found.device_kind}
    capability = getattr(found, "compute_capability", None)
    if capability is not None:
        details["compute_capability"] = tuple(int(part) for part in str(capability).split("."))
    return details
