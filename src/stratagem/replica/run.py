"""`Strategy.run`: a function of one replica becomes one compiled program of all replicas.

The function may read and assign Keras variables as if it ran eagerly. It is traced once to learn
which variables it reads and assigns; these become inputs and outputs of the program, and the
replicas' assignments combine by the table of `mesh.variable_policies`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import PartitionSpec

from stratagem.core.advancing import AdvancedByPython
from stratagem.core.errors import InputError, UsageError
from stratagem.core.log import announce_once
from stratagem.mesh.exchange import Exchange, Ragged, Share, even_share, own_share
from stratagem.mesh.mesh import AXIS, ReplicaMesh, Tree
from stratagem.mesh.placing import placed
from stratagem.mesh.shapes import Shape
from stratagem.mesh.shards import resting_spec, shard_axis, shards_of, wholes_of
from stratagem.mesh.split import Split
from stratagem.mesh.values import DistributedValues, PerReplica, refuse_text
from stratagem.mesh.variable_policies import Change, enter, merge
from stratagem.program.cache import ProgramStore
from stratagem.program.call import Call
from stratagem.program.checked_numbers import with_checked_numbers
from stratagem.program.compile import Executables, compiled
from stratagem.program.described import trained
from stratagem.program.discover import policies_of
from stratagem.program.guards import CapturedValue, is_array
from stratagem.program.made import MadeVariables, unmarked
from stratagem.program.program import Program
from stratagem.program.python_values import NeedsPython
from stratagem.program.remote_values import assign_all, lives_elsewhere, values_of
from stratagem.program.rules.gathers import gathering
from stratagem.program.rules.row_changes import RowProgram
from stratagem.program.rules.streams import Streams
from stratagem.program.tracing import MadeEachTimeError, Replayable, current_tracing, leave_tracing, value_now
from stratagem.replica.context import ReplicaContext, StrategyLike, inside_step, merging_context, replica_context
from stratagem.replica.on_read import has_parts
from stratagem.replica.out_of_memory import note_out_of_memory
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
        self.mean_gradients = mean_gradients
        self.executables = executables
        self._programs = ProgramStore("strategy.run")

    def __call__(self, fn: Callable[..., Tree], args: Sequence[Tree], kwargs: dict[str, Tree]) -> Tree:
        """Run `fn` once on every replica.

        Args:
            fn: Function of one replica's values.
            args: Its arguments: `PerReplica` values are taken apart, others are given to all.
            kwargs: Its keyword arguments.

        Returns:
            `fn`'s result: each array a `PerReplica`, or the array itself with one replica.
        """
        merging = merging_context()
        if merging is not None:
            return merging.run(fn, args, kwargs)
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
        given = next((leaf for leaf in call.plain if isinstance(leaf, AdvancedByPython)), None)
        if given is not None:
            raise _advanced_inside(f"was given a {type(given).__name__}")
        try:
            return self._run(call, prepare=False)
        except NeedsPython:
            if tracing is not None:
                raise
            raise _advanced_inside("runs a function that iterates over a dataset") from None
        except RuntimeError as error:
            note_out_of_memory(error, self.strategy)
            raise

    def prepare(self, fn: Callable[..., Tree], args: Sequence[Tree]) -> None:
        """Trace a function without running it: the variables that it makes are there afterwards.

        Args:
            fn: Function of one replica's values.
            args: Its arguments, as for the calls to come.
        """
        self._run(Call(fn, args, {}, whole=_is_distributed), prepare=True)

    def _run(self, call: Call, *, prepare: bool) -> Tree:
        shares = _Shares(call.arrays)
        arrays = [
            array.stacked if spread else _replicated(self.mesh, array)
            for array, spread in zip(call.arrays, shares.spread, strict=True)
        ]

        def make(inputs: Sequence[CapturedValue]) -> Program:
            return _ReplicaProgram(self, call, inputs, arrays, shares)

        try:
            return self._programs.run(call, shares.signature, make, None if prepare else arrays)
        except MadeEachTimeError:
            if current_tracing() is not None:
                raise
        result = _ReplicaProgram(self, call, (), arrays, shares, MadeVariables()).step(call, (), arrays)
        announce_once(
            f"{call.name} makes a variable each time strategy.run calls it, so it is compiled at each call. Make the "
            "variable outside, or keep it where the next call finds it."
        )
        return result


class _ReplicaProgram(Program):
    """One traced and compiled replica function, for one signature of arguments.

    Args:
        runner: What runs it.
        call: A call like those to come.
        inputs: The numbers and arrays that are inputs.
        arrays: The arrays of the call.
        shares: Which of them the replicas share.
        made: Keeps the variables that the function makes at each call; None where it makes none.
    """

    def __init__(
        self,
        runner: ReplicaRunner,
        call: Call,
        inputs: Sequence[CapturedValue],
        arrays: Sequence[jax.Array],
        shares: _Shares,
        made: MadeVariables | None = None,
    ) -> None:
        super().__init__()
        self._made = made
        self.strategy = runner.strategy
        self.mesh = runner.mesh
        self.progress, self.world = self.mesh.progress, self.mesh.world
        self._mean_gradients = runner.mean_gradients
        self._shares = shares
        self._stacks = self.mesh.spans_devices or self.mesh.central  # one array of all replicas for each output
        self._output_shapes: list[tuple[Shape, ...] | None] = []
        largest = shares.largest(arrays)
        shapes = [jax.ShapeDtypeStruct(own, array.dtype) for own, array in zip(largest, arrays, strict=True)]
        share, exchange = even_share(self.mesh.size), Exchange()
        tracing = self.discover(lambda own: self._body(own, share, exchange), call, inputs, shapes, self.mesh)
        self.is_joint = exchange.has_crossed
        self._policies = policies_of(tracing, list(self.variables))
        if self.strategy.sharding is not None:
            self.strategy.sharding.mark_weights(self.variables)
        self._axes = [shard_axis(variable) for variable in self.variables]
        self._specs = [resting_spec(variable) for variable in self.variables]
        self._with_parts = [i for i, variable in enumerate(self.variables) if has_parts(variable, self.mesh)]
        # Variables are not donated. A program may hold `variable.value`, or a piece of it, from one call to the next;
        # JAX keeps NumPy's views of a donated array, but deletes it and its pieces under other names.
        shared, whole = PartitionSpec(AXIS), PartitionSpec()
        specs = [shared if spread else whole for spread in (*shares.spread, *(True for _ in self._with_parts))]
        replica, sharding = self._replica, self.strategy.sharding
        if sharding is not None and any(axis is not None for axis in self._axes):
            replica = gathering(replica, sharding.model_axis_of)
        self._compiled = compiled(
            self.mesh,
            with_checked_numbers(replica, self.mesh),
            (self._specs, specs, whole),
            (shared, [self._specs[i] for i in self.assigned]),
            name=call.name,
            trained=trained(self.variables, self.assigned),
        )
        self._executables = runner.executables if hasattr(self._compiled, "lower") else None
        self._with_rows = RowProgram(self._compiled, self.variables, self.assigned)
        self.streams = Streams(self._compiled, self.variables, self.assigned)

    def _body(self, own: Sequence[jax.Array], share: Share, exchange: Exchange) -> Callable[[], Tree]:
        def body() -> Tree:
            exchange.begin()
            context = ReplicaContext(self.strategy, share, exchange, mean_gradients=self._mean_gradients)
            with replica_context(context):
                if self._made is None:
                    return self.called.call.on(own)
                with self._made.from_start():
                    return self._made.marked(self.called.call.on(own))

        return body

    def _replica(
        self, values: list[jax.Array], arrays: list[jax.Array], numbers: list[Any]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Run on one replica: return its outputs, with an axis for the replicas, and the variables' new values."""
        values = wholes_of(values, self._axes)
        count = len(self._shares.spread)
        own = [array[0] if spread else array for array, spread in zip(arrays, self._shares.spread, strict=False)]
        views = enter(self._policies, values) if self.mesh.size > 1 else list(values)
        for i, part in zip(self._with_parts, arrays[count:], strict=True):
            views[i] = part[0]
        with self.called.with_inputs(numbers):
            if self._shares.alike:
                share = even_share(self.mesh.size)
                outputs, after = self.traced(self._body(own, share, Exchange()), views)
                self._output_shapes = [None] * len(outputs)
            else:
                share, ragged, after = self._uneven(self._shares.split, own, views)
                outputs = [output.value for output in ragged]
                self._output_shapes = [_unlike(output) for output in ragged]
        changed = self._merged(share, values, views, after) if self.mesh.size > 1 else after
        new = dict(zip(self.assigned, after, strict=True))
        results = [*outputs, *(new[i] for i in self._with_parts if i in new)]
        new_shards = shards_of(changed, [self._axes[i] for i in self.assigned])
        return [result[None] for result in results] if self._stacks else results, new_shards

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
        shapes = {i: shapes for i, shapes in enumerate(self._shares.shapes) if shapes is not None}

        def step(share: Share, exchange: Exchange, rows: dict[int, jax.Array]) -> Tree:
            whole = [rows.get(i, array) for i, array in enumerate(own)]
            outputs, after = self.traced(self._body(whole, share, exchange), views)
            return [Ragged(output) for output in outputs], after

        return run_uneven(step, {i: own[i] for i in shapes}, split, shapes=shapes, empty=empty)

    def _merged(
        self, share: Share, values: list[jax.Array], views: list[jax.Array], after: list[jax.Array]
    ) -> list[jax.Array]:
        # What replicas hold apart counts alike on each, whatever rows it has.
        equal = dataclasses.replace(share, weight=1.0 / self.mesh.size, first=0)
        changes = [
            Change(self._policies[i], equal if i in self._with_parts else share, values[i], views[i], new)
            for i, new in zip(self.assigned, after, strict=True)
        ]
        return merge(changes, self.strategy.pack_bytes)[0]

    def run(self, arrays: Sequence[jax.Array], numbers: list[Any]) -> Tree:
        tracing = current_tracing()
        numbers = [_replicated(self.mesh, number) if is_array(number) else number for number in numbers]
        parts = [self.variables[i].parts for i in self._with_parts]
        arrays = [*arrays, *map(self.mesh.keep_apart, _values_of(parts, tracing))]
        with self.assertions.watched(self.mesh, is_joint=self.is_joint):
            if tracing is None:
                wanted = self.streams.wanted(arrays, numbers)
                by_rows = self._with_rows.run(arrays, numbers, wanted)
                outputs, changed = by_rows or self._executed(wanted, arrays, numbers)
            else:
                outputs, changed = self._compiled(_values_of(self.variables, tracing), arrays, numbers)
        self.mesh.wait((outputs, changed))
        self.assign(changed)
        moved = [part for i, part in zip(self._with_parts, parts, strict=True) if i in self.assigned]
        outputs, apart = outputs[: len(outputs) - len(moved)], outputs[len(outputs) - len(moved) :]
        assign_all(moved, apart)
        if self.mesh.size == 1:
            result = self.structure.unflatten([output[0] for output in outputs] if self._stacks else outputs)
        else:
            result = self.structure.unflatten(
                [
                    PerReplica(output, self.mesh, shapes, self._shares.empty)
                    for output, shapes in zip(outputs, self._output_shapes, strict=True)
                ]
            )
        return result if self._made is None else unmarked(result)

    def _executed(self, wanted: Sequence[Any], *args: Any) -> tuple[list[jax.Array], list[jax.Array]]:
        """Run the compiled program with the variables' values where they are kept."""
        values = values_of(wanted)
        if not all(self.mesh.rests(value, spec) for value, spec in zip(values, self._specs, strict=False)):
            kept = placed(self.strategy, values, self.variables)
            # One that the program only reads would be put there again at each step, after a talk among the workers.
            for variable, before, value in zip(self.variables, values, kept, strict=True):
                if value is not before and not lives_elsewhere(variable):
                    variable.assign(value)
            values = kept
        if self._executables is not None:
            devices = tuple(device.id for device in self.mesh.devices)
            self._compiled = self._executables.executable(self._compiled, (values, *args), devices)
            self._executables = None
        return self._compiled(values, *args)


