"""Derivatives of a part of a traced computation.

A tape watches variables, which become inputs of the traced prefix, and tensors, which stand in its middle. What is
computed from these inside the tape can be differentiated by as well. A tensor counts only inside the tape: the trace is
marked where the tape begins and ends, and between the marks an input that is zero is added to the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, Primitive

from stratagem.program.compat import run_equation

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
    """A traced prefix: a function of watched variables that returns (targets, tensors, watched tensors).

    Args:
        prefix: The function.
        values: The variables' values.
    """

    def __init__(self, prefix: Callable[[list[Any]], tuple[list[Any], ...]], values: Sequence[Any]) -> None:
        self._values = list(values)
        self._closed, groups = jax.make_jaxpr(prefix, return_shape=True)(self._values)
        results = iter(self._closed.jaxpr.outvars)
        self._targets, self._tensors, self._watched = ([next(results) for _ in group] for group in groups)
        self._dependent, self._recorded = self._depends()

    def is_computed(self, place: int) -> bool:
        """Whether a tensor was recorded and is no input: there is a computation that leads to it."""
        var = self._tensors[place]
        return var in self._recorded and any(var in eqn.outvars for eqn in self._closed.jaxpr.eqns)

    def gradients(
        self, variables: int, actual: Sequence[Any], weights: Sequence[Any], several: bool
    ) -> tuple[list[Any], list[Any], list[bool]]:
        """Differentiate the targets.

        Args:
            variables: How many of the variables to differentiate by: so many of the first.
            actual: The tensors, and the watched tensors, where the derivative is computed.
            weights: Weights of the targets.
            several: Whether the weights have one more axis in front; then gradients have it too.

        Returns:
            (gradients by the variables, gradients by the tensors, which of the actual tensors the gradients are
            computed from). A gradient is None where there is no connection.
        """
        invars = self._closed.jaxpr.invars
        chosen = [tensor if _is_inexact(tensor) and tensor in self._recorded else None for tensor in self._tensors]
        connected = self._connected(invars[:variables], chosen)
        # What was computed before the tape began is taken as it stands: another tape may be differentiating by it.
        ends = [*self._tensors, *self._watched]
        linked = [not isinstance(var, Literal) and var not in self._dependent for var in ends]
        known = {var: value for var, value, is_linked in zip(ends, actual, linked, strict=True) if is_linked}

        def targets(values: list[Any], changes: list[Any]) -> list[Any]:
            change: dict[Any, Any] = {}
            for tensor, own in zip(chosen, changes, strict=True):
                if tensor is not None:
                    change[tensor] = change[tensor] + own if tensor in change else own
            return self._evaluate([*values, *self._values[variables:]], known, change)

        # The sum of this zero and any number is that number, also where it is another zero.
        zeros = [-jnp.zeros(_shape(var), _dtype(var)) for var in chosen]
        _, pull = jax.vjp(targets, self._values[:variables], zeros)
        by_value, by_tensor = (jax.vmap(pull) if several else pull)(list(weights))
        gradients = zip([*by_value, *by_tensor], connected, strict=True)
        found = [gradient if is_connected else None for gradient, is_connected in gradients]
        return found[:variables], found[variables:], linked

    def _steps(self) -> Iterator[tuple[Any, bool]]:
        """Yield the equations, each with whether it stands inside the tape."""
        inside = False
        for eqn in self._closed.jaxpr.eqns:
            if eqn.primitive is _mark:
                inside = eqn.params["what"] == "enter"
            yield eqn, inside

    def _evaluate(self, values: Sequence[Any], known: dict[Any, Any], changes: dict[Any, Any]) -> list[Any]:
        """Run the trace, with some tensors known, and changes added to tensors inside the tape."""
        jaxpr = self._closed.jaxpr
        plain = dict(zip(jaxpr.constvars, self._closed.consts, strict=True))
        plain.update(zip(jaxpr.invars, values, strict=True))
        plain.update(known)

        def read(var: Any, inside: bool) -> Any:
            if isinstance(var, Literal):
                return var.val
            return plain[var] + changes[var] if inside and var in changes else plain[var]

        for eqn, inside in self._steps():
            if eqn.primitive is _mark:
                plain[eqn.outvars[0]] = jnp.zeros((), jnp.float32)
                continue
            operands = [read(var, inside) for var in eqn.invars]
            results = zip(eqn.outvars, run_equation(eqn, operands), strict=True)
            plain.update((var, result) for var, result in results if var not in known)
        return [read(var, True) for var in self._targets]  # a target may be the tensor itself

    def _depends(self) -> tuple[set[Any], set[Any]]:
        """Return what depends on the variables, or inside the tape on a watched tensor, and what the tape recorded:
        variables, watched tensors, and what was computed from them inside it.
        """
        watched = {var for var in self._watched if not isinstance(var, Literal)}
        dependent = set(self._closed.jaxpr.invars)
        recorded = dependent | watched
        for eqn, inside in self._steps():
            operands = [var for var in eqn.invars if not isinstance(var, Literal)]
            if not dependent.isdisjoint(operands) or (inside and not watched.isdisjoint(operands)):
                dependent.update(eqn.outvars)
                recorded.update(eqn.outvars if inside else ())
        return dependent, recorded

    def _connected(self, variables: Sequence[Any], tensors: Sequence[Any]) -> list[bool]:
        """Return whether a target depends on each variable, then on each tensor; None stands for one that was not
        recorded.
        """
        reach = {var: 1 << place for place, var in enumerate(variables)}
        inside_only: dict[Any, int] = {}
        for place, var in enumerate(tensors, len(variables)):
            inside_only[var] = inside_only.get(var, 0) | 1 << place

        def bits(var: Any, inside: bool) -> int:
            if isinstance(var, Literal):
                return 0
            return reach.get(var, 0) | (inside_only.get(var, 0) if inside else 0)

        for eqn, inside in self._steps():
            combined = 0
            for var in eqn.invars:
                combined |= bits(var, inside)
            reach.update(dict.fromkeys(eqn.outvars, combined))
        total = 0
        for var in self._targets:
            total |= bits(var, True)
        return [var is not None and bool(total >> place & 1) for place, var in enumerate([*variables, *tensors])]


def _is_inexact(var: Any) -> bool:
    return not isinstance(var, Literal) and jnp.issubdtype(var.aval.dtype, jnp.inexact)


def _shape(var: Any) -> tuple[int, ...]:
    return () if var is None else var.aval.shape


def _dtype(var: Any) -> Any:
    return jnp.float32 if var is None else var.aval.dtype
