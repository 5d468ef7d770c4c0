"""All devices of one machine."""

from __future__ import annotations

from collections.abc import Sequence

from stratagem.cluster.detect import count_workers
from stratagem.core.errors import InputError, explain
from stratagem.core.log import announce, logger
from stratagem.core.types import CommunicationOptions
from stratagem.mesh.described import mesh_on
from stratagem.mesh.layouts import LayoutMap, layouts_of
from stratagem.mesh.mesh import Device
from stratagem.mesh.shards import sharding_of
from stratagem.strategy.base import Strategy
from stratagem.strategy.cross_device import CrossDeviceOps
from stratagem.strategy.devices import check_groups, chosen_devices, device_names


class MirroredStrategy(Strategy):
    """Synchronous training on all devices of this machine, one replica on each.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/MirroredStrategy

    Args:
        devices: Names such as ["GPU:0", "GPU:1"]; None means all accelerators, or all CPU devices if there are none.
        cross_device_ops: Accepted as in TensorFlow (`NcclAllReduce`, `HierarchicalCopyAllReduce`,
            `ReductionToOneDevice`). XLA chooses how bytes travel; gradients of one dtype travel in one pack.
        shard: State that is divided among the devices between steps. "optimizer": the optimizer's slots (stage 1 of
            ZeRO). "gradients": accumulated gradients too (stage 2). "parameters": the weights too (stage 3, FSDP). None
            keeps the whole model on each device. See docs/sharding.md.
        shard_min_size: Least number of elements of a variable that is divided.
        layout_map: How weights are divided among the devices of each replica: "auto", Keras's
            `keras.distribution.LayoutMap`, or a dict of patterns of paths and axes, `{".*dense/kernel": (None,
            "model")}`.
        model_parallel: Number of devices of each replica; None means one, or the number in a `LayoutMap`.

    Raises:
        InputError: A device does not exist or is named twice, or `shard` is unknown.

    Example:
        >>> import stratagem
        >>> stratagem.MirroredStrategy(devices=["cpu:0"]).num_replicas_in_sync
        1
    """

    def __init__(
        self,
        devices: Sequence[str | Device] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        *,
        shard: str | None = None,
        shard_min_size: int | None = None,
        layout_map: LayoutMap | None = None,
        model_parallel: int | None = None,
    ) -> None:
        if cross_device_ops is not None and not isinstance(cross_device_ops, CrossDeviceOps):
            raise InputError(
                f"cross_device_ops is {cross_device_ops!r}.",
                "Write stratagem.NcclAllReduce(), or leave the argument out.",
            )
        chosen, layouts = chosen_devices(devices), layouts_of(layout_map, model_parallel)
        check_groups(chosen, layouts)
        mesh = mesh_on(chosen, model_parallel=1 if layouts is None else layouts.devices)
        self.cross_device_ops = cross_device_ops
        super().__init__(
            mesh,
            communication_options=CommunicationOptions(),
            sharding=sharding_of(shard, shard_min_size, mesh.size, layouts),
        )
        workers = count_workers()
        if workers > 1:
            logger.warning(
                explain(
                    f"MirroredStrategy was made on one of {workers} workers.",
                    "It uses the devices of one machine only: each worker trains a model of its own, and all write "
                    "the same files.",
                    "Write strategy = stratagem.MultiWorkerMirroredStrategy(), or start a single worker.",
                )
            )
        groups = "" if layouts is None else f" of {layouts.devices} devices each"
        announce(f"MirroredStrategy: {mesh.size} replica(s){groups} on {device_names(chosen)}")
