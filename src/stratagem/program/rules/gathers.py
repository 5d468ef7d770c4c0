"""Gathers: when a program puts together what rests in shards, and how long it keeps it.

A step is traced as if each replica held all variables whole (`mesh.shards`). Here its equations are run again with
shards in the place of wholes. Where only a shard of a whole is wanted, the shard is taken as it is. Where the whole is
needed, it is gathered then, with those that are needed next, in groups of `GROUP_BYTES`; when the next group comes, the
one before is dropped. So the backward pass gathers again what the forward pass had, and a replica never holds more
weights than its shards and one group. What is merely another form of a weight (in bfloat16, transposed) is made again
too: kept, it would be as large as the weights.

Gradients are summed in shards as soon as they are there. The sums that began before one group must have ended before
the next group is gathered. So no more than the gradients of two groups are whole at once, and sums still cross while a
replica computes.

Source of the semantics: FSDP (https://arxiv.org/abs/2304.11277).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from stratagem.mesh.mesh import Tree
from stratagem.mesh.shards import cuts, gathered, gathers, whole_of
from stratagem.program.compat import needed_part, parameters, run_equation
from stratagem.program.interpret import Values, interpret, trace, variables_of

GROUP_BYTES: Final = 16 << 20
"""Bytes of weights that are gathered at once; a larger variable is a group of its own."""

_FORMS: Final = frozenset({"convert_element_type", "transpose", "reshape", "squeeze", "copy", "copy_p"})
"""Equations whose result is another form of their operand, cheap to make again."""

_SUM: Final = "reduce_scatter"

ON_THE_WAY: Final = _FORMS | {"broadcast_in_dim", "concatenate", "mul", "select_n"}
"""Equations between a gradient and its sum: masks, weights, packs."""

_CALLS: Final = ("jit", "pjit")


AxisOf = Callable[[Sequence[int]], int | None]
"""Function of a shape that returns an axis; None for none."""


def _nowhere(shape: Sequence[int]) -> None:
    del shape


def gathering(
    function: Callable[..., Tree], model_axis_of: AxisOf = _nowhere, group_bytes: int = GROUP_BYTES
) -> Callable[..., Tree]:
    """Return a function of one replica that gathers what `whole_of` stands for only where it is needed.

    Args:
        function: Function of one replica's arrays, in which `whole_of` and `shard_of` are called.
        model_axis_of: Along which axis wholes of a shape are divided among the devices of a replica.
        group_bytes: How much is gathered at once.
    """

    @functools.wraps(function)
    def gathering_function(*args: Tree) -> Tree:
        traced, structure = trace(function, args)
        leaves = jax.tree.leaves(args)
        run = _Run(_Plan(_without_calls(traced, leaves)), model_axis_of, group_bytes)
        return structure.unflatten(run.results(leaves))

    return gathering_function


@dataclass(frozen=True)
class _Whole:
    """Something that is not there before it is gathered.

    Args:
        shard: The variable of the program that has this replica's shard.
        axis: Along which the whole is divided.
        before: The variable that has what the whole was; None where nobody knows.
    """

    shard: Any
    axis: int
    before: Any = None


@dataclass(frozen=True)
class _Step:
    """An equation to run.

    Args:
        run: Function of its operands that returns its results.
        operands: What it reads.
        results: What it makes.
        needs: The wholes that it reads, itself or in another form.
        name: That of the equation.
    """

    run: Callable[[list[Any]], Sequence[Any]]
    operands: Sequence[Any]
    results: Sequence[Var]
    needs: Sequence[Var] = ()
    name: str = ""


class _Plan:
    """A program, looked through once: what has to be run, and what stands for something else.

    Args:
        traced: The program.

    Attributes:
        wholes: What would be gathered.
        forms: Other forms of such, with the equation that makes each.
        steps: The equations that have to be run, in order.
        results: The program's results.
    """

    def __init__(self, traced: ClosedJaxpr) -> None:
        self.traced = traced
        self.wholes: dict[Var, _Whole] = {}
        self.forms: dict[Var, JaxprEqn] = {}
        self.steps: list[_Step] = []
        self._same: dict[Var, Any] = {}
        for eqn in traced.jaxpr.eqns:
            self._take(eqn)
        self.steps = _with_early_sums(self.steps)
        self.results = self._known_as(traced.jaxpr.outvars)

    def needs(self, atoms: Iterable[Any]) -> list[Var]:
        """Return the wholes that are read with some atoms."""
        found: dict[Var, None] = {}
        for var in variables_of(atoms):
            if var in self.wholes:
                found[var] = None
            elif var in self.forms:
                found.update(dict.fromkeys(self.needs(self.forms[var].invars)))
        return list(found)

    def _take(self, eqn: JaxprEqn) -> None:
        operands = self._known_as(eqn.invars)
        if _is_mark(eqn):
            self._take_mark(eqn, operands)
        elif eqn.primitive.name in _FORMS and self.needs(operands):
            self.forms[eqn.outvars[0]] = eqn.replace(invars=operands)
        elif eqn.primitive.name == "cond" and self.needs(operands):
            self.steps.append(self._branching(eqn, operands))
        else:
            run = functools.partial(run_equation, eqn)
            self.steps.append(_Step(run, operands, eqn.outvars, self.needs(operands), eqn.primitive.name))

    def _take_mark(self, eqn: JaxprEqn, operands: Sequence[Any]) -> None:
        name, operand = _called(eqn), operands[0]
        axis, cut = gathers(name), cuts(name)
        whole = None if isinstance(operand, Literal) else self.wholes.get(operand)
        if axis is not None:
            self.wholes[eqn.outvars[0]] = _Whole(operand, axis, *operands[1:])
        elif whole is not None and whole.axis == cut:
            self._same[eqn.outvars[0]] = whole.shard
        else:
            run = functools.partial(run_equation, eqn)
            self.steps.append(_Step(run, [operand], eqn.outvars, self.needs([operand])))

    def _branching(self, eqn: JaxprEqn, operands: Sequence[Any]) -> _Step:
        """Return a choice between programs, without the wholes that all of them only hand on."""
        branches = parameters(eqn)["branches"]
        kept = []
        for place, result in enumerate(eqn.outvars):
            handed_on = {_place_of(branch.jaxpr.outvars[place], branch.jaxpr.invars) for branch in branches}
            source = handed_on.pop() if len(handed_on) == 1 else None
            operand = None if source is None else operands[1 + source]
            if isinstance(operand, Var) and (operand in self.wholes or operand in self.forms):
                self._same[result] = operand
            else:
                kept.append(place)
        parts = [needed_part(branch.jaxpr, [i in kept for i in range(len(eqn.outvars))]) for branch in branches]
        read = [i for i in range(len(operands) - 1) if any(used[i] for _, used in parts)]
        functions = [
            functools.partial(_of_some, jaxpr_as_fun(ClosedJaxpr(part, branch.consts)), [i for i in read if used[i]])
            for (part, used), branch in zip(parts, branches, strict=True)
        ]

        def run(values: list[Any]) -> Sequence[Any]:
            index, *given = values
            known = dict(zip(read, given, strict=True))
            return lax.switch(index, functions, known)

        atoms = [operands[0], *(operands[1 + i] for i in read)]
        return _Step(run, atoms, [eqn.outvars[place] for place in kept], self.needs(atoms))

    def _known_as(self, atoms: Iterable[Any]) -> list[Any]:
        """Return atoms with those in their place that are the same."""
        found = []
        for atom in atoms:
            while isinstance(atom, Var) and atom in self._same:
                atom = self._same[atom]
            found.append(atom)
        return found


class _Run:
    """One run of a program that was planned.

    Args:
        plan: The plan.
        model_axis_of: As of `gathering`.
        group_bytes: How much is gathered at once.
    """

    def __init__(self, plan: _Plan, model_axis_of: AxisOf, group_bytes: int) -> None:
        self._plan = plan
        self._model_axis_of = model_axis_of
        self._group_bytes = group_bytes
        self._group: dict[Var, jax.Array] = {}
        self._forms: dict[Var, jax.Array] = {}
        self._begun: list[jax.Array] = []
        self._begun_before: list[jax.Array] = []

    def results(self, args: Sequence[Any]) -> list[Any]:
        """Run the program and return its results."""
        self._values = Values(self._plan.traced, args)
        steps = [*self._plan.steps, _Step(list, self._plan.results, (), self._plan.needs(self._plan.results))]
        for place, step in enumerate(steps):
            if not all(var in self._group for var in step.needs):
                self._gather(steps[place:])
            results = step.run([self._value(atom) for atom in step.operands])
            if step.results:
                self._values.write(step.results, results)
            if step.name == _SUM:
                self._begun += results
        return [self._value(atom) for atom in self._plan.results]

    def _gather(self, steps: Sequence[_Step]) -> None:
        """Put together what the first step needs, and the next ones, as far as the group has room."""
        group = dict.fromkeys(steps[0].needs)
        room = self._group_bytes - sum(map(_nbytes, group))
        for var in (var for step in steps[1:] for var in step.needs):
            if var in group or self._plan.wholes[var].shard not in self._values:  # or not made yet
                continue
            room -= _nbytes(var)
            if room < 0:
                break
            group[var] = None
        token = self._token(steps[0])
        after = None if token is None else (token, *self._begun_before)
        self._begun, self._begun_before = [], self._begun
        self._forms.clear()
        self._group = {var: self._group[var] if var in self._group else self._gathered(var, after) for var in group}

    def _gathered(self, var: Var, after: Any) -> jax.Array:
        whole = self._plan.wholes[var]
        shard = jnp.asarray(self._value(whole.shard))
        if after is not None:  # without it XLA would gather once, at the beginning, for all that comes
            shard, _ = lax.optimization_barrier((shard, after))
        if whole.before in self._values:
            return whole_of(shard, whole.axis, self._values[whole.before])
        aval: Any = var.aval
        return gathered(shard, whole.axis, self._model_axis_of(aval.shape))

    def _token(self, step: _Step) -> Any:
        """Return something that is known only when all before the step has been computed; None at the beginning."""
        if not self._group:
            return None
        inputs = {*self._plan.traced.jaxpr.invars, *self._plan.traced.jaxpr.constvars}
        own = [var for var in variables_of(step.operands) if var in self._values and var not in inputs]
        made = [var for var in self._values if var not in inputs]
        return self._values[(own or made)[-1]] if own or made else None

    def _value(self, atom: Any) -> Any:
        if isinstance(atom, Literal):
            return atom.val
        if atom in self._values:
            return self._values[atom]
        if atom in self._group:
            return self._group[atom]
        if atom not in self._forms:
            eqn = self._plan.forms[atom]
            self._forms[atom] = run_equation(eqn, [self._value(each) for each in eqn.invars])[0]
        return self._forms[atom]


def _without_calls(traced: ClosedJaxpr, args: Sequence[Any]) -> ClosedJaxpr:
    """Return a program with the functions that speak of shards inside it written out where they are called."""

    def calls(eqn: JaxprEqn) -> bool:
        return eqn.primitive.name in _CALLS and not _is_mark(eqn) and _has_marks(parameters(eqn)["jaxpr"].jaxpr)

    def written_out(eqn: JaxprEqn, values: list[Any]) -> Sequence[Any]:
        return interpret(parameters(eqn)["jaxpr"], values, written_out) if calls(eqn) else run_equation(eqn, values)

    if not any(map(calls, traced.jaxpr.eqns)):
        return traced
    return trace(lambda *leaves: interpret(traced, leaves, written_out), args)[0]


def _with_early_sums(steps: Sequence[_Step]) -> list[_Step]:
    """Return steps with each sum in shards, and what is on the way to it, behind the last step that it waits for."""
    made_by = {var: place for place, step in enumerate(steps) for var in step.results}
    read_by = [[made_by[var] for var in variables_of(step.operands) if var in made_by] for step in steps]
    early = {place for place, step in enumerate(steps) if step.name == _SUM}
    found = list(early)
    while found:
        ahead = [place for place in read_by[found.pop()] if steps[place].name in ON_THE_WAY and not steps[place].needs]
        found += [place for place in ahead if place not in early]
        early.update(ahead)
    order: list[int] = []
    for place, read in enumerate(read_by):
        order.append(max((order[each] for each in read), default=-1) if place in early else place)
    return [steps[place] for place in sorted(range(len(steps)), key=order.__getitem__)]


def _called(eqn: JaxprEqn) -> str | None:
    return parameters(eqn)["name"] if eqn.primitive.name in _CALLS else None


def _is_mark(eqn: JaxprEqn) -> bool:
    name = _called(eqn)
    return gathers(name) is not None or cuts(name) is not None


def _has_marks(program: Jaxpr) -> bool:
    return any(
        _is_mark(eqn) or (eqn.primitive.name in _CALLS and _has_marks(parameters(eqn)["jaxpr"].jaxpr))
        for eqn in program.eqns
    )


def _place_of(atom: Any, inputs: Sequence[Var]) -> int | None:
    return next((place for place, var in enumerate(inputs) if var is atom), None)


def _of_some(function: Callable[..., Any], places: Sequence[int], values: dict[int, Any]) -> Any:
    return function(*[values[place] for place in places])


def _nbytes(var: Var) -> int:
    aval: Any = var.aval
    return math.prod(aval.shape) * aval.dtype.itemsize