def _replicated(mesh: ReplicaMesh, array: Any) -> Any:
    if isinstance(array, Tracer):
        return array
    refuse_text(array)
    return mesh.replicate(array)


def _values_of(variables: Sequence[Any], tracing: Replayable | None) -> list[Any]:
    if tracing is None:
        return values_of(variables)
    # Not `variable.value`, to which a variable that lives elsewhere adds what was added.
    return [value_now(variable) for variable in variables]


class _Shares:
    """The arrays of a call: which hold a component for each replica, and which of these unlike shapes.

    Args:
        arrays: The arrays among the arguments.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.spread = tuple(_is_distributed(array) for array in arrays)
        values = [array for array in arrays if _is_distributed(array)]
        self.shapes = tuple(array.shapes if _is_distributed(array) else None for array in arrays)
        self.alike = not any(self.shapes)
        known = {value.shares for value in values if value.shares is not None}
        if len(known) > 1:
            raise InputError(
                f"The arguments of strategy.run are shares of batches of different sizes: {sorted(known)} rows.",
                "A replica would pair rows of one batch with rows of another.",
                "Give values of one batch of the distributed dataset.",
            )
        rows = next(iter(known), None)
        replicas = next((len(shapes) for shapes in self.shapes if shapes), 1)
        self.split = Split(replicas, replicas) if rows is None else Split.of(rows)
        empty = [value.empty for value in values if value.empty is not None]
        had_none = None if rows is None or all(rows) else tuple([not share for share in rows])
        self.empty = had_none or next(iter(empty), None)
        self.signature = self.spread, self.shapes, self.empty

    def largest(self, arrays: Sequence[jax.Array]) -> list[Shape]:
        """Return the shapes of the arrays on the replica whose components are largest."""
        unlike = [shapes for shapes in self.shapes if shapes]
        sizes = [sum(map(math.prod, shapes)) for shapes in zip(*unlike, strict=True)]
        replica = max(range(len(sizes)), key=sizes.__getitem__, default=0)
        return [
            shapes[replica] if shapes else array.shape[1:] if spread else array.shape
            for array, spread, shapes in zip(arrays, self.spread, self.shapes, strict=True)
        ]


def _unlike(output: Ragged) -> tuple[Shape, ...] | None:
    """Return the shapes of an output on the replicas, where they differ."""
    return output.shapes if len(set(output.shapes or ())) > 1 else None


def _none_of(value: jax.Array) -> Any:
    """Return the value that stands for no result: NaN, which does not count, if the dtype has it."""
    return jnp.nan if jnp.issubdtype(value.dtype, jnp.inexact) else 0


def _advanced_inside(what: str) -> InputError:
    return InputError(
        f"strategy.run {what}.",
        "Its function is compiled once. The data is read by Python, which does not run in the compiled steps.",
        "Take the batch outside: for batch in dataset: strategy.run(step, args=(batch,)).",
    )


def _is_distributed(leaf: object) -> bool:
    return isinstance(leaf, DistributedValues)
