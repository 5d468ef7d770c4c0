"""Replica functions whose variables lie at one place, the centre, and are updated there.

On an ordinary mesh one program holds everything: the replicas' work, the sum of gradients, the update. With a
centre it is cut at its updates. The replicas' part runs on the mesh, with copies of the variables that it reads;
the summed gradients go to the centre; the update runs there. So what only updates touch, the optimizer's slots,
never leaves the centre.

Where a step reads what it has updated (a second optimizer's gradients, say, after the first has been applied), the
replicas' part is run again with the new values filled in. XLA removes what it does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jax.sharding import PartitionSpec

from stratagem.mesh.mesh import AXIS, ReplicaMesh, Tree
from stratagem.program.compat import needed_part, parameters
from stratagem.program.rules.cpu import suited_to_cpu
from stratagem.program.rules.through_memory import MemoryProgram

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


def compiled(
    mesh: ReplicaMesh, function: Callable[..., Tree], in_specs: Tree, out_specs: Tree, *, donated: bool, eager: bool
) -> Callable[..., Tree]:
    """Return a function of all replicas, given that of one.

    Args:
        mesh: The replicas, and where variables lie.
        function: Function of one replica's part of the arguments.
        in_specs: `PartitionSpec(AXIS)` for arguments that replicas share, `PartitionSpec()` for those that all get
            whole; a prefix of their structure.
        out_specs: The same for the results. Variables are among those that are whole.
        donated: Whether buffers of the first argument may be reused.
        eager: Whether it runs operation by operation.
    """
    if mesh.devices[0].platform == "cpu" and not eager:
        function = suited_to_cpu(function)
    if mesh.memory is not None and not eager:
        return MemoryProgram(mesh.mesh, function, in_specs, out_specs, mesh.memory, donated=donated)
    spmd = _spmd(mesh, function, in_specs, out_specs)
    if not mesh.central:
        return spmd if eager else jax.jit(spmd, donate_argnums=0 if donated else ())
    if not eager:
        return _CentralProgram(mesh, function, in_specs, out_specs, donated=donated)

    def eagerly(*args: Tree) -> Tree:
        leaves, structure = jax.tree.flatten(args)
        copies = _on_mesh(mesh, leaves, _of_leaves(in_specs, args))
        return _at_home(mesh, spmd(*structure.unflatten(copies)), out_specs)

    return eagerly


class _CentralProgram:
    """A replica function, cut at its updates when it is first called. The arguments are those of `compiled`."""

    def __init__(
        self, mesh: ReplicaMesh, function: Callable[..., Tree], in_specs: Tree, out_specs: Tree, *, donated: bool
    ) -> None:
        self._mesh = mesh
        self._function = function
        self._in_specs = in_specs
        self._out_specs = out_specs
        self._donated = donated
        self._run: Callable[[list[Any]], list[Any]] | None = None
        self._structure: Any = None

    def __call__(self, *args: Tree) -> Tree:
        """Run it; what is whole is at the centre afterwards, what replicas share stays with them."""
        if self._run is None:
            self._run = self._traced(args)
        return _at_home(self._mesh, self._structure.unflatten(self._run(jax.tree.leaves(args))), self._out_specs)

    def _traced(self, args: Tree) -> Callable[[list[Any]], list[Any]]:
        mesh = self._mesh
        leaves, structure = jax.tree.flatten(args)
        in_specs = _of_leaves(self._in_specs, args)
        own = [_own_part(mesh, leaf, spec) for leaf, spec in zip(leaves, in_specs, strict=True)]
        axes = [(AXIS, mesh.size)] if mesh.size > 1 else None
        trace = jax.make_jaxpr(self._function, axis_env=axes, return_shape=True)
        traced, shapes = trace(*structure.unflatten(own))
        self._structure = jax.tree.structure(shapes)
        consts, inputs, results = list(traced.consts), list(traced.jaxpr.invars), list(traced.jaxpr.outvars)
        specs = {r: s for r, s in zip(results, _of_leaves(self._out_specs, shapes), strict=True) if isinstance(r, Var)}
        specs.update(zip(inputs, in_specs, strict=True))  # a result that is an input as well is read as that
        inputs = [*traced.jaxpr.constvars, *inputs]
        donated = set(traced.jaxpr.invars[: len(jax.tree.leaves(args[0]))]) if self._donated else set()
        needed_later = set(_variables(results))
        parts = []
        for part in reversed(_cut(traced.jaxpr)):
            parts.insert(0, (part, part.compiled(mesh, specs, donated - needed_later)))
            needed_later.update(_variables(part.operands))

        def run(leaves: list[Any]) -> list[Any]:
            known = dict(zip(inputs, [*consts, *leaves], strict=True))
            for part, function in parts:
                known.update(zip(part.results, function(_read(part.operands, known)), strict=True))
            return _read(results, known)

        return run


@dataclass(frozen=True)
class _Part:
    """A piece of a program that runs at one place.

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
        step = jax.jit(_spmd(mesh, function, tuple(in_specs), out_specs))
        return lambda values: step(*_on_mesh(mesh, values, in_specs))


