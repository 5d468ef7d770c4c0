"""TF_CONFIG: the cluster and this task as JSON. A fault is shown in its place."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from stratagem.cluster.resolver import ClusterResolver
from stratagem.cluster.spec import ClusterSpec, SpecError, Task
from stratagem.core import environment as env
from stratagem.core.errors import ClusterError

EXAMPLE = '{"cluster": {"worker": ["localhost:12345", "localhost:23456"]}, "task": {"type": "worker", "index": 0}}'
LINES_AROUND_FAULT = 8

Path = tuple[str | int, ...]


class TFConfigClusterResolver(ClusterResolver):
    """Read the cluster from TF_CONFIG (`tf.distribute.cluster_resolver.TFConfigClusterResolver`).

    TF_CONFIG is read at each call. Without it the cluster is empty: a single worker.

    Args:
        task_type: Overrides the type in TF_CONFIG.
        task_id: Overrides the index in TF_CONFIG; 0 counts as given.
        rpc_layer: Overrides "rpc_layer" in TF_CONFIG.
        environment: Value of the attribute `environment`.
        environ: Variables that contain TF_CONFIG; None means `os.environ`.

    Raises:
        ClusterError: From every method, if TF_CONFIG cannot be used. The message shows it with the fault marked.

    Example:
        >>> resolver = TFConfigClusterResolver(environ={"TF_CONFIG": EXAMPLE})
        >>> resolver.task_type, resolver.task_id, resolver.master()
        ('worker', 0, 'localhost:12345')
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self.environment = environment or ""
        self._environ = os.environ if environ is None else environ
        self._last: tuple[tuple[str, str | None, int | None], TFConfig] | None = None

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Return whether TF_CONFIG is set."""
        return bool(environ.get(env.TF_CONFIG, "").strip())

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster of TF_CONFIG; empty without TF_CONFIG."""
        return self._read().cluster

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """Return "session_master" of TF_CONFIG if it is there, else the address of a task."""
        session_master = self._read().session_master
        return super().master(task_type, task_id, rpc_layer) if session_master is None else session_master

    @property
    def rpc_layer(self) -> str | None:
        """The part before "://" in the result of `master`."""
        return self._rpc_layer or self._read().rpc_layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def _own_task(self) -> Task | None:
        return self._read().task

    def _read(self) -> TFConfig:
        """Return what TF_CONFIG says; read again only when it, or what overrides it, has changed."""
        given = (self._environ.get(env.TF_CONFIG, "").strip(), self._task_type, self._task_id)
        if self._last is None or self._last[0] != given:
            self._last = (given, parse(*given))
        return self._last[1]


class TFConfig(NamedTuple):
    """A TF_CONFIG that can be used.

    Args:
        cluster: The cluster; empty when none is written.
        task: This process's task, or None when there is no task, and no cluster, one of a single task, or one with
            parameter servers and without a chief, which this process is.
        rpc_layer: What is written under "rpc_layer".
        session_master: What is written under "session_master".
    """

    cluster: ClusterSpec
    task: Task | None
    rpc_layer: str | None
    session_master: str | None


def parse(text: str, task_type: str | None = None, task_id: int | None = None) -> TFConfig:
    """Read TF_CONFIG.

    Args:
        text: The value of the variable, without blanks around it.
        task_type: Type of the task, where the caller knows better.
        task_id: Index of the task, where the caller knows better.

    Raises:
        ClusterError: It is not a JSON object, the cluster cannot be used, or the task is missing or not of the cluster.

    Example:
        >>> parse(EXAMPLE).task, parse(EXAMPLE, task_id=1).task
        (Task(type='worker', index=0), Task(type='worker', index=1))
    """
    config = _load(text) if text else {}
    _check_spelling(config)
    try:
        cluster = ClusterSpec(config.get("cluster") or {})
    except SpecError as error:
        raise _fault(config, error.below("cluster")) from None
    overrides = {"type": task_type, "index": task_id}
    task = _task(config, cluster, {key: value for key, value in overrides.items() if value is not None})
    return TFConfig(cluster, task, config.get("rpc_layer"), config.get("session_master"))


