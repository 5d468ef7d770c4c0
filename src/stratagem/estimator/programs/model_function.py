"""The compiled step of a model function, one for each mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import InputError, UsageError
from stratagem.estimator.checks import check_callable
from stratagem.estimator.log import say
from stratagem.estimator.running_call import Call, calling
from stratagem.estimator.spec import EstimatorSpec, ModeKeys
from stratagem.estimator.text import in_host_memory
from stratagem.estimator.updates import run_train_op
from stratagem.estimator.variables import VariableStore, is_local
from stratagem.loop.tape import GradientTape
from stratagem.mesh.mesh import Tree
from stratagem.mesh.shapes import cut
from stratagem.mesh.values import DistributedValues
from stratagem.mesh.variable_policies import Policy, policy_of
from stratagem.program.compile import Executables
from stratagem.program.tracing import Replayable, current_tracing
from stratagem.replica.context import current_replica_context
from stratagem.replica.run import ReplicaRunner

_ARGUMENTS = ("features", "labels", "mode", "params", "config")


class ModelFunction:
    """A user's `model_fn(features, labels, mode[, params, config])`, in any order of its arguments.

    Args:
        fn: The function.
        params: What it gets as `params`; None for none.
        config: What it gets as `config`.

    Raises:
        InputError: It has no argument `features`, or one that is not known, or no `params` where some are given.
    """

    def __init__(self, fn: Callable[..., EstimatorSpec], params: Any, config: Any) -> None:
        remedy = "Write a function model_fn(features, labels, mode) that returns an EstimatorSpec."
        check_callable("Estimator was given model_fn", fn, remedy)
        self.fn = fn
        self._names = set(inspect.signature(fn).parameters)
        self._given = {"params": params, "config": config}
        unknown = sorted(self._names - set(_ARGUMENTS) - {"self"})
        if "features" not in self._names or unknown:
            found = f"also has {', '.join(unknown)}" if unknown else "has no argument `features`"
            raise InputError(
                f"model_fn takes {', '.join(sorted(self._names)) or 'no arguments'}: it {found}.",
                f"Take some of {', '.join(_ARGUMENTS)}, in any order. Put other values into `params`.",
            )
        if params is not None and "params" not in self._names:
            raise InputError(
                f"Estimator was given params={params!r}, and model_fn has no argument `params`.",
                "Write model_fn(features, labels, mode, params), or leave params out.",
            )

    def __call__(self, features: Tree, labels: Tree, mode: str) -> EstimatorSpec:
        """Call the function with the arguments that it takes."""
        if "labels" not in self._names and labels is not None:
            raise InputError(
                "model_fn has no argument `labels`, and input_fn returns labels.",
                "Write model_fn(features, labels, mode), or let input_fn return features only.",
            )
        given = {"features": features, "labels": labels, "mode": mode, **self._given}
        spec = self.fn(**{name: value for name, value in given.items() if name in self._names})
        if not isinstance(spec, EstimatorSpec):
            raise InputError(
                f"model_fn returned {type(spec).__name__} for mode {mode!r}.",
                "Return stratagem.estimator.EstimatorSpec(mode, ...) for each of the modes train, eval and infer.",
            )
        return spec


class Program:
    """The compiled step of a model function in one mode, with its variables.

    Args:
        function: The model function.
        mode: The mode.
        strategy: Where it runs. Gradients and losses are averaged over its replicas.
        seed: Of what the model function draws; None for another one each time.
        executables: Where the compiled step is kept for programs to come; None for nowhere.
    """

    def __init__(
        self,
        function: ModelFunction,
        mode: str,
        strategy: Any,
        seed: int | None,
        executables: Executables | None = None,
    ) -> None:
        self.mode = mode
        self.strategy = strategy
        self.store = VariableStore(seed)
        self.counts_by_itself: bool | None = None
        self._function = function
        self._runner = ReplicaRunner(strategy, mean_gradients=True, executables=executables)
        self._spec: EstimatorSpec | None = None
        self._tensors: list[Any] = []
        self.summaries: Mapping[str, Any] = {}
        """The scalars that the function wants in the summaries, by name, as `StepResults.fetch` takes them."""
        self.named: Mapping[str, Any] = {}
        """The tensors that the function has given names, as `StepResults.fetch` takes them."""

    @property
    def is_training(self) -> bool:
        """Whether steps change the weights, and count."""
        return self.mode == ModeKeys.TRAIN

    @property
    def spec(self) -> EstimatorSpec:
        """The spec of the first call. Its tensors only stand for those of a step."""
        assert self._spec is not None, "prepare comes first"
        return self._spec

    def prepare(self, features: Tree, labels: Tree) -> None:
        """Call the model function for the first time, which makes its variables.

        Args:
            features: A batch like those to come.
            labels: Its labels, or None.
        """
        say("Calling model_fn.")
        self._runner.prepare(self._step, (features, labels))
        self.store.complete()
        say("Done calling model_fn.")

    def step(self, features: Tree, labels: Tree) -> StepResults:
        """Run one step on all replicas.

        Args:
            features: A batch for each replica.
            labels: Its labels, or None.
        """
        return StepResults(self.run(features, labels), self._tensors)

    def run(self, features: Tree, labels: Tree) -> dict[str, Any]:
        """Run one step on all replicas; return what `StepResults` takes.

        Args:
            features: A batch for each replica.
            labels: Its labels, or None.
        """
        return self._runner(self._step, (features, labels), {})

    def settle(self) -> None:
        """Wait for all steps that were begun: none, where a step ends before the next begins."""

    def release(self) -> None:
        """Free its memory on devices. It cannot run any more steps."""
        self.store.release()

    def predictor(self) -> Callable[[Tree], Tree]:
        """Return a pure function from features to predictions, with the present values of the variables in it."""
        values = [(variable, variable.value) for variable in self.store.all()]

        def predict(features: Tree) -> Tree:
            return Replayable(lambda: self._step(features, None)["predictions"], values).run()

        return predict

    def _step(self, features: Tree, labels: Tree) -> dict[str, Any]:
        """Call the function for one replica, as its mode requires."""
        call = Call(self.mode, self.store.global_step)
        with self.store.filling(), calling(call):
            if self.mode == ModeKeys.TRAIN:
                spec = self._train(call, features, labels)
            else:
                spec = self._function(features, labels, self.mode)
                _leave_unchanged()
        outputs: dict[str, Any] = {"tensors": self._seen(spec, call)}
        if self.mode == ModeKeys.PREDICT:
            outputs["predictions"] = spec.predictions
        else:
            outputs["loss"] = _over_replicas(spec.loss)
        return outputs

    def _train(self, call: Call, features: Tree, labels: Tree) -> EstimatorSpec:
        before = call.global_step.value
        with GradientTape(persistent=True) as call.tape:
            spec = self._function(features, labels, self.mode)
        run_train_op(spec.train_op)
        if self.counts_by_itself is None:  # a worker has heard from the chief
            self.counts_by_itself = call.global_step.value is not before
        if not self.counts_by_itself:
            call.global_step.assign_add(1)
        return spec

    def _seen(self, spec: EstimatorSpec, call: Call) -> list[Any]:
        """Return the tensors that hooks may ask for, and keep those of the first call, by which hooks ask."""
        predictions = spec.predictions if self.mode == ModeKeys.PREDICT else None  # else a hook must hold them
        given = [*call.summaries.values(), *call.named.values()]
        hooks = [*spec.training_hooks, *spec.training_chief_hooks, *spec.evaluation_hooks, *spec.prediction_hooks]
        tensors = [*given, *tensors_in([predictions, *hooks])]
        if self._spec is None:
            self._spec, self._tensors, self.summaries, self.named = spec, tensors, call.summaries, call.named
        if len(tensors) != len(self._tensors):
            raise UsageError(
                f"model_fn made {len(self._tensors)} tensors for hooks and summaries, and now {len(tensors)}.",
                "Make the same hooks and summaries at each call of model_fn.",
            )
        return tensors


@dataclass(frozen=True, eq=False)
class StepResults:
    """Results of a step, copied from the devices when they are asked for.

    Args:
        outputs: What the step returned.
        tensors: Stand-ins by which its tensors are asked for.
    """

    outputs: dict[str, Any]
    tensors: list[Any]

    @property
    def loss(self) -> np.ndarray:
        """The loss, averaged over the rows of all replicas."""
        return own_value(self.loss_on_device)

    @property
    def loss_on_device(self) -> Any:
        """The loss as the step returned it, for `own_value`: reading it does not wait for the step."""
        return self.outputs["loss"]

    def wait(self) -> None:
        """Wait until the step has been computed."""
        jax.block_until_ready([getattr(leaf, "stacked", leaf) for leaf in jax.tree.leaves(self.outputs)])

    @property
    def predictions(self) -> Tree:
        """The predictions for the rows of the step."""
        return in_host_memory(self.outputs["predictions"], own_value)

    def fetch(self, tensor: Any) -> np.ndarray | None:
        """Return the value of a tensor of the model function, on this worker's first replica; None if unknown."""
        for stand_in, value in zip(self.tensors, self.outputs["tensors"], strict=True):
            if stand_in is tensor:
                return own_value(value)
        return None


