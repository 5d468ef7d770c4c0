"""Programs for devices that are only described: traced, handed to who asked for them, never run.

The program of the user runs as far as its first step of training, which `StepReached` ends. Programs before that (an
evaluation, a sum over replicas) return zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from stratagem.mesh.described import DescribedMesh, shapes_like
from stratagem.mesh.mesh import Tree
from stratagem.program.options import options_for


class StepReached(BaseException):
    """A program reached its first step of training. No `except Exception` of its own keeps it going.

    Args:
        step: That step.
    """

    def __init__(self, step: DescribedStep) -> None:
        super().__init__(step.name)
        self.step = step


class DescribedStep:
    """One step of training, traced for described devices.

    `batch_bytes` and `state_bytes` are those of the rows and of the variables on each device.

    Args:
        name: What its user calls it.
        mesh: The devices.
        traced: The program, as `jax.jit(...).trace` returns it.
        shapes: Those of its arguments.
        args: The arguments.
        gradient_bytes: Bytes of the trainable variables that get new values.
    """

    def __init__(
        self,
        name: str,
        mesh: DescribedMesh,
        traced: Any,
        shapes: Sequence[Tree],
        args: Sequence[Tree],
        gradient_bytes: int,
    ) -> None:
        self.name = name
        self.mesh = mesh
        self.traced = traced
        self.gradient_bytes = gradient_bytes
        self.batch_bytes = self.state_bytes = 0
        for shape, leaf in zip(jax.tree.leaves(list(shapes)), jax.tree.leaves(list(args)), strict=True):
            own = _nbytes(jax.ShapeDtypeStruct(shape.sharding.shard_shape(shape.shape), shape.dtype))
            if mesh.is_spread(leaf):
                self.batch_bytes += own
            else:
                self.state_bytes += own

    def compile(self) -> Any:
        """Compile it for the devices; return what `jax.stages.Lowered.compile` does."""
        return self.traced.lower().compile(compiler_options=dict(options_for(self.mesh)))


class DescribedProgram:
    """A function of all replicas of described devices.

    Args:
        mesh: The devices.
        function: The function.
        specs: A `PartitionSpec` for each argument, a prefix of its structure; None for the way in which the mesh was
            given each array.
        name: What its user calls it.
        donated: Whether buffers of the first argument may be reused.
        trained: The trainable variables that get new values.
    """

    def __init__(
        self,
        mesh: DescribedMesh,
        function: Callable[..., Tree],
        specs: Sequence[Tree] | None,
        *,
        name: str,
        donated: bool = False,
        trained: Sequence[Any] = (),
    ) -> None:
        self._mesh = mesh
        self._function = function
        self._specs = specs
        self._name = name
        self._donated = donated
        self._trained = trained

    def __call__(self, *args: Tree) -> Tree:
        """Return zeros in the shapes of its results.

        Raises:
            StepReached: It trains.
        """
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args)):
            return self._function(*args)  # a part of a function that is compiled as a whole
        jitted = jax.jit(self._function, donate_argnums=0 if self._donated else ())
        shapes = shapes_like(self._mesh, args, self._specs)
        traced = jitted.trace(*shapes)
        if self._trained:
            gradient_bytes = sum(map(_nbytes, self._trained))
            raise StepReached(DescribedStep(self._name, self._mesh, traced, shapes, args, gradient_bytes))
        return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), traced.out_info)


def _nbytes(value: Any) -> int:
    return math.prod(value.shape) * jnp.dtype(str(value.dtype)).itemsize


def trained(variables: Sequence[Any], assigned: Sequence[int]) -> list[Any]:
    """Return the trainable variables among those that a program assigns.

    Args:
        variables: Keras variables, and others.
        assigned: Which of them get new values.
    """
    return [variables[i] for i in assigned if getattr(variables[i], "trainable", False)]