def _load(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1]
        start = max(0, error.colno - 60)
        fault = f"    {line[start : error.colno + 60]}\n    {' ' * (error.colno - 1 - start)}^ {error.msg}"
        raise ClusterError(
            f"TF_CONFIG is not JSON:\n{fault}",
            f"Write it with json.dumps, which uses double quotes, for instance\n    {EXAMPLE}",
        ) from None
    if not isinstance(config, dict):
        raise _fault(config, SpecError("TF_CONFIG is not a JSON object", f"Write {EXAMPLE}"))
    return config


def _check_spelling(config: dict[str, Any]) -> None:
    """Refuse a description without "cluster" that has a key nearly of this name: the process would train alone."""
    for key in () if "cluster" in config else config:
        if difflib.get_close_matches(key.lower(), ["cluster"]):
            raise _fault(config, SpecError(f'TF_CONFIG has {key!r} and no "cluster"', 'Write "cluster".', path=(key,)))


def _task(config: dict[str, Any], cluster: ClusterSpec, overrides: dict[str, Any]) -> Task | None:
    written = config.get("task")
    if written is not None and not isinstance(written, dict):
        raise _fault(config, SpecError(f"The task is {written!r}", _TASK_REMEDY, path=("task",)))
    task = {**(written or {}), **overrides}
    if "type" not in task and (not cluster or (not config.keys() - {"cluster"} and _has_place_for_one_more(cluster))):
        return None
    for key in ("type", "index"):
        if key not in task:
            path = ("task",) if written else ()
            raise _fault(config, SpecError(f"TF_CONFIG has a cluster and no task {key}", _TASK_REMEDY, path=path))
    try:
        own = Task(task["type"], _index(task["index"]))
        cluster.check_task(own)
    except SpecError as error:
        raise _fault(config, error.below("task")) from None
    return own


def _has_place_for_one_more(cluster: ClusterSpec) -> bool:
    """Whether a process may have no task: it is alone, or hands out work to parameter servers and workers."""
    return len(cluster.tasks) == 1 or ("ps" in cluster.jobs and "chief" not in cluster.jobs)


_TASK_REMEDY = 'Write "task": {"type": "worker", "index": 0}, with an index of its own for each task.'


def _index(index: object) -> Any:
    # TensorFlow reads "1" as 1, and shell scripts write it so.
    return int(index) if isinstance(index, str) and index.isascii() and index.isdigit() else index


def _fault(config: object, fault: SpecError) -> ClusterError:
    """Return a fault with the configuration drawn, and its place marked."""
    return ClusterError(f"{fault.found.rstrip('.')}:\n{picture(config, fault.path)}", *fault.parts)


def picture(config: object, path: Path) -> str:
    """Draw a JSON value over several lines and mark the place of a fault.

    Args:
        config: The value.
        path: Keys that lead to the fault; where they lead nowhere, the nearest value is marked.

    Returns:
        Lines indented by four blanks; far from the fault they are left out.

    Example:
        >>> print(picture({"task": {"type": "boss"}}, ("task", "type")))
            {
              "task": {
                "type": "boss"   <-- here
              }
            }
    """
    up_to_fault = json.dumps(_marked(config, path), indent=2).partition(_MARK)[0]
    fault = up_to_fault.count("\n")
    lines = json.dumps(config, indent=2).splitlines()
    lines[fault] += "   <-- here"
    first, last = max(0, fault - LINES_AROUND_FAULT), fault + LINES_AROUND_FAULT + 1
    kept = ["..."] * (first > 0) + lines[first:last] + ["..."] * (last < len(lines))
    return "\n".join(f"    {line}" for line in kept)


_MARK: Final = "the fault, which nobody writes so"


def _marked(value: Any, path: Path) -> Any:
    """Return a JSON value with a mark in the place of what a path leads to, or of the nearest value on its way."""
    if not path or not isinstance(value, dict | list):
        return _MARK
    copy: Any = value.copy()
    try:
        copy[path[0]] = _marked(copy[path[0]], path[1:])
    except (LookupError, TypeError):
        return _MARK
    return copy
