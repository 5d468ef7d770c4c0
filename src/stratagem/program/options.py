"""Options that XLA compiles a step with, and packs of gradients, where its own choice was found to be worse.

GPUs: XLA puts sums of up to 30 MB together, and begins such a sum when the last gradient of it is there. So a step ends
with sums that nothing computes beside. Packs of 6 MB, from the last layers to the first, begin earlier, and fewer bytes
are copied together. Compiled for 8 H100s, 2026-11-27, JAX 0.10.2, bytes of gradients that cross while the backward pass
computes, and bytes that the step moves through memory:

| network                                    | XLA's choice | packs of 6 MB |
| ------------------------------------------ | ------------ | ------------- |
| ResNet-50, 224 px, 64 rows, mixed bfloat16 | 45%, 34.6 GB | 91%, 29.5 GB  |
| GPT-2's blocks, 256 tokens, 4 rows         | 62%, 17.3 GB | 77%, 11.1 GB  |

The other sums cross beside the update of weights whose gradients are there. An update that waits for all sums
(`lax.optimization_barrier`) brings GPT-2's blocks to 94%, and its step to 8.1 ms at best where it is 7.8, by the
compiler's figures: nothing is left to hide the last sum.

Of sums in shards XLA puts together what is up to 30 MB after it was divided: with 8 GPUs 240 MB of gradients, which
are whole until then. So such packs are left as they are. 25 million weights, Adam (`benchmarks/shards_compiled.py`),
what is temporary in a step: with shard="optimizer" 115 MB where XLA chooses and 22 so, with "parameters" 44 and 32.

Nobody has run it on several GPUs yet (docs/hardware.md).

CPUs: XLA puts the loops of a program into an order in which many could run at once. A process with one core runs them
one after the other all the same, and what a loop reads may have been written long before. XLA's order for less memory
keeps them closer: of the bytes that a step of MobileNetV2 reads, 66% were written less than 8 MB before, and 56% in
the usual order; of a Vision Transformer's 62% and 58%, of a U-Net's 65% and 51%. The numbers are the same. A step takes
0.90 of the time in a Vision Transformer, 0.93 in MobileNetV2, 0.97 in ResNet-18, a GRU and a WGAN, and 0.98 to 1.03 in
the eight others of `benchmarks/networks.py`, where processes of one program differ by as much. (One core of an AMD EPYC
with AVX-512, 2026-11-30, JAX 0.10.2; means of two to four processes in each order, in turns in one run.)

XLA's usual order stays with two cores in one process, where a step takes 0.94 (GRU) to 1.11 (an encoder as BERT's) in
the other one, and for several workers, whose gradients should be there early: one of the CNN takes 1.05.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from stratagem.core.cores import available_cores
from stratagem.core.environment import XLA_AS_IS
from stratagem.core.log import announce_once
from stratagem.mesh.described import DescribedMesh
from stratagem.mesh.mesh import Device, ReplicaMesh, Tree
from stratagem.program.compat import is_tracing

PACK_BYTES: Final = 6_000_000
"""Largest size of a pack of gradients on several GPUs."""

Options = Mapping[str, Any]
"""Of `jax.stages.Lowered.compile`, by name."""

_OF_GPUS: Final[Options] = {
    "xla_gpu_all_reduce_combine_threshold_bytes": PACK_BYTES,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": 0,
}

_OF_ONE_CORE: Final[Options] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""Known to XLA since JAX 0.9; before, its own order stays."""


def pack_bytes(mesh: ReplicaMesh, chosen: int) -> int | None:
    """Return the size of packs that values are summed in: 0 for one pack, None for none.

    Between processes on CPUs every collective costs a round trip of Gloo's, so one pack is best. Through memory all
    values of a step travel together as they are (`program.rules.through_memory`). On GPUs packs begin while others are
    computed. Elsewhere XLA groups collectives by itself; on virtual CPU devices a pack of 11 MB costs 30 to 180 ms to
    put together, where the sums take 10.

    Args:
        mesh: The replicas.
        chosen: The user's size; 0 leaves it open.
    """
    if mesh.model_parallel > 1:
        return None  # in a pack no value could stay divided among the devices of a replica
    if chosen:
        return chosen
    platform = mesh.devices[0].platform
    if platform == "gpu" and mesh.size > 1 and not mesh.central:
        return PACK_BYTES
    return 0 if mesh.multi_process and platform == "cpu" and mesh.memory is None else None


def options_for(mesh: ReplicaMesh | None) -> Options:
    """Return the options for programs of a mesh; none where XLA's choice is as good, or the user has chosen.

    Args:
        mesh: The replicas; None for a program of this process alone.
    """
    device = jax.devices()[0] if mesh is None else mesh.devices[0]
    if device.platform == "gpu" and mesh is not None and mesh.size > 1:
        options = _OF_GPUS
    elif device.platform == "cpu" and available_cores() == 1 and _is_alone(mesh) and os.environ.get(XLA_AS_IS) != "1":
        options = _OF_ONE_CORE
    else:
        return {}
    chosen = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in options.items() if name not in chosen and _takes(device, name, value)}


def _is_alone(mesh: ReplicaMesh | None) -> bool:
    """Return whether all replicas are in this process; described ones run elsewhere, with cores that nobody knows."""
    return mesh is None or not (mesh.multi_process or isinstance(mesh, DescribedMesh))


@functools.cache
def _takes(device: Device, option: str, value: Any) -> bool:
    """Return whether the compiler of a device, here or described, knows an option. Releases of XLA take some away."""
    number = jax.ShapeDtypeStruct((), jnp.float32, sharding=SingleDeviceSharding(device))
    try:
        jax.jit(jnp.negative, compiler_options={option: value}).lower(number).compile()
    except Exception as error:  # XLA's own class, which JAX has no public name for
        if option in _OF_GPUS:
            announce_once(f"XLA does not know {option}, so it puts gradients together as it likes: {error}")
        return False
    return True


class CompiledWith:
    """A function compiled with options. As a part of another program, which has its own, it is compiled with that.

    Args:
        function: The function.
        options: The options; at least one.
        donated: Whether buffers of the first argument may be reused.
    """

    def __init__(self, function: Callable[..., Tree], options: Options, *, donated: bool) -> None:
        donate = 0 if donated else ()
        self._part = jax.jit(function, donate_argnums=donate)
        self._whole = jax.jit(function, donate_argnums=donate, compiler_options=dict(options))
        self.trace = self._whole.trace
        self.lower = self._whole.lower

    def __call__(self, *args: Tree) -> Tree:
        return (self._part if is_tracing() else self._whole)(*args)


def jitted(function: Callable[..., Tree], options: Options, *, donated: bool = False) -> Any:
    """Return a function as `jax.jit` compiles it, with options where there are some.

    Args:
        function: The function.
        options: The options.
        donated: Whether buffers of the first argument may be reused.
    """
    if options:
        return CompiledWith(function, options, donated=donated)
    return jax.jit(function, donate_argnums=0 if donated else ())
