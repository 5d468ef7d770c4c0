"""One step of training, compiled for devices that are not here: the memory it needs, and what it exchanges."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stratagem.core.errors import UsageError
from stratagem.plan.arithmetic import flops
from stratagem.plan.place import Place
from stratagem.plan.program_text import parsed
from stratagem.plan.schedule import Schedule, schedule_of
from stratagem.program.described import DescribedStep

_SHARE_OF_JAX: Final = {"gpu": 0.75, "tpu": 0.98, "cpu": 1.0}
"""Share of a device's memory that programs get. JAX takes so much of a GPU (XLA_PYTHON_CLIENT_MEM_FRACTION); of a v5e's
16 GB the compiler gives 15.75."""

_CALLS_PYTHON: Final = "Unknown backend"
"""Begin of JAX's message where a step for absent GPUs calls Python on the host."""

_TOO_MUCH = re.compile(r"HLO temporaries \(([\d.]+)([KMGT])\) exceeds")
_USED = re.compile(r"Used ([\d.]+)([KMGT]) of [\d.]+[KMGT] hbm")
_UNITS: Final = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}


@dataclass(frozen=True)
class Bytes:
    """Memory of one device in a step.

    Args:
        state: Bytes of variables: weights, the optimizer's, statistics, metrics.
        batch: Bytes of the rows of the batch.
        padding: Bytes that fill both up to the sizes that the device needs.
        temporary: Bytes of intermediate values.
        results: Bytes of results that do not replace an argument.
        program: Bytes of the program itself.
        reused: Bytes of arguments whose memory is reused for results.
    """

    state: int
    batch: int
    padding: int
    temporary: int
    results: int
    program: int
    reused: int

    @property
    def together(self) -> int:
        """The most bytes that are in use at once."""
        return self.state + self.batch + self.padding + self.temporary + self.results + self.program


@dataclass(frozen=True)
class CompiledStep:
    """A step that was compiled.

    Args:
        name: Its name for the user.
        place: What it was compiled for.
        devices: How many of these devices its strategy has.
        hosts: Number of hosts that have them.
        seconds: Time that compiling took.
        gradient_bytes: Bytes of the trainable variables.
        bytes: Memory of a device; None if it does not fit, because XLA then compiles nothing.
        schedule: What it does, in order; None in the same case.
        operations: Floating-point operations of products on a device, by dtype.
        too_much: Bytes that it would need on a device, if XLA found that they do not fit.
    """

    name: str
    place: Place
    devices: int
    hosts: int
    seconds: float
    gradient_bytes: int
    bytes: Bytes | None
    schedule: Schedule | None
    operations: Mapping[str, int]
    too_much: float = 0.0

    @property
    def available(self) -> float:
        """Bytes of a device that programs can use; 0 if that is not known."""
        return self.place.hardware.memory * _SHARE_OF_JAX[self.place.hardware.platform]

    @property
    def fits(self) -> bool:
        """Whether a device has the memory that it needs."""
        return self.bytes is not None and (not self.available or self.bytes.together <= self.available)

    @property
    def largest_batch(self) -> float | None:
        """Largest multiple of the batch that fits, if temporary values grow with it; None if that is not known."""
        if self.bytes is None or not self.available or not self.bytes.batch:
            return None
        growing = self.bytes.batch + self.bytes.temporary
        return (self.available - (self.bytes.together - growing)) / growing


def compile_step(step: DescribedStep, place: Place, clock: Callable[[], float] = time.perf_counter) -> CompiledStep:
    """Compile a step, and read the result.

    Args:
        step: The step that the program reached.
        place: The devices it was described for.
        clock: The source of time.

    Raises:
        UsageError: XLA cannot compile it.
    """
    # XLA divides those of a replica among its devices.
    operations = {kind: count // step.mesh.model_parallel for kind, count in flops(step.traced.jaxpr).items()}
    hosts = len({device.process_index for device in step.mesh.devices}) if place.hosts > 1 else 1
    of = functools.partial(CompiledStep, step.name, place, step.mesh.mesh.size, hosts)
    begin = clock()
    try:
        compiled = step.compile()
    except Exception as error:  # XLA's own class, which JAX has no public name for
        too_much = _too_much(str(error), step)
        if not too_much:
            if str(error).startswith(_CALLS_PYTHON):
                raise UsageError(
                    f"{step.name} calls Python on the host: jax.pure_callback, jax.debug.print, tf.print or the like.",
                    "JAX compiles such a call only on a machine with a GPU, and each call makes the device wait.",
                    "Remove the call from the step, or compute its result in dataset.map or with keras.ops. Or plan it "
                    "on cpu:2, which counts the calls.",
                ) from error
            raise UsageError(
                f"XLA could not compile {step.name} for {place}: {str(error).splitlines()[0]}",
                "Try the program on a smaller place, for instance --on cpu:2. If XLA compiles it there, this is a "
                "limit of XLA for this device.",
            ) from error
        return of(clock() - begin, step.gradient_bytes, None, None, operations, too_much)
    seconds = clock() - begin
    used = _bytes(step, compiled.memory_analysis())
    return of(seconds, step.gradient_bytes, used, schedule_of(parsed(compiled.as_text())), operations)


def _too_much(message: str, step: DescribedStep) -> float:
    """Return the bytes that do not fit, by the compiler's message; 0 where it says something else."""
    of_temporaries, of_all = _TOO_MUCH.search(message), _USED.search(message)
    if of_temporaries is not None:
        return float(of_temporaries[1]) * _UNITS[of_temporaries[2]] + step.state_bytes + step.batch_bytes
    return 0.0 if of_all is None else float(of_all[1]) * _UNITS[of_all[2]]


def _bytes(step: DescribedStep, memory: Any) -> Bytes:
    return Bytes(
        state=step.state_bytes,
        batch=step.batch_bytes,
        padding=max(0, memory.argument_size_in_bytes - step.state_bytes - step.batch_bytes),
        temporary=memory.temp_size_in_bytes,
        results=memory.output_size_in_bytes - memory.alias_size_in_bytes,
        program=memory.generated_code_size_in_bytes,
        reused=memory.alias_size_in_bytes,
    )
