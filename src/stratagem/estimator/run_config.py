"""`RunConfig`: where an Estimator saves, how often, on which devices, as which task of which cluster."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from stratagem.cluster.detect import detect
from stratagem.cluster.spec import ClusterSpec
from stratagem.core.errors import InputError
from stratagem.estimator.checks import unusable
from stratagem.estimator.log import say

_UNSET: Final = "unset"
"""Stands for the default of `save_checkpoints_steps` and `save_checkpoints_secs`: None turns one off."""

_DEFAULT_SECONDS: Final = 600
_POSITIVE: Final = ("save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs", "log_step_count_steps")


@dataclass(frozen=True)
class RunConfig:
    """Configuration of an Estimator's runs (`tf.estimator.RunConfig`).

    Source of the semantics: https://www.tensorflow.org/versions/r2.15/api_docs/python/tf/estimator/RunConfig

    Args:
        model_dir: Folder for checkpoints and event files; the Estimator's own counts if both are given.
        tf_random_seed: Seed of initial values, dropout and random numbers in model_fn; None means a new seed each time.
        save_summary_steps: Steps between two summaries; None writes none.
        save_checkpoints_steps: Steps between two checkpoints.
        save_checkpoints_secs: Seconds between two checkpoints; 600 if neither is given, and no checkpoints if both are
            None.
        session_config: Accepted as in TensorFlow.
        keep_checkpoint_max: Number of checkpoints to keep; None or 0 keeps all.
        keep_checkpoint_every_n_hours: In addition, keep one checkpoint for each period of this many hours.
        log_step_count_steps: Steps between two lines with the loss and the steps per second; None logs none.
        train_distribute: The strategy to train with; None means that of the scope, or one device.
        device_fn: Accepted as in TensorFlow.
        protocol: Accepted as in TensorFlow.
        eval_distribute: The strategy to evaluate with; None means one device. With a `ParameterServerStrategy` the
            chief lets the workers evaluate; a task of type evaluator evaluates alone.
        experimental_distribute: Accepted as in TensorFlow.
        experimental_max_worker_delay_secs: Accepted as in TensorFlow, where workers start one after another.
        session_creation_timeout_secs: Accepted as in TensorFlow; `CommunicationOptions.timeout_seconds` counts.
        checkpoint_save_graph_def: Accepted as in TensorFlow; there is no graph to save.

    Raises:
        InputError: A number is not positive, or steps and seconds are both given.

    Example:
        >>> config = RunConfig(save_checkpoints_steps=100)
        >>> config.save_checkpoints_secs is None, config.keep_checkpoint_max, config.task_type, config.is_chief
        (True, 5, 'worker', True)
        >>> config.replace(save_checkpoints_secs=60).save_checkpoints_steps is None
        True
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: Any = _UNSET
    save_checkpoints_secs: Any = _UNSET
    session_config: Any = None
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float = 10000
    log_step_count_steps: int | None = 100
    train_distribute: Any = None
    device_fn: Any = None
    protocol: str | None = None
    eval_distribute: Any = None
    experimental_distribute: Any = None
    experimental_max_worker_delay_secs: float | None = None
    session_creation_timeout_secs: float = 7200
    checkpoint_save_graph_def: bool = True
    cluster_spec: ClusterSpec = field(init=False)
    task_type: str = field(init=False)
    task_id: int = field(init=False)
    is_chief: bool = field(init=False)
    global_id_in_cluster: int | None = field(init=False)

    def __post_init__(self) -> None:
        steps, seconds = self.save_checkpoints_steps, self.save_checkpoints_secs
        if steps == _UNSET:
            vars(self)["save_checkpoints_steps"] = None
        if seconds == _UNSET:
            vars(self)["save_checkpoints_secs"] = _DEFAULT_SECONDS if steps == _UNSET else None
        self._check()
        vars(self).update(_facts_of_cluster())
        if self.train_distribute is not None or self.eval_distribute is not None:
            say("Initializing RunConfig with distribution strategies.")
            say("Not using Distribute Coordinator.")

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with other values (`tf.estimator.RunConfig.replace`).

        Args:
            **changes: Arguments of RunConfig. Checkpoint steps turn off the seconds, and vice versa.

        Raises:
            InputError: An argument is unknown, or a value is wrong.
        """
        names = [item.name for item in dataclasses.fields(self) if item.init]
        unknown = sorted(changes.keys() - set(names))
        if unknown:
            raise InputError(
                f"RunConfig.replace was given {', '.join(unknown)}.",
                "RunConfig has no such argument, and values of the cluster (task_type and others) cannot be replaced.",
                f"Write some of {', '.join(names)}.",
            )
        for one, other in (("steps", "secs"), ("secs", "steps")):
            if changes.get(f"save_checkpoints_{one}") is not None:
                changes.setdefault(f"save_checkpoints_{other}", None)
        changed = copy.copy(self)
        vars(changed).update(changes)
        changed._check()
        return changed

    @property
    def num_worker_replicas(self) -> int:
        """Number of tasks that train: the workers, and the chief if it is a separate task."""
        return len(self.cluster_spec.training_tasks) if self.cluster_spec else int(self.task_type != "evaluator")

    @property
    def num_ps_replicas(self) -> int:
        """Number of parameter servers."""
        return len(self.cluster_spec.task_indices("ps")) if "ps" in self.cluster_spec.jobs else 0

    @property
    def master(self) -> str:
        """The empty string, because there is no session to connect to."""
        return ""

    evaluation_master = master
    service = None

    def _check(self) -> None:
        steps, seconds = self.save_checkpoints_steps, self.save_checkpoints_secs
        if steps is not None and seconds is not None:
            given = {"save_checkpoints_steps": steps, "save_checkpoints_secs": seconds}
            raise unusable("RunConfig", "Give one of them.", **given)
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
                remedy = f"Write a positive number, or {name}=None for never."
                raise unusable("RunConfig", remedy, **{name: value})
        for name in ("train_distribute", "eval_distribute"):
            strategy = getattr(self, name)
            if strategy is not None and not hasattr(strategy, "mesh"):
                raise InputError(
                    f"RunConfig was given {name}={strategy!r} of type {type(strategy).__name__}.",
                    f"Write {name}=stratagem.MirroredStrategy(), with the parentheses.",
                )

    def __str__(self) -> str:
        names = [item.name for item in dataclasses.fields(self)]
        facts = {f"_{name}": getattr(self, name) for name in (*names, "num_ps_replicas", "num_worker_replicas")}
        return str(facts)


def _facts_of_cluster() -> dict[str, Any]:
    resolver = detect()
    spec = resolver.cluster_spec()
    own = resolver.task_type or "worker", resolver.task_id or 0
    evaluates = own[0] == "evaluator"
    trains = [(task.type, task.index) for task in spec.training_tasks]
    every = [(task.type, task.index) for task in spec.tasks if task.type != "evaluator"]
    return {
        "cluster_spec": ClusterSpec({}) if evaluates else spec,
        "task_type": own[0],
        "task_id": own[1],
        "is_chief": not evaluates and own in (trains[:1] or [own]),
        "global_id_in_cluster": None if evaluates else every.index(own) if own in every else 0,
    }
