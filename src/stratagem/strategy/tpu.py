"""All cores of the TPUs that this process sees, or of a TPU pod slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stratagem.core.errors import UsageError
from stratagem.core.log import announce
from stratagem.mesh.described import mesh_on
from stratagem.mesh.layouts import LayoutMap, layouts_of
from stratagem.mesh.mesh import Device
from stratagem.mesh.shards import sharding_of
from stratagem.strategy.base import Strategy
from stratagem.strategy.devices import check_groups, devices_of_all_workers


class TPUStrategy(Strategy):
    """Synchronous training on TPU cores, one replica on each.

    It uses the same code as the other strategies. Its steps are compiled for TPUs (docs/hardware.md), but have run only
    on CPU devices.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/distribute/TPUStrategy

    Args:
        tpu_cluster_resolver: Accepted as in TensorFlow. JAX finds the TPUs.
        experimental_device_assignment: Accepted as in TensorFlow; must be None.
        shard: State that is divided among the devices between steps. "optimizer": the optimizer's slots (stage 1 of
            ZeRO). "gradients": accumulated gradients too (stage 2). "parameters": the weights too (stage 3, FSDP). None
            keeps the whole model on each device. See docs/sharding.md.
        shard_min_size: Least number of elements of a variable that is divided.
        layout_map: How weights are divided among the devices of each replica: "auto", Keras's
            `keras.distribution.LayoutMap`, or a dict of patterns of paths and axes, `{".*dense/kernel": (None,
            "model")}`.
        model_parallel: Number of devices of each replica; None means one, or the number in a `LayoutMap`.
        devices: Function that lists all devices of all workers; for tests.

    Raises:
        UsageError: JAX finds no TPU, or a device assignment was given.
    """

    def __init__(
        self,
        tpu_cluster_resolver: Any = None,
        experimental_device_assignment: Any = None,
        *,
        shard: str | None = None,
        shard_min_size: int | None = None,
        layout_map: LayoutMap | None = None,
        model_parallel: int | None = None,
        devices: Callable[[], Sequence[Device]] = devices_of_all_workers,
    ) -> None:
        if experimental_device_assignment is not None:
            raise UsageError(
                "experimental_device_assignment was given.",
                "In Stratagem another argument groups cores into replicas.",
                "Leave the argument out; write model_parallel=2 for replicas of two cores.",
            )
        tpus = [device for device in devices() if device.platform == "tpu"]
        if not tpus:
            raise UsageError(
                "TPUStrategy was made, and JAX sees no TPU.",
                "Training would run on the CPU without saying so.",
                "Install jax[tpu] on a TPU VM, or use MirroredStrategy here.",
            )
        tpus.sort(key=lambda device: (device.process_index, device.id))
        layouts = layouts_of(layout_map, model_parallel)
        check_groups(tpus, layouts)
        mesh = mesh_on(tpus, model_parallel=1 if layouts is None else layouts.devices)
        super().__init__(
            mesh,
            cluster_resolver=tpu_cluster_resolver,
            sharding=sharding_of(shard, shard_min_size, mesh.size, layouts),
            worker_count=len({device.process_index for device in tpus}),
            worker_index=mesh.devices[mesh.local_replicas[0]].process_index,
        )
        announce(f"TPUStrategy: {mesh.size} replica(s), {self.worker_count} worker(s)")
