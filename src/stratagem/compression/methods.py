"""Methods of compression, and the one that a strategy's options ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jax

from stratagem.compression.low_rank import LowRankSums
from stratagem.compression.quantised import BF16, INT8, QuantisedSums
from stratagem.compression.residuals import Slot
from stratagem.core.types import CommunicationOptions
from stratagem.mesh.mesh import ReplicaMesh


class Compression(Protocol):
    """Sums over replicas of gradients that travel in fewer bytes. What is left out comes with the next step."""

    def slots(self, shape: Sequence[int]) -> list[Slot]:
        """Return the slots of a gradient of float32; none if it travels as it is.

        Args:
            shape: Its shape.
        """
        ...

    def sum(
        self, values: Sequence[jax.Array], kept: Sequence[Sequence[jax.Array]], pack_bytes: int | None
    ) -> tuple[list[jax.Array], list[list[jax.Array]]]:
        """Sum gradients over all replicas. Only inside a step on the mesh.

        Args:
            values: This replica's gradients, the same shapes and dtypes on all.
            kept: The slots of each, as the last step left them; those without travel as they are.
            pack_bytes: Largest size of a pack of float32, as in `sum_over_replicas`.

        Returns:
            The sums, bit by bit the same on every replica, and the slots for the next step.
        """
        ...


def compression_of(mesh: ReplicaMesh, options: CommunicationOptions) -> Compression | None:
    """Return the compression that options ask for; None where nothing is compressed, or nothing travels.

    Args:
        mesh: The replicas.
        options: The strategy's.
    """
    if options.compression is None or mesh.size == 1:
        return None
    if options.compression == "powersgd":
        return LowRankSums(options.rank)
    codec = BF16 if options.compression == "bf16" else INT8
    # Between two replicas the bytes are the same either way, and in memory they cost next to nothing.
    in_memory = mesh.memory is not None and mesh.memory.hosts.number == 1
    return QuantisedSums(codec, mesh.size, direct=mesh.size == 2 or in_memory)
