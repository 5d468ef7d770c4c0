"""The names by which TensorFlow programs choose how gradients are combined on one machine.

XLA compiles the sum of gradients for the devices at hand (NCCL on GPUs, shared memory on CPUs), so
there is nothing to choose. The classes exist because programs name them, and say so.
Source: https://www.tensorflow.org/api_docs/python/tf/distribute/CrossDeviceOps
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stratagem.core.errors import UnsupportedError


class CrossDeviceOps:
    """Base of the ways to combine values of several devices. Accepted without effect: XLA chooses."""


class NcclAllReduce(CrossDeviceOps):
    """All-reduce by NCCL, which XLA always uses on GPUs.

    Args:
        num_packs: Accepted as in TensorFlow. Gradients travel in one pack for each dtype.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = num_packs


class HierarchicalCopyAllReduce(CrossDeviceOps):
    """All-reduce along the tree of a DGX-1. Accepted without effect: XLA chooses.

    Args:
        num_packs: Accepted as in TensorFlow. Gradients travel in one pack for each dtype.
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = num_packs


class ReductionToOneDevice(CrossDeviceOps):
    """Copy to one device, add and broadcast. XLA uses all-reduce instead, with the same sums.

    Args:
        reduce_to_device: Accepted as in TensorFlow; no device is singled out.
        accumulation_fn: Function that adds the values of a list; None means `tf.add_n`.

    Raises:
        UnsupportedError: `accumulation_fn` does not add.
    """

    def __init__(
        self, reduce_to_device: str | None = None, accumulation_fn: Callable[[list[float]], Any] | None = None
    ) -> None:
        if accumulation_fn is not None and float(accumulation_fn([2.0, 3.0, 5.0])) != _SUM:
            raise UnsupportedError(
                f"ReductionToOneDevice was given accumulation_fn={accumulation_fn!r}, which does not add.",
                "XLA combines the values of the replicas, and adds them.",
                "Gather the values in replica context with replica_context.all_gather(value[None], axis=0), and "
                "combine them yourself.",
            )
        self.reduce_to_device = reduce_to_device


_SUM: Final = 10.0
"""The sum of what an accumulation function is tried on."""
