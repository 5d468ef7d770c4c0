"""New names of JAX: devices of a topology that is only described."""

from __future__ import annotations

import importlib.util
from typing import Any

from jax.experimental import topologies


def has_compiler(platform: str) -> bool:
    """Return whether XLA's compiler for a platform is installed.

    Args:
        platform: "gpu" or "tpu".
    """
    names = ("libtpu",) if platform == "tpu" else ("jax_cuda12_plugin", "jax_cuda13_plugin")
    return any(importlib.util.find_spec(name) is not None for name in names)


def tpu_devices(name: str) -> list[Any]:
    """Return the chips of a slice of TPUs.

    Args:
        name: Kind and shape: "v5e:4x4".
    """
    return list(topologies.get_topology_desc(platform="tpu", topology_name=name).devices)


def gpu_devices(target_config: str, hosts: int, per_host: int) -> list[Any]:
    """Return the GPUs of some hosts.

    Args:
        target_config: XLA's description of one GPU.
        hosts: Number of hosts.
        per_host: GPUs of each host.
    """
    described: Any = topologies.get_topology_desc(
        platform="cuda", topology_name="", topology=f"1x{hosts}x{per_host}", target_config=target_config
    )
    return list(described.devices)