def tensors_in(value: Any) -> list[Any]:
    """Return the arrays in a structure and in the attributes of hooks, in the order in which they stand."""
    found: list[Any] = []
    seen: set[int] = set()

    def look(part: Any) -> None:
        if id(part) in seen:
            return
        seen.add(id(part))
        if isinstance(part, jax.Array):
            found.append(part)
        elif isinstance(part, Mapping | list | tuple):
            for entry in part.values() if isinstance(part, Mapping) else part:
                look(entry)
        elif type(part).__name__.endswith("Hook") or hasattr(part, "before_run"):
            look(vars(part))

    look(value)
    return found


def own_value(value: Any) -> np.ndarray:
    """Return a result of a step on this worker's first replica, in host memory; a scalar as a NumPy scalar."""
    if not isinstance(value, DistributedValues):
        return np.asarray(value)[()]
    own = value.stacked.addressable_data(0)[0]
    if value.shapes is not None:
        own = cut(own, value.shapes[value.mesh.local_replicas[0]])
    return np.asarray(own)[()]


def _over_replicas(loss: Any) -> jax.Array:
    """Return the mean of the replicas' losses by rows: that of all."""
    context = current_replica_context()
    assert context is not None, "a step runs in replica context"
    own = jnp.reshape(jnp.asarray(loss.value if isinstance(loss, keras.Variable) else loss), ())
    (total,) = context.sum([own * jnp.asarray(context.share.weight, own.dtype)])
    return total


def _leave_unchanged() -> None:
    """Take back what the function assigned, unless it is for this evaluation alone: nothing is trained here."""
    tracing = current_tracing()
    assert tracing is not None, "a step is traced"
    for key, variable in list(tracing.scope.assigned.items()):
        if not is_local(variable) and policy_of(variable) is not Policy.SEED:
            del tracing.scope.assigned[key]
