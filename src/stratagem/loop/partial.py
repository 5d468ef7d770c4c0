"""Derivatives of a part of a traced computation.

A tape watches variables, which become inputs of the traced prefix, and tensors, which stand in its
middle. A tensor counts only inside the tape: the computation is marked where the tape begins and
ends, and between the marks the tensor is replaced by an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, Primitive

from stratagem.replica.compat import run_equation

_mark = Primitive("stratagem_tape")
_mark.def_abstract_eval(lambda token, *, what: token)
_mark.def_impl(lambda token, *, what: token)


def mark(what: str) -> None:
    """Note in the trace that a tape begins or ends here.

    Args:
        what: "enter" or "exit".
    """
    _mark.bind(jnp.zeros((), jnp.float32), what=what)


class Traced:
    """A traced prefix: a function of watched variables that returns (targets, watched tensors).

    Args:
        prefix: The function.
        values: The variables' values.
    """

    def __init__(self, prefix: Callable[[list[Any]], tuple[list[Any], list[Any]]], values: Sequence[Any]) -> None:
        self._values = list(values)
        self._closed, (targets, _) = jax.make_jaxpr(prefix, return_shape=True)(self._values)
        self._targets = len(targets)

    def gradients(
        self, tensors: Sequence[int], tensor_values: Sequence[Any], weights: Sequence[Any], several: bool
    ) -> tuple[list[Any], list[Any]]:
        """Differentiate the targets.

        Args:
            tensors: Which of the watched tensors to differentiate by.
            tensor_values: Their values.
            weights: Weights of the targets.
            several: Whether the weights have one more axis in front; then gradients have it too.

        Returns:
            (gradients by the variables, gradients by the tensors); None where there is no connection.
        """
        outvars = self._closed.jaxpr.outvars
        overrides = [outvars[self._targets + i] for i in tensors]
        connected = self._connected(overrides)

        def targets(values: list[Any], replaced: list[Any]) -> list[Any]:
            return self._evaluate(values, dict(zip(overrides, replaced, strict=True)))

        _, pull = jax.vjp(targets, self._values, list(tensor_values))
        by_value, by_tensor = (jax.vmap(pull) if several else pull)(list(weights))
        count = len(by_value)
        return (
            [g if connected[i] else None for i, g in enumerate(by_value)],
            [g if connected[count + i] else None for i, g in enumerate(by_tensor)],
        )

    def _evaluate(self, values: Sequence[Any], replaced: dict[Any, Any]) -> list[Any]:
        """Run the trace, with the watched tensors replaced between the marks."""
        jaxpr = self._closed.jaxpr
        plain = dict(zip(jaxpr.constvars, self._closed.consts, strict=True))
        plain.update(zip(jaxpr.invars, values, strict=True))
        inside = False

        def read(var: Any) -> Any:
            if isinstance(var, Literal):
                return var.val
            return replaced[var] if inside and var in replaced else plain[var]

        for eqn in jaxpr.eqns:
            if eqn.primitive is _mark:
                inside = eqn.params["what"] == "enter"
                plain[eqn.outvars[0]] = jnp.zeros((), jnp.float32)
                continue
            plain.update(zip(eqn.outvars, run_equation(eqn, [read(var) for var in eqn.invars]), strict=True))
        inside = True  # a target may be the watched tensor itself
        return [read(var) for var in jaxpr.outvars[: self._targets]]

    def _connected(self, overrides: Sequence[Any]) -> list[bool]:
        """Return whether a target depends on each variable, then on each replaced tensor."""
        jaxpr = self._closed.jaxpr
        sources = [*jaxpr.invars, *overrides]
        reach: dict[Any, int] = {}
        inside_only = {var: 1 << (len(jaxpr.invars) + i) for i, var in enumerate(overrides)}
        for i, var in enumerate(jaxpr.invars):
            reach[var] = 1 << i
        inside = False

        def bits(var: Any) -> int:
            if isinstance(var, Literal):
                return 0
            return inside_only[var] if inside and var in inside_only else reach.get(var, 0)

        for eqn in jaxpr.eqns:
            if eqn.primitive is _mark:
                inside = eqn.params["what"] == "enter"
                continue
            combined = 0
            for var in eqn.invars:
                combined |= bits(var)
            for var in eqn.outvars:
                reach[var] = combined
        inside = True
        total = 0
        for var in jaxpr.outvars[: self._targets]:
            total |= bits(var)
        return [bool(total >> i & 1) for i in range(len(sources))]
