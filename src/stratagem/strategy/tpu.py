"""All cores of the TPUs that this process sees, or of a TPU pod slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stratagem.core.errors import UsageError
from stratagem.core.log import announce
from stratagem.mesh.described import mesh_on
from stratagem.mesh.mesh import Device
from stratagem.strategy.base import Strategy
from stratagem.strategy.devices import devices_of_all_workers


class TPUStrategy(Strategy):
    """Synchronous training on TPU cores, one replica on each.

    The mesh code is that of the other strategies. No TPU was at hand when this was written: its steps are compiled for
    TPUs (docs/hardware.md), and have run on CPU devices.
    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/TPUStrategy

    Args:
        tpu_cluster_resolver: Accepted as in TensorFlow. JAX finds the TPUs by itself.
        experimental_device_assignment: Accepted as in TensorFlow; must be None.
        devices: Function that lists all devices of all workers; for tests.

    Raises:
        UsageError: There is no TPU, or a device assignment was given.
    """

    def __init__(
        self,
        tpu_cluster_resolver: Any = None,
        experimental_device_assignment: Any = None,
        *,
        devices: Callable[[], Sequence[Device]] = devices_of_all_workers,
    ) -> None:
        if experimental_device_assignment is not None:
            raise UsageError(
                "experimental_device_assignment was given.",
                "Cores grouped into logical devices are not supported; every core is a replica.",
                "Leave the argument out.",
            )
        tpus = [device for device in devices() if device.platform == "tpu"]
        if not tpus:
            raise UsageError(
                "TPUStrategy was made, and JAX sees no TPU.",
                "Training would run on the CPU without saying so.",
                "Install jax[tpu] on a TPU VM, or use MirroredStrategy here.",
            )
        tpus.sort(key=lambda device: (device.process_index, device.id))
        mesh = mesh_on(tpus)
        super().__init__(
            mesh,
            cluster_resolver=tpu_cluster_resolver,
            worker_count=len({device.process_index for device in tpus}),
            worker_index=tpus[mesh.local_replicas[0]].process_index,
        )
        announce(f"TPUStrategy: {mesh.size} replica(s), {self.worker_count} worker(s)")