def _cut(program: Jaxpr) -> list[_Part]:
    """Cut a program: what replicas do up to the first updates, these, what replicas do then, and so on."""
    inputs, results = [*program.constvars, *program.invars], program.outvars
    eqns = _needed(program, inputs, results, program.eqns)[0].eqns
    pending = [eqn for eqn in eqns if _is_update(eqn)]
    given = dict.fromkeys(inputs)
    made: set[Var] = set()
    parts = []
    while pending or not made.union(given).issuperset(_variables(results)):
        reached, within = set(given), []
        for eqn in eqns:
            if not _is_update(eqn) and reached.issuperset(_variables(eqn.invars)):
                reached.update(eqn.outvars)
                within.append(eqn)
        ready = [eqn for eqn in pending if reached.issuperset(_variables(eqn.invars))]
        asked = dict.fromkeys(_variables([*(operand for eqn in ready for operand in eqn.invars), *results]))
        wanted = [var for var in asked if var in reached and var not in given and var not in made]
        if wanted:
            piece, used = _needed(program, list(given), wanted, within)
            operands = [var for var, needed in zip(given, used, strict=True) if needed]
            parts.append(_Part(ClosedJaxpr(piece, ()), operands, wanted, is_update=False))
            made.update(wanted)
        for eqn in ready:
            parts.append(_Part(parameters(eqn)["jaxpr"], eqn.invars, eqn.outvars, is_update=True))
            given.update(dict.fromkeys(eqn.outvars))
        pending = [eqn for eqn in pending if not given.keys() >= set(eqn.outvars)]
    return parts


def _is_update(eqn: JaxprEqn) -> bool:
    # One that combines values of replicas (a named axis is an effect) has to run where they are.
    return parameters(eqn).get("name") == _UPDATE and not eqn.effects


def _needed(
    program: Jaxpr, inputs: Sequence[Var], results: Sequence[Any], eqns: Sequence[JaxprEqn]
) -> tuple[Jaxpr, Sequence[bool]]:
    """Return what some results of a program need, and which inputs that needs."""
    effects = frozenset[Any]().union(*(eqn.effects for eqn in eqns))
    piece = program.replace(constvars=[], invars=inputs, outvars=results, eqns=eqns, effects=effects)
    return needed_part(piece, [True] * len(results))


def _variables(atoms: Iterable[Any]) -> list[Var]:
    return [atom for atom in atoms if isinstance(atom, Var)]


def _read(atoms: Sequence[Any], known: Mapping[Var, Any]) -> list[Any]:
    return [jnp.asarray(atom.val) if isinstance(atom, Literal) else known[atom] for atom in atoms]


# Places --------------------------------------------------------------------------------------------


def _spmd(mesh: ReplicaMesh, function: Callable, in_specs: Tree, out_specs: Tree) -> Callable:
    if mesh.size == 1:
        return function
    return jax.shard_map(function, mesh=mesh.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


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


def _at_home(mesh: ReplicaMesh, tree: Tree, specs: Tree) -> Tree:
    leaves, structure = jax.tree.flatten(tree)
    placed = zip(leaves, _of_leaves(specs, tree), strict=True)
    return structure.unflatten([leaf if spec == _SHARED else mesh.keep(leaf) for leaf, spec in placed])
