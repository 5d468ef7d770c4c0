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
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from stratagem.core.log import announce_once
from stratagem.mesh.mesh import Device, ReplicaMesh, Tree

PACK_BYTES: Final = 6_000_000
"""Largest size of a pack of gradients on several GPUs."""

Options = Mapping[str, Any]
"""Of `jax.stages.Lowered.compile`, by name."""

_OF_GPUS: Final[Options] = {
    "xla_gpu_all_reduce_combine_threshold_bytes": PACK_BYTES,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": 0,
}


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


def options_for(mesh: ReplicaMesh) -> Options:
    """Return the options for programs of a mesh; none where XLA's choice is as good, or the user has chosen.

    Args:
        mesh: The replicas.
    """
    device = mesh.devices[0]
    if device.platform != "gpu" or mesh.size == 1:
        return {}
    chosen = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in _OF_GPUS.items() if name not in chosen and _takes(device, name)}


@functools.cache
def _takes(device: Device, option: str) -> bool:
    """Return whether the compiler of a device, here or described, knows an option. Releases of XLA take some away."""
    number = jax.ShapeDtypeStruct((), jnp.float32, sharding=SingleDeviceSharding(device))
    try:
        jax.jit(jnp.negative, compiler_options={option: PACK_BYTES}).lower(number).compile()
    except Exception as error:  # XLA's own class, which JAX has no public name for
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
        is_part = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args))
        return (self._part if is_part else self._whole)(*args)


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
