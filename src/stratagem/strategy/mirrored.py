"""All devices of one machine."""

from __future__ import annotations

from collections.abc import Sequence

from stratagem.cluster.detect import count_workers
from stratagem.core.errors import InputError, explain
from stratagem.core.log import announce, logger
from stratagem.core.types import CommunicationOptions
from stratagem.mesh.described import mesh_on
from stratagem.mesh.mesh import Device
from stratagem.strategy.base import Strategy
from stratagem.strategy.cross_device import CrossDeviceOps
from stratagem.strategy.devices import chosen_devices, device_names


class MirroredStrategy(Strategy):
    """Synchronous training on all devices of this machine, one replica on each.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/MirroredStrategy

    Args:
        devices: Names such as ["GPU:0", "GPU:1"]; None means all accelerators, or all CPU devices
            where there is none.
        cross_device_ops: Accepted as in TensorFlow (`NcclAllReduce`, `HierarchicalCopyAllReduce`,
            `ReductionToOneDevice`). XLA chooses how bytes travel; gradients of one dtype travel in one pack.

    Raises:
        InputError: A device is not here or is named twice.

    Example:
        >>> import stratagem
        >>> stratagem.MirroredStrategy(devices=["cpu:0"]).num_replicas_in_sync
        1
    """

    def __init__(
        self,
        devices: Sequence[str | Device] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
    ) -> None:
        if cross_device_ops is not None and not isinstance(cross_device_ops, CrossDeviceOps):
            raise InputError(
                f"cross_device_ops is {cross_device_ops!r}.",
                "Write stratagem.NcclAllReduce(), or leave the argument out.",
            )
        mesh = mesh_on(chosen_devices(devices))
        self.cross_device_ops = cross_device_ops
        super().__init__(mesh, communication_options=CommunicationOptions())
        workers = count_workers()
        if workers > 1:
            logger.warning(
                explain(
                    f"MirroredStrategy was made on one of {workers} workers.",
                    "It knows this machine alone: each worker trains a model of its own, and all write the same files.",
                    "Write strategy = stratagem.MultiWorkerMirroredStrategy(), or start a single worker.",
                )
            )
        announce(f"MirroredStrategy: {mesh.size} replica(s) on {device_names(mesh.devices)}")
