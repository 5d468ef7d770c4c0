"""Steps as in TensorFlow: `train_step(self, data)`, which reads and assigns variables itself.

Keras on JAX has `train_step(self, state, data)`, a function from the values of all variables to new ones. A model may
have the other instead, with a `GradientTape`; also `test_step(self, data)` and `predict_step(self, data)`. It is traced
with values in the place of the variables, and what it leaves in them is the new state. Variables that are no part of
Keras's state, those of a second optimizer say, are found by tracing it once before, as in `strategy.run`; layers,
optimizers and metrics that are not built yet are built by that.

Source of the semantics: https://keras.io/guides/custom_train_step_in_tensorflow/
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras

from stratagem.core.errors import UsageError
from stratagem.feed.batch import count_rows
from stratagem.feed.compat import unpack
from stratagem.fit.compat import build_from_batch
from stratagem.fit.records import record_of
from stratagem.fit.step_kinds import PREDICT, StepKind, group_variables
from stratagem.mesh.exchange import Exchange, Share
from stratagem.mesh.mesh import Tree
from stratagem.mesh.variable_policies import Policy
from stratagem.program.discover import discover, policies_of
from stratagem.program.tracing import Replayable, current_tracing
from stratagem.replica.context import ReplicaContext, StrategyLike, replica_context


class OwnStep:
    """A model's own step of (data), and what it uses beyond Keras's state.

    Attributes:
        beyond: Variables that it reads or assigns and that are in none of the groups of Keras's state.
        policies: What replicas do with each of them.

    Args:
        model: The model.
        kind: Which step.
    """

    def __init__(self, model: Any, kind: StepKind) -> None:
        self._model = weakref.ref(model)
        self._kind = kind
        self.beyond: list[Any] = []
        self.policies: list[Policy] = []

    def discover(self, strategy: StrategyLike, batch: Tree) -> None:
        """Trace the step once: what it makes is there afterwards, and what it uses is known.

        Args:
            strategy: The strategy of the model.
            batch: Structure of arrays as `fit` gets it.
        """
        size = strategy.mesh.size
        share = Share(rows=count_rows(batch), global_rows=count_rows(batch) * size, weight=1.0 / size)

        def run(data: Tree) -> Replayable:
            tracing = Replayable(self._body(strategy, share, Exchange(), data), discovering=True)
            tracing.run()
            return tracing

        tracing = discover(run, [batch], strategy.mesh)
        known = {id(v) for group in self._kind.groups for v in group_variables(self._model(), group)}
        self.beyond = [variable for variable in tracing.scope.touched if id(variable) not in known]
        self.policies = policies_of(tracing, self.beyond)

    def __call__(
        self,
        strategy: StrategyLike,
        share: Share,
        exchange: Exchange,
        values: Sequence[tuple[Any, jax.Array]],
        data: Tree,
    ) -> tuple[Tree, list[jax.Array]]:
        """Run the step on one replica.

        Args:
            strategy: The strategy of the model.
            share: The replica's part of the batch.
            exchange: How values cross replicas.
            values: Pairs of a variable and its value; all that the step uses are among them.
            data: The replica's rows.

        Returns:
            (what the step returns, the variables' new values).

        Raises:
            UsageError: The step assigns a variable that it did not assign when it was first traced.
        """
        tracing = Replayable(self._body(strategy, share, exchange, data), values)
        logs = tracing.run()
        known = {id(variable) for variable, _ in values}
        new = [variable.path for key, variable in tracing.scope.assigned.items() if key not in known]
        if new:
            raise UsageError(
                f"{type(self._model()).__name__}.{self._kind.method} assigns {new[0]}, but did not assign it in the "
                "first step.",
                "Its value would be lost when the step ends.",
                "Do the same in each step: make layers, metrics and optimizers in __init__ or compile.",
            )
        return logs, [tracing.scope.get_current_value(variable) for variable, _ in values]

    def _body(self, strategy: StrategyLike, share: Share, exchange: Exchange, data: Tree) -> Callable[[], Tree]:
        def body() -> Tree:
            exchange.begin()
            context = ReplicaContext(strategy, share, exchange, mean_gradients=True)
            with replica_context(context):
                return on_data_alone(self._model(), self._kind, data)

        return body


def takes_data_alone(model: Any, kind: StepKind) -> bool:
    """Whether a model's step is one of (data), as in TensorFlow, not of (state, data).

    Raises:
        UsageError: It is neither.
    """
    parameters = list(inspect.signature(getattr(model, kind.method)).parameters.values())
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return False
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    needed = [parameter for parameter in needed if parameter.kind is not parameter.VAR_KEYWORD]
    if len(needed) in (1, 2):
        return len(needed) == 1
    raise UsageError(
        f"{type(model).__name__}.{kind.method} takes {len(needed)} arguments beside self.",
        f"Write {kind.method}(self, state, data), as Keras does on JAX, or {kind.method}(self, data) with a "
        "stratagem.GradientTape, as in TensorFlow.",
    )


def own_step(model: Any, kind: StepKind) -> OwnStep | None:
    """Return a model's own step of (data); None where it is one of (state, data)."""
    if not takes_data_alone(model, kind):
        return None
    return record_of(model).own_steps.setdefault(kind.method, OwnStep(model, kind))


def on_data_alone(model: Any, kind: StepKind, data: Tree) -> Tree:
    """Run a model's own step of (data), which gets x, (x, y) or (x, y, sample_weight) as there are."""
    return getattr(model, kind.method)(keras.utils.pack_x_y_sample_weight(*unpack(data)))


def on_variables(model: Any, kind: StepKind, step: Callable[[Any, Tree], Tree], data: Tree) -> Tree:
    """Run a step of (state, data) inside a function that reads and assigns variables.

    Args:
        model: A built model.
        kind: Which step.
        step: It.
        data: A batch.

    Returns:
        What the step returns beside the state.
    """
    groups = [group_variables(model, group) for group in kind.groups]
    before = [[variable.value for variable in group] for group in groups]
    result, after = step(tuple([list(values) for values in before]), data)
    if kind is PREDICT:  # Keras's returns only the non-trainable variables
        after = (before[0], after)
    for variables, olds, news in zip(groups, before, after, strict=True):
        for variable, old, new in zip(variables, olds, news, strict=True):
            if new is old:
                continue
            if variable.trainable:  # changed without the optimizer: nobody else's change is undone
                variable.assign_add(new - old)
            else:
                variable.assign(new)
    return result


def also_of_data_alone(kind: StepKind) -> Callable[[Callable], Callable]:
    """Return what wraps Keras's step, so that a model's own may end with `return super().train_step(data)`.

    Args:
        kind: Which step.
    """

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def step(model: Any, *arguments: Any) -> Any:
            if len(arguments) == 1 and current_tracing() is not None:
                build_from_batch(model, *arguments, inputs_only=kind is PREDICT)
                return on_variables(model, kind, functools.partial(original, model), *arguments)
            return original(model, *arguments)

        return step

    return wrap
