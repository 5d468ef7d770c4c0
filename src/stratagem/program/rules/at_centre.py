"""Steps whose variables lie at one place, the centre, and are updated there.

On an ordinary mesh one program holds everything: the replicas' work, the sum of gradients, the update. With a
centre it is cut at its updates. The replicas' part runs on the mesh, with copies of the variables that it reads;
the summed gradients go to the centre; the update runs there. So what only updates touch, the optimizer's slots,
never leaves the centre.

Where a step reads what it has updated (a second optimizer's gradients, say, after the first has been applied), the
replicas' part is run again with the new values filled in. XLA removes what it does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var, jaxpr_as_fun
from jax.sharding import PartitionSpec

from stratagem.mesh.mesh import AXIS, ReplicaMesh, Tree
from stratagem.program.compat import needed_part, parameters
from stratagem.program.interpret import Values, trace, variables_of

_UPDATE: Final = "update_at_centre"
_WHOLE: Final = PartitionSpec()
_SHARED: Final = PartitionSpec(AXIS)


def update_at_centre(mesh: ReplicaMesh, update: Callable[..., Tree], *operands: Tree) -> Tree:
    """Call a function that makes new values of variables; on a mesh with a centre, let it run there.

    Args:
        mesh: The mesh of the step that is being traced.
        update: Function of `operands` alone.
        operands: Nested structures of arrays that are equal on all replicas: values, summed gradients.
    """
    if not mesh.central:
        return update(*operands)

    def marked(*operands: Tree) -> Tree:
        return update(*operands)

    marked.__name__ = _UPDATE
    return jax.jit(marked)(*operands)


def run_around_centre(
    mesh: ReplicaMesh, function: Callable[..., Tree], in_specs: Tree, out_specs: Tree
) -> Callable[..., Tree]:
    """Return a function of all replicas that is not compiled, given copies of the variables, which lie at the centre.

    Args:
        mesh: The replicas, and the centre.
        function: Function of all replicas.
        in_specs: Which arguments replicas share, as for `program.compile.compiled`.
        out_specs: The same for the results.
    """

    def run(*args: Tree) -> Tree:
        leaves, structure = jax.tree.flatten(args)
        results = function(*structure.unflatten(_on_mesh(mesh, leaves, _of_leaves(in_specs, args))))
        leaves, structure = jax.tree.flatten(results)
        return structure.unflatten(_at_home(mesh, leaves, _of_leaves(out_specs, results)))

    return run


class CentralProgram:
    """A replica function, cut at its updates when it is first called.

    What is whole is at the centre after a call; what replicas share stays with them. The arguments are those of
    `program.compile.compiled`.
    """

    def __init__(
        self, mesh: ReplicaMesh, function: Callable[..., Tree], in_specs: Tree, out_specs: Tree, *, donated: bool
    ) -> None:
        self._mesh = mesh
        self._function = function
        self._in_specs = in_specs
        self._out_specs = out_specs
        self._donated = donated
        self._run: Callable[..., Tree] | None = None

    def __call__(self, *args: Tree) -> Tree:
        if self._run is None:
            self._run = self._traced(args)
        return self._run(jax.tree.leaves(args))

    def _traced(self, args: Tree) -> Callable[[list[Any]], Tree]:
        mesh = self._mesh
        leaves, structure = jax.tree.flatten(args)
        in_specs = _of_leaves(self._in_specs, args)
        own = [_own_part(mesh, leaf, spec) for leaf, spec in zip(leaves, in_specs, strict=True)]
        traced, result = trace(self._function, structure.unflatten(own), mesh.axes)
        inputs, results = traced.jaxpr.invars, traced.jaxpr.outvars
        out_specs = _of_leaves(self._out_specs, result.unflatten(results))
        specs = {r: s for r, s in zip(results, out_specs, strict=True) if isinstance(r, Var)}
        specs.update(zip(inputs, in_specs, strict=True))  # a result that is an input as well is read as that
        donated = set(inputs[: len(jax.tree.leaves(args[0]))]) if self._donated else set()
        needed_later = set(variables_of(results))
        stages = []
        for stage in reversed(_cut(traced.jaxpr)):
            stages.insert(0, (stage, stage.compiled(mesh, specs, donated - needed_later)))
            needed_later.update(variables_of(stage.operands))

        def run(leaves: list[Any]) -> Tree:
            values = Values(traced, leaves)
            for stage, function in stages:
                values.write(stage.results, function(values.read(stage.operands)))
            return result.unflatten(_at_home(mesh, values.read(results), out_specs))

        return run


@dataclass(frozen=True)
class _Stage:
    """A part of a program that runs at one place.

    Args:
        traced: What it computes.
        operands: What it reads.
        results: What it makes.
        is_update: Whether it runs at the centre.
    """

    traced: ClosedJaxpr
    operands: Sequence[Any]
    results: Sequence[Var]
    is_update: bool

    def compiled(
        self, mesh: ReplicaMesh, specs: Mapping[Var, PartitionSpec], spare: set[Var]
    ) -> Callable[[list[Any]], list[jax.Array]]:
        """Compile it, with the moving of what it reads to where it runs.

        Args:
            mesh: The replicas, and the centre.
            specs: Of inputs and results of the program, which replicas share.
            spare: Inputs whose buffers an update may reuse.
        """
        function = jaxpr_as_fun(self.traced)
        if self.is_update:
            reused = [i for i, o in enumerate(self.operands) if isinstance(o, Var) and o in spare]
            update = jax.jit(function, donate_argnums=reused)
            return lambda values: update(*[mesh.keep(value) for value in values])
        in_specs = [specs.get(var, _WHOLE) for var in self.operands]
        out_specs = [specs.get(var, _WHOLE) for var in self.results]
        step = jax.jit(mesh.spmd(function, tuple(in_specs), out_specs))
        return lambda values: step(*_on_mesh(mesh, values, in_specs))


def _cut(program: Jaxpr) -> list[_Stage]:
    """Cut a program: what replicas do up to the first updates, these, what replicas do then, and so on."""
    inputs, results = [*program.constvars, *program.invars], program.outvars
    eqns = _needed(program, inputs, results, program.eqns)[0].eqns
    pending = [eqn for eqn in eqns if _is_update(eqn)]
    given = dict.fromkeys(inputs)
    made: set[Var] = set()
    parts = []
    while pending or not made.union(given).issuperset(variables_of(results)):
        reached, within = set(given), []
        for eqn in eqns:
            if not _is_update(eqn) and reached.issuperset(variables_of(eqn.invars)):
                reached.update(eqn.outvars)
                within.append(eqn)
        ready = [eqn for eqn in pending if reached.issuperset(variables_of(eqn.invars))]
        asked = dict.fromkeys(variables_of([*(operand for eqn in ready for operand in eqn.invars), *results]))
        wanted = [var for var in asked if var in reached and var not in given and var not in made]
        if wanted:
            piece, used = _needed(program, list(given), wanted, within)
            operands = [var for var, needed in zip(given, used, strict=True) if needed]
            parts.append(_Stage(ClosedJaxpr(piece, ()), operands, wanted, is_update=False))
            made.update(wanted)
        for eqn in ready:
            parts.append(_Stage(parameters(eqn)["jaxpr"], eqn.invars, eqn.outvars, is_update=True))
            given.update(dict.fromkeys(eqn.outvars))
        pending = [eqn for eqn in pending if not given.keys() >= set(eqn.outvars)]
    return parts


def _is_update(eqn: JaxprEqn) -> bool:
    # One that combines values of replicas (a named axis is an effect) has to run where they are.
    return parameters(eqn).get("name") == _UPDATE and not eqn.effects


def _needed(
    program: Jaxpr, inputs: Sequence[Var], results: Sequence[Any], eqns: Sequence[JaxprEqn]
) -> tuple[Jaxpr, Sequence[bool]]:
    """Return the part of a program that some results need, and which inputs that part needs."""
    effects = frozenset[Any]().union(*(eqn.effects for eqn in eqns))
    piece = program.replace(constvars=[], invars=inputs, outvars=results, eqns=eqns, effects=effects)
    return needed_part(piece, [True] * len(results))


# Places --------------------------------------------------------------------------------------------


def _own_part(mesh: ReplicaMesh, leaf: Any, spec: PartitionSpec) -> Any:
    """Return the shape of one replica's part of an argument; a Python number stays what it is."""
    if not hasattr(leaf, "shape"):
        return leaf
    shape = leaf.shape if spec == _WHOLE else (leaf.shape[0] // mesh.size, *leaf.shape[1:])
    return jax.ShapeDtypeStruct(shape, leaf.dtype)


def _of_leaves(specs: Tree, tree: Tree) -> list[PartitionSpec]:
    """Return the spec of each leaf, given those of a prefix of the tree."""
    return jax.tree.leaves(jax.tree.broadcast(specs, tree, is_leaf=_is_spec), is_leaf=_is_spec)


def _is_spec(leaf: object) -> bool:
    return isinstance(leaf, PartitionSpec)


def _on_mesh(mesh: ReplicaMesh, values: Sequence[Any], specs: Sequence[PartitionSpec]) -> list[jax.Array]:
    return jax.device_put(list(values), [mesh.sharded if spec == _SHARED else mesh.replicated for spec in specs])


def _at_home(mesh: ReplicaMesh, values: Sequence[Any], specs: Sequence[PartitionSpec]) -> list[jax.Array]:
    return [value if spec == _SHARED else mesh.keep(value) for value, spec in zip(values, specs, strict=True)]
