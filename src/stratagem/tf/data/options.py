"""`tf.data.Options`, with the settings that only tune TensorFlow's own runtime."""

from __future__ import annotations

from typing import Any, Final

from stratagem.core.errors import explain
from stratagem.core.log import announce_once
from stratagem.data.options import DistributeOptions
from stratagem.data.options import Options as _Options


class Tuning:
    """Settings of TensorFlow's runtime. They are kept as they are set, and have no effect.

    Args:
        path: How a program reaches them.
        known: Their names in TensorFlow.
    """

    def __init__(self, path: str, known: tuple[str, ...]) -> None:
        vars(self).update(_path=path, _known=known, **dict.fromkeys(known))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._known:
            raise _unknown(f"{self._path}.{name}", self._known)
        _said(f"{self._path}.{name}")
        vars(self)[name] = value

    def __getattr__(self, name: str) -> Any:
        raise _unknown(f"{vars(self).get('_path', '')}.{name}", vars(self).get("_known", ()))


class Options(_Options):
    """Options of a dataset (`tf.data.Options`).

    The options for sharding among workers and `reader_processes` have an effect. Options that tune TensorFlow's runtime
    are accepted and reported once, but have no effect: NumPy makes the batches.
    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/data/Options

    Example:
        >>> options = Options()
        >>> options.experimental_optimization.map_parallelization = True
        >>> options.threading.private_threadpool_size = 8
        >>> options.experimental_distribute.auto_shard_policy.name
        'AUTO'
    """

    __slots__ = ("_tuning",)

    def __init__(self) -> None:
        object.__setattr__(self, "_tuning", {name: Tuning(name, known) for name, known in _GROUPS.items()})
        super().__init__()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SINGLE:
            _said(name)
            self._tuning[name] = value
        elif name == "experimental_deterministic":
            self.deterministic = value
        elif name in _GROUPS:
            self._tuning[name] = value
        elif not hasattr(_Options, name):
            raise _unknown(name, _KNOWN)
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "experimental_deterministic":
            return self.deterministic
        if name in _SINGLE or name in _GROUPS:
            return self._tuning.get(name)
        raise _unknown(name, _KNOWN)


def ThreadingOptions() -> Tuning:
    """Return settings of threads (`tf.data.ThreadingOptions`), which have no effect.

    Example:
        >>> ThreadingOptions().private_threadpool_size
    """
    return Tuning("threading", _GROUPS["threading"])


def OptimizationOptions() -> Tuning:
    """Return settings of graph rewriting (`tf.data.experimental.OptimizationOptions`), which have no effect.

    Example:
        >>> OptimizationOptions().map_fusion
    """
    return Tuning("experimental_optimization", _GROUPS["experimental_optimization"])


def AutotuneOptions() -> Tuning:
    """Return settings of TensorFlow's tuner (`tf.data.experimental.AutotuneOptions`), which have no effect.

    Example:
        >>> AutotuneOptions().enabled
    """
    return Tuning("autotune", _GROUPS["autotune"])


def _said(name: str) -> None:
    announce_once(f"tf.data.Options: {name} tunes TensorFlow's runtime; it is accepted but has no effect here.")


def _unknown(name: str, known: tuple[str, ...]) -> AttributeError:
    return AttributeError(
        explain(f"tf.data.Options has no {name}.", f"Remove the line, or use one of {', '.join(known)}.")
    )


_GROUPS: Final = {
    group: tuple(names.split())
    for group, names in {
        "autotune": "autotune_algorithm cpu_budget enabled initial_parallelism min_parallelism ram_budget",
        "experimental_optimization": """
            apply_default_optimizations autotune autotune_buffers autotune_cpu_budget autotune_ram_budget filter_fusion
            filter_parallelization inject_prefetch map_and_batch_fusion map_and_filter_fusion map_fusion
            map_parallelization noop_elimination parallel_batch seq_interleave_prefetch shuffle_and_repeat_fusion
        """,
        "experimental_threading": "max_intra_op_parallelism private_threadpool_size",
        "threading": "max_intra_op_parallelism private_threadpool_size",
    }.items()
}
"""Groups of settings, as TensorFlow has them."""

_SINGLE: Final = (
    "dataset_name",
    "experimental_external_state_policy",
    "experimental_slack",
    "experimental_symbolic_checkpoint",
    "experimental_warm_start",
    "framework_type",
)
"""Settings by themselves."""

_KNOWN: Final = ("deterministic", "experimental_distribute", "reader_processes", *_SINGLE, *_GROUPS)

__all__ = ["AutotuneOptions", "DistributeOptions", "OptimizationOptions", "Options", "ThreadingOptions"]
