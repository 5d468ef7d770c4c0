"""Variables in one place of a machine, computing on all its devices."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from stratagem.cluster.detect import count_workers
from stratagem.core.errors import UsageError
from stratagem.core.log import announce
from stratagem.mesh.described import mesh_on
from stratagem.mesh.device_names import device_name
from stratagem.mesh.mesh import Device
from stratagem.strategy.base import Strategy
from stratagem.strategy.devices import chosen_devices, device_names, named_device


class CentralStorageStrategy(Strategy):
    """Synchronous training on all devices of this machine, with variables and optimizer state in one place.

    Between steps the devices hold no variables. A step copies the variables that it reads to every device, sums the
    gradients over the devices, and applies the update where the variables are stored. Variables that only the optimizer
    reads are never copied. So you can train a model whose optimizer state does not fit beside its activations. The cost
    is the copying in each step.

    `steps_per_execution` changes logs and callbacks, but fuses no steps here. A function decorated by
    `stratagem.function` runs as Python around its `run`, which is compiled. The strategy is tested on virtual CPU
    devices, and has not run on GPUs.

    Source of the semantics:
    https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/CentralStorageStrategy

    Args:
        compute_devices: Names such as ["GPU:0", "GPU:1"], one for each replica; None means all accelerators, or all CPU
            devices if there are none.
        parameter_device: Name of the device that holds the variables and updates them. None means the memory of the
            host ("CPU:0"), or the accelerator if this machine has only one and `compute_devices` is not given.

    Raises:
        InputError: A device does not exist or is named twice.
        UsageError: This process is one of several workers.

    Example:
        >>> import stratagem
        >>> strategy = stratagem.CentralStorageStrategy(["cpu:0"])
        >>> strategy.extended.parameter_devices
        ('/job:localhost/replica:0/task:0/device:CPU:0',)
    """

    def __init__(
        self, compute_devices: Sequence[str | Device] | None = None, parameter_device: str | Device | None = None
    ) -> None:
        _check_one_machine()
        devices = chosen_devices(compute_devices)
        if parameter_device is None:
            only = compute_devices is None and len(devices) == 1
            parameter_device = devices[0] if only else "cpu:0"
        mesh = mesh_on(devices, named_device(parameter_device))
        super().__init__(mesh)
        announce(
            f"CentralStorageStrategy: {mesh.size} replica(s) on {device_names(mesh.devices)}, "
            f"variables on {device_name(mesh.centre)}"
        )


def _check_one_machine() -> None:
    workers = max(count_workers(), jax.process_count())
    if workers > 1:
        raise UsageError(
            f"CentralStorageStrategy was made on one of {workers} workers.",
            "It keeps variables on one machine: each worker would train a model of its own.",
            "Write strategy = stratagem.MultiWorkerMirroredStrategy(), or start a single worker.",
        )
