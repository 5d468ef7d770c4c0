"""`Strategy.run`: a function of one replica becomes one compiled program of all replicas.

The function may read and assign Keras variables as if it ran eagerly. It is traced once to learn
which variables it reads and assigns; these become inputs and outputs of the program, and the
replicas' assignments combine by the table of `mesh.variable_policies`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
from jax.core import Tracer
from jax.sharding import PartitionSpec

from stratagem.core.errors import InputError, UsageError
from stratagem.core.progress import Phase
from stratagem.mesh.exchange import Exchange, Ragged, Share, own_share
from stratagem.mesh.mesh import AXIS, Tree
from stratagem.mesh.packs import sum_over_replicas
from stratagem.mesh.split import Split
from stratagem.mesh.values import DistributedValues, PerReplica
from stratagem.mesh.variable_policies import Policy, contribution, enter, leave, policy_of
from stratagem.program.cache import Called, Found, ProgramStore, VariableList
from stratagem.program.call import Call
from stratagem.program.executables import Executables
from stratagem.program.guards import Place, is_array
from stratagem.program.remote_values import assign_all, lives_elsewhere, values_of
from stratagem.program.rules.at_centre import compiled
from stratagem.program.rules.row_changes import RowProgram
from stratagem.program.tracing import Replayable, current_tracing
from stratagem.program.untraced import leave_tracing
from stratagem.replica.context import ReplicaContext, StrategyLike, inside_step, replica_context
from stratagem.replica.on_read import has_parts
from stratagem.replica.placing import placed
from stratagem.replica.uneven import run_uneven


class ReplicaRunner:
    """Runs functions on every replica of a strategy and keeps their programs.

    Args:
        strategy: The strategy.
        mean_gradients: Whether gradients are averaged over replicas by rows, not summed; see `ReplicaContext`.
        executables: Where compiled programs are kept beyond the life of the runner; None for nowhere.
    """

    def __init__(
        self, strategy: StrategyLike, *, mean_gradients: bool = False, executables: Executables | None = None
    ) -> None:
        self.strategy = strategy
        self.mesh = strategy.mesh
        self._mean_gradients = mean_gradients
        self._executables = executables
        self._programs: ProgramStore[_Program] = ProgramStore("strategy.run")

    def __call__(self, fn: Callable[..., Tree], args: Sequence[Tree], kwargs: dict[str, Tree]) -> Tree:
        """Run `fn` once on every replica.

        Args:
            fn: Function of one replica's values.
            args: Its arguments: `PerReplica` values are taken apart, others are given to all.
            kwargs: Its keyword arguments.

        Returns:
            `fn`'s result: each array a `PerReplica`, or the array itself with one replica.
        """
        if inside_step():
            raise UsageError(
                "strategy.run was called inside a function that strategy.run is running.",
                "A replica cannot start all replicas again.",
                "Call the inner function directly, without strategy.run.",
            )
        tracing = current_tracing()
        if self.mesh.central:
            leave_tracing()  # its updates run between programs, not in one
        if tracing is not None:
            tracing.notes.setdefault("strategies", []).append(self.strategy)
        call = Call(fn, args, kwargs, whole=_is_distributed)
        shares = _Shares(call.arrays)
        arrays = self._placed(call.arrays, shares)
        found = self._found(call, shares, arrays)
        values = [self._replicated(value) if is_array(value) else value for value in found.values]
        if tracing is not None:  # part of a step, not a step
            result = found.program.run(call, found.inputs, arrays, values)
        else:
            with self.mesh.progress.during(found.program.phase, steps=1):
                result = found.program.run(call, found.inputs, arrays, values)
            found.program.phase = Phase.STEP
        self._programs.settle(call, found)
        return result

    def prepare(self, fn: Callable[..., Tree], args: Sequence[Tree]) -> None:
        """Trace a function without running it: the variables that it makes are there afterwards.

        Args:
            fn: Function of one replica's values.
            args: Its arguments, as for the calls to come.
        """
        call = Call(fn, args, {}, whole=_is_distributed)
        shares = _Shares(call.arrays)
        self._programs.settle(call, self._found(call, shares, self._placed(call.arrays, shares)))

    def _placed(self, arrays: Sequence[Any], shares: _Shares) -> list[Any]:
        return [
            array.stacked if spread else self._replicated(array)
            for array, spread in zip(arrays, shares.spread, strict=True)
        ]

    def _replicated(self, array: Any) -> Any:
        return array if isinstance(array, Tracer) else self.mesh.replicate(array)

    def _found(self, call: Call, shares: _Shares, arrays: list[Any]) -> Found[_Program]:
        """Return the program of a call, made if there is none."""

        def make(inputs: list[Place]) -> _Program:
            program = _Program(self.strategy, shares, self._mean_gradients, self._executables)
            program.prepare(call, inputs, arrays)
            return program

        return self._programs.find(call, shares.signature, make)


class _Program:
    """One traced and compiled replica function, for one signature of arguments.

    Args:
        strategy: The strategy.
        shares: Which of the arrays the replicas share.
        mean_gradients: Whether gradients are averaged over replicas.
        executables: Where its compiled form is kept, or None.
    """

    def __init__(
        self,
        strategy: StrategyLike,
        shares: _Shares,
        mean_gradients: bool,
        executables: Executables | None,
    ) -> None:
        self._mean_gradients = mean_gradients
        self.phase = Phase.COMPILING  # the first run compiles
        self.mesh = strategy.mesh
        self.strategy = strategy
        self._called = Called()
        self._shares = shares
        self._stacks = self.mesh.size > 1 or self.mesh.central  # one array of all replicas for each output
        self._output: Any = None
        self._output_shares: list[tuple[int, ...] | None] = []
        self._executables = executables

    @property
    def alive(self) -> bool:
        """Whether the variables that it reads and assigns are still there."""
        return self.variables.alive

    def prepare(self, call: Call, inputs: Sequence[Place], arrays: Sequence[jax.Array]) -> None:
        """Trace once, to learn which variables the function touches. It may make new ones.

        Args:
            call: A call like those to come.
            inputs: Where the numbers and arrays stand that are inputs.
            arrays: The arrays of the call.
        """
        with self._called.by(call, inputs):
            self._discover(arrays, [place.get() for place in inputs])
        self._compiled = self._compile()
        if not hasattr(self._compiled, "lower"):
            self._executables = None
        self._with_rows = RowProgram(self._compiled, self.variables, self.assigned)

    def _discover(self, arrays: Sequence[jax.Array], inputs: Sequence[Any]) -> None:
        shapes = [
            jax.ShapeDtypeStruct(array.shape[1:] if spread else array.shape, array.dtype)
            for array, spread in zip(arrays, self._shares.spread, strict=True)
        ]
        share = Share(rows=1, global_rows=self.mesh.size, weight=1.0 / self.mesh.size)
        tracing: list[Replayable] = []

        def traced(own: list[jax.Array], numbers: list[Any]) -> None:
            tracing.append(Replayable(self._body(own, share, Exchange()), discovering=True))
            with self._called.with_inputs(numbers):
                tracing[0].run()

        axes = [(AXIS, self.mesh.size)] if self.mesh.size > 1 else None
        # Variables that are made inside a scope get their values when the outermost scope ends: outside the trace.
        with self.mesh.making_variables(), keras.StatelessScope():
            jax.make_jaxpr(traced, axis_env=axes)(shapes, list(inputs))
        scope = tracing[0].scope
        variables = scope.touched
        alike = {id(variable) for variable in tracing[0].notes.get("updated alike", ())}
        self._policies = [Policy.SAME if id(variable) in alike else policy_of(variable) for variable in variables]
        self.variables, self._new = VariableList(variables), variables  # held until the program has run
        self._with_parts = [i for i, variable in enumerate(variables) if has_parts(variable, self.mesh)]
        self.assigned = [i for i, variable in enumerate(variables) if id(variable) in scope.assigned]

    def _body(self, own: Sequence[jax.Array], share: Share, exchange: Exchange) -> Callable[[], Tree]:
        def body() -> Tree:
            exchange.begin()
            context = ReplicaContext(self.strategy, share, exchange, mean_gradients=self._mean_gradients)
            with replica_context(context):
                return self._called.call.on(own)

        return body

    def _replica(
        self, values: list[jax.Array], arrays: list[jax.Array], numbers: list[Any]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Run on one replica: return its outputs, with an axis for the replicas, and the variables' new values."""
        with self._called.with_inputs(numbers):
            return self._on_one(values, arrays)

    def _on_one(self, values: list[jax.Array], arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        count = len(self._shares.spread)
        own = [array[0] if spread else array for array, spread in zip(arrays, self._shares.spread, strict=False)]
        views = enter(self._policies, values) if self.mesh.size > 1 else list(values)
        for i, part in zip(self._with_parts, arrays[count:], strict=True):
            views[i] = part[0]
        split = self._shares.split
        if split is None or split.even:
            share = Share(rows=1, global_rows=self.mesh.size, weight=1.0 / self.mesh.size)
            outputs, after = self._step(share, Exchange(), own, views)
            self._output_shares = [None] * len(outputs)
        else:
            share, ragged, after = self._uneven(split, own, views)
            outputs = [output.value for output in ragged]
            self._output_shares = [_sizes(output) for output in ragged]
        changed = self._merged(share, values, views, after) if self.mesh.size > 1 else after
        new = dict(zip(self.assigned, after, strict=True))
        results = [*outputs, *(new[i] for i in self._with_parts if i in new)]
        return [result[None] for result in results] if self._stacks else results, changed

    def _step(
        self, share: Share, exchange: Exchange, own: Sequence[jax.Array], views: Sequence[jax.Array]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        tracing = Replayable(self._body(own, share, exchange), list(zip(self.variables, views, strict=True)))
        leaves, self._output = jax.tree.flatten(tracing.run())
        outputs = [jnp.asarray(leaf.value if isinstance(leaf, keras.Variable) else leaf) for leaf in leaves]
        return outputs, [tracing.scope.get_current_value(self.variables[i]) for i in self.assigned]

    def _uneven(
        self, split: Split, own: Sequence[jax.Array], views: Sequence[jax.Array]
    ) -> tuple[Share, list[Ragged], list[jax.Array]]:
        """Run on exactly the rows of this replica; outputs may be of another size on each.

        A replica without rows runs on none, as in TensorFlow. Where the function cannot (the greatest of no numbers),
        it runs on a stand-in row that counts for nothing, as it does where gradients are averaged by rows.
        """
        if 0 in split.shares and not self._mean_gradients:
            with contextlib.suppress(Exception):  # one of the function's own is raised again below
                return own_share(split, empty=True), *self._on_rows(split, own, views, empty=True)
        share = own_share(split)
        outputs, after = self._on_rows(split, own, views, empty=False)
        return share, [dataclasses.replace(o, value=share.masked(o.value, _none_of(o.value))) for o in outputs], after

    def _on_rows(
        self, split: Split, own: Sequence[jax.Array], views: Sequence[jax.Array], *, empty: bool
    ) -> tuple[list[Ragged], list[jax.Array]]:
        batch = {i: array for i, array in enumerate(own) if self._shares.batched[i]}
        ranks: list[int] = []

        def step(share: Share, exchange: Exchange, rows: dict[int, jax.Array]) -> Tree:
            outputs, after = self._step(share, exchange, [rows.get(i, array) for i, array in enumerate(own)], views)
            ranks[:] = [output.ndim for output in outputs]
            return [Ragged(jnp.atleast_1d(output), 0) for output in outputs], after

        outputs, after = run_uneven(step, batch, split, empty=empty)
        whole = [output.value if rank else output.value[0] for output, rank in zip(outputs, ranks, strict=True)]
        return [dataclasses.replace(o, value=v) for o, v in zip(outputs, whole, strict=True)], after

    def _compile(self) -> Callable:
        # Variables are not donated. A program may hold `variable.value`, or a piece of it, from one call to the next;
        # JAX keeps NumPy's views of a donated array, but deletes it and its pieces under other names.
        specs = [PartitionSpec(AXIS) if spread else PartitionSpec() for spread in self._shares.spread]
        specs += [PartitionSpec(AXIS)] * len(self._with_parts)
        in_specs = (PartitionSpec(), specs, PartitionSpec())
        out_specs = (PartitionSpec(AXIS), PartitionSpec())
        return compiled(self.mesh, self._replica, in_specs, out_specs, donated=False, eager=False)

    def _merged(
        self, share: Share, values: list[jax.Array], views: list[jax.Array], after: list[jax.Array]
    ) -> list[jax.Array]:
        new = dict(zip(self.assigned, after, strict=True))
        # What replicas hold apart counts alike on each, whatever rows it has.
        equal = dataclasses.replace(share, weight=1.0 / self.mesh.size, first=0)
        shares = {i: equal if i in self._with_parts else share for i in self.assigned}
        own = {i: contribution(self._policies[i], shares[i], views[i], new[i]) for i in self.assigned}
        summands = {i: summand for i, summand in own.items() if summand is not None}
        pack = self.strategy.pack_bytes
        totals = dict(zip(summands, sum_over_replicas(list(summands.values()), pack), strict=True))
        return [leave(self._policies[i], values[i], views[i], new[i], totals.get(i)) for i in self.assigned]

    def run(self, call: Call, inputs: Sequence[Place], arrays: list[jax.Array], values: list[Any]) -> Tree:
        """Run the program: read the variables, assign their new values, return the outputs.

        Args:
            call: The call that it runs for.
            inputs: Where the numbers and arrays stand that are inputs.
            arrays: The arrays among the arguments, where the program takes them.
            values: What stands in the places.
        """
        parts = [self.variables[i].parts for i in self._with_parts]
        arrays = [*arrays, *map(self.mesh.keep_apart, self._values_of(parts))]
        with self._called.by(call, inputs):
            found = None if current_tracing() is not None else self._with_rows.run(arrays, values)
            outputs, changed = found or self._run(self._placed_values(), arrays, values)
        self.mesh.wait((outputs, changed))
        assign_all([self.variables[i] for i in self.assigned], changed)
        moved = [part for i, part in zip(self._with_parts, parts, strict=True) if i in self.assigned]
        outputs, apart = outputs[: len(outputs) - len(moved)], outputs[len(outputs) - len(moved) :]
        assign_all(moved, apart)
        self._new = []
        if self.mesh.size == 1:
            return self._output.unflatten([output[0] for output in outputs] if self._stacks else outputs)
        return self._output.unflatten(
            [
                PerReplica(output, self.mesh, sizes, self._shares.empty)
                for output, sizes in zip(outputs, self._output_shares, strict=True)
            ]
        )

    def _run(self, *args: Any) -> Any:
        if self._executables is not None and current_tracing() is None:
            devices = tuple(device.id for device in self.mesh.devices)
            self._compiled = self._executables.executable(self._compiled, args, devices)
            self._executables = None
        return self._compiled(*args)

    def _values_of(self, variables: Sequence[Any]) -> list[Any]:
        tracing = current_tracing()
        if tracing is None:
            return values_of(variables)
        # Not `variable.value`, to which a variable that lives elsewhere adds what was added.
        return [tracing.scope.get_current_value(variable) for variable in variables]

    def _placed_values(self) -> list[jax.Array]:
        """Return the variables' values where they are kept; inside a compiled function, as they stand there."""
        values = self._values_of(self.variables)
        if current_tracing() is not None:
            return values
        if all(self.mesh.keeps(value) for value in values):
            return values
        names = [f"variable {i} {variable.path}" for i, variable in enumerate(self.variables)]
        kept = placed(self.strategy, values, names)
        # One that the program only reads would be put there again at each step, after a talk among the workers.
        for variable, before, value in zip(self.variables, values, kept, strict=True):
            if value is not before and not lives_elsewhere(variable):
                variable.assign(value)
        return kept


class _Shares:
    """Which arrays of a call hold a component for each replica, and which of them rows of a batch.

    Args:
        arrays: The arrays among the arguments.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.spread = tuple(_is_distributed(array) for array in arrays)
        shares = [array.shares if _is_distributed(array) else None for array in arrays]
        self.batched = tuple(share is not None for share in shares)
        known = {share for share in shares if share is not None}
        if len(known) > 1:
            raise InputError(
                f"The arguments of strategy.run are shares of batches of different sizes: {sorted(known)} rows.",
                "A replica would pair rows of one batch with rows of another.",
                "Give values of one batch of the distributed dataset.",
            )
        rows = next(iter(known), None)
        self.split = None if rows is None else Split.of(rows)
        empty = [array.empty for array in arrays if _is_distributed(array) and array.empty is not None]
        had_none = None if rows is None or all(rows) else tuple([not share for share in rows])
        self.empty = had_none or next(iter(empty), None)
        self.signature = self.spread, self.batched, self.split, self.empty


def _sizes(output: Ragged) -> tuple[int, ...] | None:
    """Return the sizes of an output on the replicas, where they differ."""
    return output.sizes if output.value.ndim and len(set(output.sizes or ())) > 1 else None


def _none_of(value: jax.Array) -> Any:
    """Return what stands for nothing in a result: NaN, which does not count, where the dtype has it."""
    return jnp.nan if jnp.issubdtype(value.dtype, jnp.inexact) else 0


def _is_distributed(leaf: object) -> bool:
    return isinstance(leaf, DistributedValues)
