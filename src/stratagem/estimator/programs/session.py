"""Steps of a program, with hooks round each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import keras
import numpy as np

from stratagem.core.errors import InputError
from stratagem.estimator.hooks.base import LOSS, SessionRunContext, SessionRunHook, SessionRunValues
from stratagem.estimator.hooks.steps import NanTensorHook
from stratagem.estimator.log import say
from stratagem.estimator.programs.model_function import Program, StepResults
from stratagem.estimator.running_call import counting_in
from stratagem.estimator.variables import GLOBAL_STEP
from stratagem.mesh.mesh import Tree


class Session:
    """An Estimator at work, as hooks see it: its variables, its steps (`tf.compat.v1.train.MonitoredSession`).

    Args:
        program: The program, prepared.
        hooks: The hooks, in the order in which they are called.
    """

    def __init__(self, program: Program, hooks: Sequence[SessionRunHook]) -> None:
        self.program = program
        self.hooks = tuple(hooks)
        self.global_step = 0
        self._stop = False
        self.last: StepResults | None = None
        """The last step; None before the first."""

    @property
    def variables(self) -> dict[str, Any]:
        """The variables that checkpoints hold, by name."""
        return self.program.store.saved()

    def should_stop(self) -> bool:
        """Whether a hook has asked to stop."""
        return self._stop

    def run(self, fetches: Any) -> Any:
        """Return the values of variables.

        Args:
            fetches: A structure of variables, of tensors that the last step has computed, and of the names "loss"
                and "global_step".

        Raises:
            InputError: Something else is asked for.
        """
        return self._fetched(fetches, self.global_step)

    def begin(self, give_values: Callable[[], str | None]) -> None:
        """Start, calling hooks before and after the variables get their values.

        Args:
            give_values: Restores the variables; returns of which checkpoint, if there is one.
        """
        with counting_in(self.program.store.global_step):
            for hook in self.hooks:
                hook.begin()
            say("Graph was finalized.")
            scaffold = self.program.spec.scaffold
            if give_values() is None and scaffold is not None and scaffold.init_fn is not None:
                scaffold.init_fn(scaffold, self)
            self.program.store.reset_local()
            say("Running local_init_op.")
            say("Done running local_init_op.")
            self.global_step = int(self.program.store.global_step.value)
            for hook in self.hooks:
                hook.after_create_session(self, None)

    def settle(self) -> None:
        """Wait for the steps that workers have begun, and check the losses that have not been checked.

        Raises:
            NanLossDuringTrainingError: One is NaN; nothing is to be saved then.
        """
        self.program.settle()
        for hook in self.hooks:
            if isinstance(hook, NanTensorHook):
                self._stop = hook.look(self) or self._stop
        if self.program.is_training:
            self.global_step = int(self.program.store.global_step.value)

    def run_steps(
        self, batches: Iterable[tuple[Tree, Tree]], each: Callable[[StepResults], None] | None = None
    ) -> None:
        """Run a step for each batch, until a hook asks to stop.

        Args:
            batches: Features and labels.
            each: Told of each step's results.
        """
        with counting_in(self.program.store.global_step):
            for features, labels in batches:
                if self._stop:
                    break
                results = self._step(features, labels)
                if each is not None:
                    each(results)
                if self._stop:
                    break

    def end(self) -> None:
        """Let hooks hear that all went well."""
        self.settle()
        with counting_in(self.program.store.global_step):
            for hook in self.hooks:
                hook.end(self)

    def _step(self, features: Tree, labels: Tree) -> StepResults:
        context = SessionRunContext(self)
        wanted = [hook.before_run(context) for hook in self.hooks]
        before = self.global_step
        results = self.last = self.program.step(features, labels)
        if self.program.counts_by_itself:
            self.global_step = int(self.program.store.global_step.value)
        elif self.program.is_training:
            self.global_step = before + 1
        for hook, args in zip(self.hooks, wanted, strict=True):
            fetched = None if args is None else self._fetched(args.fetches, before)
            hook.after_run(context, SessionRunValues(fetched))
        self._stop = self._stop or context.stop_requested
        return results

    def _fetched(self, fetches: Any, global_step: int) -> Any:
        def value(fetch: Any) -> Any:
            found = self._value(fetch, global_step)
            if found is None:
                raise InputError(
                    f"A hook asked for {fetch!r}.",
                    "A step does not compute this.",
                    "Ask for tensors that model_fn made and gave to a hook of its EstimatorSpec, for variables, "
                    f"or for one of the names {', '.join([LOSS, GLOBAL_STEP, *self.program.named])}; "
                    "stratagem.estimator.identity(tensor, name) gives a tensor a name.",
                )
            return found

        return jax.tree.map(value, fetches, is_leaf=lambda leaf: isinstance(leaf, keras.Variable | str))

    def _value(self, fetch: Any, global_step: int) -> Any:
        if fetch is self.program.store.global_step or (isinstance(fetch, str) and fetch == GLOBAL_STEP):
            return np.int64(global_step)
        if isinstance(fetch, keras.Variable):
            return np.asarray(fetch.value)
        if isinstance(fetch, str):
            return self._value_of_name(fetch.removesuffix(":0"))
        if self.last is None:
            return None
        if fetch is self.program.spec.loss:
            return self.last.loss
        return self.last.fetch(fetch)

    def _value_of_name(self, name: str) -> Any:
        """Return a tensor of the last step, or a variable."""
        if self.last is not None:
            if name in self.program.named:
                return self.last.fetch(self.program.named[name])
            if name == LOSS:
                return self.last.loss
        variable = self.variables.get(name)
        return None if variable is None else np.asarray(variable.value)
