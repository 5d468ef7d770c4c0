"""The Estimator: train, evaluate and predict with a model function."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from stratagem.checkpoint.state_file import latest_checkpoint
from stratagem.core.clock import Clock
from stratagem.core.errors import CheckpointError, InputError
from stratagem.estimator.checks import check_entries, check_kind
from stratagem.estimator.export import shapes_of, write_program
from stratagem.estimator.hooks.base import SessionRunHook
from stratagem.estimator.hooks.saving import CheckpointSaverListener
from stratagem.estimator.hooks.standard import training_hooks
from stratagem.estimator.hooks.steps import EvaluationProgressHook, StopAtStepHook
from stratagem.estimator.inputs import InputFn, batches_of
from stratagem.estimator.log import say
from stratagem.estimator.programs.checkpoints import WarmStartSettings, restore, values_in, warm_start
from stratagem.estimator.programs.model_function import ModelFunction, Program, StepResults
from stratagem.estimator.programs.results import chosen, examples, metrics_of, report
from stratagem.estimator.programs.session import Session
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.spec import EstimatorSpec, ModeKeys
from stratagem.estimator.summary import event_file
from stratagem.estimator.updates import install
from stratagem.estimator.variables import GLOBAL_STEP
from stratagem.mesh.mesh import Tree
from stratagem.program.compile import Executables
from stratagem.strategy.default import get_strategy

_ON_WORKERS: Final = "stratagem.estimator.programs.remote"
"""Programs whose steps workers do. Loaded for a strategy that has some: the module needs the packages of parameter
servers, which others do without."""

Batches = Iterator[tuple[Tree, Tree]]
"""(features, labels) of each step, as `Program.step` takes them."""


class Estimator:
    """Train, evaluate and predict with a model function (`tf.estimator.Estimator`).

    A model_fn makes the layers, the loss and the optimizer, and returns an `EstimatorSpec`. Each call of `train`,
    `evaluate` and `predict` calls it for its mode and compiles one step. Weights pass from one call to the next through
    the checkpoints in `model_dir`, by name. With several replicas, the batch of input_fn is that of one replica, and
    the loss and gradients are averaged over the replicas.

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/Estimator

    Args:
        model_fn: Function of some of (features, labels, mode, params, config) that returns an `EstimatorSpec`.
        model_dir: Folder for checkpoints and event files; None means that of `config`, or a temporary one.
        config: Configuration of the runs.
        params: Value of the argument `params` of model_fn and input_fn.
        warm_start_from: Initial weights if `model_dir` has no checkpoint: a checkpoint, a folder, or
            `WarmStartSettings`.

    Raises:
        InputError: An argument cannot be used; the message names it.

    Example:
        >>> import stratagem
        >>> from stratagem import keras
        >>> from stratagem.estimator import EstimatorSpec, RunConfig
        >>> def model_fn(features, labels, mode):
        ...     prediction = keras.layers.Dense(1, kernel_initializer="zeros")(features)
        ...     loss = keras.losses.MeanSquaredError()(labels, prediction)
        ...     train_op = keras.optimizers.SGD(0.1, name="sgd").minimize(loss)
        ...     return EstimatorSpec(mode, loss=loss, train_op=train_op, predictions=prediction)
        >>> def input_fn():
        ...     return stratagem.data.Dataset.from_tensor_slices(([[1.0], [2.0]], [[3.0], [6.0]])).repeat().batch(2)
        >>> estimator = Estimator(model_fn, config=RunConfig(save_summary_steps=None)).train(input_fn, steps=40)
        >>> metrics = estimator.evaluate(input_fn, steps=1)
        >>> int(metrics["global_step"]), bool(metrics["loss"] < 0.1), sorted(estimator.get_variable_names())
        (40, True, ['dense/bias', 'dense/kernel', 'global_step', 'sgd/iteration'])
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: WarmStartSettings | str | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        remedy = "Write config=stratagem.estimator.RunConfig(...)."
        check_kind("Estimator was given config", config, RunConfig | None, remedy)
        install()
        config = config or RunConfig()
        folder = model_dir or config.model_dir
        if folder is None:
            folder = tempfile.mkdtemp()
            say(f"Using temporary folder as model directory: {folder}")
        self._config = config.replace(model_dir=os.fspath(folder)) if config.model_dir != folder else config
        self._warm_start_from = warm_start_from
        self._params = copy.deepcopy(params)
        self._function = ModelFunction(model_fn, self._params, self._config)
        self._executables = Executables()
        self._clock = clock or Clock()
        say(f"Using config: {self._config}")

    @property
    def model_dir(self) -> str:
        """The folder for checkpoints and event files."""
        return self._config.model_dir or ""

    @property
    def config(self) -> RunConfig:
        """Configuration of the runs."""
        return self._config

    @property
    def params(self) -> Any:
        """A copy of the parameters."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """The model function."""
        return self._function.fn

    @property
    def warm_start_from(self) -> WarmStartSettings | str | None:
        """The source of initial weights."""
        return self._warm_start_from

    @property
    def call_model_fn(self) -> ModelFunction:
        """Function `call_model_fn(features, labels, mode)`, to call the model function within another one."""
        return self._function

    def train(
        self,
        input_fn: InputFn,
        hooks: Sequence[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Train, starting from the newest checkpoint in `model_dir`.

        Args:
            input_fn: Returns the data; see `stratagem.estimator.inputs`.
            hooks: Hooks for every step.
            steps: Number of steps; None means all of the data.
            max_steps: The global step to stop at. If the newest checkpoint has reached it, nothing is done.
            saving_listeners: Listeners that are called for every checkpoint.

        Returns:
            The Estimator.

        Raises:
            InputError: An argument, or what model_fn or input_fn returns, cannot be used.
            NanLossDuringTrainingError: The loss is NaN.
        """
        _check_steps(steps=steps, max_steps=max_steps)
        own_hooks = [*check_entries("train was given hooks with", hooks, SessionRunHook)]
        listeners = check_entries("saving_listeners has", saving_listeners, CheckpointSaverListener)
        strategy = get_strategy() if self._config.train_distribute is None else self._config.train_distribute
        if max_steps is not None and strategy.from_chief("step that is saved", self._saved_step()) >= max_steps:
            say("Skipping training since max_steps has already saved.")
            return self
        if steps is not None or max_steps is not None:
            own_hooks.append(StopAtStepHook(steps, max_steps))
        writes = strategy.is_chief and self._config.save_summary_steps is not None
        with (
            self._begun(ModeKeys.TRAIN, input_fn, strategy, steps, max_steps) as (program, batches),
            event_file(self.model_dir if writes else None) as write,
        ):
            session = Session(program, training_hooks(program, self._config, own_hooks, listeners, write, self._clock))
            session.begin(lambda: self._give_values(program, self.latest_checkpoint()))
            session.run_steps(batches)
            session.end()
            if session.last is not None:
                say(f"Loss for final step: {session.last.loss!s}.")
        return self

    def evaluate(
        self,
        input_fn: InputFn,
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate a checkpoint.

        Args:
            input_fn: Returns the data.
            steps: Number of batches to evaluate; None means all of the data.
            hooks: Hooks for every step.
            checkpoint_path: The checkpoint; None means the newest in `model_dir`.
            name: Name of the evaluation, if there are several; its event files go to `eval_<name>`.

        Returns:
            The metrics by name, including `loss` (the mean over the steps) and `global_step`.

        Raises:
            InputError: An argument, or what model_fn or input_fn returns, cannot be used.
        """
        _check_steps(steps=steps)
        own_hooks = [*check_entries("evaluate was given hooks with", hooks, SessionRunHook)]
        own_hooks.append(EvaluationProgressHook(steps))
        path = self._checkpoint(checkpoint_path, "evaluate")
        losses: list[Any] = []
        with self._begun(ModeKeys.EVAL, input_fn, self._config.eval_distribute, steps) as (program, batches):
            say(f"Starting evaluation at {time.strftime('%Y-%m-%dT%H:%M:%S')}")
            began = self._clock.now()
            session = Session(program, [*own_hooks, *program.spec.evaluation_hooks])
            session.begin(lambda: self._give_values(program, path))
            session.run_steps(batches, lambda results: losses.append(results.loss_on_device))
            session.end()
            say(f"Inference Time : {self._clock.now() - began:.5f}s")
            say(f"Finished evaluation at {time.strftime('%Y-%m-%d-%H:%M:%S')}")
            metrics = metrics_of(program, losses, session.global_step)
        writes = self._config.is_chief or self._config.task_type == "evaluator"
        report(metrics, path, self.eval_dir(name) if writes else None)
        return metrics

    def predict(
        self,
        input_fn: InputFn,
        predict_keys: str | Sequence[str] | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yield predictions, on one device.

        Args:
            input_fn: Returns features, or (features, labels); the labels are not used.
            predict_keys: Keys of the predictions to return; None means all.
            hooks: Hooks for every step.
            checkpoint_path: The checkpoint; None means the newest in `model_dir`.
            yield_single_examples: Whether to yield the predictions of one example at a time; otherwise those of a
                batch.

        Yields:
            The predictions of model_fn, as NumPy arrays.

        Raises:
            InputError: An argument, or what model_fn or input_fn returns, cannot be used.
        """
        own_hooks = check_entries("predict was given hooks with", hooks, SessionRunHook)
        path = self._checkpoint(checkpoint_path, "predict")
        with self._begun(ModeKeys.PREDICT, input_fn) as (program, batches):
            session = Session(program, [*own_hooks, *program.spec.prediction_hooks])
            session.begin(lambda: self._give_values(program, path))
            for batch in batches:
                results: list[StepResults] = []
                session.run_steps([batch], results.append)
                predictions = chosen(results[0].predictions, predict_keys)
                yield from examples(predictions) if yield_single_examples else [predictions]
                if session.should_stop():
                    break
            session.end()

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Any = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> str:
        """Write the predictions of a checkpoint as a program that JAX runs without Stratagem or Keras.

        It is one file, `predict.jax_export`, which contains the weights. It works on CPUs, GPUs and TPUs, for a batch
        of any size: `jax.export.deserialize(Path(folder, "predict.jax_export").read_bytes()).call(features)`.

        Args:
            export_dir_base: The folder in which a new folder is created, named by the time.
            serving_input_receiver_fn: Function that returns the inputs of the program: a `ServingInputReceiver`, or a
                structure of `TensorSpec` or of arrays.
            assets_extra: Accepted as in TensorFlow.
            as_text: Accepted as in TensorFlow.
            checkpoint_path: The checkpoint; None means the newest in `model_dir`.

        Returns:
            The new folder.

        Raises:
            CheckpointError: There is no checkpoint.
            InputError: The model works only for one batch size.
        """
        features = shapes_of(serving_input_receiver_fn)
        program = Program(self._function, ModeKeys.PREDICT, get_strategy(), self._config.tf_random_seed)
        try:
            program.prepare(features, None)
            self._give_values(program, checkpoint_path or self._trained())
            return write_program(program, features, os.fspath(export_dir_base))
        finally:
            program.release()

    def latest_checkpoint(self) -> str | None:
        """Return the path of the newest checkpoint in `model_dir`; None if there is none."""
        return latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Return the names of the variables in the newest checkpoint.

        Raises:
            CheckpointError: There is no checkpoint.
        """
        return sorted(values_in(self._trained()))

    def get_variable_value(self, name: str) -> np.ndarray:
        """Return the value of a variable in the newest checkpoint.

        Args:
            name: One of `get_variable_names()`.

        Raises:
            CheckpointError: There is no checkpoint.
            InputError: The checkpoint has no such variable.
        """
        values = values_in(self._trained())
        if name not in values:
            raise InputError(
                f"get_variable_value was asked for {name!r}, which is not in the checkpoint.",
                f"Ask for one of {', '.join(sorted(values))}.",
            )
        return np.asarray(values[name])

    def eval_dir(self, name: str | None = None) -> str:
        """Return the folder for the event files of an evaluation.

        Args:
            name: Name of the evaluation, if there are several.
        """
        return os.path.join(self.model_dir, "eval" if name is None else f"eval_{name}")

    @contextlib.contextmanager
    def _begun(
        self,
        mode: str,
        input_fn: InputFn,
        strategy: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
    ) -> Iterator[tuple[Program, Batches]]:
        """Make the program of a mode, prepared for what an input function gives, and the batches.

        Args:
            mode: The mode.
            input_fn: Returns the data.
            strategy: Where it runs; None for the one of the scope, or one device.
            steps: How many steps will be done; None where that is not known.
            max_steps: The global step to stop at; None for none.

        Yields:
            The program and the batches, which are freed at the end.

        Raises:
            InputError: There is no data, or what model_fn or input_fn returns cannot be used.
        """
        config, seed = self._config, self._config.tf_random_seed
        strategy = get_strategy() if strategy is None else strategy
        alone = mode == ModeKeys.EVAL and config.task_type == "evaluator"  # the workers are another program's
        if alone and strategy.hands_out_steps:
            strategy = get_strategy()
        forever = mode == ModeKeys.TRAIN or steps is not None
        pass_over = functools.partial(batches_of, input_fn, mode, strategy, self._params, config, forever=forever)
        with contextlib.ExitStack() as stack:
            if strategy.hands_out_steps and not alone:
                on_workers = importlib.import_module(_ON_WORKERS)
                program = on_workers.RemoteProgram(self._function, mode, strategy, seed, pass_over)
                stack.callback(program.release)
                yield program, program.batches(steps, max_steps)
                return
            program = Program(self._function, mode, strategy, seed, self._executables)
            stack.callback(program.release)
            given = stack.enter_context(contextlib.closing(pass_over()))
            batches: Batches = ((features, None) for features, _ in given) if mode == ModeKeys.PREDICT else given
            first = next(batches, None)
            if first is None:
                raise InputError(
                    f"input_fn gave no batch for mode {mode!r} with rows for each of {strategy.num_replicas_in_sync} "
                    "replica(s).",
                    "Look at the dataset: every replica takes a batch of its own at each step.",
                )
            program.prepare(*first)
            yield program, itertools.chain([first], batches)

    def _give_values(self, program: Program, path: str | None) -> str | None:
        """Give a program's variables the values of a checkpoint, whose path is returned, or initial values."""
        variables = program.store.saved()
        path = restore(variables, path)
        if path is not None:
            say(f"Restoring parameters from {path}")
        elif self._warm_start_from is not None:
            for name in warm_start(variables, self._warm_start_from):
                say(f"Warm-starting variable: {name}")
        return path

    def _saved_step(self) -> int:
        path = self.latest_checkpoint()
        return -1 if path is None else int(values_in(path)[GLOBAL_STEP])

    def _checkpoint(self, path: str | None, purpose: str) -> str | None:
        """Return the given checkpoint, or the newest; log that there is none."""
        path = path or self.latest_checkpoint()
        if path is None:
            say(f"Could not find trained model in model_dir: {self.model_dir}, running initialization to {purpose}.")
        return path

    def _trained(self) -> str:
        path = self.latest_checkpoint()
        if path is None:
            raise CheckpointError(
                f"There is no checkpoint in model_dir, {self.model_dir!r}.",
                "Call train() first, or make the Estimator with the model_dir that was trained into.",
            )
        return path


def _check_steps(**steps: int | None) -> None:
    given = {name: value for name, value in steps.items() if value is not None}
    if len(given) > 1:
        raise InputError(
            "train was given both steps and max_steps.",
            "They contradict each other: steps counts from here, max_steps counts from the first training.",
            "Give one of them.",
        )
    for name, value in given.items():
        if value <= 0:
            raise InputError(
                f"{name} is {value}.",
                f"Write a positive number, or leave {name} out to use all of the data.",
            )
