"""Devices of a strategy, by the names that the user wrote."""

from __future__ import annotations

import collections
import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax

from stratagem.core import patches
from stratagem.core.described import described_devices
from stratagem.core.environment import JAX_PLATFORMS
from stratagem.core.errors import InputError, UsageError
from stratagem.core.freed_memory import keep_freed_memory_for_cpu
from stratagem.mesh.device_names import device_name
from stratagem.mesh.layouts import Layouts
from stratagem.mesh.mesh import Device

_NAME = re.compile(r"(?:.*/)?(?:(?:physical_)?device:)?(?P<kind>[a-z]+)(?::(?P<index>\d+))?", re.IGNORECASE)


_INSTALLED: Final = {"gpu": "jax[cuda12]", "cuda": "jax[cuda12]", "rocm": "jax[rocm]", "tpu": "jax[tpu]"}
"""The extra of JAX that each kind of accelerator needs."""


def local_devices() -> list[Device]:
    """Return this process's accelerators; its CPU devices where it has none.

    Raises:
        UsageError: JAX_PLATFORMS asks for devices that this machine, or this JAX, does not have.
    """
    keep_freed_memory_for_cpu()
    described = described_devices()
    if described is not None:
        return list(described)
    try:
        return list(jax.local_devices())
    except (RuntimeError, AssertionError) as error:  # the latter for JAX_PLATFORMS=cuda without a plugin
        asked = os.environ.get(JAX_PLATFORMS)
        if not asked:
            raise
        cause = f": {error}" if str(error) else "."
        raise UsageError(
            f"{JAX_PLATFORMS} is {asked!r}, and JAX cannot start such devices here{cause}",
            f"Install JAX for them, for instance pip install 'jax[cuda12]'; or set {JAX_PLATFORMS}=cpu, or leave it "
            "out.",
        ) from None


def devices_of_all_workers() -> list[Device]:
    """Return the devices of all workers, in the order of replicas."""
    found = described_devices() or jax.devices()
    return sorted(found, key=lambda device: (device.process_index, device.id))


def named_device(name: str | Device) -> Device:
    """Return the local device of a name.

    Args:
        name: "cpu:0", "GPU:1", "/gpu:0", "/device:CPU:1", "/job:localhost/.../device:GPU:0", or a
            `jax.Device`, or what `tf.config` lists. Without a number it is the first of its kind.

    Raises:
        InputError: There is no such device here.
    """
    if isinstance(name, jax.Device):
        return name
    name = getattr(name, "name", name) if hasattr(name, "device_type") else name
    if not isinstance(name, str):
        raise InputError(f"A device is named {name!r}, of type {type(name).__name__}.", 'Write its name: "GPU:0".')
    match = _NAME.fullmatch(name.strip())
    devices = _devices_of(match["kind"]) if match else []
    if match is not None and not devices and match["kind"].lower() in _INSTALLED:
        raise InputError(
            f"Device {name!r} was asked for, and JAX finds no {match['kind'].upper()} on this machine.",
            f"Install JAX for it: pip install '{_INSTALLED[match['kind'].lower()]}'. `nvidia-smi` shows whether the "
            "system sees a GPU. Without one, leave the devices out.",
        )
    index = int(match["index"] or 0) if match else 0
    if index >= len(devices):
        here = ", ".join(f"{device.platform.upper()}:{i}" for i, device in enumerate(local_devices()))
        raise InputError(
            f"Device {name!r} was asked for; this process has {here}.",
            "Name a device that is here. For several CPU devices call "
            f"stratagem.testing.virtual_devices({index + 1 if match else 2}) before anything else.",
        )
    return devices[index]


def _devices_of(kind: str) -> list[Device]:
    keep_freed_memory_for_cpu()
    described = described_devices()
    if described is not None and described[0].platform == {"cuda": "gpu"}.get(kind.lower(), kind.lower()):
        return list(described)
    try:
        return list(jax.local_devices(backend=kind.lower()))
    except RuntimeError:  # no such platform here
        return []


def chosen_devices(devices: Sequence[str | Device] | None) -> list[Device]:
    """Return the devices of a one-process strategy.

    Args:
        devices: Names or devices; None means all accelerators, or all CPU devices without any.

    Raises:
        InputError: The list is empty or names a device twice.
    """
    if devices is None:
        return local_devices()
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise InputError(
            f"devices is {devices!r}, of type {type(devices).__name__}.",
            'Write a list of names: devices=["GPU:0", "GPU:1"]. To make several CPU devices, call '
            "stratagem.testing.virtual_devices(2) before anything else.",
        )
    found = [named_device(device) for device in devices]
    if not found or len(set(found)) < len(found):
        raise InputError(
            f"devices is {list(devices)!r}.",
            "A strategy needs at least one device, and runs one replica on each.",
            'Name each device once, for example devices=["GPU:0", "GPU:1"], or leave the argument out.',
        )
    return found


def check_groups(devices: Sequence[Device], layouts: Layouts | None) -> None:
    """See that the devices of each process make whole groups, one for each replica.

    Args:
        devices: Of all processes.
        layouts: What is divided among the devices of a replica; None where it has one.

    Raises:
        InputError: They do not.
    """
    if layouts is None:
        return
    for process, count in collections.Counter(device.process_index for device in devices).items():
        if count % layouts.devices:
            here = f"Worker {process} has" if jax.process_count() > 1 else "This machine has"
            raise InputError(
                f"{here} {count} {devices[0].platform.upper()} device(s); model_parallel is {layouts.devices}.",
                "All devices of a replica must be on one worker, and each device belongs to one replica.",
                f"Choose a number that divides {count}. To make several CPU devices, call "
                "stratagem.testing.virtual_devices(4) before anything else.",
            )


def device_names(devices: Sequence[Device]) -> str:
    """Return devices as logs show them: `CPU:0, CPU:1`."""
    return ", ".join(map(device_name, devices))


def install() -> None:
    """Replace what `core.patches` lists. A second call does nothing."""
    patches.install(__name__, {"device_scope": _of_this_worker})


def _of_this_worker(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap `keras.device`: names are those of this process's devices, also inside Keras ("cpu" in its image folders).

    Keras takes the first of all processes, whose arrays no other process can read.
    """

    @functools.wraps(original)
    def device_scope(device_name: Any) -> Any:
        if isinstance(device_name, str):
            device_name = named_device(device_name if ":" in device_name else f"{device_name}:0")
        if isinstance(device_name, jax.Device) and device_name.process_index != jax.process_index():
            raise InputError(
                f"keras.device was given {device_name}, a device of process {device_name.process_index}; this is "
                f"process {jax.process_index()}.",
                "This process could not read the arrays that are made there.",
                f'Write keras.device("{device_name.platform}:0") for the first device of each worker, or choose from '
                "jax.local_devices().",
            )
        return original(device_name)

    return device_scope
