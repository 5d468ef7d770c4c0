"""Programs whose collectives go through the memory of one host.

A step is written with JAX's collectives, and traced as it is. Then its equations are put in another order: everything
that needs no value of other workers first, then one exchange of all that was asked for so far, then what follows from
it, up to the next exchange. So gradients, metrics and the loss of a step travel together, without being packed into
one array, whoever asked for them.

XLA runs foreign functions in any order that their operands allow, on several threads; workers that did so in different
orders would wait for each other. So each exchange hands a number, the link, to the next one. A loop or a branch with
exchanges takes the link in and hands it out. What XLA's own collectives are left to do (collectives inside other
equations) stays with them, in an order of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.sharding import Mesh, PartitionSpec

from stratagem.core.freed_memory import give_back
from stratagem.host_memory.memory import HostMemory
from stratagem.mesh.mesh import Tree
from stratagem.program.compat import parameters, run_equation, scan_operands, trace_state
from stratagem.program.interpret import Values, trace
from stratagem.program.rules.exchanges import exchange, is_exchanged
from stratagem.program.rules.gathers import ON_THE_WAY
from stratagem.program.rules.sums_in_parts import with_sums_in_parts
from stratagem.program.tracing import current_tracing


def through_memory(function: Callable[..., Tree], memory: HostMemory) -> Callable[..., tuple[jax.Array, Tree]]:
    """Return a function of one replica whose collectives go through memory.

    Args:
        function: Function of arrays, run under `shard_map` over the replicas, one on each worker.
        memory: What the workers have in common, which `let_programs_call` was given.

    Returns:
        A function of (link of the exchange before, *arrays) that returns (link of its last exchange, result).
    """

    @functools.wraps(function)
    def rewritten(link: jax.Array, *args: Tree) -> tuple[jax.Array, Tree]:
        traced, structure = trace(function, args)
        rewriting = _Rewriting(memory, getattr(function, "__name__", "step"))
        link, results = rewriting.run(traced, link, jax.tree.leaves(args))
        return link, structure.unflatten(results)

    return rewritten


class MemoryProgram:
    """A compiled function of all replicas whose collectives go through memory.

    Args:
        mesh: The mesh of the replicas.
        function: Function of one replica's part of the arguments.
        in_specs: A spec for each argument.
        out_specs: Those of the result.
        memory: What the workers have in common.
        donated: Whether buffers of the first argument may be reused.
    """

    def __init__(
        self,
        mesh: Mesh,
        function: Callable[..., Tree],
        in_specs: Tree,
        out_specs: Tree,
        memory: HostMemory,
        donated: bool,
    ) -> None:
        spmd = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)
        rewritten = with_sums_in_parts(through_memory(function, memory))
        whole = PartitionSpec()
        alone = spmd(lambda *args: rewritten(_first_link(), *args)[1], in_specs=in_specs, out_specs=out_specs)
        self._alone = jax.jit(alone, donate_argnums=0 if donated else ())
        self._linked = spmd(rewritten, in_specs=(whole, *in_specs), out_specs=(whole, out_specs))
        self._by_xla = spmd(with_sums_in_parts(function), in_specs=in_specs, out_specs=out_specs)
        self.trace = self._alone.trace
        self._is_compiled = False

    def __call__(self, *args: Tree) -> Tree:
        """Run it. In a function that is being traced it becomes a part of that, linked to those before it.

        In a loop or branch of such a function it has no link that could leave it: there XLA's own collectives, which
        XLA keeps in order, do the work.
        """
        tracing = current_tracing()
        if tracing is None:
            if not self._is_compiled:
                self._compile(*args)
            return self._alone(*args)
        here = trace_state()
        if not tracing.notes.get("link"):
            tracing.notes["link"] = [here, _first_link()]
        known, link = tracing.notes["link"]
        if known != here:
            return self._by_xla(*args)
        link, result = self._linked(link, *args)
        tracing.notes["link"] = [here, link]
        return result

    def _compile(self, *args: Tree) -> None:
        """Compile it before it runs, and give back what the compiler has freed.

        The first run takes what steps need and the memory of the host: 873 MB at most with weights of 88 MB and Adam,
        1,018 if what the compiler has freed is still there.
        """
        self._alone.lower(*args).compile()
        give_back()
        self._is_compiled = True


def _first_link() -> jax.Array:
    return jnp.zeros((), jnp.int32)


class _Rewriting:
    """Runs traced programs with their collectives replaced.

    Args:
        memory: What the workers have in common.
        name: What to call the program in messages.
    """

    def __init__(self, memory: HostMemory, name: str) -> None:
        self._memory = memory
        self._name = name
        self._exchanges = 0
        self._ages: dict[Var, int] = {}

    def run(self, traced: ClosedJaxpr, link: jax.Array, args: Sequence[Any]) -> tuple[jax.Array, list[Any]]:
        """Run a program.

        Args:
            traced: The program.
            link: What the last exchange handed on.
            args: Its arguments.

        Returns:
            The link for the next exchange, and the results.
        """
        values = Values(traced, args)
        remaining: list[JaxprEqn] = list(traced.jaxpr.eqns)
        while remaining:
            crossings, nested, remaining = self._advance(remaining, values)
            if crossings:
                self._exchanges += 1
                requests = [(eqn, values.read(eqn.invars)) for eqn in crossings]
                name = f"{self._name} {self._exchanges}"
                answers, link = exchange(requests, self._memory, name, link, self._age_of)
                for eqn, results in zip(crossings, answers, strict=True):
                    values.write(eqn.outvars, results)
            for eqn in nested:
                link, results = self._nested(eqn, link, values.read(eqn.invars))
                values.write(eqn.outvars, results)
        return link, values.read(traced.jaxpr.outvars)

    def _crosses_inside(self, eqn: JaxprEqn) -> bool:
        """Whether an equation holds programs with collectives, and is of a kind that can be taken apart."""
        if eqn.primitive.name == "cond":
            programs = parameters(eqn)["branches"]
        elif eqn.primitive.name in ("scan", "pjit", "jit"):
            programs = [parameters(eqn)["jaxpr"]]
        else:
            return False
        return any(self._has_crossing(program.jaxpr) for program in programs if isinstance(program, ClosedJaxpr))

    def _has_crossing(self, program: Jaxpr) -> bool:
        return any(is_exchanged(eqn) or self._crosses_inside(eqn) for eqn in program.eqns)

    def _advance(
        self, eqns: Sequence[JaxprEqn], values: Values
    ) -> tuple[list[JaxprEqn], list[JaxprEqn], list[JaxprEqn]]:
        """Run what can be run; return the crossings and the nested programs that come next, and what has to wait."""
        crossings, nested, waiting = [], [], []
        for eqn in eqns:
            if not values.know(eqn.invars):
                waiting.append(eqn)
            elif is_exchanged(eqn):
                crossings.append(eqn)
            elif self._crosses_inside(eqn):
                nested.append(eqn)
            else:
                values.write(eqn.outvars, run_equation(eqn, values.read(eqn.invars)))
                self._note_age(eqn)
        return crossings, nested, waiting

    def _note_age(self, eqn: JaxprEqn) -> None:
        """Note when the results of an equation are known: the number of the last equation that takes time."""
        is_quick = eqn.primitive.name in ON_THE_WAY
        age = max(map(self._age_of, eqn.invars), default=0) if is_quick else len(self._ages) + 1
        self._ages.update(dict.fromkeys(eqn.outvars, age))

    def _age_of(self, atom: Any) -> int:
        return 0 if isinstance(atom, Literal) else self._ages.get(atom, 0)

    # Programs inside equations -----------------------------------------------------------------------

    def _nested(self, eqn: JaxprEqn, link: jax.Array, values: list[Any]) -> tuple[jax.Array, list[Any]]:
        """Run an equation that holds programs with collectives, one after the other."""
        if eqn.primitive.name == "cond":
            index, *operands = values
            branches = [functools.partial(self.run, branch) for branch in parameters(eqn)["branches"]]
            return lax.switch(index, branches, link, operands)
        if eqn.primitive.name == "scan":
            return self._scan(eqn, link, values)
        return self.run(parameters(eqn)["jaxpr"], link, values)

    def _scan(self, eqn: JaxprEqn, link: jax.Array, values: list[Any]) -> tuple[jax.Array, list[Any]]:
        fixed, carry, rows = scan_operands(eqn, values)
        params, carried = parameters(eqn), len(carry)

        def body(state: tuple[jax.Array, list[Any]], row: list[Any]) -> tuple[tuple[jax.Array, list[Any]], list[Any]]:
            link, results = self.run(params["jaxpr"], state[0], [*fixed, *state[1], *row])
            return (link, results[:carried]), results[carried:]

        (link, last), stacked = lax.scan(
            body, (link, carry), rows, params["length"], reverse=params["reverse"], unroll=params["unroll"]
        )
        return link, [*last, *stacked]
