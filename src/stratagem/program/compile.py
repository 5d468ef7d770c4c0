"""Compilation of a step: the one place that decides how the function of a replica becomes a program of all replicas.

| where it runs                                 | what becomes of it                                              |
| --------------------------------------------- | --------------------------------------------------------------- |
| on devices that are only described            | it is traced, and handed on (`program.described`)               |
| on CPUs                                       | equations that XLA:CPU is slow at are replaced (`rules.cpu`)    |
| workers of a host share memory                | its collectives go through that (`rules.through_memory`)        |
| on CPUs of several workers                    | sums in shards go in parts (`rules.sums_in_parts`)              |
| variables lie at a centre                     | it is cut at its updates (`rules.at_centre`)                    |
| anywhere else                                 | one `jax.jit` of a `shard_map`                                  |
| by several workers                            | they compare it before it first runs (`program.compared`)       |
| operation by operation (`run_eagerly`)        | none of these: JAX runs each for all replicas at once           |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from stratagem.mesh.described import DescribedMesh
from stratagem.mesh.mesh import ReplicaMesh, Tree
from stratagem.program.compared import ComparedProgram
from stratagem.program.described import DescribedProgram
from stratagem.program.lru import LastUsed
from stratagem.program.options import jitted, options_for
from stratagem.program.rules.at_centre import CentralProgram, run_around_centre
from stratagem.program.rules.cpu import suited_to_cpu
from stratagem.program.rules.sums_in_parts import with_sums_in_parts
from stratagem.program.rules.through_memory import MemoryProgram

_MOST_PROGRAMS: Final = 32
"""Number of programs that are kept: a constant that differs each time, such as a learning rate, must not pile up."""


def compiled(
    mesh: ReplicaMesh,
    function: Callable[..., Tree],
    in_specs: Tree,
    out_specs: Tree,
    *,
    name: str,
    donated: bool = False,
    eager: bool = False,
    in_parts: Sequence[bool] = (),
    trained: Sequence[Any] = (),
) -> Callable[..., Tree]:
    """Return a function of all replicas, given that of one.

    Args:
        mesh: The replicas, and where variables lie.
        function: Function of one replica's part of the arguments.
        in_specs: `PartitionSpec(AXIS)` for arguments that replicas share, `PartitionSpec()` for those that all get
            whole; a prefix of their structure.
        out_specs: The same for the results. Variables are among those that are whole; if `eager`, all are.
        name: What its user calls it, for messages.
        donated: Whether buffers of the first argument may be reused.
        eager: Whether it runs operation by operation.
        in_parts: Which arrays of the first argument, a list, are another one on each replica's device. Only if `eager`
            somebody has to know.
        trained: The trainable variables that get new values. Only where devices are described somebody has to know.
    """
    donated = donated and mesh.world is None  # a step that is cut is done again with the values that it had
    if mesh.devices[0].platform == "cpu" and not eager:
        function = suited_to_cpu(function)
    if isinstance(mesh, DescribedMesh):
        on_replicas = mesh.spmd(function, in_specs, out_specs)
        return DescribedProgram(mesh, on_replicas, in_specs, name=name, donated=donated, trained=trained)
    if eager:
        on_replicas = mesh.uncompiled(function, in_specs, in_parts)
        return run_around_centre(mesh, on_replicas, in_specs, out_specs) if mesh.central else on_replicas
    if mesh.central:
        return CentralProgram(mesh, function, in_specs, out_specs, donated=donated)
    if mesh.memory is not None:
        program = MemoryProgram(mesh.mesh, function, in_specs, out_specs, mesh.memory, donated=donated)
    else:
        if mesh.multi_process and mesh.devices[0].platform == "cpu":
            function = with_sums_in_parts(function)
        program = jitted(mesh.spmd(function, in_specs, out_specs), options_for(mesh), donated=donated)
    return ComparedProgram(name, program) if mesh.multi_process and mesh.world is None else program


class Executables:
    """Keeps compiled programs, so that a function that is traced anew and computes the same is not compiled anew.

    What is kept holds no values of variables. Constants are part of a program.
    """

    def __init__(self) -> None:
        self._known: LastUsed[Callable[..., Any]] = LastUsed(_MOST_PROGRAMS)

    def executable(self, function: Any, args: Sequence[Any], devices: Hashable) -> Callable[..., Any]:
        """Return the compiled program of a function, compiled now if none that computes the same is known.

        Args:
            function: What `jax.jit` returned.
            args: Arguments like those of the calls to come.
            devices: What it runs on.
        """
        lowered = function.lower(*args)
        key = (devices, hashlib.sha256(lowered.as_text().encode()).digest())
        return self._known.keep(key, self._known.get(key) or lowered.compile())
