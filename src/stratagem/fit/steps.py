"""One compiled step of a model: `train_step`, `test_step` or `predict_step` on every replica.

The step stays Keras's own, or the user's: a pure function of (state, data). Round it stand `enter`
and `leave` of the variable policies; inside it the sum of gradients stands where the optimizer is
applied (`fit.gradients`). The whole is one `shard_map` program for each shape of batch.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
from jax import lax
from jax.extend.core import jaxpr_as_fun
from jax.sharding import PartitionSpec

from stratagem.compression.residuals import is_in_parts
from stratagem.core import patches
from stratagem.core.errors import UnsupportedError, UsageError, explain, name_some
from stratagem.core.freed_memory import StepMemory
from stratagem.core.log import announce_once
from stratagem.core.patches import Extent
from stratagem.core.progress import Phase
from stratagem.feed.batch import GlobalBatch
from stratagem.fit import compat
from stratagem.fit.metrics import Entry, ResultWatch, global_results
from stratagem.fit.own_state import warn_of_own_rows
from stratagem.fit.own_steps import own_step
from stratagem.fit.slots import accumulates_apart, add_slots, mark_slots
from stratagem.fit.step_kinds import PREDICT, State, StepKind, group_variables
from stratagem.mesh.crossings import as_number
from stratagem.mesh.exchange import Exchange, Share, own_share
from stratagem.mesh.mesh import AXIS, Tree
from stratagem.mesh.shards import keep_whole, resting_spec, shard_axis, shards_of, wholes_of
from stratagem.mesh.split import Split
from stratagem.mesh.variable_policies import Change, Policy, enter, merge, policy_of
from stratagem.program.assertions import Assertions, are_numbers_checked
from stratagem.program.autograph import rewritten_functions, tracing_anew
from stratagem.program.checked_numbers import with_checked_numbers
from stratagem.program.compile import compiled
from stratagem.program.described import trained
from stratagem.program.interpret import trace
from stratagem.program.python_values import explaining_tensors_as_python_values
from stratagem.program.rules.gathers import gathering
from stratagem.replica.context import ReplicaContext, StrategyLike, replica_context
from stratagem.replica.uneven import padded, run_uneven

_MANY_SHAPES: Final = 10
"""Programs of one step after which a line says why it is slow."""

Program = tuple[Callable, list[int], list[int]]
"""A compiled step, the variables it rewrites, and those it only reads."""


class Step:
    """The programs of one kind of step of a model, one for each shape of batch.

    Args:
        model: A compiled Keras model, built.
        strategy: The strategy it belongs to.
        kind: TRAIN, TEST or PREDICT.
    """

    def __init__(self, model: Any, strategy: StrategyLike, kind: StepKind) -> None:
        self.model = model
        self.strategy = strategy
        self.kind = kind
        self.mesh = strategy.mesh
        self._own = own_step(model, kind)
        optimizer = model.optimizer if kind.trains else None
        # A step of (data) sums gradients each time that it applies them.
        self.accumulates_apart = optimizer is not None and self._own is None and accumulates_apart(strategy, optimizer)
        if optimizer is not None and optimizer.built:
            add_slots(strategy, optimizer)
            mark_slots(strategy, optimizer, apart=self.accumulates_apart)
        self.beyond = [] if self._own is None else self._own.beyond
        """Variables that the step uses and Keras keeps no values of."""
        groups = {group: group_variables(model, group) for group in kind.groups}
        self._groups = _identities(groups.values())
        self.variables = [*itertools.chain.from_iterable(groups.values()), *self.beyond]
        if strategy.sharding is not None:
            strategy.sharding.mark_weights(model.weights)
            keep_whole(groups.get("metrics_variables", ()))
            _tell_of_unmatched(strategy, model)
        self._policies = [
            Policy.SAME if group == "optimizer_variables" else policy_of(variable, metric=group == "metrics_variables")
            for group, variables in groups.items()
            for variable in variables
        ]
        self._policies += [] if self._own is None else self._own.policies
        self._sizes = [len(variables) for variables in groups.values()]
        known = sum(self._sizes)
        self.metric_places = range(known - len(groups.get("metrics_variables", ())), known)
        """Places of the metrics among the variables."""
        # What tracing the step told: which entries of the logs are metrics, which variables it rewrites.
        self._logs_structure: Any = None
        self._entries: list[Entry | None] = []
        self._rewritten: list[int] = []
        self._programs: dict[Any, Program] = {}
        self._step_memory = StepMemory(0)
        self._assertions = Assertions()
        # Without jit_compile one device dispatches operation by operation; several would compile each operation.
        self._eager = bool(model.run_eagerly) or (not model.jit_compile and self.mesh.size == 1)
        if self.mesh.world is not None and self._eager:
            raise UnsupportedError(
                f"Model {model.name!r} has run_eagerly set, and its workers run under stratagem run --spares or "
                "--elastic.",
                "Steps that are not compiled use XLA's collectives, which fail when a worker dies.",
                "Leave run_eagerly out; or leave --spares and --elastic out, and use --max-restarts.",
            )

    def __call__(self, values: list[jax.Array], batch: GlobalBatch) -> Tree:
        """Run one step, or several fused into one program.

        Args:
            values: Those of the variables, where the strategy keeps them; the new ones take their places.
            batch: The batch of the step, or of the steps.

        Returns:
            Logs of the last step, or outputs of all steps.
        """
        leaves, structure = jax.tree.flatten(batch.data)
        shapes = tuple([(leaf.shape, leaf.dtype) for leaf in leaves])
        key = (batch.split, batch.steps, structure, shapes, are_numbers_checked())
        known = self._programs.get(key)
        phase = Phase.COMPILING if known is None else Phase.STEP
        with (
            self.mesh.progress.during(phase, batch.steps, self.kind.method, is_joint=True),
            self._assertions.watched(self.mesh, is_joint=True),
        ):
            if known is None:
                known = self._programs[key] = tracing_anew(lambda: self._compile(values, batch))
                self._tell_of_many_shapes()
                self._step_memory = StepMemory(sum(value.nbytes for value in values))
                self._step_memory.tidy()
            program, rewritten, reading = known
            logs, changed = program([values[i] for i in rewritten], [values[i] for i in reading], batch.data)
            if self.mesh.waits_for_steps:
                jax.block_until_ready((logs, changed))
            # Also where an assertion fails: the program has reused the memory of the values before.
            for i, value in zip(rewritten, changed, strict=True):
                values[i] = value
            self._step_memory.tidy((logs, changed))
        return logs

    def _tell_of_many_shapes(self) -> None:
        if len(self._programs) == _MANY_SHAPES and self.strategy.is_chief:
            announce_once(
                f"{self.kind.method} of model {self.model.name!r} was compiled for {_MANY_SHAPES} shapes of batches, "
                "and is compiled again for each new shape. Use few lengths of rows: "
                "TextVectorization(output_sequence_length=...), dataset.padded_batch(..., padded_shapes=...), "
                "dataset.bucket_by_sequence_length(...)."
            )

    @property
    def returns_own_values(self) -> bool:
        """Whether its logs hold values that are no results of metrics."""
        return None in self._entries

    def has_variables_of(self, model: Any) -> bool:
        """Whether a model has the variables in the groups that they were in when this step was made."""
        return self._groups == _identities(group_variables(model, group) for group in self.kind.groups)

    def takes(self, state: State) -> bool:
        """Whether a state has as many values as this step has variables."""
        return [len(group) for group in state] == self._sizes

    def grouped(self, flat: Sequence[Any], group: Callable[[Sequence[Any]], Sequence[Any]] = list) -> State:
        """Return values in the groups of Keras's trainer, each made by `group`, without those beyond its state."""
        groups, start = [], 0
        for size in self._sizes:
            groups.append(group(flat[start : start + size]))
            start += size
        return tuple(groups)

    # Tracing -------------------------------------------------------------------------------------

    def _compile(self, flat: Sequence[jax.Array], batch: GlobalBatch) -> Program:
        """Build the program for batches like this one."""
        split = batch.split
        if self._eager:
            self._rewritten = list(range(len(flat)))
            user = self._on_even_share(split)
        else:
            user = self._traced(flat, batch)
        if not split.even:
            user = self._on_uneven_share(split)

        def step(flat: list[jax.Array], data: Tree) -> tuple[list[jax.Array], list[jax.Array]]:
            if self.mesh.size == 1:
                return user(list(flat), data)
            views = enter(self._policies, flat)
            values, after = user(views, data)
            return self._merged(own_share(split), flat, views, values, after)

        reading = sorted(set(range(len(flat))) - set(self._rewritten))
        return self._spmd(step, batch.steps), self._rewritten, reading

    def _traced(self, flat: Sequence[jax.Array], batch: GlobalBatch) -> Callable:
        """Trace the model's step on a full block of rows, and note which variables it rewrites.

        The others must not be donated (a donated buffer that the step only reads is a segmentation
        fault), and need not be returned or reduced: a frozen network costs no traffic.
        """
        views = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in flat]
        rows, axes = batch.split.block, 1 if batch.steps == 1 else 2
        block = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape[axes:]), leaf.dtype), batch.data)
        user = self._on_even_share(Split(rows * self.mesh.size, self.mesh.size))
        with self.mesh.tracing():
            traced, structure = trace(user, [views, block], self.mesh.axes)
        after = traced.jaxpr.outvars[len(traced.jaxpr.outvars) - len(flat) :]
        self._rewritten = [i for i, new in enumerate(after) if new is not traced.jaxpr.invars[i]]
        if self.mesh.size > 1:
            warn_of_own_rows(traced, self.variables, self._policies)
        run = jaxpr_as_fun(traced)
        return lambda views, data: structure.unflatten(run(*jax.tree.leaves((views, data))))

    def _on_even_share(self, split: Split) -> Callable:
        return lambda views, data: self._user_step(own_share(split), Exchange(), views, data)

    def _on_uneven_share(self, split: Split) -> Callable:
        def branch(views: list[jax.Array], share: Share, exchange: Exchange, rows: Tree) -> Tree:
            values, after = self._user_step(share, exchange, views, rows)
            if self.kind is PREDICT:
                values = [padded(value, split.block) for value in values]
            return values, {i: after[i] for i in self._rewritten}

        def user(views: list[jax.Array], data: Tree) -> tuple[list[jax.Array], list[jax.Array]]:
            values, changed = run_uneven(functools.partial(branch, views), data, split)
            return values, [changed.get(i, view) for i, view in enumerate(views)]

        return user

    def _user_step(
        self, share: Share, exchange: Exchange, views: list[jax.Array], data: Tree
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Trace the model's step; return the entries of the logs that are no metrics, and the state."""
        watch = ResultWatch(self.model.metrics if self.kind is not PREDICT else ())
        with (
            watch.watching(),
            patches.during(Extent.STEP, Extent.DERIVATIVES),
            rewritten_functions(),
            explaining_tensors_as_python_values(),
        ):
            if self._own is not None:
                logs, after = self._own(
                    self.strategy, share, exchange, list(zip(self.variables, views, strict=True)), data
                )
            else:
                logs, after = self._keras_step(share, exchange, views, data)
        if self.kind is not PREDICT and not isinstance(logs, Mapping):
            remedy = 'Return a dict of names and values: return {"loss": loss}.'
            raise _wrong_result(self.model, self.kind, logs, remedy)
        leaves, structure = jax.tree.flatten(logs, is_leaf=lambda leaf: isinstance(leaf, keras.Variable))
        entries = [watch.entry(leaf) for leaf in leaves]
        self._logs_structure, self._entries = structure, entries
        what = f"What {self.kind.method} of model {self.model.name!r} returned"
        plain = [as_number(what, leaf) for leaf, entry in zip(leaves, entries, strict=True) if entry is None]
        return plain, after

    def _keras_step(
        self, share: Share, exchange: Exchange, views: list[jax.Array], data: Tree
    ) -> tuple[Tree, list[jax.Array]]:
        with replica_context(ReplicaContext(self.strategy, share, exchange, mean_gradients=True)):
            with _explaining_missing_values(self.model, self.kind):
                result = getattr(self.model, self.kind.method)(self.grouped(views), data)
            logs, state = self._checked(result)
        if self.kind is PREDICT:  # Keras's predict_step returns only the non-trainable variables
            state = (self.grouped(views)[0], state)
        return logs, [value for group in state for value in group]

    def _checked(self, result: Any) -> tuple[Tree, Any]:
        """Return what the model's own step of (state, data) returned: the logs, or outputs, and the new state."""
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], tuple | list):
            raise _wrong_result(
                self.model,
                self.kind,
                result,
                f"Write return logs, state, as {self.kind.method}(self, state, data) does on JAX.",
            )
        return result

    def _logs(self, values: list[jax.Array], flat: list[jax.Array]) -> Tree:
        """Return the logs: values that are no metrics, and results of metrics in the state after the step."""
        results = iter(self._global_results([entry for entry in self._entries if entry is not None], flat))
        plain = iter(values)
        leaves = [next(plain) if entry is None else next(results) for entry in self._entries]
        return self._logs_structure.unflatten(leaves)

    def _merged(
        self,
        share: Share,
        flat: list[jax.Array],
        views: list[jax.Array],
        values: list[jax.Array],
        after: list[jax.Array],
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Make one set of values and one state of the replicas' results."""
        rewritten = [i for i in self._rewritten if after[i] is not views[i]]
        changes = [Change(self._policies[i], share, flat[i], views[i], after[i]) for i in rewritten]
        averaged = []
        if self.kind is not PREDICT:
            averaged = [share.masked(value * jnp.asarray(share.weight, _floating(value))) for value in values]
        new, sums = merge(changes, self.strategy.pack_bytes, averaged)
        merged = list(flat)  # a variable that the step did not touch keeps its value, not a replica's view of it
        for i, value in zip(rewritten, new, strict=True):
            merged[i] = value
        if self.kind is PREDICT:
            return [lax.all_gather(value, AXIS, tiled=True) for value in values], merged
        return sums, merged

    def _global_results(self, entries: list[Entry], flat: list[jax.Array]) -> list[jax.Array]:
        if not entries:
            return []
        whole = [pair for pair in zip(self.variables, flat, strict=True) if shard_axis(pair[0]) is None]
        with keras.StatelessScope(state_mapping=whole):
            return global_results(entries)

    # Programs ------------------------------------------------------------------------------------

    def _spmd(self, step: Callable, steps: int) -> Callable:
        """Compile a step of all variables as a program of (those it rewrites, those it only reads, the batch)."""
        rewritten = self._rewritten
        chosen = set(rewritten)
        # Operation by operation JAX runs for all replicas at once, which see one array: it is whole for the step.
        axes = [None if self._eager else shard_axis(variable) for variable in self.variables]
        specs = [PartitionSpec() if self._eager else resting_spec(variable) for variable in self.variables]
        changing_axes = [axes[i] for i in rewritten]
        reading_axes = [axis for i, axis in enumerate(axes) if i not in chosen]

        def whole(changing: list[jax.Array], reading: list[jax.Array]) -> list[jax.Array]:
            changes, reads = iter(changing), iter(reading)
            return [next(changes) if i in chosen else next(reads) for i in range(len(self.variables))]

        def once(changing: list[jax.Array], reading: list[jax.Array], data: Tree) -> tuple[list[jax.Array], Any]:
            values, after = step(whole(wholes_of(changing, changing_axes), wholes_of(reading, reading_axes)), data)
            return shards_of([after[i] for i in rewritten], changing_axes), values

        sharding = self.strategy.sharding
        if sharding is not None and any(axis is not None for axis in axes):
            once = gathering(once, sharding.model_axis_of)

        def program(changing: list[jax.Array], reading: list[jax.Array], data: Tree) -> tuple[Tree, list[jax.Array]]:
            if steps == 1:
                changed, values = once(changing, reading, data)
            else:
                changed, values = lax.scan(lambda changing, rows: once(changing, reading, rows), changing, data)
                values = [leaf.reshape(-1, *leaf.shape[2:]) if self.kind is PREDICT else leaf[-1] for leaf in values]
            return self._logs(values, whole(changed, reading)), changed

        rows = PartitionSpec(AXIS) if steps == 1 else PartitionSpec(None, AXIS)
        reading = [spec for i, spec in enumerate(specs) if i not in chosen]
        in_specs = ([specs[i] for i in rewritten], reading, rows)
        name = f"{self.kind.method} of {type(self.model).__name__}"
        function = compiled(
            self.mesh,
            program if self._eager else with_checked_numbers(program, self.mesh),
            in_specs,
            (PartitionSpec(), in_specs[0]),
            name=name,
            donated=True,
            eager=self._eager,
            in_parts=self._in_parts(),
            trained=trained(self.variables, rewritten) if self.kind.trains else (),
        )
        return self._on_wholes(function) if self._eager else function

    def _on_wholes(self, function: Callable) -> Callable:
        """Return a program of values that may rest in shards, given that of whole ones."""
        if self.strategy.sharding is None:
            return function
        specs = [resting_spec(self.variables[i]) for i in self._rewritten]

        def program(changing: list[jax.Array], reading: list[jax.Array], data: Tree) -> tuple[Tree, list[jax.Array]]:
            logs, changed = function([*map(self.mesh.whole, changing)], [*map(self.mesh.whole, reading)], data)
            return logs, [
                value if spec == PartitionSpec() else self.mesh.shard_from_chief(value, spec)
                for value, spec in zip(changed, specs, strict=True)
            ]

        return program

    def _in_parts(self) -> list[bool]:
        """Return which of the variables that it rewrites each replica holds its own value of between steps."""
        accumulators = set(map(id, compat.accumulators(self.model.optimizer))) if self.accumulates_apart else set()
        rewritten = [self.variables[i] for i in self._rewritten]
        return [is_in_parts(variable) or id(variable) in accumulators for variable in rewritten]


def _tell_of_unmatched(strategy: StrategyLike, model: Any) -> None:
    layouts = None if strategy.sharding is None else strategy.sharding.layouts
    unmatched = [] if layouts is None else layouts.unmatched([variable.path for variable in model.weights])
    if unmatched and strategy.is_chief:
        announce_once(
            explain(
                f"Model {model.name!r} has no weight that the layout map calls {name_some(map(repr, unmatched))}.",
                "The weights that you meant are kept whole on each device.",
                "Look at variable.path, or run stratagem doctor --layout module:function --model-parallel 2. A "
                "pattern must match a whole path.",
            )
        )


def _floating(value: jax.Array) -> Any:
    return value.dtype if jnp.issubdtype(value.dtype, jnp.floating) else jnp.float32


def _wrong_result(model: Any, kind: StepKind, result: Any, remedy: str) -> UsageError:
    return UsageError(
        f"{type(model).__name__}.{kind.method} returned {type(result).__name__}.",
        "Keras shows the entries of a dict in its progress bar, in History and to callbacks; a step of (state, data) "
        "returns the new values of the variables too.",
        remedy,
    )


@contextlib.contextmanager
def _explaining_missing_values(model: Any, kind: StepKind) -> Iterator[None]:
    """Explain the error of a step of (state, data) that reads variables of the model itself.

    Raises:
        UsageError: In place of Keras's error, which it names as its cause.
    """
    try:
        yield
    except TypeError as error:
        if "'NoneType' object is not callable" not in str(error):
            raise
        raise UsageError(
            f"{type(model).__name__}.{kind.method}(state, data) called None. A layer does the same if its variables "
            "have no value.",
            "While fit runs, `state` holds the values of all variables, and the layers hold none. So self(x) cannot "
            "work.",
            "Write self.stateless_call(trainable_variables, non_trainable_variables, x), with values of `state`; or "
            f"{kind.method}(self, data) with a stratagem.GradientTape, as in TensorFlow.",
        ) from error


def _identities(groups: Iterable[Sequence[Any]]) -> list[list[int]]:
    return [[id(variable) for variable in group] for group in groups]
