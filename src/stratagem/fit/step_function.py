"""The function that Keras calls as `train_function`, `test_function` or `predict_function` of a model of a strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from stratagem.core.errors import UsageError
from stratagem.core.progress import Phase
from stratagem.feed.batch import GlobalBatch, as_numpy, count_rows, place_batch, valid_rows
from stratagem.feed.feed import Feed
from stratagem.fit import compat
from stratagem.fit.metrics import as_returned
from stratagem.fit.records import record_of
from stratagem.fit.resuming import Session, current_session
from stratagem.fit.state_of_step import StateOfTraining
from stratagem.fit.step_kinds import PREDICT, TRAIN, State, StepKind, Values
from stratagem.fit.steps import Step
from stratagem.mesh.mesh import Tree
from stratagem.mesh.split import Split
from stratagem.program.remote_values import assign_all, values_of
from stratagem.replica.context import StrategyLike
from stratagem.replica.out_of_memory import note_out_of_memory


class StepOfStrategy:
    """A step function that `Strategy.make_step` has made.

    Attributes:
        needs_state: Whether Keras hands it the values of the model's variables and keeps those it returns.
    """

    needs_state = True

    def fits(self, model: Any) -> bool:
        """Whether the variables of a model stand where they stood when this was made: none was frozen or added."""
        return True


class StepFunction(StepOfStrategy):
    """What Keras calls as `model.train_function`, `test_function` or `predict_function`.

    Args:
        model: A built and compiled model.
        strategy: The strategy it belongs to.
        kind: Which step.
    """

    def __init__(self, model: Any, strategy: StrategyLike, kind: StepKind) -> None:
        self.kind = kind
        self.mesh = strategy.mesh
        _check_stateless(model, strategy)
        self.keeper = record_of(model).keeper
        self.step = Step(model, strategy, kind)
        self._made_on = strategy.mesh.mesh
        self.steps_per_execution = model.steps_per_execution
        self._last_logs: Tree = None

    def __call__(self, state: State, iterator: Iterator[Tree]) -> tuple[Tree, State]:
        """Run up to `steps_per_execution` steps.

        Args:
            state: Values of the variables, as Keras's trainer keeps them.
            iterator: Our iterator; or any iterator of whole global batches, as `train_on_batch` makes.

        Returns:
            (logs, new state); for `predict`, (rows of the outputs, state).

        Raises:
            StopIteration: There is no batch left.
        """
        if not self.step.takes(state):  # a validation has built metrics that the step itself does not count
            self.step = Step(self.step.model, self.step.strategy, self.kind)
        values, beyond = [value for group in state for value in group], self.step.beyond
        known = len(values)
        try:
            batches, session = self._read(iterator)
            values += values_of(beyond)
            self.keeper.place(self.step, state, values)
            results = []
            for batch in batches:
                result = self._watched(values, batch, session)
                results.append(self._rows(result, batch) if self.kind is PREDICT else result)
        except StopIteration:
            raise
        except BaseException as error:
            note_out_of_memory(error, self.step.strategy)
            # Keras empties the variables while its loops run: a first batch that cannot be read would cost the weights.
            compat.put_back_state(self.step.model, self.step.variables, values)
            raise
        state = self.step.grouped(values, Values)
        assign_all(beyond, values[known:])
        self.keeper.remember(state, values_of(beyond))
        if session is not None:
            session.wait.stepped(results[-1])
        if isinstance(iterator, Feed) and iterator.fetches_ahead:
            with self.mesh.progress.during(Phase.INPUT) as phase:
                iterator.fetch_ahead(self.steps_per_execution)
            if session is not None:
                session.wait.took(phase.seconds, 0)
        if self.kind is PREDICT:
            return _concatenated(results), state
        if self.kind is TRAIN and self.mesh.progress.wants_loss:
            self._note_loss(results[-1])
        return as_returned(results[-1], self.step.returns_own_values), state

    def fits(self, model: Any) -> bool:
        return self._made_on == self.mesh.mesh and self.step.has_variables_of(model)

    def _watched(self, values: list[jax.Array], batch: GlobalBatch, session: Session | None) -> Tree:
        """Run a step, and let those see it who watch the steps of training."""
        if session is None:
            return self._stepped(values, batch)
        for watcher in session.watchers:
            watcher.before_step(self.step, values, batch)
        result = self._stepped(values, batch)
        session.steps += batch.steps
        for watcher in session.watchers:
            watcher.after_step(self.step, values, result)
        return result

    def _stepped(self, values: list[jax.Array], batch: GlobalBatch) -> Tree:
        """Run a step; where workers may change, in the world of the moment."""
        world = self.mesh.world
        if world is None:
            return self.step(values, batch)
        if self.kind is not TRAIN:
            return world.run_beside(lambda: self.step(values, batch))
        if world.loop is not None:  # the loop begins again where a worker is lost
            world.begin_program()
            return self.step(values, batch)
        state = StateOfTraining(self.step, values, self._last_logs, batch.steps)
        self._last_logs = world.run(lambda: self.step(values, batch), state)
        return self._last_logs

    def _note_loss(self, logs: Tree) -> None:
        """Let others see the loss, where it is at hand: an accelerator may still be in the step."""
        loss: Any = logs.get("loss") if isinstance(logs, dict) else None
        if hasattr(loss, "is_ready") and loss.is_ready():
            self.mesh.progress.note_loss(float(loss.addressable_data(0)))

    def _read(self, iterator: Iterator[Tree]) -> tuple[list[GlobalBatch], Session | None]:
        """Return the batches of this call, and the session that counts the wait for them."""
        with self.mesh.progress.during(Phase.INPUT) as phase:
            batches = self._take(iterator)
        session = current_session() if self.kind is TRAIN else None
        if session is not None:
            session.wait.took(phase.seconds, sum(batch.steps for batch in batches))
        return batches, session

    def _take(self, iterator: Iterator[Tree]) -> list[GlobalBatch]:
        if isinstance(iterator, Feed):
            return iterator.take(self.steps_per_execution)
        batch = as_numpy(next(iterator))
        rows = count_rows(batch)
        part = self.mesh.local_rows(rows)
        return [place_batch(self.mesh, Split(rows, self.mesh.size), jax.tree.map(lambda leaf: leaf[part], batch))]

    def _rows(self, outputs: Tree, batch: GlobalBatch) -> Tree:
        """Return outputs of the batch's own rows, whole on every worker."""
        if batch.split.even:
            return jax.tree.map(lambda leaf: leaf.addressable_data(0), outputs)
        rows = valid_rows(batch.split)
        return jax.tree.map(lambda leaf: np.asarray(leaf.addressable_data(0))[rows], outputs)


def _check_stateless(model: Any, strategy: StrategyLike) -> None:
    stateful = [layer.name for layer in compat.layers_of(model) if getattr(layer, "stateful", False)]
    if stateful and strategy.mesh.size > 1:
        raise UsageError(
            f"Layer {stateful[0]!r} keeps a state for each row of the global batch (stateful=True).",
            f"The rows are divided among {strategy.mesh.size} replicas, none of which holds the states of all.",
            "Train it on one device, or write stateful=False.",
        )


def _concatenated(outputs: Sequence[Tree]) -> Tree:
    if len(outputs) == 1:
        return outputs[0]
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *outputs)
