"""A word on variables of layers that each replica changes by its own rows, where nobody says how the replicas' add up.

A counter that is the same on all replicas (`count.assign_add(1)`) and a moving mean are what one device has. A sum over
rows is not: of an integer the first replica's is kept, of a float the mean of the replicas' (`mesh.variable_policies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Var

from stratagem.core.log import announce_once
from stratagem.mesh.variable_policies import Policy


def warn_of_own_rows(traced: ClosedJaxpr, variables: Sequence[Any], policies: Sequence[Policy]) -> None:
    """Say once of each variable that a step counts or sums its own rows in it, if no aggregation is written.

    Args:
        traced: The step of a replica: of the variables' values and a batch; the values after it come last.
        variables: The variables.
        policies: Their policies.
    """
    jaxpr = traced.jaxpr
    before, rows = jaxpr.invars[: len(variables)], set(jaxpr.invars[len(variables) :])
    after = jaxpr.outvars[len(jaxpr.outvars) - len(variables) :]
    made_by = {out: equation for equation in jaxpr.eqns for out in equation.outvars}
    for variable, policy, old, new in zip(variables, policies, before, after, strict=True):
        if new is old or getattr(variable, "aggregation", "none") != "none":
            continue
        if policy is Policy.FIRST:
            kept, changing = "the first replica's", [new]
        elif policy is Policy.MEAN:
            kept, changing = "the mean of the replicas'", _added(new, old, made_by)
        else:
            continue
        needed = _needed(jaxpr, changing)
        if needed & rows and not (policy is Policy.MEAN and old in needed):
            announce_once(
                f"Each replica changes variable {variable.path!r} according to its own rows, and {kept} value is "
                'kept. Write add_weight(..., aggregation="sum") for a count or a sum over rows, "mean" for a mean '
                'over rows, "only_first_replica" if one replica\'s will do.'
            )


def _added(new: Any, old: Any, made_by: dict[Any, Any]) -> list[Any]:
    """Return what is added to the old value, where the new one is a sum of the two."""
    while new in made_by and made_by[new].primitive.name in ("convert_element_type", "copy"):
        new = made_by[new].invars[0]
    equation = made_by.get(new)
    if equation is None or equation.primitive.name not in ("add", "add_any") or old not in equation.invars:
        return []
    return [operand for operand in equation.invars if operand is not old]


def _needed(jaxpr: Any, results: Sequence[Any]) -> set[Any]:
    """Return what results depend on."""
    needed = {result for result in results if isinstance(result, Var)}
    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(equation.outvars):
            needed.update(operand for operand in equation.invars if isinstance(operand, Var))
    return needed
